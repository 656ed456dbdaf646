"""Searching for several markers at once says what looking for each at every place says."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from unbraid.search import FEW, Search, either

SPELLINGS = st.lists(st.text("<ab", min_size=1, max_size=4), min_size=1, max_size=6, unique=True)


def begins(text: str, at: int, spellings: list[str]) -> bool:
    """Whether one of them stands at `at`, or begins there and is cut off."""
    return any(text.startswith(each, at) or each.startswith(text[at:]) for each in spellings)


@given(SPELLINGS, st.text("<abc", max_size=24), st.sampled_from((0, FEW)))
@example(["<"], "a<b", 0)
@example(["<a", "<"], "<<b", 0)
def test_the_first_place_is_found_where_one_stands_or_begins_at_the_end(
    spellings: list[str], text: str, before: int
) -> None:
    text = "c" * before + text
    search = Search(sorted(spellings, key=len, reverse=True))
    expected = next((at for at in range(len(text)) if begins(text, at, spellings)), len(text))
    assert search.find(text, 0) == expected


@given(SPELLINGS, st.text("<abc", max_size=24))
def test_a_pattern_of_several_matches_what_the_plain_alternation_does(spellings: list[str], text: str) -> None:
    spellings = sorted(spellings, key=len, reverse=True)
    options = [(each, f"c{{0,{number}}}") for number, each in enumerate(spellings)]
    plain = re.compile("|".join(re.escape(each) + then for each, then in options))
    ours = re.compile(either(options))
    for at in range(len(text) + 1):
        found, expected = ours.match(text, at), plain.match(text, at)
        assert (found and found.group()) == (expected and expected.group())


MARKERS = ["<|im_start|>", "<tool_call>", "</tool_call>", "<function=", "</think>", "<think>", "<s>"]
CHUNKS = st.lists(
    st.sampled_from(["<", "<think", "think>", "<|im", "a < b ", "<p>x</p>", "tool_call>", "im_", "="]),
    min_size=1,
    max_size=9,
)


@given(CHUNKS, st.integers(0, 9000), st.sampled_from([*MARKERS, "<s", ""]), st.integers(0, 9000))
@example(["<"], 0, "", 0)
@example(["<"], 2048 - 5, "</think>", 0)
def test_no_marker_is_leapt_over(chunks: list[str], before: int, marker: str, at: int) -> None:
    lead = "<" + "".join(chunks)
    text = (lead * 9000)[:before] + marker + (lead * 9000)[before:9000]
    search = Search(sorted(MARKERS, key=len, reverse=True))
    at = text.find("<", at)
    if at >= 0:
        places = [text.find(each, at) for each in MARKERS]
        first = min((place for place in places if place >= 0), default=len(text))
        assert at <= search.leap(text, at) <= first


def test_a_long_text_full_of_first_characters_is_leapt_over_at_once() -> None:
    search = Search(sorted(MARKERS, key=len, reverse=True))
    text = "<p>a < b</p> <b>" * 2000
    assert search.leap(text, 0) == len(text)
    assert len(text) <= search.leap(text + "</think>", 0) + search.longest
    few = "a word or two < another word and a third one" * 2000
    assert search.leap(few, few.find("<")) == few.find("<"), "where they are few each is tried"


def test_nothing_is_found_of_no_spellings() -> None:
    assert re.compile(either([])).search("<a") is None
    assert Search([]).find("<a", 0) == 2
