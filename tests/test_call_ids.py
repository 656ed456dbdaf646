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


def test_choices_and_turns_have_ids_of_their_own() -> None:
    """Two turns may end alike and be of one length, where old messages are dropped; the ids of those that are left tell them apart."""
    others = [NewIds("?" * 9, 3, [1, 2, 3], choice, earlier).of("f", 0) for choice, earlier in [
        (0, ()), (1, ()), (0, ["a"]), (0, ["b"]), (1, ["a"]), (0, ["a", "b"]), (0, ["b", "a"]), (11, ()), (1, ["1"]), (0, ["\ud800"]),
    ]]  # fmt: skip
    assert len(set(others)) == len(others)


SLIDING = "x" * 500 + "<|im_end|>"


@pytest.mark.parametrize("name", FORMATS)
def test_no_call_of_a_conversation_has_the_id_of_another(name: str) -> None:
    """Whatever is asked, a client drops all but the last messages, so each turn looks like the one before."""
    given: list[str] = []
    for _ in range(20):
        parser = unbraid.Parser(unbraid.get_format(name), prompt=SLIDING, earlier_ids=given[-3:])
        given += [parser._new_id("f", 0), parser._new_id("g", 1)]
    assert len(set(given)) == len(given)


KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>{}<|tool_call_argument_begin|>{{}}<|tool_call_end|><|tool_calls_section_end|>"


@pytest.mark.parametrize(
    ("written", "earlier", "given"),
    [
        ("functions.f:0", (), "functions.f:0"),
        ("functions.f:1", ("functions.f:0",), "functions.f:1"),  # as its template counts
        ("functions.f:0", ("functions.f:0",), "functions.f:1"),
        ("functions.f:0", ("functions.f:0", "functions.f:2"), "functions.f:3"),
        ("functions.f:0", ("functions.g:0", "functions.f:0", "functions.f:2"), "functions.f:3"),
        ("f", ("f",), "functions.f:1"),
        ("functions.f:0", ("toolu_1",), "functions.f:0"),
    ],
)
def test_an_id_that_the_model_repeats_is_replaced(written: str, earlier: tuple[str, ...], given: str) -> None:
    parser = unbraid.Parser(unbraid.get_format("kimi_k2_instruct"), earlier_ids=earlier)
    parser.feed_text(KIMI.format(written))
    parser.finish()
    assert [call.id for call in parser.message.tool_calls] == [given]


def test_an_id_that_the_model_writes_after_it_was_given_is_replaced() -> None:
    parser = unbraid.Parser(unbraid.get_format("kimi_k2_instruct"))
    parser.feed_text(KIMI.format("f") * 2 + KIMI.format("functions.f:1"))
    parser.finish()
    assert [call.id for call in parser.message.tool_calls] == ["f", "functions.f:1", "functions.f:2"]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_numbers_its_calls(name: str) -> None:
    """However long the prompt, and wherever the parser was forked."""
    fmt = unbraid.get_format(name)
    parser = unbraid.Parser(fmt, prompt="Hello. " * 1_000)
    fork = parser.fork()
    first = parser._new_id("f", 0)
    assert fork._new_id("f", 0) == first
    assert fork._new_id("f", 1) == parser._new_id("f", 1) != first
