"""Endpoints that answer nonsense, something else, late, or not at all: a clear word, the documented exit code, never a traceback."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from broken import serving
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send

import unbraid
from unbraid.cli import main
from unbraid.engines.remote import Caller
from unbraid.integrity.cases import built_in
from unbraid.integrity.check import check
from unbraid.integrity.client import Endpoint
from unbraid.integrity.layers import from_object, from_stream

MODELS = {"data": [{"id": "qwen3", "owned_by": "someone"}]}
SOUND = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hm."}, "finish_reason": "stop"}]}


class Odd:
    """Answers everything with what it was given: a status, a body, headers."""

    def __init__(
        self,
        models: Any = MODELS,
        chat: Any = None,
        *,
        status: int = 200,
        late: float = 0.0,
        location: str = "",
        encoding: str = "",
    ) -> None:
        self.answers = {"/v1/models": models, "/v1/chat/completions": chat}
        self.status, self.late = status, late
        told = {"location": location, "content-encoding": encoding}
        self.headers = [(name.encode(), value.encode()) for name, value in told.items() if value]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        answer = self.answers.get(scope["path"])
        failing = self.answers["/v1/chat/completions"] is None or scope["path"] != "/v1/models"
        if failing:
            await asyncio.sleep(self.late)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        headers = self.headers if failing else []
        await send({"type": "http.response.start", "status": self.status if failing else 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


AT_THE_START = {
    "a page": (Odd(b"<html><body>Hello</body></html>"), "answers 200 and says '<html><body>Hello</body></html>'; is this an"),
    "nothing": (Odd(b""), "answers 200 and says nothing; is this an OpenAI-compatible endpoint? Its URL is what stands before /v1"),
    "no models": (Odd({"data": 3}), "names no model"),
    "no key": (Odd(status=401), "refuses us (401); give its key with --key or $OPENAI_API_KEY"),
    "elsewhere": (Odd(b"", status=308, location="http://other/v1/models"), "sends us elsewhere (308, to http://other/v1/models); give"),
    "loading": (Odd({"detail": "loading"}, status=503), "doesn't answer as yet (503: loading); wait until it is up"),
    "late": (Odd(late=0.6), "no answer within 0.2 s; give it more with --timeout"),
    "not what it says": (Odd(b"no such thing", encoding="gzip"), "the connection broke (DecodingError"),
}  # fmt: skip


@pytest.mark.parametrize("name", AT_THE_START)
@pytest.mark.parametrize("command", ["check", "compare"])
def test_who_is_no_endpoint_is_told_so(name: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    app, said = AT_THE_START[name]
    with serving(app) as url:
        words = [url, url] if command == "compare" else [url]
        assert main([command, *words, "--format", "qwen3", "--only", "plain", "--timeout", "0.2"]) == 3
    err = capsys.readouterr().err
    assert said in err
    assert url in err


CHAT = {
    "no key": (Odd(chat=b"no", status=403), 3, "refuses us (403); give its key"),
    "elsewhere": (Odd(chat=b"", status=307, location="/v2"), 3, "sends us elsewhere (307, to /v2)"),
    "too many": (Odd(chat={"error": {"message": "slow down"}}, status=429), 3, "refuses every case, so nothing is known (429: slow down)"),
    "a failure": (Odd(chat=b"oops", status=500), 1, "500: oops"),
    "late": (Odd(chat=SOUND, late=0.6), 1, "no answer within 0.2 s; give it more with --timeout"),
    "a page": (Odd(chat=b"<html>"), 1, "the reply is no JSON"),
    "a reply for a stream": (Odd(chat=SOUND), 1, "the stream has no choices"),
    "no choices": (Odd(chat={"choices": []}), 1, "the reply has no choices"),
    "a choice that is none": (Odd(chat={"choices": [None]}), 1, "choices[0]"),
    "another content": (Odd(chat={"choices": [{"message": {"content": [3]}}]}), 1, "choices[0].message.content"),
    "arguments as an object": (
        Odd(chat={"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}}]}), 1,
        "choices[0].message.tool_calls[0].function.arguments",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAT)
def test_who_answers_nonsense_is_told_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    app, code, said = CHAT[name]
    with serving(app) as url:
        only = [word for case in ("plain", "hidden_reasoning", "logprobs") for word in ("--only", case)]
        assert main(["check", url, "--format", "qwen3", *only, "--timeout", "0.2"]) == code
    out = capsys.readouterr()
    assert said in out.out + out.err


async def test_an_endpoint_that_a_request_kills_is_a_finding_where_it_went() -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if len([path for path in asked if path.endswith("completions")]) > 2:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json=MODELS if request.url.path == "/v1/models" else SOUND)

    fmt = unbraid.get_format("qwen3")
    async with Endpoint("http://zoo", transport=httpx.MockTransport(answer)) as endpoint:
        report = await check(endpoint, fmt, built_in(fmt)[:4])
    gone = [[finding.cause for finding in result.findings][:1] for result in report.results]
    assert gone == [["stream_broken"], ["server_error"], ["server_error"], ["server_error"]]
    assert "can't be reached (refused)" in report.results[1].findings[0].message
    assert asked.count("/v1/chat/completions") == 3


def test_two_endpoints_that_refuse_everything_are_not_called_alike(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Odd(chat={"error": {"message": "slow down"}}, status=429)) as url:
        assert main(["compare", url, url, "--format", "qwen3", "--only", "plain"]) == 3
    assert "429: slow down" in capsys.readouterr().err


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 300) | st.just(1.5) | st.sampled_from(["", "a", "stop", "length"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                "choices index message delta content reasoning role tool_calls function name arguments id finish_reason usage "
                "completion_tokens completion_tokens_details reasoning_tokens logprobs token bytes token_ids prompt_token_ids "
                "__verbose tokens prompt error model object withdrawn".split()
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=25,
)


@given(ANYTHING)
@settings(max_examples=300)
def test_any_json_has_a_reading(value: Any) -> None:
    for choices in (value, {"choices": value}, {"choices": [value]}, {"choices": [{"message": value, "delta": value}]}):
        text = json.dumps(choices)
        for reply in (from_object(text), from_stream(f"data: {text}\n\ndata: [DONE]\n\n")):
            assert reply.text
            for said in reply.choices.values():
                assert all(
                    isinstance(each, str) for each in (said.content or "", said.reasoning or "", said.finish or "")
                )


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--concurrency", "0"], 2, "--concurrency 0: expected 1 or more"),
        (["--max-tokens", "0"], 2, "--max-tokens 0: expected 1 or more"),
        (["--timeout", "-1"], 2, "--timeout -1: expected seconds, more than 0"),
        (["--timeout", "nan"], 2, "--timeout nan: expected seconds, more than 0"),
        ([], 3, "is it running, and are host and port right?"),
    ],
)
@pytest.mark.parametrize("command", ["check", "compare"])
def test_numbers_that_cannot_be(
    command: str, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ["http://127.0.0.1:9"] * (2 if command == "compare" else 1)
    assert main([command, *url, "--format", "qwen3", *words]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [(b"", "holds no case; a line is one, such as"), (b"\n \n", "holds no case"), (b"[]", "holds no case"), (b"\xff\xfe{", "no UTF-8 (byte 0)")],
)  # fmt: skip
def test_a_file_without_cases(text: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cases.jsonl"
    file.write_bytes(text)
    with serving(Odd(chat=SOUND)) as url:
        assert main(["check", url, "--format", "qwen3", "--cases", str(file)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert str(file) in err


async def test_a_connection_that_ends_after_one_answer() -> None:
    """Servers close what they keep whenever they like, without a word: that's no failure of theirs."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = json.dumps(MODELS).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
        )
        await reader.read(1)  # another request on the same connection
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        caller = Caller(url, None, 5)
        async with Endpoint(url) as endpoint:
            for _ in range(3):
                await endpoint.greet()
                assert await asyncio.to_thread(caller.get, "/v1/models") == MODELS
        caller.close()
