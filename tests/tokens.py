"""A tokenizer for any format, made up here: most real ones can't be had, and real ones are too well behaved.

The special pieces of a format (and one control token that no format knows) are single ids, as in a real vocabulary.
Other text is cut by a fixed rule into pieces that straddle what a parser would like to see apart: a tag's last quote
may share a token with the value behind it, `>` with the newlines that follow. Pieces are collected from a corpus, so
that the vocabulary is closed and a format is bound once; text outside the corpus falls back to single bytes. A piece
with a character beyond the BMP is cut inside its bytes.

`⟦...⟧` in a text stands for ordinary tokens that spell what would else be a special one: `about ⟦<tool_call>⟧ tags`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest
from fixtures import FIXTURES

import unbraid
from unbraid.table import Format

OPEN, CLOSE = "⟦", "⟧"
RESERVED = "<|reserved|>"
"""A control token of every vocabulary that no format knows."""

UNKNOWN = (-1, -(2**40), 999_999, 2**31, 2**63)
"""Ids that no vocabulary has."""

EMPTY = 256
"""A token without text, as some vocabularies have."""

LACKING = {
    "chatml": ("<tool_call>", "</tool_call>", "<think>", "</think>"),
    "qwen2_5": ("<think>", "</think>"),
    "kimi_k2_instruct": ("<think>", "</think>"),
    "deepseek_v3": ("<think>", "</think>"),
}
"""Special pieces that a format may have but these models' tokenizers lack: they are spelled by ordinary tokens."""

PIECE = re.compile(r' ?[A-Za-z]{1,6}|\d|">\w|[^\w\s]{1,2}\n+|[^\w\s]{1,3}|\n+| +|.', re.DOTALL)
SPELLED = re.compile(f"{OPEN}(.*?){CLOSE}", re.DOTALL)
FIRST_PIECE, FIRST_SPECIAL = 1_000, 500_000


def plain(text: str) -> str:
    """The characters of a text whose spelled markers stand in brackets."""
    return SPELLED.sub(r"\1", text)


def pieces(text: str) -> Iterator[bytes]:
    """Ordinary text cut into the bytes of its tokens."""
    for match in PIECE.finditer(text):
        data = match[0].encode("utf-8", "surrogatepass")
        if any(ord(char) > 0xFFFF for char in match[0]):
            yield data[: len(data) // 2]
            yield data[len(data) // 2 :]
        else:
            yield data


class Tokens:
    """The made-up tokenizer of one format. Ids 0 to 255 are the single bytes, 256 is none."""

    def __init__(self, fmt: Format, corpus: Iterable[str] = (), cut: Callable[[str], Iterator[bytes]] = pieces) -> None:
        """`cut`: ordinary text as the bytes of its tokens."""
        self._cut = cut
        spellings = dict.fromkeys([*fmt.specials, RESERVED])
        for spelling in LACKING.get(fmt.name, ()):
            spellings.pop(spelling, None)
        self.special = {spelling: FIRST_SPECIAL + n for n, spelling in enumerate(spellings)}
        longest_first = sorted(self.special, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        found = dict.fromkeys(data for text in corpus for part in self._parts(text) for data in cut(part))
        self._ids = {data: FIRST_PIECE + n for n, data in enumerate(found)}
        self._ids |= {bytes([byte]): byte for byte in range(256)}
        self.vocabulary = unbraid.Vocabulary.from_tokens(
            {id: data for data, id in self._ids.items()} | {EMPTY: b""}, special=self.special
        )
        self.bound = fmt.bind(self.vocabulary)

    def encode(self, text: str) -> list[int]:
        """The ids of a text: special spellings are their id, except in brackets."""
        ids: list[int] = []
        for position, part in enumerate(SPELLED.split(text)):
            for inner, run in enumerate(self._split.split(part) if position % 2 == 0 else [part]):
                ids += [self.special[run]] if inner % 2 else self.ordinary(run)
        return ids

    def ordinary(self, text: str) -> list[int]:
        """Ordinary tokens only, whatever the text spells."""
        ids: list[int] = []
        for data in self._cut(text):
            ids += [self._ids[data]] if data in self._ids else list(data)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """What the raw output of these ids must read."""
        return self.vocabulary.decode(ids)

    def _parts(self, text: str) -> Iterator[str]:
        for position, part in enumerate(SPELLED.split(text)):
            yield from self._split.split(part)[::2] if position % 2 == 0 else [part]


FEW = 5_000


@pytest.fixture(autouse=True)
def small_memories() -> Iterator[None]:
    """For modules that try every format on whatever there is: what the programs of all formats remember of that would be gigabytes."""
    yield
    bound = (program for tok in MADE for program in tok.bound._programs.values())
    text = (program for tok in MADE for program in tok.bound.format._cache.values())
    for program in (*bound, *text):
        if program.memo.count > FEW:
            program.memo.empty()


MADE: list[Tokens] = []


@functools.cache
def tokens(format: str) -> Tokens:
    """The tokenizer of a registered format, its pieces taken from the format's fixtures."""
    texts = (text for case in FIXTURES.get(format, ()) for text in (case.raw, case.prompt or ""))
    made = Tokens(unbraid.get_format(format), texts)
    MADE.append(made)
    return made
