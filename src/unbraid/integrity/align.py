"""What the raw layer says a client should see, and where in it a character of a field comes from.

The raw layer is read by the machine, and what it says goes through the protocol layer of this package: the same code that serves
replies says what is right. While it is read, each event leaves a trace: this stretch of that field came from there.
"""

from __future__ import annotations

import codecs
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from unbraid.boundary import BoundFormat
from unbraid.events import CallArguments, CallEnd, CallStart, Control, Diagnostic, Event, Markup, Strand, Text
from unbraid.integrity.findings import Token
from unbraid.integrity.layers import Said, from_choice
from unbraid.openai import choice_object
from unbraid.parser import Parser
from unbraid.policy import DEFAULT_POLICY, Policy
from unbraid.protocol import Choice, Delta, Options, reasoning_wishes
from unbraid.table import Format

ARGUMENTS = "tool_calls[{}].function.arguments"


@dataclass(frozen=True, slots=True)
class Raw:
    """What the engine wrote: ids with what their tokens are, or text alone."""

    ids: Sequence[int] = ()
    bound: BoundFormat | None = None
    shown: Sequence[int | None] = ()
    """The endpoint's ids, where `ids` are others (tokens known by their text only)."""
    text: str = ""
    """In text mode."""
    prompt: Sequence[int] | str | None = None


class Trace(NamedTuple):
    """Characters of a field that came from one event."""

    at: int
    size: int
    start: int
    stop: int
    strand: Strand


@dataclass(slots=True)
class Story:
    """What the raw layer tells."""

    said: Said
    raw: str
    tokens: list[Token]
    starts: list[int]
    """Of each token, its first character in `raw`."""
    events: list[Event]
    diagnostics: list[Diagnostic]
    ended: bool
    """The raw layer ends with the format's own end of the turn."""
    cut: bool
    """It was cut off by the token limit."""
    reasoning: str = ""
    """The thought, hidden or not."""
    reasoning_tokens: int = 0
    traces: dict[str, list[Trace]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The raw text without the tokens that end it: engines show them, or don't, as they like."""
        end = len(self.events)
        while end and (isinstance(self.events[end - 1], Control) or not self.events[end - 1].raw):
            end -= 1
        return "".join(event.raw for event in self.events[:end])

    def locate(self, name: str, offset: int) -> tuple[int, Token | None, Strand] | None:
        """Where in the raw text a character of a field stands, in which token, and what strand that is."""
        traces = self.traces.get(name)
        if not traces:
            return None
        trace = traces[max(bisect_right(traces, offset, key=lambda trace: trace.at) - 1, 0)]
        at = min(trace.start + offset - trace.at, max(trace.stop - 1, trace.start))
        if offset >= trace.at + trace.size:  # behind the last character: what follows in the raw text
            at = trace.stop
        return at, self.token_at(at), self.strand_at(at) or trace.strand

    def token_at(self, at: int) -> Token | None:
        index = bisect_right(self.starts, at) - 1
        return self.tokens[index] if 0 <= index < len(self.tokens) else None

    def strand_at(self, at: int) -> Strand | None:
        return next((event.strand for event in self.events if event.start <= at < event.stop), None)

    def markup_before(self, name: str) -> str:
        """The markup that stands directly before the first character of a field: a call's opener."""
        traces = self.traces.get(name)
        if not traces:
            return ""
        found: list[str] = []
        for event in reversed([event for event in self.events if event.stop <= traces[0].start]):
            if isinstance(event, Markup):
                found.append(event.raw)
            elif event.raw.strip() and not isinstance(event, CallStart | CallArguments):
                break
        return "".join(reversed(found))


def tell(
    raw: Raw,
    fmt: Format,
    request: Mapping[str, Any],
    *,
    policy: Policy = DEFAULT_POLICY,
    thinking: bool | None = None,
    said_length: bool = False,
) -> Story:
    """Read the raw layer as the answer to `request`. `said_length`: the replies say that the limit cut it; believed where the raw
    layer can't tell."""
    fields = dict(request)
    wishes = reasoning_wishes(fields)
    choice_name = fields.get("tool_choice")
    parser = Parser(
        raw.bound or fmt,
        tools=fields.get("tools"),
        prompt=raw.prompt,
        thinking=thinking,
        policy=policy,
        tool_choice=choice_name if isinstance(choice_name, str) else "auto",
    )
    stop = fields.get("stop") or ()
    options = Options(
        reasoning=wishes.shown,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        include_stop=bool(fields.get("include_stop_str_in_output") or fields.get("no_stop_trim")),
        named_tool_choice=isinstance(choice_name, Mapping) and choice_name.get("type") == "function",
    )
    events = [event for id in raw.ids for event in parser.feed([id])] if raw.bound else parser.feed_text(raw.text)
    ended = any(isinstance(event, Control) for event in events[-1:])
    limit = fields.get("max_completion_tokens") or fields.get("max_tokens")
    full = len(raw.ids) >= limit if raw.bound and limit else said_length
    cut = not ended and (full or said_length)
    events = [*events, *parser.finish("length" if cut else "stop")]
    story = _story(raw, events, _told(events, options, "length" if cut else "stop"))
    story.diagnostics = list(parser.diagnostics)
    story.ended, story.cut = ended, cut
    return story


def _told(events: Sequence[Event], options: Options, reason: Literal["stop", "length"]) -> Said:
    choice = Choice(0, options)
    deltas: list[Delta] = [*choice.open(), *choice.feed(events), *choice.finish(reason)]
    return from_choice(choice_object(0, deltas, options))


def _story(raw: Raw, events: list[Event], said: Said) -> Story:
    tokens, starts = _tokens(raw)
    text = "".join(event.raw for event in events)
    story = Story(said, text, tokens, starts, events, [], False, False)
    call, sizes = -1, {"reasoning": 0, "content": 0}
    for event in events:
        if event.strand == "reasoning":
            story.reasoning_tokens += event.token_stop - event.token_start
        if isinstance(event, CallStart):
            call += 1
            trace = Trace(0, len(event.name), event.start, event.stop, event.strand)
            story.traces[f"tool_calls[{call}].function.name"] = [trace]
            continue
        name, piece = _piece(event, call)
        if name is None:
            continue
        at = sizes.setdefault(name, 0)
        story.traces.setdefault(name, []).append(Trace(at, len(piece), event.start, event.stop, event.strand))
        sizes[name] = at + len(piece)
    story.reasoning = "".join(e.text for e in events if isinstance(e, Text) and e.strand == "reasoning")
    return story


def _piece(event: Event, call: int) -> tuple[str | None, str]:
    """The field that an event adds to, and what."""
    if isinstance(event, Text) and event.strand in ("reasoning", "content"):
        return event.strand, event.text
    if isinstance(event, CallArguments):
        return ARGUMENTS.format(call), event.delta
    if isinstance(event, CallEnd) and event.raw:
        return ARGUMENTS.format(call), ""
    return None, ""


def _tokens(raw: Raw) -> tuple[list[Token], list[int]]:
    """The tokens with their text and the character at which each begins."""
    if raw.bound is None:
        return [], []
    vocabulary = raw.bound.vocabulary
    marked = frozenset(vocabulary.special.values())
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    tokens, starts, at = [], [], 0
    for index, id in enumerate(raw.ids):
        data = vocabulary.bytes_of(id) or b""
        shown = raw.shown[index] if index < len(raw.shown) else id
        tokens.append(Token(index, shown, data.decode("utf-8", "replace"), id in marked))
        starts.append(at)
        at += len(decoder.decode(data))
    return tokens, starts


def thinking_of(request: Mapping[str, Any], fmt: Format) -> bool | None:
    """Whether the request switches thinking on or off; `None`: it leaves that to the format."""
    kwargs = request.get("chat_template_kwargs") or {}
    said = next((kwargs[name] for name in fmt.thinking.keywords if isinstance(kwargs.get(name), bool)), None)
    return reasoning_wishes(dict(request)).thinking if said is None else said
