"""Qwen with Hermes' JSON calls: Qwen2.5, Qwen3, QwQ. One think block, ChatML turns. 3-Coder, 3.5 and later: qwen_xml.py.

    <think>
    They want the weather in Oslo.
    </think>

    Let me look.
    <tool_call>
    {"name": "get_weather", "arguments": {"city": "Oslo"}}
    </tool_call><|im_end|>

The lines differ in who opens the thought. Qwen3 hybrid: the model writes `<think>`, its prompt ends after the role. Thinking-2507
and QwQ: the prompt ends in `<think>\\n`. Instruct-2507 never thinks. With the same tail, then, the start is the line's. Source: the chat
templates of the models' repositories at huggingface.co/Qwen.
"""

from unbraid.codecs import Choice, JsonObject, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special

THINK = special("<think>", after="\n")
UNTHINK = special("</think>", before="\n", after="\n\n")
CALL = special("<tool_call>", before="\n", after="\n")
UNCALL = special("</tool_call>", before="\n")

XML = XmlParameters(frame="\n")
JSON_CALLING = calling(Choice((JsonObject(), XML)))  # fine-tunes mix the bodies; what a body begins with is certain

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
