"""A thought that the prompt has opened, then the form that the request wants: on the real model, at temperature 1.

`UNBRAID_ROUNDS=100` before a release; one of each otherwise. Nobody is made to think: about once in a hundred the model calls before
it has said a word.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
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
    failed, silent = [], 0
    for seed in range(ROUNDS):
        body = {"messages": ASK, "temperature": 1, "seed": seed, "max_tokens": 1200, "thinking_token_budget": 24}
        reply = client.post("/v1/chat/completions", json={**body, **WISHES[wish]})
        assert reply.status_code == 200, reply.text
        try:
            check(wish, reply.json()["choices"][0])
            silent += not reply.json()["choices"][0]["message"].get("reasoning_content")
        except (AssertionError, ValueError, jsonschema.ValidationError) as error:
            failed.append((seed, reply.json()["choices"][0], error))
    assert not failed, f"{len(failed)} of {ROUNDS}: {failed[0]}"
    assert silent <= ROUNDS * 0.03, f"{silent} of {ROUNDS} without reasoning"


def check(wish: str, choice: dict[str, Any]) -> None:
    message = choice["message"]
    calls = message.get("tool_calls") or []
    for call in calls:
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
