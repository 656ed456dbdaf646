"""What the machine says: a stream cut into events that tile it.

Every event covers a stretch of the raw output: characters `start:stop` and tokens `token_start:token_stop` (0 and 0 when the
machine was fed text). Over a whole stream, `finish` included, the stretches follow each other without gap or overlap, so
`"".join(event.raw for event in events)` is the raw output. A token belongs to the event that holds its first byte.
Some events cover nothing (a call that ends because the stream ends): they have a place but no length.

Events are tuples with names rather than frozen dataclasses because one is made for every token. They differ from `NamedTuple` in one
thing: they are made of one tuple, `Text((strand, raw, ...))`, for a Python constructor that takes the fields one by one would cost as
much again as all the rest (`Text.make` does that, where it doesn't matter). They are final: dispatch on the class.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

Strand = Literal["reasoning", "content", "tool_call", "markup", "control"]
CallOutcome = Literal["complete", "incomplete", "withdrawn"]

_Nine = namedtuple("_Nine", "a b c d e f g h i")  # lends its descriptors: the quickest way to an item
_GETTERS: Final = [vars(_Nine)[name] for name in _Nine._fields]


class _Named(tuple[Any, ...]):
    """A tuple whose items have names: those that its class annotates."""

    __slots__ = ()
    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.fields = tuple(cls.__annotations__)
        for name, getter in zip(cls.fields, _GETTERS, strict=False):
            setattr(cls, name, getter)

    @classmethod
    def make(cls, *values: Any, **named: Any) -> Self:
        """Of the values of its fields, in order or by name."""
        rest = cls.fields[len(values) :]
        if len(values) > len(cls.fields) or named.keys() != set(rest):
            raise TypeError(f"{cls.__name__} is made of {', '.join(cls.fields)}")
        return cls((*values, *(named[name] for name in rest)))

    def replace(self, **changes: Any) -> Self:
        """The same with some fields changed."""
        return self.make(**{**self.as_dict(), **changes})

    def as_dict(self) -> dict[str, Any]:
        """The values of its fields by name."""
        return dict(zip(self.fields, self, strict=True))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.as_dict().items())})"


class Text(_Named):
    """A piece of reasoning or content. The `text` of all events of a strand, joined, is the message's field."""

    __slots__ = ()

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int
    text: str
    """What the reader sees. Nearly always `raw`; longer where a format joins its messages with a newline (Harmony), or where
    the text of a withdrawn call is handed on as content."""


class CallStart(_Named):
    """A call's name is known: `index` counts the calls of this message from 0, `name` is whole."""

    __slots__ = ()

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    id: str
    name: str


class CallArguments(_Named):
    """A piece of the JSON text of a call's arguments. The pieces of one call, joined, are the arguments."""

    __slots__ = ()

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int
    index: int  # type: ignore[assignment]
    delta: str


class CallEnd(_Named):
    """A call is over.

    `complete`: its arguments are a whole JSON object. `incomplete`: the stream was cut off inside it. `withdrawn`: it was no
    sound call after all (or policy drops it), it isn't part of the message; its raw text follows as a `Text` event if
    policy says so.
    """

    __slots__ = ()

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int
    index: int  # type: ignore[assignment]
    outcome: CallOutcome


class Markup(_Named):
    """The format's own delimiters and framing: nobody's text."""

    __slots__ = ()

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int


class Control(_Named):
    """End of turn and other special tokens that aren't part of the text."""

    __slots__ = ()

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int


Event = Text | CallStart | CallArguments | CallEnd | Markup | Control


class Diagnostic(NamedTuple):
    """Something that doesn't fit the format; parsing went on. `kind` is stable and short, for counting."""

    kind: str
    format: str
    state: str
    offset: int
    """Character of the raw output at which it was noticed."""
    message: str

    def __str__(self) -> str:
        return f"{self.format}, state {self.state}, character {self.offset}: {self.message}"
