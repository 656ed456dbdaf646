"""Every fixture of every format, fed in every way: the same message, and events that tile what was fed.

A new case is a new line in `data/<format>.jsonl`, a new format a new file there. `fixtures.py` says what a line may
hold.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from fixtures import ALL, FIXTURES, Fixture, own_texts, value
from tokens import SPELLED, plain, tokens

import unbraid
from unbraid.events import CallArguments, Event
from unbraid.formats import FORMATS
from unbraid.message import Message
from unbraid.schema import json_string
from unbraid.table import spelled

Units = Any
"""A list of ids, or a text: what can be cut."""


def whole(units: Units) -> Iterator[Units]:
    yield units


def one_by_one(units: Units) -> Iterator[Units]:
    for at in range(len(units)):
        yield units[at : at + 1]


def at_random(seed: int) -> Callable[[Units], Iterator[Units]]:
    def cut(units: Units) -> Iterator[Units]:
        rng, at = random.Random(seed), 0
        while at < len(units):
            step = rng.randint(0, 8)
            yield units[at : at + step]
            at += step

    return cut


WAYS = {"whole": whole, "one_by_one": one_by_one, **{f"random_{seed}": at_random(seed) for seed in (1, 2, 3)}}


def params(cases: Sequence[Fixture]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", cases, ids=str)


def feed_ids(case: Fixture, way: str) -> tuple[list[Event], Message, list[int]]:
    tok = tokens(case.format)
    prompt = None if case.prompt is None else tok.encode(case.prompt)
    ids = tok.encode(case.raw)
    parser = unbraid.Parser(tok.bound, prompt=prompt, **case.options)
    events = [event for group in WAYS[way](ids) for event in parser.feed(group)]
    events += parser.finish(case.finish)
    return events, parser.message, ids


def feed_text(case: Fixture, way: str) -> tuple[list[Event], Message]:
    parser = unbraid.Parser(unbraid.get_format(case.format), prompt=case.prompt, **case.options)
    events = [event for part in WAYS[way](case.raw) for event in parser.feed_text(part)]
    events += parser.finish(case.finish)
    return events, parser.message


def check_message(case: Fixture, message: Message) -> None:
    assert message.reasoning == case.reasoning
    assert message.content == case.content
    assert [(call.name, call.complete) for call in message.tool_calls] == [
        (call[0], call[2] if len(call) > 2 else True) for call in case.calls
    ]
    for call, (_, arguments, *_) in zip(message.tool_calls, case.calls, strict=True):
        said = call.arguments if isinstance(arguments, str) else value(call.arguments, call.complete)
        assert said == arguments
    if case.ids is not None:
        assert [call.id for call in message.tool_calls] == case.ids
    assert set(case.diagnostics) <= {diagnostic.kind for diagnostic in message.diagnostics}


def check_tiling(events: Sequence[Event], raw: str, tokens: int) -> None:
    assert "".join(event.raw for event in events) == raw
    at = token = 0
    for event in events:
        assert (event.start, event.token_start) == (at, token), event
        assert event.stop - event.start == len(event.raw), event
        assert event.token_stop >= event.token_start, event
        at, token = event.stop, event.token_stop
    assert (at, token) == (len(raw), tokens)


def check_fold(events: Sequence[Event], message: Message) -> None:
    """The message is what the events say, and nothing else."""
    join = {"reasoning": "", "content": ""}
    arguments: dict[int, str] = {}
    outcomes: dict[int, str] = {}
    for event in events:
        match event:
            case unbraid.events.Text():
                join[event.strand] += event.text
            case unbraid.events.CallStart():
                assert event.index == len(arguments), "calls are counted from 0 without a gap"
                arguments[event.index] = ""
            case unbraid.events.CallArguments():
                arguments[event.index] += event.delta
            case unbraid.events.CallEnd():
                assert event.index not in outcomes
                outcomes[event.index] = event.outcome
    assert outcomes.keys() == arguments.keys(), "every call that starts ends"
    kept = [index for index, outcome in outcomes.items() if outcome != "withdrawn"]
    assert [call.arguments for call in message.tool_calls] == [arguments[index] for index in kept]
    assert [call.complete for call in message.tool_calls] == [outcomes[index] == "complete" for index in kept]
    assert message.content is None or message.content == join["content"]
    assert message.reasoning is None or message.reasoning == join["reasoning"]
    assert message.reasoning != ""
    assert message.content != ""


@contextmanager
def fed(way: str) -> Iterator[None]:
    """Says in a failure which way it was. All ways share a test, for there are thousands of fixtures."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"fed {way.replace('_', ' ')}")
        raise


@params(ALL)
def test_by_ids(case: Fixture) -> None:
    raw = plain(case.raw)
    for way in WAYS:
        with fed(way):
            events, message, ids = feed_ids(case, way)
            check_message(case, message)
            check_tiling(events, raw, len(ids))
            check_fold(events, message)


@params([case for case in ALL if case.text])
def test_by_text(case: Fixture) -> None:
    for way in WAYS:
        with fed(way):
            events, message = feed_text(case, way)
            check_message(case, message)
            check_tiling(events, case.raw, 0)
            check_fold(events, message)


@params(ALL)
def test_parse_is_feed_and_finish(case: Fixture) -> None:
    tok = tokens(case.format)
    prompt = None if case.prompt is None else tok.encode(case.prompt)
    message = unbraid.parse(tok.bound, tok.encode(case.raw), prompt=prompt, finish_reason=case.finish, **case.options)
    check_message(case, message)


def test_every_format_has_fixtures_and_every_file_a_format() -> None:
    assert FIXTURES.keys() == FORMATS.keys()


@pytest.mark.parametrize("format", FIXTURES)
def test_fixtures_show_what_a_format_must_show(format: str) -> None:
    """A floor, not a goal: names are part of the claim, so they must be there and differ."""
    cases = FIXTURES[format]
    names = [case.name for case in cases]
    assert len(cases) >= 6
    assert len(set(names)) == len(names)
    for part in ("call", "parallel", "cut_inside", "spelled", "system_prompt", "earlier_turn", "continued"):
        assert any(part in name for name in names), f"no fixture of {format} shows {part!r}"
    assert any(case.finish == "length" for case in cases), "an output that is cut off"


@pytest.mark.parametrize("format", [name for name, fmt in FORMATS.items() if fmt.calls])
def test_fixtures_show_calls(format: str) -> None:
    cases = FIXTURES[format]
    assert any(len(call) < 3 for case in cases for call in case.calls), "a call"
    assert any(len(case.calls) > 1 for case in cases), "parallel calls"
    assert any(len(call) > 2 and not call[2] for case in cases for call in case.calls), "a call that is cut off"
    markers = own_texts(FORMATS[format])
    said = [text for case in cases for call in case.calls if len(call) < 3 for text in texts_in(call[1])]
    assert any(marker in text for marker in markers for text in said), "a marker inside an argument"


@pytest.mark.parametrize("format", [name for name, fmt in FORMATS.items() if fmt.calls])
def test_fixtures_show_a_marker_in_an_argument_in_both_forms(format: str) -> None:
    """As ordinary tokens that spell it, and as its id, if the format has special markers besides those of turns: data both times."""
    fmt, tok = FORMATS[format], tokens(format)
    turns = {text for marker in fmt.turns for text in map(spelled, marker.spellings)}
    special = (tok.special.keys() & own_texts(fmt)) - turns
    assert any(
        marker in text and (marker not in tok.special or any(marker in run for run in SPELLED.findall(case.raw)))
        for case in FIXTURES[format]
        for text in arguments_of(case)
        for marker in own_texts(fmt)
    )
    assert not special or any(special & passed_on(case) for case in FIXTURES[format])


def arguments_of(case: Fixture) -> Iterator[str]:
    """Every string in the arguments of the case's whole calls."""
    for call in case.calls:
        if len(call) < 3:
            yield from texts_in(call[1] if isinstance(call[1], dict) else json.loads(call[1]))


def passed_on(case: Fixture) -> set[str]:
    """The special tokens of which arguments are made."""
    tok = tokens(case.format)
    ids = tok.encode(case.raw)
    parser = unbraid.Parser(tok.bound, prompt=tok.encode(case.prompt) if case.prompt else None, **case.options)
    found = set()
    for event in [*parser.feed(ids), *parser.finish(case.finish)]:
        if isinstance(event, CallArguments):
            here = ids[event.token_start : event.token_stop]
            found |= {text for text, id in tok.special.items() if id in here and json_string(text)[1:-1] in event.delta}
    return found


@pytest.mark.parametrize(
    "format", [name for name, fmt in FORMATS.items() if any(state.strand == "reasoning" for state in fmt.states)]
)
def test_fixtures_show_a_thought_that_the_prompt_opened(format: str) -> None:
    assert any(case.reasoning and opened_by_the_prompt(case) for case in FIXTURES[format])


def texts_in(value: Any) -> Iterator[str]:
    """Every string in a call's arguments."""
    if isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, str):
        yield value


def opened_by_the_prompt(case: Fixture) -> bool:
    if case.prompt is None:
        return False
    tok = tokens(case.format)
    return unbraid.Parser(tok.bound, prompt=tok.encode(case.prompt), **case.options).state.strand == "reasoning"
