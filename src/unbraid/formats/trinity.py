"""Arcee Trinity: Mini and Nano (Hermes' calls), Large (Qwen's XML). ChatML; calls may stand inside the thought.

    <think>
    First the time.
    <tool_call>
    {"name": "now", "arguments": {}}
    </tool_call><|im_end|>

A call ends the thought; a `</think>` that comes behind it is absorbed. Either body is read in all of them. Source: SGLang's
parser, which deletes the think tags before it looks for calls; vLLM's recipe for Large.
"""

from unbraid.codecs import Choice, JsonObject, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")
CALL, UNCALL = special("<tool_call>", before="\n", after="\n"), special("</tool_call>", before="\n")
JSON_CALLING = calling(Choice((JsonObject(), XmlParameters(frame="\n"))))
XML_CALLING = calling(Choice((XmlParameters(frame="\n"), JsonObject())))

TRINITY = Format(
    name="trinity",
    about="Trinity Mini and Nano: thinks, opens the thought itself; calls as JSON",
    models=("arcee-ai/Trinity-*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: JSON_CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: JSON_CALLING, UNCALL: CONTENT},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALL: JSON_CALLING},
        JSON_CALLING: {UNCALL: CONTENT, CALL: JSON_CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking((), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)

TRINITY_LARGE = TRINITY.replace(
    name="trinity_large",
    about="Trinity Large Thinking: the prompt opens the thought; calls as XML",
    models=("arcee-ai/Trinity-Large*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: XML_CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: XML_CALLING, UNCALL: CONTENT},
        XML_CALLING: {UNCALL: CONTENT, CALL: XML_CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    start=Start(on=REASONING),
)
