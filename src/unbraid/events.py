"""What the machine says: a stream cut into events that tile it.

Every event covers a stretch of the raw output: characters `start:stop` and tokens `token_start:token_stop` (0 and 0 when the
machine was fed text). Over a whole stream, `finish` included, the stretches follow each other without gap or overlap, so
`"".join(event.raw for event in events)` is the raw output. A token belongs to the event that holds its first byte.
Some events cover nothing (a call that ends because the stream ends): they have a place but no length.

One is made for every token, so they are plain objects with slots: making one costs an empty object and a few stores, where a
constructor in Python would cost as much again as all the rest (`Text.make(strand, ...)` is that, for where it doesn't matter). They
compare, hash, unpack and pickle by the values of their fields. Treat them as fixed. They are final: dispatch on the class.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from unbraid.native import mypyc_attr

Strand = Literal["reasoning", "content", "tool_call", "markup", "control"]
CallOutcome = Literal["complete", "incomplete", "withdrawn"]


@mypyc_attr(serializable=True)
class Stretch:
    """A stretch of the stream: what all events have in common."""

    __slots__ = ("raw", "start", "stop", "strand", "token_start", "token_stop")
    fields: ClassVar[tuple[str, ...]] = ("strand", "raw", "start", "stop", "token_start", "token_stop")
    """Names of the fields, in the order in which they unpack."""

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int

    @classmethod
    def make(cls, *values: Any, **named: Any) -> Self:
        """Of the values of its fields, in order or by name."""
        rest = cls.fields[len(values) :]
        if len(values) > len(cls.fields) or named.keys() != set(rest):
            raise TypeError(f"{cls.__name__} is made of {', '.join(cls.fields)}")
        event = cls()
        for name, value in zip(cls.fields, values, strict=False):
            setattr(event, name, value)
        for name in rest:
            setattr(event, name, named[name])
        return event

    def replace(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return self.make(**{**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """The values of its fields by name."""
        return {name: getattr(self, name) for name in self.fields}

    def __iter__(self) -> Iterator[Any]:
        return iter(self.as_dict().values())

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).make, tuple(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"


class Text(Stretch):
    """A piece of reasoning or content. The `text` of all events of a strand, joined, is the message's field."""

    __slots__ = ("text",)
    fields: ClassVar[tuple[str, ...]] = (*Stretch.fields, "text")

    text: str
    """What the reader sees. Nearly always `raw`; longer where a format joins its messages with a newline (Harmony), or where
    the text of a withdrawn call is handed on as content."""


class CallStart(Stretch):
    """A call's name is known: `index` counts the calls of this message from 0, `name` is whole."""

    __slots__ = ("id", "index", "name")
    fields: ClassVar[tuple[str, ...]] = (*Stretch.fields, "index", "id", "name")

    index: int
    id: str
    name: str


class CallArguments(Stretch):
    """A piece of the JSON text of a call's arguments. The pieces of one call, joined, are the arguments."""

    __slots__ = ("delta", "index")
    fields: ClassVar[tuple[str, ...]] = (*Stretch.fields, "index", "delta")

    index: int
    delta: str


class CallEnd(Stretch):
    """A call is over.

    `complete`: its arguments are a whole JSON object. `incomplete`: the stream was cut off inside it. `withdrawn`: it was no
    sound call after all (or policy drops it), it isn't part of the message; its raw text follows as a `Text` event if
    policy says so.
    """

    __slots__ = ("index", "outcome")
    fields: ClassVar[tuple[str, ...]] = (*Stretch.fields, "index", "outcome")

    index: int
    outcome: CallOutcome


class Markup(Stretch):
    """The format's own delimiters and framing: nobody's text."""

    __slots__ = ()


class Control(Stretch):
    """End of turn and other special tokens that aren't part of the text."""

    __slots__ = ()


Event = Text | CallStart | CallArguments | CallEnd | Markup | Control


QUOTED: Final = 40
"""So many characters are quoted of what doesn't fit."""
MOST_OF_A_KIND: Final = 32
"""So many diagnostics of one kind a message has: garbage may be noticed at each of its characters. The last says how many more came."""


class Diagnostic(NamedTuple):
    """Something that doesn't fit the format; parsing went on. `kind` is stable and short, for counting. What goes on (text that has
    no place, say) is one: how often and where something is noticed doesn't depend on how the stream was cut."""

    kind: str
    format: str
    state: str
    offset: int
    """Character of the raw output at which it was noticed."""
    message: str
    found: str = ""
    """What stands there, up to `QUOTED` characters of the raw output, if it is what doesn't fit. While the stream runs it grows."""
    more: int = 0
    """So many more of this kind came behind it that aren't listed: see `MOST_OF_A_KIND`. While the stream runs it grows."""

    @property
    def text(self) -> str:
        """The message, with what was found."""
        said = f"{self.message}: {self.found!r}" if self.found else self.message
        return f"{said}, and {self.more} more of this kind behind it" if self.more else said

    def __str__(self) -> str:
        return f"{self.format}, state {self.state}, character {self.offset}: {self.text}"
