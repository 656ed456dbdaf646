"""Chat Completions from events: what one choice says, as deltas.

Chunks and the one-shot reply are made of the same deltas.

What holds, whatever the format and however the engine groups its tokens:

- The first delta is the role, the last one the finish reason; between them one thing at a time.
- A call's id and name come once, whole, in its first delta. Its index is its ordinal among the calls this choice has
  sent; calls follow each other, there is no way back to an earlier one. A complete call without arguments ends as
  `{}`, never as "". A call that the stream cuts off keeps the arguments as far as they came: `{}` would claim that it
  was whole.
- `finish_reason`: `length` wins, also over calls. `tool_calls` takes a natural end and at least one *complete* call. A
  named tool_choice keeps `stop`, as OpenAI's API does.
- Reasoning tokens are the tokens of the strand `reasoning`: its delimiters, like all markup, aren't counted there.
- `logprobs.content` lines up with the visible content, nothing else: a token's entry goes out with the delta that
  shows the text of its event (a character split over tokens: with the delta that completes it).

A *withdrawn* call (it turned out to be none) can't be recalled from a stream that has already sent its beginning. Since
both replies are the same deltas, it stays in the one-shot reply as well, and its text follows as content. It never
counts for `finish_reason`, and its index isn't given to another call. Whoever can't live with a half call asks for
`Policy(calls="atomic")`, where a call is sent when it is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from unbraid.events import CallArguments, CallEnd, CallStart, Event, Markup, Text
from unbraid.openai.reasoning import Shown
from unbraid.openai.stops import StopStrings

FinishReason = Literal["stop", "length", "tool_calls"]


class TokenLogprob(Protocol):
    """What is read of a token's log-probability; `unbraid.engines.base.TokenLogprob` is one."""

    @property
    def id(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def token(self) -> str: ...
    @property
    def bytes(self) -> bytes: ...
    @property
    def top(self) -> Sequence[TokenLogprob]: ...


@dataclass(frozen=True, slots=True)
class Options:
    """What the client wants to see of a choice."""

    reasoning: Shown = "separate"
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """The names under which reasoning is sent; readers of either are common (protocols: DeepSeek's name and vLLM's)."""
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    token_ids: bool = False
    """Send the ids of the tokens too (vLLM's `return_token_ids`). With hidden reasoning: those of content and calls
    only."""
    tokens_as_ids: bool = False
    """In logprobs, spell a token as `token_id:42` (vLLM's `return_tokens_as_token_ids`)."""
    named_tool_choice: bool = False


DEFAULT_OPTIONS = Options()


class Delta(NamedTuple):
    """One thing that a choice says. `text` is the piece, or the reason of a `finish`."""

    kind: Literal["role", "reasoning", "content", "call", "arguments", "finish"]
    text: str = ""
    call: int = 0
    """Of `call` and `arguments`: which call of this choice."""
    id: str = ""
    name: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None
    token_ids: tuple[int, ...] | None = None
    stop_reason: str | None = None
    """Of `finish`: the stop string that matched."""


class Usage(NamedTuple):
    """Tokens spent. `completion` includes `reasoning`."""

    prompt: int
    completion: int
    reasoning: int

    def object(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        }


class Choice:
    """One choice while it is being written: events in, deltas out. `open`, then `feed`s, then `finish`."""

    def __init__(self, index: int = 0, options: Options = DEFAULT_OPTIONS) -> None:
        self.index = index
        self.options = options
        self.tokens = 0
        self.reasoning_tokens = 0
        self.stopped = False
        """A stop string matched: what follows is not wanted, the engine can be told so. Call `finish`."""
        self._inline = _Inline() if options.reasoning == "inline" else None
        self._stops = StopStrings(options.stop) if options.stop else None
        self._spans = options.logprobs or options.token_ids
        self._tokens: deque[tuple[int | None, TokenLogprob | None]] = deque()
        self._entries: deque[tuple[int, TokenLogprob]] = deque()
        self._ids: list[int] = []
        self._seen = self._shown = 0
        self._calls = self._complete = 0
        self._empty = True
        self._out: list[Delta] = []

    def open(self) -> list[Delta]:
        return [Delta("role")]

    def feed(
        self, events: Iterable[Event], ids: Sequence[int] = (), logprobs: Sequence[TokenLogprob] = ()
    ) -> list[Delta]:
        """What the machine said about one step; `ids` are the step's tokens, `logprobs` theirs. Text mode knows
        neither."""
        self.tokens += len(ids)
        if self._spans:
            self._tokens.extend((id, logprobs[at] if at < len(logprobs) else None) for at, id in enumerate(ids))
        for event in self._inline.feed(events) if self._inline else events:
            if self.stopped:
                break
            self._take(event)
        out, self._out = self._out, []
        return out

    def finish(self, reason: Literal["stop", "length"]) -> list[Delta]:
        """The end, after the events of the machine's own `finish` have been fed."""
        for event in self._inline.finish() if self._inline and not self.stopped else ():
            self._take(event)
        stop_reason = self._stops.match if self._stops else None
        if not self.stopped:
            self._flush()
        else:
            self._entries.clear()
        self._say("finish", self._reason(reason), stop_reason=stop_reason)
        out, self._out = self._out, []
        return out

    def _reason(self, reason: Literal["stop", "length"]) -> FinishReason:
        if reason == "length" and not self.stopped:
            return "length"
        return "tool_calls" if self._complete and not self.options.named_tool_choice else "stop"

    def _take(self, event: Event) -> None:
        strand = event.strand
        if strand == "reasoning":
            self.reasoning_tokens += event.token_stop - event.token_start
        entries = self._tokens_of(event) if self._spans else ()
        kind = type(event)
        if kind is Text:
            assert isinstance(event, Text)
            if strand == "content":
                self._content(event.text, entries)
            elif self.options.reasoning == "separate":
                self._reasoning(event.text)
            elif self.options.reasoning == "inline":
                self._literal(event.text, entries)
        elif kind is CallArguments:
            assert isinstance(event, CallArguments)
            if event.delta:
                self._empty = False
                self._say("arguments", event.delta, call=self._calls - 1)
        elif kind is CallStart:
            assert isinstance(event, CallStart)
            self._flush()
            self._empty = True
            self._calls += 1
            self._say("call", call=self._calls - 1, id=event.id, name=event.name)
        elif kind is CallEnd:
            assert isinstance(event, CallEnd)
            self._call_end(event)

    def _call_end(self, event: CallEnd) -> None:
        if event.outcome == "complete":
            self._complete += 1
            if self._empty:
                self._say("arguments", "{}", call=self._calls - 1)
        self._empty = True

    def _reasoning(self, text: str) -> None:
        if text:
            self._flush()
            self._say("reasoning", text)

    def _literal(self, text: str, entries: Sequence[TokenLogprob]) -> None:
        """Reasoning shown inline: content for the reader, but no place for a stop string."""
        self._flush()
        self._entries.extend((0, entry) for entry in entries)
        if text:
            self._say("content", text)

    def _content(self, text: str, entries: Sequence[TokenLogprob]) -> None:
        if self._stops is None:
            self._entries.extend((0, entry) for entry in entries)
            if text:
                self._say("content", text)
            return
        self._place(text, entries)
        shown = self._stops.feed(text)
        self.stopped = self._stops.match is not None
        self._show(shown)

    def _place(self, text: str, entries: Sequence[TokenLogprob]) -> None:
        """Note at which byte of the content each entry's token begins, so that it goes with the text that shows it."""
        size = len(text.encode("utf-8", "replace")) if entries else len(text)
        at = self._seen
        last = self._seen + max(size - 1, 0)
        for entry in entries:
            self._entries.append((min(at, last), entry))
            at += len(entry.bytes)
        self._seen += size

    def _show(self, text: str) -> None:
        if text:
            self._shown += len(text.encode("utf-8", "replace")) if self.options.logprobs else len(text)
            self._say("content", text)

    def _flush(self) -> None:
        if self._stops is not None:
            self._show(self._stops.flush())

    def _say(
        self,
        kind: Literal["role", "reasoning", "content", "call", "arguments", "finish"],
        text: str = "",
        call: int = 0,
        id: str = "",
        name: str = "",
        stop_reason: str | None = None,
    ) -> None:
        logprobs = token_ids = None
        if self._spans:
            if self.options.logprobs and kind in ("content", "finish"):
                logprobs = self._entries_shown(everything=kind == "finish") or None
            if self.options.token_ids:
                token_ids, self._ids = tuple(self._ids), []
        self._out.append(Delta(kind, text, call, id, name, logprobs, token_ids, stop_reason))

    def _entries_shown(self, *, everything: bool) -> tuple[TokenLogprob, ...]:
        if self._stops is None or everything:
            shown = tuple(entry for _, entry in self._entries)
            self._entries.clear()
            return shown
        out = []
        while self._entries and self._entries[0][0] < self._shown:
            out.append(self._entries.popleft()[1])
        return tuple(out)

    def _tokens_of(self, event: Event) -> list[TokenLogprob]:
        """Take the event's tokens off the queue; their ids wait for the next delta."""
        count = min(event.token_stop - event.token_start, len(self._tokens))
        taken = [self._tokens.popleft() for _ in range(count)]
        if self.options.token_ids and (self.options.reasoning != "hidden" or event.strand in ("content", "tool_call")):
            self._ids.extend(id for id, _ in taken if id is not None)
        return [entry for _, entry in taken if entry is not None]


class _Inline:
    """Turns the delimiters of reasoning into text, for clients that want the thought as the model wrote it.

    The events don't say whose delimiter a markup is, its neighbours do: what stands beside a call is the call's, all
    else is shown. Between a thought and a call the first of several is the thought's own closer. So markup waits for
    the next event that is something else.
    """

    def __init__(self) -> None:
        self._last: str | None = None
        self._waiting: list[Markup] = []

    def feed(self, events: Iterable[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if type(event) is Markup and event.strand == "markup":
                self._waiting.append(event)
                continue
            out += self._decided(event.strand)
            out.append(event)
            if event.strand != "control":
                self._last = event.strand
        return out

    def finish(self) -> list[Event]:
        return self._decided(None)

    def _decided(self, following: str | None) -> list[Event]:
        waiting, self._waiting = self._waiting, []
        shown = range(len(waiting))
        if following == "tool_call":
            shown = range(1 if self._last == "reasoning" and len(waiting) > 1 else 0)
        elif self._last == "tool_call":
            shown = range(1, len(waiting)) if following == "reasoning" else range(0)
        return [Text(*event, text=event.raw) if at in shown else event for at, event in enumerate(waiting)]


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
            return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.text}}]}
        case "finish":
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
    if delta.token_ids is not None:
        choice["token_ids"] = list(delta.token_ids)
    chunk = {"id": head["id"], "object": "chat.completion.chunk", "created": head["created"], "model": head["model"]}
    chunk["choices"] = [choice]
    if include_usage:
        chunk["usage"] = None
    return chunk


def fold(index: int, deltas: Iterable[Delta], options: Options) -> dict[str, Any]:
    """The choice of a one-shot reply: its deltas, joined."""
    pieces: dict[str, list[str]] = {"reasoning": [], "content": []}
    calls: list[dict[str, Any]] = []
    arguments: list[list[str]] = []
    entries: list[TokenLogprob] = []
    ids: list[int] = []
    end = Delta("finish")
    for delta in deltas:
        entries.extend(delta.logprobs or ())
        ids.extend(delta.token_ids or ())
        if delta.kind in pieces:
            pieces[delta.kind].append(delta.text)
        elif delta.kind == "call":
            calls.append({"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": ""}})
            arguments.append([])
        elif delta.kind == "arguments":
            arguments[delta.call].append(delta.text)
        elif delta.kind == "finish":
            end = delta
    for call, parts in zip(calls, arguments, strict=True):
        call["function"]["arguments"] = "".join(parts)
    message: dict[str, Any] = {"role": "assistant", "content": "".join(pieces["content"]) or None, "refusal": None}
    if pieces["reasoning"]:
        message |= dict.fromkeys(options.reasoning_fields, "".join(pieces["reasoning"]))
    if calls:
        message["tool_calls"] = calls
    choice: dict[str, Any] = {
        "index": index,
        "message": message,
        "logprobs": logprobs_object(entries, options) if options.logprobs else None,
        "finish_reason": end.text or None,
    }
    if end.stop_reason is not None:
        choice["stop_reason"] = end.stop_reason
    if options.token_ids:
        choice["token_ids"] = ids
    return choice


def completion_object(head: dict[str, Any], choices: Sequence[dict[str, Any]], usage: Usage) -> dict[str, Any]:
    """The whole one-shot reply."""
    reply = {"id": head["id"], "object": "chat.completion", "created": head["created"], "model": head["model"]}
    return reply | {"choices": list(choices), "usage": usage.object()}


def logprobs_object(entries: Iterable[TokenLogprob], options: Options) -> dict[str, Any]:
    return {"content": [_entry(entry, options, top=True) for entry in entries], "refusal": None}


def _entry(entry: TokenLogprob, options: Options, *, top: bool) -> dict[str, Any]:
    token = f"token_id:{entry.id}" if options.tokens_as_ids else entry.token
    # JSON has no -inf, and -9999 is what clients know from OpenAI and vLLM for "practically never".
    shown = {"token": token, "logprob": max(entry.logprob, -9999.0), "bytes": list(entry.bytes)}
    if top:
        shown["top_logprobs"] = [_entry(other, options, top=False) for other in entry.top]
    return shown
