"""What a token does depends only on where the machine stands; so the machine remembers it.

Nearly every token of a stream was met before in the same *place*: inside an answer, inside a string of a call's arguments, behind a
newline that a marker may own, with half a character pending. A place is all that a token's effect can depend on: the row, what
waits, what the codec's reader is at. The machine works a token out once, the slow way, and keeps what came of it as a *step*:
the piece that came out, and the place that was reached. Met there again, the token costs one look-up.

Together, places and steps are an automaton over tokens that is built while it runs, as a regular-expression engine builds its DFA.
All parsers of a program share it. Three rules keep it honest:

- It is never needed. Where no place is known (`Machine._locate` says when), the machine works things out as ever, and
  says the same to the letter.
- It knows nothing of a request but the few characters that wait: positions, calls and their names, tools and their types stay with
  the machine. A step during which anything of that was asked for or changed isn't kept.
- It is bounded: when it holds `MOST` steps or places it is emptied and begins anew. A hostile stream costs the others
  their short cuts for a while, never memory without end.

While a machine stands in a place, what waits is the place's: the machine's own fields for it are stale until `Machine._resume` writes
them back. So a step touches two or three fields, however much a place says.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from unbraid.events import CallArguments, CallEnd, CallStart, Event, Strand, Text

if TYPE_CHECKING:
    from unbraid.program import Row

MOST: Final = 100_000
"""Steps and places that one program remembers: tens of megabytes at the very worst, one or two in practice."""
_UNREAD = ("markup", "control")
LONGEST: Final = 64
"""A place in which more characters wait isn't worth remembering."""


class Waiting(NamedTuple):
    """What a place is made of and a step may change."""

    row: Row
    reader: Hashable
    """What the reader says of itself (`Reader.place`)."""
    buffer: str
    starts: tuple[int, ...]
    """Where the tokens begin that no event covers yet, counted from the buffer's beginning."""
    bytes: bytes
    absorb: str
    lead: bool
    blank_only: bool
    said: bool


class Around(NamedTuple):
    """What a place is made of besides, and no step that is kept can change."""

    thinking: bool | None
    silent: bool
    framed: bool
    holds: bool
    """Events are kept back until a call has its name."""
    calls: bool
    """A call is open."""


class Step(NamedTuple):
    """What one token does in one place. It comes to one event, or to none if `raw` is empty."""

    raw: str
    """Characters of the stream that come out, those held back before included."""
    delta: str
    """In a call: what they give the arguments."""
    tokens: int
    """How many tokens the event covers."""
    place: Place
    """Where the machine stands then."""
    kind: Any
    """The event's class."""
    strand: Any


class Place:
    """Where a machine stands between two tokens, and what each token met there did."""

    __slots__ = ("age", "around", "idle", "plain", "row", "steps", "still", "strand", "waiting")

    def __init__(self, waiting: Waiting, around: Around, streams: bool, age: int) -> None:
        self.waiting = waiting
        self.around = around
        self.age = age
        self.row = row = waiting.row
        self.strand: Strand = "tool_call" if around.calls else row.state.strand
        nothing = not (waiting.buffer or waiting.starts or waiting.bytes)
        self.idle = nothing and not row.state.codec
        """Nothing waits and no call is open: the stream may end here without a word."""
        self.still = (
            nothing and streams and not (waiting.absorb or waiting.lead or around.holds) and self.strand not in _UNREAD
        )
        """Text that can't begin a marker comes out as it is and changes nothing."""
        self.plain: dict[Any, str] = {}
        """Tokens (or short texts) that come out as they are and change nothing: nearly all that are met."""
        self.steps: dict[Any, Step] = {}
        """All others."""

    def __deepcopy__(self, memo: Any) -> Place:
        return self


class Memo:
    """The places of one program."""

    __slots__ = ("age", "count", "most", "places", "tails")

    def __init__(self, most: int = MOST) -> None:
        """`most`: how many steps and places it holds; 0: none, it remembers nothing."""
        self.places: dict[tuple[Waiting, Around], Place] = {}
        self.tails: dict[Any, Place] = {}
        """Where a prompt's tail leads: nearly all requests end alike."""
        self.most = most
        self.count = 0
        self.age = 0
        """How often it was emptied. What belongs to an earlier age is let go."""

    def place(self, waiting: Waiting, around: Around, streams: bool) -> Place | None:
        """The place that is made of this. `streams`: no reader stands between text and event, or one that passes it on as it is."""
        key = waiting, around
        place = self.places.get(key)
        if place is None and self._room():
            place = self.places[key] = Place(waiting, around, streams, self.age)
        return place

    def learn(self, place: Place, token: Any, events: Sequence[Event], first: int, width: int, then: Place) -> None:
        """In `place` this token gave these events and led to `then`, if that can be kept as a step. `first`: the token that
        their first one must begin with; `width`: how many tokens a token is (none, if it is a text)."""
        if place.age != self.age or then.age != self.age or place.around != then.around or len(events) > 1:
            return
        step = _step(events[0], first, then) if events else Step("", "", 0, then, None, None)
        if step is not None and self._room():
            plain = then is place and step.raw == step.delta and step.tokens == width
            if plain and step.kind in (Text, CallArguments) and step.strand == place.strand:
                place.plain[token] = step.raw
            else:
                place.steps[token] = step

    def learn_tail(self, key: Any, place: Place) -> None:
        if place.age == self.age and self._room():
            self.tails[key] = place

    def _room(self) -> bool:
        if self.count < self.most:
            self.count += 1
            return True
        for place in self.places.values():  # machines may still stand there
            place.plain.clear()
            place.steps.clear()
        self.places.clear()
        self.tails.clear()
        self.count = 0
        self.age += 1
        return False


def _step(event: Event, first: int, then: Place) -> Step | None:
    if not event.raw or event.token_start != first or isinstance(event, (CallStart, CallEnd)):
        return None
    if isinstance(event, Text) and event.text != event.raw:
        return None
    delta = event.delta if isinstance(event, CallArguments) else event.raw
    return Step(event.raw, delta, event.token_stop - event.token_start, then, type(event), event.strand)


__all__ = ["LONGEST", "MOST", "Around", "Memo", "Place", "Step", "Waiting"]
