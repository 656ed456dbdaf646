"""The interpreter: works out what the next stretch of a stream is, by the table.

How text flows: ids become text in which special tokens are single characters (`unbraid.program`). What hasn't been decided
waits in `_buffer`. `_turn` takes what it can from it: in a state with text it looks for live markers, in a call it lets the codec's
reader read. Every piece taken becomes one event with its place in characters and tokens.

Text is held back only while it could still become (part of) a marker that is live in its state, or white space that such a marker owns;
the first token that decides releases it. A call's events are kept back until its name is known: until then it may turn out to be no
call, and then all of it is content. A header's events likewise wait for its end (`unbraid.header`).
"""

from __future__ import annotations

import codecs
import itertools
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Literal

from unbraid.alphabet import token_bytes
from unbraid.call_ids import NewIds
from unbraid.codecs.base import HEADER_LIMIT, Outcome, Reader
from unbraid.events import CallArguments, CallEnd, CallStart, Control, Diagnostic, Event, Markup, Strand, Text
from unbraid.gathered import ArgumentsPiece, Call, Segment, folded
from unbraid.header import LIMIT, RECIPIENT, Head, as_content
from unbraid.memo import LONGEST
from unbraid.message import Message
from unbraid.native import mypyc_attr
from unbraid.notes import Notes
from unbraid.program import Program, Row, owned_before
from unbraid.schema import Tools, Type
from unbraid.search import FIRST, LAST, Search
from unbraid.table import ANY, ENDED, START, Marker, State, thinks
from unbraid.trial import Trial

FinishReason = Literal["stop", "length"]
_NO_PROMPT: Final = (0, "", 0, ())
ID_LIMIT: Final = 128
"""An id of a call has at most so many characters: a longer one is garbage."""
_BY_PLACE: Final = attrgetter("offset", "kind")
MOST_RETRIES: Final = 16
"""How often text that was held for a call that never was may be held again because of markers in it."""


def _one(run: list[Any]) -> Markup:
    """Neighbouring stretches of markup as one."""
    first, last, raw = run[0], run[-1], "".join([event.raw for event in run])
    return Markup.make("markup", raw, first.start, last.stop, first.token_start, last.token_stop)


def joined(held: list[Any]) -> list[Any]:
    """What was kept back, to be handed on: neighbouring stretches of markup are one, but for the first, which is the marker."""
    out: list[Any] = []
    for kind, group in itertools.groupby(held, type):
        run = list(group)
        if kind is Markup and len(run) > 2:
            run[1:] = [_one(run[1:])]
        out += run
    return out


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Interpreter:
    """The state of one stream, and all that works out what comes next of it. Users meet it as `unbraid.Parser`."""

    __slots__ = (
        "_absorb",
        "_announced",
        "_apart",
        "_asked",
        "_at",
        "_before",
        "_blank_only",
        "_buffer",
        "_bytes",
        "_call",
        "_calls",
        "_chosen",
        "_consulted",
        "_done",
        "_finished",
        "_framed",
        "_fresh",
        "_head",
        "_held",
        "_ids",
        "_index",
        "_last",
        "_lead",
        "_mark",
        "_new_ids",
        "_notes",
        "_open",
        "_out",
        "_parts",
        "_preface",
        "_prepared",
        "_prepend",
        "_private",
        "_program",
        "_queue",
        "_queued",
        "_quiet",
        "_quote",
        "_reader",
        "_reason",
        "_refused_at",
        "_retries",
        "_row",
        "_said",
        "_seed",
        "_silent",
        "_since",
        "_skip",
        "_special",
        "_starts",
        "_text",
        "_thinking",
        "_thought",
        "_token",
        "_tools",
        "_trial",
        "_tried",
        "_unknown",
        "_vain",
        "_whole",
        "_written",
        "called",
        "diagnostics",
    )

    _row: Row
    _since: int
    """Character from which on the reader has been asked itself: see `missed`."""

    def __init__(
        self,
        program: Program,
        tools: Sequence[Mapping[str, Any]] | Tools | None,
        thinking: bool | None,
        silent: bool = False,
    ) -> None:
        """It stands nowhere yet: `_begin`, or `_stand` in a place that is known.

        These are the fields that what is remembered needs. One is made for every request, and many never need the others.
        """
        self._program = program
        self._tools = tools
        """As they were given, until one is asked for."""
        self._thinking = thinking
        self._silent = silent
        self._quiet = False
        """Nobody wants the events, only the message: of what was met before none are made."""
        self.diagnostics: list[Diagnostic] = []
        self._seed: tuple[int, Sequence[int] | str, int, tuple[str, ...]] = _NO_PROMPT
        """What the ids of calls are made from, besides their number and name: length and end of the prompt, the choice, earlier ids."""
        self._new_ids: NewIds | None = None
        self._ids: set[str] | None = None
        """Ids that no call may have: earlier ones, and those that the model wrote itself."""
        self._at = 0
        self._token = 0
        self._held: list[Any] | None = None
        self._head: Head | None = None
        self._apart = False
        """The next text belongs to another message than the last."""
        self._said = False
        self._thought = False
        self._reader: Reader | None = None
        self._call: Call | None = None
        self._index = 0
        self._calls: list[Call] = []
        self._parts: list[Segment | Call] = []
        self._finished = False
        self._prepared = False

    def _prepare(self) -> None:
        """The fields that only working things out needs."""
        self._prepared = True
        self._buffer = ""
        self._queue: list[str] | None = None
        self._queued = 0
        """White space that came behind `_buffer` while only something else can decide: not yet joined to it."""
        self._blank_only = False
        self._bytes = b""
        self._special = False
        """The text being taken may hold special tokens as characters."""
        self._absorb = ""
        self._lead = False
        """Nothing but white space has come since the state was entered, and alone it would be markup."""
        self._done = 0
        self._starts: list[int] = []
        """Where tokens begin that no event covers yet, counted as `_done` counts."""
        self._skip = 0
        """Characters at the head of `_buffer` that belong to the prompt."""
        self._chosen: Head | None = None
        self._framed = False
        """The open call has a header and a terminator around its body: they're markup whatever the body is."""
        self.called = ""
        """The name that the call's header gives."""
        self._text = ""
        self._mark = 0
        self._open: list[Call] = []
        """Calls of a unit whose body is over while the unit's isn't: they are complete, or not, together."""
        self._trial: Trial | None = None
        self._before = ""
        """What the prompt wrote of the body being read."""
        self._last: tuple[str, Sequence[Call]] = "", ()
        """What the prompt wrote of the body of the last unit, and its calls."""
        self._announced = False
        """A marker led to this state, so that text that proves to be no call is worth a word."""
        self._fresh = False
        """Nothing but white space has come since a state was entered in which a call may begin without a marker."""
        self._tried = 0
        self._retries = 0
        self._quote: Literal["", "content", "markup"] = ""
        """The call being read is no call for the reader: its text is content, or nothing."""
        self._refused_at = 0
        """Where in the buffer the reader, which has failed, met what could still become a marker."""
        self._reason: FinishReason | None = None
        self._vain = False
        """A section of calls was opened, and no call has been opened in it."""
        self._notes = Notes(self.diagnostics)
        self._unknown: list[tuple[int, int]] = []
        """Where ids stand, counted as `_done` counts, that the vocabulary doesn't have; and the ids. Not noted yet."""
        self._preface: list[Event] = []
        """What the prompt left open, said again with the first events of the output."""
        self._out = self._preface
        self._prepend = ""
        self._consulted = False
        """Where the machine stands may depend on the offered tools."""
        self._private = False
        """Something of the request was asked for: what the token did holds for this request only."""
        self._asked: Any = None
        """A parameter whose type was asked for, and the character at which its value begins: what the token did holds for this type."""
        self._whole: Any = None
        """The character at which a value ended that was read whole, and its JSON: what the token did depends on all of the value."""

    @property
    def tools(self) -> Tools:
        """The offered tools."""
        self._private = True
        return self._offered()

    def _offered(self) -> Tools:
        self._consulted = True
        tools = self._tools
        if not isinstance(tools, Tools):
            tools = self._tools = Tools.resolve(tools)
        return tools

    # What a machine that remembers does otherwise: see `unbraid.machine`

    def _resume(self) -> None:
        """Something is to be worked out: what waits must be in the fields."""

    def _settle(self) -> None:
        """It has been."""

    def _unhold(self) -> list[Any]:
        """Keep nothing back any more. What was: as events, neighbours in markup as one."""
        held, self._held = self._held, None
        return joined(held or [])

    # From tokens to text

    def _read_ids(self, ids: list[int]) -> list[Event]:
        """The tokens' text, and where each begins in it, to the machine."""
        self._resume()
        at = self._done + len(self._buffer) + self._queued + (self._trial.size if self._trial else 0)
        alphabet = self._program.alphabet
        known = list(map(alphabet.pieces.get, ids))
        if self._bytes or None in known:
            pieces = self._decoded(ids, at)
        elif len(ids) == 1:
            pieces = known  # type: ignore[assignment]
            self._starts.append(at)
        else:
            pieces = known  # type: ignore[assignment]
            starts = itertools.accumulate(map(len, pieces), initial=at)
            self._starts += itertools.islice(starts, len(pieces))
        if not alphabet.tokens.isdisjoint(ids):
            self._special = True
        return self._push("".join(pieces))

    def _decoded(self, ids: list[int], at: int) -> list[str]:
        """The same where some tokens aren't whole characters, weren't met before, or aren't in the vocabulary."""
        pieces: list[str] = []
        for token in ids:
            self._starts.append(at)
            piece = self._program.alphabet.piece(token)
            if piece is None:
                self._unknown.append((at, token))
                continue
            if isinstance(piece, bytes) or self._bytes:
                piece, self._starts[-1] = self._decode(piece, at)
            pieces.append(piece)
            at += len(piece)
        return pieces

    def _decode(self, piece: str | bytes, at: int) -> tuple[str, int]:
        """Text of a token whose bytes aren't whole characters, or that follows such a one; and where its first byte stands."""
        data = token_bytes(piece)
        if data is None:  # a special token: what is pending will never be a character
            lost, self._bytes = self._bytes.decode("utf-8", "replace"), b""
            self._special = True
            return lost + str(piece), at + len(lost)
        pending, self._bytes = self._bytes, b""
        text, used = codecs.utf_8_decode(pending + data, "replace", False)
        self._bytes = (pending + data)[used:]
        if pending and data:
            joined, _ = codecs.utf_8_decode(pending + data[:1], "replace", False)
            whole = not joined or (len(joined) == 1 and joined != "\ufffd")
            return text, at if whole else at + 1
        return text, at

    # What comes out

    def _push(self, text: str) -> list[Event]:
        self._resume()
        if self._blank_only and len(self._buffer) > LONGEST and text.isspace():
            if self._queue is None:
                self._queue = []
            self._queue.append(text)
            self._queued += len(text)
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
        text = self._buffer + "".join(self._queue)
        self._queue = None
        self._queued = 0
        return text

    def _deliver(self, event: Any) -> None:
        """Hand an event on, and fold it into the message."""
        if self._held is not None:
            self._held.append(event)
            return
        if self._head is not None:
            self._head.events.append(event)
            return
        kind = type(event)
        if kind is Text and event.text:
            segment = self._segment(event.strand)
            if segment.later and not segment.pieces:
                segment.pieces.append(event.text)
                event = event.replace(text=self._program.format.join + event.text)
            else:
                segment.pieces.append(event.text)
        self._out.append(event)
        if kind is CallArguments:
            if event.delta or event.raw:
                self._calls[event.index].pieces.append(ArgumentsPiece.of(event.delta, event.raw))
        elif kind is CallStart:
            self._call = call = Call(event.index, event.id, event.name)
            self._calls.append(call)
            self._parts.append(call)
        elif kind is CallEnd:
            self._calls[event.index].outcome = event.outcome

    def _segment(self, strand: Any) -> Segment:
        """Where text of this strand is gathered that comes next."""
        if strand == "content":
            later, self._said = self._said, True
        else:
            later, self._thought = self._thought, True
        last = self._parts[-1] if self._parts else None
        if self._apart or not isinstance(last, Segment) or last.strand != strand:
            last = Segment()  # as events are made, see there
            last.strand, last.pieces = strand, []
            last.later = later and self._program.format.join != ""
            self._apart = False
            self._parts.append(last)
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
            if starts[-1] < done:
                self._token = token + len(starts)
                starts.clear()
            else:
                count = bisect_left(starts, done)
                del starts[:count]
                self._token = token + count
        if self._unknown:
            self._note_unknown(start, piece, done)
        if self._notes.quoting:
            self._notes.quote(start, raw)
        event = cls()
        event.strand, event.raw, event.start, event.stop = strand, raw, start, stop
        event.token_start, event.token_stop = token, self._token
        if rest:
            for name, value in zip(cls.fields[-len(rest) :], rest, strict=True):
                setattr(event, name, value)
        return event

    def _emit(self, strand: Literal["reasoning", "content"], piece: str) -> None:
        """A piece of reasoning or content."""
        event = self._event(Text, strand, piece, "")
        if event.raw or event.token_stop > event.token_start:
            prepend, self._prepend = self._prepend, ""
            event.text = prepend + event.raw
            self._deliver(event)

    def _emit_markup(self, strand: Literal["markup", "control"], piece: str, *, token: bool = False) -> None:
        """A piece that is nobody's text. `token`: it is one marker or control token, which policy may want to see."""
        event = self._event(Control if strand == "control" else Markup, strand, piece)
        if event.raw or event.token_stop > event.token_start:
            if self._quote == "content" or (token and event.raw.strip() in self._program.keep):
                event = as_content(event)
            self._deliver(event)

    # Diagnostics: see `unbraid.notes`

    def _note(self, kind: str, message: str, at: int = 0) -> None:
        """Note something so many characters of output behind what has been said."""
        self._note_at(self._at + at, kind, message)

    def _note_at(self, offset: int, kind: str, message: str) -> None:
        if not self._notes.add(Diagnostic(kind, self._program.format.name, self._row.state.name, offset, message)):
            self._private = True  # not remembered, as if it were listed

    def _note_stretch(self, kind: str, message: str, piece: str) -> None:
        """A diagnostic of the next piece of the stream. Pieces of a kind that follow each other are one, and so is white space
        between them."""
        if not self._notes.goes_on(kind, self._at):
            if piece.isspace():
                return
            self._note(kind, message, at=self._length(piece[: len(piece) - len(piece.lstrip())]))
        self._notes.extend(kind, self._at + self._length(piece))

    def _note_stray_markers(self, piece: str) -> None:
        """Of special tokens in text that mean something elsewhere in the format: each."""
        at, done = 0, min(self._skip, len(piece))
        for stop in self._program.alphabet.own_in(piece):
            if stop >= done:
                at += len(self.expand(piece[done:stop]))
                done = stop
                self._note("stray_marker", "a marker that means nothing here is text", at=at)

    def _note_unknown(self, start: int, piece: str, done: int) -> None:
        """Ids that no vocabulary has, before a character of this piece: it ends at `done`, counted as they are, and begins at
        character `start` of the output."""
        first = at = done - len(piece)
        count = 0
        for stop, token in self._unknown:
            if stop >= done:
                break
            count += 1
            if stop > at:
                start += len(self.expand(piece[at - first : stop - first]))
                at = stop
            self._note_at(start, "unknown_token", f"id {token} isn't in the vocabulary")
        del self._unknown[:count]

    def _forget_notes(self) -> None:
        self._notes.forget()
        self._unknown.clear()

    @property
    def _notes_on(self) -> bool:
        """Whether what comes next belongs to a diagnostic that has been begun, or that is still to be."""
        return bool(self._unknown) or self._notes.awaits(self._at)

    def _length(self, piece: str) -> int:
        """How many characters of output the next piece of the stream is."""
        return len(self.expand(piece[self._skip :]))

    # States

    def _begin(self, state: State) -> None:
        """Where the output begins, unless the prompt says otherwise."""
        self._prepare()
        self._prepend = state.prepend
        self._enter(state)

    def _enter(self, state: State) -> None:
        state = self.led_to(state)
        self._row = self._program.rows[state]
        self._reader = None
        if state.odd:
            self._note(state.odd, f"a message that is {state}")
        self._head = None
        if state.capture:
            self._head = Head(state.capture)
            self._apart = True
            self._lead = False
            return
        if state.codec:
            self._reader = self._program.codecs[state].reader(self)
            self._text, self._mark = "", 0
            self._reader.begin()
        if state.spaced and self._program.ids:
            self._absorb = " "
        blank = state.blank
        self._fresh = bool(self._row.trials)
        self._announced = False
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
        return not thinks(self.led_to(START) if state.header else state)

    @property
    def program(self) -> Program:
        """What it runs by."""
        return self._program

    @property
    def row(self) -> Row:
        """The row of the state in which it stands."""
        return self._row

    def led_to(self, target: State) -> State:
        """The state that a marker leads to whose target is this: at the start of a message it hangs on whether thinking is on."""
        return self._program.format.starts(self._thinking, prompted=True) if target is START else target

    def _turn(self) -> None:
        """Take from the buffer what can be decided."""
        while True:
            if self._absorb:
                self._take_absorbed()
            if (self._trial or self._fresh) and (decided := self._try()) is not None:
                if decided:
                    continue
                break
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
            count = len(self._out)
            self._emit_markup("markup", text[:at])
            self._buffer = text[at:]
            if 0 < count < len(self._out) and type(self._out[-2]) is Markup is type(self._out[-1]):
                self._out[-2:] = [_one(self._out[-2:])]

    # Calls that nothing announces

    def _try(self) -> bool | None:
        """Read on trial. True: something was decided; False: more must come; None: nothing to try here, the text is the state's."""
        trial = self._trial
        if trial is None:
            trial = self._trial = self._begin_trial()
            if trial is None:
                return None if self._reason is not None or (self._buffer.strip() and not self._half_begun()) else False
            self._buffer = self._buffer[len(trial.lead) :]
        text = self._buffer
        ender = self._special and trial.row.ender and trial.row.ender.search(text)
        if ender:
            text = text[: ender.start()]
        final = bool(ender) or self._reason == "stop"
        at = trial.read(text, final) if not trial.reader.done and text else 0
        text, self._buffer = text[at:], self._buffer[at:]
        verdict = self._judge(trial, text, final, bool(ender) or self._reason is not None)
        self._blank_only = verdict < 0 and (trial.waits or (trial.reader.done and self._buffer.isspace()))
        if verdict > 0:
            self._commit(trial)
        elif verdict == 0:
            self._refuse(trial)
        return verdict >= 0

    def _begin_trial(self) -> Trial | None:
        """What can be tried at the head of the buffer, if that is decided."""
        text, row = self._buffer, self._row
        at = len(text) - len(text.lstrip())
        self._blank_only = at == len(text) and self._reason is None
        if at == len(text):
            return None
        if FIRST <= ord(text[at]) <= LAST or row.match.match(text, at):
            return None
        if self._half_begun():
            self._blank_only = text[-1].isspace()
            return None
        if self._done + at < self._tried:  # markers in text that was held once count again, but not for ever
            self._retries += 1
        else:
            self._retries = 0
        return self._next_trial(0) if self._retries <= MOST_RETRIES else self._no_trial()

    def _half_begun(self) -> bool:
        """Whether the text at the head of the buffer can still become a marker or a separator before a call, or is one and white
        space that belongs to it: a reader would take what comes later for its own."""
        if self._reason is not None:
            return False
        text = self._buffer.lstrip()
        row = self._row
        return text in row.prefixes or any(
            separator.startswith(text) or (text.startswith(separator) and text[len(separator) :].isspace())
            for separators, _, _ in row.trials
            for separator in separators
        )

    def _next_trial(self, first: int) -> Trial | None:
        """The first trial of this state, from number `first` on, whose separator is there."""
        text = self._buffer
        at = len(text) - len(text.lstrip())
        for separators, marker, target in self._row.trials[first:]:
            stop = at
            if separators:
                found = next((s for s in separators if text.startswith(s, at)), "")
                if not found:
                    continue
                stop += len(found)
                stop += len(text[stop:]) - len(text[stop:].lstrip())
            return Trial(self._program, self, text[:stop], marker, target)
        return self._no_trial()

    def _no_trial(self) -> Trial | None:
        """No call can begin here any more."""
        self._fresh = False
        return None

    def _judge(self, trial: Trial, text: str, final: bool, over: bool) -> int:
        """Whether the text read on trial is a call: 1 yes, 0 no, -1 it can't be said yet. `text`: what follows; `over`: nothing more
        comes."""
        reader = trial.reader
        if trial.said and trial.marker.trial == "proven":
            return 1  # even if it failed since: had the text come in smaller pieces, it would have been said
        if reader.failed or reader.empty:
            return 0
        if trial.marker.trial == "alone" and not reader.done:
            whole = final and not text.strip() and reader.finish() == "complete"
            return int(whole) if over else -1
        if trial.marker.trial != "proven":
            return trial.judge(text, over) if reader.done else 0 if over else -1
        if reader.done:
            return 1
        if not over:
            return -1
        return int(reader.finish() in ("complete", "whole") if final else reader.proven)

    def _commit(self, trial: Trial) -> None:
        """It is a call: say so, as if that had been known from the beginning."""
        self._trial = None
        rest = self._buffer
        body = trial.body
        self._buffer = trial.lead + body + rest
        if trial.lead:
            self._emit_markup("markup", trial.lead)
        self._open_call()
        self._row, self._reader = trial.row, trial.reader
        self._fresh = False
        self._text, self._mark = body, 0
        trial.replay()
        self._lead = False
        if trial.reader.failed:
            self._refused(trial.reader, body + rest, len(body))
            return
        self._body(len(body))
        self._buffer = rest
        self._body_over(trial.reader)

    def _refuse(self, trial: Trial) -> None:
        """It is no call: try the next thing that it may be, or go on as if nobody had tried."""
        self._tried = max(self._tried, self._done + trial.size)
        self._buffer = trial.lead + trial.body + self._buffer
        number = next(
            n for n, (_, m, target) in enumerate(self._row.trials) if m is trial.marker and target is trial.target
        )
        self._trial = self._next_trial(number + 1)
        if self._trial is not None:
            self._buffer = self._buffer[len(self._trial.lead) :]
        elif trial.reader.named or (self._announced and trial.marker.trial == "proven"):
            said = trial.reader.failed or trial.doubt or "what began like a call is none"
            self._note("no_call", said, at=self._length(self._buffer[: trial.size]))

    def _rewind(self) -> None:
        """Forget what was read on trial, to read it again."""
        if self._trial is not None:
            self._buffer = self._trial.lead + self._trial.body + self._buffer
            self._trial = None

    def _scan(self) -> None:
        """In a state with text: up to the next marker, or all that is decided."""
        row, text, final = self._row, self._buffer, self._reason is not None
        stop = len(text)
        at = 0
        self._blank_only = False
        search = row.special if self._special else row.search
        while True:
            at = search.find(text, at)
            if at == stop:
                break
            rest = stop - at
            if not final and row.opens(text, at):
                break
            if found := row.match.match(text, at):
                marker, target = row.targets[found.lastindex - 1]  # type: ignore[operator]
                end: int | None = found.end()
                counts = (
                    self._counts(marker, at, found.end())
                    if marker.first or marker.whole or marker.quoted != "anywhere"
                    else 1
                )
                if counts and marker.end and not (end := self._whole_marker(marker, found.end())):
                    counts = 0 if end is None else -1
                if counts > 0:
                    self._at_marker(marker, target, at, end or 0)
                    return
                if counts < 0:
                    break
            if FIRST <= ord(text[at]) <= LAST and self._program.ids and text[at] not in self._program.alphabet.own:
                self._at_control(row, at)
                return
            if (
                final
                and self._reason == "length"
                and text[at:] in row.cuts
                and (rest > 1 or FIRST <= ord(text[at]) <= LAST)
            ):
                self._text_until(at)  # a marker that was cut off: nobody wants to read half of it
                self._note("cut_marker", f"{text[at:]!r} is the beginning of a marker")
                self._emit_markup("markup", self._buffer)
                self._buffer = ""
                return
            at += 1
        if final or row.state.capture:
            self._text_until(at)
        else:
            cut = row.held_from(text, 0, at)
            if self._lead and not text[:at].strip():
                cut = 0
            self._text_until(cut)
            self._blank_only = (self._lead or row.any_before) and self._buffer.isspace()

    def _counts(self, marker: Marker, at: int, stop: int) -> int:
        """Whether what looks like a marker is one where it stands: 1; 0: no; -1: it can't be said yet."""
        if marker.first and (at or not self._lead):
            return 0
        text, row = self._buffer, self._row
        if marker.quoted == "closing" and not self._program.ids:
            return self._closes_message(stop)
        if not marker.whole:
            return 1
        if stop == len(text):
            return -1 if self._reason is None else 1
        if marker.after and (marker.after == ANY or text[stop] == marker.after[0]):
            return 1
        if self._reason is None and row.opens(text, stop):
            return -1
        return 1 if row.match.match(text, stop) else 0

    def _whole_marker(self, marker: Marker, at: int) -> int | None:
        """Where a marker with a body ends that begins before `at`; 0: it can't be said yet; `None`: it is none."""
        text = self._buffer
        limit = at + HEADER_LIMIT
        while at < len(text) and at < limit and text[at] in marker.body:
            at += 1
        if at < len(text) or self._reason is not None:
            return at + 1 if text[at : at + 1] == marker.end else None
        return 0

    def _closes_message(self, stop: int) -> int:
        """The same for a marker that a body may quote: it counts before a marker that opens a turn, or at the end."""
        rest = self._buffer[stop : stop + self._program.turns.longest]
        openers = self._program.turns.openers
        if not rest or any(text.startswith(rest) and text != rest for text, _, _ in openers):
            return -1 if self._reason is None else int(not rest)
        return int(any(rest.startswith(text) for text, _, _ in openers))

    def _at_control(self, row: Row, at: int) -> None:
        """A special token stands at `at` that the format doesn't know: nobody's text."""
        blank = self._lead and not self._buffer[:at].strip()
        if row.state.capture:
            if self._overflows(at):
                return
            self._take_head(at)
        elif blank:
            self._emit_markup("markup", self._buffer[:at])
            self._buffer = self._buffer[at:]
        else:
            self._text_until(at)
        if self._row is row:
            self._emit_markup("control", self._buffer[:1], token=True)
            self._buffer = self._buffer[1:]

    def _text_until(self, at: int) -> None:
        """The buffer up to `at` is text of this state."""
        piece = self._buffer[:at]
        if not piece:
            return
        state = self._row.state
        if state.capture:
            if self._overflows(at) or self._reason is None:
                return
            self._take_head(at)
            return
        if self._lead:
            if not piece.strip():
                if self._reason is None:
                    return
                if state.strand != "control":
                    self._emit_markup("markup", piece)
                    self._buffer = self._buffer[at:]
                    return
            self._lead = False
        if self._fresh and piece.strip():
            self._fresh = False
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
            elif state.strand == "markup":
                blank = piece[: len(piece) - len(piece.lstrip())]
                self._note("stray_text", "no place for it here: it is content", at=self._length(blank))
            self._enter(state.otherwise)
            self._fresh = False  # this place has been tried
            return
        if state.strand in ("reasoning", "content"):
            if self._special:
                self._note_stray_markers(piece)
            self._emit(state.strand, piece)
        else:
            if not (state.header or state.odd):
                self._note_stretch("stray_text", "no place for it here", piece)
            self._emit_markup("markup", piece)
        self._buffer = self._buffer[at:]

    def _at_marker(self, marker: Marker, target: State, at: int, stop: int) -> None:
        """A live marker stands at `at` of the buffer, up to `stop`: say what stands before it, and go where it leads."""
        left = self._row.state
        if left.capture:
            if not self._leave_head(marker, target, at, stop):
                return
            at, stop = 0, stop - at
        if marker.inline:
            self._take_inline(at, stop)
            return
        begins = self._take_before(marker, at)
        if begins < 0:
            return
        at, stop = begins, stop - (at - begins)
        framed = left.capture is not None or bool(target.routes)
        if target.routes:
            target, self.called = self._route(target, self._buffer[at:stop])
        if left.codec is not None:
            self._leave_body(marker, target)
        if marker.peek:
            stop = at
        if target.codec is not None:
            stop = self._open_body_at(stop, framed)
        if marker.note:
            self._note(marker.note, f"{str(marker).strip()!r} isn't how the format says it", at=at)
        control = target is ENDED or marker.control or marker in self._program.format.turns
        self._watch_section(marker, target, control)
        self._take_marker(marker, stop, control, opens=target.codec is not None)
        self._absorb = "" if marker.peek else marker.after
        self._enter(target)
        self._announced = marker not in self._program.format.turns and not self._program.begins_in(self._row.state)

    def _take_inline(self, at: int, stop: int) -> None:
        """A marker that leads nowhere: nobody's text, amid the text of its state."""
        piece, rest = self._buffer[at:stop], self._buffer[stop:]
        self._lead = False
        self._text_until(at)
        self._emit_markup("markup", piece)
        self._buffer = rest

    def _take_before(self, marker: Marker, at: int) -> int:
        """The text before a marker, but for the white space that it owns. Returns where the marker stands then; -1: it is looked at
        again, from where the text led to, or with what was kept of it."""
        row, text = self._row, self._buffer
        owned = owned_before(text, at, 0, marker.before) if marker.before else at
        if not owned or (self._lead and not text[:owned].strip()):
            return at
        self._text_until(owned)
        if self._row is not row or not self._buffer or len(self._buffer) > len(text) - owned:
            return -1
        return at - owned

    def _leave_body(self, marker: Marker, target: State) -> None:
        """A marker ends what follows a call's body. Only the closer of a call that is quoted is quoted with it."""
        self._close_call()
        if target.strand == "tool_call" or marker in self._program.announcing or self._framed:
            self._quote = ""

    def _open_body_at(self, stop: int, framed: bool) -> int:
        """A marker that ends at `stop` opens a call. Returns where the marker ends in what is left: behind a header it's markup already."""
        self._framed = framed
        if framed and stop:
            self._emit_markup("markup", self._buffer[:stop])
            self._buffer = self._buffer[stop:]
            stop = 0
        elif not framed:
            self.called = ""
        self._open_call()
        return stop

    def _watch_section(self, marker: Marker, target: State, control: bool) -> None:
        """Note a section of calls that is left without any."""
        if target in self._program.sections:
            self._vain = self._vain or marker in self._program.announcing
        elif self._vain and (control or target.strand in ("content", "reasoning")):
            self._note_vain()

    def _take_marker(self, marker: Marker, stop: int, control: bool, opens: bool) -> None:
        """The buffer up to `stop` is the marker. Unless it `opens` a call, what was quoted is over: with it, or before it if it is control."""
        piece, self._buffer = self._buffer[:stop], self._buffer[stop:]
        if control and not opens:
            self._quote = ""
        if piece and marker.shown:
            self._emit("content", piece)
        elif piece:
            self._emit_markup("control" if control else "markup", piece, token=True)
        if not opens:
            self._quote = ""

    # Headers

    def _overflows(self, at: int) -> bool:
        """Whether the header would be too long with the text up to `at`: then it is none, and its text goes where text goes."""
        head, state = self._head, self._row.state
        assert head is not None
        assert state.otherwise is not None
        if at + head.size <= LIMIT:
            return False
        self._take_role(at)
        self._end_head(sound=False, overflow=True)
        self._enter(state.otherwise)
        return True

    def _take_head(self, at: int) -> None:
        """The buffer up to `at` belongs to the header."""
        head, state = self._head, self._row.state
        assert head is not None
        assert state.capture is not None
        at -= self._take_role(at)
        if at:
            piece, self._buffer = self._buffer[:at], self._buffer[at:]
            count = len(head.events)
            self._emit_markup("markup", piece)
            head.take(state.capture, piece, own=len(head.events) > count)

    def _take_role(self, at: int) -> int:
        """The first word of a header that begins with the turn's role: markup in any case. Returns how long it is."""
        head, state = self._head, self._row.state
        assert head is not None
        if state.capture != "role" or head.has_role:
            return 0
        text = self._buffer[: min(at, LIMIT)]
        lead = len(text) - len(text.lstrip())
        stop = lead + len(text[lead:].split(None, 1)[0]) if lead < len(text) else 0
        if stop == LIMIT or text[lead:stop].startswith(RECIPIENT):
            return 0
        if stop:
            self._emit_markup("markup", text[:stop])
            head.take("role", text[:stop], own=False)
            self._buffer = self._buffer[stop:]
        return stop

    def _leave_head(self, marker: Marker, target: State, at: int, stop: int) -> bool:
        """A marker stands in a header. Whether it ends it: not if it leads to the next part, or if this is no header at all."""
        head = self._head
        assert head is not None
        if self._overflows(at):
            return False
        self._take_head(at)
        opens_turn = marker in self._program.format.turns
        if target.capture and not opens_turn:
            piece, self._buffer = self._buffer[: stop - at], self._buffer[stop - at :]
            self._emit_markup("markup", piece)
            head.begin(target.capture)
            self._absorb = marker.after
            self._row = self._program.rows[target]
            return False
        self.called = head.words
        if opens_turn or target.otherwise is not None or target is ENDED:
            self._end_head(sound=False)
        else:
            state = self._row.state
            if target.routes and state.otherwise and head.choose(target.routes, self._offers)[0] is None:
                self._end_head(sound=False)
                self._enter(state.otherwise)
                return False
            self._end_head(sound=True, keep=bool(target.routes))
        return True

    def _end_head(self, *, sound: bool, keep: bool = False, overflow: bool = False) -> None:
        """The header is over: `sound`, or it was none. `keep`: it is still to choose. `overflow`: more of its text follows."""
        head, self._head = self._head, None
        assert head is not None
        blank = head.blank() and not overflow
        if not (sound or blank):
            self._note("no_header", "text where a header was expected is content")
        for event in joined(head.events) if sound or blank else head.as_text():
            self._deliver(event)
        self._chosen = head if keep else None

    def _route(self, junction: State, marker: str) -> tuple[State, str]:
        """Where the header that has just ended leads. Without any, the marker that leads here is the header."""
        head, self._chosen = self._chosen, None
        if head is None:
            head = Head("head")
            head.take("head", self._program.alphabet.expand(marker), own=False)
            self._apart = True
        state, name = head.choose(junction.routes, self._offers)
        return state or self._program.format.content, name

    def _offers(self, name: str) -> bool:
        """Whether there is a tool of this name."""
        return name in self.tools

    def _resume_head(self) -> None:
        """The prompt ends inside a header: what it wrote of it is no output, and counts."""
        head, row, text = self._head, self._row, self._buffer
        if head is None or row.state.capture is None:
            return
        head.forget()
        begun = next((n for n in range(min(len(text), row.search.longest - 1), 0, -1) if text[-n:] in row.prefixes), 0)
        head.take(row.state.capture, text[: len(text) - begun], own=False)
        self._buffer = text[len(text) - begun :]

    def _cut_head(self) -> None:
        """The stream ends inside a header."""
        head, state = self._head, self._row.state
        assert head is not None
        begun = state.cut == "markup" or any(name.startswith(head.words) for name in self.tools.names)
        sound = self._reason == "length" and begun
        if sound and not head.blank():
            self._note("cut_header", "the turn was cut off inside a header: its beginning is nobody's text")
        self._end_head(sound=sound)

    # Calls: what happens around a body

    def _open_call(self) -> None:
        """An opening marker: whether a call follows is known when its name is."""
        self._call = None
        self._before = ""
        self._vain = False
        if self._silent:
            self._quote = "content" if self._program.policy.tool_choice_none == "passthrough" else "markup"
        elif self._held is None and not self._framed:
            self._held = []

    def _read(self) -> None:
        """In a call's body: let the reader read."""
        reader = self._reader
        assert reader is not None
        text = self._text = self._buffer
        self._mark = 0
        if self._framed and text and self._call is None and self._held is None and not self._quote:
            self._held = []  # what the marker owned was markup
        ender = self._special and self._row.ender and self._row.ender.search(text)
        if ender:  # the turn ends here, whatever the body says
            self._text = text[: ender.start()]
        if reader.failed:
            at = self._refused_at
        else:
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
        if reader.empty and self._announced_at(self._text, at):
            reader.failed = "what was announced doesn't follow"
        if reader.failed:
            if not ender and self._reason is None and self._row.opens(text, at):
                self._refused_at = at - self._mark
                self._buffer = text[self._mark :]
                return
            if self._was_mentioned():
                self._buffer = text[self._mark :]
                return
            self._refused(reader, text, at)
            return
        self._body(at)
        self._buffer = text[at:]
        self._blank_only = reader.waits_on_blank
        self._body_over(reader)

    def _refused(self, reader: Reader, text: str, at: int) -> None:
        self._note(
            "malformed_call",
            f"{reader.failed}; the call is {self._fate()}",
            at=self._length(text[self._mark : at]),
        )
        self._malformed(text, at)

    def _body_over(self, reader: Reader) -> None:
        """Whether the body is over, and then what follows from it."""
        if not (reader.done or reader.empty):
            return
        if (reader.empty or not self._framed) and self._opened_for_nothing():
            self._note("empty_call", "a call was opened, and none is in it")
        self._reader = None
        self._blank_only = False
        if reader.unit and reader.done:
            self._release()
            self._call = None
            self._end_unit("complete")
        if reader.empty:
            self._release()
        self._lead = True  # white space behind a body is the format's unless text follows it
        if (then := self._row.state.then) is not None:
            self._close_call()
            self._quote = ""
            self._enter(then)

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
        if self._held is not None:  # delivered at once, it will be another call's
            call.pieces.append(ArgumentsPiece.of("", event.raw))
        if event.raw or event.delta or event.token_stop > event.token_start:
            self._deliver(event)

    # The sink of a reader: see `unbraid.codecs.base.Sink`

    def parameter(self, stop: int, name: str, key: str) -> Type:
        if self._call is None or self._asked is not None:  # it can't be asked again, or is but one of several questions
            self._private = True
        else:
            self._asked = key, self._at + self._length(self._text[self._mark : stop])
        return self._offered().parameter(name, key)

    def value_end(self, end: int, json: str) -> None:
        if self._call is None or self._whole is not None:
            self._private = True
        else:
            self._whole = self._at + self._length(self._text[self._mark : end]), json

    def missed(self, text: bool) -> tuple[str, list[tuple[str, Type]], str]:
        call = self._call
        if call is None:
            return "", [], ""
        begun, call.missed = call.missed, []
        start = begun[-1][2] if begun else self._since
        return call.name, [(key, kind) for key, kind, _ in begun], call.end(self._at - start) if text else ""

    def call_start(self, stop: int, name: str, id: str | None = None) -> None:
        piece = self._text[self._mark : stop]
        self._mark = stop
        # Of a call that is quoted nothing is remembered, not even its name.
        self._private = self._private or bool(self._quote)
        self._written = id or ""
        self.called = ""
        policy, lacking = self._program.policy, self._offered().lack(name)
        if not self._quote and lacking and policy.unknown_tool == "content":
            self._note("unknown_tool", f"no tool {name!r} was offered", at=self._length(piece))
            self._part_unit()
            self._as_text()
            self._quote = "content"
        if self._quote:
            self._emit_markup("markup", piece)
            return
        atomic = policy.calls == "atomic"
        index = len(self._calls) + (len(self._open) if atomic else 0)
        held = list(self._held or ()) if atomic else self._unhold()
        self._held = None
        event = self._event(CallStart, "tool_call", piece, index, self._accepted(id) or self._new_id(name, index), name)
        if atomic:
            self._call = Call(index, event.id, name)
            self._held = [*held, event]
        else:
            for earlier in held:
                self._deliver(earlier)
        self._begin_call(held, event, say=not atomic)
        if lacking:
            self._note("unknown_tool", f"no tool {name!r} was offered")

    def _begin_call(self, before: Sequence[Event], start: Any, *, say: bool = True) -> None:
        """A call has its name; `before`: what had been kept back for it. `say`: it is announced at once."""
        opening = [*before, start]
        if say:
            self._deliver(start)
        self._index = start.index
        assert self._call is not None
        self._call.opening = opening

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
        if self._reader is not None and self._reader.unit and self._call is not None:
            self._call_event(CallArguments, piece, "")
            self._open.append(self._call)
            self._call = None
            if self._held is None:
                self._held = []
            return
        self._end_call(piece, "complete")
        if self._held is None and self._reader is not None and not self._quote and not self._silent:
            self._held = []  # should another call of an array follow

    def marker_at(self, text: str, at: int, final: bool) -> int:
        return self._row.marker_at(text, at, final)

    def find_marker(self, text: str, at: int, stop: int) -> int:
        return self._row.find_marker(text, at, stop)

    @property
    def markers(self) -> Search:
        return self._row.search

    def opens_at(self, text: str, at: int) -> bool:
        return self._row.opens_at(text, at)

    def last_body(self) -> str:
        self._private = True
        before, calls = self._last
        return self._body_of(before, calls, "")

    def _open_body(self) -> str:
        """The same of the body that is being read, as far as it has been."""
        kept = itertools.takewhile(lambda event: event.strand != "tool_call", reversed(self._held or ()))
        gap = [event.raw for event in kept if event.strand == "markup"]
        calls = [*self._open, *([self._call] if self._call else ())]
        return self._body_of(self._before, calls, "".join(reversed(gap)))

    def _body_of(self, before: str, calls: Sequence[Call], rest: str) -> str:
        """The raw text of one body: what the prompt wrote of it, that of its calls, and what came behind them."""
        return self._program.behind_opener("".join((before, *[call.raw for call in calls], rest)))

    def note(self, kind: str, at: int, message: str) -> None:
        if self._notes.noted_before(kind, len(self._calls) + len(self._open)):
            self._private = True
            return
        self._note(kind, message, at=self._length(self._text[self._mark : max(self._mark, at)]))

    def expand(self, text: str) -> str:
        return self._program.alphabet.expand(text) if self._special else text

    def _accepted(self, id: str | None) -> str | None:
        """An id that the model wrote, if a client can tell calls apart by it: short, printable, new in this conversation."""
        if not id or len(id) > ID_LIMIT or not id.isprintable():
            return None
        if self._ids is None:
            self._ids = set()
        if id in self._ids:
            return None
        self._ids.add(id)
        return id

    def _new_id(self, name: str, index: int) -> str:
        """An id for a call that the model gave none. The same stream gives the same ids, another prompt gives others."""
        new = self._new_ids
        if new is None:
            new = self._new_ids = NewIds(self._program.format.ids.pattern, *self._seed)
        id = new.of(name, index)
        if new.counted:
            taken = self._ids = self._ids or set()
            while id in taken:
                index += 1
                id = new.of(name, index)
            taken.add(id)
        return id

    def _end_call(self, piece: str, outcome: Literal["complete", "incomplete", "withdrawn"]) -> None:
        call = self._call
        if call is None:
            if piece:
                self._emit_markup("markup", piece)
            return
        event = self._event(CallEnd, "tool_call", piece, call.index, outcome)
        for earlier in self._unhold():
            self._deliver(earlier)
        self._deliver(event)
        self._call = None

    def _end_unit(self, outcome: Literal["complete", "incomplete", "withdrawn"], before: Event | None = None) -> None:
        """The calls of a unit end together. `before`: an event that is there already and comes behind."""
        calls, self._open = self._open, []
        if outcome == "complete" and (calls or self._before):
            self._last = self._before, calls
        for call in calls:
            self._deliver(self._placed(self._event(CallEnd, "tool_call", "", call.index, outcome), before))

    def _part_unit(self) -> None:
        """The next call of a unit is none: those before it stand by themselves. What is kept back from then on comes behind them."""
        if not self._open:
            return
        held, self._held = self._held or [], None
        gap = next((at for at in range(len(held), 0, -1) if held[at - 1].strand == "tool_call"), 0)
        for event in joined(held[:gap]):  # of atomic delivery: they haven't been announced
            self._deliver(event)
        self._call = None
        self._end_unit("complete", held[gap] if gap < len(held) else None)
        self._held = held[gap:]

    def _placed(self, event: Any, before: Event | None) -> Any:
        """An event that covers nothing, put before another."""
        if before is None:
            return event
        start, token = before.start, before.token_start
        return event.replace(start=start, stop=start, token_start=token, token_stop=token)

    def _release(self) -> None:
        """What was kept back for a call that never came is markup."""
        for event in self._unhold():
            if type(event) is Markup and self._head is None:
                self._out.append(event)
            else:
                self._deliver(event)

    def _as_text(self, strand: Strand = "content") -> None:
        """What was kept back for a call is text after all."""
        held, self._held = self._held, None
        while held and held[0].strand == "control":  # and its white space
            self._deliver(held.pop(0))
            while held and not held[0].raw.strip():
                self._deliver(held.pop(0))
        if held:
            raw = "".join(event.raw for event in held)
            first, last = held[0], held[-1]
            self._deliver(Text.make(strand, raw, first.start, last.stop, first.token_start, last.token_stop, raw))

    def _dropped(self) -> None:
        """What was kept back is left out: it is nobody's text."""
        held, self._held = self._held, None
        for event in held or ():
            self._deliver(
                Markup.make("markup", event.raw, event.start, event.stop, event.token_start, event.token_stop)
            )

    def _withdraw(self, as_content: bool) -> None:
        """The open call is no call. If it was announced, say so; its text so far is content if policy wants it."""
        if self._call is not None:
            self._open.append(self._call)
            self._call = None
        held, self._held = self._held, None
        text = "".join(call.raw for call in self._open)
        if self._program.policy.calls == "atomic":  # they haven't been announced: all of them is in what is held
            self._open, text = [], ""
        before = held[0] if held else None
        self._end_unit("withdrawn", before)
        if as_content and text:
            self._deliver(self._placed(self._event(Text, "content", "", text), before))
        self._held = held
        if held is not None:
            self._as_text() if as_content else self._dropped()

    def _withdraw_rest(self) -> None:
        """What was read of the body, and what is left of it, is no call."""
        if self._quote:
            return
        as_content = self._program.policy.malformed_call == "content"
        self._withdraw(as_content)
        self._quote = "content" if as_content else "markup"

    def _fate(self) -> str:
        return (
            "passed on as content" if self._program.policy.malformed_call == "content" else "left out, as policy says"
        )

    def _malformed(self, text: str, at: int) -> None:
        """The body breaks its format at `at`: what was read and what follows, its closing marker included, is no call."""
        self._withdraw_rest()
        self._buffer = text[self._mark :]
        self._reader = None
        self._blank_only = False
        self._lead = False
        if self._row.state.then is not None and self._quote == "content":  # no marker will close what isn't one
            self._quote = ""
            self._enter(self._program.format.content)
            self._fresh = self._lead = False
            stop = at - self._mark  # up to here it has been refused, however it was cut: no marker is looked for in it
            if not stop and self._announced_at(self._buffer, 0):  # it would be taken for the beginning of a call again
                stop = 1
            if stop:
                self._emit("content", self._buffer[:stop])
                self._buffer = self._buffer[stop:]
            return
        stop = at - self._mark
        if stop < len(self._buffer) and not self._closed_at(stop):
            stop += 1  # whatever stands here has been refused: it must not be taken for the beginning of a call again
        if stop > 0:
            self._emit_markup("markup", self._buffer[:stop])
            self._buffer = self._buffer[stop:]

    def _was_mentioned(self) -> bool:
        """Read as text, an opener may be prose about the format: if no name follows, the text goes on as if it were none."""
        back = self._row.state.refused
        if back is None or self._program.ids or self._quote or self._call is not None:
            return False
        self._as_text(back.strand)
        self._reader = None
        self._enter(back)
        return True

    def _announced_at(self, text: str, at: int) -> bool:
        """Whether a marker stands here that only announces a body: the reader that refused it would be sent back to it."""
        match = self._row.match.match(text, at)
        return match is not None and self._row.targets[match.lastindex - 1][0].peek  # type: ignore[operator]

    def _closed_at(self, at: int) -> bool:
        """Whether a marker stands at `at` of the buffer that isn't the beginning of a call by itself."""
        row = self._row
        match = row.match.match(self._buffer, at)
        return match is not None and not row.targets[match.lastindex - 1][0].peek  # type: ignore[operator]

    def _after_body(self, piece: str) -> None:
        """Text between a body and the marker that should close it."""
        if self._quote:
            self._emit_markup("markup", piece)
            self._buffer = self._buffer[len(piece) :]
            return
        extent = len(piece) - len(piece.lstrip(" \t\r\n})]"))
        if surplus := len(piece[:extent].rstrip()):
            self._note_stretch("surplus_text", "brackets behind a call's body", piece[:surplus])
            self._emit_markup("markup", piece[:surplus])
            self._buffer = self._buffer[surplus:]
            self._lead = True
            return
        self._note("missing_closer", "text where a call's closing marker was expected")
        self._close_call()
        row = self._program.format.states.get(self._row.state, {})
        target = next((t for t in row.values() if t.strand != "tool_call"), ENDED)
        self._enter(target)

    def _opened_for_nothing(self) -> bool:
        """Whether a marker, or a header, opened the body that is being read, and no call has begun in it: it will be nobody's text."""
        if self._call is not None or self._open:
            return False
        return self._framed or self._opener_first()

    def _opener_first(self) -> bool:
        """Whether the first of what is kept back is the opener of a call: behind a call of an array it isn't."""
        return any(self._program.opens_call(event.raw) for event in (self._held or ())[:1])

    def _nothing_behind(self) -> bool:
        """Whether nothing but white space of a body is kept back: of a call behind a header nothing is kept back but its body."""
        return not any(event.raw.strip() for event in (self._held or [])[not self._framed :])

    def _kept_back(self) -> tuple[bool, bool] | None:
        """All that what comes next asks of what is kept back; `None`: there is nothing."""
        return (self._opener_first(), self._nothing_behind()) if self._held else None

    def _close_call(self) -> None:
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
        outcome = reader.finish()
        blank = not rest.strip() and self._nothing_behind()
        if not blank and outcome == "blank" and self._was_mentioned():
            return
        if self._row.state.unfinished == "incomplete" and (
            outcome == "malformed" or (outcome == "blank" and not blank)
        ):
            outcome = "incomplete"
        if outcome in ("blank", "nothing"):
            self._end_unnamed(reason, blank or outcome == "nothing", blank)
        elif (reason == "length" or outcome == "incomplete") and not self._quote:
            self._cut_call(blank)
        elif outcome in ("complete", "whole"):
            self._complete(reader, outcome)
        elif not self._quote:
            self._note("malformed_call", f"the turn ended inside the call; it is {self._fate()}")
            self._withdraw_rest()

    def _end_unnamed(self, reason: FinishReason, nothing: bool, blank: bool) -> None:
        """The turn ends before a call has its name. `nothing`: nothing of one has come; `blank`: no text either."""
        if nothing or reason == "length":
            if not self._quote and (not blank or self._opened_for_nothing()):
                self._note_lost(blank)
            self._release()
        else:
            self._note("malformed_call", "the turn ended before the call had a name")
            self._withdraw_rest()

    def _cut_call(self, blank: bool) -> None:
        """The turn is cut off inside a call, which is what policy makes of it. `blank`: see `_note_lost`."""
        policy = self._program.policy
        if self._call is None and not self._open:
            self._note_lost(blank)
            self._dropped()
        elif policy.truncated_call == "drop" or policy.calls == "atomic":
            self._note("incomplete_call", "the turn ended inside the call; it is left out, as policy says")
            self._withdraw(as_content=False)
        else:
            self._release()
            self._end_unit("incomplete")
            self._end_call("", "incomplete")

    def _note_vain(self) -> None:
        self._vain = False
        self._note("empty_call", "a section of calls was opened, and none is in it")

    def _note_lost(self, blank: bool) -> None:
        """The turn ends behind a call's opener, or where another call of an array would be. `blank`: nothing but white space has come
        behind its opener."""
        first = self._held[0].raw if self._held else ""
        if blank and not self._program.behind_opener(first).strip():
            self._note("empty_call", "a call was opened, and the turn ended")
        else:
            self._note("incomplete_call", "the turn ended before the call had a name: its beginning is nobody's text")

    def _complete(self, reader: Reader, outcome: Outcome) -> None:
        """The turn ends where the body lacks only its closer, or nothing."""
        if self._call is not None:
            if not self._framed and outcome == "complete":
                self._note("missing_closer", "the turn ended before the call was closed")
            self._text, self._mark = "", 0
            if rest := reader.tail():
                self._call_event(CallArguments, "", rest)
            self._end_call("", "complete")
        self._release()
        self._call = None
        self._end_unit("complete")

    def _end(self) -> None:
        """The stream's end: nothing may stay behind."""
        reason = self._reason or "stop"
        while self._reader is not None:
            state = self._row.state
            self._unfinished(reason, self._buffer)
            if self._row.state is not state:  # it was no call: there may be more behind its opener
                self._turn()
        if self._row.state.codec and self._call is not None:
            if reason == "length":
                self._end_call("", "incomplete")
            else:
                if not self._framed:
                    self._note("missing_closer", "the turn ended before the call was closed")
                self._end_call("", "complete")
        self._release()
        if self._head is not None:
            self._cut_head()
        if self._buffer:
            piece, self._buffer = self._buffer, ""
            self._emit_markup("markup", piece)
        self._quote = ""
        if self._vain:
            self._note_vain()
        self._note_unknown(self._at, "", self._done + 1)

    # The message

    @property
    def message(self) -> Message:
        """What has been said so far. Whole after `finish`."""
        notes = sorted(self.diagnostics, key=_BY_PLACE) if self.diagnostics else []
        return folded(self._parts, self._program.format.join, notes)


__all__ = ["FinishReason", "Interpreter"]
