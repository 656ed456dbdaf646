"""The gate: it agrees with the parser, doesn't care how tokens come, and its budget holds."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from effort import A_QUARTER
from fixtures import FIXTURES, Fixture
from hypothesis import given
from hypothesis import strategies as st
from test_properties import scraps, settings, soups
from tokens import RESERVED, Tokens, tokens
from tokens import small_memories as small_memories

import unbraid
from unbraid.events import CallEnd, Event
from unbraid.formats import FORMATS
from unbraid.gate import Gate, Mode
from unbraid.search import FIRST, LAST
from unbraid.table import spelled, thinks

every_format = pytest.mark.parametrize("name", sorted(FORMATS))
thinking_formats = pytest.mark.parametrize("name", sorted(name for name in FORMATS if FORMATS[name].reasons))
WORDS = (500_200 + 31) // 32


class Fake:
    """A grammar that any function of (tokens so far, next token) may be; it keeps what it was fed."""

    def __init__(self, allows: Callable[[Sequence[int], int], bool] = lambda held, id: True) -> None:
        self.allows = allows
        self.held: list[int] = []

    def accept(self, id: int) -> bool:
        if not self.allows(self.held, id):
            return False
        self.held.append(id)
        return True

    def fill(self, mask: Any, row: int = 0) -> None:
        mask[row][:] = 0
        for id in range(0, WORDS * 32, 9973):  # a sample says as much as all
            if self.allows(self.held, id):
                mask[row][id >> 5] |= np.uint32(1 << (id & 31)).astype(np.int32)

    def validate(self, ids: Sequence[int]) -> int:
        held = list(self.held)
        for id in ids:
            if not self.allows(held, id):
                break
            held.append(id)
        return len(held) - len(self.held)

    def rollback(self, n: int) -> None:
        assert 0 <= n <= len(self.held)
        del self.held[len(self.held) - n :]

    def fork(self) -> Fake:
        other = Fake(self.allows)
        other.held = list(self.held)
        return other

    @property
    def terminated(self) -> bool:
        return False


def picky(seed: int) -> Callable[[Sequence[int], int], bool]:
    """A grammar that refuses one token in five, which ones depends on all that came before."""

    def allows(held: Sequence[int], id: int) -> bool:
        return (sum(held) * 31 + len(held) * 7 + id * 13 + seed) % 5 != 0

    return allows


SCHEDULES = 80
"""Of drafts and rollbacks, in each of four parts of each format: some 5,000 in all."""
MODES: tuple[Mode, ...] = ("free", "strict", "framed")


def bits(gate: Gate) -> np.ndarray[Any, Any]:
    mask = np.full((1, WORDS), -1, dtype=np.int32)
    gate.fill(mask)
    row: np.ndarray[Any, Any] = mask[0]
    return row


def only(gate: Gate) -> int | None:
    """The one id that the mask allows, if there is one only."""
    words = bits(gate)
    (places,) = np.nonzero(words)
    word = int(words[places[0]]) & 0xFFFF_FFFF
    return int(places[0]) * 32 + word.bit_length() - 1 if len(places) == 1 and word.bit_count() == 1 else None


def prompt_of(case: Fixture, tok: Tokens) -> list[int] | None:
    return None if case.prompt is None else tok.encode(case.prompt)


# Agreement


@every_format
def test_gate_parser_and_projections_agree_on_every_prefix_and_split(name: str) -> None:
    tok = tokens(name)
    for case in FIXTURES[name]:
        prompt, ids = prompt_of(case, tok), tok.encode(case.raw)
        plain = case.policy == unbraid.Policy()
        options = {"tools": case.tools, "policy": case.policy}
        parser = unbraid.Parser(tok.bound, prompt=prompt, thinking=case.thinking, **options)  # type: ignore[arg-type]
        ended = [parser.reasoning_ended]
        states = [parser.state]
        for id in ids:
            parser.feed([id])
            ended.append(parser.reasoning_ended)
            states.append(parser.state)
        for step in range(1, 9):
            gate = Gate(tok.bound, prompt, reasoning=case.thinking, **options)  # type: ignore[arg-type]
            fed = Gate(tok.bound, prompt, Fake(), reasoning=case.thinking, **options)  # type: ignore[arg-type]
            for at in range(0, len(ids), step):
                assert gate.advance(ids[at : at + step]).accepted == len(ids[at : at + step])
                assert fed.advance(ids[at : at + step]).accepted == len(ids[at : at + step])
                stop = min(at + step, len(ids))
                assert gate.reasoning_ended == fed.reasoning_ended == ended[stop], (case, stop)
                assert gate.state is states[stop], (case, stop)
                if step == 1 and plain:
                    seen = [*(prompt or []), *ids[:stop]]
                    if prompt:
                        assert gate.reasoning_ended == tok.bound.is_reasoning_end(seen, thinking=case.thinking)
                    start = gate.answer_start
                    content = tok.bound.content_ids(seen, thinking=case.thinking) if prompt else []
                    if prompt and start != 0:
                        assert content == ([] if start is None else ids[start:stop]), (case, stop)


def prompts(tok: Tokens, name: str) -> list[list[int]]:
    """Prompts that open reasoning, close it, or say nothing, also behind a system prompt with examples of the format."""
    cases = [case for case in FIXTURES[name] if case.prompt is not None]
    ends = [tok.encode(case.prompt or "") for case in cases]
    example = tok.encode(next(case.raw for case in FIXTURES[name] if case.calls or case.reasoning or case.content))
    return [*ends, *([*example, *end] for end in ends[:5])]


@every_format
@A_QUARTER
@given(data=st.data())
def test_gate_and_parser_agree_on_anything(name: str, data: st.DataObject) -> None:
    tok, setting = tokens(name), data.draw(settings(name))
    ids = data.draw(soups(name, most=8))
    prompt = data.draw(st.sampled_from(prompts(tok, name)))
    parser = unbraid.Parser(tok.bound, prompt=prompt, **setting.options)
    gate = Gate(tok.bound, prompt, reasoning=setting.thinking, policy=setting.policy, tools=setting.tools)
    step = data.draw(st.integers(1, 8))
    for at in range(0, len(ids), step):
        parser.feed(ids[at : at + step])
        assert gate.advance(ids[at : at + step]).accepted == len(ids[at : at + step])
        assert gate.reasoning_ended == parser.reasoning_ended
        assert gate.state is parser.state


# What the matcher sees


def end_marker(name: str) -> str:
    """The marker that ends reasoning and belongs to it: the format's own end of it."""
    bound = tokens(name).bound
    return bound.vocabulary.decode(bound.reasoning_end_ids)


def open_prompt(name: str) -> list[int]:
    """A prompt behind which text is reasoning that the end marker ends."""
    tok, marker = tokens(name), end_marker(name)
    cases = [tok.encode(case.prompt) for case in FIXTURES[name] if case.prompt]
    for ids in [*cases, *([*ids, *tok.encode("<think>")] for ids in cases)]:
        state = tok.bound.state_at(ids, thinking=True)
        if state.strand == "reasoning" and any(m.text == marker for m in FORMATS[name].states[state]):
            return ids
    pytest.skip("no prompt of a fixture leaves reasoning open")


MARKED = [name for name in sorted(FORMATS) if FORMATS[name].reasons and not FORMATS[name].frames]
"""Formats whose reasoning ends by a marker of its own, not by the header of another message."""
PLAIN = [
    *("deepseek_r1", "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41", "glm45", "glm47", "kimi_k2"),
    *("qwen3", "qwen3_5", "qwen3_5_small", "qwen3_coder", "qwen3_instruct", "qwen3_thinking", "minimax_m2", "seed_oss"),
]
"""Formats for which the boundary can be found without the table: one marker ends a thought, else a call's opener."""


@pytest.mark.parametrize("name", MARKED)
def test_the_end_marker_belongs_to_reasoning(name: str) -> None:
    tok, fake = tokens(name), Fake()
    gate = Gate(tok.bound, open_prompt(name), fake, reasoning=True)
    thought, marker, answer = tok.ordinary("Let me see."), tok.encode(end_marker(name)), tok.ordinary("Yes.")
    assert not gate.reasoning_ended
    step = gate.advance([*thought, *marker, *answer])
    assert step.accepted == len(thought) + len(marker) + len(answer)
    assert step.ended == len(thought) + len(marker) - 1
    assert not step.answer
    assert fake.held == answer


def openers(name: str) -> list[str]:
    """Markers by which a call or a section begins inside reasoning."""
    fmt = FORMATS[name]
    return [
        marker.text
        for state, row in fmt.states.items()
        if state.strand == "reasoning"
        for marker, target in row.items()
        if (target.strand in ("tool_call", "markup") and not thinks(target) and marker.text != end_marker(name))
    ]


@pytest.mark.parametrize("name", [name for name in MARKED if openers(name)])
def test_an_opener_inside_reasoning_belongs_to_the_answer(name: str) -> None:
    tok = tokens(name)
    for opener in openers(name):
        fake = Fake()
        gate = Gate(tok.bound, open_prompt(name), fake, reasoning=True)
        thought, marker = tok.ordinary("Let me see."), tok.encode(opener)
        step = gate.advance([*thought, *marker])
        assert step.answer, opener
        assert fake.held == marker
        gate.rollback(1)
        assert fake.held == []
        assert not gate.reasoning_ended
        gate.advance(marker[-1:])
        assert fake.held == marker


def test_what_a_token_holds_behind_a_spelled_marker_is_the_answers() -> None:
    fmt = FORMATS["qwen3_thinking"]
    pieces = {n: bytes([n]) for n in range(256)} | {
        300: b"</",
        301: b"think",
        302: b">",
        303: b">\n\nYes",
        304: b" sir",
    }
    bound = fmt.bind(unbraid.Vocabulary.from_tokens(pieces, special={"<|im_start|>": 400, "<|im_end|>": 401}))
    prompt = [400, *b"assistant\n<think>\n"]
    for last, held in ((302, []), (303, list(b"Yes"))):
        fake = Fake()
        gate = Gate(bound, prompt, fake)
        step = gate.advance([*b"Hm.", 300, 301, last])
        assert (step.ended, step.answer) == (5, bool(held))
        assert fake.held == held
        gate.advance([304])
        assert fake.held == [*held, 304]
        gate.rollback(2)
        assert fake.held == []
        assert not gate.reasoning_ended


def test_text_decides_where_the_machine_waited() -> None:
    tok, fake = tokens("qwen3"), Fake()
    prompt = tok.encode("<|im_start|>assistant\n")
    gate = Gate(tok.bound, prompt, fake, reasoning=True)
    space, word = tok.ordinary("\n"), tok.ordinary("Yes")
    gate.advance(space)
    assert not gate.reasoning_ended
    think = gate.fork()
    step = gate.advance(word)
    assert (step.ended, step.answer) == (0, True)
    assert fake.held == [*space, *word]
    think.advance(tok.encode("<think>Hm."))
    assert isinstance(think._matcher, Fake)
    assert think._matcher.held == []
    think.rollback(len(think.ids) - 1)
    assert think._matcher.held == space


def test_what_would_break_the_grammar_isnt_let_through_while_reasoning_may_begin() -> None:
    tok = tokens("qwen3")
    prompt = tok.encode("<|im_start|>assistant\n")
    yes = tok.ordinary("Yes")[0]
    gate = Gate(tok.bound, prompt, Fake(lambda held, id: id == yes), reasoning=True)
    think, call = tok.special["<think>"], tok.special["<tool_call>"]
    assert gate.allows(think)
    assert gate.allows(yes)
    assert not gate.allows(call)
    assert not gate.advance([call]).accepted
    assert gate.ids == ()
    gate.advance([think])
    assert gate.allows(tok.ordinary("No")[0])
    assert not gate.allows(call)  # it would end the thought, and the grammar wants none
    assert gate.validate([*tok.ordinary("Hm."), *tok.encode("</think>"), yes, call]) == len(tok.ordinary("Hm.")) + 2


def test_reasoning_may_begin_again_until_the_grammar_has_begun() -> None:
    tok, fake = tokens("qwen3"), Fake()
    gate = Gate(tok.bound, tok.encode("<|im_start|>assistant\n<think>\n"), fake)
    gate.advance(tok.encode("Hm.</think><think>Wait.</think>"))
    assert fake.held == []
    rest = tok.encode("So<think>what")
    gate.advance(rest)
    assert fake.held == rest  # the grammar had the word: it took the marker
    assert not gate.reasoning_ended  # what the parser says


# Strict, framed


@thinking_formats
def test_strict_masks_what_may_not_occur_in_reasoning(name: str) -> None:
    tok = tokens(name)
    if name not in MARKED:
        pytest.skip("its reasoning ends in a header")
    prompt = open_prompt(name)
    stop = tok.special[RESERVED]
    gate = Gate(tok.bound, prompt, mode="strict", reasoning=True, stop_ids=[stop])
    ends = {m.text for m, target in FORMATS[name].turns.items() if target.strand == "control"}
    for text in ends:
        assert text not in tok.special or not gate.allows(tok.special[text])
    assert not gate.allows(stop)
    assert gate.allows(tok.encode(end_marker(name))[0])
    assert gate.allows(tok.ordinary("word")[0])
    free = Gate(tok.bound, prompt, reasoning=True)
    assert not free.restricts
    literal = Gate(tok.bound, prompt, mode="strict", reasoning=True, policy=unbraid.Policy(call_in_reasoning="literal"))
    for opener in openers(name):
        row = tok.bound.program(unbraid.Policy()).alphabet.spell([(unbraid.table.Special(opener),)])
        if len(row[0]) == 1 and FIRST <= ord(row[0]) <= LAST:
            assert gate.allows(tok.special[opener])
            assert not literal.allows(tok.special[opener])
            assert literal.validate([tok.special[opener]]) == 0


def test_framed_the_grammar_owns_the_turn() -> None:
    tok, fake = tokens("qwen3"), Fake(lambda held, id: len(held) < 6)
    gate = Gate(tok.bound, tok.encode("<|im_start|>assistant\n"), fake, mode="framed", reasoning=True)
    ids = tok.encode("<think>Hm.</think>")
    step = gate.advance(ids)
    assert step.ended == len(ids) - 1
    assert fake.held == ids
    assert gate.reasoning_ended
    assert gate.validate([1, 2, 3, 4, 5, 6]) == 6 - len(ids)


# Speculation


class Reference:
    """The gate once more, from scratch for every prefix and one token at a time: parser, table and nothing else."""

    def __init__(self, name: str, prompt: list[int], thinking: bool | None, allows: Any) -> None:
        self.tok, self.fmt = tokens(name), FORMATS[name]
        self.prompt, self.thinking, self.allows = prompt, thinking, allows
        rows = [row for state, row in self.fmt.states.items() if thinks(state)]
        self.opener_texts = [
            spelled(s)
            for row in rows
            for marker, target in row.items()
            if target.strand in ("tool_call", "markup") and not thinks(target)
            for s in marker.spellings
        ]

    def answer(self, ids: list[int]) -> tuple[list[int], bool] | None:
        """What the matcher holds and whether reasoning is over; `None`: the grammar refuses one of the ids."""
        parser = unbraid.Parser(self.tok.bound, prompt=self.prompt, thinking=self.thinking)

        def over() -> bool:  # the head of a turn, its role, is nobody's answer
            return parser.reasoning_ended and not parser.state.header

        held: list[int] = []
        start = 0 if over() else None
        waiting = 0 if parser.state.name == "waiting" else None
        for at, id in enumerate(ids):
            before, headed = over(), parser.state.header
            parser.feed([id])
            if start is not None and held:
                pass
            elif not over():
                start = None
                if parser.state.name != "waiting":
                    waiting = None
                elif waiting is None or self.refused(ids, waiting, at + 1):
                    waiting = at + 1  # white space that the grammar doesn't want stands before the answer
            elif not before:
                start, waiting = at + 1 if headed else self.begins(ids, at, waiting), None
            if start is None:
                continue
            for position in range(start + len(held), at + 1):
                if not self.allows(held, ids[position]):
                    return None
                held.append(ids[position])
        return held, parser.reasoning_ended

    def refused(self, ids: list[int], start: int, stop: int) -> bool:
        return any(not self.allows(ids[start:n], ids[n]) for n in range(start, stop))

    def begins(self, ids: list[int], at: int, waiting: int | None) -> int:
        text = self.tok.decode([ids[at]])
        turns = [spelled(spelling) for marker in self.fmt.turns for spelling in marker.spellings]
        if text in turns or text == end_marker(self.fmt.name) or text == "</think>":
            return at + 1
        if waiting is not None:
            if not self.refused(ids, waiting, at + 1):
                return waiting
            return next(n for n in range(waiting, at + 1) if self.tok.decode([ids[n]]).strip())
        starts = [
            start
            for start in range(at, -1, -1)
            if any(opener in self.tok.decode(ids[start : at + 1]) for opener in self.opener_texts)
        ]
        return starts[0] if starts else at


def stream(name: str, rng: random.Random) -> list[int]:
    """Tokens in which reasoning opens and ends in every way, and much else."""
    tok = tokens(name)
    parts = [tok.ordinary(word) for word in ("Hm", " well", "Yes", " so", "3", "{}")]
    specials = [[id] for text, id in tok.special.items() if text != RESERVED]
    texts = [tok.encode(text) for text in openers(name) if FORMATS[name].reasons]
    found: list[int] = []
    while len(found) < 24:
        found += rng.choice(parts if rng.random() < 0.65 else [*specials, *texts])
    return found


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("part", range(4))
def test_any_schedule_of_drafts_and_rollbacks_says_what_one_token_at_a_time_says(name: str, part: int) -> None:
    tok = tokens(name)
    starts = [ids for ids in prompts(tok, name) if not tok.bound.state_at(ids).codec]
    for seed in range(part * SCHEDULES, (part + 1) * SCHEDULES):
        rng = random.Random(f"{name} {seed}")
        prompt = rng.choice([*starts, open_prompt(name)])
        thinking, allows = rng.choice([True, False, None]), picky(seed) if seed % 2 else (lambda held, id: True)
        reference, fake = Reference(name, prompt, thinking, allows), Fake(allows)
        gate = Gate(tok.bound, prompt, fake, reasoning=thinking)
        taken: list[int] = []
        source = stream(name, rng)
        for _ in range(14):
            move = rng.random()
            if move < 0.3:
                n = rng.randrange(len(taken) + 1) if rng.random() < 0.3 else min(len(taken), rng.randrange(4))
                gate.rollback(n)
                del taken[len(taken) - n :]
            elif move < 0.4:
                gate = gate.fork()
                assert isinstance(gate._matcher, Fake)
                fake = gate._matcher
            else:
                at = rng.randrange(len(source))
                draft = source[at : at + rng.randint(1, 8)]
                if rng.random() < 0.5:
                    valid = gate.validate(draft)
                    assert list(gate.ids) == taken
                    draft = draft[: rng.randint(0, valid)]
                    assert gate.advance(draft).accepted == len(draft)  # what may come is taken when it comes
                    taken += draft
                else:
                    count = 0
                    while count < len(draft) and reference.answer([*taken, *draft[: count + 1]]) is not None:
                        count += 1
                    step = gate.advance(draft)
                    assert step.accepted == count, (taken, draft)
                    taken += draft[:count]
            expected = reference.answer(taken)
            assert expected is not None
            assert list(gate.ids) == taken
            assert (fake.held if gate._stages[-1].decided else []) == expected[0]
            assert gate.reasoning_ended == expected[1]
        fresh = Gate(tok.bound, prompt, Fake(allows), reasoning=thinking)
        for id in taken:
            assert fresh.advance([id]).accepted
        assert (bits(fresh) == bits(gate)).all()
        assert fresh.spent == gate.spent


@every_format
@A_QUARTER
@given(data=st.data())
def test_validate_is_what_one_token_at_a_time_would_say(name: str, data: st.DataObject) -> None:
    tok = tokens(name)
    seed, mode = data.draw(st.integers(0, 9)), data.draw(st.sampled_from(MODES))
    prompt = data.draw(st.sampled_from(prompts(tok, name)))
    budget = data.draw(st.sampled_from([None, None, 0, 2, 5]))
    gate = Gate(tok.bound, prompt, Fake(picky(seed)), mode=mode, budget=budget)
    for part in data.draw(st.lists(st.sampled_from(scraps(name)), max_size=8)):
        single = gate.fork()
        before = (gate.ids, gate.reasoning_ended, gate.spent, gate.answer_start, bits(gate).tolist())
        valid = gate.validate(part)
        assert before == (gate.ids, gate.reasoning_ended, gate.spent, gate.answer_start, bits(gate).tolist())
        count = 0
        while count < len(part) and single.allows(part[count]) and single.advance([part[count]]).accepted:
            count += 1
        assert valid == count
        gate.advance(part)


@every_format
@A_QUARTER
@given(data=st.data())
def test_rollback_leaves_no_trace(name: str, data: st.DataObject) -> None:
    tok = tokens(name)
    prompt = data.draw(st.sampled_from(prompts(tok, name)))
    make: Callable[[], Fake | None] = data.draw(st.sampled_from([lambda: None, lambda: Fake(picky(3)), Fake]))
    ids = data.draw(soups(name, most=8)) * data.draw(st.sampled_from([1, 1, 8]))
    gate = Gate(tok.bound, prompt, make())
    taken = list(ids[: gate.advance(ids).accepted])
    back = data.draw(st.integers(0, len(taken)))
    gate.rollback(back)
    again = Gate(tok.bound, prompt, make())
    again.advance(taken[: len(taken) - back])
    assert gate.ids == again.ids
    assert gate.state is again.state
    assert gate.spent == again.spent
    assert (bits(gate) == bits(again)).all()
    tail = data.draw(soups(name, most=3))
    assert gate.advance(tail) == again.advance(tail)
    assert gate.state is again.state
    assert gate.spent == again.spent


# Budget


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("budget", [0, 1, 5])
def test_the_budget_holds_and_its_end_parses(name: str, budget: int) -> None:
    tok = tokens(name)
    for seed in range(20):
        rng = random.Random(seed)
        prompt = open_prompt(name)
        gate = Gate(tok.bound, prompt, budget=budget, reasoning=True)
        words = [tok.ordinary(word)[0] for word in ("Hm", " well", "\n", "<", "Yes", " so", "{")]
        ids: list[int] = []
        while not gate.reasoning_ended:
            forced = gate.forced
            assert forced == only(gate)
            id = forced if forced is not None else rng.choice([word for word in words if gate.allows(word)])
            assert gate.advance([id]).accepted
            ids.append(id)
            assert len(ids) < 40
        assert tuple(ids[-len(tok.bound.reasoning_end_ids) :]) == tok.bound.reasoning_end_ids
        parser = unbraid.Parser(tok.bound, prompt=prompt, thinking=True)
        events = [*parser.feed([*ids, *tok.ordinary("Yes.")]), *parser.finish()]
        assert sum(e.token_stop - e.token_start for e in events if e.strand == "reasoning") <= budget
        assert parser.message.content == "Yes."
        assert not parser.message.diagnostics


@pytest.mark.parametrize("name", [name for name in MARKED if openers(name)])
def test_the_budget_never_fires_inside_a_call_that_ended_reasoning(name: str) -> None:
    tok = tokens(name)
    for opener in openers(name):
        for length in range(4):
            gate = Gate(tok.bound, open_prompt(name), budget=3, reasoning=True)
            gate.advance([*tok.ordinary("Hm" * length), *tok.encode(opener)])
            if not gate.reasoning_ended:
                continue
            for id in tok.ordinary('f\n{"name": "f", "arguments": {"a": "' + "long " * 20):
                assert gate.forced is None
                gate.advance([id])
            assert gate.forced is None


def test_a_second_thought_has_what_is_left_of_the_budget() -> None:
    tok = tokens("qwen3")
    gate = Gate(tok.bound, tok.encode("<|im_start|>assistant\n<think>\n"), budget=4)
    gate.advance(tok.encode("Hm</think>Yes<think>"))
    assert gate.spent == 1
    gate.advance(tok.ordinary("a b c")[:3])
    assert gate.forced == tok.special["</think>"]
    gate.rollback(1)
    assert gate.forced is None


# Cost and edges


def test_masks_of_plain_lists_will_do() -> None:
    tok = tokens("qwen3")
    gate = Gate(tok.bound, tok.encode("<|im_start|>assistant\n<think>\n"), mode="strict")
    flat, rows = [0] * WORDS, [[0] * WORDS, [0] * WORDS]
    gate.fill(flat)
    gate.fill(rows, 1)
    assert flat == rows[1] == bits(gate).tolist()
    assert rows[0] == [0] * WORDS


def test_a_long_thought_costs_no_more_per_token_than_a_short_one() -> None:
    tok = tokens("qwen3")
    gate = Gate(tok.bound, tok.encode("<|im_start|>assistant\n<think>\n"))
    word = tok.ordinary("Hm")
    for _ in range(5000):
        gate.advance(word)
    assert len(gate._copies) <= 17
    assert sum(len(part.pieces) for part in gate._machine._parts if hasattr(part, "pieces")) <= 70
    gate.rollback(4999)
    assert gate.spent == 1


def said_with(tok: Tokens, case: Fixture, ids: list[int], forgets: int) -> list[Event]:
    """What a parser says that forgets before this token what was said."""
    prompt = None if case.prompt is None else tok.encode(case.prompt)
    parser = unbraid.Parser(tok.bound, prompt=prompt, **case.options)
    events: list[Event] = []
    for at, id in enumerate(ids):
        if at == forgets:
            parser.lighten()
        events += parser.feed([id])
    return events + parser.finish(case.finish)


@every_format
def test_what_was_forgotten_is_not_missed(name: str) -> None:
    """Not even in a value that is no string, and is converted when all of it is there. (A call that is withdrawn is said again: that takes
    what was forgotten.)"""
    tok, chance = tokens(name), random.Random(name)
    for case in [case for case in FIXTURES[name] if case.calls][:4]:
        ids = tok.encode(case.raw)
        whole = said_with(tok, case, ids, -1)
        if not any(isinstance(event, CallEnd) and event.outcome == "withdrawn" for event in whole):
            for at in chance.sample(range(len(ids)), min(12, len(ids))):
                assert said_with(tok, case, ids, at) == whole, f"{case}, behind {tok.decode(ids[:at])!r}"


def test_more_than_there_is_cant_be_taken_back() -> None:
    gate = Gate(tokens("qwen3").bound)
    with pytest.raises(ValueError, match="can't take back"):
        gate.rollback(1)
