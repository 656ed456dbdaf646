"""`python -m benchmarks.server`: the gateway under load, beside an endpoint that does nothing but send.

Many clients at once ask a server whose engine is a recording, one token a step, one chunk a token: so all that costs anything is
ours. Each client's text is compared with the one recording that it must be, so a stream that is lost, cut or mixed up with another
fails the run. The *bare* endpoint is the same uvicorn, which sends as many chunks of the same size from bytes that were made
beforehand: nobody who streams through ASGI can be faster. Each is measured in three ways:

at full speed       the engine is never waited for: steps that are ready share a write, 32 at most; bare sends chunk after chunk
a turn a chunk      never more than one step or chunk in a turn of the event loop: as bad as it gets, for both
paced               every stream has so many tokens per second, as real engines do: whoever looks finds what has come due

Servers and clients take turns and share the machine, so what is compared is the server process' CPU time, not the clock on the wall.
The clients read in bulk, a few times in a hundredth of a second, so that they are never what is waited for; how much CPU they
took is told.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

WORDS = 1000
PACE = 20
"""Tokens per second of a stream, where they are paced."""
PACED = 10
"""Seconds that the streams take then."""
NAP = 0.004
"""Seconds that the clients sleep between two looks at what has come."""
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


def gateway(recording: Path, *more: str) -> list[str]:
    command = [sys.executable, "-m", "unbraid", "serve", "--port", "0", "--engine", str(recording), "--format", "qwen3"]
    return [*command, "--max-requests", "100000", *more]


def bare(chunk: bytes, tokens: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.server", "--bare", chunk.hex(), "--tokens", str(tokens), *more]


def serve_bare(chunk: bytes, tokens: int, *, turns: bool, pace: float) -> None:
    """The endpoint that does nothing but send."""
    import uvicorn

    from unbraid.server.run import listen

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        started = time.monotonic()
        for number in range(tokens):
            if pace and (wait := number / pace - (time.monotonic() - started)) > 0:
                await asyncio.sleep(wait)
            elif turns:
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
            time.sleep(NAP)
            if time.monotonic() - looked > 0.2:
                looked = time.monotonic()
                server.peak = max(server.peak, server.memory())
    for client in clients:
        client.close()
    return [b"".join(pieces) for pieces in heard]


def body_of(raw: bytes) -> bytes:
    """The body of a reply that came in HTTP's chunks."""
    body = raw.partition(b"\r\n\r\n")[2]
    whole = bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        whole += body[:length]
        body = body[length + 2 :]
    return bytes(whole)


def chunks(raw: bytes) -> Iterator[dict[str, Any]]:
    """The events of a reply."""
    *events, done = body_of(raw).removesuffix(b"\n\n").split(b"\n\n")
    assert done == b"data: [DONE]", f"a stream ends with {done[:200]!r}"
    for event in events:
        yield json.loads(event.removeprefix(b"data: "))


def check(replies: list[bytes], streams: int, recorded: int, tokens: int) -> None:
    """Every stream is one recording, as far as it was asked for, chunk by chunk, and every recording has come once."""
    texts = {stream: [word(id) for id in said(stream, recorded)[:tokens]] for stream in range(streams)}
    expected = {"".join(text): stream for stream, text in texts.items()}
    seen = set()
    for raw in replies:
        choices = [choice for chunk in chunks(raw) for choice in chunk["choices"]]
        pieces = [piece for choice in choices if (piece := choice["delta"].get("content"))]
        text = "".join(pieces)
        reason = "stop" if tokens == recorded else "length"
        assert choices[-1]["finish_reason"] == reason, f"a stream ends with {choices[-1]!r}"
        assert text in expected, f"a stream says what was never recorded: {text[:200]!r}"
        assert pieces == texts[expected[text]], "a chunk holds more than one token"
        seen.add(expected[text])
    assert len(seen) == len(replies) == streams, "a stream came twice, or not at all"


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
    """Of one run."""

    cpu: float
    """Microseconds of the server's CPU for a chunk."""
    rate: float
    """Chunks per second of the clock."""
    client: float
    """The share of a core that the clients took."""


def measured(server: Server, streams: int, tokens: int) -> tuple[Figures, list[bytes]]:
    before, start, own = server.cpu(), time.monotonic(), time.process_time()
    replies = crowd(server, streams)
    wall, total = time.monotonic() - start, streams * tokens
    cpu = (server.cpu() - before) / total * 1e6
    return Figures(cpu, total / wall, (time.process_time() - own) / wall), replies


@dataclass
class Found:
    """Of one way to be measured: the best of each, and what was seen of the gateway."""

    gateway: Figures
    bare: Figures
    idle: float
    """Megabytes, after a few streams."""
    peak: float
    left: list[float]
    """Seconds for which generations outlive their clients."""

    @property
    def share(self) -> float:
        """The gateway's chunks per CPU second over the bare endpoint's."""
        return self.bare.cpu / self.gateway.cpu


def contest(ours: list[str], theirs: list[str], streams: int, tokens: int, recorded: int, rounds: int) -> Found:
    """Both in turn, after a few streams to warm up."""
    found: list[list[Figures]] = [[], []]
    with started(ours) as gateway, started(theirs) as bare:
        for server in (gateway, bare):
            crowd(server, max(1, streams // 25))
        gateway.peak, idle = 0.0, gateway.memory()
        for _ in range(rounds):
            for server, figures in zip((gateway, bare), found, strict=True):
                one, replies = measured(server, streams, tokens)
                figures.append(one)
                if server is gateway:
                    check(replies, streams, recorded, tokens)
        left = asyncio.run(departures(gateway.port))
        best = [min(figures, key=lambda one: one.cpu) for figures in found]
        return Found(best[0], best[1], idle, max(gateway.peak, idle), left)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.server", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=500, help="clients at the same time (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=1000, help="of each reply (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE")
    parser.add_argument("--bare", help=argparse.SUPPRESS)
    parser.add_argument("--turns", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--pace", type=float, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        serve_bare(bytes.fromhex(arguments.bare), arguments.tokens, turns=arguments.turns, pace=arguments.pace)
        return 0
    with tempfile.TemporaryDirectory() as directory:
        found = compare(Path(directory) / "said.jsonl", arguments.streams, arguments.tokens, arguments.rounds)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0


def compare(recording: Path, streams: int, tokens: int, rounds: int) -> dict[str, Any]:
    write_recording(recording, streams, tokens)
    size, few = bytes_of_a_chunk(recording), min(tokens, PACE * PACED)
    print(f"{streams} streams of {tokens} tokens, {size} bytes a chunk, one worker; every stream checked")
    print(f"  {versions()}", flush=True)
    runs = {
        "at full speed": (["--pace", "0"], [], tokens),
        "a turn a chunk": (["--pace", "0", "--burst", "1"], ["--turns"], tokens),
        f"paced, {PACE} a second": (["--pace", str(PACE), "--max-tokens", str(few)], ["--pace", str(PACE)], few),
    }
    figures = {}
    for name, (ours, theirs, count) in runs.items():
        servers = gateway(recording, *ours), bare(b"x" * size, count, *theirs)
        found = contest(*servers, streams, count, tokens, rounds if count == tokens else 1)
        figures[name] = asdict(found) | {"share": found.share}
        a, b = found.gateway, found.bare
        print(
            f"  {name:18} {found.share:5.0%} of the bare endpoint's chunks per CPU second ({a.cpu:.1f} and {b.cpu:.1f} us a chunk)\n"
            f"{'':21}by the clock {a.rate:,.0f} and {b.rate:,.0f} a second, clients {a.client:.0%} of a core; memory {found.idle:.0f} MB, "
            f"{found.peak:.0f} at most: {(found.peak - found.idle) * 1024 / streams:.0f} KB a stream\n"
            f"{'':21}a client that leaves: its generation has ended after {max(found.left) * 1000:.0f} ms at most",
            flush=True,
        )
    return {"streams": streams, "tokens": tokens, "runs": figures}


def bytes_of_a_chunk(recording: Path) -> int:
    with started(gateway(recording, "--pace", "0")) as server:
        events = body_of(crowd(server, 1)[0]).split(b"\n\n")
    return next(len(event) + 2 for event in events if b'"content":" w' in event)


def versions() -> str:
    packages = ("uvicorn", "starlette", "h11", "httptools", "uvloop")
    found = []
    for name in packages:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name} {metadata.version(name)}")
    return f"Python {platform.python_version()}, {', '.join(found)}"


async def departures(port: int) -> list[float]:
    return [seconds async for seconds in departure(port)]


if __name__ == "__main__":
    sys.exit(main())
