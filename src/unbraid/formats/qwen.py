"""Qwen: Hermes JSON calls (2.5, 3) and XML calls (3-Coder, 3.5 and later), one think block, ChatML turns.

    <think>
    They want the weather in Oslo.
    </think>

    Let me look.
    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Oslo"}}
    </tool_call><|im_end|>

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Oslo
    </parameter>
    </function>
    </tool_call><|im_end|>

The lines differ in who opens the thought. Qwen3 hybrid: the model writes `<think>`, its prompt ends after the role. Thinking-2507
and QwQ, 3.5 and later: the prompt ends in `<think>\\n`. Instruct-2507 and Coder never think. With the same tail, then, the start is
the line's. Source: the chat templates of the models' repositories at huggingface.co/Qwen.
"""

from unbraid.codecs import Choice, JsonObject, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    CONTENT,
    ENDED,
    REASONING,
    ROLE,
    START,
    WAITING,
    Format,
    Start,
    Thinking,
    calling,
    special,
    text,
)  # fmt: skip

THINK = special("<think>", after="\n")
UNTHINK = special("</think>", before="\n", after="\n\n")
CALL = special("<tool_call>", before="\n", after="\n")
UNCALL = special("</tool_call>", before="\n")
XML_CALL = special("<tool_call>", before="\n\n", after="\n")  # 3.5 puts an empty line between content and call
FUNCTION = text("<function=", peek=True)  # the wrapper is often missing, in quantised models above all

XML = XmlParameters(frame="\n")
JSON_CALLING = calling(Choice((JsonObject(), XML)))  # fine-tunes mix the bodies; what a body begins with is certain
XML_CALLING = calling(Choice((XML, JsonObject())))

ROLE_ROW = {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT}

JSON_STATES = {
    REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALL: JSON_CALLING},  # some call without closing the thought
    CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALL: JSON_CALLING, UNCALL: CONTENT},
    JSON_CALLING: {UNCALL: CONTENT, CALL: JSON_CALLING},
    ROLE: ROLE_ROW,
    ENDED: {},
}

QWEN3 = Format(
    name="qwen3",
    about="Qwen3 hybrid (April 2025): thinks by a switch, opens the thought itself; calls as JSON",
    aliases=("nanbeige",),
    models=("Qwen/Qwen3-*", "*Qwen3-*B*", "Nanbeige/*", "JetBrains/Mellum2-*-Thinking*"),
    states={**JSON_STATES, WAITING: {THINK: REASONING, UNTHINK: CONTENT, CALL: JSON_CALLING}},
    turns=TURNS,
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)

QWEN3_THINKING = QWEN3.replace(
    name="qwen3_thinking",
    about="Qwen3 Thinking-2507, QwQ: always thinks, the prompt opens the thought; calls as JSON",
    aliases=("hermes_r1", "qwq"),
    models=("*Qwen3-*Thinking*", "Qwen/QwQ-*", "*QwQ-32B*"),
    states=JSON_STATES,
    thinking=Thinking((), default=True),
    start=Start(on=REASONING),
)

QWEN3_INSTRUCT = QWEN3.replace(
    name="qwen3_instruct",
    about="Qwen3 Instruct-2507, Next and VL Instruct: never thinks; calls as JSON",
    aliases=(),
    models=("*Qwen3-*Instruct*",),
    states=JSON_STATES,
    thinking=Thinking((), default=False),
    start=Start(),
)

QWEN2_5 = QWEN3.replace(
    name="qwen2_5",
    about="Qwen2.5, Hermes 2 Pro and 3: never thinks, has no think tokens; calls as JSON",
    aliases=("hermes", "qwen", "qwen25", "qwen3_json"),
    models=(
        "*Qwen2.5-*",
        "*Qwen2-*-Instruct*",
        "NousResearch/Hermes-2-Pro-*",
        "NousResearch/Hermes-2-Theta-*",
        "NousResearch/Hermes-3-*",
        "JetBrains/Mellum2-*-Instruct*",
    ),
    states={
        CONTENT: {CALL: JSON_CALLING, UNCALL: CONTENT},
        JSON_CALLING: {UNCALL: CONTENT, CALL: JSON_CALLING},
        ROLE: {NEWLINE: START},
        ENDED: {},
    },
    thinking=Thinking((), default=False),
    start=Start(),
)

QWEN3_5 = QWEN3.replace(
    name="qwen3_5",
    about="Qwen3.5, 3.6, 3.8: thinks by a switch, the prompt opens the thought; calls as XML",
    aliases=("qwen3_xml",),
    models=("*Qwen3.5-*", "*Qwen3.6-*", "*Qwen3.8-*", "internlm/Intern-S2-*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, XML_CALL: XML_CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, XML_CALL: XML_CALLING, FUNCTION: XML_CALLING, UNCALL: CONTENT},
        WAITING: {THINK: REASONING, UNTHINK: CONTENT, XML_CALL: XML_CALLING, FUNCTION: XML_CALLING},
        XML_CALLING: {UNCALL: CONTENT, XML_CALL: XML_CALLING, FUNCTION: XML_CALLING},
        ROLE: ROLE_ROW,
        ENDED: {},
    },
    # The line's own template always marks the tail; one that doesn't is Coder's or Qwen3's, and those models open the thought.
    start=Start(on=WAITING, unknown=REASONING),
)

QWEN3_5_SMALL = QWEN3_5.replace(
    name="qwen3_5_small",
    about="Qwen3.5 0.8B and 2B: as Qwen3.5, but the switch is off unless asked for",
    aliases=(),
    models=("*Qwen3.5-0.8B*", "*Qwen3.5-2B*"),
    thinking=Thinking(("enable_thinking",), default=False),
)

QWEN3_CODER = QWEN3_5.replace(
    name="qwen3_coder",
    about="Qwen3-Coder, Coder-Next: never thinks; calls as XML",
    aliases=(),
    models=("*Qwen3-Coder*", "Qwen/Qwen3-Coder-*"),
    thinking=Thinking((), default=False),
)
