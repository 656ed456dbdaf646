"""Connections that must come to the point: whoever sends the head of a request a byte at a time isn't listened to for ever.

uvicorn has a clock for a connection that is idle after a reply, none for one that hasn't said yet what it wants. How long
the body of a request may take is `unbraid.server.limits`' business, where it can be answered with a status.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


class Punctual(asyncio.Protocol):
    """Goes before one of uvicorn's protocols. The clock runs from the connection's beginning, or from the first byte after
    a reply, until a request's head is whole: then its connection is closed, without a word, as nginx does it."""

    head_seconds: float
    transport: asyncio.Transport
    cycle: Any
    """uvicorn's: the last request whose head has come, and its reply."""
    _clock: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._start()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop()
        elif self._clock is None:
            self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _start(self) -> None:
        self._clock = asyncio.get_running_loop().call_later(self.head_seconds, self.transport.close)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


def http_protocol(head_seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, the best that is installed, with a clock for heads."""
    return type("PunctualProtocol", (Punctual, AutoHTTPProtocol), {"head_seconds": head_seconds})
