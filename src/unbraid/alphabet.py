"""A tokenizer's tokens as the text that the machine reads.

A special token that counts as a marker is one character of that text, taken from the surrogates: no decoded text can contain one, so a
marker written as its token and the same characters written with ordinary tokens can't be mistaken for each other, and one scanner
serves both. Fed text only, markers are their spelling.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from unbraid.policy import Policy
from unbraid.search import FIRST, GAPS, LAST, SURROGATES
from unbraid.suffix import suffixed
from unbraid.table import Format, Gap, Piece, Special, Spelling, spelled

if TYPE_CHECKING:
    from unbraid.vocabulary import Vocabulary

_ANY_SPECIAL = re.compile(f"[{SURROGATES}]")
_NO_TEXT = "".join(GAPS.values())
_APART = re.compile(f"[{SURROGATES}{_NO_TEXT}]")


class Alphabet:
    """Special tokens as characters, and back."""

    def __init__(self, fmt: Format, vocabulary: Vocabulary | None, policy: Policy) -> None:
        self.vocabulary = vocabulary
        self.accept = policy.spelled_markers == "accept"
        self.spelling: dict[int, str] = {}
        """Code point -> the token's characters; for `str.translate`."""
        self.pieces: dict[int, str] = {}
        """Token id -> its text, for tokens that are whole characters. Filled as tokens are met."""
        self.tokens: set[int] = set()
        """Ids of the special tokens that are characters."""
        self._ids: dict[str, int] = {}
        self._codes = itertools.count(FIRST)
        self._chars: dict[str, str] = {}
        self._owns: re.Pattern[str] | None = None
        self._completing: dict[str, tuple[int, ...]] = {}
        self.suffixes = fmt.suffixes or ("",)
        self.own: frozenset[str] = frozenset()
        """Characters of the tokens that the format knows; others that stand for a token are control tokens."""
        if vocabulary is None:
            return
        declared = set(fmt.specials)
        declared |= {spelled(s) for m in fmt.markers for s in m.spellings if any(isinstance(p, Special) for p in s)}
        for state in fmt.states:
            if state.codec:
                declared |= {spelled(s) for s in state.codec.spellings() if any(isinstance(p, Special) for p in s)}
        for text in sorted(declared):
            if (token := vocabulary.special.get(text)) is not None:
                self._chars[text] = self._add(token, text)
        self.own = frozenset(self._chars.values())
        self._owns = re.compile(f"[{''.join(self._chars.values())}]") if self._chars else None
        self._plain = set(fmt.visible) | (policy.keep_special_tokens - declared)
        self._texts = tuple({p for m in fmt.markers for s in m.spellings for p in s if isinstance(p, str)})

    def _add(self, token: int, text: str) -> str:
        code = next(self._codes)
        if code > LAST:  # more special tokens than there are characters for them: the rest is ordinary text
            self.pieces[token] = text
            return text
        self.spelling[code] = text
        self._ids[chr(code)] = token
        self.tokens.add(token)
        return self.pieces.setdefault(token, chr(code))  # a stream in another thread may have met it at the same time

    def piece(self, token: int) -> str | bytes | None:
        """The token's text, or its bytes if they aren't whole characters, or `None` if the vocabulary doesn't know it."""
        known = self.pieces.get(token)
        if known is not None:
            return known
        assert self.vocabulary is not None
        data = self.vocabulary.bytes_of(token)
        if data is None:
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        if token in self.vocabulary.control and not self._shown(text):
            return self._add(token, text)
        self.pieces[token] = text
        return text

    def _shown(self, text: str) -> bool:
        return text in self._plain or any(text in marker for marker in self._texts)

    def own_in(self, text: str) -> list[int]:
        """Where in the text special tokens stand that the format knows."""
        return [found.start() for found in self._owns.finditer(text)] if self._owns else []

    def spell(self, spellings: Iterable[Spelling], *, only: Literal["", "tokens", "text"] = "") -> list[str]:
        """How the given spellings look in the text that the machine reads, longest first. `only`: with loose pieces as their
        token, or as their characters, if they may be either."""
        found: dict[str, None] = {}
        for spelling in spellings:
            options = [self._options(piece, only) for piece in spelling]
            for choice in itertools.product(*options):
                found["".join(choice)] = None
            if char := self._chars.get(spelled(spelling)):
                found[char] = None
        return sorted(found, key=len, reverse=True)

    def _options(self, piece: Piece, only: str) -> list[str]:
        if isinstance(piece, str):
            return [piece]
        if isinstance(piece, Gap):
            return [GAPS[piece.kind]]
        char = self._chars.get(piece.text)
        if char is None or (piece.loose and only == "text"):
            return [suffixed(piece.text, suffix) for suffix in self.suffixes]
        loose = self.accept or (piece.loose and only == "")
        return [char, piece.text] if loose else [char]

    def token_of(self, char: str) -> int:
        """The id of a special token that is a character here."""
        return self._ids[char]

    def ids_of(self, text: str) -> list[int]:
        """Ids that spell a text of the alphabet: its special tokens as themselves, the rest with ordinary ones."""
        assert self.vocabulary is not None
        ids: list[int] = []
        for run in re.split(f"([{SURROGATES}])", text):
            if len(run) == 1 and FIRST <= ord(run) <= LAST:
                ids.append(self.token_of(run))
            elif run:
                ids += self.vocabulary.encode(run, special=False)
        return ids

    def completing(self, text: str) -> tuple[int, ...]:
        """Ids of tokens that may complete this text of the alphabet: they begin with a last part of it, or hold it whole."""
        assert self.vocabulary is not None
        found = self._completing.get(text)
        if found is None:
            last = _APART.split(text)[-1]
            if not last and FIRST <= ord(text[-1]) <= LAST:
                found = (self.token_of(text[-1]),)
            else:
                data = last.encode()
                ends, whole = tuple(data[at:] for at in range(len(data))), last == text
                found = tuple(
                    id
                    for id, token in self.vocabulary.tokens.items()
                    if token.startswith(ends) or (whole and data in token)
                )
            self._completing[text] = found
        return found

    def expand(self, text: str) -> str:
        """The raw output's characters."""
        if not self.spelling or text.isascii() or not _ANY_SPECIAL.search(text):
            return text
        return _ANY_SPECIAL.sub(self._spelled, text)

    def _spelled(self, match: re.Match[str]) -> str:
        return self.spelling.get(ord(match[0]), match[0])


def token_bytes(piece: str | bytes) -> bytes | None:
    """The bytes of a token, given as `Alphabet.piece`; `None`: it is a special token, whose text isn't made of bytes."""
    if isinstance(piece, bytes):
        return piece
    return None if len(piece) == 1 and FIRST <= ord(piece) <= LAST else piece.encode()


def plain_bytes(text: str) -> bytes | None:
    """A text of the alphabet as bytes, for comparison; `None` if part of it isn't fixed."""
    return None if any(char in _NO_TEXT for char in text) else text.encode("utf-8", "surrogatepass")


__all__ = ["Alphabet", "plain_bytes", "token_bytes"]
