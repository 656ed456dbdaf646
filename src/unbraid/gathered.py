"""What the message is gathered from while a stream runs: stretches of text and calls, of pieces that are only joined when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from unbraid.message import Message, Part, TextPart, ToolCall
from unbraid.native import mypyc_attr

if TYPE_CHECKING:
    from unbraid.events import Diagnostic, Event
    from unbraid.memo import Step
    from unbraid.schema import Type

_MANY: Final = 1_000
"""So many pieces are joined for good when their text is asked for: a message can be had after every token."""


@mypyc_attr(native_class=False)
class ArgumentsPiece(str):
    """A piece of the JSON of a call's arguments that the model wrote otherwise: `raw`."""

    __slots__ = ("raw",)

    raw: str

    @classmethod
    def of(cls, delta: str, raw: str) -> str:
        """The piece that this raw text came to: where they are alike, the text itself."""
        if delta == raw:
            return raw
        piece = cls(delta)
        piece.raw = raw
        return piece


@mypyc_attr(serializable=True)
class Segment:
    """A stretch of one strand, gathered for the message."""

    __slots__ = ("later", "pieces", "strand")

    strand: Literal["reasoning", "content"]
    pieces: list[str]
    later: bool
    """An earlier stretch of the strand has text, and the format puts something between the two."""

    @property
    def text(self) -> str:
        """All of it."""
        text = "".join(self.pieces)
        if len(self.pieces) > _MANY:
            self.pieces[:] = (text,)
        return text


@mypyc_attr(serializable=True)
class Call:
    """A call, gathered for the message."""

    __slots__ = ("id", "index", "missed", "name", "opening", "outcome", "pieces", "told")

    def __init__(self, index: int, id: str, name: str) -> None:
        self.index = index
        self.id = id
        self.name = name
        self.opening: Sequence[Event | Step] = ()
        """All from the call's opening marker to its name, with markup from before it: if it is none, they are content."""
        self.pieces: list[str] = []
        """Of the arguments, with their raw text, which may still have to be handed on as content."""
        self.outcome: Literal["open", "complete", "incomplete", "withdrawn"] = "open"
        self.missed: list[tuple[str, Type, int]] = []
        """Parameters that began while the reader wasn't asked, and the characters at which their values begin."""
        self.told = 0, ""
        """So many pieces of the arguments were put together before, and this is what they come to."""

    def end(self, length: int) -> str:
        """The last so many characters of the raw text of the arguments."""
        raws: list[str] = []
        for piece in reversed(self.pieces):
            if length <= 0:
                break
            raws.append((piece.raw if isinstance(piece, ArgumentsPiece) else piece)[-length:])
            length -= len(raws[-1])
        return "".join(reversed(raws))

    @property
    def raw(self) -> str:
        """All that is content if this is no call."""
        raws: list[str] = []
        for event in self.opening[:-1]:
            if event.strand == "tool_call":  # of the call before
                raws.clear()
            elif event.strand != "control":
                raws.append(event.raw)
        raws += [event.raw for event in self.opening[-1:]]
        raws += [piece.raw if isinstance(piece, ArgumentsPiece) else piece for piece in self.pieces]
        return "".join(raws)

    @property
    def arguments(self) -> str:
        """Their JSON, as far as it has come. Costs the pieces that came since it was last asked for."""
        count, text = self.told
        if len(self.pieces) > count:
            text += "".join(self.pieces[count:] if count else self.pieces)
            self.told = len(self.pieces), text
        return text


def folded(gathered: Iterable[Segment | Call], join: str, diagnostics: list[Diagnostic]) -> Message:
    """The message of what has been gathered. `join`: what the format puts between two messages of one strand."""
    parts: list[Part] = []
    calls: list[ToolCall] = []
    reasoning: list[str] = []
    content: list[str] = []
    for part in gathered:
        if isinstance(part, Segment):
            if text := part.text:
                (reasoning if part.strand == "reasoning" else content).append(text)
                parts.append(TextPart(part.strand, text))
        elif part.outcome != "withdrawn":
            call = ToolCall(part.id, part.name, part.arguments, part.outcome == "complete")
            calls.append(call)
            parts.append(call)
    return Message(join.join(reasoning) or None, join.join(content) or None, calls, parts, diagnostics)


__all__ = ["ArgumentsPiece", "Call", "Segment", "folded"]
