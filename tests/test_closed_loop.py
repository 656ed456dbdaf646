"""What the grammar lets through, the parser reads: sampled at random, for every format that has calls."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest
import random_schemas
from sampling import Backend, Sampler, sampler

import unbraid
from unbraid import Message, ToolCall
from unbraid.formats import FORMATS
from unbraid.gate import Gate, Mode
from unbraid.grammar.build import Structured, build
from unbraid.table import State, spelled, thinks

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
SAMPLES = int(os.environ.get("UNBRAID_SAMPLES", "6"))
"""Of each kind, for each format and backend. Hundreds before a release: `UNBRAID_SAMPLES=300`."""
SLOW = (
    "qwen3",
    "qwen3_coder",
    "glm47",
    "deepseek_v32",
    "kimi_k3",
    "gemma4",
    "mistral_v11",
    "llama4_pythonic",
    "harmony",
)
"""One format for each way to write arguments: what llama.cpp, which looks at every token anew, is asked about by default."""
XGRAMMAR: tuple[Backend, ...] = ("xgrammar", "engine") if importlib.util.find_spec("xgrammar") else ()
CASES: list[tuple[str, Backend]] = [
    *((name, "llguidance") for name in CALLING),
    *((name, backend) for backend in XGRAMMAR for name in CALLING),
    *((name, "llama.cpp") for name in (SLOW if SAMPLES <= 6 else CALLING)),
]

each_case = pytest.mark.parametrize(("name", "backend"), CASES)
most_cases = pytest.mark.parametrize(
    ("name", "backend"), [case for case in CASES if case[1] != "llama.cpp" or SAMPLES > 6]
)


REASONING = [name for name in CALLING if any(state.strand == "reasoning" for state in FORMATS[name].states)]


@dataclass(frozen=True)
class Place:
    """Where the grammar begins: what stands in front, and what is known of it."""

    prompt: tuple[int, ...]
    thinking: bool
    state: State


def places(it: Sampler) -> list[Place]:
    """At the start of an answer without reasoning; behind reasoning, or in a message of it."""
    found = [Place((), False, it.bound.state_at((), thinking=False))]
    opened = [frame.opened() for frame in it.format.frames if frame.state.strand == "reasoning"]
    prompts = [tuple(it.vocabulary.encode(spelled(opening))) for opening in opened]
    found += [Place(prompt, True, it.bound.state_at(prompt, thinking=True)) for prompt in prompts]
    if any(state.strand == "reasoning" for state in it.format.states) and not it.format.frames:
        thought = Message(reasoning="Hm.", content="Well.")
        ids = unbraid.render_ids(it.bound, thought, thinking=True)
        ended = next(at for at in range(1, len(ids)) if it.bound.is_reasoning_end(ids[:at], thinking=True))
        found.append(Place(tuple(ids[:ended]), True, it.bound.state_at((), thinking=True)))
    return found


def sampled(
    name: str,
    backend: Backend,
    count: int = SAMPLES,
    tools: list[dict[str, Any]] | None = None,
    seed: int = 0,
    **request: Any,
) -> Iterator[tuple[Sampler, Message]]:
    """Answers to a request as they are read, from all places in turn. Most of them come to an end by themselves."""
    it = sampler(name)
    found = 0
    prepared = [
        (place, it.matcher(build(it.format, tools=tools, state=place.state, **request), backend))
        for place in places(it)
    ]
    for number in range(count):
        place, matcher = prepared[number % len(prepared)]
        if (ids := it.sample(matcher, seed + number)) is not None:
            found += 1
            yield it, read(it, place, ids, tools or [])
    assert found >= count // 2 or count < SAMPLES


def read(it: Sampler, place: Place, ids: list[int], tools: list[dict[str, Any]]) -> Message:
    message = unbraid.parse(it.bound, ids, tools=tools, thinking=place.thinking, prompt=place.prompt)
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    try:
        for call in message.tool_calls:
            assert call.complete
            assert call.name in schemas
            jsonschema.validate(json.loads(call.arguments), schemas[call.name])
        assert message.reasoning is None or it.format.frames
        # `no_call` without calls: prose such as `print(...`. A value that holds a tag is called ambiguous, and no other is.
        values = [value for call in message.tool_calls for value in json.loads(call.arguments).values()]
        texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values]
        odd = [
            note
            for note in message.diagnostics
            if (message.tool_calls or note.kind != "no_call")
            and not (
                note.kind == "ambiguous_value" and any(note.found.partition(">")[0] + ">" in text for text in texts)
            )
        ]
        assert not odd, odd[0]
    except BaseException as error:
        error.add_note(f"in {it.vocabulary.decode(ids)!r}")
        raise
    return message


@each_case
def test_required_calls_are_read(name: str, backend: Backend) -> None:
    for _, message in sampled(name, backend, tools=TOOLS, tool_choice="required"):
        assert message.tool_calls
        assert message.content is None


@each_case
def test_arguments_satisfy_random_schemas(name: str, backend: Backend) -> None:
    """What a format can't enforce (text or a number in one place, where values are written raw) is refused, not loosened."""
    refused, seeds, finished = 0, max(SAMPLES // 2, 1), 0
    for seed in range(seeds):
        tools = random_schemas.tools(seed)
        try:
            for _, message in sampled(name, backend, 2, tools, seed, tool_choice="required"):
                assert message.tool_calls
                finished += 1
        except unbraid.errors.SchemaError:
            refused += 1
    assert refused <= SAMPLES // 4
    assert finished >= seeds - refused  # half of the samples: some schemas are long


@most_cases
def test_one_call_where_parallel_calls_are_off(name: str, backend: Backend) -> None:
    named = {"type": "function", "function": {"name": "plot"}}
    for _, message in sampled(name, backend, tools=TOOLS, tool_choice=named, parallel=False):
        assert [call.name for call in message.tool_calls] == ["plot"]


@most_cases
def test_auto_allows_text_and_calls(name: str, backend: Backend) -> None:
    for it, message in sampled(name, backend, tools=TOOLS, tool_choice="auto"):
        assert message.reasoning is None or it.format.frames
        assert message.tool_calls or (message.content or "").strip()


@each_case
def test_what_the_renderer_writes_is_allowed(name: str, backend: Backend) -> None:
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
    accepted = it.matcher(build(it.format, tools=TOOLS, tool_choice="required"), backend).validate(start)
    assert accepted == len(start), (
        f"{it.vocabulary.decode(start[:accepted])!r} then {it.vocabulary.decode(start[accepted:])!r}"
    )


@pytest.mark.parametrize("backend", ["llguidance", *XGRAMMAR, "llama.cpp"])
@pytest.mark.parametrize("name", ["qwen3", "deepseek_v31", "harmony"])
def test_structured_output_is_valid(name: str, backend: Backend) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    for _, message in sampled(name, backend, structured=Structured(json_schema=schema)):
        assert message.content is not None
        jsonschema.validate(json.loads(message.content), schema)


@pytest.mark.parametrize("backend", ["llguidance", *XGRAMMAR, "llama.cpp"])
def test_limits_and_patterns_hold(backend: Backend) -> None:
    fields = {
        "days": {"type": "integer", "minimum": -20, "maximum": 120},
        "count": {"type": "integer", "exclusiveMinimum": 0},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "code": {"type": "string", "pattern": "^[A-Z]{2,3}-[0-9]+$"},
        "said": {"type": "string", "pattern": '^(yes|no)[^x]?"$'},
        "note": {"type": "string", "pattern": "[)}>]"},
    }
    if backend in XGRAMMAR:
        del fields["said"]  # refused there
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    for _, message in sampled("qwen3", backend, structured=Structured(json_schema=schema)):
        assert message.content is not None
        jsonschema.validate(json.loads(message.content), schema)


AWKWARD: dict[str, Any] = {
    "none": {"type": "array", "items": {"type": "integer"}, "maxItems": 0},
    "two": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2},
    "large": {"type": "number"},
    "nullable": {"type": ["string", "null"]},
    "nested": {
        "type": "object",
        "properties": {"tag": {"type": "string"}, "x": {"type": "number"}},
        "required": ["tag"],
    },
}


@most_cases
def test_what_was_once_read_as_something_else(name: str, backend: Backend) -> None:
    """Arrays of a fixed length, numbers beyond a double's range, text that spells null, tags within JSON."""
    for key, schema in AWKWARD.items():
        parameters = {"type": "object", "properties": {key: schema}, "required": [key]}
        tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        for _, message in sampled(name, backend, 2, tools, 50, tool_choice="required", parallel=False):
            assert message.tool_calls


class Gated:
    """A gate where a matcher is expected."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def fill(self, mask: Any, row: int = 0) -> None:
        self.gate.fill(mask, row)

    def accept(self, id: int) -> bool:
        return self.gate.advance((id,)).accepted == 1

    def validate(self, ids: Sequence[int]) -> int:
        return self.gate.validate(ids)

    def rollback(self, n: int) -> None:
        self.gate.rollback(n)

    def fork(self) -> Gated:
        return Gated(self.gate.fork())

    @property
    def terminated(self) -> bool:
        return self.gate.terminated


@pytest.mark.parametrize("name", REASONING)
@pytest.mark.parametrize(("budget", "owed"), [(0, False), (7, False), (7, True)])
def test_a_thought_within_its_budget_then_the_call(name: str, budget: int, owed: bool) -> None:
    """From the first token on, through the gate: a model that writes anything it may."""
    it = sampler(name)
    state = it.bound.state_at((), thinking=True)
    matcher = it.matcher(build(it.format, tools=TOOLS, tool_choice="required", must_think=owed, state=state))
    owed = owed and thinks(state)  # where an answer starts behind reasoning nothing is owed
    mode: Mode = "framed" if it.format.frames else "strict"
    gate = Gate(
        it.bound, (), matcher, reasoning=True, mode=mode, budget=budget, must_think=owed, tools=TOOLS, stop_ids={it.end}
    )
    found = 0
    for seed in range(max(2, SAMPLES // 2)):
        if (ids := it.sample(Gated(gate), seed)) is None:
            continue
        found += 1
        parser = unbraid.Parser(it.bound, tools=TOOLS, prompt=(), thinking=True)
        events = [*parser.feed(ids), *parser.finish()]
        assert sum(event.token_stop - event.token_start for event in events if event.strand == "reasoning") <= budget
        message = parser.message
        assert message.tool_calls, it.vocabulary.decode(ids)
        assert message.content is None, it.vocabulary.decode(ids)
        assert not owed or (message.reasoning or "").strip(), it.vocabulary.decode(ids)
        assert not message.diagnostics, (message.diagnostics[0], it.vocabulary.decode(ids))
        for call in message.tool_calls:
            jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    assert found


@pytest.mark.parametrize("backend", ["llguidance", *XGRAMMAR, "llama.cpp"])
@pytest.mark.parametrize("name", ["qwen3", "deepseek_v31", "glm47", "kimi_k3", "gemma4", "harmony", "inkling"])
def test_a_grammar_that_holds_the_thought_asks_for_one(name: str, backend: Backend) -> None:
    """For engines that get the whole turn as one grammar, and for formats with headers."""
    it = sampler(name)
    state = it.bound.state_at((), thinking=True)
    tree = build(it.format, tools=TOOLS, tool_choice="required", reasoning=True, must_think=True, state=state)
    matcher, found = it.matcher(tree, backend), 0
    for seed in range(max(3, SAMPLES // 2)):
        if (ids := it.sample(matcher, seed)) is None:
            continue
        found += 1
        message = unbraid.parse(it.bound, ids, tools=TOOLS, thinking=True, prompt=())
        assert (message.reasoning or "").strip(), it.vocabulary.decode(ids)
        assert message.tool_calls, it.vocabulary.decode(ids)
    assert found


@pytest.mark.parametrize("backend", ["llguidance", *XGRAMMAR])
@pytest.mark.parametrize("name", REASONING)
def test_a_thought_as_the_renderer_writes_it_is_allowed(name: str, backend: Backend) -> None:
    it = sampler(name)
    message = Message(reasoning="Hm.", tool_calls=[ToolCall("functions.ping:0", "ping", "{}")])
    ids = unbraid.render_ids(it.bound, message, tools=TOOLS, thinking=True)
    asked: dict[str, Any] = {"tools": TOOLS, "tool_choice": "required", "reasoning": True, "must_think": True}
    said = next(at for at in range(len(ids)) if it.vocabulary.decode(ids[at:]).startswith("Hm."))
    starts = [said]  # the prompt has opened the thought
    if it.bound.state_at((), thinking=True).strand != "reasoning" and thinks(it.bound.state_at((), thinking=True)):
        starts.append(0)
    for start in starts:
        matcher = it.matcher(build(it.format, state=it.bound.state_at(ids[:start], thinking=True), **asked), backend)
        rest = ids[start:]
        accepted = matcher.validate(rest)
        assert accepted == len(rest), (
            f"{it.vocabulary.decode(rest[:accepted])!r} then {it.vocabulary.decode(rest[accepted:])!r}"
        )
