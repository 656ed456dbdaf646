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
  machine; what a token did while any of that was asked for isn't kept. A call's name is text like any other, but is looked
  up among the offered tools each time.
- It is bounded: when it holds `MOST` steps and places it is emptied and begins anew. A hostile stream costs the others
  their short cuts for a while, never memory without end.

While a machine stands in a place, what waits is the place's: the machine's own fields for it are stale until `Machine._resume` writes
them back. So a step touches two or three fields, however much a place says.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from unbraid.events import CallArguments, CallEnd, CallStart, Event, Strand, Text

if TYPE_CHECKING:
    from unbraid.program import Row

MOST: Final = 100_000
"""Steps and places that one program remembers: some 15 megabytes when full, one or two in practice."""
LONGEST: Final = 64
"""A place in which more characters wait isn't worth remembering."""


PlainUntil = Callable[[str, int], int]
Written = Callable[[str], str]


class Waiting(NamedTuple):
    """What a place is made of and `Machine._resume` writes back."""

    row: Row
    reader: Hashable
    """Where the reader stands (`Reader.place`); `None`: there is none."""
    buffer: str
    starts: tuple[int, ...]
    """Where the tokens begin that no event covers yet, counted from the buffer's beginning."""
    bytes: bytes
    absorb: str
    lead: bool
    blank_only: bool
    said: bool
    quote: Literal["", "content", "markup"]
    framed: bool
    apart: bool


class Around(NamedTuple):
    """What a place is made of besides."""

    thinking: bool | None
    silent: bool
    holds: bool
    """Events are kept back, for a call that has no name yet or none any more."""
    calls: bool
    """A call is open."""


class Step(NamedTuple):
    """What one token does in one place: usually one event, or none (`kind` is `None`)."""

    raw: str
    """Characters of the stream that come out, those held back before included."""
    delta: str
    """In a call: what they give the arguments, or its name."""
    tokens: int
    """How many tokens the event covers."""
    place: Place
    """Where the machine stands then."""
    kind: Any
    """The event's class."""
    strand: Any
    piece: str = ""
    """In a call: `delta` as it is gathered, with `raw` beside it if that differs."""
    several: Several | None = None
    """All there is to it, where a call begins or ends or one token comes to several events."""


class Piece(str):
    """A piece of a call's arguments whose raw text is another."""

    __slots__ = ("raw",)

    raw: str

    @classmethod
    def of(cls, delta: str, raw: str) -> str:
        if delta == raw:
            return delta
        piece = cls(delta)
        piece.raw = raw
        return piece


class Several(NamedTuple):
    """What one token does if that is more than one event."""

    releases: bool
    """What was kept back is delivered first."""
    renews: bool
    """Another reader reads from then on."""
    said: tuple[Step, ...]
    """The events that are delivered then."""
    held: tuple[Step, ...]
    """Those that are kept back from then on."""
    name: str
    """A call of this name begins, if there is one; it must be offered, if any tools are."""


class Place:
    """Where a machine stands between two tokens, and what each token met there did."""

    __slots__ = ("age", "around", "idle", "plain", "plain_until", "row", "steps", "strand", "waiting", "written")

    def __init__(
        self, waiting: Waiting, around: Around, age: int, plain_until: PlainUntil | None, written: Written | None
    ) -> None:
        self.waiting = waiting
        self.around = around
        self.age = age
        self.row = row = waiting.row
        self.strand: Strand = "tool_call" if around.calls else row.state.strand
        nothing = not (waiting.buffer or waiting.starts or waiting.bytes)
        self.idle = nothing and not row.state.codec
        """Nothing waits and no call is open: the stream may end here without a word."""
        still = nothing and not (waiting.absorb or waiting.lead or waiting.quote or around.holds)
        self.plain_until = plain_until if still and self.strand in ("reasoning", "content", "tool_call") else None
        """Tells how far a text, from a position on, is passed on and changes nothing, if there is such text here."""
        self.written = written
        """How it is passed on; `None`: as it is."""
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
        self.places: dict[tuple[Any, ...], Place] = {}
        """By the values of `Waiting` and `Around`, one after the other."""
        self.tails: dict[Any, Place] = {}
        """Where a prompt's tail leads: nearly all requests end alike."""
        self.most = most
        self.count = 0
        self.age = 0
        """How often it was emptied. What belongs to an earlier age is let go."""

    def add(self, key: tuple[Any, ...], plain_until: PlainUntil | None, written: Written | None) -> Place | None:
        """A place that isn't known yet. `plain_until`, `written`: of its row, or of its reader's string."""
        if not self._room():
            return None
        size = len(Waiting._fields)
        waiting, around = Waiting(*key[:size]), Around(*key[size:])
        place = self.places[key] = Place(waiting, around, self.age, plain_until, written)
        return place

    def learn(self, place: Place, token: Any, step: Step, width: int) -> None:
        """In `place` this token did this. `width`: how many tokens a token is (none, if it is a text)."""
        if place.age != self.age or step.place.age != self.age or not self._room():
            return
        stays = step.place is place and step.strand == place.strand and step.kind in (Text, CallArguments)
        if stays and step.raw == step.delta and step.tokens == width:
            place.plain[token] = step.raw
        else:
            place.steps[token] = step

    def learn_plain(self, place: Place, text: str) -> None:
        """In `place` this text comes out as it is."""
        if place.age == self.age and self._room():
            place.plain[text] = text

    def learn_tail(self, key: Any, place: Place) -> None:
        """A prompt's tail led to `place`."""
        if place.age == self.age and self._room():
            self.tails[key] = place

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
        self.count = 0
        self.age += 1


def step(
    place: Place,
    then: Place,
    at: tuple[int, int],
    said: Sequence[Event],
    held: Sequence[Event],
    *,
    releases: bool,
    renews: bool,
) -> Step | None:
    """What a token did as a step: from `place`, at this character and token, it led to `then`. `said` was delivered, `held` kept
    back. `releases`, `renews`: see `Several`. `None`: there is more to it than a step tells."""
    steps: list[Step] = []
    name = ""
    for event in (*said, *held):
        if (event.start, event.token_start) != at or not _repeats(event):
            return None
        at = event.stop, event.token_stop
        delta = event.raw
        if isinstance(event, CallArguments):
            delta = event.delta
        elif isinstance(event, CallStart):
            delta = name = event.name
        tokens = event.token_stop - event.token_start
        steps.append(Step(event.raw, delta, tokens, then, type(event), event.strand, Piece.of(delta, event.raw)))
    if not (releases or renews) and place.around == then.around:
        if not steps:
            return Step("", "", 0, then, None, None)
        if len(steps) == 1 and steps[0].raw and (then.row is place.row or not place.around.calls):
            return steps[0]
    several = Several(releases, renews, tuple(steps[: len(said)]), tuple(steps[len(said) :]), name)
    return Step("", "", 0, then, Several, None, several=several)


def _repeats(event: Event) -> bool:
    """Whether the event says nothing that would be different another time."""
    if isinstance(event, Text):
        return event.text == event.raw
    return not isinstance(event, CallEnd) or event.outcome == "complete"


__all__ = ["LONGEST", "MOST", "Around", "Memo", "Piece", "Place", "Several", "Step", "Waiting", "step"]
