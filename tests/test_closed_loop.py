"""What the grammar lets through, the parser reads: sampled at random, for every format that has calls."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
from sampling import Sampler, sampler

import unbraid
from unbraid import Message, ToolCall
from unbraid.formats import FORMATS
from unbraid.grammar.build import Structured, build
from unbraid.table import State

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


@dataclass(frozen=True)
class Place:
    """Where the grammar begins: what stands in front, and what is known of it."""

    prompt: tuple[int, ...]
    thinking: bool
    state: State


def places(it: Sampler) -> list[Place]:
    """At the start of an answer without reasoning, and behind reasoning."""
    found = [Place((), False, it.bound.state_at((), thinking=False))]
    if any(state.strand == "reasoning" for state in it.format.states) and not it.format.frames:
        thought = Message(reasoning="Hm.", content="Well.")
        ids = unbraid.render_ids(it.bound, thought, thinking=True)
        ended = next(at for at in range(1, len(ids)) if it.bound.is_reasoning_end(ids[:at], thinking=True))
        found.append(Place(tuple(ids[:ended]), True, it.bound.state_at((), thinking=True)))
    return found


def sampled(name: str, count: int, **request: Any) -> Iterator[tuple[Sampler, Place, list[int]]]:
    """Answers to a request, from all places in turn. Most of them come to an end."""
    it = sampler(name)
    found = 0
    prepared = [(place, it.matcher(build(it.format, state=place.state, **request))) for place in places(it)]
    for seed in range(count):
        place, matcher = prepared[seed % len(prepared)]
        if (ids := it.sample(matcher, seed)) is not None:
            found += 1
            yield it, place, ids
    assert found >= count * 0.75


def read(it: Sampler, place: Place, ids: list[int]) -> Message:
    message = unbraid.parse(it.bound, ids, tools=TOOLS, thinking=place.thinking, prompt=place.prompt)
    for call in message.tool_calls:
        assert call.complete
        assert call.name in SCHEMAS
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    assert message.reasoning is None or it.format.frames
    odd = [
        note for note in message.diagnostics if message.tool_calls or note.kind != "no_call"
    ]  # prose like `print(...`
    assert not odd, (odd[0], it.vocabulary.decode(ids))
    return message


@pytest.mark.parametrize("name", CALLING)
def test_required_calls_are_read(name: str) -> None:
    for it, place, ids in sampled(name, SAMPLES, tools=TOOLS, tool_choice="required"):
        message = read(it, place, ids)
        assert message.tool_calls, it.vocabulary.decode(ids)
        assert message.content is None, it.vocabulary.decode(ids)


@pytest.mark.parametrize("name", CALLING)
def test_one_call_where_parallel_calls_are_off(name: str) -> None:
    named = {"type": "function", "function": {"name": "plot"}}
    for it, place, ids in sampled(name, SAMPLES, tools=TOOLS, tool_choice=named, parallel=False):
        assert [call.name for call in read(it, place, ids).tool_calls] == ["plot"]


@pytest.mark.parametrize("name", CALLING)
def test_auto_allows_text_and_calls(name: str) -> None:
    for it, place, ids in sampled(name, SAMPLES, tools=TOOLS, tool_choice="auto"):
        read(it, place, ids)


@pytest.mark.parametrize("name", CALLING)
def test_what_the_renderer_writes_is_allowed(name: str) -> None:
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
    accepted = it.matcher(build(it.format, tools=TOOLS, tool_choice="required")).validate(start)
    assert accepted == len(start), (
        f"{it.vocabulary.decode(start[:accepted])!r} then {it.vocabulary.decode(start[accepted:])!r}"
    )


@pytest.mark.parametrize("name", ["qwen3", "deepseek_v31", "harmony"])
def test_structured_output_is_valid(name: str) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    for it, place, ids in sampled(name, SAMPLES, structured=Structured(json_schema=schema)):
        content = read(it, place, ids).content
        assert content is not None
        jsonschema.validate(json.loads(content), schema)
