"""What one choice says, as deltas: the part of a reply that is the same in every protocol.

Chunks and the one-shot reply are made of the same deltas, whatever the protocol, so they can't tell different stories.

What holds, whatever the format and however the engine groups its tokens:

- The first delta is the role, the last one the finish reason; between them one thing at a time, in the order in which
  the model wrote it.
- A call's id and name come once, whole, in its first delta. Its ordinal counts the calls this choice has announced;
  their arguments follow each other, there is no way back to an earlier one. Where a format writes several calls as one
  list, their `call_end`s come together, when the list has ended. A complete call without arguments ends as `{}`, never
  as "". A call that the stream cuts off keeps the arguments as far as they came: `{}` would claim that it was whole.
- `finish`: `length` wins, also over calls. `tool_calls` takes a natural end and at least one *complete* call. A named
  tool_choice keeps `stop`, as OpenAI's API does.
- Reasoning tokens are the tokens of the strand `reasoning`: its delimiters, like all markup, aren't counted there.
- Hidden reasoning leaves a `break` between what stands before it and behind it, nothing else: what is seen is then what
  would be seen with the reasoning filtered out, to the block.
- Log-probabilities line up with the visible content, nothing else: a token's entry goes out with the delta that shows
  the text of its event (a character split over tokens: with the delta that completes it).

A *withdrawn* call was announced and turned out to be none (its body broke its format). A stream can't unsay it, but it
can say so: its `call_end` is "withdrawn", its text follows as content, it never counts for `finish`, and its ordinal
isn't given to another call. A one-shot reply doesn't hold it at all. Whoever can't live with a half call asks for
`Policy(calls="atomic")`, where a call is announced once it is complete.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from unbraid.events import CallArguments, CallEnd, CallOutcome, CallStart, Event, Text
from unbraid.machine import FinishReason
from unbraid.protocol.inline import InlineThought
from unbraid.protocol.reasoning import Shown
from unbraid.protocol.stops import StopStrings

Kind = Literal["role", "reasoning", "content", "call", "arguments", "call_end", "break", "finish"]


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
    stream_reasoning: bool = True
    """False: a thought comes in one piece, once it is over (SGLang's `stream_reasoning`)."""
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    """Chat Completions: the names under which reasoning is sent; readers of either are common (DeepSeek's and vLLM's)."""
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    """Show the stop string that matched (vLLM's `include_stop_str_in_output`, SGLang's `no_stop_trim`)."""
    logprobs: bool = False
    token_ids: bool = False
    """Send the ids of the tokens too (vLLM's `return_token_ids`), and with `logprobs` the log-probability of each. With hidden
    reasoning: those of content and calls only."""
    tokens_as_ids: bool = False
    """In logprobs, spell a token as `token_id:42` (vLLM's `return_tokens_as_token_ids`)."""
    named_tool_choice: bool = False
    one_call: bool = False
    """`parallel_tool_calls: false`: the reply ends with its first complete call, whether or not a grammar sees to it."""
    repeat_call_ids: bool = False
    """Chat Completions: send a call's id and type with every piece of its arguments, for clients that want them."""
    thought_openers: frozenset[str] = frozenset()
    """What opens a thought in the model's format, for reasoning shown inline: what stands before it, behind a call, is the call's."""
    thought_closers: frozenset[str] = frozenset()
    """What closes one: what stands behind it, before a call, is the call's."""


DEFAULT_OPTIONS = Options()


class Delta(NamedTuple):
    """One thing that a choice says. `text` is the piece, the outcome of a `call_end`, or the reason of a `finish`."""

    kind: Kind
    text: str = ""
    call: int = 0
    """Of `call`, `arguments` and `call_end`: which call of this choice."""
    id: str = ""
    """Of `call` and `arguments`."""
    name: str = ""
    logprobs: tuple[TokenLogprob, ...] | None = None
    tokens: tuple[tuple[int, float | None], ...] | None = None
    """All tokens since the delta before, markup included: id, and log-probability if it is known."""
    stop_reason: str | None = None
    """Of `finish`: the stop string that matched."""


_delta = tuple.__new__
"""Of all fields at once, in a third of the time that a call with names takes."""

_SHOWING: dict[str, Kind | None] = {"content": "content", "reasoning": "reasoning"}
"""As what a text of each strand is shown at once; `None`: that takes a closer look."""
_HIDING: dict[str, Kind | None] = {"content": "content", "reasoning": None}


class Usage(NamedTuple):
    """Tokens spent. `completion` includes `reasoning`."""

    prompt: int
    completion: int
    reasoning: int
    counted_by: str | None = None
    """What was counted in place of tokens, if the engine doesn't tell them: `steps`."""

    @property
    def details(self) -> dict[str, Any]:
        """Of the completion, as OpenAI's protocols write it; `counted_by` is ours."""
        said = {"counted_by": self.counted_by} if self.counted_by else {}
        return {"reasoning_tokens": self.reasoning, **said}


class Choice:
    """One choice while it is being written: events in, deltas out. `open`, then `feed`s, then `finish`.

    `prefill` is text that stands in the prompt and that the reader is to see first (the opener of a thought that is
    shown inline, the beginning that the reply continues).
    """

    def __init__(self, index: int = 0, options: Options = DEFAULT_OPTIONS, *, prefill: str = "") -> None:
        self.index = index
        self.options = options
        self.tokens = 0
        self.reasoning_tokens = 0
        self.stopped = False
        """A stop string matched, or the one call is complete: what follows is not wanted, the engine can be told so. Call
        `finish`."""
        self._prefill = prefill
        self._said: Kind | None = None
        self._thought: list[str] = []
        self._inline = (
            InlineThought(options.thought_openers, options.thought_closers) if options.reasoning == "inline" else None
        )
        self._stops = StopStrings(options.stop) if options.stop else None
        self._spans = options.logprobs or options.token_ids
        waits = options.stop or options.one_call or options.reasoning == "inline" or not options.stream_reasoning
        self._plain = not (waits or self._spans)
        """Every text is shown as it comes: nothing waits, nothing goes with it, nothing ends the reply early."""
        self._shown_as = _HIDING if options.reasoning == "hidden" else _SHOWING
        self._tokens: deque[tuple[int | None, TokenLogprob | None]] = deque()
        self._entries: deque[tuple[int, TokenLogprob]] = deque()
        self._call_entries: list[TokenLogprob] = []
        """Of the markup and the calls since the last text: it may turn out to be text."""
        self._withdrawn = False
        self._told: list[tuple[int, float | None]] = []
        """Tokens that go with the next delta."""
        self._seen = self._shown = 0
        self._calls = self._complete = 0
        self._call_id = ""
        self._open: dict[int, int] = {}
        """Calls that haven't ended: the machine's index -> our ordinal. The machine gives a withdrawn call's index again."""
        self._empty = True
        self._out: list[Delta] = []

    def open(self) -> list[Delta]:
        return [Delta("role"), Delta("content", self._prefill)] if self._prefill else [Delta("role")]

    def feed(
        self, events: Sequence[Event], ids: Sequence[int] = (), logprobs: Sequence[TokenLogprob] = ()
    ) -> list[Delta]:
        """What the machine said about one step; `ids` are the step's tokens, `logprobs` theirs. Text mode knows
        neither."""
        self.tokens += len(ids)
        if self._plain and len(events) == 1:  # nearly all steps of nearly all streams
            event = events[0]
            if type(event) is Text:
                if event.text and (kind := self._shown_as[event.strand]):
                    if kind == "reasoning":
                        self.reasoning_tokens += event.token_stop - event.token_start
                    self._said = kind
                    return [_delta(Delta, (kind, event.text, 0, "", "", None, None, None))]
            elif type(event) is CallArguments and event.delta:
                self._empty = False
                self._said = "arguments"
                return [_delta(Delta, ("arguments", event.delta, self._calls - 1, self._call_id, "", None, None, None))]
        if self._spans:
            self._tokens.extend((id, logprobs[at] if at < len(logprobs) else None) for at, id in enumerate(ids))
        for event in self._inline.feed(events) if self._inline else events:
            if not self.stopped:
                self._take(event)
            elif self.options.token_ids:
                self._tokens_of(event)  # of the step that stopped it all ids are told: they were spent
        out, self._out = self._out, []
        return out

    def finish(self, reason: FinishReason) -> list[Delta]:
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

    def _reason(self, reason: FinishReason) -> FinishReason | Literal["tool_calls"]:
        if reason == "length" and not self.stopped:
            return "length"
        return "tool_calls" if self._complete and not self.options.named_tool_choice else "stop"

    def _take(self, event: Event) -> None:
        strand = event.strand
        if strand == "reasoning":
            self.reasoning_tokens += event.token_stop - event.token_start
        entries = self._tokens_of(event) if self._spans else []
        kind = type(event)
        if self.options.logprobs:
            entries = self._with_past(event, entries)
        if kind is Text:
            assert isinstance(event, Text)
            if strand == "content":
                self._content(event.text, entries)
            elif self.options.reasoning == "inline":
                self._literal(event, entries)
            elif event.text:
                self._reasoning(event.text)
        elif kind is CallArguments:
            assert isinstance(event, CallArguments)
            if event.delta:
                self._empty = False
                self._say("arguments", event.delta, call=self._calls - 1, id=self._call_id)
        elif kind is CallStart:
            assert isinstance(event, CallStart)
            self._call_start(event)
        elif kind is CallEnd:
            assert isinstance(event, CallEnd)
            self._call_end(event)

    def _call_start(self, event: CallStart) -> None:
        self._flush()
        if self._open:  # one list holds both: the earlier one's body is over
            self._fill()
            if self.options.one_call:
                self._ended(self._calls - 1, "complete")
                return
        self._open[event.index] = self._calls
        self._calls += 1
        self._empty = True
        self._call_id = event.id
        self._say("call", call=self._calls - 1, id=event.id, name=event.name)

    def _call_end(self, event: CallEnd) -> None:
        call = self._open.pop(event.index)
        if call == self._calls - 1 and event.outcome == "complete":
            self._fill()
        self._withdrawn = event.outcome == "withdrawn"
        self._ended(call, event.outcome)

    def _fill(self) -> None:
        """The last call's body is over. Arguments of which nothing was written are none."""
        if self._empty:
            self._say("arguments", "{}", call=self._calls - 1, id=self._call_id)
            self._empty = False

    def _ended(self, call: int, outcome: CallOutcome) -> None:
        if outcome == "complete":
            self._complete += 1
            self.stopped = self.options.one_call
        self._say("call_end", outcome, call=call)

    def _reasoning(self, text: str) -> None:
        self._flush()
        if self.options.reasoning == "hidden":
            if self._said == "content":
                self._say("break")
        elif self.options.stream_reasoning:
            self._say("reasoning", text)
        else:
            self._thought.append(text)

    def _literal(self, event: Text, entries: Sequence[TokenLogprob]) -> None:
        """Reasoning shown inline: content for the reader, but no place for a stop string."""
        self._flush()
        self._entries.extend((0, entry) for entry in _of_text(event, entries))
        if event.text:
            self._say("content", event.text)

    def _content(self, text: str, entries: Sequence[TokenLogprob]) -> None:
        if self._stops is None:
            self._entries.extend((0, entry) for entry in entries)
            if text:
                self._say("content", text)
            return
        self._place(text, entries)
        shown = self._stops.feed(text)
        if self._stops.match is not None:
            self.stopped = True
            shown += self._stops.match if self.options.include_stop else ""
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
        kind: Kind,
        text: str = "",
        call: int = 0,
        id: str = "",
        name: str = "",
        stop_reason: str | None = None,
    ) -> None:
        if self._thought:
            thought, self._thought = "".join(self._thought), []
            self._say("reasoning", thought)
        logprobs = tokens = None
        if self._spans and kind not in ("call_end", "break"):
            if self.options.logprobs and kind in ("content", "finish"):
                logprobs = self._entries_shown(everything=kind == "finish") or None
            if self.options.token_ids:
                tokens, self._told = tuple(self._told), []
        self._said = kind
        self._out.append(Delta(kind, text, call, id, name, logprobs, tokens, stop_reason))

    def _entries_shown(self, *, everything: bool) -> tuple[TokenLogprob, ...]:
        if self._stops is None or everything:
            shown = tuple(entry for _, entry in self._entries)
            self._entries.clear()
            return shown
        out = []
        while self._entries and self._entries[0][0] < self._shown:
            out.append(self._entries.popleft()[1])
        return tuple(out)

    def _with_past(self, event: Event, entries: list[TokenLogprob]) -> list[TokenLogprob]:
        """The entries of what the event shows: the text of a withdrawn call is also that of tokens which are past."""
        if event.strand in ("markup", "tool_call"):
            self._call_entries += entries
            return entries
        past, self._call_entries = self._call_entries, []
        if type(event) is not Text or not self._withdrawn:
            return entries
        self._withdrawn = False
        missing = len(event.text.encode("utf-8", "replace")) - sum(len(entry.bytes) for entry in entries)
        at = len(past)
        while at and missing > 0:  # before them stands markup that isn't shown
            at -= 1
            missing -= len(past[at].bytes)
        return past[at:] + entries if missing <= 0 else entries

    def _tokens_of(self, event: Event) -> list[TokenLogprob]:
        """Take the event's tokens off the queue; they wait for the next delta."""
        count = min(event.token_stop - event.token_start, len(self._tokens))
        taken = [self._tokens.popleft() for _ in range(count)]
        if self.options.token_ids and (self.options.reasoning != "hidden" or event.strand in ("content", "tool_call")):
            self._told.extend((id, entry.logprob if entry else None) for id, entry in taken if id is not None)
        return [entry for _, entry in taken if entry is not None]


def _of_text(event: Text, entries: Sequence[TokenLogprob]) -> Sequence[TokenLogprob]:
    """The entries of the tokens that spell an event's text, if that is only the beginning or the end of what the tokens spell."""
    text, raw = event.text, event.raw
    if len(text) >= len(raw) or not (raw.startswith(text) or raw.endswith(text)):
        return entries
    size = len(text.encode("utf-8", "replace"))
    start = 0 if raw.startswith(text) else len(raw.encode("utf-8", "replace")) - size
    kept: list[TokenLogprob] = []
    at = 0
    for entry in entries:
        if at < start + size and at + len(entry.bytes) > start:
            kept.append(entry)
        at += len(entry.bytes)
    return kept


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """The same said in one piece each: neighbouring deltas of one kind as one. What a one-shot reply is made of."""
    out: list[Delta] = []
    run: list[Delta] = []
    for delta in deltas:
        if run and not (delta.kind == run[0].kind in _PIECES and delta.call == run[0].call):
            out.append(_one(run))
            run = []
        run.append(delta)
    return [*out, _one(run)] if run else out


_PIECES = frozenset({"reasoning", "content", "arguments"})


def _one(run: list[Delta]) -> Delta:
    if len(run) == 1:
        return run[0]
    logprobs = tuple(entry for delta in run for entry in delta.logprobs or ())
    tokens = tuple(token for delta in run for token in delta.tokens or ())
    told = any(delta.tokens is not None for delta in run)
    text = "".join([delta.text for delta in run])
    return run[0]._replace(text=text, logprobs=logprobs or None, tokens=tokens if told else None)
