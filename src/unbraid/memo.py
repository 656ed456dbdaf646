"""What a token does depends only on where the machine stands; so the machine remembers it.

Nearly every token of a stream was met before in the same *place*: inside an answer, inside a string of a call's arguments, behind a
newline that a marker may own, with half a character pending. A place is all that a token's effect can depend on: the row, what
waits, what the codec's reader is at. The machine works a token out once, the slow way, and keeps what came of it as a *step*:
the pieces that came out, and the place that was reached. Met there again, the token costs one look-up.

Together, places and steps are an automaton over tokens that is built while it runs, as a regular-expression engine builds its DFA.
All parsers of a program share it. Three rules keep it honest:

- It is never needed. Where no place is known (`Machine._locate` says when), the machine works things out as ever, and
  says the same to the letter.
- It knows nothing of a request but the few characters that wait. Positions, calls and their ids, tools and their types stay with the
  machine; what a token did while any of that was asked for isn't kept. Three answers are asked for anew each time instead: whether
  a call's name is offered, of what type a parameter is (`Asked`), and what a value comes to that is read whole (`Whole`).
- It is bounded: when it holds `MOST` steps and places it is emptied and begins anew. A hostile stream costs the others
  their short cuts for a while, never memory without end.

Where several tokens come at once, what they do around a call is remembered as one step (`Memo.learn_both`): markup follows markup, and the
next token can be only one of a few.

A header's events wait for its end: until then they are part of the place, and positions count from where it began. What was read on
trial is put back and read again with what follows: so where the trial has got to is no part of the place.

While a machine stands in a place, what waits is the place's: the machine's own fields for it are stale until `Machine._resume` writes
them back. So a step touches two or three fields, however much a place says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Hashable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from unbraid.events import CallArguments, CallEnd, CallStart, Event, Markup, Strand, Text
from unbraid.gathered import ArgumentsPiece

if TYPE_CHECKING:
    from unbraid.codecs.base import ValueReader
    from unbraid.header import Words
    from unbraid.program import Row
    from unbraid.schema import Kind, Type

MOST: Final = 100_000
"""Steps and places that one program remembers: some 15 megabytes when full, one or two in practice."""
LENGTHS: Final = 8
"""So many lengths of prompts' tails: each is tried for every parser that is made."""
LONGEST: Final = 64
"""A place in which more characters wait isn't worth remembering."""
LONGEST_HEAD: Final = 160
"""The same for a header as far as it has been read, and for what is read on trial: they hold a tool's name."""
FARTHEST: Final = 16
MOST_BRANCHES: Final = 8
"""So many tokens in a row are remembered as one step, and so many of those that go on from one."""


Reach = tuple[int, int, int]
"""How far a text, from a position on, is passed on as it is; where ends what stands behind that if it's likely to come again, a marker with
its white space, say (no further: that isn't known); and to which of the places that the text may lead, whatever it is (0: the usual one)."""
Reaching = Callable[[str, int], Reach]
Written = Callable[[str], str]
Quote = Literal["", "content", "markup"]
Key = tuple[
    "Row",
    Hashable,  # where the reader stands (`Reader.place`); `None`: there is none
    str,  # text that waits
    tuple[int, ...],  # where the tokens begin that no event covers yet, counted from the buffer's beginning
    bytes,  # the beginning of a character
    str,  # white space that the last marker still owns
    bool,  # nothing but white space has come in this state, and alone it would be markup
    bool,  # more white space decides nothing
    bool,  # there has been content
    Quote,  # the call that is being read is none for the reader: what its text is
    bool,  # the call has a header
    bool,  # the next text begins another message
    bool | None,  # whether thinking is on
    bool,  # calls are no calls, whatever is written (`tool_choice` is "none")
    bool,  # events are kept back, for a call that has no name yet or none any more
    bool,  # a call is open
    "Words | None",  # the header that is being read
    str,  # the name that it gave the call that is about to begin
    tuple[str, bool] | None,  # where messages are joined: which strand the last text is of; whether any was reasoning
    bool,  # text that is taken may hold special tokens
    tuple[bool, bool] | None,  # what is kept back: whether an opener is its first; whether the rest is white space
    bool | None,  # where a call may begin without a marker: whether one led there
    bool,  # a section of calls was opened, and none has been opened in it
]
"""What a place is made of: the fields of `Place` that its constructor names first, in its order."""
_NONE: Final[dict[Any, Step]] = {}


class Step:
    """What one token does in one place: usually one event, or none (`kind` is `None`)."""

    __slots__ = ("delta", "goes_on", "kind", "moves", "piece", "place", "raw", "several", "strand", "then", "tokens")

    def __init__(
        self,
        raw: str,
        delta: str,
        tokens: int,
        place: Place,
        kind: Any,
        strand: Any,
        piece: str = "",
        several: Several | None = None,
    ) -> None:
        self.raw = raw
        """Characters of the stream that come out, those held back before included."""
        self.delta = delta
        """In a call: what they give the arguments, or its name."""
        self.tokens = tokens
        """How many tokens the event covers."""
        self.place = place
        """Where the machine stands then."""
        self.kind = kind
        """The event's class."""
        self.strand = strand
        self.piece = piece
        """In a call: `delta` as it is gathered, with `raw` beside it if that differs; where one begins: the id that the model wrote."""
        self.several = several
        """All there is to it, where a call begins or ends or one token comes to several events."""
        self.goes_on = False
        """It goes on with what is being said: its event is of the kind that comes out as it is, or there is none."""
        self.moves = False
        """The same, and what comes out is as it is: only the place is another then."""
        self.then: dict[Any, Step] = _NONE
        """What this step and another come to, by the other's token: see `Memo.learn_both`."""

    def event(self, start: int, token_start: int) -> Any:
        """The event of text, markup or a control token, at this point of the stream."""
        event: Any = self.kind()
        event.strand, event.raw = self.strand, self.raw
        event.start, event.stop = start, start + len(self.raw)
        event.token_start, event.token_stop = token_start, token_start + self.tokens
        if self.kind is Text:
            event.text = self.raw
        return event


class Kept:
    """What several steps keep back, or kept back and is delivered."""

    __slots__ = ("characters", "said", "tokens")

    def __init__(self, said: list[Step]) -> None:
        self.said = said
        self.characters = sum([len(step.raw) for step in said])
        self.tokens = sum([step.tokens for step in said])


class Several:
    """What one token, or several in a row, do if that is more than one event."""

    __slots__ = ("begins", "depends", "first", "held", "length", "name", "opens", "releases", "renews", "said")

    def __init__(
        self,
        said: list[Step],
        held: list[Step],
        *,
        first: list[Step] = [],  # noqa: B006  never changed
        releases: bool = False,
        renews: bool = False,
        opens: bool = False,
        begins: int = 0,
        length: int = 1,
    ) -> None:
        self.first = Kept(first)
        """What is kept back too, before what was is delivered."""
        self.releases = releases
        """What was kept back is delivered."""
        self.said = said
        """The events that are delivered then."""
        self.held = Kept(held)
        """Those that are kept back from then on."""
        self.name = next((step.delta for step in said if step.kind is CallStart), "")
        """A call of this name begins, if there is one; it must be offered, if any tools are."""
        self.begins = begins
        """Where in `said` that begins which would be content if it were no call; -1: what was kept back is part of it."""
        self.renews = renews
        """Another reader reads from then on."""
        self.opens = opens
        """There was none before."""
        self.length = length
        """How many tokens it takes."""
        self.depends: Asked | Whole | None = None
        """There is nothing else to it: what the token does depends on something of the request."""


class Asked:
    """What one token does where the value of a call's parameter begins: for each type that the tool's schema may give it. What else the
    reader does in the places behind it, it does without being asked: it learns of that when it is (`Machine.missed`)."""

    __slots__ = ("ahead", "key", "steps")

    def __init__(self, key: str, ahead: int) -> None:
        self.key = key
        self.ahead = ahead
        """Where the value begins: so many characters behind what had come out before."""
        self.steps: dict[frozenset[Kind], Step] = {}
        """By the kinds of values that the type allows."""


class Whole:
    """What one token does where a value ends that is read whole: its JSON comes before what the first piece of the arguments gives."""

    __slots__ = ("read", "several", "tail", "then")

    def __init__(self, read: ValueReader | None, tail: str, then: Place, several: Several) -> None:
        self.read = read
        """What that JSON is, if it takes no reader to tell."""
        self.tail = tail
        """The end of the value's text, which came with the token."""
        self.then = then
        self.several = several
        """All but that JSON."""


class Place:
    """Where a machine stands between two tokens, and what each token met there did. `Machine._resume` writes it back."""

    __slots__ = (
        "absorb", "age", "apart", "begins", "blank_only", "buffer", "by_row", "bytes", "called", "calls", "framed", "fresh", "head", "holds", "idle", "joint", "kept", "landings",
        "lead", "plain", "quote", "reach", "reader", "row", "said", "silent", "special", "starts", "steps", "strand", "thinking", "tokens", "units", "vain", "written",
    )  # fmt: skip

    def __init__(
        self, key: Key, age: int, reach: Reaching | None, units: re.Pattern[str], written: Written | None, moves_on: bool,
    ) -> None:  # fmt: skip
        (
            self.row, self.reader, self.buffer, self.starts, self.bytes, self.absorb, self.lead, self.blank_only, self.said,
            self.quote, self.framed, self.apart, self.thinking, self.silent, self.holds, self.calls,
            self.head, self.called, self.joint, self.special, self.kept, self.fresh, self.vain,
        ) = key  # fmt: skip
        self.age = age
        self.tokens = len(self.starts)
        """How many of them no event covers yet."""
        self.strand: Strand = "tool_call" if self.calls else self.row.state.strand
        nothing = not (self.starts or self.bytes)
        self.idle = nothing and not (self.buffer or self.row.state.codec or self.head is not None or self.vain)
        """Nothing waits, and no call is open nor a section without one: the stream may end here without a word."""
        still = nothing and not (
            self.quote or self.holds or self.fresh is not None or (self.calls and self.reader is None)
        )
        self.begins = bool(self.lead or self.absorb)
        """White space isn't text here. Text that begins otherwise is passed on, and ends that, whatever it is."""
        if self.strand != "tool_call" and (self.apart or (self.joint is not None and self.joint[0] != self.strand)):
            moves_on = True  # the next text begins a message, and may be joined to another
            still = still and not (
                self.joint is not None and (self.said if self.strand == "content" else self.joint[1])
            )
        if self.begins or (self.strand == "content" and not self.said):
            moves_on = True
        self.reach = reach if still and self.strand in ("reasoning", "content", "tool_call") else None
        """Tells how far a text, from a position on, is passed on, with what waits before it, if there is such text here."""
        self.by_row = self.reach is not None and self.reader is None and not self.buffer
        """That is the row's own `reach`: by its name it is called for less where the core is compiled."""
        self.landings: dict[int, Place] = {} if moves_on else {0: self}
        """Where that leads. Most such text changes nothing; where it leads else is known when it has been met."""
        self.units = units
        """How a long text is cut here to find a piece that was met before; what it doesn't match is too seldom the same."""
        self.written = written
        """How it is passed on; `None`: as it is."""
        self.plain: dict[Any, str] = {}
        """Tokens (or short texts) that come out as they are and change nothing: nearly all that are met."""
        self.steps: dict[Any, Step] = {}
        """All others."""


class Memo:
    """The places of one program."""

    __slots__ = ("age", "count", "kept", "lengths", "most", "places", "tails")

    def __init__(self, most: int = MOST) -> None:
        """`most`: how many steps and places it holds; 0: none, it remembers nothing."""
        self.places: dict[Key, Place] = {}
        self.tails: dict[tuple[str | tuple[int, ...], bool | None, bool], Place] = {}
        """Where a prompt's tail leads: nearly all requests end alike."""
        self.lengths: list[int] = []
        """Of these tails."""
        self.kept: dict[tuple[Step, ...], Kept] = {}
        self.most = most
        self.count = 0
        self.age = 0
        """How often it was emptied. What belongs to an earlier age is let go."""

    def add(
        self, key: Key, reach: Reaching | None, units: re.Pattern[str], written: Written | None = None, moves_on: bool = False,
    ) -> Place | None:  # fmt: skip
        """A place that isn't known yet. `reach`, `units`, `written`, `moves_on`: of its row, or of its reader."""
        if not self._room():
            return None
        place = self.places[key] = Place(key, self.age, reach, units, written, moves_on)
        return place

    def learn(self, place: Place, token: Any, step: Step, width: int) -> None:
        """In `place` this token did this. `width`: how many tokens a token is (none, if it is a text)."""
        if place.age != self.age or step.place.age != self.age or not self._room():
            return
        stays = step.place is place and step.strand == place.strand and step.kind in (Text, CallArguments)
        if stays and step.raw == step.delta and step.tokens == width:
            place.plain[token] = step.raw
        else:
            step.goes_on = _goes_on(place, step)
            alike = step.raw == step.delta and step.tokens == width
            step.moves = step.goes_on and (alike if step.raw else step.kind is None)
            place.steps[token] = step

    def learn_asked(self, place: Place, token: Any, asked: tuple[str, int], type: Type, step: Step) -> None:
        """In `place` this token did this, for a parameter of this type. `asked`: see `Asked`."""
        if place.age != self.age or step.place.age != self.age or not self._room():
            return
        known = place.steps.get(token)
        depends = known.several.depends if known is not None and known.several is not None else None
        if not isinstance(depends, Asked):
            depends = Asked(*asked)
            place.steps[token] = _depending(place, depends)
        step.goes_on = _goes_on(place, step)
        depends.steps[type.kinds] = step

    def learn_both(self, place: Place | None, one: Step, token: Any, other: Step) -> Step | None:
        """In `place` one step is followed by another, which this token takes: from now on they are one. `None`: they stay two."""
        a, b = one.several, other.several
        if (a is not None and a.depends is not None) or (b is not None and b.depends is not None):
            return None
        length = a.length if a is not None else 1
        if place is None or length == FARTHEST or len(one.then) == MOST_BRANCHES:
            return None
        if place.age != self.age or other.place.age != self.age:
            return None
        both = _both(place, one, other)
        if both is None or not self._room():
            return None
        if one.then is _NONE:
            one.then = {}
        one.then[token] = both
        return both

    def learn_plain(self, place: Place, token: Any, text: str) -> None:
        """In `place` this token, or text, comes out as it is."""
        if place.age == self.age and self._room():
            place.plain[token] = text

    def place_behind(self, prompt: Sequence[int] | str, thinking: bool | None, silent: bool) -> Place | None:
        """Where a prompt leads, if one was met that ended alike. `thinking`, `silent`: what a place says of them."""
        for length in self.lengths:
            end = prompt[-length:]
            place = self.tails.get((end if isinstance(end, str) else tuple(end), thinking, silent))
            if place is not None:
                return place
        return None

    def place_without(self, thinking: bool | None, silent: bool) -> Place | None:
        """The same of a stream that has no prompt."""
        return self.tails.get(((), thinking, silent))

    def learn_tail(self, tail: Sequence[int] | str, place: Place) -> None:
        """All prompts that end in `tail` lead to `place`; if it is empty, all streams without a prompt."""
        known = not tail or len(tail) in self.lengths
        if place.age == self.age and (known or len(self.lengths) < LENGTHS) and self._room():
            self.tails[tail if isinstance(tail, str) else tuple(tail), place.thinking, place.silent] = place
            if not known:
                self.lengths.append(len(tail))

    def released(self, held: list[Step]) -> Kept:
        """What these steps kept back, to be delivered."""
        key = tuple(held)
        kept = self.kept.get(key)
        if kept is None:
            kept = Kept(joined(held))
            if len(key) <= LONGEST and self._room():
                self.kept[key] = kept
        return kept

    def _room(self) -> bool:
        if self.count < self.most:
            self.count += 1
            return True
        self.empty()
        return False

    def empty(self) -> None:
        """Forget everything. Machines go on where they stand."""
        for place in list(self.places.values()):  # machines may still stand there, in other threads too
            place.plain.clear()
            place.steps.clear()
        self.places.clear()
        self.tails.clear()
        self.lengths.clear()
        self.kept.clear()
        self.count = 0
        self.age += 1


def _goes_on(place: Place, step: Step) -> bool:
    """Whether this step from `place` goes on with what is being said."""
    text = step.kind is (CallArguments if place.calls else Text) and step.strand == place.strand
    return step.place.row is place.row and step.several is None and (text or step.kind is None)


def _depending(then: Place, on: Asked | Whole) -> Step:
    several = Several([], [])
    several.depends = on
    return Step("", "", 0, then, Several, None, several=several)


def whole(step: Step, read: ValueReader | None, tail: int, json: str) -> Step | None:
    """The same step, whatever the value is that ended with it. `read`: see `Whole`; `tail`: how much of its text came with the token,
    `json`: what came of it. `None`: it isn't told like this."""
    if step.several is None:
        said = [Step(step.raw, step.delta, step.tokens, step.place, step.kind, step.strand)]
        several = Several(said, [])
    else:
        several, said = step.several, step.several.said
    if several.releases or several.first.said or several.held.said or several.name or not said:
        return None
    first = said[0]
    if first.kind is not CallArguments or not first.delta.startswith(json) or tail > len(first.raw):
        return None
    first.delta = first.delta[len(json) :]
    return _depending(step.place, Whole(read, first.raw[:tail], step.place, several))


def step_of(
    place: Place,
    then: Place,
    at: tuple[int, int],
    said: Sequence[Event],
    held: Sequence[Event],
    *,
    releases: bool,
    renews: bool,
    before: int = 0,
    id: str = "",
) -> Step | None:
    """What a token did as a step: from `place`, at this character and token, it led to `then`. `said` was delivered, `held` kept
    back. `releases`, `renews`: see `Several`; `before`: how many events before a call's name belong to the call; `id`: the model
    wrote it for that call.
    `None`: there is more to it than a step tells."""
    steps: list[Step] = []
    for event in (*said, *held):
        if (event.start, event.token_start) != at or not _repeats(event):
            return None
        at = event.stop, event.token_stop
        delta = event.raw
        if isinstance(event, CallArguments):
            delta = event.delta
        elif isinstance(event, CallStart):
            delta = event.name
        tokens = event.token_stop - event.token_start
        piece = id if isinstance(event, CallStart) else ArgumentsPiece.of(delta, event.raw)
        steps.append(Step(event.raw, delta, tokens, then, type(event), event.strand, piece))
    alike = (place.holds, place.calls, place.apart, place.joint) == (then.holds, then.calls, then.apart, then.joint)
    if alike and not (releases or renews):
        if not steps:
            return Step("", "", 0, then, None, None)
        if len(steps) == 1 and steps[0].raw and (then.row is place.row or not place.calls):
            return steps[0]
    start = next((at for at, event in enumerate(said) if isinstance(event, CallStart)), -1)
    opens = renews and (place.reader is None or (place.calls and start >= 0))
    begins = max(start - before, -1) if start >= 0 else 0
    several = Several(
        steps[: len(said)], steps[len(said) :], releases=releases, renews=renews, opens=opens, begins=begins
    )
    return Step("", "", 0, then, Several, None, several=several)


def _both(place: Place, one: Step, other: Step) -> Step | None:
    """From `place`, one step and then another as one step."""
    a, b = _as_several(place, one), _as_several(one.place, other)
    if a.name and b.name:
        return None
    if one.place.apart and any(step.kind is Text for step in b.said):
        return None  # a message begins between them
    first, ahead, held, begins = a.first.said, a.said, b.held.said, a.begins
    if b.name:
        begins = b.begins if b.begins < 0 else b.begins + len(ahead)
    if not b.releases:
        if one.place.holds:
            held = [*a.held.said, *held]
    elif place.holds and not a.releases:  # what `a` kept back goes with what was kept back before
        first = [*first, *a.held.said]
    else:
        ahead = [*a.said, *joined(a.held.said)]
        if b.name:
            begins = len(a.said) if b.begins < 0 else b.begins + len(ahead)
    several = Several(
        [*ahead, *b.said] if b.name else _in_a_row(ahead, b.said),
        held,
        first=first,
        releases=a.releases or (b.releases and place.holds),
        renews=a.renews or b.renews,
        opens=a.opens or b.opens,
        begins=begins,
        length=a.length + b.length,
    )
    return Step("", "", 0, other.place, Several, None, several=several)


def _as_several(place: Place, step: Step) -> Several:
    if step.several is not None:
        return step.several
    steps = [step] if step.kind is not None else []
    return Several([], steps) if place.holds else Several(steps, [])


def _in_a_row(some: list[Step], more: list[Step]) -> list[Step]:
    """The same events; a call's arguments that go on, and markup that does, are one."""
    if some and more and some[-1].kind is more[0].kind and more[0].kind in (CallArguments, Markup):
        return [*some[:-1], _as_one([some[-1], more[0]]), *more[1:]]
    return [*some, *more]


def joined(kept: Sequence[Step]) -> list[Step]:
    """What was kept back, to be delivered: neighbouring stretches of markup are one, but for the first, which is the marker."""
    out: list[Step] = []
    for kind, group in itertools.groupby(kept, attrgetter("kind")):
        run = list(group)
        out += [run[0], _as_one(run[1:])] if kind is Markup and len(run) > 2 else run
    return out


def _as_one(steps: list[Step]) -> Step:
    last = steps[-1]
    raw, delta = "".join([step.raw for step in steps]), "".join([step.delta for step in steps])
    piece, tokens = ArgumentsPiece.of(delta, raw), sum([step.tokens for step in steps])
    return Step(raw, delta, tokens, last.place, last.kind, last.strand, piece)


def _repeats(event: Event) -> bool:
    """Whether the event says nothing that would be different another time."""
    return not isinstance(event, CallEnd) or event.outcome == "complete"


__all__ = [
    "FARTHEST",
    "LONGEST",
    "LONGEST_HEAD",
    "MOST",
    "Memo",
    "Place",
    "Reach",
    "Several",
    "Step",
    "Whole",
    "step_of",
    "whole",
]
