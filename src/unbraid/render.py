"""A message written back in its format, from the table that also reads it.

The renderer walks the table: from where an answer starts to reasoning, to content, into calls and out again, writing the markers on
its way with the white space that they own. What a model would only be forgiven for (a call without its section, a body without its
wrapper) is never written.

Some messages have no spelling in some formats: reasoning that contains `</think>`, a value that contains its own closing tag. The
renderer finds out in the only way that can't be wrong: it reads back what it has written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from unbraid.codecs.base import Inexpressible, WrittenCall
from unbraid.errors import RenderError
from unbraid.message import Message, TextPart, ToolCall
from unbraid.parser import parse
from unbraid.schema import Tools, is_json_object
from unbraid.table import ANY, ENDED, START, Format, Frame, Marker, Piece, Special, Spelling, State, thinks

if TYPE_CHECKING:
    from unbraid.boundary import BoundFormat


def render(
    fmt: Format,
    message: Message,
    *,
    tools: Sequence[Mapping[str, Any]] | Tools | None = None,
    thinking: bool | None = None,
) -> str:
    """The message as this format writes it, from the start of the answer, without the token that ends the turn.

    `tools`: the offered tools, where the format leaves types to their schemas (without them the values' types aren't checked).
    Raises `RenderError` if the format can't express the message, saying which part.
    """
    text = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces(fmt, message, thinking))
    _check(fmt.name, message, parse(fmt, text, tools=tools, thinking=thinking), tools)
    return text


def render_ids(
    bound: BoundFormat,
    message: Message,
    *,
    tools: Sequence[Mapping[str, Any]] | Tools | None = None,
    thinking: bool | None = None,
) -> list[int]:
    """The same as token ids. Markers are their tokens and text never is, so text may contain the spelling of any special marker."""
    ids: list[int] = []
    special = bound.vocabulary.special
    for piece in _joined(pieces(bound.format, message, thinking), special):
        if isinstance(piece, Special):
            ids.append(special[piece.text])
        else:
            ids += bound.vocabulary.encode(piece if isinstance(piece, str) else piece.text, special=False)
    _check(bound.format.name, message, parse(bound, ids, tools=tools, thinking=thinking), tools)
    return ids


def _joined(written: Iterable[Piece], special: Mapping[str, int]) -> Iterable[Piece]:
    """Neighbouring texts as one; special pieces that the tokenizer lacks are text."""
    text = ""
    for piece in written:
        if isinstance(piece, Special) and piece.text in special:
            if text:
                yield text
            yield piece
            text = ""
        else:
            text += piece if isinstance(piece, str) else piece.text
    if text:
        yield text


def pieces(fmt: Format, message: Message, thinking: bool | None = None) -> list[Piece]:
    """What `render` joins: special markers apart from text."""
    if fmt.frames:
        return _messages(fmt, message)
    writer = _Writer(fmt, fmt.starts(thinking, prompted=False))
    calls: list[ToolCall] = []
    for part in message.parts or _parts(message):
        if isinstance(part, ToolCall):
            calls.append(part)
            continue
        writer.calls(calls)
        calls = []
        writer.text(part)
    writer.calls(calls)
    return writer.out


def _messages(fmt: Format, message: Message) -> list[Piece]:
    """A turn of messages with headers."""
    out: list[Piece] = []
    for index, part in enumerate(message.parts or _parts(message)):
        strand = "tool_call" if isinstance(part, ToolCall) else part.strand
        frame = _framed(fmt, strand, preamble=bool(message.tool_calls))
        if frame is None:
            raise RenderError(fmt.name, strand, "the format has no place for it")
        name = ""
        body: Spelling
        if isinstance(part, ToolCall):
            if not part.complete or not is_json_object(part.arguments):
                raise RenderError(fmt.name, f"the call of {part.name}", "its arguments are no JSON object")
            name = part.name
            body = _body(fmt, frame.state, [WrittenCall(name, part.arguments, part.id, index)])
        else:
            body = (part.text,)
        out += [*(fmt.next_message if index else ()), *frame.opened(name), *body, *frame.closing]
    return out


def _body(fmt: Format, state: State, calls: Sequence[WrittenCall]) -> Spelling:
    """The body of a call, or of several where one holds them."""
    assert state.codec is not None
    try:
        return state.codec.write(calls)
    except Inexpressible as error:
        raise RenderError(fmt.name, f"the call of {calls[0].name}", str(error)) from None


def _framed(fmt: Format, strand: str, *, preamble: bool) -> Frame | None:
    """How a message of this strand is written. Text before calls is a preamble, where the format knows one."""
    frames = [frame for frame in fmt.frames if frame.state.strand == strand]
    if strand == "content" and preamble:
        frames.sort(key=lambda frame: not frame.state.undecided)
    return frames[0] if frames else None


def _parts(message: Message) -> Iterable[TextPart | ToolCall]:
    if message.reasoning is not None:
        yield TextPart("reasoning", message.reasoning)
    if message.content is not None:
        yield TextPart("content", message.content)
    yield from message.tool_calls


@dataclass(slots=True)
class _Writer:
    fmt: Format
    state: State
    out: list[Piece] = field(default_factory=list)
    count: int = 0
    """Calls written so far."""
    said: str = ""
    """The text that was written last, if a marker comes next."""
    after: tuple[str, str] = ("", "")
    """White space behind the marker that was written last, and what it owns there."""

    def mark(self, marker: Marker) -> None:
        """Write a marker. White space of the text beside it that it would own is kept from it: by all that it may own."""
        before, *middle, after = marker.written if not marker.peek else (*marker.written, "")
        if self.said and _owned(self.said[::-1], str(before)[::-1], marker.before[::-1]):
            before = marker.before
        self.out += [before, *middle, after]
        self.said, self.after = "", (str(after), marker.after)

    def text(self, part: TextPart) -> None:
        states = self._wanted(part.strand)
        if not states:
            raise RenderError(self.fmt.name, part.strand, "the format has no place for it")
        begun = bool(self.out)
        if part.strand == "reasoning" and self.state in states and not begun:
            self._open_again()
        elif self.state not in states:
            self._go(states, part.strand)
        written, rule = self.after
        if _owned(part.text, written, rule):
            self.out.append(rule[len(written) :])
        self.out.append(part.text)
        self.said, self.after = part.text, ("", "")

    def calls(self, calls: list[ToolCall]) -> None:
        if not calls:
            return
        state = next((s for s in self.fmt.states if s.codec), None)
        if state is None or state.codec is None:
            raise RenderError(self.fmt.name, "tool_calls", "the format has no calls")
        written = [self._call(call) for call in calls]
        many = getattr(state.codec, "many", False)
        for group in [written] if many else [[call] for call in written]:
            self._go([state], "tool_calls")
            self.out += _body(self.fmt, state, group)
            self.said, self.after = "", ("", "")
            self.state = _BEHIND
        self._leave(state)

    def _call(self, call: ToolCall) -> WrittenCall:
        if not call.complete or not is_json_object(call.arguments):
            raise RenderError(self.fmt.name, f"the call of {call.name}", "its arguments are no JSON object")
        self.count += 1
        return WrittenCall(call.name, call.arguments, call.id, self.count - 1)

    def _wanted(self, strand: str) -> list[State]:
        states = [s for s in self.fmt.states if s.strand == strand and not s.otherwise and not s.undecided]
        # Text without its opener is only forgiven where the strand has one.
        rows = self.fmt.states.items()
        opened = [
            s for s in states if any(state is not s and target is s for state, row in rows for target in row.values())
        ]
        return opened or states

    def _open_again(self) -> None:
        """The answer starts inside reasoning; a model that opens it itself writes the opener, and the format absorbs it."""
        for marker, target in self.fmt.states[self.state].items():
            if target is self.state:
                self.mark(marker)
                return

    def _go(self, states: list[State], part: str) -> None:
        """Write the markers that lead from here to one of these states."""
        if self.state is _BEHIND:
            self._between(states[0])
            return
        if self.state.otherwise in states:
            self.state = self.state.otherwise
            return
        if thinks(self.state) and not self.state.undecided and not self.out:
            self._open_again()
        way = _way(self.fmt, self.state, states)
        if way is None and self.state.otherwise:
            way = _way(self.fmt, self.state.otherwise, states)
        if way is None:
            raise RenderError(self.fmt.name, part, f"nothing leads there from {self.state}")
        for marker, target in way:
            if not marker.peek:  # what is only announced comes next anyway
                self.mark(marker)
            self.state = target

    def _between(self, state: State) -> None:
        """From behind one body to the next."""
        row = self.fmt.states[state]
        direct = next((m for m, target in row.items() if target is state and m.peek), None)
        if direct is not None and _section(self.fmt, state):
            self.mark(direct)
            self.state = state
            return
        self._leave_body(state)
        way = _way(self.fmt, self.state, [state])
        if way is None:
            raise RenderError(self.fmt.name, "tool_calls", "the format holds one call")
        for marker, target in way:
            if not marker.peek:
                self.mark(marker)
            self.state = target

    def _leave_body(self, state: State) -> None:
        marker, target = next(iter(self.fmt.states[state].items()), (None, None))
        if marker is None or target is None or target.codec:  # nothing closes a body: it ends by itself
            self.state = state.then or self.fmt.content
            return
        self.mark(marker)
        self.state = target

    def _leave(self, state: State) -> None:
        """From behind the last body to where content may stand."""
        self._leave_body(state)
        while self.state.strand == "markup" and self.state.otherwise is None:  # else content may stand right here
            row = self.fmt.states[self.state].items()
            way = next(((m, t) for m, t in row if not t.codec and not thinks(t)), None)
            if way is None:
                return
            self.mark(way[0])
            self.state = way[1]


@dataclass(frozen=True, slots=True)
class Routes:
    """The markers around calls as the format itself writes them."""

    state: State
    entry: Spelling
    """From content to the first body."""
    between: Spelling
    """From one body to the next."""
    exit: Spelling
    """From the last body to where content may go on."""
    many: bool
    """One body holds all calls."""


def routes_of(fmt: Format) -> Routes | None:
    """How calls are entered and left; `None` if the format has none."""
    state = next((s for s in fmt.states if s.codec), None)
    if state is None:
        return None
    start = fmt.start.off
    writer = _Writer(fmt, start if any(m.trial == "proven" for m in fmt.states[start]) else fmt.content)
    writer._go([state], "tool_calls")
    entry, writer.out = tuple(writer.out), []
    many = bool(getattr(state.codec, "many", False))
    if not many:
        writer.state = _BEHIND
        writer._go([state], "tool_calls")
    between, writer.out = tuple(writer.out), []
    writer._leave(state)
    return Routes(state, entry, between, tuple(writer.out), many)


_BEHIND = State("behind a body", "markup")


def _owned(text: str, written: str, rule: str) -> bool:
    """Whether a marker that owns white space by this rule, `written` so far, would take some of the text behind it, too. Of
    long runs nothing is kept: what they stand for is all there is."""
    if rule == ANY or not 0 < len(rule) <= _SHORT_RULE:
        return False
    beside = written + text[: len(rule)]
    return any(beside.startswith(rule[:length]) for length in range(len(written) + 1, len(rule) + 1))


_SHORT_RULE = 2


def _section(fmt: Format, state: State) -> bool:
    """Whether a section leads to this call state: then it is entered that way."""
    return any(
        s.strand == "markup" and not (s.header or s.otherwise) and state in row.values()
        for s, row in fmt.states.items()
    )


def _way(fmt: Format, start: State, goals: list[State]) -> list[tuple[Marker, State]] | None:
    """The shortest way through the table, by markers that the format itself writes."""
    starts = [start.otherwise, start] if start.otherwise else [start]  # to wait is to stand where text would lead
    if any(marker.trial == "proven" for marker in fmt.states.get(start, ())):
        starts.reverse()  # a call stands here without a marker
    ways: list[tuple[State, list[tuple[Marker, State]]]] = [(state, []) for state in starts]
    seen = set(starts)
    waiting: list[tuple[Marker, State]] | None = None
    for state, way in ways:
        if state in goals:
            return way
        for marker, target in fmt.states.get(state, {}).items():
            if target in (START, ENDED) or target in seen or _tolerated(fmt, state, marker, target):
                continue
            seen.add(target)
            ways.append((target, [*way, (marker, target)]))
            beyond = target.otherwise  # a place that waits for a marker is on the way to what its text's place opens
            if beyond is None or beyond in seen:
                continue
            if beyond in goals:
                waiting = waiting or [*way, (marker, beyond)]
            else:
                seen.add(beyond)
                ways.append((beyond, [*way, (marker, target)]))
    return waiting


def _tolerated(fmt: Format, state: State, marker: Marker, target: State) -> bool:
    """Whether a transition is only forgiven: a call without its section, a body without its wrapper, a call in reasoning."""
    if marker.note:
        return True
    if marker.trial:
        return marker.trial != "proven"
    if not target.codec and target.strand != "markup":
        return False
    if state.strand == "reasoning" or state.otherwise:
        return True
    inside = state.strand == "markup"
    return not inside and ((bool(target.codec) and _section(fmt, target)) or (marker.peek and _wrapped(fmt, target)))


def _wrapped(fmt: Format, state: State) -> bool:
    """Whether something stands before a body of this state: what only announces one then lacks its wrapper."""
    return any(target is state and not marker.peek for row in fmt.states.values() for marker, target in row.items())


def _check(name: str, message: Message, found: Message, tools: Any) -> None:
    """Compare what was to be written with what it reads as."""
    if len(message.tool_calls) != len(found.tool_calls):
        part = f"the call of {message.tool_calls[0].name}" if len(message.tool_calls) == 1 else "tool_calls"
        raise RenderError(
            name, part, f"it would be read as {len(found.tool_calls)} calls and content {_excerpt(found.content)}"
        )
    for wanted_call, got_call in zip(message.tool_calls, found.tool_calls, strict=True):
        same = wanted_call.name == got_call.name and _same(
            wanted_call.arguments, got_call.arguments, typed=tools is not None
        )
        if not same or not got_call.complete:
            raise RenderError(
                name, f"the call of {wanted_call.name}",
                f"{_excerpt(wanted_call.arguments)} would be read as {got_call.name} {_excerpt(got_call.arguments)}",
            )  # fmt: skip
    for field_name in ("reasoning", "content"):
        wanted, got = getattr(message, field_name), getattr(found, field_name)
        if wanted != got:
            raise RenderError(name, field_name, f"{_excerpt(wanted)} would be read as {_excerpt(got)}")


def _excerpt(text: str | None) -> str:
    return "nothing" if text is None else repr(text if len(text) <= 60 else text[:57] + "...")


def _same(wanted: str, got: str, *, typed: bool) -> bool:
    first, second = (json.loads(text, parse_int=_Number, parse_float=_Number) for text in (wanted, got))
    return bool(first == second) if typed else _loose(first) == _loose(second)


class _Number(str):
    """A number by its spelling, so that none is rounded; never equal to a string of the same characters."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Number) and str.__eq__(self, other)

    __hash__ = str.__hash__


def _loose(value: Any) -> Any:
    """A value with its scalars as text: all that can be compared when nothing says the types."""
    if isinstance(value, dict):
        return {key: _loose(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_loose(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    return json.dumps(value)
