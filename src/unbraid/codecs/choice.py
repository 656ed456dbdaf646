"""A body in one of several syntaxes: what it begins with says which."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from unbraid.codecs.base import Codec, Compiled, Outcome, Reader, Sink, WrittenCall, partial
from unbraid.grammar.tree import Node
from unbraid.table import Piece, Spelling


@dataclass(frozen=True, slots=True)
class Choice:
    """The first of `codecs` whose beginning fits reads the body; the first of all writes. Models and their fine-tunes mix.

    A codec whose bodies have no beginning of their own reads what fits no other.
    """

    codecs: tuple[Codec, ...]

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return tuple(spelling for codec in self.codecs for spelling in codec.begins)

    def spellings(self) -> Iterable[Spelling]:
        return tuple(spelling for codec in self.codecs for spelling in codec.spellings())

    def compile(self, alphabet: Any) -> _Options:
        options = [(tuple(alphabet.spell(codec.begins)), codec.compile(alphabet)) for codec in self.codecs]
        openings = (getattr(compiled, "opening", None) for _, compiled in options)
        patterns = [opening.pattern for opening in openings if opening is not None]
        return _Options(options, re.compile("|".join(patterns)) if patterns else None)

    @property
    def many(self) -> bool:
        """Whether one body holds all calls."""
        return bool(getattr(self.codecs[0], "many", False))

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        return self.codecs[0].write(calls)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        return self.codecs[0].grammar(name, schema)


@dataclass(frozen=True, slots=True, eq=False)
class _Options:
    options: list[tuple[tuple[str, ...], Compiled]]
    opening: re.Pattern[str] | None
    """How the body of any of them mostly begins, as far as they say."""

    def reader(self, sink: Sink) -> Reader:
        return _ChoiceReader(sink, self)


class _ChoiceReader(Reader):
    """Waits for the body's beginning, then hands over."""

    __slots__ = ("spec",)

    def __init__(self, sink: Sink, spec: _Options) -> None:
        super().__init__(sink)
        self.spec = spec

    def read(self, text: str, at: int, final: bool) -> int:
        at = self.skip_space(text, at)
        if at == len(text):
            return at
        for begins, compiled in self.spec.options:
            if text.startswith(begins, at):
                self.successor = compiled.reader(self.sink)
                return at
        if not final and any(partial(text, at, begins) for begins, _ in self.spec.options):
            return at
        other = next((compiled for begins, compiled in self.spec.options if not begins), self.spec.options[0][1])
        self.successor = other.reader(self.sink)  # it says what it misses
        return at

    exact: ClassVar[bool] = True

    def place(self) -> Hashable | None:
        return (self.spec,)

    @property
    def head(self) -> re.Pattern[str] | None:
        return self.spec.opening

    def finish(self) -> Outcome:
        return "blank"
