"""Calls as a JSON array of objects with one key each: the function's name, and its arguments as the value.

[{"get_weather": {"city": "Oslo"}}, {"get_time": {}}]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unbraid.codecs.base import HEADER_LIMIT, Outcome, Reader, Sink, WrittenCall
from unbraid.codecs.json_arguments import ArgumentsReader
from unbraid.codecs.json_scanner import QUOTED, string_value
from unbraid.grammar.tree import Json, Node, literal, sequence
from unbraid.schema import json_string
from unbraid.table import Piece, Spelling


@dataclass(frozen=True, slots=True)
class KeyedArray:
    """All calls of a section as `[{NAME: ARGUMENTS}, ...]`. A missing last bracket and a single object are read too."""

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return (("[",), ("{",))

    @property
    def many(self) -> bool:
        return True

    def spellings(self) -> Iterable[Spelling]:
        return ()

    def compile(self, alphabet: Any) -> _Keyed:
        return _Keyed()

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        return (f"[{', '.join(f'{{{json_string(call.name)}: {call.arguments}}}' for call in calls)}]",)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        return sequence(literal(f"{{{json_string(name)}: "), Json(schema), literal("}"))


@dataclass(frozen=True, slots=True, eq=False)
class _Keyed:
    def reader(self, sink: Sink) -> Reader:
        return _KeyedReader(sink, self)


class _KeyedReader(ArgumentsReader[_Keyed]):
    """Reads `[{"NAME": {...}}, ...]`."""

    __slots__ = ("array", "step")

    def __init__(self, sink: Sink, spec: _Keyed) -> None:
        super().__init__(sink, spec)
        self.array = False
        self.step: Callable[[str, int, bool], int] = self._begin

    def standing(self) -> tuple[Hashable, ...]:
        return (self.array,)

    def stand(self, *standing: Any) -> None:
        (self.array,) = standing

    def _begin(self, text: str, at: int, final: bool) -> int:
        if text[at] in "[{":
            self.array = text[at] == "["
            self.step = self._element if self.array else self._key
            return at + 1
        return self.no_body(text, at, final, "a JSON array")

    def _element(self, text: str, at: int, final: bool) -> int:
        if text[at] == "{":
            self.step = self._key
            return at + 1
        if text[at] == "]":
            self.done = True
            return at + 1
        return self.expected(at, 'an object or "]"')

    def _key(self, text: str, at: int, final: bool) -> int:
        if text[at] != '"':
            return self.expected(at, "a function's name as key")
        match = QUOTED.match(text, at)
        stop = self.skip_space(text, match.end()) if match else len(text)
        if stop - at >= HEADER_LIMIT:
            return self.fail(at, f"a name of more than {HEADER_LIMIT} characters")
        if match is None or stop == len(text):
            return -1
        name = string_value(self.sink.expand(match[0]))
        if not name or text[stop] != ":":
            return self.expected(at, "a function's name as key")
        self.begin_arguments()
        self._name_known(stop + 1, name, None)
        self.step = self._value
        return stop + 1

    def _value(self, text: str, at: int, final: bool) -> int:
        if self._half_null(text, at, final):
            return -1
        if not self._open_arguments(text, at):
            return self.expected(at, "an object as arguments")
        self.step = self._in_arguments
        return at

    def arguments_over(self, stop: int) -> None:
        self.step = self._close

    def _close(self, text: str, at: int, final: bool) -> int:
        if text[at] != "}":
            return self.expected(at, '"}"')
        self.sink.call_end(at + 1)
        self.named = False
        self.step = self._between
        self.done = not self.array
        return at + 1

    def _between(self, text: str, at: int, final: bool) -> int:
        if text[at] == ",":
            self.step = self._element
            return at + 1
        if text[at] == "]":
            self.done = True
            return at + 1
        return self.no_bracket(text, at, final, "array")

    def finish(self) -> Outcome:
        if self.step == self._begin:
            return "blank"
        return "complete" if self.step in (self._between, self._element) else "malformed"
