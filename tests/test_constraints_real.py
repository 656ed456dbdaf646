"""Forced calls and structured output on the real model: through template, gate, grammar, machine and protocol."""

from __future__ import annotations

import json
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

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", "Oslo"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["city", "days"],
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Weather of a city.", "parameters": SCHEMA},
    },
    {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}},
]
ASK = [
    {"role": "system", "content": "You are a helpful assistant."},
    {"role": "user", "content": "What is the weather in Paris for the next 3 days?"},
]
ROUNDS = 6


@pytest.fixture(scope="module", params=["chatml", "qwen3_thinking"])
def client(request: pytest.FixtureRequest) -> Iterator[tuple[str, TestClient]]:
    """The model served as a format that doesn't think, and as one whose thought is open until something ends it."""
    engine = LlamaEngine(default_model(progress=False))
    with TestClient(create_app(engine, get_format(request.param))) as client:
        yield request.param, client


def ask(client: TestClient, **wishes: Any) -> dict[str, Any]:
    reply = client.post("/v1/chat/completions", json={"messages": ASK, "temperature": 1, "max_tokens": 200, **wishes})
    assert reply.status_code == 200, reply.text
    choice: dict[str, Any] = reply.json()["choices"][0]
    return choice


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_required_call_is_made_and_valid(client: tuple[str, TestClient], seed: int) -> None:
    name, http = client
    # There thinking is on and the prompt doesn't say so: the thought is open, and may take 20 tokens.
    thinking = name == "qwen3_thinking"
    wishes = {"thinking_token_budget": 20} if thinking else {}
    choice = ask(http, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed, **wishes)
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert message["content"] is None
    assert bool(message.get("reasoning_content")) == thinking
    (call,) = message["tool_calls"]
    assert call["function"]["name"] in ("get_weather", "ping")
    if call["function"]["name"] == "get_weather":
        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)


@pytest.mark.parametrize("seed", range(2))
def test_a_named_call_is_made(client: tuple[str, TestClient], seed: int) -> None:
    _, http = client
    named = {"type": "function", "function": {"name": "get_weather"}}
    choice = ask(http, tools=TOOLS, tool_choice=named, parallel_tool_calls=False, seed=seed, thinking_token_budget=10)
    assert choice["finish_reason"] == "stop"
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)


@pytest.mark.parametrize("seed", range(3))
def test_a_reply_fits_its_schema(client: tuple[str, TestClient], seed: int) -> None:
    _, http = client
    wanted = {
        "type": "json_schema",
        "json_schema": {"name": "weather", "schema": {**SCHEMA, "additionalProperties": False}},
    }
    choice = ask(http, response_format=wanted, seed=seed, thinking_token_budget=10)
    jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMA)


def test_a_choice_is_one_of_the_texts(client: tuple[str, TestClient]) -> None:
    _, http = client
    assert ask(http, guided_choice=["yes", "no"], thinking_token_budget=5)["message"]["content"] in ("yes", "no")


@pytest.mark.parametrize("asked", [{"reasoning_effort": "low"}, {"enable_thinking": True, "thinking_token_budget": 3}])
def test_who_asks_for_reasoning_gets_some(client: tuple[str, TestClient], asked: dict[str, Any]) -> None:
    """Of a model that would rather end its turn than say a word."""
    name, http = client
    end = str(http.post("/tokenize", json={"prompt": "<|im_end|>"}).json()["tokens"][0])
    silent = {"logit_bias": {end: 100}, "max_tokens": 6}
    assert not ask(http, **silent)["message"].get("reasoning_content")
    assert not ask(http, **silent, **asked | {"thinking_token_budget": 0})["message"].get("reasoning_content")
    choice = ask(http, **silent, **asked)
    assert bool((choice["message"].get("reasoning_content") or "").strip()) == (name == "qwen3_thinking")
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"type": "object", "properties": {"a": {"not": {}}}, "required": ["a"]}, "not"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "without end"),
        ({"type": "objekt"}, "no type of JSON Schema"),
        ({"$ref": "#/$defs/none"}, "points at nothing"),
    ],
)
def test_a_bad_schema_is_refused_before_decoding(
    client: tuple[str, TestClient], schema: dict[str, Any], place: str
) -> None:
    _, http = client
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    reply = http.post("/v1/chat/completions", json={"messages": ASK, "response_format": wanted})
    assert reply.status_code == 400
    assert place in reply.json()["error"]["message"]
