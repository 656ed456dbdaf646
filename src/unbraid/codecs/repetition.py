"""The last body once more: some models repeat it as text behind its closing marker, and close it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unbraid.codecs.base import Inexpressible, Outcome, Reader, Sink, WrittenCall
from unbraid.errors import SchemaError
from unbraid.grammar.tree import Node
from unbraid.table import Piece, Spelling


@dataclass(frozen=True, slots=True)
class Repetition:
    """The same characters as the last body: markup. `closing`: what ends a body behind its last call."""

    closing: str = "]"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return ()

    def spellings(self) -> Iterable[Spelling]:
        return ()

    def compile(self, alphabet: Any) -> _Repetition:
        return _Repetition(self)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        raise Inexpressible("a repetition is never written")

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        raise SchemaError("", "a repetition is never written")


@dataclass(frozen=True, slots=True)
class _Repetition:
    codec: Repetition

    def reader(self, sink: Sink) -> Reader:
        return _RepetitionReader(sink, self.codec)


class _RepetitionReader(Reader):
    """Compares, character by character."""

    __slots__ = ("body", "position")

    def __init__(self, sink: Sink, codec: Repetition) -> None:
        super().__init__(sink)
        calls = sink.last_body().strip()
        self.body = calls + codec.closing if calls else ""
        self.position = 0

    def read(self, text: str, at: int, final: bool) -> int:
        text = self.sink.expand(text[at:]) if at else text
        count = min(len(text), len(self.body) - self.position)
        if not count or not self.body.startswith(text[:count], self.position):
            return self.fail(at, "not the last body")
        self.position += count
        if self.position == len(self.body):
            self.sink.note("repeated_body", at + count, "the call's body comes a second time; it is left out")
            self.done = True
        return at + count

    def finish(self) -> Outcome:
        return "blank"
