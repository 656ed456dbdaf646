"""The description at /openapi.json is sound, and whatever it allows, or nearly allows, is answered: never with a 5xx."""

from __future__ import annotations

import json
import os
import re
from typing import Any

import pytest

pytest.importorskip("schemathesis")
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from parrot import CALL, TEMPLATE, Client, Parrot
from schemathesis.checks import not_a_server_error

from unbraid.server.app import ANSWERED, GENERATING
from unbraid.server.openapi import description


def server(template: str = TEMPLATE) -> Client:
    """Its engine never runs out of words, not even where the request forbids it to stop."""
    parrot = Parrot(f"<think>\nHm.\n</think>\n\nHi.{CALL}<|im_end|>" * 20)
    parrot.context_length, parrot.chat_template = 600, template
    return Client(parrot)


EXAMPLES = int(os.environ.get("SCHEMATHESIS_EXAMPLES", "15"))
SCHEMA: Any = schemathesis.openapi.from_asgi("/openapi.json", server().app)


def test_every_post_is_described() -> None:
    paths = description()["paths"]
    assert {path for path, operations in paths.items() if "post" in operations} == {*GENERATING, *ANSWERED}


@SCHEMA.parametrize()  # type: ignore[untyped-decorator]
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_request_is_too_odd(case: Any) -> None:
    case.call_and_validate(checks=[not_a_server_error])


# -- sound requests with one thing wrong -------------------------------------------------------------------------------

SCHEMA_OF_CITY = {
    "type": "object",
    "properties": {"city": {"type": ["string", "null"], "enum": ["Oslo"]}},
    "required": ["city"],
}
CALLED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"city": "Oslo"}'}}
SOUND: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "model": "tiny",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Hi"}]},
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALLED]},
            {"role": "tool", "tool_call_id": "c", "content": "y"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA_OF_CITY, "strict": False}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA_OF_CITY}},
        "stop": ["END"],
        "logit_bias": {"1": 1},
        "max_tokens": 5,
        "n": 2,
        "stream_options": {"include_usage": True},
        "stream": True,
        "logprobs": True,
        "top_logprobs": 1,
        "chat_template_kwargs": {"enable_thinking": True},
        "keep_special_tokens": ["<|im_end|>"],
        "reasoning": {"effort": "low", "exclude": False},
        "thinking_token_budget": 5,
    },
    "/v1/completions": {"prompt": ["a", [1, 2]], "max_tokens": 5, "stop": "x", "logprobs": 1, "echo": False, "n": 1},
    "/v1/responses": {
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "s"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "output_text", "text": "y"}]},
        ],
        "instructions": "x",
        "tools": [{"type": "function", "name": "f", "parameters": SCHEMA_OF_CITY}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA_OF_CITY}},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 1,
        "reasoning": {"effort": "low"},
        "max_output_tokens": 5,
        "metadata": {"a": "b"},
    },
    "/v1/messages": {
        "max_tokens": 5,
        "system": [{"type": "text", "text": "x"}],
        "messages": [
            {"role": "user", "content": "x"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "s"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"city": "Oslo"}},
                ],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "y"}]}],
            },
        ],
        "tools": [{"name": "f", "input_schema": SCHEMA_OF_CITY}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 4},
        "stop_sequences": ["END"],
        "output_config": {"effort": "low"},
    },
    "/tokenize": {"messages": [{"role": "user", "content": "x"}], "tools": [], "return_token_strs": True},
}
JUNK = st.one_of(
    st.sampled_from(
        [None, True, -1, 0, 2**70, 1.5, "", "\ud800", "x", [], {}, [[]], [{}], {"": None}, {"type": "x"}, "auto"]
    ),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=4,
    ),
)


WITHOUT_TOOLS = TEMPLATE[TEMPLATE.index("{%- for") :]
"""A template that doesn't know tools: the server writes them out."""


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], junk)
    return copy


@pytest.mark.parametrize("path", SOUND)
async def test_a_sound_request_is_served(path: str) -> None:
    response = await server().request("POST", path, json=SOUND[path])
    assert response.status_code == 200, response.text


CLIENT = server()


@given(st.data())
@settings(max_examples=6 * EXAMPLES, deadline=None)
async def test_one_thing_wrong_is_no_fault_of_the_server(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(SOUND)))
    place = data.draw(st.sampled_from(places(SOUND[path])[1:]))
    body = json.dumps(changed(SOUND[path], place, data.draw(JUNK)))
    response = await CLIENT.request("POST", path, content=body)
    assert response.status_code < 500, response.text
    if response.status_code != 200:
        assert response.json()["error"]["message"]


KINDS = [None, True, 7, 1.5, "", "x", [], [1], {}, {"a": 1}]


@pytest.mark.parametrize("client", [CLIENT, server(WITHOUT_TOOLS)], ids=["tools", "no tools"])
@pytest.mark.parametrize("path", SOUND)
async def test_every_place_with_every_kind_of_value(path: str, client: Client) -> None:
    """Of a value that won't do the error names the place: by a field of this request, or what it lies in."""
    for place in places(SOUND[path])[1:]:
        for value in KINDS:
            response = await client.request("POST", path, json=changed(SOUND[path], place, value))
            where = f"{place} = {value!r}: {response.text[:300]}"
            assert response.status_code < 500, where
            if response.status_code != 200:
                said = response.json()["error"]["message"]
                assert re.split(r"[.:\[]", said)[0] in SOUND[path].keys() | {"prompt"}, where
