"""The machine: runs a table over a stream and says what each stretch of it is.

One pass, one code path: one-shot parsing is `feed` then `finish`. Most tokens were met before where the machine stands; what such a token
did it does again, for one dictionary look-up (`unbraid.memo`): that is the first lines of `feed`. All others are worked out
(`unbraid.interpreter`), and remembered.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Sequence
from typing import Any, Final, Self

from unbraid.codecs.base import Reader
from unbraid.copies import Copies
from unbraid.errors import UnbraidError
from unbraid.events import CallArguments, CallEnd, CallStart, Control, Event, Markup, Strand, Text
from unbraid.gathered import ArgumentsPiece, Call, Segment
from unbraid.header import Head
from unbraid.interpreter import FinishReason, Interpreter, joined
from unbraid.memo import FARTHEST, LONGEST, LONGEST_HEAD, Asked, Kept, Place, Several, Step, Whole, step_of, whole
from unbraid.native import mypyc_attr
from unbraid.table import State

_AT_ONCE: Final = 128
"""Ids, or four times as many characters, that are taken in one step; a longer feed is several. Any cut says the same."""
_IN_ONE_GO: Final = 1024
"""Known ids that are taken in one go: what is left of them is copied for each run of one kind."""
SHORT: Final = 16
"""Texts of up to so many characters may be one token's, and are remembered as tokens are."""
_NOTHING: Final[dict[Any, str]] = {}
_NO_STEPS: Final[dict[Any, Step]] = {}


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Machine(Interpreter):
    """The state of one stream. Users meet it as `unbraid.Parser`."""

    __slots__ = ("_place", "_plain", "_sink", "_steps", "_strand")

    _place: Place | None
    """Where the machine stands, if that is a place; what waits is then in the place, not in the fields."""
    _plain: dict[Any, str]
    """What the tokens do that come out as they are here; empty where no place is known."""
    _steps: dict[Any, Step]
    """What other tokens do here."""
    _strand: Strand
    _sink: Any
    """Where text goes that comes out as it is here."""

    @property
    def waiting(self) -> tuple[str, bytes, list[int]]:
        """What waits: text, bytes of half a character, and where its tokens begin, counted from the text's beginning."""
        if self._place is not None:
            place = self._place
            return place.buffer, place.bytes, list(place.starts)
        trial = "" if self._trial is None else self._trial.lead + self._trial.body
        return (
            trial + self._buffer + "".join(self._queue or ()),
            self._bytes,
            [start - self._done for start in self._starts],
        )

    # What a gate asks, which follows a stream only to know where it stands

    @property
    def tokens(self) -> int:
        """How many tokens the events have covered: those of what is held back don't count."""
        return self._token

    def is_plain(self, id: int) -> bool:
        """Whether this id is text as it stands, and leaves the machine where it is, but for its counters."""
        return id in self._plain and self._reader is None

    def take_back(self, count: int) -> None:
        """The last so many ids, all of them plain, weren't said. What was made of them stays in the message."""
        self._token -= count

    def lighten(self) -> None:
        """Forget what was said, whatever it takes to go on excepted: from here on the message is none."""
        if self._place is not None:
            self._informed(self._place)  # of a value that is read whole, what there is stands only there
        for part in self._parts:
            del part.pieces[1:]
        self._forget_notes()

    # What goes in

    def feed(self, ids: Sequence[int]) -> Sequence[Event]:
        """Take the next token ids, in any grouping, and return the events that they decide."""
        # What nearly every token comes to is written out, here and for text: a call in Python costs as much again.
        if len(ids) == 1:
            text = self._plain.get(ids[0])
            if text is None:
                step = self._steps.get(ids[0])
                if step is None:
                    return self._feed(ids)
                if not step.moves:
                    return self._take(step, ids[0])
                self._place = place = step.place
                self._plain, self._steps = place.plain, place.steps
                text = step.raw
                if not text:
                    return ()
            self._sink(text)
            if self._call is None:
                event = Text()
                event.strand = self._strand
                event.raw = event.text = text
                event.start = at = self._at
                event.stop = self._at = at + len(text)
                event.token_start = token = self._token
                event.token_stop = self._token = token + 1
                return (event,)
            arguments = CallArguments()
            arguments.strand = "tool_call"
            arguments.raw = arguments.delta = text
            arguments.start = at = self._at
            arguments.stop = self._at = at + len(text)
            arguments.token_start = token = self._token
            arguments.token_stop = self._token = token + 1
            arguments.index = self._index
            return (arguments,)
        return self._feed(ids)

    def _feed(self, ids: Sequence[int]) -> Sequence[Event]:
        """Take several ids, or one that isn't known here."""
        if self._finished or not self._program.ids:
            raise self._unfit(ids=True)
        out: list[Event] = []
        at, count = 0, len(ids)
        if count > _IN_ONE_GO:
            for start in range(0, count, _IN_ONE_GO):
                out += self._feed(ids[start : start + _IN_ONE_GO])
            return out
        units: list[Any] = ids if isinstance(ids, list) else list(ids)
        while at < count:
            place = self._place
            if place is None:
                at = self._feed_unknown(units, at, out)
                continue
            before = place
            # Units that are known and of one kind are one event.
            plain, steps = self._plain, self._steps
            pieces: list[Any] = []
            step: Step | None = None
            alike = True
            for unit in units[at:] if at else units:
                piece = plain.get(unit)
                if piece is None:
                    step = steps.get(unit)
                    if step is None or not step.goes_on:
                        break
                    place = step.place
                    plain, steps = place.plain, place.steps
                    piece = step.piece
                    if piece is not step.raw:  # see `ArgumentsPiece.of`
                        alike = False
                pieces.append(piece)
            if pieces:
                taken = len(pieces)
                at += taken
                self._place, self._plain, self._steps = place, plain, steps
                delta = raw = "".join(pieces)
                if not alike:
                    raw = "".join([piece if type(piece) is str else piece.raw for piece in pieces])
                if raw:
                    if self._call is None:
                        self._sink(raw)
                    else:
                        self._call.pieces += pieces
                    out += self._passed(raw, delta, taken + before.tokens - place.tokens)
                if at == count:
                    break
            if step is None:
                out += self._meet(unit)
                at += 1
                continue
            # What several do in a row around a call is known as one step.
            longest = step
            for following in units[at + 1 : at + FARTHEST]:
                longer = longest.then.get(following) or self._longer(place, longest, following)
                if longer is None:
                    break
                longest = longer
            several = longest.several
            if longest is step or several is None or (several.name and self._offered().lack(several.name)):
                out += self._take(step, unit)
                at += 1
            else:
                out += self._take_several(longest.place, several)
                at += several.length
        return out

    def _longer(self, place: Place, step: Step, token: int) -> Step | None:
        """What a step from `place`, or several, and the next token come to, if that is one step."""
        following = step.place.steps.get(token)
        if following is None or following.kind is Text:
            return None
        return self._program.memo.learn_both(place, step, token, following)

    def _feed_unknown(self, units: list[Any], at: int, out: list[Event]) -> int:
        """Take some where no place is known. Returns where that ends."""
        some = units[at : at + _AT_ONCE]  # what is left is looked at again for every marker in it: keep it short
        out += self._read_ids(some)
        return at + len(some)

    def _meet(self, token: int) -> Sequence[Event]:
        """Take a token that wasn't met in this place before."""
        place = self._place
        if place is None or not self._comes_out_as_it_is(token):
            return self._work_out(token)
        text = self._program.alphabet.pieces[token]
        self._program.memo.learn_plain(place, token, text)
        self._sink(text)
        return self._passed(text, text, 1)

    def feed_text(self, text: str) -> Sequence[Event]:
        """Take the next piece of text, cut anywhere, and return the events that it decides."""
        raw = self._plain.get(text)
        if raw is None:
            step = self._steps.get(text)
            if step is None:
                return self._feed_fragment(text)
            if not step.moves:
                return self._take(step, text)
            self._place = place = step.place
            self._plain, self._steps = place.plain, place.steps
            raw = step.raw
            if not raw:
                return ()
        self._sink(raw)
        if self._call is None:
            event = Text()
            event.strand = self._strand
            event.raw = event.text = raw
            event.start = at = self._at
            event.stop = self._at = at + len(raw)
            event.token_start = event.token_stop = 0
            return (event,)
        arguments = CallArguments()
        arguments.strand = "tool_call"
        arguments.raw = arguments.delta = raw
        arguments.start = at = self._at
        arguments.stop = self._at = at + len(raw)
        arguments.token_start = arguments.token_stop = 0
        arguments.index = self._index
        return (arguments,)

    def _feed_fragment(self, text: str) -> Sequence[Event]:
        """Take a text that isn't known here as one token's."""
        if self._finished or self._program.ids:
            raise self._unfit(ids=False)
        place, length = self._place, len(text)
        if place is None or not length:
            return self._feed_pieces(text, 0, -1, [])
        reach = None if place.begins and text[0].isspace() else place.reach
        stop, end, where = (0, 0, 0)
        if reach is not None:
            stop, end, where = place.row.reach(text, 0) if place.by_row else reach(text, 0)
        if length <= SHORT and (length < SHORT // 2 or text.strip().isalnum()):
            return self._meet_token(place, text, where if stop == length else -1)
        if stop == length:
            return self._pass_on(place, text, where)
        return self._feed_pieces(text, stop, end, [*self._pass_on(place, text[:stop], where)] if stop else [])

    def _meet_token(self, place: Place, text: str, where: int) -> Sequence[Event]:
        """Take what is one token's text and wasn't met before at `place`, and remember it. `where`: see `_pass_on`; -1: it isn't passed on."""
        landing = place.landings.get(where)
        if landing is None:
            return self._work_out(text)
        at = self._at, self._token
        said = self._pass_on(place, text, where)
        found = step_of(place, landing, at, said, (), releases=False, renews=False)
        if found is not None:
            self._program.memo.learn(place, text, found, 0)
        return said

    def _feed_pieces(self, text: str, at: int, end: int, out: list[Event]) -> list[Event]:
        """Take a text from `at` on: by turns stretches that are passed on, whatever they are, and pieces that were met before. `end`: where
        a piece ends that stands at `at`; `at`: that isn't known; -1: nor whether a stretch does.

        What wasn't met before is worked out; of a long text up to where something ends, for what lies behind would be looked at again.
        """
        length, least = len(text), 4 * SHORT
        while at < length:
            place = self._place
            reach = None if place is None or end >= 0 or (place.begins and text[at].isspace()) else place.reach
            if place is not None and reach is not None:
                stop, end, where = place.row.reach(text, at) if place.by_row else reach(text, at)
                if stop > at:
                    out += self._pass_on(place, text[at:stop], where)
                    at, place = stop, self._place
                    if at == length:
                        break
            stop = 0 if place is None else end if end > at else self._likely(place, text, at)
            if place is not None and at < stop <= at + _AT_ONCE:
                unit = text[at:stop]
                step = place.steps.get(unit)
                if step is not None:
                    out += self._take(step, unit)
                elif (plain := place.plain.get(unit)) is not None:
                    self._sink(plain)
                    out += self._passed(plain, plain, 0)
                else:
                    out += self._work_out(unit)
            else:
                row, stop = self._row, self._row.search.past(text, at + least)
                out += self._push(text[at:stop])
                least = 4 * SHORT if self._row is not row else min(2 * least, _AT_ONCE)
            at, end = stop, -1
        return out

    def _likely(self, place: Place, text: str, at: int) -> int:
        """Where a piece ends that is likely to come again; 0: in a long text that's seldom worth a look."""
        found = place.units.match(text, at) or place.row.closing.match(text, at)
        if found is None and len(text) <= _AT_ONCE:
            found = place.row.pieces.match(text, at)
        return found.end() if found else 0

    def _pass_on(self, place: Place, text: str, where: int) -> Sequence[Event]:
        """Take a stretch that is passed on at `place`, whatever it is, and leads to landing `where`."""
        landing = place.landings.get(where)
        if landing is None:
            return self._land(place, text, where)
        if landing is not place:
            self._place, self._plain, self._steps = landing, landing.plain, landing.steps
            text = place.buffer + text
        delta = text if place.written is None else place.written(text)
        self._sink(delta if delta is text else ArgumentsPiece.of(delta, text))
        if self._quiet:
            self._at += len(text)
            return ()
        return self._passed(text, delta, 0)

    def _land(self, place: Place, text: str, where: int) -> Sequence[Event]:
        """A stretch is passed on and leads away from `place`: see where, for the next one."""
        self._private = False
        said = self._push(text)
        then = self._place
        if not self._private and then is not None and then.row is place.row and len(said) == 1:
            event = said[0]
            given = event.delta if isinstance(event, CallArguments) else event.text if isinstance(event, Text) else ""
            whole = place.buffer + text
            written = whole if place.written is None else place.written(whole)
            if event.raw == whole and given == written and event.strand == place.strand:
                place.landings[where] = then
        return said

    def _unfit(self, *, ids: bool) -> UnbraidError:
        """Why ids, or text, can't be taken. All of it comes by where this is asked, for nothing of it is known."""
        if ids and not self._program.ids:
            return UnbraidError("this parser was made for text: bind the format to a vocabulary to feed ids")
        if self._program.ids and not ids:
            return UnbraidError(
                "this parser was made for ids: feed ids, or make it from the format itself to feed text"
            )
        return UnbraidError("the stream was finished: start a new parser for the next one")

    def finish(self, reason: FinishReason = "stop") -> list[Event]:
        """The stream is over: `"stop"` if the model ended its turn, `"length"` if it was cut off."""
        if self._finished:
            raise UnbraidError("the stream was finished already")
        if self._place is not None and self._place.idle:
            self._finished = True
            self._plain, self._steps, self._sink = _NOTHING, _NO_STEPS, None
            return []
        self._resume()
        self._reason = reason
        if self._bytes:
            lost, self._bytes = self._bytes.decode("utf-8", "replace"), b""  # two of them, if a surrogate was begun
            self._buffer = self._take_queue() + lost
        self._out = out = self._preface
        self._preface = []
        self._buffer = self._take_queue()
        self._turn()
        self._end()
        self._finished = True
        self._sink = None  # it may be our own method, and we are to go when nobody holds us
        if len(self._starts) or self._skip:
            event = self._event(Control, "control", "")
            rest = len(self._starts)
            if rest:
                self._starts.clear()
                event = event.replace(token_stop=event.token_start + rest)
                self._token += rest
                self._deliver(event)
        return out

    # What is remembered: see `unbraid.memo`

    def _take(self, step: Step, unit: Any) -> Sequence[Event]:
        """Do what this token (or short text) did before."""
        several, place = step.several, step.place
        if several is not None:
            if several.depends is not None:
                return self._take_depending(several.depends, unit)
            if several.name and self._offered().lack(several.name):
                return self._work_out(unit)
            return self._take_several(place, several)
        self._place, self._plain, self._steps = place, place.plain, place.steps
        if step.goes_on:
            if step.kind is None:
                return ()
            self._sink(step.piece)
            return self._passed(step.raw, step.delta, step.tokens)
        kind, held = step.kind, self._held
        out: Sequence[Event] = ()
        if kind is None:
            pass
        elif held is not None or (self._quiet and kind is not Text):
            self._at += len(step.raw)
            self._token += step.tokens
            if held is not None:
                held.append(step)
        elif kind is Markup:
            markup = Markup()
            markup.strand, markup.raw = "markup", step.raw
            markup.start = at = self._at
            markup.stop = self._at = at + len(step.raw)
            markup.token_start = token = self._token
            markup.token_stop = self._token = token + step.tokens
            out = (markup,)
        else:
            out = self._say([step], [])
        if place.row is not self._row:
            self._row = place.row
            self._strand, self._sink = place.strand, self._first_text
        return out

    def _take_depending(self, on: Asked | Whole, unit: Any) -> Sequence[Event]:
        """The same where it depends on something of the request."""
        call, place = self._call, self._place
        assert call is not None
        assert place is not None
        if isinstance(on, Asked):
            kind = self._offered().parameter(call.name, on.key)
            step = on.steps.get(kind.kinds)
            if step is None:
                return self._work_out(unit)
            call.missed.append((on.key, kind, self._at + on.ahead))
            return self._take(step, unit)
        if on.read is not None and call.missed:
            _, kind, start = call.missed[-1]
            json = on.read(call.end(self._at - start) + on.tail, kind)
        else:
            reader = self._informed(place)
            json = None if reader is None else reader.whole_value(on.tail)
        if json is None:
            return self._work_out(unit)
        count = len(call.pieces)
        out = self._take_several(on.then, on.several)
        first = on.several.said[0]
        delta = json + first.delta
        call.pieces[count] = ArgumentsPiece.of(delta, first.raw)
        if not self._quiet:
            given: Any = out[0]
            given.delta = delta
        return out

    def _take_several(self, place: Place, several: Several) -> Sequence[Event]:
        """The same where a call begins or ends, or where it came to several events."""
        out: list[Any] = []
        said, begins = several.said, several.begins
        if several.first.said:
            self._keep(several.first)
        if several.releases:
            held = self._held
            if held and type(held[0]) is not Step:
                self._out = out
                self._release()
                begins = begins if begins < 0 else begins + len(out)
            elif held:  # all are
                kept = self._program.memo.released(held)
                self._at -= kept.characters
                self._token -= kept.tokens
                said = [*kept.said, *said]
                begins = begins if begins < 0 else begins + len(kept.said)
            self._held = None
        if self._quiet:
            self._gather([*out, *said], len(out), begins)
        elif said:
            self._say(said, out, begins)
        if several.held.said or (place.holds and self._held is None):
            self._keep(several.held)
        self._apart = place.apart
        if not place.calls:
            self._call = None
        if several.renews:
            if several.opens:
                self._before = ""
            self._reader = None  # made when it is needed: see `_resume`
        self._place, self._plain, self._steps = place, place.plain, place.steps
        self._row, self._strand = place.row, place.strand
        self._sink = self._first_text if self._call is None else self._call.pieces.append
        return out

    def _say(self, steps: list[Step], out: list[Any], begins: int = 0) -> list[Any]:
        """What these steps say, at this point of the stream: events as they came before, but for their place. They are added to `out`, and
        to the message. `begins`: see `Several`, counted in `out`."""
        # Every kind has lines of its own: Python is quick with a line that always meets the same class.
        at, token, call = self._at, self._token, self._call
        for step in steps:
            kind, raw, start, token_start = step.kind, step.raw, at, token
            at += len(raw)
            token += step.tokens
            if kind is Markup:
                markup = Markup()
                markup.strand, markup.raw = "markup", raw
                markup.start, markup.stop = start, at
                markup.token_start, markup.token_stop = token_start, token
                out.append(markup)
            elif kind is CallArguments:
                assert call is not None
                call.pieces.append(step.piece)
                arguments = CallArguments()
                arguments.strand, arguments.raw = "tool_call", raw
                arguments.start, arguments.stop = start, at
                arguments.token_start, arguments.token_stop = token_start, token
                arguments.index, arguments.delta = call.index, step.delta
                out.append(arguments)
            elif kind is CallEnd:
                assert call is not None
                call.outcome = "complete"
                end = CallEnd()
                end.strand, end.raw = "tool_call", raw
                end.start, end.stop = start, at
                end.token_start, end.token_stop = token_start, token
                end.index, end.outcome = call.index, "complete"
                out.append(end)
            elif kind is CallStart:
                call = self._call_of(step)
                opening = CallStart()
                opening.strand, opening.raw = "tool_call", raw
                opening.start, opening.stop = start, at
                opening.token_start, opening.token_stop = token_start, token
                opening.index, opening.id, opening.name = call.index, call.id, call.name
                out.append(opening)
                call.opening = out[max(begins, 0) :]
            elif kind is Control:
                control = Control()
                control.strand, control.raw = "control", raw
                control.start, control.stop = start, at
                control.token_start, control.token_stop = token_start, token
                out.append(control)
            else:
                self._out = out
                self._deliver(step.event(start, token_start))
        self._at, self._token = at, token
        return out

    def _gather(self, said: list[Any], first: int, begins: int) -> None:
        """Into the message with what these steps say, of which nobody wants the events. Those before `first` were said. `begins`: see
        `Several`, counted in `said`."""
        for number in range(first, len(said)):
            step = said[number]
            kind = step.kind
            if kind is Text:
                self._out = []  # nobody takes it
                self._deliver(step.event(self._at, self._token))
            self._at += len(step.raw)
            self._token += step.tokens
            if kind is CallArguments:
                assert self._call is not None
                self._call.pieces.append(step.piece)
            elif kind is CallEnd:
                self._calls[self._index].outcome = "complete"
            elif kind is CallStart:
                self._call_of(step).opening = said[max(begins, 0) : number + 1]

    def _call_of(self, start: Step) -> Call:
        """The call that begins with this step."""
        self._index = index = len(self._calls)
        name = start.delta
        self._call = call = Call(index, self._accepted(start.piece) or self._new_id(name, index), name)
        self._calls.append(call)
        self._parts.append(call)
        return call

    def _keep(self, kept: Kept) -> None:
        """Keep back what these steps say, until a call has its name."""
        if self._held is None:
            self._held = []
        self._held += kept.said
        self._at += kept.characters
        self._token += kept.tokens

    def _kept_events(self) -> list[Any]:
        """What is kept back, as events: of what was remembered only its steps are kept."""
        events: list[Any] = []
        at, token = self._at, self._token
        for kept in reversed(self._held or ()):
            if type(kept) is Step:
                at, token = at - len(kept.raw), token - kept.tokens
                kept = kept.event(at, token)
            events.append(kept)
        return events[::-1]

    def _unhold(self) -> list[Any]:
        """Keep nothing back any more. What was: as events, neighbours in markup as one."""
        events = joined(self._kept_events())
        self._held = None
        return events

    def _passed(self, raw: str, delta: str, tokens: int) -> Sequence[Event]:
        """One event for a stretch, or a run of tokens, that goes on with what is being said. Its text has been gathered."""
        start, token = self._at, self._token
        self._at = stop = start + len(raw)
        self._token = token_stop = token + tokens
        if self._quiet:
            return ()
        if self._call is None:
            event = Text()
            event.strand, event.raw, event.text = self._strand, raw, delta
            event.start, event.stop = start, stop
            event.token_start, event.token_stop = token, token_stop
            return (event,)
        arguments = CallArguments()
        arguments.strand, arguments.raw, arguments.delta = "tool_call", raw, delta
        arguments.start, arguments.stop = start, stop
        arguments.token_start, arguments.token_stop = token, token_stop
        arguments.index = self._index
        return (arguments,)

    def _work_out(self, token: Any) -> Sequence[Event]:
        """A token (or a short text) whose effect isn't known in this place: work it out, and remember it if it may be."""
        place, at = self._place, (self._at, self._token)
        assert place is not None
        self._resume()
        self._private, self._asked, self._whole, self._written = False, None, None, ""
        reader, call, held = self._reader, self._call, self._held
        kept, calls, notes, parts = list(held or ()), len(self._calls), len(self.diagnostics), len(self._parts)
        freed = joined(kept)
        value = reader.value_reader() if reader is not None and reader.gathers else None
        width = int(self._program.ids)
        out = self._read_ids([token]) if width else self._push(token)
        then, releases = self._place, held is not None and self._held is not held
        begun, ended = len(self._calls) - calls, sum([type(event) is CallEnd for event in out])
        begins = begun == 1 and (call is None or call.outcome == "complete")
        if (
            then is not None
            and not self._private
            and begun < 2  # a step knows one name, and one id
            and ended < 2  # and ends the call that was open, not several of a unit
            and (self._call is call or self._call is None or (begins and self._begins_alike()))
            and (self._reader is reader or self._reader is None or self._reader.exact)
            and len(self.diagnostics) == notes
            and not self._splits(parts + place.apart)
            and (reader is None or reader.exact or (then is place and self._comes_out_as_it_is(token)))
            and (out[: len(freed)] == freed if releases else held is None or not out)
        ):
            said = out[len(freed) :] if releases else out
            now = (self._held or [])[0 if releases else len(kept) :]
            before = len(self._calls[calls].opening) - 1 if begun else 0
            renews = self._reader is not reader
            id = self._written if begins else ""
            found = step_of(place, then, at, said, now, releases=releases, renews=renews, before=before, id=id)
            asked: tuple[str, int] | None = self._asked
            read: tuple[int, str] | None = self._whole
            if found is not None and read is not None:
                found = whole(found, value, read[0] - at[0], read[1]) if asked is None and call is not None else None
            if found is not None and asked is None:
                self._program.memo.learn(place, token, found, width)
            elif found is not None and asked is not None and call is not None and not begun:
                key, begins_at = asked
                kind = self._offered().parameter(call.name, key)
                self._program.memo.learn_asked(place, token, (key, begins_at - at[0]), kind, found)
        return out

    def _splits(self, first: int) -> bool:
        """Whether a stretch follows another of its strand, from this part on: no event says that a message began between them."""
        strands = [part.strand if isinstance(part, Segment) else "" for part in self._parts[max(first - 1, 0) :]]
        return any(a == b != "" for a, b in itertools.pairwise(strands))

    def _begins_alike(self) -> bool:
        """Whether a call that has just begun would begin like this another time, but for its id."""
        return self._call is not None and self._reader is not None and self._reader.forgets

    def _comes_out_as_it_is(self, token: Any) -> bool:
        place, alphabet = self._place, self._program.alphabet
        text = alphabet.piece(token) if self._program.ids else token
        if place is None or place.reach is None or token in alphabet.tokens or not isinstance(text, str):
            return False
        if not text:  # it goes with what comes next
            return False
        if place.begins and text[:1].isspace():
            return False
        if place.landings.get(0) is not place or (place.written is not None and place.written(text) != text):
            return False
        stop, _, where = place.reach(text, 0)
        return stop == len(text) and where == 0

    def _resume(self) -> None:
        """Leave the place: what waits goes back into the fields."""
        place = self._place
        if place is None:
            return
        self._informed(place)
        self._place = None
        self._plain, self._steps = _NOTHING, _NO_STEPS
        done = self._done
        self._buffer = place.buffer
        self._starts = [done + start for start in place.starts]
        self._bytes = place.bytes
        if place.holds:
            self._held = self._kept_events()
        self._absorb = place.absorb
        self._lead = place.lead
        self._blank_only = place.blank_only
        self._said = place.said
        self._quote = place.quote
        self._framed = place.framed
        self._apart = place.apart
        self.called = place.called
        self._special = place.special
        self._vain = place.vain
        self._fresh = place.fresh is not None
        if place.fresh is not None:
            self._announced = place.fresh
        if place.head is not None:  # its events count from here on
            self._head = head = Head("role")
            self._at, self._token = head.resume(place.head, self._at, self._token)

    def _informed(self, place: Place) -> Reader | None:
        """The reader, if there is one, brought to this place, in which the machine stands."""
        if not self._prepared:
            self._prepare()
        state: Any = place.reader
        if state is not None:
            if self._reader is None:
                self._reader = state[0].reader(self)
            self._reader.resume(state)
        self._done += self._at - self._since
        self._since = self._at
        return self._reader

    def _settle(self) -> None:
        """Between two feeds: find the place in which the machine stands."""
        reader = self._reader
        if not (self._buffer or self._trial) and (reader is None or reader.exact or reader.streams):
            self._special = False  # none is held back, by a reader neither
        place = self._locate()
        if place is not None:
            self._rewind()
            head, self._head = self._head, None
            if head is not None and head.events:  # nothing of it has been said: in a place it counts when it is
                self._at, self._token = head.events[0].start, head.events[0].token_start
            self._stand(place)

    def _stand(self, place: Place) -> None:
        """From here on the machine goes by what is remembered of this place."""
        self._place, self._plain, self._steps = place, place.plain, place.steps
        self._row = place.row
        self._since = self._at
        self._apart = place.apart
        self._strand = place.strand
        self._sink = self._first_text if self._call is None else self._call.pieces.append

    def _first_text(self, text: str) -> None:
        """The first piece of a stretch opens its segment."""
        self._sink = sink = self._segment(self._strand).pieces.append
        sink(text)

    def _joint(self) -> tuple[str, bool] | None:
        """Whether the next text is joined to an earlier message of its strand hangs on this, and on whether there is content."""
        if not self._program.format.join:
            return None
        last = self._parts[-1] if self._parts and not self._apart else None
        return last.strand if isinstance(last, Segment) else "", self._thought

    def _short_buffer(self) -> str | None:
        """What waits, with what was read on trial: that is read again with what follows. `None`: too much of it, or of a header, or it
        depends on how much was tried before."""
        buffer, trial, head = self._buffer, self._trial, self._head
        if len(buffer) > LONGEST:
            return None
        if trial is not None:
            if trial.marker.trial != "proven" or trial.asked or trial.size > LONGEST_HEAD:
                return None
            buffer = trial.lead + trial.body + buffer
        if self._fresh and (self._retries or self._tried > self._done):
            return None
        if head is not None and (self._held is not None or head.size > LONGEST_HEAD):
            return None
        return buffer

    def _locate(self) -> Place | None:
        """The place in which the machine stands, if what a token does here depends on nothing but what a place says."""
        if (
            self._preface
            or self._skip
            or self._prepend
            or self._queue
            or self._reason
            or self._chosen
            or self._open
            or self._notes_on
            or (buffer := self._short_buffer()) is None
        ):
            return None
        reader, held = self._reader, self._held
        state: Hashable = None
        if reader is not None:
            named, holds = self._call is not None, held is not None
            if reader.failed or (not self._quote and named == holds and (named or not self._framed)):
                return None
            if reader.unit and self._before:  # what the prompt wrote of a unit is part of the last body when it ends
                return None
            state = reader.place()
            if state is None or (not named and reader.gathers):
                return None
        done = self._done
        starts = tuple([start - done for start in self._starts]) if self._starts else ()
        key = (
            self._row, state, buffer, starts, self._bytes, self._absorb, self._lead, self._blank_only, self._said,
            self._quote, self._framed, self._apart, self._thinking, self._silent, held is not None, self._call is not None,
            None if self._head is None else self._head.place(), self.called, self._joint(), self._special, self._kept_back(),
            self._announced if self._fresh else None, self._vain,
        )  # fmt: skip
        place = self._program.memo.places.get(key)
        if place is None:
            row, held_back = self._row, self._buffer
            if reader is None:
                reach = functools.partial(row.reach_behind, held_back) if held_back else row.reach
                units = row.closing if row.state.codec else row.pieces
                place = self._program.memo.add(key, reach, units, None, bool(held_back))
            else:
                units = reader.head or row.closing
                reach_on = reader.reach_behind(held_back) if held_back else reader.reach()
                moves_on = reader.moves_on or bool(held_back)
                place = self._program.memo.add(key, reach_on, units, reader.written, moves_on)
        return place

    def _begin(self, state: State) -> None:
        self._place, self._plain, self._steps = None, _NOTHING, _NO_STEPS
        self._strand, self._sink = state.strand, None
        super()._begin(state)

    # Forks

    def fork(self) -> Self:
        """A machine that stands where this one stands, with all that was said and held; from here on each goes its own way.

        What never changes (the program, its rows and codecs, the tools) is shared. All else is copied, whatever it is, so that a
        new field needs no word here.
        """
        if self._held:
            self._held = self._kept_events()
        copies = Copies(self._program.shared)
        for kept in (self._tools, self._plain, self._steps, self._place):
            copies[id(kept)] = kept
        other: Self = copies.instance(self)
        return other

    def __copy__(self) -> Self:
        return self.fork()

    def __deepcopy__(self, memo: object) -> Self:
        return self.fork()

    def __reduce__(self) -> Any:
        raise TypeError("a stream can't be pickled: within a process `fork` it, elsewhere feed it what came so far")


__all__ = ["FinishReason", "Machine"]
