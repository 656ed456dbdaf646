"""The machine: runs a table over a stream and says what each stretch of it is.

One pass, one code path: one-shot parsing is `feed` then `finish`. The machine holds text back only while it could still become
(part of) a marker that is live in its state, or white space that such a marker owns; the first token that decides releases it.

How text flows: ids become text in which special tokens are single characters (`unbraid.program`). What hasn't been decided
waits in `_buffer`. `_turn` takes what it can from it: in a state with text it looks for live markers, in a call it lets the codec's
reader read. Every piece taken becomes one event with its place in characters and tokens.

Most tokens never get there: if nothing waits and the token is plain in this state (one dictionary look-up), its event is made
at once. That path is the first lines of `feed`, and is why some fields below seem to repeat others.

A call's events are kept back until its name is known: until then it may turn out to be no call, and then all of it is content.
"""

from __future__ import annotations

import codecs
import copy
import functools
import hashlib
import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Self

from unbraid.codecs.base import Reader
from unbraid.errors import UnbraidError
from unbraid.events import CallArguments, CallEnd, CallStart, Control, Diagnostic, Event, Markup, Strand, Text
from unbraid.message import Message, Part, TextPart, ToolCall
from unbraid.policy import DEFAULT_POLICY, Policy
from unbraid.program import FIRST, LAST, Program, Row, owned_before
from unbraid.schema import Tools
from unbraid.table import ANY, ENDED, START, Format, Marker, State, spelled, thinks

FinishReason = Literal["stop", "length"]

_new: Any = tuple.__new__
_NOTHING: Final[dict[int, str]] = {}
_SURPLUS = frozenset(" \t\r\n})]")
_LETTERS = string.ascii_letters + string.digits


class _Segment:
    """A stretch of one strand, gathered for the message."""

    __slots__ = ("pieces", "strand")

    def __init__(self, strand: Literal["reasoning", "content"]) -> None:
        self.strand = strand
        self.pieces: list[str] = []


class _Call:
    """A call, gathered for the message."""

    __slots__ = ("arguments", "id", "index", "name", "outcome", "raw")

    def __init__(self, index: int, id: str, name: str) -> None:
        self.index = index
        self.id = id
        self.name = name
        self.arguments: list[str] = []
        self.raw: list[str] = []
        """Its raw text from its opening marker on, while it may still have to be handed on as content."""
        self.outcome: Literal["open", "complete", "incomplete", "withdrawn"] = "open"


class Machine:
    """The state of one stream. Users meet it as `unbraid.Parser`."""

    __slots__ = (
        "_absorb", "_at", "_blank_only", "_buffer", "_bytes", "_call", "_calls", "_done", "_finished", "_held", "_index", "_lead",
        "_mark", "_out", "_parts", "_plain", "_program", "_queue", "_quote", "_raw", "_reader", "_reason", "_row", "_said", "_sink",
        "_preface", "_seed", "_prepend", "_silent", "_skip", "_special", "_starts", "_strand", "_text", "_thinking", "_token", "diagnostics", "tools",
    )  # fmt: skip

    def __init__(self, program: Program, tools: Tools, thinking: bool | None, state: State, silent: bool = False) -> None:
        self._program = program
        self.tools = tools
        self._thinking = thinking
        self.diagnostics: list[Diagnostic] = []
        self._buffer = ""
        self._queue: list[str] = []
        """White space that came behind `_buffer` while only something else can decide: not yet joined to it."""
        self._blank_only = False
        self._bytes = b""
        self._special = False
        """The text being taken may hold special tokens as characters."""
        self._absorb = ""
        self._lead = False
        """Nothing but white space has come since the state was entered, and alone it would be markup."""
        self._at = 0
        self._token = 0
        self._done = 0
        self._starts: list[int] = []
        """Where tokens begin that no event covers yet, counted as `_done` counts."""
        self._skip = 0
        """Characters at the head of `_buffer` that belong to the prompt."""
        self._out: list[Event] = []
        self._held: list[Event] | None = None
        self._raw: list[str] = []
        self._reader: Reader | None = None
        self._text = ""
        self._mark = 0
        self._call: _Call | None = None
        self._index = 0
        self._calls: list[_Call] = []
        self._parts: list[_Segment | _Call] = []
        self._quote: Literal["", "content", "markup"] = ""
        """The call being read is no call for the reader: its text is content, or nothing."""
        self._reason: FinishReason | None = None
        self._finished = False
        self._said = False
        self._silent = silent
        self._seed = ""
        self._preface: list[Event] = []
        """What the prompt left open, said again with the first events of the output."""
        self._prepend = state.prepend
        self._sink: Any = None
        self._strand: Strand = "content"
        self._plain: dict[int, str] = _NOTHING
        self._row: Row = program.rows[ENDED]
        self._enter(state)

    # What goes in

    def feed(self, ids: Sequence[int]) -> Sequence[Event]:
        """Take the next token ids, in any grouping, and return the events that they decide."""
        if len(ids) == 1:
            text = self._plain.get(ids[0])
            if text is not None:
                start = self._at
                self._at = stop = start + len(text)
                token = self._token
                self._token = token + 1
                self._sink(text)
                if self._call is None:
                    return (_new(Text, (self._strand, text, start, stop, token, token + 1, text)),)
                return (_new(CallArguments, ("tool_call", text, start, stop, token, token + 1, self._index, text)),)
        return self._feed(ids)

    def _feed(self, ids: Iterable[int]) -> list[Event]:
        if self._finished:
            raise UnbraidError("the stream was finished: start a new parser for the next one")
        ids = list(ids)
        if self._plain is not _NOTHING and (event := self._plain_event(ids)):
            return [event]
        at = self._done + len(self._buffer) + sum(map(len, self._queue))
        pieces: list[str] = []
        starts = self._starts
        alphabet = self._program.alphabet
        for token in ids:
            starts.append(at)
            piece: str | bytes | None = alphabet.pieces.get(token) if not self._bytes else None
            if piece is None:
                piece = alphabet.piece(token)
                if piece is None:
                    self._note("unknown_token", f"id {token} isn't in the vocabulary")
                    continue
                if isinstance(piece, bytes) or self._bytes:
                    piece, starts[-1] = self._decode(piece, at)
            if len(piece) == 1 and FIRST <= ord(piece) <= LAST:
                self._special = True
            pieces.append(piece)
            at += len(piece)
        return self._push("".join(pieces))

    def _plain_event(self, ids: list[int]) -> Event | None:
        """One event for several tokens that are all plain here; learns which tokens are."""
        plain = self._plain
        texts: list[str] = []
        for token in ids:
            text = plain.get(token)
            if text is None:
                piece = self._program.alphabet.piece(token)
                if not isinstance(piece, str) or not (self._reader or self._row).is_plain(piece):
                    return None
                plain[token] = text = piece
            texts.append(text)
        if not texts:
            return None
        text = "".join(texts)
        start, token = self._at, self._token
        self._at, self._token = start + len(text), token + len(ids)
        self._sink(text)
        if self._call is None:
            return Text(self._strand, text, start, self._at, token, self._token, text)
        return CallArguments("tool_call", text, start, self._at, token, self._token, self._index, text)

    def _decode(self, piece: str | bytes, at: int) -> tuple[str, int]:
        """Text of a token whose bytes aren't whole characters, or that follows such a one; and where its first byte stands."""
        data = piece if isinstance(piece, bytes) else self._raw_bytes(piece)
        if data is None:  # a special token: what is pending will never be a character
            self._bytes = b""
            self._special = True
            return "\ufffd" + str(piece), at + 1
        pending, self._bytes = self._bytes, b""
        text, used = codecs.utf_8_decode(pending + data, "replace", False)
        self._bytes = (pending + data)[used:]
        if pending and data:
            joined, _ = codecs.utf_8_decode(pending + data[:1], "replace", False)
            whole = not joined or (len(joined) == 1 and joined != "\ufffd")
            return text, at if whole else at + 1
        return text, at

    def _raw_bytes(self, piece: str) -> bytes | None:
        return None if len(piece) == 1 and FIRST <= ord(piece) <= LAST else piece.encode()

    def feed_text(self, text: str) -> Sequence[Event]:
        """Take the next piece of text, cut anywhere, and return the events that it decides."""
        if self._finished:
            raise UnbraidError("the stream was finished: start a new parser for the next one")
        if self._plain is not _NOTHING and (self._reader or self._row).is_plain(text):
            start = self._at
            self._at = stop = start + len(text)
            self._sink(text)
            if self._call is None:
                return (_new(Text, (self._strand, text, start, stop, 0, 0, text)),)
            return (_new(CallArguments, ("tool_call", text, start, stop, 0, 0, self._index, text)),)
        return self._push(text)

    def finish(self, reason: FinishReason = "stop") -> list[Event]:
        """The stream is over: `"stop"` if the model ended its turn, `"length"` if it was cut off."""
        if self._finished:
            raise UnbraidError("the stream was finished already")
        self._reason = reason
        if self._bytes:
            self._bytes = b""
            self._buffer = self._take_queue() + "\ufffd"
        self._out = out = self._preface
        self._preface = []
        self._buffer = self._take_queue()
        self._turn()
        self._end()
        self._finished = True
        self._plain = _NOTHING
        if len(self._starts) or self._skip:
            event = self._event(Control, "control", "")
            rest = len(self._starts)
            if rest:
                self._starts.clear()
                event = event._replace(token_stop=event.token_start + rest)
                self._token += rest
                self._deliver(event)
        return out

    # What comes out

    def _push(self, text: str) -> list[Event]:
        if self._blank_only and text.isspace():
            self._queue.append(text)
            return []
        self._out = out = self._preface
        self._preface = []
        self._buffer = self._take_queue() + text
        self._turn()
        self._settle()
        return out

    def _take_queue(self) -> str:
        if not self._queue:
            return self._buffer
        self._queue.insert(0, self._buffer)
        text = "".join(self._queue)
        self._queue.clear()
        return text

    def _settle(self) -> None:
        """Between two feeds: choose the path for the next token."""
        self._plain = _NOTHING
        if self._buffer or self._absorb or self._lead or self._bytes or self._held is not None or self._quote or self._starts:
            return
        if self._preface or self._skip or self._prepend:
            return
        self._special = False
        if self._reader is None:
            state = self._row.state
            if state.otherwise is None and state.strand in ("reasoning", "content"):
                self._strand = state.strand
                self._sink = self._segment(state.strand).pieces.append
                self._plain = self._row.plain
        elif self._call is not None and self._reader.streams:
            self._sink = self._call_sink
            self._plain = self._reader.plain

    def _call_sink(self, text: str) -> None:
        call = self._call
        if call is not None:
            call.arguments.append(text)
            call.raw.append(text)

    def _deliver(self, event: Event) -> None:
        """Hand an event on, and fold it into the message."""
        if self._held is not None:
            self._held.append(event)
            return
        self._out.append(event)
        if isinstance(event, Text):
            if event.text:
                self._segment(event.strand).pieces.append(event.text)
        elif isinstance(event, CallStart):
            self._call = call = _Call(event.index, event.id, event.name)
            self._calls.append(call)
            self._parts.append(call)
        elif isinstance(event, CallArguments):
            if event.delta:
                self._calls[event.index].arguments.append(event.delta)
        elif isinstance(event, CallEnd):
            self._calls[event.index].outcome = event.outcome

    def _segment(self, strand: Any) -> _Segment:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Segment) or last.strand != strand:
            last = _Segment(strand)
            self._parts.append(last)
        if strand == "content":
            self._said = True
        return last

    def _event(self, cls: Any, strand: Strand, piece: str, *rest: Any) -> Any:
        """An event of class `cls` for the next piece of the stream."""
        if self._skip and piece:  # the prompt's part isn't output
            own = min(self._skip, len(piece))
            self._skip -= own
            self._done += own
            piece = piece[own:]
        raw = self._program.alphabet.expand(piece) if self._special else piece
        start = self._at
        self._at = stop = start + len(raw)
        self._done += len(piece)
        token, starts, done = self._token, self._starts, self._done
        if starts:
            count = 0
            for begin in starts:
                if begin >= done:
                    break
                count += 1
            del starts[:count]
            self._token = token + count
        return _new(cls, (strand, raw, start, stop, token, self._token, *rest))

    def _emit(self, strand: Literal["reasoning", "content"], piece: str) -> None:
        """A piece of reasoning or content."""
        event = self._event(Text, strand, piece, "")
        if event.raw or event.token_stop > event.token_start:
            prepend, self._prepend = self._prepend, ""
            self._deliver(event._replace(text=prepend + event.raw))

    def _emit_markup(self, strand: Literal["markup", "control"], piece: str) -> None:
        event = self._event(Control if strand == "control" else Markup, strand, piece)
        if event.raw or event.token_stop > event.token_start:
            if self._quote == "content":
                event = Text("content", *event[1:], event.raw)
            elif event.raw.strip() in self._program.keep:
                event = Text("content", *event[1:], event.raw)
            self._deliver(event)

    def _note(self, kind: str, message: str, at: int = 0) -> None:
        fmt = self._program.format
        self.diagnostics.append(Diagnostic(kind, fmt.name, self._row.state.name, self._at + at, message))

    # States

    def _enter(self, state: State) -> None:
        if state is START:
            state = self._program.format.starts(self._thinking, prompted=True)
        self._row = self._program.rows[state]
        self._reader = None
        if state.codec:
            self._reader = self._program.codecs[state].reader(self)
        blank = state.blank
        self._lead = state.otherwise is not None or blank == "segment" or (blank == "message" and not self._said)

    @property
    def state(self) -> State:
        """The state in which the machine stands: what is held back hasn't been decided and doesn't count."""
        return self._row.state

    @property
    def reasoning_ended(self) -> bool:
        """Whether reasoning is over, as far as the tokens so far decide it."""
        if not self._program.reasons:
            return True
        state = self._row.state
        if state.header:
            state = self._program.format.starts(self._thinking, prompted=True)
        return not thinks(state)

    def _turn(self) -> None:
        """Take from the buffer what can be decided."""
        while True:
            if self._absorb:
                self._take_absorbed()
            before, state, reader = len(self._buffer), self._row.state, self._reader
            if reader is not None:
                self._read()
            elif not before and self._reason is None:
                break
            else:
                self._scan()
            if len(self._buffer) == before and self._row.state is state and self._reader is reader:
                break
            if not self._buffer:
                break

    def _take_absorbed(self) -> None:
        """White space that the last marker owns."""
        text, rule = self._buffer, self._absorb
        if not text:
            return
        at = 0
        if rule == ANY:
            at = len(text) - len(text.lstrip())
            if at < len(text):
                self._absorb = ""
        else:
            while at < len(rule) and text.startswith(rule[at], at):
                at += 1
            self._absorb = rule[at:] if at == len(text) else ""
        if at:
            self._emit_markup("markup", text[:at])
            self._buffer = text[at:]

    def _scan(self) -> None:
        """In a state with text: up to the next marker, or all that is decided."""
        row, text, final = self._row, self._buffer, self._reason is not None
        stop = len(text)
        at = 0
        while True:
            match = row.first.search(text, at)
            if match is None:
                at = stop
                break
            at = match.start()
            rest = stop - at
            if not final and rest < row.longest and text[at:] in row.prefixes:
                break
            if found := row.match.match(text, at):
                marker, target = row.targets[found.lastindex - 1]  # type: ignore[operator]
                self._at_marker(marker, target, at, found.end())
                return
            if FIRST <= ord(text[at]) <= LAST and self._program.ids and text[at] not in self._program.alphabet.own:
                self._at_control(row, at)
                return
            if final and self._reason == "length" and rest >= 2 and rest < row.longest and text[at:] in row.prefixes:
                self._text_until(at)  # a marker that was cut off: nobody wants to read half of it
                self._note("cut_marker", f"{text[at:]!r} is the beginning of a marker")
                self._emit_markup("markup", self._buffer)
                self._buffer = ""
                return
            at += 1
        self._blank_only = False
        if final:
            self._text_until(at)
        else:
            cut = row.held_from(text, 0, at)
            if self._lead and not text[:at].strip():
                cut = 0
            self._text_until(cut)
            self._blank_only = (self._lead or row.any_before) and self._buffer.isspace()

    def _at_control(self, row: Row, at: int) -> None:
        """A special token stands at `at` that the format doesn't know: nobody's text."""
        blank = self._lead and not self._buffer[:at].strip()
        if blank:
            self._emit_markup("markup", self._buffer[:at])
            self._buffer = self._buffer[at:]
        else:
            self._text_until(at)
        if self._row is row:
            self._emit_markup("control", self._buffer[:1])
            self._buffer = self._buffer[1:]

    def _text_until(self, at: int) -> None:
        """The buffer up to `at` is text of this state."""
        piece = self._buffer[:at]
        if not piece:
            return
        state = self._row.state
        if self._lead:
            if not piece.strip():
                if self._reason is None:
                    return
                if state.strand != "control":
                    self._emit_markup("markup", piece)
                    self._buffer = self._buffer[at:]
                    return
            self._lead = False
        if state.codec:
            self._after_body(piece)
            return
        if state.otherwise is not None:
            if state is ENDED and not piece.strip():
                self._emit_markup("markup", piece)
                self._buffer = self._buffer[at:]
                return
            if state is ENDED:
                self._note("text_after_end", "text after the end of the turn is content")
            self._enter(state.otherwise)
            return
        if state.strand in ("reasoning", "content"):
            self._emit(state.strand, piece)  # type: ignore[arg-type]
        else:
            if piece.strip() and not state.header:
                self._note("stray_text", f"{piece.strip()[:40]!r} has no place here")
            self._emit_markup("markup", piece)
        self._buffer = self._buffer[at:]

    def _at_marker(self, marker: Marker, target: State, at: int, stop: int) -> None:
        """A live marker stands at `at` of the buffer."""
        row, text = self._row, self._buffer
        owned = owned_before(text, at, 0, marker.before) if marker.before else at
        if self._lead and not text[:owned].strip():
            owned = 0
        if owned:
            self._text_until(owned)
            if self._row is not row:  # the text led elsewhere: look at the marker again from there
                return
            at, stop, text = at - owned, stop - owned, self._buffer
            if not text:
                return
        end = self._row.state.codec is not None
        closes = end and target.strand != "tool_call"
        if end:
            self._close_call(closes or target is ENDED)
        opens = target.codec is not None
        if end and (opens or not closes):
            self._quote = ""
        if opens:
            self._open_call()
        if marker.peek:
            stop = at
        strand: Literal["markup", "control"] = "control" if marker in self._program.format.turns else "markup"
        piece = text[:stop]
        self._buffer = text[stop:]
        if piece:
            if strand == "control" and self._quote and not opens:
                self._quote = ""
            if marker.shown:
                self._emit("content", piece)
            else:
                self._emit_markup(strand, piece)
        if not opens:
            self._quote = ""
        self._absorb = "" if marker.peek else marker.after
        self._enter(target)

    # Calls: what happens around a body

    def _open_call(self) -> None:
        """An opening marker: whether a call follows is known when its name is."""
        self._call = None
        self._raw = []
        if self._silent:
            self._quote = "content" if self._program.policy.tool_choice_none == "passthrough" else "markup"
        elif self._held is None:
            self._held = []

    def _read(self) -> None:
        """In a call's body: let the reader read."""
        reader = self._reader
        assert reader is not None
        text = self._text = self._buffer
        self._mark = 0
        ender = self._special and self._program.ender and self._program.ender.search(text)
        if ender:  # the turn ends here, whatever the body says
            self._text = text[: ender.start()]
        at = reader.read(self._text, 0, bool(ender) or self._reason == "stop") if self._text else 0
        if ender and not (reader.failed or reader.done or reader.empty or reader.successor):
            self._body(at)
            rest, self._buffer = self._text[at:], text[at:]
            self._unfinished("stop", rest)
            if rest:
                self._emit_markup("markup", rest)
                self._buffer = text[ender.start() :]
            return
        if reader.successor is not None:
            self._body(at)
            self._buffer = text[at:]
            self._reader = reader.successor
            if self._buffer:
                self._read()
            return
        if reader.failed:
            self._note("malformed_call", f"{reader.failed}; the call is passed on as content", at=len(text[self._mark : at]))
            self._malformed(text, at)
            return
        self._body(at)
        self._buffer = text[at:]
        self._blank_only = reader.waits_on_blank
        if reader.done or reader.empty:
            self._reader = None
            self._blank_only = False
            if reader.empty:
                self._release()
            self._lead = False

    def _body(self, stop: int) -> None:
        """Text of the body that gave nothing yet: it belongs to the call all the same."""
        if stop > self._mark:
            piece = self._text[self._mark : stop]
            self._mark = stop
            self._call_event(CallArguments, piece, "") if self._call else self._emit_markup("markup", piece)

    def _call_event(self, cls: Any, piece: str, delta: str) -> None:
        call = self._call
        assert call is not None
        event = self._event(cls, "tool_call", piece, call.index, delta)
        call.raw.append(event.raw)
        if event.raw or event.delta or event.token_stop > event.token_start:
            self._deliver(event)

    # The sink of a reader: see `unbraid.codecs.base.Sink`

    def call_start(self, stop: int, name: str, id: str | None = None) -> None:
        piece = self._text[self._mark : stop]
        self._mark = stop
        if not self._quote and self._program.policy.unknown_tool == "content" and self.tools.names and name not in self.tools:
            self._note("unknown_tool", f"no tool {name!r} was offered")
            self._as_text()
            self._quote = "content"
        if self._quote:
            self._emit_markup("markup", piece)
            return
        index = len(self._calls) + 0
        held, self._held = self._held or [], None
        event = self._event(CallStart, "tool_call", piece, index, id or self._new_id(name, index), name)
        raws = [e.raw for e in held]
        if self._program.policy.calls == "atomic":
            self._call = _Call(index, event.id, name)
            self._held = [*held, event]
        else:
            for earlier in held:
                self._deliver(earlier)
            self._deliver(event)
        self._index = index
        assert self._call is not None
        self._call.raw = [*raws, event.raw]
        if self.tools.names and name not in self.tools:
            self._note("unknown_tool", f"no tool {name!r} was offered")

    def call_arguments(self, stop: int, delta: str) -> None:
        piece = self._text[self._mark : stop]
        self._mark = stop
        if self._quote or self._call is None:
            if piece:
                self._emit_markup("markup", piece)
            return
        self._call_event(CallArguments, piece, delta)

    def call_end(self, stop: int) -> None:
        piece = self._text[self._mark : stop]
        self._mark = stop
        self._end_call(piece, "complete")
        if self._held is None and self._reader is not None and not self._quote and not self._silent:
            self._held = []  # should another call of an array follow

    def marker_at(self, text: str, at: int, final: bool) -> int:
        row = self._row
        if not final and len(text) - at < row.longest and text[at:] in row.prefixes:
            return -1
        match = row.match.match(text, at)
        if match:
            return match.end()
        return 0

    def find_marker(self, text: str, at: int, stop: int) -> int:
        match = self._row.match.search(text, at)
        return match.start() if match and match.start() < stop else -1

    def opens_at(self, text: str, at: int) -> bool:
        match = self._row.match.match(text, at)
        return match is not None and self._row.targets[match.lastindex - 1][1].codec is not None  # type: ignore[operator]

    def note(self, kind: str, at: int, message: str) -> None:
        self._note(kind, message, at=max(0, at - self._mark))

    def expand(self, text: str) -> str:
        return self._program.alphabet.expand(text) if self._special else text

    def _new_id(self, name: str, index: int) -> str:
        """An id for a call that the model gave none. The same stream gives the same ids, another prompt gives others."""
        text = self._program.format.ids.pattern.replace("{name}", name).replace("{index}", str(index))
        if "?" not in text:
            return text
        digest = hashlib.blake2b(f"{self._seed} {index} {name}".encode("utf-8", "replace"), digest_size=32).digest()
        letters = iter(_LETTERS[byte % len(_LETTERS)] for byte in digest)
        return "".join(next(letters, "0") if c == "?" else c for c in text)

    def _end_call(self, piece: str, outcome: Literal["complete", "incomplete", "withdrawn"]) -> None:
        call = self._call
        if call is None:
            if piece:
                self._emit_markup("markup", piece)
            return
        event = self._event(CallEnd, "tool_call", piece, call.index, outcome)
        held, self._held = self._held, None
        for earlier in held or ():
            self._deliver(earlier)
        self._deliver(event)
        self._call = None

    def _release(self) -> None:
        """What was kept back for a call that never came is markup."""
        held, self._held = self._held, None
        for event in held or ():
            self._deliver(event)

    def _as_text(self) -> None:
        """What was kept back for a call is content after all."""
        held, self._held = self._held, None
        if held:
            raw = "".join(event.raw for event in held)
            first, last = held[0], held[-1]
            self._deliver(Text("content", raw, first.start, last.stop, first.token_start, last.token_stop, raw))

    def _dropped(self) -> None:
        """What was kept back is left out: it is nobody's text."""
        held, self._held = self._held, None
        for event in held or ():
            self._deliver(Markup("markup", *event[1:6]))

    def _withdraw(self, as_content: bool) -> None:
        """The open call is no call. If it was announced, say so; its text so far is content if policy wants it."""
        call, self._call = self._call, None
        if self._held is not None:
            self._as_text() if as_content else self._dropped()
            return
        if call is None:
            return
        self._deliver(self._event(CallEnd, "tool_call", "", call.index, "withdrawn"))
        if as_content:
            self._deliver(self._event(Text, "content", "", "".join(call.raw)))

    def _malformed(self, text: str, at: int) -> None:
        """The body breaks its format at `at`: what was read and what follows, its closing marker included, is no call."""
        as_content = self._program.policy.malformed_call == "content"
        if not self._quote:
            self._withdraw(as_content)
            self._quote = "content" if as_content else "markup"
        self._buffer = text[self._mark :]
        self._reader = None
        self._blank_only = False
        self._lead = False
        stop = at - self._mark
        if stop < len(self._buffer) and not self._closes_at(stop):
            stop += 1  # whatever stands here has been refused: it must not be taken for the beginning of a call again
        if stop > 0:
            self._emit_markup("markup", self._buffer[:stop])
            self._buffer = self._buffer[stop:]

    def _closes_at(self, at: int) -> bool:
        """Whether a marker may stand at `at` of the buffer that isn't the beginning of a call by itself."""
        row, text = self._row, self._buffer
        if len(text) - at < row.longest and text[at:] in row.prefixes:
            return True
        match = row.match.match(text, at)
        return match is not None and not row.targets[match.lastindex - 1][0].peek  # type: ignore[operator]

    def _after_body(self, piece: str) -> None:
        """Text between a body and the marker that should close it."""
        if self._quote:
            self._emit_markup("markup", piece)
            self._buffer = self._buffer[len(piece) :]
            return
        extent = len(piece) - len(piece.lstrip(" \t\r\n})]"))
        if extent == len(piece):
            if piece.strip():
                self._note("surplus_text", f"{piece.strip()[:40]!r} after a call's body")
            self._emit_markup("markup", piece)
            self._buffer = self._buffer[extent:]
            return
        self._note("missing_closer", "text where a call's closing marker was expected")
        self._close_call(True)
        row = self._program.format.states.get(self._row.state, {})
        target = next((t for t in row.values() if t.strand != "tool_call"), ENDED)
        self._enter(target)

    def _close_call(self, closed: bool) -> None:
        """The state of a call is left by a marker (or by stray text)."""
        if self._reader is not None:
            return
        if self._call is not None:
            self._end_call("", "complete")
        self._release()

    def _unfinished(self, reason: FinishReason, rest: str) -> None:
        """The turn ends inside a body."""
        reader, self._reader = self._reader, None
        assert reader is not None
        self._blank_only = False
        policy = self._program.policy
        outcome = reader.finish()
        if outcome == "blank":
            blank = not rest.strip() and not any(e.raw.strip() for e in (self._held or [])[1:])
            if blank or reason == "length":
                self._release()
            else:
                self._note("malformed_call", "the turn ended before the call had a name")
                self._withdraw_rest(policy.malformed_call == "content")
            return
        if reason == "length" and not self._quote:
            if self._call is None:
                self._dropped()
            elif policy.truncated_call == "drop" or policy.calls == "atomic":
                self._withdraw(as_content=False)
            else:
                self._end_call("", "incomplete")
            return
        if outcome == "complete":
            if self._call is not None:
                self._note("missing_closer", "the turn ended before the call was closed")
                self._text, self._mark = "", 0
                self._complete(reader)
            self._release()
            return
        if not self._quote:
            self._note("malformed_call", "the turn ended inside the call; it is passed on as content")
            self._withdraw_rest(policy.malformed_call == "content")

    def _complete(self, reader: Reader) -> None:
        """A body that lacks only its closer."""
        if self._call is not None and (rest := reader.tail()):
            self._call_event(CallArguments, "", rest)
        self._end_call("", "complete")

    def _withdraw_rest(self, as_content: bool) -> None:
        if self._quote:
            return
        self._withdraw(as_content)
        self._quote = "content" if as_content else "markup"

    def _end(self) -> None:
        """The stream's end: nothing may stay behind."""
        reason = self._reason or "stop"
        if self._reader is not None:
            self._unfinished(reason, self._buffer)
        elif self._row.state.codec and self._call is not None:
            if reason == "length":
                self._end_call("", "incomplete")
            else:
                self._note("missing_closer", "the turn ended before the call was closed")
                self._end_call("", "complete")
        self._release()
        if self._buffer:
            piece, self._buffer = self._buffer, ""
            self._emit_markup("markup", piece)
        self._quote = ""

    # Forks

    def fork(self) -> Self:
        """A machine that stands where this one stands, with all that was said and held; from here on each goes its own way.

        What never changes (the program, its rows and codecs, the tools) is shared. All else is copied, whatever it is, so that a
        new field needs no word here.
        """
        memo = dict(self._program.shared)
        for kept in (self.tools, self._plain, self._reader and self._reader.plain):
            memo[id(kept)] = kept
        other = object.__new__(type(self))
        memo[id(self)] = other
        for name in _slots(type(self)):
            setattr(other, name, _copied(getattr(self, name), memo))
        sink = self._sink  # a bound method: it must be the copy's
        other._sink = sink and getattr(_copied(sink.__self__, memo), sink.__name__)
        return other

    # The message

    @property
    def message(self) -> Message:
        """What has been said so far. Whole after `finish`."""
        parts: list[Part] = []
        calls: list[ToolCall] = []
        fields: dict[str, list[str]] = {"reasoning": [], "content": []}
        for part in self._parts:
            if isinstance(part, _Segment):
                text = "".join(part.pieces)
                part.pieces[:] = [text]
                if text:
                    fields[part.strand].append(text)
                    parts.append(TextPart(part.strand, text))
            elif part.outcome != "withdrawn":
                arguments = "".join(part.arguments)
                part.arguments[:] = [arguments]
                call = ToolCall(part.id, part.name, arguments, part.outcome == "complete")
                calls.append(call)
                parts.append(call)
        join = self._program.format.join
        reasoning, content = (join.join(fields[name]) or None for name in ("reasoning", "content"))
        return Message(reasoning, content, calls, parts, list(self.diagnostics))


@functools.cache
def _slots(cls: Any) -> tuple[str, ...]:
    return tuple(name for base in cls.__mro__ for name in getattr(base, "__slots__", ()) if name != "_sink")


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy, with short cuts for what a machine mostly holds."""
    kind = type(value)
    if value is None or kind is str or kind is int or kind is bool or kind is bytes:
        return value
    if kind is list and all(isinstance(item, (str, int, tuple)) for item in value):
        known = memo.get(id(value))
        if known is None:
            known = memo[id(value)] = list(value)
        return known
    return copy.deepcopy(value, memo)


def _resolve(tools: Sequence[Mapping[str, Any]] | Tools | None) -> Tools:
    return tools if isinstance(tools, Tools) else Tools.resolve(tools)


__all__ = ["DEFAULT_POLICY", "FinishReason", "Format", "Machine", "Policy", "_resolve", "spelled"]
