"""Chunks as bytes, at the price of encoding one string each.

Of a chunk's 250 bytes only the text changes from one to the next. So a chunk is encoded once with a placeholder, cut
at it, and from then on the encoded text is joined into the pieces: `text.join(pieces)`. The template is made from the
very object that it stands for (`chunk_object`), there is no second spelling of a chunk. Chunks that carry more than
text (log-probabilities, token ids) are encoded whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from json.encoder import encode_basestring
from typing import Any

from unbraid.openai.chat import DEFAULT_OPTIONS, Delta, Options, Usage, chunk_object

DONE = b"data: [DONE]\n\n"

_HOLE = "\x00unbraid\x00"
_HOLE_BYTES = encode_basestring(_HOLE).encode()
_TEMPLATED = frozenset({"reasoning", "content", "arguments"})


def encode_json(value: Any) -> bytes:
    """JSON in UTF-8. A lone surrogate, which UTF-8 can't hold, becomes the escape that JSON has for it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def server_sent(value: Any) -> bytes:
    """A value as one server-sent event."""
    return b"data: " + encode_json(value) + b"\n\n"


def error_object(
    message: str, *, type: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error as OpenAI's clients expect it, as a reply's body or inside a stream."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


class Chunks:
    """Encodes the deltas of one reply, all its choices, as server-sent chunks."""

    def __init__(
        self, id: str, created: int, model: str, options: Options = DEFAULT_OPTIONS, *, include_usage: bool = False
    ) -> None:
        self.head: dict[str, Any] = {"id": id, "created": created, "model": model}
        self.options = options
        self.include_usage = include_usage
        self._templates: dict[tuple[int, str, int], list[bytes]] = {}

    def encode(self, index: int, deltas: Iterable[Delta]) -> bytes:
        """All that one engine step brought to choice `index`, as one write; empty if it brought nothing to show."""
        return b"".join([self._chunk(index, delta) for delta in deltas])

    def usage(self, usage: Usage) -> bytes:
        """The chunk after the last choice has finished, if `stream_options.include_usage` asked for it."""
        head = self.head
        chunk = {
            "id": head["id"],
            "object": "chat.completion.chunk",
            "created": head["created"],
            "model": head["model"],
        }
        return server_sent(chunk | {"choices": [], "usage": usage.object()})

    def _chunk(self, index: int, delta: Delta) -> bytes:
        kind, text, call = delta[0], delta[1], delta[2]
        if kind not in _TEMPLATED or delta.logprobs or delta.token_ids is not None:
            return server_sent(chunk_object(self.head, index, delta, self.options, include_usage=self.include_usage))
        template = self._templates.get((index, kind, call))
        if template is None:
            template = self._templates[index, kind, call] = self._template(index, delta)
        return encode_basestring(text).encode("utf-8", "backslashreplace").join(template)

    def _template(self, index: int, delta: Delta) -> list[bytes]:
        hollow = chunk_object(
            self.head, index, delta._replace(text=_HOLE), self.options, include_usage=self.include_usage
        )
        return server_sent(hollow).split(_HOLE_BYTES)
