"""What a token of a stream costs the server, counted: writes, and calls of Python functions. Time is for `benchmarks/server.py`.

A recording speaks, an ASGI application is asked, nothing is sent anywhere. What is counted is what more tokens cost: two replies
that differ in length alone, so that all that is done once for a request drops out.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("starlette")

from unbraid.engines.recording import RecordedEngine
from unbraid.server import create_app

SHORT, LONG = 320, 640
WORDS = 50
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Go."}]},
    "/v1/completions": {"prompt": "Go."},
    "/v1/messages": {"messages": [{"role": "user", "content": "Go."}]},
    "/v1/responses": {"input": "Go."},
}
CALLS = {"/v1/chat/completions": 4, "/v1/completions": 9, "/v1/messages": 5, "/v1/responses": 6}
"""Calls for one token of many that come together; what it takes to be alone is added below."""
ALONE = 24
"""Calls for a write: half of them are the event loop's, for its turn."""


def recording(folder: Path, thinking: bool = False) -> Path:
    """One generation, longer than what is asked for: words, then the end; as a thought if it is to be one."""
    special = {"<|im_start|>": WORDS, "<|im_end|>": WORDS + 1, "<think>": WORDS + 2, "</think>": WORDS + 3}
    letters = [bytes([byte]).decode("latin-1") for byte in range(256)]
    head = "<think>\n" if thinking else "<think>\n\n</think>\n\n"
    header = {
        "recording": 1,
        "context_length": 100_000,
        "chat_template": "{{ messages[0].content }}<|im_start|>assistant\n" + head,
        "tokens": [*(f" w{number}" for number in range(WORDS)), *special, *letters],
        "special": special,
        "control": list(special.values()),
        "end_ids": [WORDS + 1],
    }
    steps = [{"ids": [number % WORDS]} for number in range(LONG + 10)]
    file = folder / "said.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in [header, *steps]))
    return file


class Counter:
    """Asks an application, and counts what that takes."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        self.calls += event == "call"

    async def ask(self, path: str, tokens: int, **more: Any) -> list[bytes]:
        """The writes of a streamed reply of so many tokens."""
        wanted = ASKED[path] | {"stream": True, "max_tokens": tokens, "max_output_tokens": tokens} | more
        wanted.pop("max_tokens" if path == "/v1/responses" else "max_output_tokens")
        body = json.dumps(wanted).encode()
        said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        said.put_nowait({"type": "http.request", "body": body})
        writes: list[bytes] = []

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
            else:
                writes.append(message["body"])

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "headers": [(b"content-type", b"application/json")],
            "query_string": b"",
        }
        self.calls = 0
        sys.setprofile(self)
        try:
            await self.app(scope, said.get, send)
        finally:
            sys.setprofile(None)
        return writes


async def more(counter: Counter, path: str, **wishes: Any) -> tuple[float, float]:
    """Calls and writes for each further token. All was asked once before: what is worked out once is known by now."""
    await counter.ask(path, LONG, **wishes)
    short = len(await counter.ask(path, SHORT, **wishes)), counter.calls
    long = len(await counter.ask(path, LONG, **wishes)), counter.calls
    writes, calls = (b - a for a, b in zip(short, long, strict=True))
    return calls / (LONG - SHORT), writes / (LONG - SHORT)


@pytest.mark.parametrize("thinking", [False, True], ids=["content", "reasoning"])
@pytest.mark.parametrize("path", ASKED)
async def test_what_comes_together_shares_a_write(path: str, thinking: bool, tmp_path: Path) -> None:
    engine = RecordedEngine.read(recording(tmp_path, thinking), pace=0, burst=32)
    calls, writes = await more(Counter(create_app(engine, "qwen3")), path)
    assert writes == 1 / 32
    assert calls <= CALLS[path] + ALONE / 32


@pytest.mark.parametrize("path", ASKED)
async def test_what_comes_alone_is_sent_at_once(path: str, tmp_path: Path) -> None:
    engine = RecordedEngine.read(recording(tmp_path), pace=0, burst=1)
    calls, writes = await more(Counter(create_app(engine, "qwen3")), path)
    assert writes == 1
    assert calls <= CALLS[path] + ALONE


async def test_every_token_keeps_its_chunk(tmp_path: Path) -> None:
    engine = RecordedEngine.read(recording(tmp_path), pace=0, burst=32)
    stream = b"".join(await Counter(create_app(engine, "qwen3")).ask("/v1/chat/completions", SHORT))
    chunks = [json.loads(event[6:]) for event in stream.split(b"\n\n") if event.startswith(b"data: {")]
    texts = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert texts == ["", *(f" w{number % WORDS}" for number in range(SHORT)), None]


@pytest.mark.parametrize("n", [1, 3])
async def test_usage_that_goes_along_is_each_chunks_own(n: int, tmp_path: Path) -> None:
    """Chunks of steps that came together say what was used until each of them, not until the last; nor how far a choice is
    that waits for another one's chunks."""
    engine = RecordedEngine.read(recording(tmp_path), pace=0, burst=32)
    wish = {"include_usage": True, "continuous_usage_stats": True}
    counter = Counter(create_app(engine, "qwen3"))
    stream = b"".join(await counter.ask("/v1/chat/completions", 40, stream_options=wish, n=n))
    chunks = [json.loads(event[6:]) for event in stream.split(b"\n\n") if event.startswith(b"data: {")]
    for index in range(n):
        told = [
            chunk["usage"]["completion_tokens"]
            for chunk in chunks
            for choice in chunk["choices"]
            if choice["index"] == index and choice["delta"]
        ]
        assert told == [1 if n == 1 else 0, *range(1, 41)]
