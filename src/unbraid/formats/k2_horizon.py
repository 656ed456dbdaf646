"""K2 Horizon, K2-V3 (IFM, MBZUAI; no relation of Kimi K2): three think tags, calls as pairs, typed pairs or JSON in a section.

    plan
    </ifm|think>
    <ifm|tool_calls>
    <ifm|tool_call>f
    <ifm|arg_key>n</ifm|arg_key>
    <ifm|arg_value>2</ifm|arg_value>
    </ifm|tool_call>
    </ifm|tool_calls><|ifm|im_end|>

The effort chooses the think tag (`think`, `think_fast`, `think_faster`); any closer ends any of them. What a call begins with tells
pairs from JSON; between key and value may stand `<ifm|arg_type>array[string]</ifm|arg_type>`, which counts where the tool's schema leaves a
choice. Strings are verbatim. Sources: the engines' parsers, the template in llama.cpp.
"""

from unbraid.codecs import Choice, JsonArray, KeyValueTags
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, START, Format, Special, Start, Thinking, calling, special, text, turn,
)  # fmt: skip

TURN, END = turn("<|ifm|im_start|>"), turn("<|ifm|im_end|>", "<|ifm|end_of_text|>")
NEWLINE = text("\n")

THINK = special("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>", after="\n")
UNTHINK = special("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>", before="\n", after="\n")
CALLS, UNCALLS = (
    special("<ifm|tool_calls>", before="\n", after=ANY),
    special("</ifm|tool_calls>", before=ANY, after="\n"),
)
CALL, UNCALL = special("<ifm|tool_call>", before=ANY), special("</ifm|tool_call>", before=ANY)
PAIRS = KeyValueTags(
    key=(Special("<ifm|arg_key>"),), unkey=(Special("</ifm|arg_key>"),),
    kind=(Special("<ifm|arg_type>"),), unkind=(Special("</ifm|arg_type>"),),
    value=(Special("<ifm|arg_value>"),), unvalue=(Special("</ifm|arg_value>"),), newline="\n", untyped="quoted",
)  # fmt: skip
CALLING = calling(Choice((PAIRS, JsonArray())))

K2_HORIZON = Format(
    name="k2_horizon",
    about="K2 Horizon, K2-V3: thinks by effort, the prompt opens the thought; calls as key and value elements in a section",
    aliases=("k2_v3",),
    models=("LLM360/K2-Horizon*", "IFM*/K2-Horizon*", "LLM360/K2-V3*"),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: CALLING},
        CONTENT: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: CALLING, UNCALL: CONTENT, UNCALLS: CONTENT},
        SECTION: {CALL: CALLING, UNCALLS: CONTENT, THINK: REASONING},
        CALLING: {UNCALL: SECTION, UNCALLS: CONTENT, CALL: CALLING, CALLS: SECTION},
        ROLE: {NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT},
        ENDED: {},
    },
    turns={TURN: ROLE, END: ENDED},
    thinking=Thinking((), default=True),
    start=Start(on=REASONING),
)
