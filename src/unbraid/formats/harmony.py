"""Harmony (gpt-oss-20b, gpt-oss-120b, gpt-oss-safeguard): messages with headers; channel and recipient say what a body is.

    <|channel|>analysis<|message|>They want two steps east.<|end|><|start|>assistant<|channel|>commentary<|message|>Off I go.<|end|>
    <|start|>assistant<|channel|>commentary to=functions.move <|constrain|>json<|message|>{"dx": 2}<|call|>

(on one line; the prompt ends in `<|start|>assistant`). The recipient may stand before the channel or behind it, the type may be
missing. Any channel may carry a call. Only ids tell a marker from the same characters in a body. Reasoning isn't over when an
analysis message ends: another may follow. It is in a final message or a call. Built-in tools that nobody offered get a raw
script, not JSON: their messages are nobody's text. LLM-jp 4's tokenizer begins whatever follows a special token with a blank that its
template doesn't write. Source: docs/format.md in github.com/openai/harmony.
"""

from unbraid.codecs import JsonArguments
from unbraid.table import (
    CONTENT, ENDED, OFFERED, REASONING, Format, Frame, Route, Special, Start, State, calling, junction, special, turn,
)  # fmt: skip

STRAY = State("stray", "content", undecided=True)
"""Text where no text belongs."""
PREAMBLE = State("preamble", "content", undecided=True)
UNKNOWN = State("unknown_channel", "content", undecided=True, odd="unknown_channel")
DROPPED = State("dropped", "markup", undecided=True, odd="dropped_message")
CALLING = calling(JsonArguments())

HEADER = State("header", "markup", capture="role", otherwise=STRAY, undecided=True)
FIRST = State("first_header", "markup", capture="head", otherwise=STRAY, undecided=True)
CHANNELED = State("channel", "markup", capture="channel", otherwise=STRAY, undecided=True)
TYPED = State("type", "markup", capture="type", otherwise=STRAY, undecided=True)
BETWEEN = State("between", "markup", otherwise=STRAY, undecided=True)
SAID = State("said", "markup", otherwise=STRAY)
"""Between messages, an answer or a call having been said."""

OPEN = turn("<|start|>", quoted="outside")
END = turn("<|end|>", quoted="closing")
RETURN, CALL = turn("<|return|>", quoted="closing"), turn("<|call|>", quoted="closing")
EOS = turn("<|endoftext|>")
CHANNEL, CONSTRAIN, MESSAGE = special("<|channel|>"), special("<|constrain|>"), special("<|message|>")

CHANNEL_TOKEN, MESSAGE_TOKEN = Special("<|channel|>"), Special("<|message|>")

BODY = junction(
    Route(CALLING, to="functions.*"),
    Route(CALLING, to=OFFERED),
    Route(DROPPED, to="*"),
    Route(REASONING, channel="analysis"),
    Route(CONTENT, channel="final"),
    Route(PREAMBLE, channel="commentary"),
    Route(UNKNOWN),
)
PARTS = {CHANNEL: CHANNELED, CONSTRAIN: TYPED, MESSAGE: BODY, END: BETWEEN}
"""From each part of a header to the next."""
BODIES = {
    REASONING: {END: BETWEEN},
    PREAMBLE: {END: BETWEEN},
    CONTENT: {END: SAID},
    UNKNOWN: {END: BETWEEN},
    STRAY: {END: BETWEEN},
    BETWEEN: {CHANNEL: CHANNELED, END: BETWEEN},
    SAID: {CHANNEL: CHANNELED, END: SAID},
    ENDED: {CHANNEL: CHANNELED},
}
"""What isn't a header or a call."""

HARMONY = Format(
    name="harmony",
    about="gpt-oss: channels for reasoning, preambles and the answer; calls as messages to functions",
    aliases=("openai", "openai_gptoss", "gpt-oss", "gpt_oss"),
    models=("openai/gpt-oss-*", "*gpt-oss*"),
    states={
        **BODIES,
        DROPPED: {END: BETWEEN},
        CALLING: {END: SAID},
        FIRST: PARTS,
        HEADER: PARTS,
        CHANNELED: PARTS,
        TYPED: PARTS,
    },
    turns={OPEN: HEADER, RETURN: ENDED, CALL: ENDED, EOS: ENDED},
    start=Start(on=FIRST, off=FIRST),
    frames=(
        Frame(REASONING, (CHANNEL_TOKEN, "analysis", MESSAGE_TOKEN), (Special("<|end|>"),)),
        Frame(CONTENT, (CHANNEL_TOKEN, "final", MESSAGE_TOKEN), (Special("<|end|>"),)),
        Frame(PREAMBLE, (CHANNEL_TOKEN, "commentary", MESSAGE_TOKEN), (Special("<|end|>"),)),
        Frame(
            CALLING,
            (CHANNEL_TOKEN, "commentary to=functions.{name} ", Special("<|constrain|>"), "json", MESSAGE_TOKEN),
            (Special("<|end|>"),),
        ),
    ),
    next_message=(Special("<|start|>"), "assistant"),
    join="\n",
    answer="<|end|><|start|>assistant<|channel|>final<|message|>",
)

SPACED_PARTS = {CHANNEL: CHANNELED, CONSTRAIN: TYPED, special("<|message|>", after=" ", trail=""): BODY, END: BETWEEN}

LLM_JP_4 = HARMONY.replace(
    name="llm_jp_4",
    about="LLM-jp 4: Harmony with a blank of the tokenizer's behind every special token",
    aliases=(),
    models=("llm-jp/llm-jp-4-*", "*llm-jp-4-*"),
    states={**HARMONY.states, FIRST: SPACED_PARTS, HEADER: SPACED_PARTS, CHANNELED: SPACED_PARTS, TYPED: SPACED_PARTS},
)
