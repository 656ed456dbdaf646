"""llama.cpp's own HTTP server (the one inside the embedded wheel), with the real default model, behind the gateway.

Asked greedily, the same request has the same answer through the embedded engine and over HTTP: same tokens, same message.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from unbraid.engines.base import Engine, Generation
from unbraid.engines.connect import connect
from unbraid.engines.llama import LlamaEngine
from unbraid.engines.model import default_model
from unbraid.engines.profile import Local
from unbraid.engines.recording import Recorder
from unbraid.engines.remote import RemoteEngine
from unbraid.server import create_app

# In a process of its own, as it would be: its threads end with it. Prompts go in by pieces of 32, as in the embedded engine:
# larger ones are summed in another order, and a near tie may then fall the other way.
SERVER = """
import sys, threading
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.n_batch, params.n_ubatch = 2048, 2, 32, 32
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"enum": [1, 2, 3]}},
            "required": ["city", "days"],
        },
    },
}
PARIS: list[Any] = [{"role": "user", "content": "What is the weather in Paris for the next 3 days?"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]},
    "several turns": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Name a colour."},
            {"role": "assistant", "content": "Blue."},
            {"role": "user", "content": "Another one."},
        ]
    },
    "cut": {"messages": [{"role": "user", "content": "Count to a hundred."}], "max_tokens": 7},
    "stopped": {"messages": [{"role": "user", "content": "What is the capital of France?"}], "stop": [" France"]},
    "a forced call": {"messages": PARIS, "tools": [WEATHER], "tool_choice": "required", "parallel_tool_calls": False},
    "a pattern with split characters": {"messages": PARIS, "guided_regex": "sun\U0001f642\U0001f99c \u00e9"},
    "biased": {"messages": PARIS, "logit_bias": {"504": -100}},
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = [sys.executable, "-c", SERVER, str(default_model())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        yield address
        process.kill()


@pytest.fixture(scope="module")
def embedded() -> Iterator[LlamaEngine]:
    engine = LlamaEngine(default_model(), context=1024, parallel=2)
    yield engine
    engine.close_now()


async def ask(engine: Engine, request: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The choice that is told, without what is made up anew for every reply."""
    transport = httpx.ASGITransport(create_app(engine, "auto"))
    body = {"temperature": 0, "max_tokens": 40, **request}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=120) as client:
        response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    reply = response.json()
    choice = reply["choices"][0]
    for call in choice["message"].get("tool_calls") or ():
        del call["id"]
    return choice, reply["usage"]


async def reach(url: str) -> RemoteEngine:
    engine = await asyncio.to_thread(connect, url)
    assert isinstance(engine, RemoteEngine)
    return engine


@pytest.mark.parametrize("name", REQUESTS)
async def test_the_same_message_as_embedded(name: str, url: str, embedded: LlamaEngine) -> None:
    server = await reach(url)
    assert server.dialect.kind == "llama"
    told = [await ask(engine, REQUESTS[name]) for engine in (embedded, server)]
    (choice, usage), (over_http, its_usage) = told
    assert choice == over_http
    # The same text under a grammar may take other tokens: the two grammar engines needn't allow the same spellings.
    assert usage == its_usage or name.startswith("a pattern")
    if name == "a forced call":
        (call,) = choice["message"]["tool_calls"]
        assert set(json.loads(call["function"]["arguments"])) == {"city", "days"}
        assert choice["finish_reason"] == "tool_calls"
    if name.startswith("a pattern"):
        assert choice["message"]["content"] == "sun\U0001f642\U0001f99c \u00e9"
    await server.close()


async def test_logprobs_are_nearly_the_same(url: str, embedded: LlamaEngine) -> None:
    server = await reach(url)
    wish = {**REQUESTS["plain"], "logprobs": True, "top_logprobs": 2, "max_tokens": 8}
    (ours, _), (theirs, _) = [await ask(engine, wish) for engine in (embedded, server)]
    pairs = zip(ours["logprobs"]["content"], theirs["logprobs"]["content"], strict=True)
    for one, other in pairs:
        assert (one["token"], one["bytes"]) == (other["token"], other["bytes"])
        assert one["logprob"] == pytest.approx(other["logprob"], abs=0.01)
        assert [top["token"] for top in one["top_logprobs"]] == [top["token"] for top in other["top_logprobs"]]
    await server.close()


async def test_tokens_are_the_same(url: str, embedded: LlamaEngine) -> None:
    server = await reach(url)
    for text in ("<|im_start|>user\nHi \U0001f642<|im_end|>\n", "  two\n\nlines ", "\u00e9\u00e8"):
        assert await asyncio.to_thread(server.tokenize, text) == embedded.tokenize(text)
    assert dict(server.vocabulary.tokens) == dict(embedded.vocabulary.tokens)
    assert server.end_ids <= embedded.end_ids
    await server.close()


async def test_its_slot_is_free_again_when_nobody_listens(url: str) -> None:
    server = await reach(url)
    running = server.generate(Generation([1, 2, 3], max_tokens=2000, ignore_eos=True))
    await anext(running)
    async with httpx.AsyncClient(base_url=url) as client:
        assert await _busy(client) == 1
        await running.aclose()
        end = time.monotonic() + 10
        while await _busy(client):
            assert time.monotonic() < end, "it still generates"
            await asyncio.sleep(0.05)
    await server.close()


async def _busy(client: httpx.AsyncClient) -> int:
    return sum(slot["is_processing"] for slot in (await client.get("/slots")).json())


async def test_in_text_mode_too(url: str, embedded: LlamaEngine) -> None:
    """Over its `/v1/completions`, as any server has it: the same text, and the server's own count."""
    server = await asyncio.to_thread(connect, url, "completions", local=Local(tokenizer=default_model()))
    assert not server.abilities.token_ids
    for name in ("plain", "cut"):
        (ours, spent), (theirs, told) = [await ask(engine, REQUESTS[name]) for engine in (embedded, server)]
        assert theirs["message"]["content"] == ours["message"]["content"]
        assert theirs["finish_reason"] == ours["finish_reason"]
        assert told["prompt_tokens"] == spent["prompt_tokens"]
    await server.close()


async def test_what_is_recorded_is_said_again(embedded: LlamaEngine, tmp_path: Path) -> None:
    recorder = Recorder(embedded, tmp_path / "said.jsonl")
    said = {name: await ask(recorder, REQUESTS[name]) for name in ("plain", "several turns")}
    again = connect(str(tmp_path / "said.jsonl"), pace=0)
    for name in reversed(said):
        assert await ask(again, REQUESTS[name]) == said[name]
