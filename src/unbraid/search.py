"""Searching for markers in steps as large as `re` can make them.

What a marker is in the text that the machine reads: characters, special tokens (surrogates), and gaps that stand for a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

FIRST: Final = 0xD800
LAST: Final = 0xDFFF
"""Surrogates: they stand for special tokens."""
SURROGATES: Final = r"\ud800-\udfff"
"""The same in a pattern."""
GAPS: Final = {"word": "\ufdd0"}
_GAP_LIMIT: Final = 256
_GAPS: Final = {"\ufdd0": rf"[^\s<{SURROGATES}]{{1,{_GAP_LIMIT}}}"}
"""A gap in a spelling is a character that is none; how it reads as a pattern."""
FEW: Final = 128
"""In a text of so many characters one search for all is quicker than several, each of which leaps."""
_GAP: Final = re.compile(f"[{''.join(_GAPS)}]")
_WINDOW: Final = 2048
"""So many characters are leapt over first, then twice as many each time: what is searched in vain is no more than what is passed."""
_SAMPLE: Final = 256
_DENSE: Final = 12
"""Where one of so many characters in a sample is the first of a marker, searching for several parts is quicker than trying each."""
_PART: Final = 5
"""The least length of a part: `str.find` leaps about as far as what it searches for is long."""


def pattern(text: str) -> str:
    """The pattern of a spelling."""
    return "".join(_GAPS.get(c) or re.escape(c) for c in text)


def either(options: Iterable[tuple[str, str]]) -> str:
    """The pattern of the first of these spellings, the longest first, each with the pattern of what follows it.

    What several begin with is there once, so that most places where none of them stands are left after a character or two.
    """
    rests: dict[str, list[tuple[str, str]]] = {}
    for text, then in options:
        rests.setdefault(text[:1], []).append((text[1:], then))
    ends = [then for _, then in rests.pop("", [])]
    patterns = [
        pattern(first + rest[0][0]) + rest[0][1] if len(rest) == 1 else f"{pattern(first)}(?:{either(rest)})"
        for first, rest in rests.items()
    ]
    return "|".join([*patterns, *ends]) if patterns or ends else "(?!)"


def _begun(text: str) -> str:
    """The pattern of any beginning of a spelling with a gap, from the gap on, up to the end of the text."""
    at = next(k for k, c in enumerate(text) if c in _GAPS)
    rest = ""
    for char in reversed(text[at + 1 : -1]):
        rest = f"(?:{re.escape(char)}{rest})?"
    return rf"{re.escape(text[:at])}(?:{_GAPS[text[at]]})?{rest}\Z"


def _beginnings(texts: Iterable[str]) -> str:
    """The pattern of any of these texts, of which all that begins one is another."""
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[0], []).append(text[1:])
    return "|".join(
        re.escape(first) + (f"(?:{_beginnings(more)})?" if (more := list(filter(None, tails))) else "")
        for first, tails in rests.items()
    )


def _parts(texts: Sequence[str]) -> list[tuple[str, str]]:
    """A few strings of which each of these texts holds one, each behind a sign in it (a character that few words have), if there is one."""
    parts: list[tuple[str, str]] = []
    firsts, left = {text[0] for text in texts}, list(texts)
    while left:
        pieces = {text[i:j] for text in left for i in range(len(text)) for j in range(i + _PART, len(text) + 1)} or set(
            left
        )
        part = max(
            sorted(pieces), key=lambda each: (sum(each in text for text in left), each[0] not in firsts, len(each))
        )
        sign = next((char for char in part if not char.isalnum() and char not in "</> "), "")
        parts.append((sign, part))
        left = [text for text in left if part not in text]
    return parts


def _any_of(texts: Sequence[str], special: bool) -> re.Pattern[str]:
    """A pattern that finds the first of these texts or, with `special`, any special token.

    It begins with one character or one class of them and has no groups: `re` leaps from one such character to the next, where
    it would else try all options at every character.
    """
    if not special:
        return re.compile(either((text, "") for text in texts))
    rests: dict[str, list[str]] = {}
    for text in texts:
        if not FIRST <= ord(text[0]) <= LAST:
            rests.setdefault(text[0], []).append(pattern(text[1:]))
    options = [f"(?<={re.escape(first)})(?:{'|'.join(tails)})" for first, tails in rests.items()]
    firsts = f"{''.join(map(re.escape, rests))}{SURROGATES}"
    return re.compile(f"[{firsts}](?:{'|'.join([*options, f'(?<=[{SURROGATES}])'])})")


class Search:
    """For the first of some texts in another, or for what may still become one of them at the other's end."""

    __slots__ = (
        "_any",
        "_begun",
        "_half",
        "_leads",
        "_lone",
        "_parts",
        "_span",
        "_stop",
        "halves",
        "longest",
        "nested",
        "only",
        "prefixes",
        "texts",
    )

    def __init__(self, texts: Sequence[str], *, special: bool = False) -> None:
        """`texts`: longest first. `special`: and for any special token."""
        self.texts = texts
        self._any = _any_of(texts, special)
        leads = {text[0] for text in texts}
        self.only = min(leads) if len(leads) == 1 and not leads & _GAPS.keys() else ""
        """The one character with which all begin, if they do: searching for it is quickest."""
        self._lone = bool(self.only) and not any(self.only in text[1:] or _GAP.search(text) for text in texts)
        """It stands nowhere else in them, so only the last one in a text can begin one that is cut off."""
        self._parts: list[tuple[str, str]] = []
        """Found when `leap` needs them."""
        self._leads = re.compile(
            "" if leads & _GAPS.keys() else f"[{''.join(map(re.escape, sorted(leads)))}]" if leads else "(?!)"
        )
        gaps = [text for text in texts if _GAP.search(text)]
        self._begun = re.compile("|".join(map(_begun, gaps))) if gaps else None
        fixed = [_GAP.split(text)[0] for text in texts]
        self.prefixes = frozenset(text[:k] for text in fixed for k in range(1, len(text)))
        """Beginnings of the texts, up to a gap."""
        halves = [rf"(?:{_beginnings(sorted(self.prefixes))})\Z"] if self.prefixes else []
        self.halves = "|".join([*halves, *map(_begun, gaps)]) or "(?!)"
        """The pattern of what is cut off by a text's end."""
        self._half = re.compile(self.halves)
        rests = either((text[1:], "") for text in texts)
        cut = _beginnings(sorted(text[1:] for text in self.prefixes if len(text) > 1))
        whole = self.only and not (special or gaps)
        self._stop = re.compile(rf"{re.escape(self.only)}(?:{rests}|(?:{cut})?\Z)") if whole else None
        """For either, in one go."""
        self.nested = bool(gaps) or any(one in other[1:-1] for one in texts for other in texts)
        """One of them may stand inside another that the text's end cuts off."""
        self.longest = max(map(len, fixed), default=0)
        self._span = max(map(len, texts), default=1) + (_GAP_LIMIT if gaps else 0)
        """So many characters a text may have."""

    def opens(self, text: str, at: int) -> bool:
        """Whether all that is left of the text from `at` on could still become one of the texts."""
        if len(text) - at < self.longest and text[at:] in self.prefixes:
            return True
        return self._begun is not None and self._begun.match(text, at) is not None

    def stands(self, text: str, at: int) -> bool:
        """Whether one of the texts stands at `at`, or begins there at the end."""
        return self._any.match(text, at) is not None or self.opens(text, at)

    def find(self, text: str, at: int, stop: int | None = None) -> int:
        """Where in the text from `at` up to `stop` (its end) the first one stands, or begins at the text's end; nowhere: `stop`."""
        if stop is None:
            if self._stop is not None and len(text) - at < FEW:
                found = self._stop.search(text, at)
                return found.start() if found else len(text)
            found = self._any.search(text, at)
            stop = len(text)
        else:
            found = self._any.search(text, at, stop + self._span)
        if found is not None and found.start() < stop:
            stop = found.start()
        return self.half(text, at, stop)

    def half(self, text: str, at: int, stop: int) -> int:
        """Where in the text from `at` up to `stop` one begins whose rest the text's end cuts off; nowhere: `stop`."""
        start = max(at, len(text) - self._span + 1)
        if self._lone:
            start = text.rfind(self.only, start, stop)
            return start if start >= 0 and text[start:] in self.prefixes else stop
        found = self._half.search(text, start)
        return min(found.start(), stop) if found else stop

    def first(self, text: str, at: int) -> int:
        """Where in the text, from `at` on, a character stands with which one may begin; nowhere: -1."""
        found = self._leads.search(text, at)
        return found.start() if found else -1

    def leap(self, text: str, at: int) -> int:
        """From where on to search in a long text: none of the texts begins between `at` and there.

        `re` tries all of them wherever their first character stands. Where it stands in nearly every word, as in HTML, it is quicker to see
        first whether there is any of a few strings of which each text holds one, and quicker still whether there is the sign in it.
        """
        width = _WINDOW
        while len(text) - at > _SAMPLE and text.count(self.only, at, at + _SAMPLE) * _DENSE > _SAMPLE:
            self._parts = parts = self._parts or _parts(self.texts)
            end = stop = at + width + self.longest
            for sign, part in parts:
                signed = text.find(sign, at, end)
                found = text.find(part, max(at, signed - len(part)), end) if signed >= 0 else -1
                if found >= 0:
                    end = found + len(part)
            if end < stop:
                return max(at, end - self.longest)
            at += width
            width *= 2
        return min(at, len(text))

    def past(self, text: str, at: int) -> int:
        """Where the first one ends that is all there; nowhere: the text's end."""
        found = self._any.search(text, at)
        return found.end() if found else len(text)


__all__ = ["FEW", "FIRST", "GAPS", "LAST", "SURROGATES", "Search", "either", "pattern"]
