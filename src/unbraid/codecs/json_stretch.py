"""Stretches of JSON that are passed on in one step: what the scanner would read on from where it stands, as one regular expression.

    city": "Oslo", "days": 3

A stretch goes over keys, strings, numbers and whole small arrays and objects, for as long as the depth stays the same, and ends before
what it isn't sure of. Where the scanner stands behind it is told by the last group that took part: the groups are empty and
mark the spots. No group: it stands where it stood.
"""

from __future__ import annotations

import functools
import re
from typing import Final, Literal

_PLAIN_IN_STRING: Final = r'[^"\\\x00-\x1f\ud800-\udfff]*+'
STRING: Final = rf'{_PLAIN_IN_STRING}(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{{4}}){_PLAIN_IN_STRING})*+'
"""What may stand in a string, whole escapes included."""
_SPACE: Final = r"[ \t\n\r]*+"
_SCALAR: Final = (
    r"(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][-+]?[0-9]++)?|true|false|null)(?=[ \t\n\r,}\]])" + _SPACE
)
_PLAIN: Final = rf'(?:"{STRING}"{_SPACE}|{_SCALAR})'
_NAME: Final = rf'"{STRING}"{_SPACE}:{_SPACE}'
_MANY: Final = 64
"""So many values at once: each costs memory while the pattern matches."""


def _enclosed(item: str) -> str:
    return rf"{_SPACE}(?:(?:{item},{_SPACE}){{0,{_MANY}}}{item})?"


_NESTED: Final = rf"(?:\[{_enclosed(_PLAIN)}\]|\{{{_enclosed(_NAME + _PLAIN)}\}}){_SPACE}"
_INTEGER: Final = "[1-9][0-9]*+"

Spot = Literal["value", "value or end", "key or end", "key", "colon", "comma", "string", "name", "digits"]
"""What comes next. `comma`: or the end; `string`, `name`: the rest of one, a name being a key's; `digits`: the rest of a positive integer."""


def _last(comma: str = "") -> str:
    """A value that may not be over yet; `comma`: what follows if it is."""
    scalar = rf"|{_SCALAR}(?=,){comma}" if comma else ""
    return rf'(?:"{STRING}()(?:"{_SPACE}(){comma})?|{_NESTED}(){comma}{scalar}|{_INTEGER}())'


def _several(item: str, last: str) -> str:
    """Items that are followed by others, and the last one."""
    return rf"(?:(?:{item},{_SPACE}){{1,{_MANY}}}())?(?:{last})?"


def _key(value: str) -> str:
    return rf'"{STRING}()(?:"{_SPACE}()(?::{_SPACE}()(?:{value})?)?)?'


_ITEMS: Final = {
    "{": _several(rf"{_NAME}(?:{_PLAIN}|{_NESTED})", _key(_last())),
    "[": _several(rf"(?:{_PLAIN}|{_NESTED})", _last()),
}
"""What stands in an object, and in an array."""


@functools.cache
def stretch(bracket: Literal["{", "[", ""], spot: Spot) -> re.Pattern[str]:
    """What is passed on at this spot inside an object or array. No bracket: at the beginning of an object that isn't open yet."""
    if not bracket:
        return re.compile(rf"\{{{_SPACE}(){_ITEMS['{']}")
    comma = rf"(?:,{_SPACE}(){_ITEMS[bracket]})?"
    value = _last(comma)
    patterns: dict[Spot, str] = {
        "value": _SPACE + (_ITEMS["["] if bracket == "[" else rf"(?:{value})?"),
        "value or end": _SPACE + _ITEMS["["],
        "key or end": _SPACE + _ITEMS["{"],
        "key": _SPACE + _ITEMS["{"],
        "colon": rf"{_SPACE}(?::{_SPACE}()(?:{value})?)?",
        "comma": _SPACE + comma,
        "string": rf'{STRING}(?:"{_SPACE}(){comma})?',
        "name": rf'{STRING}(?:"{_SPACE}()(?::{_SPACE}()(?:{value})?)?)?',
        "digits": rf"[0-9]*+(?:{_SPACE}(?=,){comma})?",
    }
    return re.compile(patterns[spot])


__all__ = ["STRING", "Spot", "stretch"]
