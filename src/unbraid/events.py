"""What the machine says: a stream cut into events that tile it.

Every event covers a stretch of the raw output: characters `start:stop` and tokens `token_start:token_stop` (0 and 0 when the
machine was fed text). Over a whole stream, `finish` included, the stretches follow each other without gap or overlap, so
`"".join(event.raw for event in events)` is the raw output. A token belongs to the event that holds its first byte.
Some events cover nothing (a call that ends because the stream ends): they have a place but no length.

Events are named tuples rather than frozen dataclasses because one is made for every token: a tuple costs a third of what
a frozen dataclass with slots does. They are final: dispatch on the class.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Strand = Literal["reasoning", "content", "tool_call", "markup", "control"]
CallOutcome = Literal["complete", "incomplete", "withdrawn"]


class Text(NamedTuple):
    """A piece of reasoning or content. The `text` of all events of a strand, joined, is the message's field."""

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int
    text: str
    """What the reader sees. Nearly always `raw`; longer where a format joins its messages with a newline (Harmony), or where
    the text of a withdrawn call is handed on as content."""


class CallStart(NamedTuple):
    """A call's name is known: `index` counts the calls of this message from 0, `name` is whole."""

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    id: str
    name: str


class CallArguments(NamedTuple):
    """A piece of the JSON text of a call's arguments. The pieces of one call, joined, are the arguments."""

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int
    index: int  # type: ignore[assignment]
    delta: str


class CallEnd(NamedTuple):
    """A call is over.

    `complete`: its arguments are a whole JSON object. `incomplete`: the stream was cut off inside it. `withdrawn`: it was no
    sound call after all (or policy drops it), it isn't part of the message; its raw text follows as a `Text` event if
    policy says so.
    """

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int
    index: int  # type: ignore[assignment]
    outcome: CallOutcome


class Markup(NamedTuple):
    """The format's own delimiters and framing: nobody's text."""

    strand: Strand
    raw: str
    start: int
    stop: int
    token_start: int
    token_stop: int


class Control(NamedTuple):
    """End of turn and other special tokens that aren't part of the text."""

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
