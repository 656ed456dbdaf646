"""Models of any tokenizer that think and call as Hermes does: Hermes 4, SmolLM3, MiMo-VL, Holo2.

    <think>
    Two ports.
    </think>

    Looking.
    <tool_call>
    {"name": "tide", "arguments": {"port": "Brest"}}
    </tool_call><|im_end|>

`hf` is vLLM's name for a parser that reads the tokenizer's own response template: give the model's folder in place of a name for that.
Source: the chat templates of the models' repositories.
"""

from unbraid.codecs import Choice, JsonObject, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.formats.think import ALL_TURNS, ROLE_ROW, THINK, UNTHINK
from unbraid.table import CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special

CALL, UNCALL = special("<tool_call>", before="\n", after="\n"), special("</tool_call>", before="\n")
CALLING = calling(Choice((JsonObject(), XmlParameters(frame="\n"))))

HF = Format(
    name="hf",
    about="any model: a think block and Hermes' calls; its tokenizer's own response template is read where its folder is given",
    aliases=("response_template",),
    models=("HuggingFaceTB/SmolLM3-*", "NousResearch/Hermes-4-*", "XiaomiMiMo/MiMo-VL-*"),
    states={
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        CONTENT: {UNTHINK: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        CALLING: {UNCALL: CONTENT, CALL: CALLING},
        ROLE: {**ROLE_ROW, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=ALL_TURNS,
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING),
)

HOLO2 = Format(
    name="holo2",
    about="Holo2 (on Qwen3-VL): thinks by a switch, the prompt opens the thought; calls as JSON",
    models=("Hcompany/Holo2-*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING, UNCALL: CONTENT},
        CALLING: {UNCALL: CONTENT, CALL: CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking(("thinking", "enable_thinking"), default=True),
    start=Start(on=REASONING),
)
