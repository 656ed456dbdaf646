"""Chat Completions: chunks of a stream, and the one-shot reply.

- A chunk says one thing: a stretch of content, of reasoning, of one call's arguments. `content` never stands beside a
  call. Every choice has a role chunk, first, and a chunk with its finish reason, last.
- Reasoning stands under both common names, `reasoning_content` and `reasoning`. Interleaved thoughts are joined: the
  protocol has one place for them.
- A call that was announced and then withdrawn: its last entry in the stream says `"withdrawn": true`, and its text
  follows as content. The protocol has no word for it; clients ignore fields that they don't know, and the finish reason
  doesn't say `tool_calls` because of it. The one-shot reply doesn't hold it, so its calls are those of the stream but
  the withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unbraid.protocol.choice import DEFAULT_OPTIONS, Delta, Options, TokenLogprob, Usage, joined
from unbraid.protocol.wire import Template, quoted, server_sent, utf8

DONE = "data: [DONE]\n\n"
"""What follows the last chunk."""

NEVER = -9999.0
"""JSON has no -inf; this is what clients know from OpenAI and vLLM for "practically never"."""

_TEMPLATED = frozenset({"reasoning", "content", "arguments"})


class ChatWriter:
    """Writes the deltas of one reply, all its choices, as Chat Completions."""

    def __init__(
        self,
        id: str,
        created: int,
        model: str,
        options: Options = DEFAULT_OPTIONS,
        *,
        include_usage: bool = False,
        continuous_usage: bool = False,
        extra: dict[str, Any] | None = None,
    ) -> None:
        self.head: dict[str, Any] = {"id": id, "created": created, "model": model}
        self.options = options
        self.include_usage = include_usage
        self.continuous_usage = continuous_usage
        """vLLM's and SGLang's `continuous_usage_stats`: every chunk carries what its choice has used so far."""
        self.extra = extra or {}
        """Further fields of the one-shot reply and of the first chunk (vLLM's `prompt_token_ids`)."""
        self._templates: dict[tuple[int, str, int], Template] = {}
        self._opened = False

    def encode(self, index: int, deltas: Sequence[Delta], usage: Usage | None = None) -> bytes:
        out: list[str] = []
        last, of = "", 0
        pieces: list[str] = []
        for delta in deltas:
            kind, text, call, _, _, logprobs, tokens, _ = delta
            if logprobs or tokens is not None or self.continuous_usage or kind not in _TEMPLATED:
                if _has_chunk(delta):
                    out.append(server_sent(self._object(index, delta, usage)))
                continue
            if kind != last or call != of:
                last, of = kind, call
                pieces = self._template(index, delta).pieces
            out.append(quoted(text).join(pieces))
        return utf8("".join(out))

    def end(self, usage: Usage) -> bytes:
        if not self.include_usage:
            return utf8(DONE)
        chunk = _head(self.head, "chat.completion.chunk") | {"choices": [], "usage": usage_object(usage)}
        return utf8(server_sent(chunk) + DONE)

    def error(self, message: str) -> bytes:
        return utf8(server_sent(error_object(message, type="server_error", code="engine_error")))

    def whole(self, said: Sequence[Iterable[Delta]], usage: Usage) -> dict[str, Any]:
        choices = [choice_object(index, deltas, self.options) for index, deltas in enumerate(said)]
        reply = _head(self.head, "chat.completion")
        return reply | {"choices": choices, "usage": usage_object(usage)} | self.extra

    def _template(self, index: int, delta: Delta) -> Template:
        """Of all deltas of this one's kind."""
        key = (index, delta.kind, delta.call)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = Template(self._object(index, delta._replace(text=Template.HOLE), None))
        return template

    def _object(self, index: int, delta: Delta, usage: Usage | None) -> dict[str, Any]:
        chunk = chunk_object(self.head, index, delta, self.options, include_usage=self.include_usage)
        if self.continuous_usage and usage is not None:
            chunk["usage"] = usage_object(usage)
        if not self._opened:
            self._opened = True
            chunk |= self.extra
        return chunk


def _head(head: dict[str, Any], kind: str) -> dict[str, Any]:
    return {"id": head["id"], "object": kind, "created": head["created"], "model": head["model"]}


def _has_chunk(delta: Delta) -> bool:
    return delta.kind not in ("call_end", "break") or delta.text == "withdrawn"


def delta_object(delta: Delta, options: Options) -> dict[str, Any]:
    """The `delta` of a chunk."""
    match delta.kind:
        case "role":
            return {"role": "assistant", "content": ""}
        case "content":
            return {"content": delta.text}
        case "reasoning":
            return dict.fromkeys(options.reasoning_fields, delta.text)
        case "call":
            function = {"name": delta.name, "arguments": ""}
            return {"tool_calls": [{"index": delta.call, "id": delta.id, "type": "function", "function": function}]}
        case "arguments":
            again = {"id": delta.id, "type": "function"} if options.repeat_call_ids else {}
            return {"tool_calls": [{"index": delta.call, **again, "function": {"arguments": delta.text}}]}
        case "call_end" if delta.text == "withdrawn":
            return {"tool_calls": [{"index": delta.call, "function": {"arguments": ""}, "withdrawn": True}]}
        case "call_end" | "break" | "finish":
            return {}


def chunk_object(
    head: dict[str, Any], index: int, delta: Delta, options: Options, *, include_usage: bool = False
) -> dict[str, Any]:
    """A whole chunk; `head` holds id, created and model, the same for all chunks of a reply."""
    choice: dict[str, Any] = {
        "index": index,
        "delta": delta_object(delta, options),
        "logprobs": logprobs_object(delta.logprobs, options) if delta.logprobs else None,
        "finish_reason": delta.text if delta.kind == "finish" else None,
    }
    if delta.stop_reason is not None:
        choice["stop_reason"] = delta.stop_reason
    if delta.tokens is not None:
        choice |= tokens_object(delta.tokens, options)
    chunk = _head(head, "chat.completion.chunk") | {"choices": [choice]}
    if include_usage:
        chunk["usage"] = None
    return chunk


def choice_object(index: int, deltas: Iterable[Delta], options: Options) -> dict[str, Any]:
    """The choice of a one-shot reply: its deltas, joined."""
    said = joined(deltas)
    end = said[-1] if said and said[-1].kind == "finish" else Delta("finish")
    choice: dict[str, Any] = {
        "index": index,
        "message": _message(said, options),
        "logprobs": None,
        "finish_reason": end.text or None,
    }
    if options.logprobs:
        choice["logprobs"] = logprobs_object([entry for delta in said for entry in delta.logprobs or ()], options)
    if end.stop_reason is not None:
        choice["stop_reason"] = end.stop_reason
    if options.token_ids:
        choice |= tokens_object([token for delta in said for token in delta.tokens or ()], options)
    return choice


def _message(said: Sequence[Delta], options: Options) -> dict[str, Any]:
    content = "".join([delta.text for delta in said if delta.kind == "content"])
    thought = "".join([delta.text for delta in said if delta.kind == "reasoning"])
    message: dict[str, Any] = {"role": "assistant", "content": content or None, "refusal": None}
    if thought:
        message |= dict.fromkeys(options.reasoning_fields, thought)
    calls: dict[int, dict[str, Any]] = {}
    for delta in said:
        if delta.kind == "call":
            function = {"name": delta.name, "arguments": ""}
            calls[delta.call] = {"id": delta.id, "type": "function", "function": function}
        elif delta.kind == "arguments":
            calls[delta.call]["function"]["arguments"] += delta.text
        elif delta.kind == "call_end" and delta.text == "withdrawn":
            del calls[delta.call]
    if calls:
        message["tool_calls"] = list(calls.values())
    return message


def usage_object(usage: Usage) -> dict[str, Any]:
    """Usage as Chat Completions and Completions write it."""
    return {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens_details": usage.details,
    }


def tokens_object(tokens: Sequence[tuple[int, float | None]], options: Options) -> dict[str, Any]:
    """The ids that were sampled, and beside them what each was worth: the protocol has a place only for those of the content."""
    told: dict[str, Any] = {"token_ids": [id for id, _ in tokens]}
    if options.logprobs:
        told["token_logprobs"] = [None if logprob is None else max(logprob, NEVER) for _, logprob in tokens]
    return told


def logprobs_object(entries: Iterable[TokenLogprob], options: Options) -> dict[str, Any]:
    return {"content": [logprob_entry(entry, options) for entry in entries], "refusal": None}


def logprob_entry(entry: TokenLogprob, options: Options, *, top: bool = True) -> dict[str, Any]:
    """One token, with its alternatives; Responses writes them alike."""
    token = f"token_id:{entry.id}" if options.tokens_as_ids else entry.token
    shown = {"token": token, "logprob": max(entry.logprob, NEVER), "bytes": list(entry.bytes)}
    if top:
        shown["top_logprobs"] = [logprob_entry(other, options, top=False) for other in entry.top]
    return shown


def error_object(
    message: str, *, type: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    """An error as OpenAI's clients expect it, as a reply's body or inside a stream."""
    return {"error": {"message": message, "type": type, "param": param, "code": code}}
