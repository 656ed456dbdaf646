"""Server-sent events as bytes, at the price of encoding one string each.

Of an event's 250 bytes only the text changes from one to the next. So an event is encoded once with holes in it, cut at
the holes, and from then on only what fills them is encoded. A template is made from the very object that it stands for,
there is no second spelling of an event. The events of a write are text until all are there: to encode them one by one would
cost more than to write them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring
from typing import Any, Protocol

from unbraid.protocol.choice import Delta, Usage


class Writer(Protocol):
    """Spells the deltas of one reply in one protocol, streamed or in one piece; not both with the same writer."""

    @property
    def continuous_usage(self) -> bool:
        """Whether `encode` is to be told the usage until there."""

    def encode(self, index: int, deltas: Sequence[Delta], usage: Usage | None = None) -> bytes:
        """All that one engine step brought to choice `index`, as one write; empty if it brought nothing to show.

        `usage` is what was spent until here, for protocols that say it along the way.
        """

    def end(self, usage: Usage) -> bytes:
        """What follows when every choice has finished."""

    def error(self, message: str) -> bytes:
        """The end of a stream in which something failed: never to be taken for a normal one."""

    def whole(self, said: Sequence[Iterable[Delta]], usage: Usage) -> dict[str, Any]:
        """The one-shot reply; `said` are the deltas of each choice."""


def encode_json(value: Any) -> bytes:
    """JSON in UTF-8. A lone surrogate, which UTF-8 can't hold, becomes the escape that JSON has for it."""
    return utf8(_json(value))


def utf8(text: str) -> bytes:
    """JSON, or events of JSON, as bytes."""
    return text.encode("utf-8", "backslashreplace")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


quoted = encode_basestring
"""A text as JSON writes it, at a fraction of what `json.dumps` costs."""


def server_sent(value: Any, event: str | None = None) -> str:
    """A value as one server-sent event, under a name if the protocol names its events."""
    name = "" if event is None else f"event: {event}\n"
    return f"{name}data: {_json(value)}\n\n"


class Template:
    """A server-sent event with a `HOLE` or several in it: the pieces between them. What fills a hole is JSON."""

    HOLE = "\x00unbraid\x00"

    __slots__ = ("pieces",)

    def __init__(self, value: Any, event: str | None = None) -> None:
        self.pieces = server_sent(value, event).split(quoted(self.HOLE))
