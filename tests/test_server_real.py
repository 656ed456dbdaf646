"""The whole way: the embedded engine with a real model, the server on a real socket, and the clients that people use.

The model is fetched once by `unbraid.engines.model`. Asked greedily, the same request has the same answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
import uvicorn

from unbraid.engines.llama import LlamaEngine
from unbraid.engines.model import default_model
from unbraid.server import create_app
from unbraid.server.run import listen

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 40}


@pytest.fixture(scope="module")
def engine() -> LlamaEngine:
    return LlamaEngine(default_model(), context=1024, parallel=3)


@pytest.fixture(scope="module")
def url(engine: LlamaEngine) -> Iterator[str]:
    """The server in a thread. Leaving shuts it down, which closes the engine."""
    app = create_app(engine)
    with listen("127.0.0.1", 0) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def model(client: openai.OpenAI) -> str:
    return client.models.list().data[0].id


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=30) as http:
        yield http


def events(lines: Iterator[str]) -> Iterator[Any]:
    """Server-sent events, read as a plain client would."""
    for line in lines:
        if line:
            assert line.startswith("data: ")
            data = line.removeprefix("data: ")
            yield data if data == "[DONE]" else json.loads(data)


def test_joined_stream_equals_one_shot(client: openai.OpenAI, model: str) -> None:
    whole = client.chat.completions.create(model=model, messages=QUESTION, **GREEDY)
    content = whole.choices[0].message.content
    assert content is not None
    assert "Paris" in content
    stream = client.chat.completions.create(
        model=model, messages=QUESTION, stream=True, stream_options={"include_usage": True}, **GREEDY
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == whole.choices[0].finish_reason
    assert len(chunks) > 5
    assert chunks[-1].usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    details = whole.usage.completion_tokens_details
    assert details is not None
    assert details.reasoning_tokens == 0


def test_the_sdks_own_accumulator(client: openai.OpenAI, model: str) -> None:
    whole = client.chat.completions.create(model=model, messages=QUESTION, **GREEDY)
    with client.chat.completions.stream(model=model, messages=QUESTION, **GREEDY) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole.choices[0].message.content


def test_plain_http(http: httpx.Client) -> None:
    body = {"messages": QUESTION, **GREEDY}
    content = http.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
    with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        *chunks, done = events(response.iter_lines())
    assert done == "[DONE]"
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == content
    assert http.get("/health").json() == {"status": "ok"}


def test_two_choices(client: openai.OpenAI, model: str) -> None:
    hot: dict[str, Any] = {"temperature": 1.5, "seed": 1, "max_tokens": 12, "n": 2}
    whole = client.chat.completions.create(model=model, messages=QUESTION, **hot)
    contents = [choice.message.content for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert contents[0] != contents[1]
    joined = ["", ""]
    for chunk in client.chat.completions.create(model=model, messages=QUESTION, stream=True, **hot):
        joined[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert joined == contents


def test_logprobs(client: openai.OpenAI, model: str) -> None:
    reply = client.chat.completions.create(
        model=model, messages=QUESTION, logprobs=True, top_logprobs=3, temperature=0, max_tokens=8
    )
    choice = reply.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    entries = choice.logprobs.content
    assert b"".join(bytes(entry.bytes or ()) for entry in entries).decode() == choice.message.content
    assert all(entry.token == entry.top_logprobs[0].token and entry.logprob <= 0 for entry in entries)
    assert {len(entry.top_logprobs) for entry in entries} == {3}


def test_tools_are_offered_to_a_model_that_was_never_taught_them(client: openai.OpenAI, model: str) -> None:
    """Structure, not judgement: the model is too small to call reliably, but whatever it says comes through whole."""
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools: list[Any] = [{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]
    ask: dict[str, Any] = {"model": model, "tools": tools, **GREEDY}
    messages: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    choice = client.chat.completions.create(messages=messages, **ask).choices[0]
    for call in choice.message.tool_calls or ():
        assert call.type == "function"
        assert call.function.name
        if choice.finish_reason == "tool_calls":
            json.loads(call.function.arguments)
    said = {"content": "", "arguments": ""}
    for chunk in client.chat.completions.create(messages=messages, stream=True, **ask):
        delta = chunk.choices[0].delta
        said["content"] += delta.content or ""
        for piece in delta.tool_calls or ():
            assert piece.function is not None
            said["arguments"] += piece.function.arguments or ""
    assert said["content"] == (choice.message.content or "")
    assert said["arguments"] == "".join(
        call.function.arguments for call in choice.message.tool_calls or () if call.type == "function"
    )


def test_length_and_stop(client: openai.OpenAI, model: str) -> None:
    cut = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=2, temperature=0)
    assert cut.choices[0].finish_reason == "length"
    assert cut.usage is not None
    assert cut.usage.completion_tokens == 2
    stopped = client.chat.completions.create(model=model, messages=QUESTION, stop=[" France"], **GREEDY)
    assert stopped.choices[0].finish_reason == "stop"
    assert stopped.choices[0].message.content == "The capital of"


def test_refusals_are_the_exceptions_of_the_sdk(client: openai.OpenAI, model: str) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.BadRequestError, match="at least one message") as bad:
        create(model=model, messages=[])
    assert bad.value.param == "messages"
    with pytest.raises(openai.NotFoundError) as missing:
        create(model="gpt-9", messages=QUESTION)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        create(model=model, messages=[{"role": "user", "content": "word " * 2000}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")
    assert client.models.retrieve(model).id == model


def test_an_engine_hears_within_a_second_that_the_client_has_left(
    http: httpx.Client, engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tokens, each of which takes 10 ms at least: a busy machine delays engine and server alike."""
    sampled, sample = 0, engine._sample

    def slowly(*given: Any) -> Any:
        nonlocal sampled
        time.sleep(0.01)
        sampled += 1
        return sample(*given)

    monkeypatch.setattr(engine, "_sample", slowly)
    endless = {"messages": QUESTION, "ignore_eos": True, "stream": True}
    for _ in range(4):  # more than the engine has places for
        with http.stream("POST", "/v1/chat/completions", json=endless) as response:
            next(response.iter_lines())
            left_at = sampled
        while engine._running:
            time.sleep(0.01)
        assert sampled - left_at < 100
    assert http.post("/v1/chat/completions", json={"messages": QUESTION, "max_tokens": 1}).status_code == 200


def test_serve_says_where_it_is_and_drains_on_sigterm() -> None:
    command = [sys.executable, "-m", "unbraid", "serve", "--port", "0", "--ctx", "512", "--parallel", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        address = first.split(" at ")[1].strip()
        assert process.stdout.readline() == "try it:\n"
        with httpx.Client(timeout=30) as http:
            body = {"messages": QUESTION, "stream": True, "ignore_eos": True, "max_tokens": 60}
            with http.stream("POST", f"{address}/chat/completions", json=body) as response:
                lines = response.iter_lines()
                next(lines)
                process.send_signal(signal.SIGTERM)
                *_, last, done = events(lines)
        assert done == "[DONE]"
        assert last["choices"][0]["finish_reason"] == "length"
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


def test_an_occupied_port_is_told_at_once() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "unbraid", "serve", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == 2
    assert f"can't listen on 127.0.0.1:{port} (Address already in use); give another --port" in done.stderr


def test_async_client_reads_many_streams_at_once(url: str, model: str) -> None:
    async def ask(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(model=model, messages=QUESTION, stream=True, **GREEDY)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def main() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            return await asyncio.gather(*(ask(client) for _ in range(6)))

    assert len(set(asyncio.run(main()))) == 1
