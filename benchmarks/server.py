"""`python -m benchmarks.server`: the gateway under load, beside an endpoint that does nothing but send.

Many clients at once ask a server whose engine is a recording, as fast as it can be read, one token a step: so all that costs
anything is ours. Each client's text is compared with the one recording that it must be, so a stream that is lost, cut or mixed up
with another fails the run. It runs twice: every step in a turn of the event loop of its own, which is as bad as it gets, and a few
steps at a time, as they are read from an engine elsewhere by a server that is busy; they then share a write. The *bare* endpoint is the same uvicorn, which sends as many chunks of the same size from bytes that
were made beforehand: nobody who streams through ASGI can be faster. It is measured twice: sending each reply in one go, and with a
turn of the event loop between two chunks, as they come when an engine makes them one by one.

Servers and clients take turns and share the machine, so what is compared is the server process' CPU time, not the clock on the wall.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = 1000
BURST = 8
"""Steps that come at once: what an engine elsewhere sends while we are busy with others is there in one read."""
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n<think>\n\n</think>\n\n"


def word(number: int) -> str:
    return f" w{number:03d}"


def said(stream: int, tokens: int) -> list[int]:
    """The ids of one stream: no two streams are the same."""
    return [(at * 7 + stream) % WORDS for at in range(tokens)]


def write_recording(path: Path, streams: int, tokens: int) -> None:
    """All streams, each with a prompt of its own that no client will have."""
    special = {"<|im_start|>": WORDS, "<|im_end|>": WORDS + 1, "<think>": WORDS + 2, "</think>": WORDS + 3}
    letters = [bytes([byte]).decode("latin-1") for byte in range(256)]
    header = {
        "recording": 1,
        "model": "bench",
        "context_length": 10_000_000,
        "chat_template": TEMPLATE,
        "tokens": [*(word(n) for n in range(WORDS)), *special, *letters],
        "special": special,
        "control": list(special.values()),
        "end_ids": [WORDS + 1],
    }
    with path.open("w") as file:
        file.write(json.dumps(header) + "\n")
        for stream in range(streams):
            for at, id in enumerate(said(stream, tokens)):
                line: dict[str, Any] = {"generation": str(stream), "ids": [id]}
                if at == tokens - 1:
                    line["finish"] = "stop"
                file.write(json.dumps(line) + "\n")


@dataclass
class Server:
    """A server in a process of its own."""

    port: int
    process: subprocess.Popen[str]
    peak: float = 0.0
    """Megabytes, the most that was seen while there was load."""

    def cpu(self) -> float:
        """Seconds of CPU that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Megabytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        yield Server(int(line.rpartition(":")[2].partition("/")[0]), process)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def gateway(recording: Path, burst: int) -> list[str]:
    command = [sys.executable, "-m", "unbraid", "serve", "--port", "0", "--engine", str(recording), "--format", "qwen3"]
    return [*command, "--pace", "0", "--burst", str(burst), "--max-requests", "100000"]


def bare(chunk: bytes, tokens: int, *, turns: bool) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.server", "--bare", chunk.hex(), "--tokens", str(tokens)]
    return [*command, "--turns"] if turns else command


def serve_bare(chunk: bytes, tokens: int, *, turns: bool) -> None:
    """The endpoint that does nothing but send."""
    import uvicorn

    from unbraid.server.run import listen

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(tokens):
            if turns:
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    with listen("127.0.0.1", 0) as listening:
        print(f"bare at http://127.0.0.1:{listening.getsockname()[1]}/", flush=True)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off", server_header=False)
        uvicorn.Server(config).run(sockets=[listening])


def crowd(server: Server, streams: int) -> list[bytes]:
    """What each client is told: connected first, then let loose together. Bare sockets, so that reading costs little."""
    body = json.dumps({"messages": [{"role": "user", "content": "Go."}], "stream": True}).encode()
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(streams)]
    heard: list[list[bytes]] = [[] for _ in clients]
    with selectors.DefaultSelector() as waiting:
        for number, client in enumerate(clients):
            client.setblocking(False)
            waiting.register(client, selectors.EVENT_READ, number)
        for client in clients:
            client.sendall(HEAD % len(body) + body)
        looked = time.monotonic()
        while waiting.get_map():
            for key, _ in waiting.select():
                client = clients[key.data]
                if piece := client.recv(1 << 18):
                    heard[key.data].append(piece)
                else:
                    waiting.unregister(client)
            if time.monotonic() - looked > 0.2:
                looked = time.monotonic()
                server.peak = max(server.peak, server.memory())
    for client in clients:
        client.close()
    return [b"".join(pieces) for pieces in heard]


def chunks(raw: bytes) -> Iterator[dict[str, Any]]:
    """The events of a reply that came in HTTP's chunks."""
    body = raw.partition(b"\r\n\r\n")[2]
    whole = bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole += body[:length]
        body = body[length + 2 :]
    *events, done = bytes(whole).removesuffix(b"\n\n").split(b"\n\n")
    assert done == b"data: [DONE]", f"a stream ends with {done[:200]!r}"
    for event in events:
        yield json.loads(event.removeprefix(b"data: "))


def check(replies: list[bytes], tokens: int) -> None:
    """Every stream is one recording, whole, and every recording has come once."""
    expected = {"".join(word(id) for id in said(stream, tokens)): stream for stream in range(len(replies))}
    seen = set()
    for raw in replies:
        choices = [choice for chunk in chunks(raw) for choice in chunk["choices"]]
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        assert choices[-1]["finish_reason"] == "stop", "a stream has no end"
        assert text in expected, f"a stream says what was never recorded: {text[:200]!r}"
        seen.add(expected[text])
    assert len(seen) == len(replies), "a stream came twice"


async def departure(port: int) -> AsyncIterator[float]:
    """Seconds from a client's leaving until the server has ended its generation, by its own count."""
    body = json.dumps({"messages": [{"role": "user", "content": "Go."}], "stream": True}).encode()
    for _ in range(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD % len(body) + body)
        await reader.read(1000)
        before = time.monotonic()
        writer.transport.abort()
        while await running(port) > 1:  # the question itself is one
            await asyncio.sleep(0.002)
        yield time.monotonic() - before


async def running(port: int) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    return float(next(line for line in text.splitlines() if line.startswith("unbraid_requests_in_flight ")).split()[1])


@dataclass
class Figures:
    """Chunks per second of the server's CPU, and of the clock."""

    cpu: float
    wall: float


def measured(server: Server, streams: int, tokens: int) -> tuple[Figures, list[bytes]]:
    before, start = server.cpu(), time.monotonic()
    replies = crowd(server, streams)
    wall = time.monotonic() - start
    total = streams * tokens
    return Figures(total / (server.cpu() - before), total / wall), replies


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server", description=__doc__)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        serve_bare(bytes.fromhex(arguments.bare), arguments.tokens, turns=arguments.turns)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        found = compare(Path(directory) / "said.jsonl", arguments.streams, arguments.tokens, arguments.rounds)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def compare(recording: Path, streams: int, tokens: int, rounds: int) -> dict[str, Any]:
    write_recording(recording, streams, tokens)
    best: dict[str, Figures] = {}
    with started(gateway(recording, 1)) as single, started(gateway(recording, BURST)) as bursts:
        idle = single.memory()
        _, replies = measured(single, streams, tokens)
        check(replies, tokens)
        peak = single.peak
        size = len(replies[0]) // (tokens + 3) - 10
        chunk = b"x" * size
        with (
            started(bare(chunk, tokens, turns=False)) as bare_one,
            started(bare(chunk, tokens, turns=True)) as bare_turns,
        ):
            contestants = {
                "gateway, a step at a time": single,
                f"gateway, {BURST} steps at a time": bursts,
                "bare": bare_one,
                "bare, a turn a chunk": bare_turns,
            }
            for _ in range(rounds):
                for name, server in contestants.items():
                    figures, replies = measured(server, streams, tokens)
                    if server in (single, bursts):
                        check(replies, tokens)
                    if name not in best or figures.cpu > best[name].cpu:
                        best[name] = figures
        left = asyncio.run(departures(single.port))
    print(f"{streams} streams of {tokens} tokens, {size} bytes a chunk, one worker; every stream checked")
    for name, figures in best.items():
        shares = [f"{figures.cpu / best[other].cpu:.0%} of {other!r}" for other in list(best)[2:]]
        share = f"; {', '.join(shares)}" if name.startswith("gateway") else ""
        print(f"  {name:27} {figures.cpu:9,.0f} chunks per CPU second, {figures.wall:9,.0f} by the clock{share}")
    print(f"  memory: {idle:.0f} MB idle, {peak:.0f} MB at most: {(peak - idle) * 1024 / streams:.0f} KB a stream")
    print(f"  a client that leaves: its generation has ended after {max(left) * 1000:.0f} ms at most")
    return {
        "streams": streams,
        "tokens": tokens,
        "chunks_per_cpu_second": {name: figures.cpu for name, figures in best.items()},
        "idle_mb": idle,
        "peak_mb": peak,
        "left_seconds": left,
    }


async def departures(port: int) -> list[float]:
    return [seconds async for seconds in departure(port)]


if __name__ == "__main__":
    sys.exit(main())
