"""Every API of the server, on an engine that says what it is told to: what clients read, how failures look, what extensions do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fixtures import FIXTURES
from parrot import CALL, SPECIAL, TEMPLATE, VOCABULARY, WEATHER, Client, Parrot
from serving import serving
from tokens import tokens

import unbraid
from unbraid.anthropic import signature
from unbraid.engines.base import TokenLogprob
from unbraid.engines.scripted import ScriptedEngine
from unbraid.grammar.build import Structured
from unbraid.message import TextPart
from unbraid.protocol import Choice, Options
from unbraid.server import Settings, create_app
from unbraid.server.constraints import form_of
from unbraid.server.gateway import delimiters
from unbraid.server.requests import ChatRequest, convert

TURN = [{"role": "user", "content": "Hello"}]
THOUGHT = "<think>\nHm.\n</think>\n\n"
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": TURN},
    "/v1/completions": {"prompt": "Hello", "max_tokens": 500},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {"messages": TURN, "max_tokens": 500},
}


async def posted(client: Client, path: str, **fields: Any) -> Any:
    response = await client.request("POST", path, json=fields)
    assert response.status_code == 200, response.text
    return response.json()


async def events(client: Client, path: str, **fields: Any) -> list[dict[str, Any]]:
    response = await client.request("POST", path, json=fields | {"stream": True})
    assert response.status_code == 200, response.text
    lines = [line for line in response.text.split("\n") if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


# -- the clients' own accumulators -------------------------------------------------------------------------------------

TWICE = f"{THOUGHT}First.\n{CALL}\n<think>\nSo.\n</think>\n\n{CALL.replace('Oslo', 'Bern')}<|im_end|>"
CITIES = ['{"city": "Oslo"}', '{"city": "Bern"}']


@contextmanager
def openai_client(raw: str) -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with serving(Client(Parrot(raw)).app) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="x") as client:
        yield client


def test_chat_as_the_sdk_adds_it_up() -> None:
    fields: dict[str, Any] = {"model": "tiny", "messages": TURN, "tools": [WEATHER], "n": 2}
    with openai_client(TWICE) as client:
        whole = client.chat.completions.create(**fields)
        with client.chat.completions.stream(**fields) as stream:
            final = stream.get_final_completion()
    assert len(final.choices) == 2
    for one, joined in zip(whole.choices, final.choices, strict=True):
        assert (one.message.content, joined.message.content) == ("First.", "First.")
        assert one.message.reasoning_content == joined.message.reasoning_content == "Hm.So."
        calls = [(call.id, call.function.name, call.function.arguments) for call in one.message.tool_calls]
        assert calls == [(c.id, c.function.name, c.function.arguments) for c in joined.message.tool_calls]
        assert [arguments for _, _, arguments in calls] == CITIES
        assert one.finish_reason == joined.finish_reason == "tool_calls"


def test_responses_as_the_sdk_adds_it_up() -> None:
    tool = {"type": "function", "strict": False, **WEATHER["function"]}
    with openai_client(TWICE) as client:
        whole = client.responses.create(model="tiny", input="Hello", tools=[tool])
        with client.responses.stream(model="tiny", input="Hello", tools=[tool]) as stream:
            final = stream.get_final_response()
    kinds = ["reasoning", "message", "function_call", "reasoning", "function_call"]
    assert [item.type for item in whole.output] == [item.type for item in final.output] == kinds
    calls = [[(i.call_id, i.arguments) for i in reply.output if i.type == "function_call"] for reply in (whole, final)]
    assert calls[0] == calls[1]
    assert [arguments for _, arguments in calls[0]] == CITIES
    assert whole.output_text == final.output_text == "First."


def test_messages_as_the_sdk_adds_them_up() -> None:
    anthropic = pytest.importorskip("anthropic")
    tool = {"name": "weather", "input_schema": WEATHER["function"]["parameters"]}
    fields: dict[str, Any] = {"model": "tiny", "messages": TURN, "max_tokens": 500, "tools": [tool]}
    with serving(Client(Parrot(TWICE)).app) as url, anthropic.Anthropic(base_url=url, api_key="x") as client:
        whole = client.messages.create(**fields)
        with client.messages.stream(**fields) as stream:
            final = stream.get_final_message()
        cut = client.messages.create(**fields | {"max_tokens": 66})
        with client.messages.stream(**fields | {"max_tokens": 66}) as stream:
            cut_final = stream.get_final_message()
    kinds = ["thinking", "text", "tool_use", "thinking", "tool_use"]
    assert [block.type for block in whole.content] == kinds
    assert [block.to_dict() for block in whole.content] == [block.to_dict() for block in final.content]
    assert whole.content[0].signature == signature("Hm.")
    assert [block.input for block in whole.content if block.type == "tool_use"] == [{"city": "Oslo"}, {"city": "Bern"}]
    assert (whole.stop_reason, final.stop_reason) == ("tool_use", "tool_use")
    assert [block.to_dict() for block in cut.content] == [block.to_dict() for block in cut_final.content]
    assert cut.stop_reason == cut_final.stop_reason == "max_tokens"


async def test_every_reply_and_event_is_of_the_sdks_types() -> None:
    """Their clients don't check what they read; typed ones in other languages, made from the same descriptions, do."""
    openai, anthropic = pytest.importorskip("openai"), pytest.importorskip("anthropic")
    from pydantic import TypeAdapter

    of = {
        "/v1/chat/completions": (openai.types.chat.ChatCompletion, openai.types.chat.ChatCompletionChunk),
        "/v1/completions": (openai.types.Completion, Any),  # its chunks have none of their own
        "/v1/responses": (openai.types.responses.Response, openai.types.responses.ResponseStreamEvent),
        "/v1/messages": (anthropic.types.Message, anthropic.types.RawMessageStreamEvent),
    }
    include = {"include": ["message.output_text.logprobs"]}
    asked: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"tools": [WEATHER], "logprobs": True, "stream_options": {"include_usage": True}},
        "/v1/completions": {"logprobs": 1},
        "/v1/responses": {"tools": [{"type": "function", **WEATHER["function"]}], **include},
        "/v1/messages": {"tools": [{"name": "weather", "input_schema": WEATHER["function"]["parameters"]}]},
    }
    for raw in (TWICE, f"{THOUGHT}Hi.<|im_end|>", f"{CALL[:20]}<|im_end|>", "<|im_end|>"):
        client = Client(Parrot(raw))
        for path, (reply, event) in of.items():
            fields = PATHS[path] | asked[path]
            whole = await posted(client, path, **{name: fields[name] for name in fields if name != "stream_options"})
            TypeAdapter(reply).validate_python(whole)
            for each in await events(client, path, **fields):
                TypeAdapter(event).validate_python(each)


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS)
async def test_a_failure_inside_a_stream_is_no_normal_end(path: str) -> None:
    client = Client(Parrot("Hi there, all of you", fail_at=4))
    text = (await client.request("POST", path, json=PATHS[path] | {"stream": True})).text
    last = json.loads(text.strip().rsplit("data: ", 1)[1])
    assert "the cable was pulled" in json.dumps(last)
    assert "error" in (last.get("type", ""), *last) or last["type"] == "response.failed"
    for normal in ("[DONE]", "message_stop", "response.completed", '"finish_reason":"'):
        assert normal not in text


@pytest.mark.parametrize("path", PATHS)
async def test_a_failure_before_the_first_token_has_a_status_and_the_shape_of_its_api(path: str) -> None:
    response = await Client(Parrot(fail_at=0)).request("POST", path, json=PATHS[path] | {"stream": True})
    assert response.status_code == 500
    body = response.json()
    assert body["error"]["message"] == "the cable was pulled"
    assert body.get("type") == ("error" if path == "/v1/messages" else None)
    assert body["error"]["type"] == ("api_error" if path == "/v1/messages" else "server_error")


@pytest.mark.parametrize(
    ("path", "fields", "param", "hint"),
    [
        ("/v1/responses", {"input": "x", "max_output_tokens": 0}, "max_output_tokens", "1"),
        ("/v1/responses", {"input": "x", "n": 2}, "n", "/v1/chat/completions"),
        ("/v1/responses", {"input": "x", "tools": [{"type": "function", "name": ""}]}, "tools[0].name", "length"),
        ("/v1/responses", {"input": "x", "tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "not among"),
        ("/v1/completions", {}, "prompt", "missing"),
        ("/v1/completions", {"prompt": ""}, "prompt", "empty"),
        ("/v1/completions", {"prompt": []}, "prompt", "at least one"),
        ("/v1/completions", {"prompt": [1, "x"]}, "prompt[0]", "can't be mixed"),
        ("/v1/completions", {"prompt": [99999]}, "prompt[0]", "no token id"),
        ("/v1/completions", {"prompt": "x", "suffix": "y"}, "suffix", "middle"),
        ("/v1/completions", {"prompt": "x", "best_of": 3}, "best_of", "leave it out"),
        ("/v1/completions", {"prompt": "x", "echo": True, "logprobs": 1}, "echo", "logprobs"),
        ("/v1/completions", {"prompt": ["x"] * 100, "n": 2}, "prompt", "at most 128"),
        ("/v1/completions", {"prompt": "x", "guided_json": {}}, "guided_json", "/v1/chat/completions"),
        ("/v1/completions", {"prompt": "x" * 3000}, "prompt", "shorten it"),
        ("/tokenize", {}, "prompt", "missing"),
        ("/detokenize", {"tokens": [99999]}, "tokens[0]", "no token id"),
        ("/apply-template", {"messages": [{"role": "robot", "content": ""}]}, "messages[0].role", "one of"),
    ],
)
async def test_bad_requests_name_field_and_remedy(path: str, fields: dict[str, Any], param: str, hint: str) -> None:
    response = await Client(Parrot()).request("POST", path, json=fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["param"] == param
    assert error["message"].startswith(param)
    assert hint in error["message"]


NO_SCHEMA = {"type": "objekt"}
STRICT = {"type": "function", "function": {"name": "f", "strict": True, "parameters": NO_SCHEMA}}


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("/v1/chat/completions", {"guided_json": NO_SCHEMA}, "guided_json"),
        ("/v1/chat/completions", {"structured_outputs": {"regex": "("}}, "structured_outputs.regex"),
        ("/v1/chat/completions", {"tools": [STRICT], "guided_json": {"type": "object"}}, "tools"),
        ("/v1/responses", {"text": {"format": {"type": "json_schema", "schema": NO_SCHEMA}}}, "text.format.schema"),
    ],
)
async def test_what_cant_be_enforced_is_named_by_the_clients_own_field(path: str, fields: Any, param: str) -> None:
    response = await Client(Parrot()).request("POST", path, json=PATHS[path] | fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["message"].split(": ")[:2]) == (param, [param, "can't be enforced"])


@pytest.mark.parametrize(
    ("allowed", "place", "hint"),
    [
        (None, "", "expected"),
        ({"mode": "auto", "tools": None}, "", "expected"),
        ({"mode": "many", "tools": []}, ".mode", "neither auto nor required"),
        ({"mode": "required", "tools": []}, ".tools", "name at least one"),
        ({"mode": "auto", "tools": [7]}, ".tools[0]", "offered: weather"),
        ({"mode": "auto", "tools": [WEATHER, {"type": "function", "function": {"name": []}}]}, ".tools[1]", "offered"),
    ],
)
async def test_allowed_tools_that_say_nothing_are_the_requests_fault(allowed: Any, place: str, hint: str) -> None:
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    response = await Client(Parrot()).post(tools=[WEATHER], tool_choice=choice)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == f"tool_choice.allowed_tools{place}"
    assert error["message"].startswith(f"{error['param']}: ")
    assert hint in error["message"]


async def test_allowed_tools_of_responses_have_their_own_place() -> None:
    tool = {"type": "function", "name": "weather", "parameters": {}}
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}
    fields = {"input": "Hello", "tools": [tool], "tool_choice": choice}
    response = await Client(Parrot()).request("POST", "/v1/responses", json=fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "tool_choice.tools[0]")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"messages": TURN}, "max_tokens: missing"),
        ({"messages": TURN, "max_tokens": 5, "stop_sequences": [""]}, "stop_sequences: an empty string"),
        ({"messages": TURN, "max_tokens": 5, "temperature": 3}, "temperature: Expected"),
        ({"messages": TURN, "max_tokens": 5, "tools": [{"name": "f"}] * 2}, "tools[1].name: 'f' is offered twice"),
        (
            {"messages": TURN, "max_tokens": 5, "tool_choice": {"type": "any"}},
            "tool_choice: required, but tools is empty",
        ),
        (
            {
                "messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f"}]}],
                "max_tokens": 5,
            },
            "messages: the last one has tool calls",
        ),
    ],
)
async def test_messages_errors_name_the_clients_own_fields(fields: dict[str, Any], said: str) -> None:
    response = await Client(Parrot()).request("POST", "/v1/messages", json=fields)
    assert response.status_code == 400
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["message"].startswith(said)


@pytest.mark.parametrize(
    ("path", "field", "value", "remedy"),
    [
        ("/v1/responses", "return_token_ids", True, "use /v1/chat/completions"),
        ("/v1/messages", "return_token_ids", True, "use /v1/chat/completions"),
        ("/v1/messages", "logprobs", True, "use /v1/chat/completions"),
        ("/v1/messages", "top_logprobs", 2, "use /v1/chat/completions"),
        ("/v1/messages", "stop", ["x"], "stop_sequences"),
        ("/v1/chat/completions", "best_of", 2, "choose among n replies"),
        ("/v1/responses", "best_of", 2, "choose among n replies"),
        ("/v1/messages", "best_of", 2, "choose among n replies"),
    ],
)
async def test_what_a_reply_cant_hold_is_refused_not_dropped(path: str, field: str, value: Any, remedy: str) -> None:
    client = Client(Parrot())
    response = await client.request("POST", path, json=PATHS[path] | {field: value})
    assert response.status_code == 400
    said = response.json()["error"]["message"]
    assert said.startswith(f"{field}: ")
    assert remedy in said
    await posted(client, path, **PATHS[path] | {field: None})


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/chat/completions", "there is no /chat/completions here, but /v1/chat/completions: the base URL has to end"),
        ("/v1/v1/messages", "there is no /v1/v1/messages here, but /v1/messages: the base URL must not end in /v1"),
        ("/v1/embeddings", "there is no /v1/embeddings here; /openapi.json lists what there is"),
    ],
)
async def test_a_base_url_that_is_a_little_wrong(path: str, said: str) -> None:
    response = await Client(Parrot()).request("POST", path, json={})
    assert response.status_code == 404
    assert response.json()["error"]["message"].startswith(said)


async def test_what_is_not_there() -> None:
    client = Client(Parrot(), Settings(max_body_bytes=1000))
    for method, path, status, kind in [
        ("GET", "/v1/messages", 405, "invalid_request_error"),
        ("GET", "/v1/messages/batches", 404, "not_found_error"),
        ("POST", "/v1/messages", 413, "request_too_large"),
    ]:
        response = await client.request(method, path, content=b"x" * 2000 if status == 413 else b"")
        assert (response.status_code, response.json()["error"]["type"]) == (status, kind)
    for method in ("GET", "DELETE"):
        response = await client.request(method, "/v1/responses/resp_1")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "response_not_found")


# -- Messages and Responses --------------------------------------------------------------------------------------------


async def test_messages_stop_and_continue() -> None:
    client = Client(Parrot("Go. STOP it.<|im_end|>"))
    reply = await posted(client, "/v1/messages", messages=TURN, max_tokens=50, stop_sequences=["STOP"])
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("stop_sequence", "STOP")
    assert reply["content"] == [{"type": "text", "text": "Go. "}]
    await posted(client, "/v1/messages", messages=[*TURN, {"role": "assistant", "content": "One, "}], max_tokens=50)
    assert VOCABULARY.decode(client.engine.asked[-1].prompt).endswith("<|im_start|>assistant\nOne, ")


async def test_a_named_call_is_a_tool_use_in_messages_and_a_stop_in_chat() -> None:
    client = Client(Parrot(f"{CALL}<|im_end|>"))
    pytest.importorskip("llguidance")
    tool = {"name": "weather", "input_schema": WEATHER["function"]["parameters"]}
    choice = {"type": "tool", "name": "weather"}
    reply = await posted(client, "/v1/messages", messages=TURN, max_tokens=500, tools=[tool], tool_choice=choice)
    assert reply["stop_reason"] == "tool_use"
    assert reply["content"][0]["input"] == {"city": "Oslo"}
    named = {"type": "function", "function": {"name": "weather"}}
    chat = (await client.chat(tools=[WEATHER], tool_choice=named))["choices"][0]
    assert (chat["finish_reason"], len(chat["message"]["tool_calls"])) == ("stop", 1)


async def test_thinking_can_be_switched_off_in_every_api() -> None:
    client = Client(Parrot("Hi.<|im_end|>"))
    await posted(client, "/v1/messages", messages=TURN, max_tokens=50, thinking={"type": "disabled"})
    await posted(client, "/v1/responses", input="Hi", reasoning={"effort": "none"})
    assert all(SPECIAL["</think>"] in asked.prompt for asked in client.engine.asked)


async def test_tokens_are_counted_without_generating() -> None:
    client = Client(Parrot())
    chat = await client.chat()
    counted = await posted(client, "/v1/messages/count_tokens", messages=TURN)
    assert counted == {"input_tokens": chat["usage"]["prompt_tokens"]}
    counted = await posted(client, "/v1/responses/input_tokens", input="Hello")
    assert counted["input_tokens"] == chat["usage"]["prompt_tokens"]
    assert len(client.engine.asked) == 1


async def test_an_engine_without_ids_counts_nothing() -> None:
    engine = Parrot()
    engine.abilities = replace(engine.abilities, token_ids=False)
    client = Client(engine)
    for path, fields in [
        ("/v1/messages/count_tokens", {"messages": TURN}),
        ("/v1/responses/input_tokens", {"input": "Hello"}),
        ("/tokenize", {"prompt": "Hello"}),
        ("/detokenize", {"tokens": [1]}),
    ]:
        response = await client.request("POST", path, json=fields)
        assert response.status_code == 400
        assert "reports no token ids" in response.json()["error"]["message"]
    assert (await posted(client, "/apply-template", messages=TURN))["prompt"].endswith("assistant\n")


async def test_responses_are_numbered_and_cut() -> None:
    client = Client(Parrot(f"{THOUGHT}Hello there.<|im_end|>"))
    said = await events(client, "/v1/responses", input="Hi", max_output_tokens=12)
    assert [event["sequence_number"] for event in said] == list(range(len(said)))
    last = said[-1]["response"]
    assert (said[-1]["type"], last["incomplete_details"]) == ("response.incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in last["output"]] == ["completed", "incomplete"]
    assert last["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}


# -- raw text ----------------------------------------------------------------------------------------------------------


async def test_completions_take_nothing_apart() -> None:
    client = Client(Parrot(f"{THOUGHT}Hi.{CALL}<|im_end|>"))
    (choice,) = (await posted(client, "/v1/completions", prompt="Go", max_tokens=500))["choices"]
    assert choice["text"] == "\nHm.\n\n\nHi.\n" + CALL[len("<tool_call>\n") : -len("</tool_call>")]
    (raw,) = (await posted(client, "/v1/completions", prompt="Go", max_tokens=500, skip_special_tokens=False))[
        "choices"
    ]
    assert raw["text"] == f"{THOUGHT}Hi.{CALL}"
    kept = await posted(client, "/v1/completions", prompt="Go", max_tokens=500, keep_special_tokens=["</think>"])
    assert kept["choices"][0]["text"].startswith("\nHm.\n</think>\n\nHi.")
    hidden = await posted(client, "/v1/completions", prompt="Go", max_tokens=500, include_reasoning=False)
    assert hidden["choices"][0]["text"] == f"Hi.{CALL}"


async def test_completions_of_several_prompts() -> None:
    client = Client(Parrot("Hi.<|im_end|>"))
    reply = await posted(client, "/v1/completions", prompt=["One", [84, 119, 111]], n=2, echo=True, seed=1)
    assert [choice["text"] for choice in reply["choices"]] == ["OneHi.", "OneHi.", "TwoHi.", "TwoHi."]
    assert reply["usage"]["prompt_tokens"] == 6
    assert [asked.seed for asked in client.engine.asked] == [1, 2, 1, 2]
    assert {asked.max_tokens for asked in client.engine.asked} == {16}


async def test_ids_beside_the_text() -> None:
    client = Client(Parrot("Hi.<|im_end|>"))
    reply = await posted(client, "/v1/completions", prompt="Go", return_token_ids=True)
    assert reply["choices"][0]["token_ids"] == [*b"Hi.", SPECIAL["<|im_end|>"]]
    assert reply["choices"][0]["prompt_token_ids"] == [*b"Go"]
    chat = await client.chat(return_token_ids=True)
    assert chat["prompt_token_ids"] == client.engine.asked[-1].prompt


class Rated(Parrot):
    """Each token's log-probability tells which it is."""

    def _logprob(self, id: int, top: int) -> TokenLogprob:
        return replace(super()._logprob(id, top), logprob=-id / 1000)


@pytest.mark.parametrize("more", [{}, {"include_reasoning": False}, {"separate_reasoning": False}, {"stop": "rst"}])
@pytest.mark.parametrize(("path", "logprobs"), [("/v1/chat/completions", True), ("/v1/completions", 0)])
async def test_every_id_has_its_logprob(path: str, logprobs: Any, more: dict[str, Any]) -> None:
    """Whoever trains on a reply needs those of markup, calls and the end of turn as well, in the order of the ids."""
    client = Client(Rated(TWICE))
    fields = PATHS[path] | {"return_token_ids": True, "logprobs": logprobs, **more}
    (whole,) = (await posted(client, path, **fields))["choices"]
    assert len(whole["token_ids"]) > 5
    assert whole["token_logprobs"] == [-id / 1000 for id in whole["token_ids"]]
    if not more:
        assert whole["token_ids"] == client.engine.ids
    said = [chunk["choices"][0] for chunk in await events(client, path, **fields)]
    assert [id for choice in said for id in choice.get("token_ids", ())] == whole["token_ids"]
    assert [value for choice in said for value in choice.get("token_logprobs", ())] == whole["token_logprobs"]
    (unrated,) = (await posted(client, path, **PATHS[path] | {"return_token_ids": True}))["choices"]
    assert "token_logprobs" not in unrated


async def test_tokens_of_texts_and_conversations() -> None:
    client = Client(Parrot())
    reply = await posted(client, "/tokenize", prompt="Hi<|im_end|>", return_token_strs=True)
    assert reply["tokens"] == [*b"Hi", SPECIAL["<|im_end|>"]]
    assert (reply["count"], reply["max_model_len"], reply["token_strs"][:2]) == (3, 2000, ["H", "i"])
    assert (await posted(client, "/tokenize", content="<|im_end|>", parse_special=False))["count"] == 10
    text = (await posted(client, "/apply-template", messages=TURN))["prompt"]
    assert text == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    ids = (await posted(client, "/tokenize", messages=TURN))["tokens"]
    back = await posted(client, "/detokenize", tokens=ids)
    assert back == {"prompt": text, "text": text, "content": text}


async def test_ready_and_described() -> None:
    client = Client(Parrot())
    assert (await client.request("GET", "/ready")).json() == {"status": "ready", "model": "tiny", "format": "qwen3"}
    assert (await client.request("GET", "/openapi.json")).json()["openapi"] == "3.1.0"


# -- extensions of Chat Completions ------------------------------------------------------------------------------------


async def test_a_thought_in_one_piece_and_usage_along_the_way() -> None:
    client = Client(Parrot(f"{THOUGHT}Hi.<|im_end|>"))
    chunks = await client.stream(
        stream_reasoning=False, stream_options={"include_usage": True, "continuous_usage_stats": True}
    )
    thoughts = [
        chunk["choices"][0]["delta"]["reasoning"]
        for chunk in chunks[:-1]
        if "reasoning" in chunk["choices"][0]["delta"]
    ]
    assert thoughts == ["Hm."]
    spent = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert spent == sorted(spent)
    assert spent[-1] == spent[-2] == len("\nHm.\n\n\nHi.") + 3


async def test_a_call_in_one_piece() -> None:
    chunks = await Client(Parrot(f"{CALL}<|im_end|>")).stream(tools=[WEATHER], tool_stream=False)
    pieces = [c for chunk in chunks for c in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [piece["function"]["arguments"] for piece in pieces if piece["function"]["arguments"]] == [
        '{"city": "Oslo"}'
    ]
    cut = await Client(Parrot(f"{CALL}<|im_end|>")).chat(tools=[WEATHER], tool_stream=False, max_tokens=40)
    assert "tool_calls" not in cut["choices"][0]["message"]


ANY: dict[str, Any] = {"type": "object"}


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, Structured(json_schema=ANY)),
        (
            {"response_format": {"type": "json_object", "schema": {"type": "array"}}},
            Structured(json_schema={"type": "array"}),
        ),
        ({"structured_outputs": {"json": ANY}}, Structured(json_schema=ANY)),
        ({"structured_outputs": {"json": None, "json_object": True}}, Structured(json_schema=ANY)),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Structured(choice=("a", "b"))),
        ({"guided_json": '{"type": "object"}'}, Structured(json_schema=ANY)),
        ({"guided_regex": "a+"}, Structured(regex="a+")),
        ({"regex": "a+"}, Structured(regex="a+")),
        ({"json_schema": '{"type": "object"}'}, Structured(json_schema=ANY)),
        ({"json_schema": ANY}, Structured(json_schema=ANY)),
        ({"format": "json"}, Structured(json_schema=ANY)),
        ({"format": ANY}, Structured(json_schema=ANY)),
    ],
)
def test_structured_output_under_every_name(fields: dict[str, Any], wanted: Structured | None) -> None:
    request = convert({"messages": TURN} | fields, ChatRequest)
    assert form_of(request, fields).structured == wanted


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"regex": 3}, "regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"json_schema": "{"}, "json_schema"),
        ({"structured_outputs": {"grammar": "root ::= x"}}, "structured_outputs.grammar"),
        ({"ebnf": "root ::= x"}, "ebnf"),
        ({"grammar": "root ::= x"}, "grammar"),
    ],
)
async def test_structured_output_that_cannot_be(fields: dict[str, Any], param: str) -> None:
    response = await Client(Parrot()).post(**fields)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert error["message"].startswith(param)


async def test_one_call_at_most_without_a_grammar() -> None:
    engine = Parrot(TWICE)
    engine.abilities = replace(engine.abilities, constraints=())
    choice = (await Client(engine).chat(tools=[WEATHER], parallel_tool_calls=False))["choices"][0]
    assert (len(choice["message"]["tool_calls"]), choice["finish_reason"]) == (1, "tool_calls")
    assert engine.running == 0
    assert engine.said < len(engine.ids) / 2 + 20


async def test_a_withdrawn_call_is_only_in_the_stream_and_marked_there() -> None:
    broken = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"]}\n</tool_call>'
    client = Client(Parrot(f"{broken}<|im_end|>"))
    choice = (await client.chat(tools=[WEATHER]))["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": broken, "refusal": None}
    assert choice["finish_reason"] == "stop"
    chunks = await client.stream(tools=[WEATHER])
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [call.get("withdrawn", False) for call in calls] == [False] * (len(calls) - 1) + [True]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == broken
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


OPENED = TEMPLATE.replace("<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n", 1)


@pytest.mark.parametrize("wish", [{"separate_reasoning": False}, {"reasoning_format": "none"}])
async def test_inline_reasoning_has_its_opener_even_if_the_template_wrote_it(wish: dict[str, Any]) -> None:
    engine = Parrot("Hm.\n</think>\n\nHi.<|im_end|>")
    engine.chat_template = OPENED
    client = Client(engine)
    assert (await client.chat(**wish))["choices"][0]["message"]["content"] == "<think>\nHm.\n</think>\n\nHi."
    chunks = await client.stream(**wish)
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "<think>\nHm.\n</think>\n\nHi."
    reply = await posted(client, "/v1/messages", messages=TURN, max_tokens=50, **wish)
    assert reply["content"] == [{"type": "text", "text": "<think>\nHm.\n</think>\n\nHi."}]


async def test_what_is_continued_is_echoed_if_asked_for() -> None:
    client = Client(Parrot("and so on.<|im_end|>"))
    messages = [*TURN, {"role": "assistant", "content": "One, two "}]
    for echo, said in ((True, "One, two and so on."), (False, "and so on.")):
        reply = await client.chat(messages=messages, continue_final_message=True, echo=echo)
        assert reply["choices"][0]["message"]["content"] == said
    assert (await client.chat(echo=True))["choices"][0]["message"]["content"] == "and so on."


async def test_special_tokens_stay_visible_where_they_are_wanted() -> None:
    client, end = Client(Parrot("Hi.<|im_end|>")), "<|im_end|>"
    wishes: list[tuple[dict[str, Any], str]] = [({}, "Hi."), ({"keep_special_tokens": [end]}, f"Hi.{end}")]
    for wish, said in [*wishes, ({"skip_special_tokens": False}, "Hi.")]:
        assert (await client.chat(**wish))["choices"][0]["message"]["content"] == said
    policy = unbraid.Policy(keep_special_tokens=frozenset({end}))
    kept = await Client(Parrot("Hi.<|im_end|>"), Settings(policy=policy)).chat()
    assert kept["choices"][0]["message"]["content"] == f"Hi.{end}"


async def test_the_stop_string_is_shown_if_asked_for() -> None:
    client = Client(Parrot("Go. STOP it.<|im_end|>"))
    for wish in ({"include_stop_str_in_output": True}, {"no_stop_trim": True}):
        assert (await client.chat(stop="STOP", **wish))["choices"][0]["message"]["content"] == "Go. STOP"


async def test_all_choices_open_in_their_order() -> None:
    """The accumulator of OpenAI's SDK puts choices into a list as they come."""
    chunks = await Client(Parrot("Hello.<|im_end|>")).stream(n=3)
    assert [chunk["choices"][0]["index"] for chunk in chunks[:3]] == [0, 1, 2]
    assert all(chunk["choices"][0]["delta"] == {"role": "assistant", "content": ""} for chunk in chunks[:3])


@pytest.mark.parametrize("more", [{}, {"stop": ["never"]}, {"include_reasoning": False}, {"tool_stream": False}])
async def test_the_text_of_a_withdrawn_call_has_its_logprobs(more: dict[str, Any]) -> None:
    broken = '<tool_call>\n{"name": "weather", "argu!'
    client = Client(Parrot(f"{THOUGHT}{CALL}\n{broken}<|im_end|>"))
    fields: dict[str, Any] = {"tools": [WEATHER], "logprobs": True} | more
    choice = (await client.chat(**fields))["choices"][0]
    assert broken in choice["message"]["content"]
    entries = choice["logprobs"]["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == choice["message"]["content"]
    chunks = [chunk["choices"][0] for chunk in await client.stream(**fields)]
    assert [entry for chunk in chunks for entry in (chunk.get("logprobs") or {}).get("content", ())] == entries


async def test_a_stop_string_in_the_middle_of_a_step() -> None:
    """Its ids are those of the whole step, however the machine groups them: at first one by one, later from memory."""
    said = VOCABULARY.encode("So: there. And then.<|im_end|>")
    engine = ScriptedEngine(VOCABULARY, [[said[:2], said[2:]]], chat_template=TEMPLATE)
    transport = httpx.ASGITransport(create_app(engine, "qwen3"))
    wish = {"messages": [{"role": "user", "content": "x"}], "stop": ["er"], "return_token_ids": True}
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        for _ in range(3):
            reply = (await client.post("/v1/chat/completions", json=wish)).json()
            assert reply["choices"][0]["message"]["content"] == "So: th"
            assert reply["choices"][0]["token_ids"] == said
            assert reply["usage"]["completion_tokens"] == len(said)


@pytest.mark.parametrize(
    "format", ["qwen3", "deepseek_v4", "kimi_k3", "gemma4", "harmony", "cohere_command4", "nemotron_v3"]
)
async def test_a_thought_inline_reads_the_same_in_any_steps(format: str) -> None:
    """Speculative decoding brings a thought's closer and a call's opener in one step."""
    fmt, tok = unbraid.get_format(format), tokens(format)
    openers, closers = delimiters(fmt)
    options = Options(reasoning="inline", thought_openers=openers, thought_closers=closers)
    for case in FIXTURES[format]:
        if not (case.reasoning and case.calls):
            continue
        ids, said = tok.encode(case.raw), set()
        for step in (1, 2, 5, len(ids)):
            parser = unbraid.Parser(tok.bound, prompt=tok.encode(case.prompt or ""), **case.options)
            choice = Choice(0, options)
            deltas = choice.open()
            for at in range(0, len(ids), step):
                deltas += choice.feed(parser.feed(ids[at : at + step]))
            deltas += choice.feed(parser.finish(case.finish)) + choice.finish(case.finish)
            said.add("".join(delta.text for delta in deltas if delta.kind == "content"))
        assert len(said) == 1, case
        message = unbraid.parse(tok.bound, ids, prompt=tok.encode(case.prompt or ""), **case.options)
        thoughts = [part.text for part in message.parts if isinstance(part, TextPart) and part.strand == "reasoning"]
        assert all(thought in text for text in said for thought in thoughts), case
