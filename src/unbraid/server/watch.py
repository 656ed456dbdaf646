"""What is noted of one choice while it runs: numbers, never texts. Metrics, logs and traces are made of it when it has ended.

A step costs one addition per event: that is all that the hot path pays for being watched.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from unbraid.engines.base import Spent
from unbraid.events import CallEnd, Diagnostic, Event

UNKNOWN = "unknown"
"""The strand of tokens that an engine in text mode counted: it doesn't say which they were."""


@dataclass(slots=True)
class Watch:
    """One choice."""

    started: float = field(default_factory=time.monotonic)
    first: float | None = None
    """When the first step came, on the clock of `time.monotonic`."""
    stopped: float | None = None
    finish: str = "aborted"
    """The finish reason that the client was told; `aborted`: it was never told one."""
    tokens: dict[str, int] = field(default_factory=lambda: Counter[str]())
    """Tokens by strand."""
    calls: Counter[str] = field(default_factory=Counter)
    """Calls by outcome: complete, incomplete, withdrawn."""
    diagnostics: Counter[str] = field(default_factory=Counter)
    """Diagnostics by kind."""

    def saw(self, events: Iterable[Event]) -> None:
        """What the machine said about some steps of the engine."""
        if self.first is None:
            self.first = time.monotonic()
        tokens = self.tokens
        for event in events:
            tokens[event.strand] += event.token_stop - event.token_start
            if type(event) is CallEnd:
                self.calls[event.outcome] += 1

    def ended(self, diagnostics: Sequence[Diagnostic], spent: Spent | None) -> None:
        """The choice is over, however it ended."""
        self.stopped = time.monotonic()
        for diagnostic in diagnostics:
            self.diagnostics[diagnostic.kind] += 1 + diagnostic.more
        if spent is not None:
            self.tokens[UNKNOWN] += spent.completion
