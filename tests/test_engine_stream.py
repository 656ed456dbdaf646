"""The bytes of an engine's answer: cut anywhere they give the same body, and what is no answer is an error."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.engines.stream import AHEAD, Chunked, Connections, Sized

PIECES = st.lists(st.binary(min_size=1, max_size=40), max_size=8)


def chunked(pieces: list[bytes]) -> bytes:
    return b"".join(b"%x;name=value\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n"


@given(PIECES, st.sampled_from([b"", b"x-trailer: 1\r\n"]), st.data())
def test_chunks_cut_anywhere(pieces: list[bytes], trailer: bytes, data: st.DataObject) -> None:
    raw = chunked(pieces) + trailer + b"\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    body, said = Chunked(), b""
    for start, stop in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        assert not body.done or start == len(raw)
        said += body.feed(raw[start:stop])
    assert (said, body.done, body.rest) == (b"".join(pieces), True, b"")


@pytest.mark.parametrize(
    "raw", [b"xyz\r\n", b"-1\r\n", b"\r\n", b"0x5\r\n", b"1\r\nab\r\n", b"f" * 16 + b"\r\n", b"1;" + b"x" * 5000]
)
def test_what_is_no_chunk(raw: bytes) -> None:
    with pytest.raises(ValueError, match="chunk"):
        Chunked().feed(raw)


def test_what_follows_is_not_the_bodys() -> None:
    body = Chunked()
    assert (body.feed(chunked([b"a"]) + b"\r\nHTTP"), body.done, body.rest) == (b"a", True, b"HTTP")
    sized = Sized(3)
    assert (sized.feed(b"ab"), sized.done) == (b"ab", False)
    assert (sized.feed(b"cd"), sized.done, sized.rest) == (b"c", True, b"d")


# On sockets

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def reached(
    talk: Talk, url: str = "http://127.0.0.1:{}"
) -> AsyncIterator[tuple[Connections, set[asyncio.Task[None]]]]:
    """Connections to a server that talks so, and what serves each of them. Nobody is left behind."""
    serving: set[asyncio.Task[None]] = set()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            try:
                await talk(reader, writer)
            finally:
                writer.close()
                await writer.wait_closed()

    server = await asyncio.start_server(served, "127.0.0.1", 0)
    async with server:
        address = url.format(server.sockets[0].getsockname()[1])
        connections = Connections(address, {}, authorities=None, connect=5)
        try:
            yield connections, serving
        finally:
            connections.close()
            await asyncio.wait_for(asyncio.gather(*serving), 10)


async def asked(talk: Talk, times: int = 1, url: str = "http://127.0.0.1:{}") -> tuple[list[bytes], int]:
    """The bodies of some answers in turn, and how many connections that took."""
    bodies = []
    async with reached(talk, url) as (connections, serving):
        for _ in range(times):
            deadline = asyncio.get_running_loop().time() + 5
            answer = await connections.post("/say", b"{}", deadline)
            body = b""
            try:
                while piece := await answer.read(deadline):
                    body += piece
            finally:
                connections.done(answer)
            bodies.append(body)
    return bodies, len(serving)


def answering(raw: bytes, *, keep: bool = True) -> Talk:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readexactly(len(await reader.readuntil(b"\r\n\r\n")) and 2)
            writer.write(raw)
            await writer.drain()
            if not keep:
                return

    return talk


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked([b"ab", b"c"]) + b"\r\n"


async def test_a_connection_is_used_again() -> None:
    assert await asked(answering(CHUNKED), 3) == ([b"abc"] * 3, 1)
    assert await asked(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc"), 3) == ([b"abc"] * 3, 1)


async def test_a_connection_that_is_closed_is_not() -> None:
    """Whether the engine says so or not, and where it closes what was kept."""
    assert await asked(answering(CHUNKED, keep=False), 3) == ([b"abc"] * 3, 3)
    said_so = CHUNKED.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    assert await asked(answering(said_so), 2) == ([b"abc"] * 2, 2)
    assert await asked(answering(CHUNKED + b"more"), 2) == ([b"abc"] * 2, 2)


async def test_a_body_up_to_the_end_of_the_connection() -> None:
    assert await asked(answering(b"HTTP/1.0 200 OK\r\n\r\nabc", keep=False)) == ([b"abc"], 1)


async def test_an_answer_that_is_announced() -> None:
    assert await asked(answering(b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED)) == ([b"abc"], 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
        b"",
    ],
    ids=["cut in chunks", "cut", "no chunks", "no http", "no status", "endless head", "nothing"],
)
async def test_what_is_no_answer(raw: bytes) -> None:
    with pytest.raises(ConnectionError):
        await asked(answering(raw, keep=False))


async def test_what_is_asked() -> None:
    """The path below the URL's own, a name and password in it, and the length of the body."""
    seen = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        await reader.readexactly(2)
        writer.write(CHUNKED)
        await writer.drain()

    await asked(talk, url="http://me:p%40ss@127.0.0.1:{}/engine")
    first, *headers = seen[0].decode().split("\r\n")
    assert first == "POST /engine/say HTTP/1.1"
    assert f"authorization: Basic {base64.b64encode(b'me:p@ss').decode()}" in headers
    assert "content-length: 2" in headers


async def test_who_does_not_read_holds_the_engine_up() -> None:
    written = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            written += 65536

    async with reached(talk) as (connections, _):
        deadline = asyncio.get_running_loop().time() + 30
        answer = await connections.post("/", b"{}", deadline)
        before = -1
        while written != before:  # until the sockets are full
            before = written
            await asyncio.sleep(0.2)
        assert len(await answer.read(deadline)) <= AHEAD + 2 * 262144
        connections.done(answer)


async def test_a_deadline() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nx")
        await reader.read()

    async with reached(talk) as (connections, _):
        clock = asyncio.get_running_loop()
        answer = await connections.post("/", b"{}", clock.time() + 30)
        assert await answer.read(clock.time() + 30) == b"x"
        for _ in range(2):  # an earlier one than the one before
            with pytest.raises(TimeoutError):
                await answer.read(clock.time() + 0.05)
        connections.done(answer)
