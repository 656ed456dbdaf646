"""Events folded into a message: the three fields that everyone wants, and the strands in the order in which they came.

Like the events these are plain objects with slots, made for every request: a frozen dataclass takes two and a half times as long to
make. They compare by the values of their fields, and calls and parts hash by them (a message holds lists). Treat them as fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from unbraid.events import Diagnostic


@dataclass(slots=True, unsafe_hash=True)
class ToolCall:
    """One call. `arguments` is JSON text: of an object if `complete`, else a prefix of one."""

    id: str
    name: str
    arguments: str
    complete: bool = True


@dataclass(slots=True, unsafe_hash=True)
class TextPart:
    """A stretch of reasoning or content, between two markers."""

    strand: Literal["reasoning", "content"]
    text: str


Part = TextPart | ToolCall


@dataclass(slots=True)
class Message:
    """What the model said. `None` means absent: an empty string is never given for a field in which nothing was written."""

    reasoning: str | None = None
    content: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    """Reasoning, content and calls in the order in which they came, for protocols that keep it."""
    diagnostics: list[Diagnostic] = field(default_factory=list, compare=False)
    """Where the output left its format, in order. Not part of the message's identity."""
