"""Qwen with XML calls: 3-Coder, 3.5 and later. One think block, ChatML turns, as in qwen.py.

    <think>
    They want the weather in Oslo.
    </think>

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Oslo
    </parameter>
    </function>
    </tool_call><|im_end|>

The prompt opens the thought (`<think>\\n`); Coder never thinks. Models of either kind of call write the other's now and then: what a
body begins with says which it is. Source: the chat templates of the models' repositories at huggingface.co/Qwen.
"""

from unbraid.codecs import Choice, JsonObject
from unbraid.formats.qwen import QWEN3, ROLE_ROW, THINK, UNCALL, UNTHINK, XML
from unbraid.table import CONTENT, ENDED, REASONING, ROLE, WAITING, Start, Thinking, calling, special, text

XML_CALL = special("<tool_call>", before="\n\n", after="\n")  # 3.5 puts an empty line between content and call
FUNCTION = text("<function=", peek=True)  # the wrapper is often missing, in quantised models above all
XML_CALLING = calling(Choice((XML, JsonObject())))

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
