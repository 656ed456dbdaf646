"""A real vLLM, on CPU, behind the gateway: `make test-vllm`, which makes its environment and runs this.

The model is tiny and random; a logits processor (`real_vllm/replay.py`) makes it write ids that we know. So vLLM's own scheduler,
sampler, stop tokens and event stream stand between ids of five formats and what the gateway makes of them, which must be what
`unbraid.parse` says of the same ids.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

PYTHON, MODEL, RUNNING = (os.environ.get(f"UNBRAID_VLLM_{name}") for name in ("PYTHON", "MODEL", "URL"))
if RUNNING is None and PYTHON is None:
    pytest.skip("needs a vLLM: make test-vllm", allow_module_level=True)

from fixtures import FIXTURES, Fixture  # noqa: E402
from test_real_tokenizers import TOKENIZERS, counter, encode, loaded  # noqa: E402
from tokens import plain  # noqa: E402
from vllm_server import replayed, vllm_server  # noqa: E402

import unbraid  # noqa: E402
from unbraid.engines.base import Engine, Generation, Grammar, Step  # noqa: E402
from unbraid.engines.connect import connect  # noqa: E402
from unbraid.engines.profile import Local  # noqa: E402
from unbraid.engines.remote import RemoteEngine  # noqa: E402
from unbraid.errors import RequestError  # noqa: E402
from unbraid.events import CallEnd  # noqa: E402
from unbraid.machine import FinishReason  # noqa: E402
from unbraid.server import Settings, create_app  # noqa: E402

FORMATS = {"qwen3": 45, "qwen3_5": 45, "glm45": 40, "minimax_m2": 38, "deepseek_v31": 32}
"""How many outputs of each: 200 in all."""


@pytest.fixture(scope="module")
def vllm() -> Iterator[str]:
    """The server's URL: one that runs already, or one of our own."""
    if RUNNING is not None:
        yield RUNNING
        return
    assert PYTHON is not None
    assert MODEL is not None
    with vllm_server(PYTHON, MODEL, "--enable-scale-out") as url:
        yield url


@dataclass(frozen=True)
class Case:
    """One output to replay, and what must come of it."""

    fixture: Fixture
    prompt: list[int]
    ids: list[int]
    expected: unbraid.Message
    finish: str


SETTINGS = Settings(literal_messages=False)
"""The prompt is what the user says, its markers are tokens."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder with tokenizer and chat template for each format: the prompt is what the user says, nothing around it."""
    found = {}
    for name in FORMATS:
        folder = found[name] = tmp_path_factory.mktemp(name)
        archive = Path(counter.__file__).parent / "data" / TOKENIZERS[name] / "tokenizer.json.zip"
        with zipfile.ZipFile(archive) as files:
            files.extract("tokenizer.json", folder)
        template = "{% if tools %}{% endif %}{{ messages[0].content }}"
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    return found


def engine_of(vllm: str, folder: Path, kind: str = "vllm") -> RemoteEngine:
    engine = connect(vllm, kind, local=Local(tokenizer=folder))
    assert isinstance(engine, RemoteEngine)
    return engine


def cases(name: str, engine: Engine, stops: frozenset[int]) -> Iterator[Case]:
    """Fixtures of a format that a server with default settings can be held to."""
    bound = unbraid.get_format(name).bind(engine.vocabulary)
    for fixture in FIXTURES[name]:
        if fixture.policy != unbraid.Policy() or fixture.thinking is not None:
            continue
        ids = encode(name, fixture.raw)
        ended = next((at + 1 for at, id in enumerate(ids) if id in stops), len(ids))
        ids = ids[:ended]
        prompt = engine.tokenize(plain(fixture.prompt or "") or "Go on.")
        finish: FinishReason = "stop" if ids and ids[-1] in stops else "length"
        choice = "auto" if fixture.tools else "none"
        parser = unbraid.Parser(bound, tools=fixture.tools, prompt=prompt, tool_choice=choice)
        events = [*parser.feed(ids), *parser.finish(finish)]
        # A call that turns out to be none can't be taken back from a stream: the server then says more than `parse`.
        withdrawn = any(isinstance(event, CallEnd) and event.outcome == "withdrawn" for event in events)
        expected = unbraid.parse(
            bound, ids, tools=fixture.tools, prompt=prompt, finish_reason=finish, tool_choice=choice
        )
        if ids and not withdrawn:
            yield Case(fixture, prompt, ids, expected, finish)


async def replay(client: httpx.AsyncClient, case: Case, *, stream: bool) -> dict[str, Any]:
    """What the gateway says of a case, streamed or not, as one message."""
    body = {
        "messages": [{"role": "user", "content": plain(case.fixture.prompt or "") or "Go on."}],
        "max_tokens": len(case.ids),
        "vllm_xargs": replayed([case.ids]),
        "stream": stream,
    }
    if case.fixture.tools:
        body["tools"] = case.fixture.tools
    response = await client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    if not stream:
        choice: dict[str, Any] = response.json()["choices"][0]
        message: dict[str, Any] = choice["message"]
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        return message | {
            "calls": [[c["name"], c["arguments"]] for c in calls],
            "finish": choice["finish_reason"],
        }
    return _joined(response.text)


def _joined(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {"reasoning": "", "content": "", "calls": [], "finish": None}
    *events, done = text.strip().split("\n\n")
    assert done == "data: [DONE]"
    for event in events:
        for choice in json.loads(event.removeprefix("data: "))["choices"]:
            delta = choice["delta"]
            for strand in ("reasoning", "content"):
                found[strand] += delta.get(strand) or ""
            for call in delta.get("tool_calls") or ():
                if "id" in call:
                    found["calls"].append([call["function"]["name"], ""])
                found["calls"][call["index"]][1] += call["function"]["arguments"]
            found["finish"] = choice["finish_reason"] or found["finish"]
    return found


@pytest.mark.parametrize("name", FORMATS)
async def test_replayed_outputs_are_what_parse_says(name: str, vllm: str, folders: dict[str, Path]) -> None:
    engine = await asyncio.to_thread(engine_of, vllm, folders[name])
    app = create_app(engine, name, SETTINGS)
    gateway = app.state.gateway
    chosen = list(islice(cases(name, engine, frozenset(gateway._stop_ids)), FORMATS[name]))
    assert len(chosen) == FORMATS[name]
    transport = httpx.ASGITransport(app)
    room = asyncio.Semaphore(8)

    async def one(case: Case, stream: bool, client: httpx.AsyncClient) -> None:
        async with room:
            said = await replay(client, case, stream=stream)
        expected = case.expected
        assert (said.get("reasoning") or None) == expected.reasoning, case.fixture.name
        assert (said["content"] or None) == expected.content, case.fixture.name
        assert said["calls"] == [[call.name, call.arguments] for call in expected.tool_calls], case.fixture.name
        complete = any(call.complete for call in expected.tool_calls)
        assert said["finish"] == ("tool_calls" if complete and case.finish == "stop" else case.finish), (
            case.fixture.name
        )

    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=120) as client:
        await asyncio.gather(*(one(case, stream, client) for case in chosen for stream in (False, True)))
    await engine.close()


async def steps(engine: Engine, generation: Generation) -> list[Step]:
    return [step async for steps in engine.generate(generation) for step in steps]


def text_of(engine: Engine, found: Sequence[Step]) -> str:
    return engine.vocabulary.decode([id for step in found for id in step.ids])


@pytest.mark.parametrize("kind", ["vllm", "vllm-tokens"])
async def test_what_vllm_is_asked_it_does(kind: str, vllm: str, folders: dict[str, Path]) -> None:
    engine = await asyncio.to_thread(engine_of, vllm, folders["qwen3_5"], kind)
    ids = engine.tokenize("<think>\nHm \U0001f642\U0001f99c.\n</think>\n\nHi.<|im_end|>")
    told: Any = {"extra": {"vllm_xargs": replayed([ids])}}
    whole = await steps(engine, Generation([1], max_tokens=99, logprobs=2, **told))
    assert [id for step in whole for id in step.ids] == ids
    assert whole[-1].finish == "stop"
    entries = [entry for step in whole for entry in step.logprobs]
    assert [entry.id for entry in entries] == ids
    assert all(len(entry.top) == 2 and entry.logprob <= 0 for entry in entries)
    cut = await steps(engine, Generation([1], max_tokens=3, **told))
    assert ([id for step in cut for id in step.ids], cut[-1].finish) == (ids[:3], "length")
    stopped = await steps(engine, Generation([1], max_tokens=99, stop_ids=(ids[2],), **told))
    assert ([id for step in stopped for id in step.ids], stopped[-1].finish) == (ids[:3], "stop")
    seeded = [await steps(engine, Generation([1], max_tokens=9, seed=3, temperature=1.0)) for _ in range(2)]
    assert text_of(engine, seeded[0]) == text_of(engine, seeded[1])
    tag = {"type": "structural_tag", "format": {"type": "const_string", "value": "<think>ab"}}
    forced = await steps(engine, Generation([1], max_tokens=20, constraint=Grammar("structural_tag", tag)))
    assert text_of(engine, forced).startswith("<think>ab<|")
    assert forced[-1].ids[-1] in engine.vocabulary.control
    chosen = await steps(engine, Generation([1], max_tokens=20, constraint=Grammar("regex", "(yes|no)")))
    assert text_of(engine, chosen).partition("<|")[0] in ("yes", "no")
    with pytest.raises(RequestError, match=r"structural_tag|grammar specification"):
        await steps(engine, Generation([1], max_tokens=9, constraint=Grammar("structural_tag", {"format": 3})))
    await engine.ready()
    await engine.close()


@pytest.mark.parametrize("kind", ["vllm", "vllm-tokens"])
async def test_vllm_stops_when_nobody_listens(kind: str, vllm: str, folders: dict[str, Path]) -> None:
    engine = await asyncio.to_thread(engine_of, vllm, folders["qwen3_5"], kind)
    running = engine.generate(Generation([1], max_tokens=8000, ignore_eos=True))
    await anext(running)
    async with httpx.AsyncClient(base_url=vllm) as client:
        assert await _busy(client) == 1
        await running.aclose()
        end = time.monotonic() + 10
        while await _busy(client):
            assert time.monotonic() < end, "vLLM still generates"
            await asyncio.sleep(0.05)
    await engine.close()


async def _busy(client: httpx.AsyncClient) -> float:
    """Requests that vLLM is running, by its own metrics."""
    text = (await client.get("/metrics")).text
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith("vllm:num_requests_running"))


def test_the_tokenizers_are_the_real_ones() -> None:
    assert loaded(TOKENIZERS["qwen3_5"])[1].special["<|im_end|>"] == 248046


FERRY = {
    "type": "function",
    "function": {
        "name": "ferry",
        "parameters": {
            "type": "object",
            "properties": {"island": {"enum": ["Hven", "Ven"]}, "cars": {"type": "boolean"}},
            "required": ["island", "cars"],
            "additionalProperties": False,
        },
    },
}
SHAPE = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


async def test_a_model_of_noise_is_made_to_call(vllm: str, folders: dict[str, Path]) -> None:
    """The format's grammar as a structural tag, enforced by vLLM, whose own tokenizer is this format's."""
    engine = await asyncio.to_thread(engine_of, vllm, folders["qwen3_5"])
    transport = httpx.ASGITransport(create_app(engine, "qwen3_5", SETTINGS))
    prompt = "<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}], "max_tokens": 300, "seed": 1}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=120) as client:
        forced = await client.post(
            "/v1/chat/completions",
            json={**asked, "tools": [FERRY], "tool_choice": "required", "parallel_tool_calls": False},
        )
        shaped = await client.post(
            "/v1/chat/completions",
            json={**asked, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SHAPE}}},
        )
    assert forced.status_code == 200, forced.text
    choice = forced.json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert call["function"]["name"] == "ferry"
    assert arguments["island"] in ("Hven", "Ven")
    assert isinstance(arguments["cars"], bool)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert shaped.status_code == 200, shaped.text
    assert isinstance(json.loads(shaped.json()["choices"][0]["message"]["content"])["ok"], bool)
    await engine.close()
