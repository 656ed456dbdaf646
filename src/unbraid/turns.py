"""Where the last turn of a prompt begins.

A parser starts where the prompt ends, in the state that its last turn has reached; so does whoever only asks where reasoning stands. What
stands before the last marker that opens a turn never decides: neither an example of the format in the system prompt nor an earlier call.
"""

from __future__ import annotations

from collections.abc import Sequence

from unbraid.alphabet import Alphabet
from unbraid.search import FIRST, LAST
from unbraid.table import ENDED, Marker, State


class Turns:
    """The markers that open and end turns, and where they stand in a prompt of ids or text."""

    def __init__(self, alphabet: Alphabet, entries: Sequence[tuple[str, Marker, State]]) -> None:
        """`entries`: each spelling in the alphabet, its marker, and where that leads."""
        self._alphabet = alphabet
        self.openers = tuple(entry for entry in entries if entry[2] is not ENDED)
        self.longest = max((len(text) for text, _, _ in self.openers), default=0)
        """Characters of the longest opener."""
        self._fences = self._fences_of(entries)
        """Spellings that surely end a turn, in formats whose openers may stand in a call's string, where they're data."""
        self._fence_ids = {alphabet.token_of(text) for text in self._fences if FIRST <= ord(text[0]) <= LAST}
        self._firsts: dict[int, list[tuple[str, State]]] = {}
        """The openers that begin with a special token, by its id."""
        for text, _, target in self.openers:
            if FIRST <= ord(text[0]) <= LAST:
                self._firsts.setdefault(alphabet.token_of(text[0]), []).append((text, target))

    def _fences_of(self, entries: Sequence[tuple[str, Marker, State]]) -> tuple[str, ...]:
        ends = [(marker, text) for text, marker, target in entries if target is ENDED]
        soft = any(marker.inside == "data" for _, marker, _ in self.openers)
        return tuple(text for _, text in ends) if soft and all(marker.inside == "ends" for marker, _ in ends) else ()

    def last_opener(self, text: str) -> tuple[int, State] | None:
        """Where the last turn opener of a text ends, and the state to which it leads.

        Where openers may be data: the first one behind the last end of a turn.
        """
        last = max((text.rfind(spelling) for spelling, _, _ in self.openers), default=-1)
        if last < 0:
            return None
        fence = max((text.rfind(end, 0, last) for end in self._fences), default=last)
        found = [
            (at, at + len(s), target)
            for s, _, target in self.openers
            if (at := text.find(s, max(fence, 0), last + len(s))) >= 0
        ]
        at = min((at for at, _, _ in found), default=last)
        return next((stop, target) for start, stop, target in found if start == at)

    def last_of(self, ids: Sequence[int] | str) -> tuple[int, State | None]:
        """Where the last turn begins in a prompt: the position behind the last marker that opens one, and where it leads.

        Looks from the end and no further than that marker (or than the end of the turn before it, where openers may be data).
        Without any: the beginning, and no state.
        """
        if isinstance(ids, str):
            return self.last_opener(ids) or (0, None)
        firsts, fences = self._firsts, self._fence_ids
        if sum(map(len, firsts.values())) < len(self.openers):
            return self._tail_by_text(ids)
        found: tuple[int, State | None] = (0, None)
        for at in range(len(ids) - 1, -1, -1):
            if ids[at] in firsts:
                for text, target in firsts[ids[at]]:
                    if stop := self._spelled_at(ids, at, text):
                        found = stop, target
                        break
            elif ids[at] not in fences:
                continue
            if found[1] is not None and (not fences or ids[at] in fences):
                break
        return found

    def deciding(self, prompt: Sequence[int] | str, at: int, target: State, most: int) -> Sequence[int] | str | None:
        """The end of a prompt that says alone where it leads, whatever stands before it: no more than `most` ids or characters.

        `at`, `target`: what `last_of` said of the prompt. It begins with the last opener of a turn, or with the end of the turn before
        where openers may be data.
        """
        behind = len(prompt) - at
        for length in range(behind, min(most, len(prompt)) + 1):
            end = prompt[-length:] if length else prompt[:0]
            if self.last_of(end) == (length - behind, target) and (not self._fences or self._begins_with_fence(end)):
                return end
        return None

    def _begins_with_fence(self, prompt: Sequence[int] | str) -> bool:
        text = prompt if isinstance(prompt, str) else self._alphabet.piece(prompt[0])
        return isinstance(text, str) and text.startswith(self._fences)

    def _spelled_at(self, ids: Sequence[int], at: int, text: str) -> int:
        """Behind which token the spelling ends that begins with the token at `at`; 0: it doesn't stand there."""
        found = ""
        for stop in range(at, min(len(ids), at + len(text))):
            piece = self._alphabet.piece(ids[stop])
            found += piece if isinstance(piece, str) else "\ufffd"
            if len(found) >= len(text):
                return stop + 1 if found.startswith(text) else 0
        return 0

    def _tail_by_text(self, ids: Sequence[int]) -> tuple[int, State | None]:
        """The same where an opener is spelled by several tokens."""
        pieces = [self._alphabet.piece(token) for token in ids]
        texts = [p if isinstance(p, str) else (p or b"").decode("utf-8", "replace") for p in pieces]
        found = self.last_opener("".join(texts))
        if not found:
            return 0, None
        length = 0
        for at, text in enumerate(texts):
            length += len(text)
            if length >= found[0]:
                return at + 1, found[1]
        return len(ids), found[1]


__all__ = ["Turns"]
