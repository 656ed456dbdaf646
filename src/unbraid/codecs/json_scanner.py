"""Reads one JSON value piece by piece: where it ends, and that it is JSON.

Nothing is built of it: who reads calls passes the text on as it stands, and only has to know how far it goes. A value that is there as a
whole is left to the standard library's decoder, which is quickest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable
from typing import Any

from unbraid.codecs.base import PLAIN_IN_STRING, Sink
from unbraid.codecs.json_stretch import Spot, stretch
from unbraid.native import mypyc_attr
from unbraid.schema import MAX_DEPTH, escape, has_surrogate, no_constant

JSON_SPACE = re.compile(r"[ \t\n\r]*")
"""White space that JSON knows."""
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
"""A string with its quotes, if it is one."""
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_PART = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]+")
_SCALAR_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_LONG, _FEW = 4000, 16
"""Characters of a text that is long, and values of which there are few."""
_DELIMITED = ("{", "[", '"')
_DIGITS = re.compile("[1-9][0-9]*")
"""Any number will do for these: what may follow is the same."""

# What the scanner expects next.
_VALUE, _VALUE_OR_END, _KEY_OR_END, _KEY, _COLON, _AFTER, _IN_STRING, _IN_KEY, _IN_SCALAR = range(9)
_EXPECTED = {
    _VALUE: "a value", _VALUE_OR_END: 'a value or "]"', _KEY_OR_END: 'a key or "}"', _KEY: "a key", _COLON: '":"',
    _AFTER: '"," or a closing bracket', _IN_STRING: "a string's end", _IN_KEY: "a key's end", _IN_SCALAR: "a number or literal",
}  # fmt: skip
_SPOTS: dict[int, Spot] = {
    _VALUE: "value", _VALUE_OR_END: "value or end", _KEY_OR_END: "key or end", _KEY: "key", _COLON: "colon", _AFTER: "comma",
    _IN_STRING: "string", _IN_KEY: "name", _IN_SCALAR: "digits",
}  # fmt: skip


_JSON: Any = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=no_constant, object_pairs_hook=list)
_read_value: Callable[[str, int], tuple[Any, int]] = _JSON.scan_once


def end_of_whole(text: str, at: int) -> int:
    """Where the object, array or string ends that begins at `at`, if all of it is there and is strict JSON of no unusual depth; else -1.

    That is what the standard library's decoder is quickest to tell; who has to know more must look at it piece by piece.
    """
    try:
        value, stop = _read_value(text, at)
    except (ValueError, StopIteration, RecursionError):
        return -1
    return -1 if _too_deep(value, text, at, stop) or has_surrogate(text[at:stop]) else stop


def _too_deep(value: Any, text: str, at: int, stop: int) -> bool:
    """Whether more than `MAX_DEPTH` brackets are open anywhere in this value of `text[at:stop]`; an object is given as the list of its
    pairs. To count brackets is quick, those in strings too, but a look at the few values of a long text is quicker."""
    length = stop - at
    if length < 2 * MAX_DEPTH or (length > _LONG and _is_shallow(value)):
        return False
    if text.count("{", at, stop) + text.count("[", at, stop) <= MAX_DEPTH:
        return False
    level, depth = _containers([value]), 0
    while level and depth <= MAX_DEPTH:
        level, depth = _inside(level), depth + 1
    return depth > MAX_DEPTH


def _is_shallow(value: Any) -> bool:
    """Whether there are but a few values, one in another."""
    level = _containers([value])
    for _ in range(_FEW):
        if sum(map(len, level)) > _FEW:
            return False
        level = _inside(level)
        if not level:
            return True
    return False


def _inside(level: list[Any]) -> list[Any]:
    """The objects and arrays that stand in these."""
    return _containers([each[1] if isinstance(each, tuple) else each for container in level for each in container])


def _containers(values: list[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, list)]


@mypyc_attr(serializable=True)
class Scanner:
    """Finds the end of one JSON value, piece by piece, and refuses what isn't JSON."""

    __slots__ = ("done", "error", "fixes", "phase", "scalar", "stack")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.phase = _VALUE
        self.stack: list[str] = []
        self.scalar: list[str] = []
        self.done = False
        self.error = ""
        self.fixes: list[int] = []
        """Positions in the text just scanned whose character can't stand in a JSON string as it is."""

    def scan(self, text: str, at: int) -> int:
        """Read on from `at` to the end of the value or of the text; returns the position reached."""
        self.fixes.clear()
        stop = len(text)
        if (
            self.phase == _VALUE
            and not self.stack
            and text.startswith(_DELIMITED, at)
            and (end := end_of_whole(text, at)) > 0
        ):
            self._value_ends()
            return end
        while at < stop and not (self.done or self.error):
            phase = self.phase
            if phase in (_IN_STRING, _IN_KEY):
                if match := PLAIN_IN_STRING.match(text, at):
                    at = match.end()
                    if at == stop:
                        break
                here = self._in_string(text, at)
                if here == at:
                    break
                at = here
            elif phase == _IN_SCALAR:
                at = self._in_scalar(text, at)
            else:
                match = JSON_SPACE.match(text, at)
                at = match.end() if match else at
                if at < stop:
                    at = self._structure(text, at)
        return at

    def _in_string(self, text: str, at: int) -> int:
        """At a character of a string that isn't plain. Returns the same position if more text must come first."""
        char = text[at]
        if char == '"':
            if self.phase == _IN_KEY:
                self.phase = _COLON
            else:
                self._value_ends()
            return at + 1
        if char == "\\":
            if match := _ESCAPE.match(text, at):
                return match.end()
            if not _ESCAPE_PART.match(text, at):
                self.error = f"{text[at : at + 2]!r} is no escape of JSON"
            return at
        self.fixes.append(at)
        return at + 1

    def _in_scalar(self, text: str, at: int) -> int:
        match = _SCALAR.match(text, at)
        if match:
            self.scalar.append(match.group())
            at = match.end()
            if at == len(text):
                return at
        self.end_scalar()
        return at

    def end_scalar(self) -> None:
        """Nothing more of a number or literal comes."""
        whole = "".join(self.scalar)
        self.scalar.clear()
        if _SCALAR_WHOLE.fullmatch(whole):
            self._value_ends()
        else:
            self.error = "expected a value, found what is neither a number nor true, false or null"

    def _value_ends(self) -> None:
        self.phase = _AFTER
        if not self.stack:
            self.done = True

    def _structure(self, text: str, at: int) -> int:
        phase, char = self.phase, text[at]
        if char == '"' and phase in (_KEY_OR_END, _KEY):
            self.phase = _IN_KEY
        elif char == ":" and phase == _COLON:
            self.phase = _VALUE
        elif char == "," and phase == _AFTER:
            self.phase = _KEY if self.stack[-1] == "{" else _VALUE
        elif (char == "}" and (phase == _KEY_OR_END or (phase == _AFTER and self.stack[-1] == "{"))) or (
            char == "]" and (phase == _VALUE_OR_END or (phase == _AFTER and self.stack[-1] == "["))
        ):
            self.stack.pop()
            self._value_ends()
        elif phase not in (_VALUE, _VALUE_OR_END):
            return self._unexpected(at)
        elif char == '"':
            self.phase = _IN_STRING
        elif char in "{[":
            if len(self.stack) >= MAX_DEPTH:
                self.error = f"nested deeper than {MAX_DEPTH}"
                return at
            self.stack.append(char)
            self.phase = _KEY_OR_END if char == "{" else _VALUE_OR_END
        elif _SCALAR.match(char):
            self.phase = _IN_SCALAR
            return at
        else:
            return self._unexpected(at)
        return at + 1

    def _unexpected(self, at: int) -> int:
        self.error = f"expected {_EXPECTED[self.phase]}"
        return at

    def place(self) -> Hashable | None:
        """Where it stands, for `Reader.place`. `None` where that would be said in too many ways."""
        if not (self.stack or self.scalar or self.error):
            return self.phase, self.done, "", ""
        scalar = _DIGITS.sub("1", "".join(self.scalar)) if self.scalar else ""
        if self.error or len(self.stack) > 12 or len(scalar) > 8:
            return None
        return self.phase, self.done, "".join(self.stack), scalar

    def resume(self, place: Any) -> None:
        self.phase, self.done, stack, scalar = place
        self.stack[:] = stack
        self.scalar[:] = [scalar] if scalar else []

    @property
    def in_string(self) -> bool:
        return self.phase == _IN_STRING and not (self.done or self.error)

    @property
    def in_quotes(self) -> bool:
        """Inside a string or a key."""
        return self.phase in (_IN_STRING, _IN_KEY)

    def stretch(self) -> re.Pattern[str] | None:
        """What it would read on inside the object or array in which it stands."""
        if self.done or self.error or not self.stack:
            return None
        if self.phase == _IN_SCALAR and not _DIGITS.fullmatch("".join(self.scalar)):
            return None
        return stretch(self.stack[-1], _SPOTS[self.phase])

    def repaired(self, text: str, start: int, stop: int, sink: Sink) -> str:
        """The text just scanned, as JSON: special tokens spelled out, raw control characters escaped."""
        if not self.fixes:
            return text[start:stop]
        pieces: list[str] = []
        for at in self.fixes:
            pieces += text[start:at], escape(sink.expand(text[at]))
            start = at + 1
        pieces.append(text[start:stop])
        return "".join(pieces)


def string_value(quoted: str) -> str | None:
    """The text of a JSON string in quotes; `None`: it is none."""
    try:
        value = json.loads(quoted)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
