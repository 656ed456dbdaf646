"""Sber GigaChat 3.5: a thought, an answer, a section of calls whose tags hold a word between full-width bars.

    ok</think>

    <｜GCML｜tool_calls>
    <｜GCML｜invoke name="f">
    <｜GCML｜parameter name="a" string="false">[1]</｜GCML｜parameter>
    </｜GCML｜invoke>
    </｜GCML｜tool_calls><|message_sep|>

`｜` is U+FF5C. The attribute, not the schema, says whether a value is text. The prompt opens the thought if reasoning is on. Sources:
SGLang's parser, the template in llama.cpp.
"""

from unbraid.codecs import XmlParameters
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, SECTION, START, Format, Special, Start, Thinking, calling, sequence, special, turn,
)  # fmt: skip

GCML = Special("｜GCML｜")
TAG = Special("｜GCML｜", loose=True)
THINK, UNTHINK = special("<think>", after="\n"), special("</think>", before="\n", after="\n\n")
CALLS = sequence(("<", GCML, "tool_calls>"), before="\n\n", after=ANY)
UNCALLS = sequence(("</", GCML, "tool_calls>"), before=ANY)
INVOKE = sequence(("<", TAG, "invoke name="), before=ANY, peek=True)
BARE_INVOKE = sequence(("<", TAG, "invoke name="), peek=True)  # the section's opener is missing
CALLING = calling(
    XmlParameters(
        call=("<", TAG, "invoke name="), uncall=("</", TAG, "invoke>"),
        parameter=("<", TAG, "parameter name="), unparameter=("</", TAG, "parameter>"),
        quoted=True, attribute="string", ends="first", untyped="json",
    )
)  # fmt: skip

GIGACHAT35 = Format(
    name="gigachat35",
    about="GigaChat 3.5: thinks where the prompt opens the thought; calls as XML in a section",
    models=("ai-sage/GigaChat3.5-*", "ai-sage/GigaChat-3.5-*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, BARE_INVOKE: CALLING, UNCALLS: CONTENT},
        SECTION: {INVOKE: CALLING, UNCALLS: CONTENT},
        CALLING: {UNCALLS: CONTENT, INVOKE: CALLING, CALLS: SECTION},
        ENDED: {},
    },
    turns={turn("<|role_sep|>", after="\n"): START, turn("<|message_sep|>", "</s>"): ENDED},
    thinking=Thinking(("enable_thinking",), default=False),
    start=Start(on=REASONING),
)
