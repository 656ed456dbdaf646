"""Tencent HY v3 and v4: calls as key and value elements in a section, every marker a token.

    Ok.</think>Sure<tool_calls>
    <tool_call>f<tool_sep>
    <arg_key>a</arg_key>
    <arg_value>1</arg_value>
    </tool_call>
    </tool_calls><｜hy_eos｜>

Most checkpoints put a suffix into every token (`<think:opensource>`), which only the tokenizer tells; a tag without it is text there.
v4 has neither `<tool_sep>` nor newlines. Sources: the engines' parsers; the templates weren't seen.
"""

from dataclasses import replace

from unbraid.codecs import KeyValueTags
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, ROLE, SECTION, START, Format, Special, Start, Thinking, calling, special, turn,
)  # fmt: skip

THINK, UNTHINK = special("<think>"), special("</think>")
CALLS, UNCALLS = special("<tool_calls>", before=ANY), special("</tool_calls>", before=ANY)
CALL, UNCALL = special("<tool_call>", before=ANY), special("</tool_call>", before=ANY)
PAIRS = KeyValueTags(
    key=(Special("<arg_key>"),), unkey=(Special("</arg_key>"),), value=(Special("<arg_value>"),), unvalue=(Special("</arg_value>"),),
    separator=((Special("<tool_sep>"),),), newline="\n",
)  # fmt: skip
V3_CALLING = calling(PAIRS)
V4_CALLING = calling(replace(PAIRS, separator=(), newline=""))

HY_V3 = Format(
    name="hy_v3",
    about="HY v3 (Hy3): thinks by effort, the prompt opens or closes the thought; calls as key and value elements in a section",
    aliases=("hunyuan",),
    models=("tencent/Hy3*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: V3_CALLING},
        CONTENT: {
            THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: V3_CALLING, UNCALLS: CONTENT,
            UNCALL: CONTENT,
        },
        SECTION: {CALL: V3_CALLING, UNCALLS: CONTENT},
        V3_CALLING: {UNCALL: SECTION, CALL: V3_CALLING, UNCALLS: CONTENT, CALLS: SECTION},
        ROLE: {},
        ENDED: {},
    },
    turns={
        turn("<｜hy_Assistant｜>"): START, turn("<｜hy_User｜>"): ROLE, turn("<｜hy_begin_of_sentence｜>"): ROLE,
        turn("<｜hy_eos｜>"): ENDED,
    },
    thinking=Thinking((), default=False),
    start=Start(on=REASONING),
    suffixes=("", ":opensource"),
)  # fmt: skip

HY_V4 = HY_V3.replace(
    name="hy_v4",
    about="HY v4 (Hy4): as v3, without separator and newlines, and thinking unless told not to",
    aliases=(),
    models=("tencent/Hy4*",),
    states={
        REASONING: {THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: V4_CALLING},
        CONTENT: {
            THINK: REASONING, UNTHINK: CONTENT, CALLS: SECTION, CALL: V4_CALLING, UNCALLS: CONTENT,
            UNCALL: CONTENT,
        },
        SECTION: {CALL: V4_CALLING, UNCALLS: CONTENT},
        V4_CALLING: {UNCALL: SECTION, CALL: V4_CALLING, UNCALLS: CONTENT, CALLS: SECTION},
        ROLE: {},
        ENDED: {},
    },
    thinking=Thinking((), default=True),
    suffixes=("", ":6124c78e"),
)  # fmt: skip
