"""`audit`: captures of real streams, as people have them, and what can be said of them afterwards."""

from __future__ import annotations

import base64
import gzip
import io
import json
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from broken import FAULTS, FORMAT, Fault, deployment, zoo_tokens

import unbraid
from unbraid.cli import main
from unbraid.errors import UnbraidError
from unbraid.integrity.audit import audit, follows
from unbraid.integrity.captures import Capture, read_captures
from unbraid.integrity.cases import built_in
from unbraid.integrity.client import Endpoint
from unbraid.integrity.findings import Finding

CAPTURES = Path(__file__).parent / "data" / "captures"
CASES = {case.name: case for case in built_in(FORMAT)}
Json = dict[str, Any]


def captures(name: str) -> list[Capture]:
    return read_captures((CAPTURES / name).read_text("utf-8"), name)


def about(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.field, finding.cause) for finding in findings]


def stream(*deltas: Json, finish: str = "stop", done: str = "data: [DONE]\n\n", **words: Any) -> str:
    """The text of a stream of these deltas."""
    choices: list[Json] = [
        {"index": 0, "delta": delta, "finish_reason": None} for delta in ({"role": "assistant"}, *deltas)
    ]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    head = {"id": "x", "object": "chat.completion.chunk", "model": "m", **words}
    return "".join(f"data: {json.dumps({**head, 'choices': [choice]})}\n\n" for choice in choices) + done


def audited(text: str, request: Json | None = None, format: str | None = None, raw: str | None = None) -> list[Finding]:
    (capture,) = read_captures(text, "x")
    capture.request, capture.raw = request, raw
    return audit(capture, unbraid.get_format(format) if format else None)


# -- real captures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llama_cpp_plain.curl.txt", "content 47 (length)"),
        ("unbraid_ids.jsonl", "content 47 (length)"),
    ],
)
def test_sound_captures_are_sound(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(CAPTURES / name), "--format", "chatml"]) == 0
    out = capsys.readouterr().out
    assert said in out
    assert "1 reply: nothing found" in out


def test_a_captured_call_of_the_embedded_engine() -> None:
    (capture,) = captures("unbraid_call.curl.txt")
    said = capture.reply.choices[0]
    assert said.calls[0].name == "get_weather"
    assert json.loads(said.calls[0].arguments).keys() == {"city", "days"}
    assert audit(capture, unbraid.get_format("chatml")) == []


def test_records_with_raw_text_show_what_was_changed() -> None:
    """Real replies of llama.cpp's server: the one-shot reply repeats the beginning that it continued, its stream doesn't; and it takes
    the fence off JSON."""
    once, streamed, fenced = captures("llama_cpp_records.jsonl")
    chatml = unbraid.get_format("chatml")
    (found,) = audit(once, chatml)
    assert (found.cause, found.field, found.offset) == ("prefill", "content", 0)
    assert audit(streamed, chatml) == []
    (found,) = audit(fenced, chatml)
    assert (found.cause, found.offset) == ("text_lost", 0)
    assert "```json" in found.message


def test_what_a_real_vllm_lost() -> None:
    """vLLM 0.32 with its parsers qwen3 and hermes, made to write these tokens: text behind a call is dropped, and arguments end at a
    marker that is part of a text."""
    once, streamed, marked = captures("vllm_records.jsonl")
    qwen3 = unbraid.get_format("qwen3")
    for capture in (once, streamed):
        lost = next(finding for finding in audit(capture, qwen3) if finding.level == "error")
        assert (lost.cause, lost.field, lost.strand) == ("text_cut", "content", "content")
    errors = [finding for finding in audit(marked, qwen3) if finding.level == "error"]
    assert ("tool_calls[0].function.arguments", "arguments_broken") in about(errors)
    cut = next(finding for finding in errors if finding.cause == "text_cut")
    assert cut.got is not None
    assert cut.got.endswith("<tool_call>")


# -- shapes of files ---------------------------------------------------------------------------------------------------

HI = stream({"content": "Hi"}, {"content": " there."})


def test_a_har_with_other_traffic() -> None:
    request = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
    packed = base64.b64encode(HI.encode()).decode()
    entries = [
        {"request": {"url": "http://x/style.css"}, "response": {"content": {"mimeType": "text/css", "text": "a {}"}}},
        {"request": {"url": "http://x/v1/models"}, "response": {"content": {"text": '{"data": []}'}}},
        {
            "request": {"url": "http://x/v1/chat/completions", "postData": {"text": json.dumps(request)}},
            "response": {"content": {"mimeType": "text/event-stream", "text": packed, "encoding": "base64"}},
        },
        {"response": {"status": 200}},
    ]
    (capture,) = read_captures(json.dumps({"log": {"entries": entries}}), "x.har")
    assert capture.stream
    assert capture.request == request
    assert capture.reply.choices[0].content == "Hi there."


def test_curl_with_headers_and_two_replies() -> None:
    head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    both = read_captures(head + HI.replace("\n", "\r\n") + head + HI, "out.txt")
    assert [capture.name for capture in both] == ["out.txt reply 1", "out.txt reply 2"]
    assert [capture.reply.choices[0].content for capture in both] == ["Hi there."] * 2
    assert [capture.reply.choices[0].content for capture in read_captures(HI + HI, "out.txt")] == ["Hi there."] * 2


def test_curl_v() -> None:
    noise = (
        "* Trying 127.0.0.1:8000...\n> POST /v1/chat/completions HTTP/1.1\n>\n< HTTP/1.1 200 OK\n<\n{ [5 bytes data]\n"
    )
    (capture,) = read_captures(noise + HI + "* Connection #0 left intact\n", "v.txt")
    assert capture.reply.choices[0].content == "Hi there."
    assert capture.reply.problems == []


def test_one_shot_replies_and_chunks_in_lines() -> None:
    message = {"role": "assistant", "content": "Hi."}
    reply = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    chunks = [line.removeprefix("data: ") for line in HI.split("\n\n") if line.startswith("data: {")]
    lines = "\n".join([json.dumps(reply), *chunks, '{"cut off'])
    once, streamed = read_captures(lines, "x.jsonl")
    assert (once.stream, once.reply.choices[0].content) == (False, "Hi.")
    assert (streamed.stream, streamed.reply.choices[0].content) == (True, "Hi there.")
    assert audit(once) == audit(streamed) == []
    (alone,) = read_captures(json.dumps(reply, indent=2), "x.json")
    assert alone.reply.choices[0].content == "Hi."


@pytest.mark.parametrize("text", ["", "hello", "[]", "{}", '{"log": {}}', "data\n"])
def test_a_file_without_a_reply_says_so(text: str) -> None:
    with pytest.raises(UnbraidError, match="x: no reply in it"):
        read_captures(text, "x")


# -- what can be found without a raw layer -----------------------------------------------------------------------------


def piece(index: int | None, arguments: str, **words: Any) -> Json:
    head = {} if index is None else {"index": index}
    return {"tool_calls": [{**head, **words, "function": {**words.get("function", {}), "arguments": arguments}}]}


def opened(index: int, id: str, arguments: str = "{}", name: str = "f") -> Json:
    return piece(index, arguments, id=id, type="function", function={"name": name})


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}}

FAULTY: list[tuple[str, str, Json | None, str | None, str, str]] = [
    ("gap in the index", stream(opened(0, "a"), opened(2, "b"), finish="tool_calls"), None, None, "index", "call_index"),
    ("no index", stream(piece(None, "{}", id="a", function={"name": "f"}), finish="tool_calls"), None, None, "index", "call_index"),
    ("index used twice", stream(opened(0, "a"), opened(0, "b"), finish="tool_calls"), None, None, "index", "call_index"),
    ("back to an earlier call", stream(opened(0, "a", "{"), opened(1, "b"), piece(0, "}"), finish="tool_calls"), None, None, "index", "call_index"),
    ("no id", stream(piece(0, "{}", function={"name": "f"}), finish="tool_calls"), None, None, "id", "call_id"),
    ("id twice", stream(opened(0, "a"), opened(1, "a"), finish="tool_calls"), None, None, "id", "call_id"),
    ("delta after the end", HI.replace("data: [DONE]\n\n", "") + HI, None, None, "delta", "stream_order"),
    ("event after [DONE]", HI + "data: {}", None, None, "event 5", "stream_order"),
    ("broken event", HI.replace('{"id"', '{id"', 1), None, None, "event 0", "stream_broken"),
    ("cut off", HI[: len(HI) // 2], None, None, "finish_reason", "stream_order"),
    ("error inside", stream({"content": "Hi"}, done='data: {"error": {"message": "boom"}}\n\n'), None, None, "chunk 3", "stream_error"),
    ("arguments that are no JSON", stream(opened(0, "a", '{"n": '), finish="tool_calls"), None, None, "arguments", "arguments_broken"),
    ("empty arguments", stream(opened(0, "a", ""), finish="tool_calls"), None, None, "arguments", "arguments_broken"),
    ("marker in content", stream({"content": "<think>Hm</think>Hi"}), None, None, "content", "marker_leaked"),
    ("marker in reasoning", stream({"reasoning": "Hm</think>"}, {"content": "Hi"}), None, "qwen3", "reasoning", "marker_leaked"),
    ("reasoning in a format without", stream({"reasoning_content": "Hm"}), None, "qwen2_5", "reasoning", "content_in_reasoning"),
    ("finish without a call", stream({"content": "Hi"}, finish="tool_calls"), None, None, "tool_calls", "call_lost"),
    ("call without its finish", stream(opened(0, "a")), None, None, "finish_reason", "finish_reason"),
    ("wrong type", stream(opened(0, "a", '{"n": "3"}'), finish="tool_calls"), {"tools": [TOOL]}, None, "arguments", "argument_type"),
    ("unknown tool", stream(opened(0, "a", name="g"), finish="tool_calls"), {"tools": [TOOL]}, None, "name", "call_name"),
    ("no JSON", HI, {"response_format": {"type": "json_object"}}, None, "content", "constraint_off"),
    ("fields disagree", stream({"reasoning": "a", "reasoning_content": "b"}), None, None, "reasoning", "reasoning_fields"),
    ("id changes", HI.replace('"x"', '"y"', 1), None, None, "id", "stream_order"),
    ("empty delta", stream({}, {"content": "Hi"}), None, None, "delta", "empty_delta"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "request_", "format", "field", "cause"), [f[1:] for f in FAULTY], ids=[f[0] for f in FAULTY]
)
def test_a_faulty_capture(text: str, request_: Json | None, format: str | None, field: str, cause: str) -> None:
    found = about(audited(text, request_, format))
    assert any(field in where and what == cause for where, what in found), found


def test_a_marker_that_the_prompt_has_may_be_quoted() -> None:
    request = {"messages": [{"role": "user", "content": "What does <think> mean?"}]}
    (found,) = audited(stream({"content": "<think> opens a thought."}), request, "qwen3")
    assert (found.cause, found.level) == ("marker_leaked", "note")


def test_which_strand_may_follow_which() -> None:
    qwen3 = follows(unbraid.get_format("qwen3"))
    assert {
        ("reasoning", "content"),
        ("reasoning", "tool_call"),
        ("content", "tool_call"),
        ("tool_call", "tool_call"),
    } <= qwen3
    assert ("tool_call", "content") not in follows(unbraid.get_format("gigachat3"))


def test_strands_in_an_order_that_the_format_does_not_write() -> None:
    text = stream(opened(0, "a"), {"content": "Done."}, finish="tool_calls")
    assert about(audited(text, None, "qwen3")) == []
    (found,) = audited(text, None, "gigachat3")
    assert (found.cause, found.field) == ("stream_order", "chunk 2.delta")
    assert "content comes after tool_call" in found.message


# -- with a raw layer --------------------------------------------------------------------------------------------------


def test_raw_text_beside_a_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out.txt").write_text(HI)
    (tmp_path / "raw.txt").write_text("<think>\nHm.\n</think>\n\nHi there, friend.<|im_end|>")
    words = ["audit", str(tmp_path / "out.txt"), "--format", "qwen3", "--raw", str(tmp_path / "raw.txt")]
    assert main([*words, "--json", "-"]) == 1
    (found,) = json.loads(capsys.readouterr().out)[0]["findings"]
    assert (found["cause"], found["field"], found["also"]) == ("text_cut", "reasoning", ["content"])


@pytest.mark.parametrize("fault", [f for f in FAULTS if f.stream and f.cause in ("text_cut", "marker_eaten", "text_doubled")], ids=lambda f: f.name)  # fmt: skip
async def test_captures_of_the_zoo(fault: Fault) -> None:
    """A stream of a broken endpoint, and the ids of the sound one: the same alignment as in a check."""
    case = CASES[fault.case]
    said = []
    for broken in (None, fault):
        async with Endpoint("http://zoo", model="actor", transport=httpx.ASGITransport(deployment(broken))) as endpoint:
            said.append((await endpoint.chat({**case.request, "return_token_ids": True}, stream=True)).reply)
    record = {
        "request": dict(case.request),
        "response": said[1].text,
        "ids": said[0].choices[0].token_ids,
        "prompt": said[0].prompt_ids,
    }
    (capture,) = read_captures(json.dumps(record), "x")
    found = audit(capture, FORMAT, zoo_tokens().vocabulary)
    assert (fault.field, fault.cause) in about(found)
    capture.reply = said[0]
    assert audit(capture, FORMAT, zoo_tokens().vocabulary) == []


def test_a_capture_comes_through_a_pipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(HI.encode())))
    assert main(["audit", "-"]) == 0
    assert "1 reply: nothing found" in capsys.readouterr().out


def test_wrong_uses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.txt"
    file.write_text(HI + HI)
    for words, code, said in [
        ([str(tmp_path / "none")], 3, "No such file"),
        ([str(file), "--raw", str(file)], 2, "need --format"),
        ([str(file), "--raw", str(file), "--format", "qwen3"], 2, "there are 2"),
    ]:
        assert main(["audit", *words]) == code
        assert said in capsys.readouterr().err


# -- as people have them -----------------------------------------------------------------------------------------------


def packed_har(body: bytes, *headers: tuple[str, str]) -> bytes:
    """A proxy's HAR that has kept the body as it came over the wire."""
    content = {"mimeType": "text/event-stream", "text": base64.b64encode(body).decode(), "encoding": "base64"}
    named = [{"name": name, "value": value} for name, value in headers]
    return json.dumps(
        {"log": {"entries": [None, {"response": 3}, {"response": {"headers": named, "content": content}}]}}
    ).encode()


SOUND = stream({"content": "Hi."}).encode()
BOM = b"\xef\xbb\xbf"
ODD = {
    "a byte order mark": BOM + SOUND,
    "UTF-16": SOUND.decode().encode("utf-16"),
    "lines of DOS, with headers twice": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nserver: x\r\n\r\n" + SOUND.replace(b"\n", b"\r\n"),
    "packed": gzip.compress(SOUND),
    "packed in two parts": gzip.compress(SOUND[:50]) + gzip.compress(SOUND[50:]),
    "a HAR with a byte order mark": BOM + packed_har(SOUND),
    "a HAR with a packed body": packed_har(gzip.compress(SOUND), ("Content-Encoding", "gzip")),
    "a HAR with a deflated body": packed_har(zlib.compress(SOUND), ("content-encoding", "deflate")),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_the_same_reply_however_it_was_kept(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "capture"
    file.write_bytes(ODD[name])
    assert main(["audit", str(file)]) == 0
    assert "stream; content 3 (stop)\n\n1 reply: nothing found" in capsys.readouterr().out


UNREADABLE = {
    "Anthropic's stream": (b'event: message_start\ndata: {"type": "message_start", "message": {}}\n\n', "a reply of Anthropic's Messages; only"),
    "a stream of Responses": (b'event: response.created\ndata: {"type":"response.created"}\n\n', "a reply of OpenAI's Responses; only"),
    "a reply of Responses": (b'{"id": "r", "object": "response", "output": []}', "a reply of OpenAI's Responses; only"),
    "a message of Responses": (b'{"id": "r", "object": "response", "output": [{"type": "message"}]}', "a reply of OpenAI's Responses; only"),
    "a completion": (b'{"object": "text_completion", "choices": [{"text": "x"}]}', "a reply of /v1/completions; only"),
    "brotli": (packed_har(b"\x8b\x0b\x80", ("content-encoding", "br")), "entry 2: its body is packed with br; ask without compression"),
    "no base64": (packed_har(b"x").replace(b"eA==", b"%%%%"), "entry 2: its body says that it is base64, and isn't"),
    "a line that is none": (b'{"object": "chat.completion.chunk", "choices": []}\n3\n{}\n', "line 2: expected a JSON object"),
    "brackets without end": (b"[" * 100_000, "no reply in it"),
    "bytes": (bytes(range(256)), "no reply in it"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_is_told_with_its_place(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, said = UNREADABLE[name]
    file = tmp_path / "capture"
    file.write_bytes(data)
    assert main(["audit", str(file)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert str(file) in err
