"""A thought that the request asks for and the prompt has opened, then the form that it wants: on the real model, at temperature 1.

`UNBRAID_ROUNDS=100` before a release (an hour or two); one of each otherwise. Left alone, the model calls about once in fifty times before it
has said a word of a thought.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest

pytest.importorskip("xllamacpp")
pytest.importorskip("llguidance")
from starlette.testclient import TestClient

from unbraid.engines.llama import LlamaEngine
from unbraid.engines.model import default_model
from unbraid.formats import get_format
from unbraid.server import create_app

ROUNDS = int(os.environ.get("UNBRAID_ROUNDS", "1"))
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"type": "string", "enum": ["C", "F"]},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
PING = {"type": "object", "properties": {}}
SCHEMAS: dict[str, Any] = {"get_weather": SCHEMA, "ping": PING}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
ASK = [{"role": "user", "content": "What is the weather in Paris for the next 3 days?"}]
WISHES: dict[str, dict[str, Any]] = {
    "required": {"tools": TOOLS, "tool_choice": "required"},
    "named": {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "get_weather"}}},
    "auto": {"tools": TOOLS, "tool_choice": "auto", "parallel_tool_calls": False},
    "one": {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False},
    "schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "weather", "schema": SCHEMA}}},
}


class Opening(LlamaEngine):
    """The default model with a chat template that opens the thought, as Qwen's thinking models have it."""

    @property
    def chat_template(self) -> str | None:
        return f"{super().chat_template}{{% if add_generation_prompt %}}{{{{ '<think>\\n' }}}}{{% endif %}}"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    engine = Opening(default_model(progress=False))
    with TestClient(create_app(engine, get_format("qwen3"))) as client:
        yield client


@pytest.mark.parametrize("wish", WISHES)
def test_the_form_is_kept(client: TestClient, wish: str) -> None:
    failed = []

    def ask(seed: int) -> Any:
        # A free answer of this model rambles on: 200 tokens of it say as much as 1,200.
        most = 200 if wish == "auto" else 1200
        body = {"messages": ASK, "temperature": 1, "seed": seed, "max_tokens": most}
        asked = {"reasoning_effort": "low", "thinking_token_budget": 24}
        return client.post("/v1/chat/completions", json={**body, **asked, **WISHES[wish]})

    with ThreadPoolExecutor(4) as pool:  # as many as the engine takes at once
        replies = list(pool.map(ask, range(ROUNDS)))
    for seed, reply in enumerate(replies):
        assert reply.status_code == 200, reply.text
        try:
            check(wish, reply.json()["choices"][0])
        except (AssertionError, ValueError, jsonschema.ValidationError) as error:
            failed.append((seed, reply.json()["choices"][0], error))
    assert not failed, f"{len(failed)} of {ROUNDS}: {failed[0]}"


def check(wish: str, choice: dict[str, Any]) -> None:
    message = choice["message"]
    assert message["reasoning_content"].strip()
    calls = message.get("tool_calls") or []
    cut = wish == "auto" and choice["finish_reason"] == "length"  # the last call may be only the beginning of one
    for call in calls[: len(calls) - cut]:
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMAS[call["function"]["name"]])
    if wish == "schema":
        jsonschema.validate(json.loads(message["content"]), SCHEMA)
        assert not calls
        return
    assert len(calls) <= 1 or wish == "required"
    if wish == "auto":
        assert calls or message["content"]
        return
    assert calls
    assert message["content"] is None
    assert wish != "named" or {call["function"]["name"] for call in calls} == {"get_weather"}
    assert choice["finish_reason"] == ("stop" if wish == "named" else "tool_calls")
