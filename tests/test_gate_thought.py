"""A thought that is owed: nothing ends it before something of it has been said, however the end is spelled; then all is as ever."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from test_gate import MARKED, Fake, bits, end_marker, open_prompt, prompts
from test_properties import table_texts
from tokens import RESERVED, Tokens, tokens
from tokens import small_memories as small_memories

import unbraid
from unbraid.events import Text
from unbraid.formats import FORMATS
from unbraid.gate import Gate, Mode
from unbraid.policy import Policy
from unbraid.table import Format, spelled

THINKING = [name for name, fmt in sorted(FORMATS.items()) if any(state.strand == "reasoning" for state in fmt.states)]
SPELLED = Policy(spelled_markers="accept")


def pool(tok: Tokens, fmt: Format) -> list[list[int]]:
    """Pieces of an output that ends a thought in every way there is, or says nothing."""
    texts = table_texts(fmt)
    ends = [[id] for id in tok.special.values()] + [tok.encode(text) for text in texts]
    spelt = [tok.ordinary(text) for text in texts] + [list(text.encode()) for text in texts]
    blank = [tok.ordinary(text) for text in ("\n", " ", "\n\n", "\t")]
    return [*ends, *spelt, *blank * 4, tok.ordinary("Hm")]


def says(events: Sequence[unbraid.Event]) -> bool:
    return any(isinstance(event, Text) and event.strand == "reasoning" and event.text.strip() for event in events)


def flags(gate: Gate) -> Any:
    """For every id whether it may come."""
    return np.unpackbits(bits(gate).view(np.uint8), bitorder="little")


def allowed_ids(gate: Gate) -> list[int]:
    found: list[int] = np.flatnonzero(flags(gate)).tolist()
    return found


def walk(gate: Gate, usual: Gate, parser: unbraid.Parser, parts: list[list[int]], rng: random.Random) -> bool:
    """An output of whatever the gate allows, until something of the thought is said. False: it never came to that."""
    some = sorted({id for part in parts for id in part})
    queue: list[int] = []
    for _ in range(40):
        row = flags(gate)
        allowed = [id for id in some if gate.allows(id)]
        assert allowed == [id for id in some if row[id]]
        assert gate.validate(some[:1]) == (some[0] in allowed)
        assert gate.restricts
        if not queue:
            queue = list(rng.choice(parts))
        id = queue.pop(0)
        if id not in allowed:
            queue = []
            assert row.any(), "nothing is allowed"
            id = rng.choice(allowed or allowed_ids(gate))  # a thought's beginning may be in no other place
        thinks = parser.state.strand == "reasoning"
        said = says(parser.feed([id]))
        assert gate.advance([id]).accepted == usual.advance([id]).accepted == 1
        assert gate.owes_thought is not said
        if said:
            return True
        assert not parser.reasoning_ended
        assert parser.state.strand == "reasoning" or not thinks
    return False


@pytest.mark.parametrize("name", THINKING)
def test_nothing_ends_a_thought_of_which_nothing_is_said(name: str) -> None:
    tok, fmt = tokens(name), FORMATS[name]
    starts = [ids for ids in prompts(tok, name) if not tok.bound.is_reasoning_end(ids, True)] or [[]]
    parts, came = pool(tok, fmt), 0
    for seed in range(16):
        rng = random.Random(f"{name} {seed}")
        prompt, policy = rng.choice(starts), rng.choice([Policy(), SPELLED])
        mode: Mode = rng.choice(["free", "strict"])
        stops = [tok.special[RESERVED]] if rng.random() < 0.5 else []
        made = [Fake() if seed % 2 else None for _ in range(2)]
        gate, usual = (
            Gate(tok.bound, prompt, fake, reasoning=True, mode=mode, policy=policy, stop_ids=stops, must_think=owed)
            for fake, owed in zip(made, (True, False), strict=True)
        )
        parser = unbraid.Parser(tok.bound, prompt=prompt, thinking=True, policy=policy)
        if not gate.owes_thought:
            continue
        assert not any(gate.allows(id) for id in stops)
        if walk(gate, usual, parser, parts, rng):
            came += 1
            assert (bits(gate) == bits(usual)).all()
            rest = [id for _ in range(4) for id in rng.choice(parts)]
            assert gate.advance(rest) == usual.advance(rest)
            assert (bits(gate) == bits(usual)).all()
    assert came


@pytest.mark.parametrize("name", [name for name in MARKED if name in THINKING])
def test_an_end_in_several_tokens_is_kept_from_its_last_one(name: str) -> None:
    """The vocabulary has no token for the end, but tokens that go beyond it and one that is all of it."""
    fmt, end = FORMATS[name], end_marker(name)
    turns = [spelled(spelling) for marker in fmt.turns for spelling in marker.spellings]
    ordinary = {id: bytes([id]) for id in range(256)} | {
        300: end.encode(),
        301: end.encode()[-1:] + b"\n\nYes",
        302: b"Hm",
    }
    special = {text: 400 + n for n, text in enumerate(dict.fromkeys(turns))}
    bound = fmt.bind(unbraid.Vocabulary.from_tokens(ordinary, special=special))
    prompt = bound.vocabulary.encode(tokens(name).decode(open_prompt(name)))
    gate = Gate(bound, prompt, reasoning=True, must_think=True)
    assert not gate.allows(300)
    *begun, last = end.encode()
    assert gate.validate([*b"\n", *begun, last]) == len(begun) + 1
    assert gate.validate([*b"\n", *begun, 301]) == len(begun) + 1
    assert gate.validate([*b"\n", *begun, 302, *end.encode()]) == len(begun) + 2 + len(end.encode())
    assert gate.validate([302, 300]) == 2
    gate.advance(begun)
    fork = gate.fork()
    fork.advance([302])
    assert fork.allows(300)
    assert not gate.allows(last)


def test_rolled_back_the_thought_is_owed_again() -> None:
    tok = tokens("qwen3")
    gate = Gate(tok.bound, tok.encode("<|im_start|>assistant\n<think>\n"), must_think=True)
    word, end = tok.ordinary("Hm")[0], tok.special["</think>"]
    for blank in ([], tok.ordinary("\n") * 100):
        assert gate.advance(blank).accepted == len(blank)
        assert not gate.allows(end)
        gate.advance([word, word])
        assert gate.allows(end)
        gate.rollback(1)
        assert gate.allows(end)
        gate.rollback(1)
        assert not gate.allows(end)
        gate.advance([word, end])
        gate.rollback(2)
        assert not gate.allows(end)


def test_a_thought_that_isnt_open_is_opened_first() -> None:
    tok = tokens("qwen3")
    think = tok.special["<think>"]
    gate = Gate(tok.bound, tok.encode("<|im_start|>assistant\n"), Fake(), reasoning=True, must_think=True)
    assert allowed_ids(gate) == [think]
    harmony = tokens("harmony")
    gate = Gate(harmony.bound, harmony.encode("<|start|>assistant"), must_think=True)
    opening = harmony.encode("<|channel|>analysis<|message|>")
    for id in opening:
        assert allowed_ids(gate) == [id]
        gate.advance([id])
    assert not gate.allows(harmony.special["<|end|>"])
    gate.advance(harmony.ordinary("Hm"))
    assert gate.allows(harmony.special["<|end|>"])


def test_nothing_is_owed_where_the_prompt_has_ended_reasoning() -> None:
    tok = tokens("qwen3")
    gate = Gate(tok.bound, tok.encode("<|im_start|>assistant\n<think>\n\n</think>\n\n"), must_think=True)
    assert not gate.owes_thought
    assert not gate.restricts


def test_budget_and_owed_thought() -> None:
    tok = tokens("qwen3")
    prompt = tok.encode("<|im_start|>assistant\n<think>\n")
    end, blank, word = tok.special["</think>"], tok.ordinary("\n")[0], tok.ordinary("Hm")[0]
    for budget in (0, -1):
        with pytest.raises(ValueError, match="doesn't fit"):
            Gate(tok.bound, prompt, budget=budget, must_think=True)
    gate = Gate(tok.bound, prompt, budget=2, must_think=True)
    gate.advance([blank])
    assert not gate.allows(end)
    gate.advance([blank])
    assert gate.forced == end  # the budget has the last word
    assert gate.allows(end)
    gate.rollback(1)
    gate.advance([word])
    assert gate.forced == end
