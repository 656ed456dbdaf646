"""Kimi K3: XTML, tags made of three tokens and ordinary text.

    The log first.<|close|>think<|sep|><|open|>response<|sep|>I'll look.<|close|>response<|sep|><|open|>tools<|sep|>
    <|open|>call tool="grep" index="1"<|sep|><|open|>argument key="pattern" type="string"<|sep|>a "b"<|close|>argument<|sep|>
    <|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>

(on one line; the prompt ends in `<|open|>think<|sep|>` or `<|open|>response<|sep|>`). No white space belongs to a tag. Attributes are
escaped, text never: only ids tell a tag from text that spells one. The end of a thought, of the response, of a call may be missing.
K2's table has nothing in common with this one but the numbers of some ids. Source: the encoder in huggingface.co/moonshotai.
"""

from unbraid.codecs import Xtml
from unbraid.table import (
    ANY, CONTENT, ENDED, REASONING, SECTION, START, CallIds, Format, Special, Start, State, Thinking, calling, sequence, turn,
)  # fmt: skip

OPEN, CLOSE, SEP = Special("<|open|>"), Special("<|close|>"), Special("<|sep|>")
LOOSE_OPEN, LOOSE_SEP = Special("<|open|>", loose=True), Special("<|sep|>", loose=True)

OPENED = State("opened", "reasoning", otherwise=REASONING)
"""The prompt has opened the thought. Some models do it again, with ordinary tokens."""
RESPONSE = State("response", "content")
BETWEEN = State("between", "content", otherwise=CONTENT)
SKIPPED = State("skipped", "content", otherwise=CONTENT, odd="skipped_thinking")
"""The response ended though only a thought was open: what was said can't be taken back."""
WAITING = State("waiting", "content", otherwise=CONTENT, undecided=True)
TAG = State("message_tag", "markup", capture="head", otherwise=CONTENT, undecided=True)
CALLING = calling(Xtml(open=(OPEN,), close=(CLOSE,), sep=(SEP,)))

THINK, UNTHINK = sequence((OPEN, "think", SEP)), sequence((CLOSE, "think", SEP))
THINK_AGAIN = sequence((LOOSE_OPEN, "think", LOOSE_SEP))
RESPOND, UNRESPOND = sequence((OPEN, "response", SEP)), sequence((CLOSE, "response", SEP))
CALLS, UNCALLS = sequence((OPEN, "tools", SEP)), sequence((CLOSE, "tools", SEP))
CALL = sequence((OPEN, "call"), before=ANY, peek=True)
BARE_CALL = sequence((OPEN, "call"), before=ANY, peek=True, note="missing_opener")
MESSAGE, UNMESSAGE = sequence((OPEN, "message")), sequence((CLOSE, "message", SEP))
TAG_END = sequence((SEP,))
END, EOS = turn("<|end_of_msg|>"), turn("[EOS]")
ELEMENTS = {THINK: REASONING, RESPOND: RESPONSE, CALLS: SECTION, UNTHINK: BETWEEN, UNRESPOND: BETWEEN, UNCALLS: BETWEEN}

KIMI_K3 = Format(
    name="kimi_k3",
    about="Kimi K3: thinks by a switch; everything is an element",
    aliases=("kimi-k3",),
    models=("moonshotai/Kimi-K3*", "*Kimi-K3*"),
    states={
        REASONING: {UNTHINK: BETWEEN, RESPOND: RESPONSE, CALLS: SECTION, UNRESPOND: SKIPPED},
        OPENED: {THINK_AGAIN: OPENED, UNTHINK: BETWEEN, RESPOND: RESPONSE, CALLS: SECTION, UNRESPOND: SKIPPED},
        RESPONSE: {UNRESPOND: BETWEEN, CALLS: SECTION},
        CONTENT: ELEMENTS,
        BETWEEN: {**ELEMENTS, BARE_CALL: CALLING},
        SKIPPED: {**ELEMENTS, BARE_CALL: CALLING},
        WAITING: {**ELEMENTS, THINK: OPENED},
        SECTION: {CALL: CALLING, UNCALLS: BETWEEN, THINK: REASONING, RESPOND: RESPONSE},
        CALLING: {CALL: CALLING, UNCALLS: BETWEEN, THINK: REASONING, RESPOND: RESPONSE},
        TAG: {TAG_END: START},
        ENDED: {},
    },
    turns={MESSAGE: TAG, UNMESSAGE: ENDED, END: ENDED, EOS: ENDED},
    thinking=Thinking(("thinking",), default=True),
    start=Start(on=WAITING, off=RESPONSE, unknown=OPENED),
    ids=CallIds(),
)
