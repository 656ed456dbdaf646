"""A call that is nothing but the text of its one argument, as a rule code for an interpreter: up to the end of the turn."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from unbraid.codecs.base import Inexpressible, Outcome, Reader, Sink, WrittenCall, escape, json_string
from unbraid.grammar.tree import Node, Text
from unbraid.table import Piece, Spelling

_LONGEST_MARKER: Final = 40
"""Characters at a text's end in which a marker may have begun."""


@dataclass(frozen=True, slots=True)
class RawText:
    """All text up to the end of the turn is one argument of one tool: code, as a rule. No call unless such a tool was offered.

    `tools`: names of such tools, the first that was offered is meant. `key`: its parameter; a tool that has no such one: its first.
    """

    tools: tuple[str, ...] = ("python", "code_interpreter", "ipython")
    key: str = "code"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return ()

    def spellings(self) -> Iterable[Spelling]:
        return ()

    def compile(self, alphabet: Any) -> _Raw:
        return _Raw(self)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        values = [value for _, value, _ in calls[0].items()]
        if len(values) != 1 or not isinstance(values[0], str):
            raise Inexpressible("code is its only argument")
        return (values[0],)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        return Text()


@dataclass(frozen=True, slots=True, eq=False)
class _Raw:
    codec: RawText

    def reader(self, sink: Sink) -> Reader:
        return _RawReader(sink, self)


class _RawReader(Reader):
    """Passes on all it gets as one string."""

    __slots__ = ("spec",)

    def __init__(self, sink: Sink, spec: _Raw) -> None:
        super().__init__(sink)
        self.spec = spec

    @property
    def streams(self) -> bool:
        return self.named

    def read(self, text: str, at: int, final: bool) -> int:
        if not self.named:
            codec, tools = self.spec.codec, self.sink.tools
            name = next((name for name in codec.tools if name in tools), None)
            if name is None:
                return self.fail(at, "code, but no tool was offered that runs it")
            keys = tools.keys(name)
            key = codec.key if codec.key in keys or not keys else keys[0]
            self.named = True
            self.sink.call_start(at, name)
            self.sink.call_arguments(at, f'{{{json_string(key)}: "')
        stop = self._text_end(text, at, final)
        if stop > at:
            self.sink.call_arguments(stop, escape(self.sink.expand(text[at:stop])))
        if self.sink.marker_at(text, stop, final) > 0 and stop < len(text):
            self.sink.call_arguments(stop, self.tail())
            self.sink.call_end(stop)
            self.done = True
        return stop

    def _text_end(self, text: str, at: int, final: bool) -> int:
        """Where a marker begins, or could: read as text, the turn's end is spelled."""
        found = self.sink.find_marker(text, at, len(text))
        if found >= 0:
            return found
        last = max(at, len(text) - _LONGEST_MARKER)
        return next((n for n in range(last, len(text)) if self.sink.marker_at(text, n, final) < 0), len(text))

    exact: ClassVar[bool] = True

    def place(self) -> Hashable | None:
        return self.spec, self.named

    def plain_until(self) -> None:
        """A marker may begin in any text."""

    def finish(self) -> Outcome:
        return "whole" if self.named else "blank"

    def tail(self) -> str:
        return '"}'
