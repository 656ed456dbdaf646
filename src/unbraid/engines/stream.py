"""A request to an engine over HTTP/1.1, and the body of its answer as it comes.

An engine's stream is one small chunk for each token. A client for all purposes hands them on one by one, through many layers, at some
60 microseconds each; here whatever a read of the socket has brought is taken apart at once and handed on in one piece. Only what
engines need is here: POST, an answer in chunks, of a given length, or up to the end of the connection, connections that are
used again. Everything that goes wrong is an `OSError`.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import unquote, urlsplit

MAX_HEAD = 65536
"""Bytes of an answer's status and headers together."""
MAX_LINE = 4096
"""Bytes of a chunk's size with its extensions."""
AHEAD = 262144
"""Bytes that are read before somebody takes them; then the engine has to wait."""
KEPT = 256
"""Connections that are kept for the next request."""

_SIZE = re.compile(rb"[0-9a-fA-F]{1,15}")


class Body(Protocol):
    """How an answer's body is found in its bytes."""

    done: bool
    rest: bytes
    """What came and isn't taken apart yet; behind the end, what doesn't belong to it."""

    def feed(self, data: bytes) -> bytes:
        """What these bytes add to the body. Raises `ValueError` if they can't be."""

    def closed(self) -> bool:
        """The connection has ended: whether that is the body's end, too."""


class Chunked:
    """In chunks."""

    __slots__ = ("_left", "_trailer", "done", "rest")

    def __init__(self) -> None:
        self.done = False
        self._left = 0
        """Bytes of the chunk that are to come, its line end among them."""
        self.rest = b""
        self._trailer = False

    def feed(self, data: bytes) -> bytes:
        data = self.rest + data
        pieces = []
        at = 0
        while not self.done:
            if self._left > 2:
                pieces.append(data[at : at + self._left - 2])
                at += len(pieces[-1])
                self._left -= len(pieces[-1])
            if self._left > 2 or len(data) - at < self._left:
                break
            if data[at : at + self._left] not in (b"", b"\r\n"):
                raise ValueError("a chunk is longer than it said")
            at, self._left = at + self._left, 0
            end = data.find(b"\n", at)
            if end < 0:
                break
            self._line(data[at:end].rstrip(b"\r"))
            at = end + 1
        self.rest = data[at:]
        if len(self.rest) > MAX_LINE and not self.done:
            raise ValueError("the size of a chunk has no end")
        return b"".join(pieces)

    def _line(self, line: bytes) -> None:
        if self._trailer:
            self.done = not line
            return
        size = line.partition(b";")[0].strip()
        if not _SIZE.fullmatch(size):
            raise ValueError(f"{size[:40]!r} is no size of a chunk")
        length = int(size, 16)
        self._trailer = not length
        self._left = length and length + 2

    def closed(self) -> bool:
        return False


class Sized:
    """Of a given length."""

    __slots__ = ("_left", "done", "rest")

    def __init__(self, length: int) -> None:
        self.rest = b""
        self._left = length
        self.done = not length

    def feed(self, data: bytes) -> bytes:
        data, self.rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        self.done = not self._left
        return data

    def closed(self) -> bool:
        return False


class Endless:
    """All that comes."""

    __slots__ = ("done", "rest")

    def __init__(self) -> None:
        self.done = False
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        return data

    def closed(self) -> bool:
        self.done = True
        return True


class Connection(asyncio.Protocol):
    """A connection, as its bytes come."""

    def __init__(self) -> None:
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._data = bytearray()
        self._error: Exception | None = None
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > AHEAD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.ended = True
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended, self._error = True, error
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        """At once: engines notice by it that nobody reads any more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()

    def take(self) -> bytes:
        """All that has come."""
        data = bytes(self._data)
        self._data.clear()
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def more(self, deadline: float) -> None:
        """Waits until something has come, or the end. One timer for all waits, not one for each: it looks again when it is due."""
        if self._data:
            return
        if self.ended:
            raise ConnectionError(str(self._error or "the connection ended")) from self._error
        self._deadline = deadline
        if self._timer is None or self._timer.when() > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(deadline, self._due)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _due(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._due)
        else:
            self._waiter.set_exception(TimeoutError())


class Answer:
    """The answer to a request: its status and headers, and its body as it comes. Whoever has it closes it."""

    def __init__(self, status: int, headers: Mapping[str, str], connection: Connection, rest: bytes) -> None:
        self.status = status
        self.headers = headers
        """Their names in small letters."""
        self.connection = connection
        self._rest = rest
        self._body = _body(status, headers)

    async def read(self, deadline: float) -> bytes:
        """All that has come of the body by now, something at least; nothing at its end. Raises `TimeoutError` at the deadline (on
        the event loop's clock), any other `OSError` if the answer breaks off."""
        while not self._body.done:
            data, self._rest = self._rest or self.connection.take(), b""
            if data:
                if piece := self._fed(data):
                    return piece
            elif self.connection.ended and self._body.closed():
                break
            else:
                try:
                    await self.connection.more(deadline)
                except ConnectionError:
                    if not self._body.closed():
                        raise
        return b""

    def _fed(self, data: bytes) -> bytes:
        try:
            return self._body.feed(data)
        except ValueError as error:
            raise ConnectionError(str(error)) from error

    @property
    def reusable(self) -> bool:
        """Its connection is as if nothing had been asked."""
        whole = self._body.done and not self._body.rest and not self.connection.ended
        return whole and not self.connection.take() and "close" not in self.headers.get("connection", "").lower()


def _body(status: int, headers: Mapping[str, str]) -> Body:
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Chunked()
    if status in (204, 304):
        return Sized(0)
    length = headers.get("content-length", "")
    return Sized(int(length)) if length.isascii() and length.isdigit() and len(length) < 16 else Endless()


class Connections:
    """To one engine. `url`: where it is; `headers`: for every request; `connect`: seconds to connect in."""

    def __init__(
        self, url: str, headers: Mapping[str, str], *, authorities: ssl.SSLContext | None, connect: float
    ) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._ssl = authorities
        self._port = parts.port or (443 if authorities else 80)
        self._path = parts.path.rstrip("/")
        self._seconds = connect
        said = {"host": parts.netloc.rpartition("@")[2], "accept": "*/*", "accept-encoding": "identity", **headers}
        if parts.username is not None and "authorization" not in said:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            said["authorization"] = f"Basic {base64.b64encode(pair).decode()}"
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in said.items())
        self._kept: list[Connection] = []

    async def post(self, path: str, body: bytes, deadline: float) -> Answer:
        """Asks with JSON. One that was kept may be closed at the other end by now: then it is asked once more, on a new one."""
        head = f"POST {self._path}{path} HTTP/1.1\r\n{self._headers}content-type: application/json\r\n"
        request = f"{head}content-length: {len(body)}\r\n\r\n".encode("latin-1") + body
        while (kept := self._take()) is not None:
            try:
                return await _asked(kept, request, deadline)
            except ConnectionError:
                continue
        return await _asked(await self._connected(), request, deadline)

    def _take(self) -> Connection | None:
        while self._kept:
            connection = self._kept.pop()
            if not connection.ended and not connection.take():
                return connection
            connection.close()
        return None

    async def _connected(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._seconds):
                _, connection = await loop.create_connection(Connection, self._host, self._port, ssl=self._ssl)
        except TimeoutError as error:
            raise ConnectionError(f"no connection within {self._seconds:g} seconds") from error
        return connection

    def done(self, answer: Answer) -> None:
        """The answer isn't wanted any more: its connection is kept if it was read to its end, closed if not."""
        if answer.reusable and len(self._kept) < KEPT:
            self._kept.append(answer.connection)
        else:
            answer.connection.close()

    def close(self) -> None:
        for connection in self._kept:
            connection.close()
        self._kept.clear()


async def _asked(connection: Connection, request: bytes, deadline: float) -> Answer:
    """The request is sent, the head of the answer is here. Raises `TimeoutError`, or `ConnectionError` for what is no answer."""
    try:
        connection.write(request)
        data = b""
        while True:
            head, end, rest = data.partition(b"\r\n\r\n")
            if not end:
                if len(data) > MAX_HEAD:
                    raise ConnectionError("the answer has no end of its headers")
                await connection.more(deadline)
                data += connection.take()
                continue
            status, headers = _head(head)
            if status >= 200:
                return Answer(status, headers, connection, rest)
            data = rest  # 1xx: the answer itself is still to come
    except BaseException:
        connection.close()
        raise


def _head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not (status.isascii() and status.isdigit() and len(status) == 3):
        raise ConnectionError(f"{first[:80]!r} is no answer in HTTP/1.1")
    headers: dict[str, str] = {"connection": "close"} if version == "HTTP/1.0" else {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(status), headers
