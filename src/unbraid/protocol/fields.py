"""Reading a request's fields without a schema library: each function gives the value back, or an error that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unbraid.errors import RequestError


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise _wrong(value, where, "a text")
    return value


def flag(value: Any, where: str) -> bool:
    """Nothing said is false."""
    if value is not None and not isinstance(value, bool):
        raise _wrong(value, where, "true or false")
    return bool(value)


def number(value: Any, where: str, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _wrong(value, where, f"a whole number, {least} or more")
    return value


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(value, where, "an object")
    return value


def listed(value: Any, where: str, item: type, what: str = "a list") -> list[Any]:
    """A list whose items are of one type."""
    if not isinstance(value, list):
        raise _wrong(value, where, what)
    for at, each in enumerate(value):
        if not isinstance(each, item):
            raise _wrong(each, f"{where}[{at}]", "a text" if item is str else "an object")
    return value


_KINDS = {str: "a text", bool: "a switch", int: "a number", float: "a number", list: "a list", dict: "an object"}


def _wrong(value: Any, where: str, wanted: str) -> RequestError:
    if value is None:
        return RequestError(f"{where}: missing; expected {wanted}", param=where)
    return RequestError(f"{where}: expected {wanted}, got {_KINDS.get(type(value), 'something else')}", param=where)
