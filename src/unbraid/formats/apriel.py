"""ServiceNow Apriel 1.5 and 1.6 Thinker: a thought between phrases of ordinary text, calls as one JSON array.

    Here are my reasoning steps:
    Two lookups.
    [BEGIN FINAL RESPONSE]
    One moment.
    <tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>
    [END FINAL RESPONSE]
    <|end|>

1.6's prompt ends with the first phrase; 1.5 writes it itself, and only 1.5 writes the last one. Source: the templates in llama.cpp.
"""

from unbraid.codecs import JsonArray
from unbraid.table import (
    CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special, text, turn,
)  # fmt: skip

STEPS = text("Here are my reasoning steps:", after="\n")
FINAL = text("[BEGIN FINAL RESPONSE]", before="\n", after="\n")
UNFINAL = text("[END FINAL RESPONSE]", before="\n", after="\n")
CALLS, UNCALLS = special("<tool_calls>", before="\n"), special("</tool_calls>", before="\n")
CALLING = calling(JsonArray())
END = turn("<|end|>", before="\n")

APRIEL_15 = Format(
    name="apriel_15",
    about="Apriel 1.5 Thinker: always thinks, opens the thought itself; calls as a JSON array",
    models=("ServiceNow-AI/Apriel-1.5-*",),
    states={
        WAITING: {STEPS: REASONING, FINAL: CONTENT, CALLS: CALLING},
        REASONING: {FINAL: CONTENT, CALLS: CALLING},
        CONTENT: {FINAL: CONTENT, UNFINAL: CONTENT, CALLS: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALLS: CONTENT},
        ROLE: {},
        ENDED: {},
    },
    turns={
        turn("<|assistant|>", after="\n"): START, turn("<|user|>"): ROLE, turn("<|system|>"): ROLE,
        turn("<|tool_result|>"): ROLE, turn("<|content|>"): ROLE, END: ENDED,
    },
    thinking=Thinking((), default=True),
    start=Start(on=WAITING),
)  # fmt: skip

APRIEL_16 = APRIEL_15.replace(
    name="apriel_16",
    about="Apriel 1.6 Thinker: always thinks, the prompt opens the thought; calls as a JSON array",
    models=("ServiceNow-AI/Apriel-1.6-*", "*Apriel-1.6-*"),
    turns={
        turn("<|begin_assistant|>", before="\n", after="\n"): START, turn("<|begin_user|>"): ROLE, turn("<|begin_system|>"): ROLE,
        turn("<|begin_tool_result|>"): ROLE, turn("<|begin_content|>"): ROLE, END: ENDED,
    },
    start=Start(on=WAITING, unknown=REASONING),
)  # fmt: skip
