"""What can be read of a call's arguments when the stream was cut inside them.

Messages give a call's input as an object, also in a reply that was cut, and chat templates that ask for objects get one when such a
reply comes back as history. It is made of what is whole: a value whose end hasn't come is left out, with its key. A number at the
end of the text counts as whole, as jiter reads it, with which the official SDK reads the same arguments while they stream.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

_TOKEN = re.compile(r'\s*(?:"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+)', re.DOTALL)


def readable_object(text: str) -> dict[str, Any]:
    """The object that a JSON text, or a beginning of one, spells. What is no object at all has no readable part. A number that Python
    can't hold, or not write again as JSON (1e999, an int of thousands of digits), comes as the text that spells it."""
    value = _loaded(text)
    if value is None:
        value = _repaired(text)
    return value if isinstance(value, dict) else {}


def _repaired(text: str) -> Any:
    """The longest readable beginning: up to the last whole value, with what is open there closed."""
    open_brackets: list[str] = []
    sound = depth = 0
    key = False  # whether a text that comes now is a key
    for match in _tokens(text):
        token = match[0].lstrip()
        whole = False
        if token in _CLOSER:
            open_brackets.append(token)
            whole, key = True, token == "{"
        elif token in "}]":
            if not open_brackets:
                break
            open_brackets.pop()
            whole, key = True, False
        elif token in ",:":
            key = token == "," and bool(open_brackets) and open_brackets[-1] == "{"
        else:
            whole = not key and _is_value(token)
        if whole:
            sound, depth = match.end(), len(open_brackets)
    return _loaded(text[:sound] + _closers(text[:sound], depth))


_CLOSER = {"{": "}", "[": "]"}


def _tokens(text: str) -> Iterator[re.Match[str]]:
    """As far as there are whole ones: a string whose end hasn't come is none."""
    at = 0
    while match := _TOKEN.match(text, at):
        yield match
        at = match.end()


def _closers(text: str, depth: int) -> str:
    """What closes the brackets that are open behind `text`; there are `depth` of them."""
    open_brackets: list[str] = []
    for match in _tokens(text) if depth else ():
        token = match[0].lstrip()
        if token in _CLOSER:
            open_brackets.append(_CLOSER[token])
        elif token in "}]":
            open_brackets.pop()
    return "".join(reversed(open_brackets))


def _int(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # more digits than `sys.get_int_max_str_digits`
        return text


def _float(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


_DECODER = json.JSONDecoder(parse_int=_int, parse_float=_float)


def _loaded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def _is_value(token: str) -> bool:
    return token == "null" or _loaded(token) is not None
