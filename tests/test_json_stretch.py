"""A stretch of JSON says of a text what the scanner would find out of it character by character, whatever stands in it."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Iterator
from typing import Any

import pytest

import unbraid
from unbraid.codecs.json_scanner import Scanner
from unbraid.codecs.json_stretch import stretch

WORDS = ["", "a", "b<c", 'say "so"', "back\\slash", "two\nlines", "São Paulo", "\u2028", "}", "[,]", "x" * 70]
SCALARS = [0, 7, 10, -1, 12345678901234567890, 1.5, -2e-7, 1e22, True, False, None]
NOISE = [*'{}[]",:\\ \n\t-.+eE0', "01", "\x01", "\\u12", "\\u00e9", "\ud800", "nul", "tru", '""', '",', "{{", '":']


def some_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(6 if depth < 4 else 4)
    if kind < 2:
        return chance.choice(WORDS)
    if kind < 4:
        return chance.choice(SCALARS) if chance.random() < 0.7 else chance.randrange(1000)
    many = range(chance.choice((0, 1, 2, 3, 80 if depth == 1 else 2)))
    if kind == 4:
        return [some_value(chance, depth + 1) for _ in many]
    return {chance.choice(WORDS) + str(n): some_value(chance, depth + 1) for n in many}


def texts(count: int) -> Iterator[tuple[random.Random, str]]:
    """JSON as models write it, mostly sound."""
    for number in range(count):
        chance = random.Random(number)
        value = {"city": "Oslo", "days": 3, "more": some_value(chance), "last": some_value(chance)}
        text = json.dumps(
            value,
            ensure_ascii=chance.random() < 0.3,
            indent=chance.choice((None, None, 1)),
            separators=chance.choice((None, (",", ":"), (" , ", " : "))),
        )
        for _ in range(chance.choice((0, 0, 1, 2))):
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice(NOISE) + text[at + chance.randrange(2) :]
        yield chance, text


def scanned(text: str, at: int = 0, scanner: Scanner | None = None) -> Scanner:
    """A scanner behind the text: a number at its end may go on."""
    scanner = scanner or Scanner()
    while at < len(text) and (stop := scanner.scan(text, at)) > at:
        at = stop
    return scanner


def test_a_stretch_is_what_the_scanner_reads() -> None:
    leads: dict[tuple[Hashable, int | None], Hashable] = {}
    longest = 0
    for chance, text in texts(400):
        for at in sorted(chance.sample(range(1, len(text)), min(40, len(text) - 1))):
            scanner = scanned(text[:at])
            pattern, before = scanner.stretch(), scanner.place()
            if pattern is None or before is None:
                continue
            found = pattern.match(text, at)
            assert found is not None
            piece = text[at : found.end()]
            scanner.fixes.clear()
            scanner = scanned(piece, 0, scanner)
            assert not scanner.error
            assert not scanner.fixes
            assert leads.setdefault((before, found.lastindex), scanner.place()) == scanner.place(), (text, at, piece)
            if found.lastindex is None:
                assert scanner.place() == before
            longest = max(longest, len(piece))
    assert longest > 200
    assert len(leads) > 100


def test_the_beginning_of_an_object() -> None:
    pattern = stretch("", "value")
    for chance, text in texts(200):
        end = chance.randrange(1, len(text) + 1)
        found = pattern.match(text, 0, end)
        if found is None:
            assert not text.startswith("{")
            continue
        scanner = scanned(text[: found.end()])
        assert not scanner.error
        assert scanner.stack == ["{"]


@pytest.mark.parametrize(
    ("text", "passed"),
    [
        ('city": "Lisbon", "days": 12}}\n', 'city": "Lisbon", "days": 12'),
        ('city": "Lisbon", "days": 0}', 'city": "Lisbon", "days": '),
        ('tags": ["a", {"b": 1}], "x": {', 'tags": '),
        ('tags": ["a", 1.5, true], "x": {', 'tags": ["a", 1.5, true], "x": '),
        ('a\\u00e9\\n": tru', 'a\\u00e9\\n": '),
        ('a": "b\\', 'a": "b'),
        ("a\n", "a"),
    ],
)
def test_how_far_it_goes_from_inside_a_key(text: str, passed: str) -> None:
    found = stretch("{", "name").match(text)
    assert found is not None
    assert found[0] == passed


def test_many_values_are_taken_in_several_stretches() -> None:
    """What matches at once costs memory for each of its values."""
    text = ",".join(map(str, range(1000))) + "]"
    scanner, at, stretches = scanned("["), 0, 0
    while (pattern := scanner.stretch()) and (found := pattern.match(text, at)) and found[0]:
        scanned(found[0], 0, scanner)
        at = found.end()
        stretches += 1
    assert text[at:] == "]"
    assert 10 < stretches < 20


LASTS = [
    "{}",
    "{ }",
    '{"a": 12}',
    '{"a":-1.5e3 }',
    '{"a": true\n}',
    '{"a": [] }',
    '{"a": {"b": null}}',
    '{"a": "1" }',
    '{"e5": 0}',
]


def test_an_object_that_is_all_there_says_what_its_characters_do() -> None:
    """Whatever stands before its last brace, and whatever else was read by the same format before."""
    fmt = unbraid.get_format("deepseek_v31")
    broken = 0
    for body in [*LASTS, *(text for _, text in texts(150)), *LASTS]:
        text = (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{body}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        )
        slow, fast = unbraid.Parser(fmt), unbraid.Parser(fmt)
        events = [event for char in text for event in slow.feed_text(char)] + list(slow.finish())
        at_once = [*fast.feed_text(text), *fast.finish()]
        assert fast.message == slow.message == unbraid.parse(fmt, text), body
        assert "".join(e.raw for e in at_once) == "".join(e.raw for e in events) == text
        broken += not slow.message.tool_calls or not slow.message.tool_calls[0].complete
    assert 20 < broken < 120
