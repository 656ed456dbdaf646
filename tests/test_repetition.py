"""A body that is written once more: what it is held against is the body, wherever that began and whatever opened it."""

from __future__ import annotations

import pytest
from tokens import Tokens, tokens

import unbraid
from unbraid import Message
from unbraid.codecs import JsonArray, Repetition
from unbraid.formats import FORMATS
from unbraid.formats.chatml import TURNS
from unbraid.formats.lfm import BEHIND
from unbraid.table import ANY, CONTENT, ENDED, ROLE, START, Format, calling, special, text, unmarked

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
BODY = "[f(a='x'), g( )]"
JSON = '[{"name": "f", "arguments": {"a": "x"}}, {"name": "g", "arguments": {}}]'
TURN = "<|im_start|>assistant\n"


def read(tok: Tokens, prompt: str, raw: str, size: int, *, ids: bool, policy: unbraid.Policy) -> Message:
    parser = unbraid.Parser(tok.bound if ids else tok.bound.format, prompt=prompt, policy=policy)
    units: list[int] | str = tok.encode(raw) if ids else raw
    for at in range(0, len(units), size):
        parser.feed(units[at : at + size]) if isinstance(units, list) else parser.feed_text(units[at : at + size])
    parser.finish()
    return parser.message


@pytest.mark.parametrize("calls", ["incremental", "atomic"])
@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("inside", [BODY, JSON], ids=["python", "json"])
def test_a_body_that_begins_in_the_prompt_is_known(inside: str, ids: bool, calls: str) -> None:
    """Wherever the prompt ends, however often the body comes again, and whatever is remembered of the same prompt."""
    body, policy = OPEN + inside + CLOSE, unbraid.Policy(calls="atomic" if calls == "atomic" else "incremental")
    raw = body + (inside + CLOSE) * 2 + "Done."
    for at in range(len(TURN), len(TURN + body) + 1):
        whole = TURN + raw
        if any(at - n > 0 and whole.startswith((OPEN, CLOSE), at - n) for n in range(1, len(OPEN))):
            continue  # half a marker: of ids it would be other tokens
        for size in (1, 1, 1000):
            message = read(tokens("lfm2"), whole[:at], whole[at:], size, ids=ids, policy=policy)
            assert message.content == "Done.", (at, size)
            assert [each.kind for each in message.diagnostics] == ["repeated_body"] * 2, (at, size)


SPECIAL, SPELLED = special("<|call|>", after=ANY, control=True), text("<call>", after=ANY)
UNCALL = special("<|uncall|>", before=ANY)
CALLING, REPEATING = calling(JsonArray(unit=True)), calling(Repetition(), "repeating")
GRANITE_LIKE = Format(
    name="granite_like",
    about="A control token, or text, opens an array of calls, which may come again",
    states={
        CONTENT: {SPECIAL: CALLING, SPELLED: CALLING},
        CALLING: {UNCALL: BEHIND},
        BEHIND: {unmarked(trial="closed"): REPEATING, SPECIAL: CALLING},
        REPEATING: {UNCALL: BEHIND},
        ROLE: {text("\n"): START},
        ENDED: {},
    },
    turns=TURNS,
)


@pytest.mark.parametrize("opener", ["<|call|>", "<call>", "<|call|>\n", "<call>  "])
@pytest.mark.parametrize("ids", [True, False])
def test_whatever_opened_it(ids: bool, opener: str) -> None:
    """What the marker leaves behind if no call follows (nothing, of a control token) has nothing to do with it."""
    body = '[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}]'
    tok = Tokens(GRANITE_LIKE)
    for size in (1, 7, 1000):
        raw = f"{opener}{body}<|uncall|>{body}<|uncall|>Done."
        message = read(tok, TURN, raw, size, ids=ids, policy=unbraid.Policy())
        assert [call.name for call in message.tool_calls] == ["f", "g"]
        assert message.content == "Done."
        assert [each.kind for each in message.diagnostics] == ["repeated_body"]


def test_it_is_the_format_that_has_it() -> None:
    assert [
        name for name, fmt in FORMATS.items() if any(isinstance(state.codec, Repetition) for state in fmt.states)
    ] == ["lfm2"]
