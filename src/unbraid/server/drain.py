"""The end of a drain: requests and replies that aren't over when a server's patience is are ended by us, in the form of their protocol.

uvicorn would cancel them, and log each as if the application had failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from unbraid.errors import RequestError

log = logging.getLogger("unbraid.server")


class ShuttingDown(RequestError):
    """The reply isn't over, and the server has to go."""

    def __init__(self) -> None:
        super().__init__("the server shuts down; ask again", status=503, code="shutting_down")


class Drain:
    """What is being worked on, and whether their time is up."""

    def __init__(self) -> None:
        self.over = False
        self._working: set[asyncio.Task[Any]] = set()

    @contextmanager
    def working(self, task: asyncio.Task[Any]) -> Iterator[None]:
        """While this lasts, the task is cancelled if the time is up."""
        self._working.add(task)
        try:
            if self.over:
                task.cancel()
            yield
        finally:
            self._working.discard(task)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this lasts, the present task raises `ShuttingDown` if the time is up."""
        task = asyncio.current_task()
        assert task is not None
        try:
            with self.working(task):
                yield
        except asyncio.CancelledError:
            if not self.over:
                raise
            task.uncancel()
            raise ShuttingDown from None

    def end(self) -> None:
        """The time is up. Whoever waits for one of the tasks says so to its client."""
        self.over = True
        if self._working:
            log.warning("shutting down: %d requests weren't over in time and are cut", len(self._working))
        for task in self._working:
            task.cancel()


__all__ = ["Drain", "ShuttingDown"]
