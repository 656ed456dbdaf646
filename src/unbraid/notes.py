"""Diagnostics of one stream while it runs: the same ones, however the stream is cut.

Text that has no place may come in one piece or in many, and what a diagnostic quotes may come after it. So one goes on with the next
characters where these belong to it, of kinds that are found piece by piece one a call is enough, and of every kind there are only so
many: garbage may be noticed at each of its characters.
"""

from __future__ import annotations

from typing import Final

from unbraid.events import MOST_OF_A_KIND, QUOTED, Diagnostic
from unbraid.native import mypyc_attr

_SHOWN: Final = frozenset(("ambiguous_value", "malformed_call", "no_call", "stray_text", "surplus_text"))
"""Kinds that say what stands at their place."""
_ONCE: Final = frozenset(("ambiguous_value", "repaired_string"))
"""Kinds of which one a call is enough: a value may be full of them, and how often some are found depends on the pieces."""


@mypyc_attr(serializable=True)
class Notes:
    """What has been noted, and what of it goes on with the next characters. Offsets are characters of the output."""

    __slots__ = ("_diagnostics", "_numbers", "_once", "_stretch", "quoting")

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        """`diagnostics`: where they are gathered, in the order in which they are noticed."""
        self._diagnostics = diagnostics
        self.quoting: list[int] = []
        """Numbers of the diagnostics whose `found` goes on with the next characters."""
        self._stretch = "", -1
        """The last kind that goes on, and the character up to which it has."""
        self._numbers: dict[str, list[int]] = {}
        """Of each kind, the numbers of the diagnostics that are listed."""
        self._once: dict[str, int] = {}
        """Of each kind in `_ONCE`, the last call of which it has been noted: how many calls there were then."""

    def add(self, note: Diagnostic) -> bool:
        """List it. False: of its kind `MOST_OF_A_KIND` are listed, and the last of them counts it."""
        numbers = self._numbers.setdefault(note.kind, [])
        if len(numbers) == MOST_OF_A_KIND:
            last = self._diagnostics[numbers[-1]]
            self._diagnostics[numbers[-1]] = last._replace(more=last.more + 1)
            return False
        numbers.append(len(self._diagnostics))
        if note.kind in _SHOWN:
            self.quoting.append(len(self._diagnostics))
        self._diagnostics.append(note)
        return True

    def noted_before(self, kind: str, call: int) -> bool:
        """Whether this was noted of call number `call` before, of a kind of which one is enough. From now on it was."""
        if kind not in _ONCE:
            return False
        noted, self._once[kind] = self._once.get(kind), call
        return noted == call

    def goes_on(self, kind: str, offset: int) -> bool:
        """Whether the last stretch of this kind has come up to here: what comes is of it."""
        return self._stretch == (kind, offset)

    def extend(self, kind: str, stop: int) -> None:
        """A stretch of this kind comes up to here."""
        self._stretch = kind, stop

    def quote(self, start: int, raw: str) -> None:
        """The output goes on with `raw` at character `start`: what diagnostics quote of it is there now."""
        waiting = []
        for number in self.quoting:
            note = self._diagnostics[number]
            found = (note.found + raw[max(note.offset - start, 0) :])[:QUOTED]
            self._diagnostics[number] = note._replace(found=found)
            if len(found) < QUOTED:
                waiting.append(number)
        self.quoting = waiting

    def awaits(self, offset: int) -> bool:
        """Whether what comes at `offset` belongs to a diagnostic that has been begun: it must be seen, whatever it is."""
        return bool(self.quoting) or self._stretch[1] == offset

    def forget(self) -> None:
        """Begin anew."""
        self._diagnostics.clear()
        self.quoting.clear()
        self._stretch = "", -1
        self._numbers.clear()
        self._once.clear()


__all__ = ["Notes"]
