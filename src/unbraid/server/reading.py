"""What reads an engine's output, and how it counts where nobody tells tokens.

An engine in text mode says at most how many tokens there were in all, not which of them were reasoning. Such servers send a token an
event, save when they are busy. So each of their steps is taken for one, and belongs to the event that holds its first character, as a
token does. A result with a number from here says so (`Usage.counted_by`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from unbraid.engines.base import Spent
from unbraid.events import Diagnostic, Event
from unbraid.protocol import Usage


class Reader(Protocol):
    """What makes events of an engine's tokens: a parser, or whoever takes text as it is."""

    @property
    def diagnostics(self) -> Sequence[Diagnostic]: ...

    def feed(self, ids: Sequence[int]) -> Sequence[Event]: ...

    def feed_text(self, text: str) -> Sequence[Event]: ...

    def finish(self, reason: Any) -> Sequence[Event]: ...


class Counted:
    """A reader in text mode, and the steps in which its text came. Is a `Reader` itself."""

    def __init__(self, reader: Reader) -> None:
        self.steps = self.reasoning = 0
        self._reader = reader
        self._at = 0
        self._starts: deque[int] = deque()
        """Where the steps begin whose events are still to come."""

    @property
    def diagnostics(self) -> Sequence[Diagnostic]:
        return self._reader.diagnostics

    def feed(self, ids: Sequence[int]) -> Sequence[Event]:
        return self._reader.feed(ids)

    def feed_text(self, text: str) -> Sequence[Event]:
        if text:
            self.steps += 1
            self._starts.append(self._at)
            self._at += len(text)
        return self._placed(self._reader.feed_text(text))

    def finish(self, reason: Any) -> Sequence[Event]:
        return self._placed(self._reader.finish(reason))

    def _placed(self, events: Sequence[Event]) -> Sequence[Event]:
        for event in events:
            while self._starts and self._starts[0] < event.stop:
                self._starts.popleft()
                self.reasoning += event.strand == "reasoning"
        return events


def text_usage(counted: Iterable[tuple[Counted, Spent | None]]) -> Usage:
    """Of all choices. The engine's own count beats the steps; where it counts more of them, reasoning has its share."""
    prompt = completion = reasoning = 0
    for steps, spent in counted:
        tokens = steps.steps if spent is None else spent.completion
        # One more than the steps is the token that ends the turn, which leaves no text.
        scale = tokens / steps.steps if steps.steps and tokens > steps.steps + 1 else 1
        prompt = max(prompt, 0 if spent is None else spent.prompt)
        completion += tokens
        reasoning += min(tokens, round(steps.reasoning * scale))
    return Usage(prompt, completion, reasoning, counted_by="steps")
