"""What holds for every registered format and every input: stated once, tried on whatever Hypothesis thinks of.

The inputs are soups: the format's own markers, whole and spelled and halved, pieces of its fixtures, JSON, tags, white
space, broken characters, ids that no vocabulary has.
"""

from __future__ import annotations

import itertools
import json
import signal
import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import pytest
from fixtures import FIXTURES, Fixture
from hypothesis import currently_in_test_context, given, note
from hypothesis import strategies as st
from test_formats import check_fold, check_tiling
from tokens import EMPTY, UNKNOWN, Tokens, tokens
from tokens import small_memories as small_memories

import unbraid
from unbraid.codecs.base import HEADER_LIMIT
from unbraid.events import CallArguments, CallEnd, CallStart, Event, Text
from unbraid.formats import FORMATS
from unbraid.machine import FinishReason
from unbraid.message import Message, ToolCall
from unbraid.table import WORD, Format, spelled

every_format = pytest.mark.parametrize("name", sorted(FORMATS))

SCRAPS = [
    *(" ", "\n", "\n\n", "\n\n\n", " \n", "\t", "word", " word", "Yes.", "x", "f", "name", "arguments", "function"),
    *("<", "<<", "</", ">", "/>", "=", "｜", "[", "]", '"', '\\"', "\\", "{", "}", "}}", ",", ":", ": ", "{}", "[]"),
    *("null", "true", "3", "-1.5e3", '{"name": "f", "arguments": {"a": 1}}', '{"a": "b"}', '{"a": [1, {"b": null}]}'),
    *('{"name": "f"', '"arguments": {', "functions.f:0", "```json\n", "\n```", '="f">', '="a" string="true">'),
    *("<function=f>", "</function>", "<parameter=a>", "</parameter>", '<invoke name="f">', "</invoke>"),
    *('<parameter name="a">', "🙂", "é", "漢字", "𝄞", "\u2028", "\x00", "\ufeff", "n" * 520),
]
BROKEN = [[0xC3], [0xED, 0xA0], [0xF0, 0x9F], [0xE6, 0xBC], [0xFF], [0x80], [0xF0, 0x9F, 0x99], [0xED, 0xA0, 0x80]]
POLICIES = [
    unbraid.Policy(),
    unbraid.Policy(calls="atomic"),
    unbraid.Policy(truncated_call="drop", malformed_call="drop"),
    unbraid.Policy(unknown_tool="content"),
    unbraid.Policy(calls="atomic", unknown_tool="content", tool_choice_none="strip"),
    unbraid.Policy(call_in_reasoning="literal"),
    unbraid.Policy(spelled_markers="accept"),
    unbraid.Policy(orphan_call="recover"),
    unbraid.Policy(keep_special_tokens=frozenset({"<|im_end|>", "<|reserved|>"})),
]
FINISHES: tuple[FinishReason, ...] = ("stop", "length")
finishes = st.sampled_from(FINISHES)
groupings = st.lists(st.integers(0, 7), min_size=1, max_size=8).filter(any)
"""Sizes of the groups into which a stream is cut, repeated as long as it lasts."""


@cache
def table_texts(fmt: Format) -> list[str]:
    """Every spelling of every marker, those inside call bodies included."""
    spellings = [spelling for marker in fmt.markers for spelling in marker.spellings]
    for state in fmt.states:
        if state.codec:
            spellings += state.codec.spellings()
    return list(dict.fromkeys(spelled(spelling) for spelling in spellings))


def scraps(name: str) -> list[list[int]]:
    """The ingredients of a format's soups that don't come from its fixtures."""
    tok = tokens(name)
    texts = table_texts(unbraid.get_format(name))
    whole = [tok.encode(text) for text in texts] + [[id] for id in tok.special.values()]
    ordinary = [tok.ordinary(text) for text in texts]
    halves = [tok.ordinary(text[: len(text) // 2]) for text in texts]
    return [*whole, *ordinary, *halves, *map(tok.ordinary, SCRAPS), *BROKEN, [EMPTY], *([id] for id in UNKNOWN)]


@cache
def fragments(name: str) -> st.SearchStrategy[list[int]]:
    tok = tokens(name)
    raws = [tok.encode(case.raw) for case in FIXTURES[name]]
    return st.builds(
        lambda ids, start, length: ids[start % len(ids) :][:length],
        st.sampled_from(raws),
        st.integers(0, 200),
        st.integers(1, 80),
    )


@cache
def soups(name: str, most: int = 20) -> st.SearchStrategy[list[int]]:
    ingredients = st.one_of(st.sampled_from(scraps(name)), fragments(name))
    return st.lists(ingredients, max_size=most).map(lambda parts: [id for part in parts for id in part])


@dataclass(frozen=True, repr=False)
class Setting:
    """All that a parser is told besides the output: taken from a fixture, some of it changed."""

    case: str
    prompt: str | None
    thinking: bool | None
    policy: unbraid.Policy
    tools: list[dict[str, Any]] | None

    def __repr__(self) -> str:
        usual, policy = asdict(unbraid.Policy()), asdict(self.policy)
        changed = {key: policy[key] for key in policy if policy[key] != usual[key]}
        prompt = "no prompt" if self.prompt is None else f"prompt ...{self.prompt[-40:]!r}"
        return f"<{self.case}: {prompt}, thinking {self.thinking}, policy {changed}>"

    @property
    def options(self) -> dict[str, Any]:
        return {"tools": self.tools, "thinking": self.thinking, "policy": self.policy}

    def prompt_ids(self, tok: Tokens) -> list[int] | None:
        return None if self.prompt is None else tok.encode(self.prompt)


@cache
def settings(name: str, *policies: unbraid.Policy) -> st.SearchStrategy[Setting]:
    return st.builds(
        lambda case, prompted, thinking, policy: Setting(
            case.name, case.prompt if prompted else None, thinking, policy, case.tools
        ),
        st.sampled_from(FIXTURES[name]),
        st.booleans(),
        st.sampled_from([None, True, False]),
        st.sampled_from(policies or POLICIES),
    )


def tell(what: str) -> None:
    """Into the report of a failing example, if there is one."""
    if currently_in_test_context():
        note(what)


def cut(units: Any, sizes: Sequence[int]) -> Iterator[Any]:
    at = 0
    for size in itertools.cycle(sizes):
        if at >= len(units):
            return
        yield units[at : at + size]
        at += size


@contextmanager
def soon() -> Iterator[None]:
    """An endless loop fails instead of hanging: half a minute of this process's own time is never needed here."""

    def stop(signum: int, frame: object) -> None:
        raise AssertionError("an endless loop")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, 30)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def run_ids(
    name: str, setting: Setting, groups: Iterator[list[int]] | list[list[int]], finish: FinishReason
) -> tuple[list[Event], Message]:
    tok = tokens(name)
    parser = unbraid.Parser(tok.bound, prompt=setting.prompt_ids(tok), **setting.options)
    groups = list(groups)
    tell(f"{name}, {finish}: {[tok.decode(group) for group in groups]}")
    with soon():
        events = [event for group in groups for event in parser.feed(group)]
        events += parser.finish(finish)
    return events, parser.message


def run_text(
    name: str, setting: Setting, parts: Iterator[str] | list[str], finish: FinishReason
) -> tuple[list[Event], Message]:
    prompt = setting.prompt and setting.prompt.replace("⟦", "").replace("⟧", "")
    parser = unbraid.Parser(unbraid.get_format(name), prompt=prompt, **setting.options)
    parts = list(parts)
    tell(f"{name}, {finish}: {parts}")
    with soon():
        events = [event for part in parts for event in parser.feed_text(part)]
        events += parser.finish(finish)
    return events, parser.message


def said(events: Sequence[Event], message: Message) -> dict[str, Any]:
    """All that must not depend on how the stream was cut. The ids of calls are random unless the model writes them."""
    streams: dict[Any, str] = {}
    for event in events:
        match event:
            case Text():
                streams[event.strand] = streams.get(event.strand, "") + event.text
            case CallStart():
                streams["call", event.index] = event.name + "\0"
            case CallArguments():
                streams["call", event.index] += event.delta
            case CallEnd():
                streams["call", event.index] += "\0" + event.outcome
    strip = [
        (part.name, part.arguments, part.complete) if isinstance(part, ToolCall) else part for part in message.parts
    ]
    return {
        "reasoning": message.reasoning,
        "content": message.content,
        "parts": strip,
        "calls": [(call.name, call.arguments, call.complete) for call in message.tool_calls],
        "streams": {key: text for key, text in streams.items() if text},
        "diagnostics": message.diagnostics,
    }


def check_calls(message: Message) -> None:
    for call in message.tool_calls:
        assert call.name
        assert call.id
        if call.complete:
            assert isinstance(json.loads(call.arguments), dict)


@every_format
@given(data=st.data())
def test_events_tile_the_ids(name: str, data: st.DataObject) -> None:
    setting, ids, sizes = data.draw(settings(name)), data.draw(soups(name)), data.draw(groupings)
    events, message = run_ids(name, setting, cut(ids, sizes), data.draw(finishes))
    check_tiling(events, tokens(name).decode(ids), len(ids))
    check_fold(events, message)
    check_calls(message)


@every_format
@given(data=st.data())
def test_events_tile_the_text(name: str, data: st.DataObject) -> None:
    setting, ids, sizes = data.draw(settings(name)), data.draw(soups(name)), data.draw(groupings)
    text = tokens(name).decode(ids)
    events, message = run_text(name, setting, cut(text, sizes), data.draw(finishes))
    check_tiling(events, text, 0)
    check_fold(events, message)
    check_calls(message)


@every_format
@given(data=st.data())
def test_any_grouping_of_tokens_says_the_same(name: str, data: st.DataObject) -> None:
    setting, ids, sizes = data.draw(settings(name)), data.draw(soups(name)), data.draw(groupings)
    finish = data.draw(finishes)
    assert said(*run_ids(name, setting, cut(ids, sizes), finish)) == said(*run_ids(name, setting, [ids], finish))


@every_format
def test_any_cut_finds_a_fault_at_the_same_character(name: str) -> None:
    tok = tokens(name)
    for case in FIXTURES[name]:
        setting = Setting(case.name, case.prompt, case.thinking, case.policy, case.tools)
        ids, text = tok.encode(case.raw), case.raw
        by_ids = [run_ids(name, setting, groups, case.finish)[1] for groups in ([ids], [[id] for id in ids])]
        by_text = [run_text(name, setting, parts, case.finish)[1] for parts in ([text], list(text))]
        for whole, cut_up in (by_ids, by_text):
            assert cut_up.diagnostics == whole.diagnostics, case


@every_format
@given(data=st.data())
def test_any_cut_of_the_text_says_the_same(name: str, data: st.DataObject) -> None:
    setting, ids, sizes = data.draw(settings(name)), data.draw(soups(name)), data.draw(groupings)
    text, finish = tokens(name).decode(ids), data.draw(finishes)
    assert said(*run_text(name, setting, cut(text, sizes), finish)) == said(*run_text(name, setting, [text], finish))


@every_format
@given(data=st.data())
def test_any_grouping_of_a_fixture_says_the_same(name: str, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(FIXTURES[name]))
    setting = Setting(case.name, case.prompt, case.thinking, case.policy, case.tools)
    ids, sizes = tokens(name).encode(case.raw), data.draw(groupings)
    ids = ids[: data.draw(st.integers(0, len(ids)))]
    finish = data.draw(finishes)
    assert said(*run_ids(name, setting, cut(ids, sizes), finish)) == said(*run_ids(name, setting, [ids], finish))


@cache
def any_ids(name: str) -> st.SearchStrategy[list[int]]:
    known = st.sampled_from([*tokens(name).special.values(), *tokens(name).vocabulary.tokens])
    return st.lists(known | st.integers(-(2**65), 2**65) | st.integers(0, 2_000), max_size=60)


@every_format
@given(data=st.data())
def test_any_ids_are_read(name: str, data: st.DataObject) -> None:
    ids, setting, sizes = data.draw(any_ids(name)), data.draw(settings(name)), data.draw(groupings)
    events, message = run_ids(name, setting, cut(ids, sizes), data.draw(finishes))
    check_tiling(events, tokens(name).decode(ids), len(ids))
    check_calls(message)


@every_format
@given(data=st.data())
def test_any_bytes_are_read(name: str, data: st.DataObject) -> None:
    raw, setting, sizes = data.draw(st.binary(max_size=60)), data.draw(settings(name)), data.draw(groupings)
    events, message = run_ids(name, setting, cut(list(raw), sizes), data.draw(finishes))
    check_tiling(events, raw.decode("utf-8", "replace"), len(raw))
    check_calls(message)


@cache
def any_text(name: str) -> st.SearchStrategy[str]:
    known = [*table_texts(unbraid.get_format(name)), *SCRAPS, "\ud800", "\udfff", "\ud83d"]
    return st.lists(st.sampled_from(known) | st.text(max_size=8), max_size=20).map("".join)


@every_format
@given(data=st.data())
def test_any_text_is_read(name: str, data: st.DataObject) -> None:
    """Lone surrogates included: JSON can smuggle them into a Python string."""
    text, setting, sizes = data.draw(any_text(name)), data.draw(settings(name)), data.draw(groupings)
    events, message = run_text(name, setting, cut(text, sizes), data.draw(finishes))
    check_tiling(events, text, 0)
    check_fold(events, message)
    check_calls(message)


@every_format
def test_truncation_anywhere_is_read(name: str) -> None:
    tok = tokens(name)
    for case in FIXTURES[name]:
        ids = tok.encode(case.raw)
        setting = Setting(case.name, case.prompt, case.thinking, case.policy, case.tools)
        for stop, finish in itertools.product(range(len(ids) + 1), FINISHES):
            events, message = run_ids(name, setting, [ids[:stop]], finish)
            check_tiling(events, tok.decode(ids[:stop]), stop)
            check_fold(events, message)
            check_calls(message)


@every_format
def test_truncation_of_text_anywhere_is_read(name: str) -> None:
    for case in FIXTURES[name]:
        text = case.raw.replace("⟦", "").replace("⟧", "")
        setting = Setting(case.name, case.prompt, case.thinking, case.policy, case.tools)
        for stop, finish in itertools.product(range(0, len(text) + 1, 3), FINISHES):
            events, message = run_text(name, setting, [text[:stop]], finish)
            check_tiling(events, text[:stop], 0)
            check_calls(message)


def check_agreement(tok: Tokens, prompt: list[int], ids: list[int], thinking: bool | None) -> None:
    """At every prefix, the pure functions of ids and the parser that was there say the same."""
    tell(f"{tok.decode(prompt)!r} {[tok.decode([id]) for id in ids]}")
    parser = unbraid.Parser(tok.bound, prompt=prompt, thinking=thinking)
    program = tok.bound.program(unbraid.Policy())
    opened = program.turns.last_of(prompt)[1] is not None
    for stop in range(len(ids) + 1):
        if stop:
            parser.feed(ids[stop - 1 : stop])
        seen = prompt + ids[:stop]
        if not opened and program.turns.last_of(seen)[1] is not None and parser.state.codec is not None:
            return  # ids in which no turn began before: that this opener is data can't be seen in them
        assert tok.bound.state_at(seen, thinking=thinking) == parser.state, stop
        assert tok.bound.is_reasoning_end(seen, thinking=thinking) == parser.reasoning_ended, stop
        if stop % 8 == 0 or stop == len(ids):  # it follows a gate over all ids: dearer than the others
            content = tok.bound.content_ids(seen, thinking=thinking)
            assert content == seen[len(seen) - len(content) :]
            assert parser.reasoning_ended or not content


@every_format
def test_projections_agree_with_the_parser_on_every_prefix_of_a_fixture(name: str) -> None:
    tok = tokens(name)
    for case in FIXTURES[name]:
        check_agreement(tok, tok.encode(case.prompt or ""), tok.encode(case.raw), case.thinking)


@every_format
@given(data=st.data())
def test_projections_agree_with_the_parser_on_every_prefix(name: str, data: st.DataObject) -> None:
    setting, ids = data.draw(settings(name)), data.draw(soups(name, most=10))
    check_agreement(tokens(name), setting.prompt_ids(tokens(name)) or [], ids[:30], setting.thinking)


@cache
def answers(name: str) -> list[Fixture]:
    """Fixtures with the default policy that start a new turn: what content ids mean is plain there."""
    return [
        case
        for case in FIXTURES[name]
        if case.prompt is not None and case.policy == unbraid.Policy() and not case.name.startswith("continued")
    ]


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"minimax_m2_append_think"}))  # there a thought is content
def test_content_ids_are_all_that_follows_reasoning(name: str) -> None:
    """In the last turn: of a format whose messages are turns, in the last message, if it ends reasoning. What stands before a
    thought that came again is none of it."""
    tok = tokens(name)
    turns = {text for marker in tok.bound.format.turns for text in map(spelled, marker.spellings)}
    for case in answers(name):
        prompt, ids = tok.encode(case.prompt or ""), tok.encode(case.raw)
        while tok.decode(ids[-1:]) in turns:  # some formats end a turn by beginning the next
            ids.pop()
        content = tok.bound.content_ids(prompt + ids, thinking=case.thinking)
        first = max(0, len(ids) - len(content))
        begin = tok.bound.program(unbraid.Policy()).turns.last_of(prompt + ids)[0] - len(prompt)
        parser = unbraid.Parser(tok.bound, prompt=prompt, **case.options)
        events = [*parser.feed(ids), *parser.finish(case.finish)]
        thought = max((event.token_stop for event in events if event.strand == "reasoning"), default=0)
        for event in events:
            if event.token_start == event.token_stop:
                continue
            if event.strand == "reasoning":
                assert event.token_stop <= first, f"{case}: {event}"
            elif event.strand in ("content", "tool_call") and event.token_start >= max(begin, thought):
                if event.strand == "content" and not tok.bound.is_reasoning_end(prompt + ids[: event.token_stop]):
                    continue
                assert event.token_start >= first, f"{case}: {event}"


def released(events: Sequence[Event]) -> int:
    return events[-1].stop if events else 0


@cache
def open_prompts(name: str) -> list[list[int]]:
    """Prompts after which text is reasoning or content."""
    tok = tokens(name)
    prompts = [tok.encode(case.prompt) for case in FIXTURES[name] if case.prompt]
    return [
        ids
        for ids in prompts
        if tok.bound.state_at(ids).strand in ("reasoning", "content")
        and not unbraid.Parser(tok.bound, prompt=ids).waiting[0]  # half a marker, which the output may complete
    ]


@cache
def neutral(name: str) -> str:
    """Characters with which no marker begins."""
    firsts = {text[0] for text in table_texts(unbraid.get_format(name))}
    return "".join(sorted(set(string.printable + "é漢｜▁") - set(string.whitespace) - firsts))


@cache
def words(name: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.text(neutral(name), min_size=1, max_size=8), min_size=1, max_size=6)


def on_trial(name: str, parser: unbraid.Parser) -> bool:
    """Whether the parser stands where a call may begin without a marker, so that any text may be one."""
    return any(marker.trial for marker in unbraid.get_format(name).states.get(parser.state, ()))


@every_format
@given(data=st.data())
def test_text_that_begins_no_marker_is_released_at_once(name: str, data: st.DataObject) -> None:
    tok = tokens(name)
    parser = unbraid.Parser(tok.bound, prompt=data.draw(st.sampled_from(open_prompts(name))))
    fed: list[int] = []
    at = 0
    for word in data.draw(words(name)):
        for id in tok.ordinary(word):
            fed.append(id)
            at = max(at, released(parser.feed([id])))
            whole = tok.decode(fed).rstrip("\ufffd")  # a character that isn't whole yet
            assert at == len(whole) or on_trial(name, parser)


@cache
def heads(name: str) -> list[str]:
    """Of the markers with a gap: what stands before it."""
    markers = unbraid.get_format(name).markers
    return [
        *(str(marker) for marker in markers if marker.end),
        *(spelled(s[: s.index(WORD)]) for marker in markers for s in marker.spellings if WORD in s),
    ]


@every_format
@given(data=st.data())
def test_what_is_held_back_could_still_become_a_marker(name: str, data: st.DataObject) -> None:
    tok = tokens(name)
    texts, gaps = table_texts(unbraid.get_format(name)), heads(name)
    setting, ids = data.draw(settings(name, POLICIES[0])), data.draw(soups(name, most=8))
    ids = [id for id in ids if id not in UNKNOWN]
    parser = unbraid.Parser(tok.bound, prompt=setting.prompt_ids(tok), **setting.options)
    at = 0
    for stop in range(1, len(ids) + 1):
        at = max(at, released(parser.feed(ids[stop - 1 : stop])))
        held = tok.decode(ids[:stop]).rstrip("\ufffd")[at:].lstrip()
        if parser.state.strand in ("reasoning", "content") and not on_trial(name, parser):
            begun = any(text.startswith(held) or text.lstrip().startswith(held) for text in texts)
            # A marker with a gap: what stands before the gap, then anything that may stand in it.
            assert begun or any(held.startswith(head.strip()) for head in gaps), f"{held!r} is no beginning of a marker"


@every_format
@given(data=st.data())
def test_one_word_releases_everything(name: str, data: st.DataObject) -> None:
    tok = tokens(name)
    setting, ids = data.draw(settings(name, POLICIES[0])), data.draw(soups(name, most=8))
    fed = [*ids, *tok.ordinary("x")]
    parser = unbraid.Parser(tok.bound, prompt=setting.prompt_ids(tok), **setting.options)
    at = max([released(parser.feed([id])) for id in fed])
    if parser.state.strand != "tool_call" and not parser.state.capture and not on_trial(name, parser):
        held = tok.decode(fed)[at:].lstrip()
        assert not held or any(held.startswith(head.strip()) for head in heads(name))


@cache
def content_prompt(name: str) -> list[int]:
    case = next(case for case in FIXTURES[name] if case.name == "continued_inside_content")
    return tokens(name).encode(case.prompt or "")


CHARACTERS = "🙂🛳️漢字é𝄞👩‍👩‍👧ßж\u0301"


@every_format
@given(data=st.data())
def test_split_characters_arrive_whole(name: str, data: st.DataObject) -> None:
    text, sizes = data.draw(st.text(CHARACTERS, min_size=1, max_size=12)), data.draw(groupings)
    parser = unbraid.Parser(tokens(name).bound, prompt=content_prompt(name))
    events = [event for group in cut(list(text.encode()), sizes) for event in parser.feed(group)]
    assert not any("\ufffd" in event.raw for event in events)
    parser.finish()
    assert parser.message.content == text


@every_format
@given(data=st.data())
def test_a_broken_character_costs_nothing_else(name: str, data: st.DataObject) -> None:
    tok, sizes = tokens(name), data.draw(groupings)
    before, after = data.draw(st.text(CHARACTERS, max_size=4)), data.draw(st.text(CHARACTERS + "ab", max_size=4))
    broken = data.draw(st.sampled_from(BROKEN))
    ids = [*before.encode(), *broken, *tok.ordinary(f"{after} end")]
    parser = unbraid.Parser(tok.bound, prompt=content_prompt(name))
    for group in cut(ids, sizes):
        parser.feed(group)
    parser.finish()
    content = parser.message.content or ""
    assert content == tok.decode(ids)
    assert content.startswith(before + "\ufffd")
    assert content.endswith(after + " end")


@pytest.mark.parametrize("length", range(HEADER_LIMIT - 22, HEADER_LIMIT + 4, 3))
def test_a_name_that_the_next_call_cuts_off_is_too_long_however_it_comes(length: int) -> None:
    """Whether the marker of the next call still counts hangs on where it stands, not on what has come with it."""
    begin = "<｜tool▁call▁begin｜>"
    text = f"{begin}{'n' * length}{begin}f<｜tool▁sep｜>{{}}<｜tool▁call▁end｜>"
    said = set()
    for size in (1, 7, len(text)):
        parser = unbraid.Parser(unbraid.get_format("deepseek_v31"))
        for at in range(0, len(text), size):
            parser.feed_text(text[at : at + size])
        parser.finish()
        message = parser.message
        said.add((message.content, *[call.name for call in message.tool_calls]))
    assert len(said) == 1
