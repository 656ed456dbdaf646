"""An engine that reports no ids: what is counted all the same, and what the result says of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_engine import FakeEngine, write_tokenizer

import unbraid
from unbraid.engines.base import Spent
from unbraid.engines.connect import connect
from unbraid.engines.profile import Local
from unbraid.protocol import Usage
from unbraid.server import create_app
from unbraid.server.reading import Counted, text_usage

SAID = ["<think>", "\n", "One", ", two", ".", "\n", "</think>", "\n\n", "Thr", "ee", "!"]
"""A token a step; the white space within the thought's markers belongs to them."""


def counted(steps: list[str]) -> Counted:
    reader = Counted(unbraid.Parser(unbraid.get_format("qwen3")))
    for step in steps:
        reader.feed_text(step)
    reader.finish("stop")
    return reader


@pytest.mark.parametrize(
    ("steps", "spent", "usage"),
    [
        (SAID, Spent(7, 11), Usage(7, 11, 3, "steps")),
        (SAID, Spent(7, 12), Usage(7, 12, 3, "steps")),  # the end of the turn, which leaves no text
        (SAID, Spent(7, 22), Usage(7, 22, 6, "steps")),  # two tokens a step
        (SAID, None, Usage(0, 11, 3, "steps")),
        (["".join(SAID)], Spent(7, 11), Usage(7, 11, 0, "steps")),
        (["<think>", "", "a", ""], Spent(1, 2), Usage(1, 2, 1, "steps")),
        ([], Spent(7, 0), Usage(7, 0, 0, "steps")),
    ],
)
def test_a_step_is_taken_for_a_token(steps: list[str], spent: Spent | None, usage: Usage) -> None:
    assert text_usage([(counted(steps), spent)]) == usage


def test_all_choices_count_and_the_prompt_once() -> None:
    assert text_usage([(counted(SAID), Spent(7, 11))] * 2) == Usage(7, 22, 6, "steps")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with FakeEngine("completions", SAID) as fake:
        engine = await asyncio.to_thread(connect, fake.url, local=Local(tokenizer=write_tokenizer(tmp_path)))
        transport = httpx.ASGITransport(create_app(engine, "qwen3"))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            yield client
        await engine.close()


CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


async def test_every_api_says_how_it_was_counted(client: httpx.AsyncClient) -> None:
    details = {"reasoning_tokens": 3, "counted_by": "steps"}
    chat = (await client.post("/v1/chat/completions", json=CHAT)).json()
    assert chat["usage"] | {"total_tokens": 0} == {
        "prompt_tokens": 11,
        "completion_tokens": 11,
        "total_tokens": 0,
        "completion_tokens_details": details,
    }
    hidden = (await client.post("/v1/chat/completions", json=CHAT | {"include_reasoning": False})).json()
    assert hidden["usage"] == chat["usage"]
    wish = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    stream = (await client.post("/v1/chat/completions", json=CHAT | wish)).text
    chunks = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    assert chunks[-1]["usage"] == chat["usage"]
    sofar = [chunk["usage"]["completion_tokens_details"]["reasoning_tokens"] for chunk in chunks]
    assert sofar == sorted(sofar)
    response = (await client.post("/v1/responses", json={"input": "Hi"})).json()
    assert response["usage"]["output_tokens_details"] == details
    message = (await client.post("/v1/messages", json=CHAT | {"max_tokens": 99})).json()
    assert message["usage"]["output_tokens"] == 11


async def test_a_reply_that_the_gateway_ends_is_counted_too(client: httpx.AsyncClient) -> None:
    chat = (await client.post("/v1/chat/completions", json=CHAT | {"stop": "ree"})).json()
    assert chat["choices"][0]["message"]["content"] == "Th"
    assert chat["usage"]["completion_tokens"] == 10
    assert chat["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3, "counted_by": "steps"}
