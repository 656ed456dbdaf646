"""Numbers between two limits as a regular expression, for GBNF, which has no word for them.

    3 to 120    [3-9]|[1-9][0-9]|1[0-1][0-9]|120

A number has at most `MOST_DIGITS` digits before its point, so that a weak model comes to an end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from unbraid.errors import SchemaError

MOST_DIGITS = 16
_FRACTION = rf"\.[0-9]{{1,{MOST_DIGITS}}}"


def limited(schema: Mapping[str, Any]) -> str:
    """The numbers that a schema of type `integer` or `number` allows. Raises `SchemaError` for limits that can't be said."""
    whole = schema["type"] == "integer"
    if "multipleOf" in schema:
        raise SchemaError("/multipleOf", "'multipleOf' of a number can't be enforced in GBNF: use llguidance")
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        limit = schema.get(keyword, 0)
        if isinstance(limit, bool) or not isinstance(limit, int | float) or not math.isfinite(limit):
            raise SchemaError(f"/{keyword}", f"{limit!r} is no limit of a number")
        if not whole and keyword in schema and (keyword.startswith("exclusive") or limit != int(limit)):
            problem = f"{keyword!r} of a number that isn't an integer can only be enforced in GBNF as a whole, inclusive limit"
            raise SchemaError(f"/{keyword}", f"{problem}: use llguidance")
    low, high = _bounds(schema)
    options = [*_integers(low, high), *(() if whole else _fractions(low, high))]
    if not options:
        raise SchemaError("", "no number lies between the limits")
    return "|".join(options)


def _bounds(schema: Mapping[str, Any]) -> tuple[int, int]:
    most = 10**MOST_DIGITS - 1
    low = max(-most, math.ceil(schema.get("minimum", -most)), math.floor(schema.get("exclusiveMinimum", -most - 1)) + 1)
    high = min(most, math.floor(schema.get("maximum", most)), math.ceil(schema.get("exclusiveMaximum", most + 1)) - 1)
    return low, high


def _integers(low: int, high: int) -> Iterator[str]:
    yield from (f"-{text}" for text in _between(max(1, -high), -low))
    yield from _between(max(0, low), high)


def _fractions(low: int, high: int) -> Iterator[str]:
    """Numbers with a fraction, which leads away from zero."""
    yield from (f"-{text}{_FRACTION}" for text in _between(max(0, -high), -low - 1))
    yield from (f"{text}{_FRACTION}" for text in _between(max(0, low), high - 1))


def _between(low: int, high: int) -> Iterator[str]:
    """Numbers from `low` to `high`, neither of them negative; each option has a fixed number of digits."""
    while low <= high:
        last = min(high, 10 ** len(str(low)) - 1)
        yield from _alike(str(low), str(last))
        low = last + 1


def _alike(low: str, high: str) -> Iterator[str]:
    """The same for two of equal length."""
    rest = len(low) - 1
    if low == "0" * len(low) and high == "9" * len(high):
        yield "[0-9]" + (f"{{{len(low)}}}" if rest else "")
    elif not rest:
        yield low if low == high else f"[{low}-{high}]"
    elif low[0] == high[0]:
        yield from (low[0] + text for text in _alike(low[1:], high[1:]))
    else:
        first, last = int(low[0]), int(high[0])
        if low[1:].strip("0"):
            yield from (low[0] + text for text in _alike(low[1:], "9" * rest))
            first += 1
        if high[1:].strip("9"):
            last -= 1
        if first <= last:
            digit = str(first) if first == last else f"[{first}-{last}]"
            yield digit + "[0-9]" + (f"{{{rest}}}" if rest > 1 else "")
        if last < int(high[0]):
            yield from (high[0] + text for text in _alike("0" * rest, high[1:]))


__all__ = ["MOST_DIGITS", "limited"]
