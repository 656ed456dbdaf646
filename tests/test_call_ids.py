"""Ids for calls to which the model gave none."""

from __future__ import annotations

import string

import pytest

import unbraid
from unbraid.call_ids import NewIds
from unbraid.formats import FORMATS

LETTERS = set(string.ascii_letters + string.digits)
NAMES = ("get_weather", "f", "überall", "\ud800", "a?b", "{index}", "{name}", "")


@pytest.mark.parametrize("pattern", ["?" * 9, "call_" + "?" * 24, "?", "a-????-??-b", "x_" + "?" * 90])
def test_letters_stand_where_the_pattern_wants_them(pattern: str) -> None:
    ids = NewIds(pattern, 3, [1, 2, 3])
    for index in range(200):
        id = ids.of(NAMES[index % len(NAMES)], index)
        assert len(id) == len(pattern)
        assert all(
            char in LETTERS if wanted == "?" else char == wanted for char, wanted in zip(id, pattern, strict=True)
        )


@pytest.mark.parametrize("pattern", ["?" * 9, "?" * 10, "call_" + "?" * 24, "functions.{name}:{index}"])
def test_no_two_calls_of_a_message_have_one_id(pattern: str) -> None:
    ids = NewIds(pattern, 3, "end")
    found = [ids.of(NAMES[index % 3], index) for index in range(1_000)]
    assert len(set(found)) == len(found)


def test_only_names_and_numbers_are_filled_in() -> None:
    ids = NewIds("functions.{name}:{index}", 0, "")
    assert [ids.of(name, 7) for name in NAMES] == [f"functions.{name}:7" for name in NAMES]


def test_what_an_id_depends_on() -> None:
    """The prompt's length and end, the call's name and number: in any order of asking, in every process."""

    def id(length: int, end: list[int] | str, name: str, index: int) -> str:
        return NewIds("?" * 9, length, end).of(name, index)

    usual = id(3, [1, 2, 3], "f", 0)
    assert usual == "LPK8Hhtca"
    others = [id(4, [1, 2, 3], "f", 0), id(3, [1, 2, 4], "f", 0), id(3, [1, 2, 3], "g", 0), id(3, [1, 2, 3], "f", 1)]
    assert len({usual, *others, id(3, "123", "f", 0), id(3, [1, 2, 2**70], "f", 0)}) == 7
    ids = NewIds("?" * 9, 3, [1, 2, 3])
    assert [ids.of("f", 1), ids.of("g", 0), ids.of("f", 0)] == [others[3], others[2], usual]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_numbers_its_calls(name: str) -> None:
    """However long the prompt, and wherever the parser was forked."""
    fmt = unbraid.get_format(name)
    parser = unbraid.Parser(fmt, prompt="Hello. " * 1_000)
    first = parser._new_id("f", 0)
    fork = parser.fork()
    assert fork._new_id("f", 0) == first
    assert fork._new_id("f", 1) == parser._new_id("f", 1) != first
