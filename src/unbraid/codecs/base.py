"""How the body of one call is written: what all codecs have in common.

A codec is two things. In a table it is data (`JsonObject(...)`, `XmlParameters(...)`): frozen, comparable, writable as JSON.
Compiled for an alphabet it hands out readers: one reader reads one body (or one array of calls), piece by piece, and tells the
machine what it found. Reader and writer of a syntax stand in the same file.

A reader gets the text that is there, `read(text, at, final)`, consumes what is decided and returns the position up to which it
did; what it leaves comes again, with more behind it. When it stops for good it says how: `done`, `failed` (with the reason),
`empty` (nothing but white space before a marker: no call at all). A token that ends the turn is never shown to a reader: it gets
the text before it with `final` set, and is asked how it would `finish` there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from unbraid.grammar.tree import Node
from unbraid.memo import Reach
from unbraid.native import mypyc_attr
from unbraid.schema import Tools, Type, escape, json_string
from unbraid.search import Search
from unbraid.table import Piece, Spelling

SPACE = re.compile(r"\s*")
_COLON = re.compile(r"\s*:\s*")
_COMMA = re.compile(r"\s*,?\s*")
_JSON = json.JSONDecoder(parse_int=str, parse_float=str)
HEADER_LIMIT = 512
"""Characters that a name or key may have at most: what is longer is no name, and holding it back would cost."""

Outcome = Literal["complete", "whole", "malformed", "incomplete", "blank", "nothing"]
"""What an open body amounts to where the turn ends: a call that lacks its closer, one that needs none, ... `blank`: no call if it
has no text, `nothing`: no call."""


ValueReader = Callable[[str, Type], str | None]
"""The JSON of a value by its text and the parameter's type. `None`: there is more to say of it."""


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call to be written. `arguments` is the JSON text of an object; `index` counts the calls of the message."""

    name: str
    arguments: str
    id: str
    index: int

    def items(self) -> list[tuple[str, Any, str]]:
        """The arguments as key, value and the value's JSON text as it stands: numbers keep their spelling."""
        found: list[tuple[str, Any, str]] = []
        text = self.arguments.strip()
        at = SPACE.match(text, 1).end()  # type: ignore[union-attr]
        while text[at] != "}":
            key, at = _JSON.raw_decode(text, at)
            at = _COLON.match(text, at).end()  # type: ignore[union-attr]
            value, stop = _JSON.raw_decode(text, at)
            found.append((key, value, text[at:stop]))
            at = _COMMA.match(text, stop).end()  # type: ignore[union-attr]
        return found


class Inexpressible(ValueError):
    """A call that the syntax can't write; the renderer adds which format that is."""


class Speller(Protocol):
    """The part of the alphabet that a codec needs."""

    def spell(self, spellings: Iterable[Spelling]) -> list[str]: ...

    def expand(self, text: str) -> str: ...


class Codec(Protocol):
    """A codec as a table holds it."""

    @property
    def begins(self) -> tuple[Spelling, ...]:
        """How a body begins, as far as that tells it from others."""

    def spellings(self) -> Iterable[Spelling]:
        """Every delimiter of the syntax."""

    def compile(self, alphabet: Any) -> Compiled: ...

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        """The body as the model would write it: of one call, or of all calls of a section if the codec holds `many`.

        Raises `Inexpressible` where the syntax has no way to write it.
        """

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        """What may be written as the body of a call of the tool `name`, whose arguments satisfy `schema`.

        It ends a value by the rule by which the reader ends it. Of a codec that holds `many` calls: one of them.
        """


class Compiled(Protocol):
    """A codec made ready for an alphabet; shared by all parsers."""

    def reader(self, sink: Sink) -> Reader: ...


class Sink(Protocol):
    """The machine as a reader sees it. Positions are offsets into the text that `read` was given."""

    called: str
    """The name that the call's header gives, if the format has headers."""

    @property
    def tools(self) -> Tools:
        """The offered tools."""

    @property
    def markers(self) -> Search:
        """For the markers that are live after this body."""

    def parameter(self, stop: int, name: str, key: str) -> Type:
        """The type of a parameter of the call `name`, whose value begins at `stop`. What is read may be remembered for each type."""

    def value_end(self, end: int, json: str) -> None:
        """The value whose text ends at `end` has been read whole: of it comes this JSON, next of what is said of the arguments. Of
        another text `Reader.whole_value` says what comes."""

    def missed(self, text: bool) -> tuple[str, list[tuple[str, Type]], str]:
        """What was read of the call since the reader was last asked, or left its place: the call's name, the parameters that were
        begun, and, if it wants it, the `text` since the last of them began (none: since it left its place)."""

    def call_start(self, stop: int, name: str, id: str | None = None) -> None:
        """The call's name is known; the text up to `stop` belongs to its head."""

    def call_arguments(self, stop: int, delta: str) -> None:
        """The text up to `stop` gave this piece of the arguments' JSON."""

    def call_end(self, stop: int) -> None:
        """The body of one call is whole; the reader may go on to the next one."""

    def marker_at(self, text: str, at: int, final: bool) -> int:
        """Where a marker ends that is live after this body and begins at `at`; 0: there is none; -1: it can't be said yet."""

    def find_marker(self, text: str, at: int, stop: int) -> int:
        """Where the first marker begins that is live after this body, in `text[at:stop]`; -1: there is none."""

    def opens_at(self, text: str, at: int) -> bool:
        """Whether a marker that opens another call begins at `at`."""

    def last_body(self) -> str:
        """The raw text of the last calls that were a unit, up to the end of the last one."""

    def note(self, kind: str, at: int, message: str) -> None:
        """A diagnostic."""

    def expand(self, text: str) -> str:
        """The characters of a text, special tokens spelled out."""


@mypyc_attr(serializable=True)
class Reader:
    """State of one body being read. Subclasses fill in `step`, or `read`, and `finish`."""

    __slots__ = ("done", "empty", "failed", "named", "sink", "successor", "unit", "unsafe", "waits_on_blank")

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.done = False
        self.empty = False
        self.failed = ""
        self.successor: Reader | None = None
        """The reader that goes on from here."""
        self.unsafe: re.Pattern[str] | None = None
        """Besides what JSON escapes: characters at which a streamed string could end."""
        self.named = False
        """`call_start` was said for the call being read."""
        self.unit = False
        """The calls of this body stand or fall together: none is complete before the body is."""
        self.waits_on_blank = False
        """What was left can't be decided by more white space: don't come back with nothing else."""

    def begin(self) -> None:
        """The body begins. A reader that can name the call already does so here."""

    step: Any = None
    """The method that reads what comes next: one thing, which begins at `at`. It returns the position behind it, or -1: wait for more."""

    @property
    def verbatim(self) -> bool:
        """Whether white space before the next step is text; elsewhere it separates, and is skipped."""
        return False

    def read(self, text: str, at: int, final: bool) -> int:
        """Step by step, as far as it goes."""
        self.waits_on_blank = False
        while not (self.done or self.empty or self.failed or self.successor):
            if not self.verbatim:
                at = self.skip_space(text, at)
            if at == len(text):
                break
            here = self.step(text, at, final)
            if here < 0:
                break
            at = here
        return at

    def finish(self) -> Outcome:
        """What the open body amounts to if the turn ends normally right here."""
        raise TypeError("a reader must say how it ends")

    @property
    def proven(self) -> bool:
        """Whether what was read so far is certain to be a call, should the stream be cut off here."""
        return self.named

    def tail(self) -> str:
        """What completes the arguments' JSON if the body ends here and `finish` says that it is complete."""
        return ""

    @property
    def streams(self) -> bool:
        """Whether the reader is inside a string that is passed on character by character."""
        return False

    def plain_until(self) -> Callable[[str, int], int] | None:
        """Tells how far a text, from a position on, is passed on as a piece of the arguments, and either leaves the reader where it
        stands (in a string, mostly) or, if it `moves_on`, takes it to one other place, always the same, whatever the text is."""
        return functools.partial(_plain_until, self.unsafe) if self.streams else None

    def reach(self) -> Callable[[str, int], Reach] | None:
        """The same for readers that know several such places: `Reach` says which."""
        until = self.plain_until()
        return until and functools.partial(_reach, until)

    def reach_behind(self, held: str) -> Callable[[str, int], Reach] | None:
        """The same where `held` was held back, and is passed on with what comes."""
        return None

    @property
    def moves_on(self) -> bool:
        """See `plain_until`: the reader stands before something that is passed on when all of it is there."""
        return False

    @property
    def written(self) -> Callable[[str], str] | None:
        """How such text is passed on; `None`: as it is."""
        return None

    @property
    def head(self) -> re.Pattern[str] | None:
        """How a text from here on mostly begins, up to a call's arguments: such heads come again and again."""
        return None

    exact: ClassVar[bool] = False
    """`place` says all. Otherwise it only says that a string streams, and what is remembered there are tokens that are plain in it."""

    forgets: ClassVar[bool] = False
    """Once a call's name has been said, the rest doesn't depend on it, or it is asked for (`Sink.parameter`, `Sink.missed`)."""

    @property
    def gathers(self) -> bool:
        """The text that is read now has its meaning later: the reader will ask for it (`Sink.missed`)."""
        return False

    def whole_value(self, tail: str) -> str | None:
        """The JSON of the value that is being read, should its text end with this. `None`: there is more to say of it."""
        return None

    def value_reader(self) -> ValueReader | None:
        """The same for all texts of the value, from behind its tag on, without this reader. `None`: only a reader can tell."""
        return None

    def place(self) -> Hashable | None:
        """Where the reader stands, for `unbraid.memo`: all on which the next token's effect can depend, so that readers of a
        program that say the same do the same. `None`: that is too much to say, or the request's own. An exact reader says
        first by what it was compiled, so that another can be made and take its place."""
        return (self.unsafe,) if self.streams else None

    def resume(self, place: Any) -> None:
        """Go back to where `place` said this: tokens may have come since that only the memo has seen."""

    def fail(self, at: int, reason: str) -> int:
        """This is no call, because of what stands at `at`."""
        self.failed = reason
        return at

    def expected(self, at: int, what: str) -> int:
        """The same, where something else should stand."""
        return self.fail(at, f"expected {what}")

    def no_body(self, text: str, at: int, final: bool, what: str) -> int:
        """What stands at `at` begins no body: a marker, then there is none, or something else than `what` was expected."""
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:
            self.empty = True
            return at
        return -1 if marker < 0 else self.expected(at, what)

    def no_bracket(self, text: str, at: int, final: bool, array: str) -> int:
        """What stands at `at`, behind a call of an `array`, neither goes on with it nor closes it. A marker ends it all the same."""
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:
            self.sink.note("missing_bracket", at, f"the {array} of calls isn't closed")
            self.done = True
            return at
        return -1 if marker < 0 else self.expected(at, '"," or "]"')

    def note_mismatch(self, at: int, key: str) -> None:
        """Note that a value's text doesn't fit its type: it stays a string."""
        self.sink.note("type_mismatch", at, f"the value of {key!r} isn't of the type that the tool's schema wants")

    def skip_space(self, text: str, at: int) -> int:
        match = SPACE.match(text, at)
        return match.end() if match else at


@dataclass(frozen=True, slots=True)
class Number:
    """A number that is to be written: it keeps its spelling."""

    text: str


_TO_WRITE = json.JSONDecoder(parse_int=Number, parse_float=Number)


def by_spelling(text: str) -> Any:
    """A JSON value whose numbers are `Number`s."""
    return _TO_WRITE.decode(text)


@dataclass(slots=True)
class ObjectWriter:
    """The JSON text of an object, written key by key. Each method returns the piece to append."""

    keys: int = 0

    def key(self, key: str) -> str:
        self.keys += 1
        return f"{'{' if self.keys == 1 else ', '}{json_string(key)}: "

    def close(self) -> str:
        return "}" if self.keys else "{}"


def literal(texts: Iterable[str]) -> str:
    """A pattern for any of these texts."""
    return "|".join(map(re.escape, texts))


def fitting(id: str, length: int) -> str:
    """An id of the given length, letters and digits only: this one, if it is one. 0: any is."""
    if not length or (len(id) == length and id.isascii() and id.isalnum()):
        return id
    return hashlib.blake2b(id.encode("utf-8", "replace"), digest_size=32).hexdigest()[:length]


_FAR = 512
"""No further is looked for what is plain: an unsafe character may stand much nearer, again and again."""


def _plain_until(unsafe: re.Pattern[str] | None, text: str, at: int) -> int:
    plain = PLAIN_IN_STRING.match(text, at, at + _FAR)
    stop = plain.end() if plain else at
    found = unsafe and unsafe.search(text, at, stop)
    return found.start() if found else stop


def _reach(until: Callable[[str, int], int], text: str, at: int) -> Reach:
    stop = until(text, at)
    return stop, stop, 0


def partial(text: str, at: int, options: Iterable[str]) -> bool:
    """Whether all that is left of `text` could still become one of these."""
    rest = len(text) - at
    return any(rest < len(option) and text.startswith(option[:rest], at) for option in options)


PLAIN_IN_STRING = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+')
"""Characters that stand for themselves in a JSON string."""

__all__ = [
    "HEADER_LIMIT",
    "PLAIN_IN_STRING",
    "Codec",
    "Compiled",
    "Inexpressible",
    "Number",
    "ObjectWriter",
    "Outcome",
    "Reach",
    "Reader",
    "Sink",
    "Speller",
    "ValueReader",
    "WrittenCall",
    "by_spelling",
    "escape",
    "fitting",
    "json_string",
    "literal",
    "partial",
]
