"""IBM Granite 4: 4.0 and 4.1 with Hermes' calls, 4.2 with a thought and Qwen's XML. On the turns of granite.py.

    Checking.
    <tool_call>
    {"name": "ls", "arguments": {"d": "/"}}
    </tool_call><|end_of_text|>                                                                                 4.0, 4.1
    <think>
    Look first.
    </think>
    <tool_call>
    <function=ls>
    </function>
    </tool_call><|end_of_text|>                                                                                 4.2

4.2: all newlines directly after `</think>` are framing. Sources: the template of 4.0, vLLM's parsers.
"""

from unbraid.codecs import Choice, JsonObject, XmlParameters
from unbraid.formats.granite import LINES, ROLE_END, TURNS
from unbraid.table import (
    CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special, text,
)  # fmt: skip

CALL, UNCALL = special("<tool_call>", before="\n", after="\n"), special("</tool_call>", before="\n")
JSON_CALLING = calling(JsonObject())

GRANITE4 = Format(
    name="granite4",
    about="Granite 4.0, 4.1: never thinks; calls as JSON, as Hermes writes them",
    aliases=("granite_40", "granite_41"),
    models=("*granite-4.*",),
    states={
        CONTENT: {CALL: JSON_CALLING, UNCALL: CONTENT},
        JSON_CALLING: {UNCALL: CONTENT, CALL: JSON_CALLING},
        ROLE: {ROLE_END: START},
        ENDED: {},
    },
    turns=TURNS,
)

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after=LINES, trail="")
FUNCTION = text("<function=", peek=True)
XML_CALLING = calling(Choice((XmlParameters(frame="\n"), JsonObject())))

GRANITE_THINKING = Format(
    name="granite_thinking",
    about="Granite 4.2: thinks by a switch; calls as XML",
    aliases=("granite_thinking_parser", "granite_42"),
    models=("*granite-4.2-*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: XML_CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: XML_CALLING, FUNCTION: XML_CALLING, UNCALL: CONTENT},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALL: XML_CALLING, FUNCTION: XML_CALLING},
        XML_CALLING: {UNCALL: CONTENT, CALL: XML_CALLING, FUNCTION: XML_CALLING},
        ROLE: {ROLE_END: START},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)
