"""Where reasoning ended, looked at from the token that ended it: by which marker, and what of the text belongs to the answer.

The machine only says that reasoning is over. The gate also has to know which tokens are the answer's.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from typing import NamedTuple

from unbraid.alphabet import token_bytes
from unbraid.machine import Machine
from unbraid.table import ANY, START, Format, Marker, State, thinks


def begins_answer(fmt: Format, marker: Marker, target: State) -> bool:
    """Whether a marker that ends reasoning is itself the answer's beginning: a call's opener, or that of a section of calls.

    A section's opener leads into it from content just as well; a thought's end, which may lead to markup between blocks, doesn't.
    """
    if target.strand == "tool_call":
        return True
    if target.strand != "markup" or target.header or target.routes or target is START or thinks(target):
        return False
    content = [row for state, row in fmt.states.items() if state.strand == "content" and not thinks(state)]
    return any(entry.text == marker.text and led is target for row in content for entry, led in row.items())


class Found(NamedTuple):
    """The marker that ended reasoning."""

    start: int
    """At which character it begins, counted from what was held back."""
    begins_answer: bool
    """See the function of that name."""
    state: State | None
    """Where it leads; `None`: a header that ends here chooses."""
    rest: str
    """What stands behind the marker and its white space."""


class HeldBack:
    """What the machine held back before the token that decides, to find the marker in it. Made before the machine reads that token."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.text, self.bytes, self.starts = machine.waiting
        self.row = machine.row
        self.first = 0
        """The first character that isn't white space, the deciding token's text included."""

    def deciding(self, id: int, waited: bool) -> Found | None:
        """The marker that ended reasoning; `None`: text did."""
        program = self.machine.program
        piece = program.alphabet.piece(id)
        self.starts.append(len(self.text) + bool(self.bytes))
        if isinstance(piece, bytes) or self.bytes:
            data = token_bytes(piece or "")
            if data is None:  # a special token
                piece = self.bytes.decode("utf-8", "replace") + str(piece)
            else:
                piece = codecs.utf_8_decode(self.bytes + data, "replace", False)[0]
        text = self.text + (piece or "")
        self.first = len(text) - len(text.lstrip())
        row, at = self.row, 0
        while match := row.match.search(text, at):
            if waited and text[at : match.start()].strip():
                return None
            marker, target = row.targets[match.lastindex - 1]  # type: ignore[operator]
            if target.routes:
                return Found(match.start(), False, None, "")
            state = self.machine.led_to(target)
            if not thinks(state):
                return Found(
                    match.start(),
                    begins_answer(program.format, marker, state),
                    state,
                    _behind(marker, text[match.end() :]),
                )
            row, at, waited = program.rows[state], match.end(), state.otherwise is not None
        return None

    def token_at(self, column: int) -> int:
        """Which token holds this character, counted from the one behind the deciding token: -1 is the deciding one."""
        return bisect_right(self.starts, column) - 1 - len(self.starts)


def _behind(marker: Marker, rest: str) -> str:
    if marker.after == ANY:
        return rest.lstrip()
    at = 0
    while at < len(marker.after) and rest.startswith(marker.after[at], at):
        at += 1
    return rest[at:]
