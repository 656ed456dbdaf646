"""The server on an engine that says what it is told to: requests, replies, refusals, failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest
from parrot import CALL, END, SPECIAL, TEMPLATE, VOCABULARY, WEATHER, Client, Parrot

import unbraid
from unbraid.errors import UnbraidError
from unbraid.server import Settings, resolve_format
from unbraid.server.requests import template_messages

LONE_SURROGATE = b'{"messages": [{"role": "user", "content": "\\ud800"}]}'


async def refused(status: int = 400, settings: Settings | None = None, **fields: Any) -> dict[str, Any]:
    engine = Parrot()
    response = await Client(engine, settings).post(**fields)
    assert response.status_code == status, response.text
    assert not engine.asked
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error, dict)
    return error


def said(chunks: Sequence[dict[str, Any]], name: str, index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get(name) or "" for choice in choices)


# Replies


async def test_one_shot_reply() -> None:
    reply = await Client(Parrot("<think>\nHm.\n</think>\n\nHi.<|im_end|>")).chat(model="tiny")
    assert reply["object"] == "chat.completion"
    assert reply["model"] == "tiny"
    message = {"role": "assistant", "content": "Hi.", "refusal": None, "reasoning_content": "Hm.", "reasoning": "Hm."}
    assert reply["choices"] == [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}]
    assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert reply["usage"]["completion_tokens"] == len("\nHm.\n\n\nHi.") + 3


async def test_stream_says_the_same() -> None:
    chunks = await Client(Parrot("<think>\nHm.\n</think>\n\nHi.<|im_end|>")).stream(
        stream_options={"include_usage": True}
    )
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert (said(chunks, "content"), said(chunks, "reasoning"), said(chunks, "reasoning_content")) == (
        "Hi.",
        "Hm.",
        "Hm.",
    )
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1]["choices"] == []
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


async def test_tool_call() -> None:
    reply = await Client(Parrot(f"{CALL}<|im_end|>")).chat(tools=[WEATHER])
    message = reply["choices"][0]["message"]
    assert reply["choices"][0]["finish_reason"] == "tool_calls"
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}
    chunks = await Client(Parrot(f"{CALL}<|im_end|>")).stream(tools=[WEATHER])
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert "".join(call["function"]["arguments"] for call in calls) == '{"city": "Oslo"}'
    assert [call["id"] for call in calls if "id" in call] == [message["tool_calls"][0]["id"]]
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_no_two_calls_have_one_id() -> None:
    """Neither in several choices nor in any turns of a conversation, though they look alike: a client that drops old messages asks the
    same again and again."""
    client = Client(Parrot(f"{CALL}<|im_end|>"))
    reply = await client.chat(tools=[WEATHER], n=3)
    ids = [choice["message"]["tool_calls"][0]["id"] for choice in reply["choices"]]
    assert len(set(ids)) == 3
    again = await client.chat(tools=[WEATHER], n=3)
    assert [choice["message"]["tool_calls"][0]["id"] for choice in again["choices"]] == ids

    user: dict[str, Any] = {"role": "user", "content": "Has it rained yet?"}
    history: list[dict[str, Any]] = []
    given: list[str] = []
    for _ in range(6):
        reply = await client.chat(tools=[WEATHER], messages=[user, *history[-4:]])
        message = reply["choices"][0]["message"]
        given += [call["id"] for call in message["tool_calls"]]
        history += [message, {"role": "tool", "tool_call_id": given[-1], "content": "No."}]
    assert len(set(given)) == 6


async def test_a_cut_call_is_length() -> None:
    reply = await Client(Parrot(f"{CALL}<|im_end|>")).chat(tools=[WEATHER], max_tokens=50)
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].startswith('{"ci')


@pytest.mark.parametrize("fields", [{"tools": [WEATHER], "tool_choice": "none"}, {}])
async def test_without_tools_call_text_is_content(fields: dict[str, Any]) -> None:
    client = Client(Parrot(f"{CALL}<|im_end|>"))
    choice = (await client.chat(**fields))["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"] == CALL
    assert b"weather" not in bytes(id for id in client.engine.asked[0].prompt if id < 256)


async def test_a_template_without_tools_is_told_of_them_in_words() -> None:
    engine = Parrot(f"{CALL}<|im_end|>")
    engine.chat_template = TEMPLATE[TEMPLATE.index("{%- for") :]
    history = [
        {"role": "user", "content": "Oslo?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "Rain."},
    ]
    reply = await Client(engine).chat(tools=[WEATHER], messages=history)
    assert reply["choices"][0]["finish_reason"] == "tool_calls"
    prompt = VOCABULARY.decode(engine.asked[0].prompt)
    assert '"properties": {"city"' in prompt
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "..."}}\n</tool_call>' in prompt
    assert CALL in prompt
    assert "Rain." in prompt


async def test_several_choices_vary_the_seed_and_interleave() -> None:
    client = Client(Parrot("Hello there.<|im_end|>"))
    reply = await client.chat(n=3, seed=7)
    assert [c["index"] for c in reply["choices"]] == [0, 1, 2]
    assert {c["message"]["content"] for c in reply["choices"]} == {"Hello there."}
    assert [asked.seed for asked in client.engine.asked] == [7, 8, 9]
    assert reply["usage"]["completion_tokens"] == 3 * 13
    assert reply["usage"]["prompt_tokens"] == len(client.engine.asked[0].prompt)
    chunks = await client.stream(n=2)
    assert [said(chunks, "content", index) for index in (0, 1)] == ["Hello there."] * 2
    order = [chunk["choices"][0]["index"] for chunk in chunks]
    assert order != sorted(order)


async def test_stop_string_ends_the_answer_and_the_engine() -> None:
    client = Client(Parrot("<think>\nSTOP?\n</think>\n\nGo. STOP it. And on and on.<|im_end|>"))
    choice = (await client.chat(stop="STOP"))["choices"][0]
    assert choice["message"]["content"] == "Go. "
    assert choice["message"]["reasoning"] == "STOP?"
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "STOP")
    assert client.engine.running == 0
    assert client.engine.said < len(client.engine.ids) - 15
    chunks = await client.stream(stop=["STOP", "never"])
    assert said(chunks, "content") == "Go. "


async def test_stop_token_of_the_client_is_no_part_of_the_reply() -> None:
    client = Client(Parrot("One. Two.<|im_end|>"))
    choice = (await client.chat(stop_token_ids=[ord("T")]))["choices"][0]
    assert choice["message"]["content"] == "One. "
    assert END in client.engine.asked[0].stop_ids
    await client.chat(ignore_eos=True, max_tokens=3)
    assert END not in client.engine.asked[1].stop_ids


async def test_logprobs_line_up_with_content() -> None:
    client = Client(Parrot("<think>\nHm.\n</think>\n\nH\U0001f642<|im_end|>"))
    entries = (await client.chat(logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == "H\U0001f642"
    assert len(entries[0]["top_logprobs"]) == 2
    assert client.engine.asked[0].logprobs == 2
    chunks = await client.stream(logprobs=True)
    streamed = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["logprobs"]]
    assert [c["delta"]["content"] for c in streamed] == ["H", "\U0001f642"]
    assert [len(c["logprobs"]["content"]) for c in streamed] == [1, 4]


@pytest.mark.parametrize("wish", [{"include_reasoning": False}, {"reasoning_format": "hidden"}])
async def test_hidden_reasoning_leaves_no_trace(wish: dict[str, Any]) -> None:
    client = Client(Parrot("<think>\nQqq\n</think>\n\nHi.<|im_end|>"))
    for stream in (False, True):
        body = await client.post(stream=stream, logprobs=True, top_logprobs=1, return_token_ids=True, n=2, **wish)
        for secret in ("Qqq", '"Q"', "think", "reasoning_content", '"reasoning"', f"[{ord('Q')}]", f"{ord('q')},"):
            assert secret not in body.text
        replies = [body.json()] if not stream else [json.loads(line[6:]) for line in body.text.split("\n\n")[:-2]]
        ids = [id for reply in replies for choice in reply["choices"] for id in choice.get("token_ids", ())]
        assert sorted(ids) == sorted(b"Hi." * 2)
    reply = await client.chat(**wish)
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


async def test_thinking_switch_reaches_template_and_parser() -> None:
    client = Client(Parrot("Hi.<|im_end|>"))
    for wish in ({"reasoning_effort": "none"}, {"think": False}, {"chat_template_kwargs": {"enable_thinking": False}}):
        assert (await client.chat(**wish))["choices"][0]["message"]["content"] == "Hi."
        assert SPECIAL["</think>"] in client.engine.asked[-1].prompt
    await client.chat(reasoning_effort="low")
    assert SPECIAL["</think>"] not in client.engine.asked[-1].prompt


async def test_sampling_reaches_the_engine() -> None:
    client = Client(Parrot())
    wish = {"temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "presence_penalty": 1, "frequency_penalty": -1}
    await client.chat(**wish, seed=3, logit_bias={"65": -100}, max_completion_tokens=9, max_tokens=5)
    asked = client.engine.asked[0]
    assert {name: getattr(asked, name) for name in wish} == wish
    assert (asked.seed, asked.logit_bias, asked.max_tokens) == (3, {65: -100}, 9)
    await client.chat(max_tokens=10**9)
    assert client.engine.asked[1].max_tokens == 2000 - len(client.engine.asked[1].prompt)


async def test_unknown_fields_are_ignored() -> None:
    await Client(Parrot()).chat(user="me", store=False, metadata={"a": "b"}, whatever=[1], skip_special_tokens=False)


async def test_continue_final_message() -> None:
    client = Client(Parrot("and so on.<|im_end|>"))
    messages = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "One, two "}]
    reply = await client.chat(messages=messages, continue_final_message=True)
    assert reply["choices"][0]["message"]["content"] == "and so on."
    assert VOCABULARY.decode(client.engine.asked[0].prompt).endswith("One, two ")


# What is refused


@pytest.mark.parametrize(
    ("fields", "param", "hint"),
    [
        ({"messages": []}, "messages", "at least one"),
        ({"messages": "Hi"}, "messages", "array"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "needs a text"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "one of system"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role", "use tool"),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "missing"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", "say in text"),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}]},
            "messages[0].tool_calls",
            "assistant",
        ),
        ({"temperature": "hot"}, "temperature", "float"),
        ({"temperature": 3}, "temperature", "2"),
        ({"n": 0}, "n", "1"),
        ({"n": 17}, "n", "at most 16"),
        ({"max_tokens": 0}, "max_tokens", "1"),
        ({"stop": ""}, "stop", "leave it out"),
        ({"stop": ["x"] * 17}, "stop", "at most 16"),
        ({"stop": "x" * 2000}, "stop", "at most 1024"),
        ({"top_logprobs": 2}, "top_logprobs", "logprobs: true"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "20"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream: true"),
        ({"logit_bias": {"hello": 1}}, "logit_bias", "token id"),
        ({"logit_bias": {"999999": 1}}, "logit_bias", "token id"),
        ({"tool_choice": "required"}, "tool_choice", "at least one tool"),
        ({"tool_choice": "always"}, "tool_choice", "none of"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice", "not among"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice",
            "offered: weather",
        ),
        ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice", "expected"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name", "twice"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name", "length"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing"),
        ({"tools": [{"type": "custom", "custom": {"name": "x"}}]}, "tools[0].type", "function"),
        ({"tools": [WEATHER] * 2000}, "tools", "at most 1024"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "expected a JSON schema"),
        ({"response_format": {"type": "yaml"}}, "response_format", "one of"),
        ({"guided_grammar": "root ::= x"}, "guided_grammar", "not supported"),
        ({"repetition_penalty": 1.1}, "repetition_penalty", "leave it out"),
        ({"functions": []}, "functions", "use tools"),
        ({"include_reasoning": "no"}, "include_reasoning", "true, false"),
        ({"continue_final_message": True}, "continue_final_message", "assistant"),
        ({"keep_special_tokens": ["<none>"]}, "keep_special_tokens", "no special token"),
        ({"prompt_logprobs": 1}, "prompt_logprobs", "leave it out"),
    ],
)
async def test_bad_requests_name_field_and_remedy(fields: dict[str, Any], param: str, hint: str) -> None:
    error = await refused(**fields)
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert error["message"].startswith(param)
    assert hint in error["message"]


async def test_neutral_values_of_unsupported_fields_pass() -> None:
    await Client(Parrot()).chat(repetition_penalty=1.0, min_tokens=0, response_format={"type": "text"})


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"\xff", b'{"messages": ' + b"[" * 100_000, b'{"a": 1}', LONE_SURROGATE]
)
async def test_bodies_that_are_no_request(body: bytes) -> None:
    response = await Client(Parrot()).request("POST", "/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


async def test_statuses_other_than_400() -> None:
    client = Client(Parrot(), Settings(max_body_bytes=1000))
    missing = await client.post(model="huge")
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"
    assert "use tiny" in missing.json()["error"]["message"]
    large = await client.post(user="x" * 1000)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "request_too_large")
    wrong = await client.request("GET", "/v1/chat/completions")
    assert wrong.status_code == 405
    assert wrong.headers["allow"] == "POST"
    assert "use POST" in wrong.json()["error"]["message"]
    nowhere = await client.request("GET", "/v2")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "unknown_url")


async def test_a_body_without_length_is_cut_off_too() -> None:
    async def endless() -> AsyncGenerator[bytes, None]:
        while True:
            yield b" " * 100

    client = Client(Parrot(), Settings(max_body_bytes=1000))
    assert (await client.request("POST", "/v1/chat/completions", content=endless())).status_code == 413


async def test_a_prompt_that_fills_the_context() -> None:
    error = await refused(messages=[{"role": "user", "content": "x" * 3000}])
    assert error["code"] == "context_length_exceeded"
    assert "2000 tokens" in error["message"]


# Models and health


async def test_models() -> None:
    client = Client(Parrot(), Settings(model_names=("my/model", "alias")))
    listed = (await client.request("GET", "/v1/models")).json()
    assert [item["id"] for item in listed["data"]] == ["my/model", "alias"]
    assert (await client.request("GET", "/v1/models/my/model")).json()["max_model_len"] == 2000
    assert (await client.request("GET", "/v1/models/tiny")).status_code == 404
    assert (await client.chat(model="alias"))["model"] == "my/model"
    assert (await client.request("GET", "/health")).json() == {"status": "ok"}


# Failures


async def test_engine_failure_before_the_first_token_has_a_status() -> None:
    for stream in (False, True):
        response = await Client(Parrot(fail_at=0)).post(stream=stream)
        assert response.status_code == 500
        assert response.json()["error"] == {
            "message": "the cable was pulled", "type": "server_error", "param": None, "code": "engine_error",
        }  # fmt: skip


@pytest.mark.parametrize("n", [1, 2])
async def test_engine_failure_inside_a_stream_is_no_normal_end(n: int) -> None:
    client = Client(Parrot(fail_at=2))
    text = (await client.post(stream=True, n=n)).text
    *chunks, last = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n")[:-1]]
    assert last["error"]["message"] == "the cable was pulled"
    assert all(choice["finish_reason"] is None for chunk in chunks for choice in chunk["choices"])
    assert "[DONE]" not in text
    assert client.engine.running == 0
    assert (await client.post(n=n)).status_code == 500


async def test_an_engine_that_just_ends_has_failed() -> None:
    client = Client(Parrot("Hi"))
    assert (await client.post()).status_code == 500
    assert "[DONE]" not in (await client.post(stream=True)).text


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("n", [1, 3])
async def test_a_client_that_leaves_takes_its_generation_along(stream: bool, n: int) -> None:
    client = Client(Parrot("Hello", stall_at=3))
    body = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": stream, "n": n}).encode()
    leave = asyncio.Event()
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[Any] = []

    async def receive() -> Any:
        if incoming:
            return incoming.pop()
        await leave.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": [], "query_string": b""}
    serving = asyncio.create_task(client.app(scope, receive, send))
    while client.engine.said < 3 * n:
        await asyncio.sleep(0.001)
    assert client.engine.running == n
    leave.set()
    await asyncio.wait_for(serving, 1)
    assert client.engine.running == 0
    assert not any(message.get("body") and not message.get("more_body") for message in sent)


async def test_shutdown_closes_the_engine() -> None:
    client = Client(Parrot())
    async with client.app.router.lifespan_context(client.app):
        assert not client.engine.closed
    assert client.engine.closed


# Formats and messages

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def test_format_is_found_by_name_hint_or_template() -> None:
    engine = Parrot()
    assert resolve_format(engine).name == "qwen3"
    assert resolve_format(engine, "hermes").name == unbraid.get_format("hermes").name
    engine.names = ("my-finetune",)
    assert resolve_format(engine).name == "qwen3"  # its tokens and its template say so
    engine.vocabulary = unbraid.Vocabulary.from_tokens({}, {"<|im_start|>": 1, "<|im_end|>": 2})
    engine.chat_template = CHATML
    assert resolve_format(engine).name == "chatml"
    engine.chat_template = "{{ messages }}"
    with pytest.raises(UnbraidError, match="--format"):
        resolve_format(engine)


def test_history_as_templates_read_it() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "Hm.",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "2", "extra": True},
        {
            "role": "assistant",
            "tool_calls": [{"function": {"name": "f", "arguments": '{"cut'}}],
            "reasoning_content": "Ho.",
        },
    ]
    system, first, tool, second = template_messages(messages, TEMPLATE)
    assert system == {"role": "system", "content": "Be brief."}
    assert (first["content"], first["reasoning_content"]) == (None, "Hm.")
    assert first["tool_calls"][0]["function"]["arguments"] == '{"a": 1}'
    assert tool == {"role": "tool", "tool_call_id": "c", "content": "2", "extra": True}
    assert second["tool_calls"][0]["function"]["arguments"] == '{"cut'
    assert second["reasoning_content"] == "Ho."
    assert template_messages(messages, "role == 'developer'")[0]["role"] == "developer"


TEXT, SUMMARY = {"type": "reasoning.text", "text": "H", "index": 0}, {"type": "reasoning.summary", "summary": "m."}
SECRET = {"type": "reasoning.encrypted", "data": "zzz"}


@pytest.mark.parametrize(
    ("said", "thought"),
    [
        ({"reasoning_details": [TEXT, SECRET, SUMMARY]}, "Hm."),
        ({"reasoning": "Ho.", "reasoning_details": [TEXT]}, "Ho."),
        ({"reasoning": None, "reasoning_details": [TEXT]}, "H"),
        ({"reasoning_details": [SECRET, 3, {"text": 4}]}, None),
        ({"reasoning_details": None}, None),
    ],
)
def test_thoughts_in_details(said: dict[str, Any], thought: str | None) -> None:
    """As OpenRouter's clients send them back."""
    (message,) = template_messages([{"role": "assistant", "content": "Hi.", **said}], TEMPLATE)
    assert message.get("reasoning_content") == thought
    assert "reasoning_details" not in message
