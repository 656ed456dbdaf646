"""The types that a reply's fields have by the protocol. What has another type is told, and then left out: nobody could read it.

A shape is a type, a mapping of fields, or a list with the shape of its items. `None` is absent and fits everywhere but in a list; fields
that aren't named here may be anything.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

Shape = type | Mapping[str, Any] | list[Any]
"""Nested: a field's shape is a shape again."""


class Misfit(NamedTuple):
    """A value of another type than the protocol says."""

    field: str
    message: str
    got: str


ENTRIES = [{"token": str, "bytes": [int]}]
CALL = {"index": int, "id": str, "function": {"name": str, "arguments": str}}
MESSAGE = {
    "role": str, "content": str, "reasoning": str, "reasoning_content": str, "refusal": str, "tool_calls": [CALL],
}  # fmt: skip
CHOICE = {
    "index": int, "finish_reason": str, "message": MESSAGE, "delta": MESSAGE, "logprobs": {"content": ENTRIES},
    "token_ids": [int], "prompt_token_ids": [int],
}  # fmt: skip
REPLY = {
    "id": str, "object": str, "model": str, "choices": [CHOICE], "prompt_token_ids": [int],
    "usage": {"completion_tokens": int, "reasoning_tokens": int, "completion_tokens_details": {"reasoning_tokens": int}},
}  # fmt: skip
"""One-shot reply or chunk."""

_NAMES: Mapping[type, str] = {str: "a text", int: "a whole number", dict: "an object", list: "a list"}


def fitted(value: Any, shape: Shape, misfits: list[Misfit], where: str = "") -> Any:
    """The value without what doesn't fit, each of which is added to `misfits`."""
    if value is None:
        return None
    if not _fits(value, shape):
        got = json.dumps(value, ensure_ascii=False)[:80]
        misfits.append(Misfit(where or "body", f"expected {_NAMES[_kind(shape)]}", got))
        return value if where.endswith(".arguments") else None  # the object itself instead of its text can be read
    if isinstance(shape, list):
        return list(_items(value, shape[0], misfits, where))
    if isinstance(shape, Mapping):
        inner = f"{where}." if where else ""
        return {
            name: fitted(item, shape[name], misfits, inner + name) if name in shape else item
            for name, item in value.items()
        }
    return value


def _kind(shape: Shape) -> type:
    return shape if isinstance(shape, type) else list if isinstance(shape, list) else dict


def _fits(value: Any, shape: Shape) -> bool:
    return isinstance(value, _kind(shape)) and not isinstance(value, bool)


def _items(value: Any, shape: Shape, misfits: list[Misfit], where: str) -> Iterator[Any]:
    for at, item in enumerate(value):
        if item is None:
            misfits.append(Misfit(f"{where}[{at}]", f"expected {_NAMES[_kind(shape)]}", "null"))
        elif (kept := fitted(item, shape, misfits, f"{where}[{at}]")) is not None:
            yield kept
