"""What a rival's adapter gives: a name, a version, and for a workload and mode a function that parses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from benchmarks.contest import Prepared


@dataclass
class Result:
    """What a parser made of a stream. `calls`: names with the JSON text of their arguments."""

    reasoning: str | None = None
    content: str | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)


class Rival(Protocol):
    """Somebody else's parser."""

    name: str
    version: str

    def contestant(self, prepared: Prepared, mode: str) -> Callable[[], Result] | None:
        """A function that parses the workload from nothing to a message, or None if this rival can't or doesn't do
        that."""
        ...


class Fold:
    """Deltas of an OpenAI-like stream folded into a result."""

    __slots__ = ("arguments", "content", "names", "reasoning")

    def __init__(self) -> None:
        self.reasoning: list[str] = []
        self.content: list[str] = []
        self.names: dict[int, str] = {}
        self.arguments: dict[int, list[str]] = {}

    def call(self, index: int, name: str | None, arguments: str | None) -> None:
        if name:
            self.names[index] = name
        self.arguments.setdefault(index, [])
        if arguments:
            self.arguments[index].append(arguments)

    def result(self) -> Result:
        calls = [(self.names.get(index, ""), "".join(parts)) for index, parts in sorted(self.arguments.items())]
        return Result("".join(self.reasoning) or None, "".join(self.content) or None, calls)
