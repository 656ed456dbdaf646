"""ChatML: turns between `<|im_start|>` and `<|im_end|>`. The frame of Qwen and many others, and a format of its own.

    <|im_start|>assistant
    Let me look.
    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Oslo"}}
    </tool_call><|im_end|>

As a format of its own it serves models that have the turns but were never taught a call syntax (SmolLM2 is the default model of
`unbraid serve`): Hermes' calls, which a prompt can show them. Their tokenizers have no token for `<tool_call>`: it's spelled.
"""

from unbraid.codecs import JsonObject
from unbraid.table import ENDED, ROLE, START, Format, calling, special, text, turn, usual

TURN = turn("<|im_start|>")
END = turn("<|im_end|>")
TEXT_END = turn("<|endoftext|>")
NEWLINE = text("\n")
TURNS = {TURN: ROLE, END: ENDED, TEXT_END: ENDED}

CALL = special("<tool_call>", before="\n", after="\n")
UNCALL = special("</tool_call>", before="\n")
CALLING = calling(JsonObject())

CHATML = Format(
    name="chatml",
    about="any ChatML model without a syntax of its own, SmolLM2 among them: calls as JSON, as Hermes writes them",
    models=("*SmolLM2*", "*SmolLM-*"),
    states={**usual(None, (CALL, UNCALL), CALLING), ROLE: {NEWLINE: START}},
    turns=TURNS,
)
