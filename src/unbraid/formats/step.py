"""StepFun: Step3 (a section of calls in steptml), Step-3.5 and 3.7-Flash (Qwen's XML on ChatML). Two unrelated formats.

    Need both.</think>Fine.<｜tool_calls_begin｜>
    <｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="cmp">
    <steptml:parameter name="expr">a < b</steptml:parameter>
    </steptml:invoke><｜tool_call_end｜>
    <｜tool_calls_end｜><|EOT|>

    Sum them.
    </think>
    Ok.<tool_call>
    <function=add>
    <parameter=a>
    1
    </parameter>
    </function>
    </tool_call><|im_end|>

`｜` is U+FF5C, but the underscores are ASCII, unlike DeepSeek's. Step3's values stand inline and may hold `<`. Step-3.5 always
thinks, its prompt opens the thought; one newline follows `</think>` (Qwen: two), nothing stands between content and calls. Sources:
the engines' parsers (Step3's template wasn't seen: the prompt's tail is unverified); the template in llama.cpp (3.7-Flash).
"""

from unbraid.codecs import Choice, JsonObject, XmlParameters
from unbraid.formats.chatml import NEWLINE, TURNS
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, START, Format, Special, Start, Thinking, calling, sequence, special, text, turn,
)  # fmt: skip

THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n")
CALLS, UNCALLS = special("<｜tool_calls_begin｜>", before=ANY), special("<｜tool_calls_end｜>", before=ANY)
CALL = sequence((Special("<｜tool_call_begin｜>"), "function", Special("<｜tool_sep｜>")), before=ANY)
UNCALL = special("<｜tool_call_end｜>", before=ANY)
CALLING = calling(
    XmlParameters(
        call=("<steptml:invoke name=",), uncall=("</steptml:invoke>",),
        parameter=("<steptml:parameter name=",), unparameter=("</steptml:parameter>",), quoted=True,
    )
)  # fmt: skip

STEP3 = Format(
    name="step3",
    about="Step3: always thinks, the prompt opens the thought; calls as steptml in a section",
    models=("stepfun-ai/step3*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, UNCALLS: CONTENT},
        SECTION: {CALL: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALL: SECTION, UNCALLS: CONTENT, CALL: CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns={turn("<|BOT|>"): ROLE, turn("<|EOT|>"): ENDED},
    thinking=Thinking((), default=True),
    start=Start(on=REASONING),
)

XML_CALL = special("<tool_call>", after="\n")
THOUGHT_CALL = special("<tool_call>", before="\n", after="\n")
"""Straight out of the thought, whose last newline is its closer's."""
XML_UNCALL = special("</tool_call>", before="\n")
FUNCTION = text("<function=", peek=True)
XML_CALLING = calling(Choice((XmlParameters(frame="\n"), JsonObject())))

STEP3P5 = Format(
    name="step3p5",
    about="Step-3.5, Step-3.7-Flash: always thinks, the prompt opens the thought; calls as XML",
    models=("stepfun-ai/Step-3.5-*", "stepfun-ai/Step-3.7-*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, THOUGHT_CALL: XML_CALLING},
        CONTENT: {
            THINK: REASONING,
            UNTHINK: CONTENT,
            XML_CALL: XML_CALLING,
            FUNCTION: XML_CALLING,
            XML_UNCALL: CONTENT,
        },
        XML_CALLING: {XML_UNCALL: CONTENT, XML_CALL: XML_CALLING, FUNCTION: XML_CALLING},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns=TURNS,
    thinking=Thinking((), default=True),
    start=Start(on=REASONING),
)
