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


def arguments(value: Any, where: str) -> str:
    """A call's arguments in a history: JSON of an object, or as much of it as was written before the call was cut off. Some
    clients send nothing for a call without arguments."""
    said = text(value, where)
    if said.strip() and not said.lstrip().startswith("{"):
        message = f"{where}: no JSON object, nor the beginning of one; send the arguments as the model wrote them"
        raise RequestError(message, param=where)
    return said


def unreadable(kind: Any, where: str, what: str, readable: str) -> RequestError:
    """For a part of a conversation that no chat template of ours can show: an image, a file, a sound."""
    remedy = f"use {readable}; leave an image, a file or a sound out, or say in text what is in it"
    return RequestError(f"{where}: {what} of type {kind!r} can't be read here; {remedy}", param=where)


def not_run(kind: Any, where: str) -> RequestError:
    """For a tool that isn't a function."""
    if kind == "custom":
        remedy = "offer it as a function with one parameter, a string"
    else:
        remedy = "this server runs no tools itself; offer a function of your own that does it"
    return RequestError(f"{where}.type: {kind!r} is not supported; {remedy}", param=f"{where}.type")


_KINDS = {str: "a text", bool: "a switch", int: "a number", float: "a number", list: "a list", dict: "an object"}


def _wrong(value: Any, where: str, wanted: str) -> RequestError:
    if value is None:
        return RequestError(f"{where}: missing; expected {wanted}", param=where)
    return RequestError(f"{where}: expected {wanted}, got {_KINDS.get(type(value), 'something else')}", param=where)
