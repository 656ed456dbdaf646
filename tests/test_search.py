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


def test_nothing_is_found_of_no_spellings() -> None:
    assert re.compile(either([])).search("<a") is None
    assert Search([]).find("<a", 0) == 2
