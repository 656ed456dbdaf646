"""The official clients against the server, on a real socket with a real model: what they read, streamed and in one piece.

The model is small, so what it says is structure rather than judgement; asked greedily, it says the same every time, and so
the joined stream must be the one-shot reply in every API. It is served twice: as a format that doesn't think, and as one
whose thought is open until something ends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import jsonschema
import pytest

pytest.importorskip("anthropic")
pytest.importorskip("openai")
pytest.importorskip("xllamacpp")
pytest.importorskip("llguidance")
import anthropic
import openai
from serving import serving

from unbraid.engines.llama import LlamaEngine
from unbraid.engines.model import default_model
from unbraid.server import create_app

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
QUESTION = "What is the weather in Paris now?"
THINKS: dict[str, Any] = {"thinking_token_budget": 6}


PLAIN, THINKING = "chatml", "qwen3_thinking"


THOUGHTFUL = ("forced call", "hidden")


def served(wishes: Iterable[str]) -> pytest.MarkDecorator:
    """What concerns thoughts on the format that thinks, all else on the other."""
    rows = [(THINKING if wish in THOUGHTFUL else PLAIN, wish) for wish in wishes]
    return pytest.mark.parametrize(("url", "wish"), sorted(rows), indirect=["url"])


@pytest.fixture(scope="module")
def url(request: pytest.FixtureRequest) -> Iterator[tuple[str, bool]]:
    """Where, and whether it thinks."""
    engine = LlamaEngine(default_model(progress=False), context=1024, parallel=2)
    with serving(create_app(engine, request.param)) as url:
        yield url, request.param == THINKING


@pytest.fixture
def thinks(url: tuple[str, bool]) -> bool:
    return url[1]


@pytest.fixture
def client(url: tuple[str, bool]) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{url[0]}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def claude(url: tuple[str, bool]) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=url[0], api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def model(client: Any) -> str:
    id: str = client.models.list().data[0].id
    return id


# -- Chat Completions --------------------------------------------------------------------------------------------------

FUNCTION = {"name": "get_weather", "description": "Weather of a city.", "parameters": PARAMETERS}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "weather", "schema": PARAMETERS, "strict": True}}
RESULT = [
    {"role": "user", "content": QUESTION},
    {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "Sunny."},
    {"role": "user", "content": "So?"},
]

CHAT: dict[str, dict[str, Any]] = {
    "plain": {},
    "forced call": {"tool_choice": "required", "parallel_tool_calls": False},
    "named call": {"tool_choice": NAMED, "parallel_tool_calls": False},
    "tool result": {"messages": RESULT},
    "schema": {"response_format": FORMAT},
    "two choices": {"n": 2, "stop": ["e"], "temperature": 1.5, "seed": 1},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "hidden": {"extra": {"include_reasoning": False}, "logprobs": True},
}


@served(CHAT)
def test_chat(client: Any, model: str, thinks: bool, wish: str) -> None:
    fields: dict[str, Any] = {
        "messages": [{"role": "user", "content": QUESTION}],
        "temperature": 0,
        "max_tokens": 64,
        "stop": ["."],
    } | CHAT[wish]
    extra = {"extra_body": THINKS | fields.pop("extra", {})}
    if "tool_choice" in fields or wish == "tool result":
        fields["tools"] = [{"type": "function", "function": FUNCTION}]
    whole = client.chat.completions.create(model=model, **fields, **extra)
    assert {choice.finish_reason for choice in whole.choices} <= {"stop", "tool_calls"}
    with client.chat.completions.stream(model=model, **fields, **extra) as stream:
        final = stream.get_final_completion()
    for one, joined in zip(whole.choices, final.choices, strict=True):
        assert chat_said(joined) == chat_said(one)
    message = whole.choices[0].message
    thought = getattr(message, "reasoning_content", None)
    assert bool(thought) == (thinks and wish not in ("hidden", "tool result"))
    assert wish == "tool result" or (whole.usage.completion_tokens_details.reasoning_tokens > 0) == thinks
    if "tool_choice" in fields:
        jsonschema.validate(json.loads(message.tool_calls[0].function.arguments), PARAMETERS)
        assert whole.choices[0].finish_reason == ("tool_calls" if wish == "forced call" else "stop")
    if wish == "schema":
        jsonschema.validate(json.loads(message.content), PARAMETERS)
    if wish in ("logprobs", "hidden"):
        entries = whole.choices[0].logprobs.content
        assert b"".join(bytes(entry.bytes) for entry in entries).decode() == message.content


def chat_said(choice: Any) -> Any:
    message = choice.message
    calls = [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    thought = getattr(message, "reasoning_content", None), getattr(message, "reasoning", None)
    entries = [
        (e.token, e.logprob, [t.token for t in e.top_logprobs]) for e in (choice.logprobs or _NONE).content or ()
    ]
    return message.content or "", thought, calls, entries, choice.finish_reason


class _NONE:
    content: tuple[Any, ...] = ()


# -- Responses ---------------------------------------------------------------------------------------------------------

FLAT = {"type": "function", "strict": False, **FUNCTION}
RESPONSES: dict[str, dict[str, Any]] = {
    "plain": {"instructions": "Be brief.", "max_output_tokens": 14},
    "forced call": {"tool_choice": "required", "parallel_tool_calls": False, "tools": [FLAT]},
    "schema": {"text": {"format": {"type": "json_schema", "name": "weather", "schema": PARAMETERS, "strict": True}}},
    "logprobs": {"max_output_tokens": 14, "include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "hidden": {"extra": {"include_reasoning": False}, "max_output_tokens": 14},
}


@served(RESPONSES)
def test_responses(client: Any, model: str, thinks: bool, wish: str) -> None:
    fields: dict[str, Any] = {"input": QUESTION, "temperature": 0, "max_output_tokens": 64} | RESPONSES[wish]
    extra = {"extra_body": THINKS | fields.pop("extra", {})}
    whole = client.responses.create(model=model, **fields, **extra)
    events = list(client.responses.create(model=model, stream=True, **fields, **extra))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    final = events[-1].response
    assert events[-1].type == f"response.{whole.status}"
    assert [response_item(item) for item in final.output] == [response_item(item) for item in whole.output]
    assert (final.usage, final.status) == (whole.usage, whole.status)
    check_items(events, final)
    if wish == "schema":
        with client.responses.stream(model=model, **fields, **extra) as stream:
            assert stream.get_final_response().output_text == whole.output_text
    kinds = [item.type for item in whole.output]
    assert ("reasoning" in kinds) == (thinks and wish != "hidden")
    if "tools" in fields:
        call = whole.output[-1]
        jsonschema.validate(json.loads(call.arguments), PARAMETERS)
        follow_up = [{"role": "user", "content": QUESTION}, *(item.to_dict() for item in whole.output)]
        follow_up.append({"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."})
        again = client.responses.create(model=model, input=follow_up, max_output_tokens=2, tools=[FLAT])
        assert again.usage.input_tokens > whole.usage.input_tokens
    if wish == "schema":
        jsonschema.validate(json.loads(whole.output_text), PARAMETERS)
    if wish == "logprobs":
        (part,) = whole.output[-1].content
        assert "".join(entry.token for entry in part.logprobs) == part.text


def response_item(item: Any) -> dict[str, Any]:
    return {name: value for name, value in item.to_dict().items() if name not in ("id", "call_id")}


def check_items(events: list[Any], final: Any) -> None:
    """Deltas add up to what `done` says and to the final response; every `added` has its `done`."""
    joined: dict[int, str] = {}
    added, done = [], []
    for event in events:
        if event.type.endswith(".delta"):
            joined[event.output_index] = joined.get(event.output_index, "") + event.delta
        elif event.type == "response.output_item.added":
            added.append(event.item.id)
        elif event.type == "response.output_item.done":
            done.append(event.item.id)
    assert added == done == [item.id for item in final.output]
    for index, item in enumerate(final.output):
        assert joined[index] == (item.arguments if item.type == "function_call" else item.content[0].text)


# -- Messages ----------------------------------------------------------------------------------------------------------

TOOL = {"name": "get_weather", "description": "Weather of a city.", "input_schema": PARAMETERS}
MESSAGES: dict[str, dict[str, Any]] = {
    "plain": {"system": "Be brief.", "max_tokens": 14},
    "forced call": {
        "tools": [TOOL],
        "tool_choice": {"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
    },
    "schema": {"extra": {"output_config": {"format": {"type": "json_schema", "schema": PARAMETERS}}}},
    "hidden": {"extra": {"include_reasoning": False}, "max_tokens": 14},
}


@served(MESSAGES)
def test_messages(claude: Any, model: str, thinks: bool, wish: str) -> None:
    turn = {"role": "user", "content": QUESTION}
    fields: dict[str, Any] = {"messages": [turn], "max_tokens": 64} | MESSAGES[wish]
    extra = {"extra_body": {"temperature": 0} | THINKS | fields.pop("extra", {})}
    whole = claude.messages.create(model=model, **fields, **extra)
    with claude.messages.stream(model=model, **fields, **extra) as stream:
        final = stream.get_final_message()
    assert [block.to_dict() | {"id": 0} for block in final.content] == [b.to_dict() | {"id": 0} for b in whole.content]
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)
    assert final.usage.input_tokens == whole.usage.input_tokens
    kinds = [block.type for block in whole.content]
    assert ("thinking" in kinds) == (thinks and wish != "hidden")
    counted = {name: fields[name] for name in ("messages", "system", "tools") if name in fields}
    assert claude.messages.count_tokens(model=model, **counted).input_tokens == whole.usage.input_tokens
    if "tools" in fields:
        call = whole.content[-1]
        assert whole.stop_reason == "tool_use"
        jsonschema.validate(call.input, PARAMETERS)
        result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny."}]}
        history = [turn, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
        again = claude.messages.create(model=model, messages=history, max_tokens=2, tools=[TOOL])
        assert again.usage.input_tokens > whole.usage.input_tokens
    if wish == "schema":
        jsonschema.validate(json.loads(whole.content[-1].text), PARAMETERS)


# -- Completions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [PLAIN], indirect=True)
def test_completions(client: Any, model: str) -> None:
    fields: dict[str, Any] = {"prompt": ["The capital of France is", "Once"], "temperature": 0, "max_tokens": 12}
    fields |= {"logprobs": 1, "n": 2}
    whole = client.completions.create(model=model, **fields)
    texts, tokens = [""] * 4, [""] * 4
    for chunk in client.completions.create(model=model, stream=True, **fields):
        (choice,) = chunk.choices
        texts[choice.index] += choice.text
        tokens[choice.index] += "".join(choice.logprobs.tokens if choice.logprobs else ())
    assert texts == [choice.text for choice in whole.choices] == tokens
    assert "Paris" in texts[0]
    assert texts[0] == texts[1] != texts[2]
    assert [choice.finish_reason for choice in whole.choices] == ["length"] * 4


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", [PLAIN], indirect=True)
def test_errors_are_the_exceptions_of_the_sdks(client: Any, claude: Any, model: str) -> None:
    with pytest.raises(openai.BadRequestError, match="keeps no state") as bad:
        client.responses.create(model=model, input="Hi", previous_response_id="resp_1")
    assert bad.value.param == "previous_response_id"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve("resp_1")
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="gpt-9", prompt="Hi")
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.messages.create(model="claude-9", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    assert "not_found_error" in str(missing.value.body)
    picture = {"type": "image", "source": {"type": "url", "url": "http://x/y.png"}}
    with pytest.raises(anthropic.BadRequestError, match="say in text"):
        claude.messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": [picture]}])
    assert claude.models.list().data[0].id == model
