"""Tencent Hunyuan: A13B (tags of ordinary text, calls as one JSON array), HY v3 and v4 (tokens, key and value elements).

    <think>
    Short.
    </think>
    <answer>
    Ok <tool_calls>[{"name": "p", "arguments": {"n": 1}}, {"name": "q", "arguments": {}}]</tool_calls>
    </answer><|eos|>

    Ok.</think>Sure<tool_calls>
    <tool_call>f<tool_sep>
    <arg_key>a</arg_key>
    <arg_value>1</arg_value>
    </tool_call>
    </tool_calls><｜hy_eos｜>

A13B: no marker is a token of its own, and the newlines belong to them. The model opens the thought itself; switched off, the prompt
ends in `<think>\\n\\n</think>\\n` and the output begins with `<answer>\\n`. The answer's tags may be missing. A section inside the
thought is no call.

HY: most checkpoints put a suffix into every token (`<think:opensource>`), which only the tokenizer tells; a tag without it is text
there. v4 has neither `<tool_sep>` nor newlines. Sources: the engines' parsers; the templates weren't seen.
"""

from dataclasses import replace

from unbraid.codecs import JsonArray, KeyValueTags
from unbraid.table import (
    ANY,
    CONTENT,
    ENDED,
    REASONING,
    ROLE,
    SECTION,
    START,
    Format,
    Special,
    Start,
    State,
    Thinking,
    calling,
    special,
    text,
    turn,
)  # fmt: skip

THINK, UNTHINK = text("<think>", after="\n"), text("</think>", before="\n", after="\n")
ANSWER, UNANSWER = text("<answer>", after="\n"), text("</answer>", before="\n")
CALLS, UNCALLS = text("<tool_calls>", after=ANY), text("</tool_calls>", before=ANY)
CALLING = calling(JsonArray())
WAITING = State("waiting", "content", otherwise=CONTENT, undecided=True)
ANSWERING = State("answer expected", "content", otherwise=CONTENT)

HUNYUAN_A13B = Format(
    name="hunyuan_a13b",
    about="Hunyuan A13B and the dense models of its time: thinks by a switch; calls as a JSON array",
    models=("*Hunyuan-A13B-*", "tencent/Hunyuan-*B-Instruct*"),
    states={
        WAITING: {THINK: REASONING, UNTHINK: ANSWERING, ANSWER: CONTENT, CALLS: CALLING},
        REASONING: {THINK: REASONING, UNTHINK: ANSWERING},
        ANSWERING: {ANSWER: CONTENT, CALLS: CALLING},
        CONTENT: {UNANSWER: CONTENT, CALLS: CALLING},
        CALLING: {UNCALLS: CONTENT},
        ROLE: {},
        ENDED: {},
    },
    turns={
        turn("<|startoftext|>"): ROLE, turn("<|extra_4|>"): ROLE, turn("<|extra_0|>", "<｜hy_Assistant｜>"): START,
        turn("<｜hy_User｜>"): ROLE, turn("<|eos|>"): ENDED,
    },
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, off=ANSWERING, unknown=WAITING),
)  # fmt: skip

HY_THINK, HY_UNTHINK = special("<think>"), special("</think>")
HY_CALLS, HY_UNCALLS = special("<tool_calls>", before=ANY), special("</tool_calls>", before=ANY)
HY_CALL, HY_UNCALL = special("<tool_call>", before=ANY), special("</tool_call>", before=ANY)
HY_PAIRS = KeyValueTags(
    key=(Special("<arg_key>"),), unkey=(Special("</arg_key>"),), value=(Special("<arg_value>"),), unvalue=(Special("</arg_value>"),),
    separator=((Special("<tool_sep>"),),), newline="\n",
)  # fmt: skip
HY_V3_CALLING = calling(HY_PAIRS)
HY_V4_CALLING = calling(replace(HY_PAIRS, separator=(), newline=""))

HY_V3 = Format(
    name="hy_v3",
    about="HY v3 (Hy3): thinks by effort, the prompt opens or closes the thought; calls as key and value elements in a section",
    aliases=("hunyuan",),
    models=("tencent/Hy3*",),
    states={
        REASONING: {HY_THINK: REASONING, HY_UNTHINK: CONTENT, HY_CALLS: SECTION, HY_CALL: HY_V3_CALLING},
        CONTENT: {
            HY_THINK: REASONING, HY_UNTHINK: CONTENT, HY_CALLS: SECTION, HY_CALL: HY_V3_CALLING, HY_UNCALLS: CONTENT,
            HY_UNCALL: CONTENT,
        },
        SECTION: {HY_CALL: HY_V3_CALLING, HY_UNCALLS: CONTENT},
        HY_V3_CALLING: {HY_UNCALL: SECTION, HY_CALL: HY_V3_CALLING, HY_UNCALLS: CONTENT},
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
        REASONING: {HY_THINK: REASONING, HY_UNTHINK: CONTENT, HY_CALLS: SECTION, HY_CALL: HY_V4_CALLING},
        CONTENT: {
            HY_THINK: REASONING, HY_UNTHINK: CONTENT, HY_CALLS: SECTION, HY_CALL: HY_V4_CALLING, HY_UNCALLS: CONTENT,
            HY_UNCALL: CONTENT,
        },
        SECTION: {HY_CALL: HY_V4_CALLING, HY_UNCALLS: CONTENT},
        HY_V4_CALLING: {HY_UNCALL: SECTION, HY_CALL: HY_V4_CALLING, HY_UNCALLS: CONTENT},
        ROLE: {},
        ENDED: {},
    },
    thinking=Thinking((), default=True),
    suffixes=("", ":6124c78e"),
)  # fmt: skip
