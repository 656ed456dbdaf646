"""Anthropic's Messages: content blocks in the order in which the model wrote them, and the events of a stream.

    message_start, (content_block_start, content_block_delta*, content_block_stop)*, message_delta, message_stop

- A stretch of reasoning is a `thinking` block, a stretch of content a `text` block, a call a `tool_use` block:
  interleaved thoughts keep their places.
- A thinking block is signed just before its own stop. The signature is a keyed hash of the thought: the same thought has
  the same signature, on every replica that has the same key. It is never demanded back.
- The `input` of a call that was cut is what can be read of its arguments, as the SDK's own accumulator reads them.
- `stop_reason`: `max_tokens` wins, also over calls; `tool_use` takes a complete call, for then somebody has to answer it;
  `stop_sequence` names the string that matched; else `end_turn`.
- A call that was announced and then withdrawn: the protocol has no word for it. Its `content_block_stop` says
  `"withdrawn": true` (if it is still to come: of a list of calls only the last one's is), the `message_delta` lists the
  indices of all such blocks as `withdrawn`, and their text follows as a text block. The one-shot reply doesn't hold them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any

from unbraid.partial_json import readable_object
from unbraid.protocol.choice import DEFAULT_OPTIONS, Delta, Options, Usage, joined
from unbraid.protocol.wire import Template, quoted, server_sent, utf8

KEY = b"unbraid"
"""With which thoughts are signed if no other is given: a mark of origin, no secret."""

_STOP = {"length": "max_tokens", "tool_calls": "tool_use", "stop": "end_turn"}
_DELTAS = {"reasoning": ("thinking_delta", "thinking"), "content": ("text_delta", "text")}
_DELTAS["arguments"] = ("input_json_delta", "partial_json")


class MessagesWriter:
    """Writes the deltas of one choice as a message. `prompt_tokens` is told at the start of a stream."""

    continuous_usage = False

    def __init__(
        self, id: str, model: str, options: Options = DEFAULT_OPTIONS, *, prompt_tokens: int = 0, key: bytes = KEY
    ) -> None:
        self.options = options
        self._head: dict[str, Any] = {"id": id, "type": "message", "role": "assistant", "model": model}
        self._prompt = prompt_tokens
        self._key = key
        self._hash = hmac.new(key, digestmod=hashlib.sha256)
        """Of the thought that is open."""
        self._thought: list[str] = []
        """What of it isn't in the hash yet."""
        self._index = -1
        self._open: str | None = None
        self._template: Template | None = None
        self._calls: dict[int, int] = {}
        """A call's ordinal -> its block's index."""
        self._withdrawn: list[int] = []
        self._end = Delta("finish", "stop")

    def encode(self, index: int, deltas: Sequence[Delta], usage: Usage | None = None) -> bytes:
        out: list[str] = []
        for delta in deltas:
            if self._template is not None and delta.kind == self._open:
                out.append(self._piece(delta))
            else:
                out.append(self._take(delta))
        self._sign()
        return utf8("".join(out))

    def end(self, usage: Usage) -> bytes:
        delta = _stop(self._end)
        mark = {"withdrawn": self._withdrawn} if self._withdrawn else {}
        return utf8(_event("message_delta", delta=delta, usage=_usage(usage), **mark) + _event("message_stop"))

    def error(self, message: str) -> bytes:
        return utf8(server_sent(error_object(message, type="api_error"), "error"))

    def whole(self, said: Sequence[Iterable[Delta]], usage: Usage) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        calls: dict[int, dict[str, Any]] = {}
        end = Delta("finish", "stop")
        for delta in joined(said[0]):
            match delta.kind:
                case "reasoning":
                    self._thought.append(delta.text)
                    content.append({"type": "thinking", "thinking": delta.text, "signature": self._signature()})
                case "content":
                    content.append({"type": "text", "text": delta.text})
                case "call":
                    calls[delta.call] = _call(delta)
                    content.append(calls[delta.call])
                case "arguments":
                    calls[delta.call]["input"] = readable_object(delta.text)
                case "call_end" if delta.text == "withdrawn":
                    gone = calls.pop(delta.call)
                    content = [block for block in content if block is not gone]
                case "finish":
                    end = delta
        return self._head | {"content": content} | _stop(end) | {"usage": _usage(usage)}

    def _take(self, delta: Delta) -> str:
        match delta.kind:
            case "role":
                usage = _usage(Usage(self._prompt, 0, 0))
                start = self._head | {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
                return _event("message_start", message=start)
            case "reasoning":
                block = {"type": "thinking", "thinking": "", "signature": ""}
                return self._enter("reasoning", block) + self._piece(delta)
            case "content":
                return self._enter("content", {"type": "text", "text": ""}) + self._piece(delta)
            case "call":
                closed = self._close()
                self._calls[delta.call] = self._index + 1
                return closed + self._enter("arguments", _call(delta))
            case "arguments":
                return self._piece(delta)
            case "call_end":
                return self._call_end(delta)
            case "break":
                return self._close()
            case "finish":
                self._end = delta
                return self._close()

    def _enter(self, kind: str, block: dict[str, Any]) -> str:
        """Into the block of this kind: the open one, or a new one."""
        if self._open == kind:
            return ""
        closed = self._close()
        self._index += 1
        self._open = kind
        return closed + _event("content_block_start", index=self._index, content_block=block)

    def _piece(self, delta: Delta) -> str:
        if self._template is None:
            kind, field = _DELTAS[delta.kind]
            hollow = {"type": kind, field: Template.HOLE}
            value = {"type": "content_block_delta", "index": self._index, "delta": hollow}
            self._template = Template(value, "content_block_delta")
        if delta.kind == "reasoning":
            self._thought.append(delta.text)
        return quoted(delta.text).join(self._template.pieces)

    def _call_end(self, delta: Delta) -> str:
        """Of a list of calls only the last one is still open: the others have ended where the next one began."""
        index, withdrawn = self._calls[delta.call], delta.text == "withdrawn"
        if withdrawn:
            self._withdrawn.append(index)
        return self._close(withdrawn=withdrawn) if index == self._index else ""

    def _close(self, *, withdrawn: bool = False) -> str:
        """End the open block, if there is one."""
        kind, self._open, self._template = self._open, None, None
        if kind is None:
            return ""
        signed = ""
        if kind == "reasoning":
            signature = {"type": "signature_delta", "signature": self._signature()}
            signed = _event("content_block_delta", index=self._index, delta=signature)
        mark = {"withdrawn": True} if withdrawn else {}
        return signed + _event("content_block_stop", index=self._index, **mark)

    def _signature(self) -> str:
        """Of the thought that ends here."""
        self._sign()
        done, self._hash = self._hash.digest(), hmac.new(self._key, digestmod=hashlib.sha256)
        return base64.b64encode(done).decode()

    def _sign(self) -> None:
        if self._thought:
            self._hash.update("".join(self._thought).encode("utf-8", "surrogatepass"))
            self._thought = []


def signature(thought: str, key: bytes = KEY) -> str:
    """How a thought is signed: HMAC-SHA256 in base64."""
    data = thought.encode("utf-8", "surrogatepass")
    return base64.b64encode(hmac.digest(key, data, hashlib.sha256)).decode()


def call_id(id: str) -> str:
    """A call's id as this protocol likes it. Ids that the model wrote itself stay as they are: it will read them again."""
    return f"toolu_{id[5:]}" if id.startswith("call_") else id


def _call(delta: Delta) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id(delta.id), "name": delta.name, "input": {}}


def error_object(message: str, *, type: str = "invalid_request_error") -> dict[str, Any]:
    """An error as Anthropic's clients expect it, as a reply's body or inside a stream."""
    return {"type": "error", "error": {"type": type, "message": message}}


def _stop(end: Delta) -> dict[str, Any]:
    if end.stop_reason is not None and end.text == "stop":
        return {"stop_reason": "stop_sequence", "stop_sequence": end.stop_reason}
    return {"stop_reason": _STOP[end.text], "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "output_tokens": usage.completion,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }


def _event(type: str, **fields: Any) -> str:
    return server_sent({"type": type, **fields}, type)
