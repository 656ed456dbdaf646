"""An application on a real socket, for tests."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from unbraid.server.run import configuration, listen


@contextmanager
def serving(app: Any, *, small_buffers: bool = False, header_seconds: float = 20) -> Iterator[str]:
    """Its URL, while it is served by a thread as `unbraid serve` would. Leaving shuts it down, which closes the engine."""
    with listen("127.0.0.1", 0) as listening:
        if small_buffers:  # so that a slow reader is noticed after kilobytes, not megabytes
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        with running(configuration(app, drain=1, header_seconds=header_seconds), listening) as url:
            yield url


@contextmanager
def running(config: uvicorn.Config, listening: socket.socket) -> Iterator[str]:
    """A server in a thread, on a socket that listens already; its URL."""
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(15)
        assert not thread.is_alive(), "the server hangs"
