"""The Responses API: output items in the order in which the model wrote them, and the events that announce them.

    created, in_progress, (item added, ... , item done)*, completed | incomplete | failed

- A stretch of reasoning, a stretch of content, a call: each is an item. Interleaved thoughts keep their places. An item
  of text has one part, so `content_index` is always 0.
- Reasoning is raw text (`reasoning_text` parts, `response.reasoning_text.*` events), as open-weight servers write it;
  there are no summaries and nothing is encrypted.
- Every `added` has its `done`, deltas add up to the value in `done`, events are numbered without gaps.
- A reply cut by the token limit is `incomplete`, and so is the item in which it was cut.
- A call that was announced and then withdrawn ends as an item with the status `incomplete`, its text follows as a
  message. The final response doesn't list it: it is what the one-shot reply is.
- The gateway keeps nothing, so `store` is always false.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from unbraid.openai.chat import logprob_entry
from unbraid.protocol.choice import DEFAULT_OPTIONS, Delta, Options, Usage, joined
from unbraid.protocol.wire import Template, quoted, server_sent, utf8

ECHOED: dict[str, Any] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "reasoning": {"effort": None, "summary": None},
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}
"""Fields of the request that the response repeats, and what is said where the request says nothing."""


class ResponsesWriter:
    """Writes the deltas of one choice as a response; `request` is the request whose fields are repeated."""

    continuous_usage = False

    def __init__(
        self,
        id: str,
        created: int,
        model: str,
        options: Options = DEFAULT_OPTIONS,
        *,
        request: Mapping[str, Any] | None = None,
    ) -> None:
        said = {name: value for name, value in (request or {}).items() if name in ECHOED and value is not None}
        self.options = options
        self._response: dict[str, Any] = {
            "id": id,
            "object": "response",
            "created_at": created,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": [],
            "previous_response_id": None,
            "service_tier": "default",
            "store": False,
            "usage": None,
            **ECHOED,
            **said,
        }
        self._stem = id.removeprefix("resp_")
        self._number = 0
        self._items = 0
        self._done: list[dict[str, Any]] = []
        self._item: dict[str, Any] | None = None
        self._pieces: list[str] = []
        self._entries: list[dict[str, Any]] = []
        self._template: Template | None = None
        """Of the pieces of the open item."""
        self._templated = ""
        """The kind of delta that it is for."""
        self._calls: dict[int, int] = {}
        """A call's ordinal -> its item's index."""
        self._withdrawn: set[int] = set()
        self._cut = False

    def encode(self, index: int, deltas: Sequence[Delta], usage: Usage | None = None) -> bytes:
        out: list[str] = []
        for delta in deltas:
            if self._template is not None and delta.kind == self._templated and not delta.logprobs:
                out.append(self._filled(self._template, delta.text))
            else:
                out.append(self._take(delta))
        return utf8("".join(out))

    def end(self, usage: Usage) -> bytes:
        self._finish(usage)
        return utf8(self._lifecycle(self._response["status"]))

    def error(self, message: str) -> bytes:
        self._response |= {
            "status": "failed",
            "output": self._done,
            "error": {"code": "server_error", "message": message},
        }
        return utf8(self._lifecycle("failed"))

    def whole(self, said: Sequence[Iterable[Delta]], usage: Usage) -> dict[str, Any]:
        for delta in joined(said[0]):
            self._take(delta)
        self._finish(usage)
        return self._response

    def _finish(self, usage: Usage) -> None:
        output = [item for index, item in enumerate(self._done) if index not in self._withdrawn]
        self._response |= {"status": "completed", "usage": _usage(usage), "output": output}
        if self._cut:
            self._response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}

    def _take(self, delta: Delta) -> str:
        match delta.kind:
            case "role":
                return self._lifecycle("created") + self._lifecycle("in_progress")
            case "reasoning":
                return self._enter("reasoning") + self._piece("response.reasoning_text", delta)
            case "content":
                return self._enter("message") + self._piece("response.output_text", delta)
            case "call":
                closed = self._close("completed")
                self._calls[delta.call] = self._items
                return closed + self._open_call(delta)
            case "arguments":
                return self._piece("response.function_call_arguments", delta)
            case "call_end":
                return self._call_end(delta)
            case "break":
                return self._close("completed")
            case "finish":
                self._cut = delta.text == "length"
                return self._close("incomplete" if self._cut else "completed")

    # -- items ---------------------------------------------------------------------------------------------------------

    def _enter(self, kind: str) -> str:
        """Into an item of text: the open one, or a new one."""
        if self._item is not None and self._item["type"] == kind:
            return ""
        closed = self._close("completed")
        if kind == "reasoning":
            item: dict[str, Any] = {
                "id": self._id("rs"),
                "type": kind,
                "summary": [],
                "content": [],
                "encrypted_content": None,
            }
        else:
            item = {"id": self._id("msg"), "type": kind, "role": "assistant", "content": []}
        added = self._added(item)
        part = _part(kind, "", [])
        return closed + added + self._event("response.content_part.added", **self._place(), content_index=0, part=part)

    def _open_call(self, delta: Delta) -> str:
        item = {"id": self._id("fc"), "type": "function_call", "call_id": delta.id, "name": delta.name, "arguments": ""}
        return self._added(item)

    def _added(self, item: dict[str, Any]) -> str:
        self._item = item | {"status": "in_progress"}
        return self._event("response.output_item.added", output_index=self._items, item=self._item)

    def _piece(self, event: str, delta: Delta) -> str:
        """A piece of the open item's text, or of its arguments."""
        place = self._place()
        if event != "response.function_call_arguments":
            place["content_index"] = 0
        if event == "response.output_text":
            entries = [logprob_entry(entry, self.options) for entry in delta.logprobs or ()]
            self._entries += entries
            place["logprobs"] = entries
            if entries:
                self._pieces.append(delta.text)
                return self._event(f"{event}.delta", **place, delta=delta.text)
        if self._template is None:
            hollow = {"type": f"{event}.delta", "sequence_number": Template.HOLE, **place, "delta": Template.HOLE}
            self._template, self._templated = Template(hollow, f"{event}.delta"), delta.kind
        return self._filled(self._template, delta.text)

    def _filled(self, template: Template, text: str) -> str:
        self._pieces.append(text)
        head, middle, tail = template.pieces
        return f"{head}{self._next()}{middle}{quoted(text)}{tail}"

    def _call_end(self, delta: Delta) -> str:
        """Of a list of calls only the last one is still open: the others have ended where the next one began."""
        index = self._calls[delta.call]
        if delta.text == "withdrawn":
            self._withdrawn.add(index)
        if index != self._items:
            return ""
        return self._close("completed" if delta.text == "complete" else "incomplete")

    def _close(self, status: str) -> str:
        """End the open item, if there is one."""
        item = self._item
        if item is None:
            return ""
        text = "".join(self._pieces)
        if item["type"] == "function_call":
            value: dict[str, Any] = {"arguments": text}
            done = self._event("response.function_call_arguments.done", **self._place(), name=item["name"], **value)
        else:
            part = _part(item["type"], text, self._entries)
            value = {"content": [part]}
            done = self._text_done(part)
        item |= value | {"status": status}
        done += self._event("response.output_item.done", output_index=self._items, item=item)
        self._done.append(item)
        self._items += 1
        self._item = self._template = None
        self._pieces, self._entries = [], []
        return done

    def _text_done(self, part: dict[str, Any]) -> str:
        place: dict[str, Any] = {**self._place(), "content_index": 0}
        said = {name: value for name, value in part.items() if name in ("text", "logprobs")}
        return self._event(f"response.{part['type']}.done", **place, **said) + self._event(
            "response.content_part.done", **place, part=part
        )

    def _place(self) -> dict[str, Any]:
        assert self._item is not None
        return {"item_id": self._item["id"], "output_index": self._items}

    def _id(self, prefix: str) -> str:
        return f"{prefix}_{self._stem}{self._items}"

    # -- events --------------------------------------------------------------------------------------------------------

    def _lifecycle(self, name: str) -> str:
        return self._event(f"response.{name}", response=self._response)

    def _event(self, type: str, **fields: Any) -> str:
        return server_sent({"type": type, "sequence_number": self._next(), **fields}, type)

    def _next(self) -> int:
        number, self._number = self._number, self._number + 1
        return number


def _part(kind: str, text: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """The one part of an item of text."""
    if kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": entries}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.completion,
        "output_tokens_details": usage.details,
        "total_tokens": usage.prompt + usage.completion,
    }
