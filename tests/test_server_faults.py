"""What goes wrong on the network, on real sockets: an engine elsewhere, the server, and a client, each of which may fail.

Whatever happens: nothing hangs, nothing that broke off looks like an end, and an engine hears within a second that nobody reads
any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine, Faults, write_tokenizer
from serving import serving

from unbraid.engines.base import Engine, Generation, Step
from unbraid.engines.connect import connect
from unbraid.engines.profile import Local
from unbraid.engines.recording import RecordedEngine
from unbraid.engines.remote import Timing
from unbraid.server import Settings, create_app

CALM = Timing(connect=10, first_token=30, stall=30, retries=1, pause=0.01)
QUICK = Timing(connect=10, first_token=0.5, stall=0.4, retries=1, pause=0.01)
"""For engines that stand still: on a busy machine, a sound one may look like it."""
KINDS = ("vllm", "sglang", "llama", "completions")
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/v1/responses": {"input": "Hi"},
    "/v1/messages": {"max_tokens": 1000, "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/completions": {"prompt": "Hi", "max_tokens": 1000},
}
ENDS = ('"finish_reason":"', "[DONE]", "response.completed", "response.incomplete", "message_stop", '"stop_reason":"')
"""Signs of a sound end in any API."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("model"))


def said(kind: str, count: int = 6) -> list[Any]:
    return ["x"] * count if kind == "completions" else [[120]] * count


@asynccontextmanager
async def gateway(
    fake: FakeEngine, folder: Path, *, timing: Timing = CALM, small_buffers: bool = False, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    """The server in front of an engine, and a client of it."""
    engine = await asyncio.to_thread(connect, fake.url, local=Local(tokenizer=folder), timing=timing)
    async with served_here(engine, small_buffers=small_buffers, **settings) as client:
        yield client


@asynccontextmanager
async def served_here(
    engine: Engine, *, small_buffers: bool = False, **settings: Any
) -> AsyncIterator[httpx.AsyncClient]:
    manager = serving(create_app(engine, "qwen3", Settings(**settings)), small_buffers=small_buffers)
    url = await asyncio.to_thread(manager.__enter__)
    try:
        async with httpx.AsyncClient(base_url=url, timeout=20) as client:
            yield client
    finally:
        await asyncio.to_thread(manager.__exit__, None, None, None)


@pytest.mark.parametrize("kind", KINDS)
async def test_sound_engines_of_every_kind(kind: str, folder: Path) -> None:
    async with FakeEngine(kind, said(kind)) as fake, gateway(fake, folder) as client:
        for path, body in ASKED.items():
            one = await client.post(path, json=body)
            assert one.status_code == 200, one.text
            assert "xxxxxx" in one.text
            stream = await client.post(path, json=body | {"stream": True})
            assert any(sign in stream.text for sign in ENDS)
            assert (stream.headers.get("x-unbraid-evidence") == "text") == (kind == "completions")
        assert (await client.get("/ready")).status_code == 200
        fake.stop()
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200


FAULTS = {
    "killed": (Faults(kill_at=3), 502),
    "stalls": (Faults(stall_at=3), 504),
    "error": (Faults(error_at=3), 502),
    "ends": (Faults(silent_end_at=3), 502),
    "nonsense": (Faults(nonsense=b"<html>\n"), 502),
    "overloaded": (Faults(refuse=99), 503),
    "silent": (Faults(stall_at=0), 504),
}
"""All of them with one engine, the worst with every kind (`test_engine_remote.py` has all with all, without a server)."""


@pytest.mark.parametrize(
    ("kind", "fault"), [*(("vllm", name) for name in FAULTS), *((kind, "killed") for kind in KINDS[1:])]
)
async def test_an_engine_that_fails(kind: str, fault: str, folder: Path) -> None:
    faults, status = FAULTS[fault]
    timing = CALM if faults.stall_at is None else QUICK
    async with FakeEngine(kind, said(kind), faults=faults) as fake, gateway(fake, folder, timing=timing) as client:
        for path, body in (
            ASKED.items() if kind == "vllm" else [("/v1/chat/completions", ASKED["/v1/chat/completions"])]
        ):
            one = await client.post(path, json=body)
            assert one.status_code == status, one.text
            assert "error" in one.json()
            stream = await client.post(path, json=body | {"stream": True})
            begun = stream.status_code == 200
            assert begun == ("xxx" in _texts(stream.text)), stream.text
            assert begun or stream.status_code == status
            assert not any(sign in stream.text for sign in ENDS), stream.text
            assert "error" in stream.text
        assert fake.running == 0 or faults.stall_at is not None


def _texts(stream: str) -> str:
    """All that a stream said, joined: pieces of any API."""
    found = ""
    for line in stream.splitlines():
        if line.startswith("data: {"):
            data = json.loads(line[6:])
            for choice in data.get("choices") or ():
                found += choice.get("text") or choice.get("delta", {}).get("content") or ""
            delta = data.get("delta")
            found += delta if isinstance(delta, str) else (delta or {}).get("text", "")
    return found


STEP = 0.01
SECOND = 100
"""Steps of an engine that takes `STEP` seconds for each. A busy machine delays engine and server alike, so steps are counted."""


async def leave(client: httpx.AsyncClient, spoken: Callable[[], int], *, stream: bool) -> int:
    """Ask, and leave in the middle: how many steps the engine had made by then."""
    body = ASKED["/v1/chat/completions"] | {"stream": stream}
    if stream:
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            await anext(response.aiter_bytes())
            return spoken()
    asked = asyncio.create_task(client.post("/v1/chat/completions", json=body))
    while not spoken():
        await asyncio.sleep(STEP)
    left_at = spoken()
    asked.cancel()
    return left_at


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stream", [True, False])
async def test_an_engine_hears_within_a_second_that_the_client_has_left(kind: str, stream: bool, folder: Path) -> None:
    async with FakeEngine(kind, said(kind, 10_000), delay=STEP) as fake, gateway(fake, folder) as client:
        left_at = await leave(client, lambda: fake.said, stream=stream)
        await asyncio.wait_for(fake.left.wait(), 20)
        assert fake.said - left_at < SECOND


@pytest.mark.parametrize("stream", [True, False])
async def test_a_recording_hears_it_too(stream: bool, tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_text('{"ids": [120]}\n' * 10_000)
    engine = RecordedEngine.read(file, pace=1 / STEP, local=Local(tokenizer=folder))
    steps, ended = 0, threading.Event()
    replay = engine.generate

    async def generate(generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        nonlocal steps
        try:
            async with aclosing(replay(generation)) as running:
                async for read in running:
                    steps += len(read)
                    yield read
        finally:
            ended.set()

    engine.generate = generate  # type: ignore[method-assign]
    async with served_here(engine) as client:
        left_at = await leave(client, lambda: steps, stream=stream)
        assert await asyncio.to_thread(ended.wait, 20)
        assert steps - left_at < SECOND


async def test_a_client_that_reads_a_byte_at_a_time_holds_the_engine_up(folder: Path) -> None:
    """And doesn't fill the server's memory: what it doesn't read stays unsaid."""
    steps = [[120]] * 6000
    async with (
        FakeEngine("vllm", steps, padding="?" * 10_000) as fake,
        gateway(fake, folder, small_buffers=True) as client,
    ):
        reader = _slow_client(str(client.base_url))
        try:
            counts = []
            for _ in range(30):
                await asyncio.sleep(0.05)
                reader.recv(1)
                counts.append(fake.said)
            assert counts[-1] < 4000
            assert counts[-1] == counts[-10]
            assert (await client.get("/health")).status_code == 200
        finally:
            reader.close()
        await asyncio.wait_for(fake.left.wait(), 20)


def _slow_client(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((host, int(port)))
    body = json.dumps(ASKED["/v1/chat/completions"] | {"stream": True, "max_tokens": 2**30}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


async def test_a_request_takes_no_longer_than_it_may(folder: Path) -> None:
    """The engine says a little, then nothing for a long time. All at once, since all of them wait."""
    for seconds in (1, 4, 16):
        async with (
            FakeEngine("vllm", said("vllm"), faults=Faults(stall_at=3)) as fake,
            gateway(fake, folder, request_seconds=seconds) as client,
        ):
            one, *streams = await asyncio.gather(
                client.post("/v1/chat/completions", json=ASKED["/v1/chat/completions"]),
                *(client.post(path, json=body | {"stream": True}) for path, body in ASKED.items()),
            )
            assert one.status_code == 504
            for stream in streams:
                assert f"longer than {seconds} seconds" in stream.text
                assert not any(sign in stream.text for sign in ENDS), stream.text
            await asyncio.wait_for(fake.left.wait(), 20)
        statuses = {stream.status_code for stream in streams}
        if statuses == {200}:
            return
        assert statuses <= {200, 504}  # too busy a machine: for some, the time was over before the first step
    pytest.fail("no time is long enough for all streams to begin")


# SIGTERM


@pytest.fixture
def recording(tmp_path: Path, folder: Path) -> Path:
    file = tmp_path / "said.jsonl"
    lines: list[dict[str, Any]] = [{"ids": [120]} for _ in range(60)]
    lines[-1]["finish"] = "stop"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


@pytest.fixture
def served(
    recording: Path, folder: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`unbraid serve` of a recording, as somebody would start it; flags come from the test."""
    command = [sys.executable, "-m", "unbraid", "serve", "--port", "0", "--engine", str(recording), "--format", "qwen3"]
    command += ["--tokenizer", str(folder), *request.param]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        yield first.split(" at ")[1].strip(), process
    finally:
        process.terminate()
        try:
            process.wait(10)
        finally:
            process.kill()
            process.communicate()


async def _streams(url: str, count: int, process: subprocess.Popen[str]) -> list[str]:
    """What `count` clients are told, of which SIGTERM comes once all of them have begun."""
    begun = 0
    everybody = asyncio.Event()

    async def one(client: httpx.AsyncClient) -> str:
        nonlocal begun
        text = ""
        body = ASKED["/v1/chat/completions"] | {"stream": True}
        try:
            async with client.stream("POST", f"{url}/chat/completions", json=body) as response:
                async for piece in response.aiter_text():
                    if not text:
                        begun += 1
                        if begun == count:
                            everybody.set()
                    text += piece
        except httpx.TransportError:
            text += "(cut)"
        return text

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, limits=limits) as client:
        tasks = [asyncio.create_task(one(client)) for _ in range(count)]
        await asyncio.wait_for(everybody.wait(), 30)
        process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(asyncio.gather(*tasks), 60)


@pytest.mark.parametrize(
    "served", [["--pace", "20"], ["--pace", "20", "--workers", "2"]], indirect=True, ids=["1", "2"]
)
async def test_sigterm_lets_a_hundred_streams_end(served: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = served
    for text in await _streams(url, 100, process):
        assert _texts(text) == "x" * 60
        assert '"finish_reason":"stop"' in text
        assert text.endswith("data: [DONE]\n\n")
    assert await asyncio.to_thread(process.wait, 20) == 0


@pytest.mark.parametrize("served", [["--pace", "2", "--drain", "1"]], indirect=True)
async def test_sigterm_does_not_wait_for_ever(served: tuple[str, subprocess.Popen[str]]) -> None:
    url, process = served
    texts = await _streams(url, 100, process)
    assert await asyncio.to_thread(process.wait, 20) == 0
    for text in texts:
        assert "shutting_down" in text or "the server shuts down" in text
        assert not text.endswith("(cut)")
        assert not any(sign in text for sign in ENDS)
    assert process.stderr is not None
    log = process.stderr.read()
    assert "100 requests weren't over in time and are cut" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("served", [["--pace", "1", "--drain", "0"]], indirect=True)
@pytest.mark.parametrize("path", ASKED)
async def test_a_reply_that_is_cut_says_so_in_its_protocol(
    served: tuple[str, subprocess.Popen[str]], path: str
) -> None:
    """Streamed, as an event; in one piece, as a 503."""
    url, process = served
    root = url.removesuffix("/v1")
    async with httpx.AsyncClient(timeout=60) as client:
        whole = asyncio.create_task(client.post(root + path, json=ASKED[path]))
        async with client.stream("POST", root + path, json=ASKED[path] | {"stream": True}) as stream:
            told = ""
            async for piece in stream.aiter_text():
                if not told:
                    process.send_signal(signal.SIGTERM)
                told += piece
        reply = await whole
    assert await asyncio.to_thread(process.wait, 20) == 0
    assert "the server shuts down; ask again" in told.rstrip().splitlines()[-1]
    assert reply.status_code == 503
    assert reply.json()["error"]["message"] == "the server shuts down; ask again"
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


async def test_what_came_before_a_failure_is_told(folder: Path) -> None:
    """Also if it came in the same read as what failed, and would have gone out with it."""
    events = [{"choices": [{"token_ids": [120], "finish_reason": None}]}] * 3
    data = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    async with (
        FakeEngine("vllm", faults=Faults(nonsense=data + b"data: {]\n\n")) as fake,
        gateway(fake, folder) as client,
    ):
        stream = await client.post("/v1/chat/completions", json=ASKED["/v1/chat/completions"] | {"stream": True})
        assert _texts(stream.text) == "xxx"
        assert stream.text.count('"content":"x"') == 3
        assert "can't mean" in stream.text
        assert not any(sign in stream.text for sign in ENDS)


@pytest.mark.parametrize("served", [["--pace", "1", "--drain", "0"]], indirect=True)
async def test_whoever_is_slow_costs_no_traceback_at_the_end(served: tuple[str, subprocess.Popen[str]]) -> None:
    """A request whose body hasn't come is answered; one who takes no reply, or says half a word, is hung up on."""
    url, process = served
    host, port = url.removeprefix("http://").removesuffix("/v1").split(":")
    head = "HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    slow = [await asyncio.open_connection(host, int(port)) for _ in ASKED]
    for (_, writer), path in zip(slow, ASKED, strict=True):
        writer.write(f'POST {path} {head}Content-Length: 100\r\n\r\n{{"messages"'.encode())
    half, greedy = await asyncio.open_connection(host, int(port)), socket.create_connection((host, int(port)))
    half[1].write(b"POST /v1/chat/completions HTTP/1.1\r\n")
    greedy.setblocking(False)
    with suppress(BlockingIOError):  # until nothing fits into the buffers any more
        while True:
            greedy.send(f"GET /openapi.json {head}\r\n".encode() * 100)
    async with httpx.AsyncClient() as client:
        await client.get(url.removesuffix("/v1") + "/health")  # what came before has been seen
    process.send_signal(signal.SIGTERM)
    for (reader, _), path in zip(slow, ASKED, strict=True):
        told = (await asyncio.wait_for(reader.read(), 30)).decode()
        assert told.startswith("HTTP/1.1 503 "), path
        assert "the server shuts down; ask again" in told
    assert await asyncio.wait_for(half[0].read(), 30) == b""
    assert await asyncio.to_thread(process.wait, 20) == 0
    greedy.close()
    for _, writer in [*slow, half]:
        writer.close()
    assert process.stderr is not None
    log = process.stderr.read()
    assert "Traceback" not in log
    assert "running task" not in log  # uvicorn had nothing left to cancel
