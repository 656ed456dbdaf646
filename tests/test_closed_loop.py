"""What the grammar lets through, the parser reads: sampled at random, for every format that has calls."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from sampling import sampler

import unbraid
from unbraid import Message, ToolCall
from unbraid.formats import FORMATS
from unbraid.grammar import lark
from unbraid.grammar.build import Structured, build

SCHEMAS: dict[str, dict[str, Any]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["C", "F"]},
        },
        "required": ["city", "days"],
    },
    "plot": {
        "type": "object",
        "properties": {
            "on": {"type": "boolean"},
            "options": {
                "type": "object",
                "properties": {
                    "ticks": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
                    "name": {"type": "string"},
                },
                "required": ["ticks"],
                "additionalProperties": False,
            },
            "label": {"type": ["string", "null"]},
        },
        "required": ["options"],
    },
    "ping": {"type": "object", "properties": {}},
}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()]
CALLING = [name for name, fmt in FORMATS.items() if fmt.calls]
SAMPLES = 12


def grammar_of(name: str, **request: Any) -> str:
    tree = build(FORMATS[name], tools=TOOLS, **request)
    return lark.write(tree, sampler(name).vocabulary)


def check(message: Message) -> None:
    for call in message.tool_calls:
        assert call.complete
        assert call.name in SCHEMAS
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


@pytest.mark.parametrize("name", CALLING)
def test_required_calls_are_read(name: str) -> None:
    it = sampler(name)
    grammar = grammar_of(name, tool_choice="required")
    done = 0
    for seed in range(SAMPLES):
        ids = it.sample(grammar, seed)
        if ids is None:
            continue
        done += 1
        message = unbraid.parse(it.bound, ids, tools=TOOLS, thinking=False, prompt=after_thought(name))
        assert message.tool_calls, it.vocabulary.decode(ids)
        assert message.content is None
        assert message.reasoning is None or it.format.frames
        assert not message.diagnostics, message.diagnostics[0]
        check(message)
    assert done >= 3


def after_thought(name: str) -> list[int]:
    """A prompt behind which content stands, whatever the format's start."""
    bound = sampler(name).bound
    return [] if bound.format.frames else list(bound.reasoning_end_ids)


@pytest.mark.parametrize("name", CALLING)
def test_one_call_where_parallel_calls_are_off(name: str) -> None:
    it = sampler(name)
    grammar = grammar_of(name, tool_choice={"type": "function", "function": {"name": "plot"}}, parallel=False)
    for seed in range(8):
        if ids := it.sample(grammar, seed):
            message = unbraid.parse(it.bound, ids, tools=TOOLS, thinking=False, prompt=after_thought(name))
            assert [call.name for call in message.tool_calls] == ["plot"]
            check(message)


@pytest.mark.parametrize("name", CALLING)
def test_auto_allows_text_and_calls(name: str) -> None:
    it = sampler(name)
    grammar = grammar_of(name, tool_choice="auto")
    for seed in range(8):
        if ids := it.sample(grammar, seed):
            message = unbraid.parse(it.bound, ids, tools=TOOLS, thinking=False, prompt=after_thought(name))
            check(message)
            assert message.reasoning is None or it.format.frames


@pytest.mark.parametrize("name", CALLING)
def test_what_the_renderer_writes_is_allowed(name: str) -> None:
    import llguidance

    it = sampler(name)
    message = Message(
        tool_calls=[
            ToolCall("functions.get_weather:0", "get_weather", '{"city": "Oslo", "days": 3}'),
            ToolCall("functions.ping:1", "ping", "{}"),
        ]
    )
    try:
        ids = unbraid.render_ids(it.bound, message, tools=TOOLS, thinking=False)
    except unbraid.RenderError:
        message = Message(tool_calls=message.tool_calls[:1])
        ids = unbraid.render_ids(it.bound, message, tools=TOOLS, thinking=False)
    start = ids if it.format.frames else it.bound.content_ids(ids, thinking=False)
    matcher = llguidance.LLMatcher(it.tokenizer, grammar_of(name, tool_choice="required"))
    accepted = matcher.validate_tokens(start)
    assert accepted == len(start), (
        f"{it.vocabulary.decode(start[:accepted])!r} then {it.vocabulary.decode(start[accepted:])!r}"
    )


@pytest.mark.parametrize("name", ["qwen3", "deepseek_v31"])
def test_structured_output_is_valid(name: str) -> None:
    it = sampler(name)
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    grammar = lark.write(build(FORMATS[name], structured=Structured(json_schema=schema)), it.vocabulary)
    for seed in range(10):
        if ids := it.sample(grammar, seed):
            message = unbraid.parse(it.bound, ids, thinking=False, prompt=after_thought(name))
            assert message.content is not None
            jsonschema.validate(json.loads(message.content), schema)
