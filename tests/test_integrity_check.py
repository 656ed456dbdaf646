"""`check` on a zoo of broken endpoints: it finds each fault, and nothing on the sound server."""

from __future__ import annotations

import json
from collections.abc import Sequence

import httpx
import pytest
from broken import ANSWERS, FAULTS, FORMAT, THOUGHT, Actor, Fault, Silent, calls_as_text, deployment, zoo_tokens
from starlette.types import ASGIApp, Receive, Scope, Send
from tokens import Tokens

import unbraid
from unbraid.engines.base import Generation
from unbraid.formats import FORMATS
from unbraid.integrity.align import Raw, tell
from unbraid.integrity.cases import Case, built_in
from unbraid.integrity.causes import Comparison, Markers
from unbraid.integrity.check import Report, check
from unbraid.integrity.client import Endpoint
from unbraid.integrity.layers import Said
from unbraid.integrity.raw import Pieces
from unbraid.table import Format

CASES = {case.name: case for case in built_in(FORMAT)}


async def report(app: ASGIApp, *names: str, told: bool = True) -> Report:
    """The check of an application, without a socket."""
    cases = [CASES[name] for name in names or CASES]
    vocabulary = zoo_tokens().vocabulary if told else None
    async with Endpoint("http://zoo", transport=httpx.ASGITransport(app)) as endpoint:
        return await check(endpoint, FORMAT, cases, vocabulary=vocabulary)


class Moody(Actor):
    """An engine that never says the same twice."""

    asked = 0

    def answer(self, generation: Generation) -> list[int]:
        self.asked += 1
        return [*self.tokens.encode(f"The Loire, for the time number {self.asked}."), self.end]


@pytest.mark.parametrize("told", [True, False], ids=["tokenizer given", "tokens asked for"])
async def test_the_sound_server_is_sound(told: bool) -> None:
    found = await report(deployment(), told=told)
    assert [str(finding) for finding in found.findings] == []
    assert {result.case.name: result.reason for result in found.results if result.status == "skipped"} == {}
    assert all(result.raw for result in found.results)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_each_fault_is_found(fault: Fault) -> None:
    found = (await report(deployment(fault), fault.case)).findings
    assert found
    first = next((f for f in found if (f.layer, f.cause) == (fault.layer, fault.cause)), None)
    assert first is not None, [(f.layer, f.field, f.cause, f.message) for f in found]
    assert first.field == fault.field or (fault.field in first.field and first.cause not in ABOUT_TEXTS)
    if fault.offset is not None:
        assert first.offset == fault.offset
    if fault.strand is not None:
        assert first.strand == fault.strand
    if fault.token is not None:
        assert first.token is not None
        assert first.token.text == fault.token
        assert first.token.special
    if first.cause in ABOUT_TEXTS:  # then the character is named, and the token of the raw layer that it belongs to
        assert first.offset is not None
        assert first.expected != first.got
        belongs = first.expected or first.cause == "content_in_reasoning"
        assert (first.token is not None) == (first.raw_offset is not None) == bool(belongs)


ABOUT_TEXTS = {
    "special_stripped", "marker_eaten", "marker_leaked", "reasoning_in_content", "content_in_reasoning", "call_lost", "argument_type",
    "arguments_rewritten", "white_space", "edge_space", "entities", "character_broken", "text_cut", "text_lost", "text_doubled",
    "text_added", "stop_string", "prefill",
}  # fmt: skip


async def test_an_engine_without_its_grammar_is_told_so() -> None:
    """The raw layer itself isn't what the request forced: V#34650."""
    engine = Actor(
        {**ANSWERS, "city in Italy": f"{THOUGHT}Rome, I think."}, Tokens(FORMAT, [f"{THOUGHT}Rome, I think."])
    )
    app = deployment(engine=engine)
    async with Endpoint("http://zoo", transport=httpx.ASGITransport(app)) as endpoint:
        found = (await check(endpoint, FORMAT, [CASES["structured"]], vocabulary=engine.vocabulary)).findings
    assert [(f.layer, f.field, f.cause) for f in found] == [
        ("one-shot", "content", "constraint_off"),
        ("stream", "content", "constraint_off"),
    ]


STREAM_ONLY = [
    fault
    for fault in FAULTS
    if fault.stream and not fault.once and fault.cause not in ("not_streamed", "hidden_reasoning")
]


@pytest.mark.parametrize("fault", STREAM_ONLY, ids=lambda fault: fault.name)
async def test_without_a_raw_layer_the_two_forms_are_held_against_each_other(fault: Fault) -> None:
    found = await report(Silent(deployment(fault)), fault.case, told=False)
    assert not found.results[0].raw
    assert any(f.layer == "stream" and fault.field in f.field for f in found.findings)


async def test_an_endpoint_without_a_raw_layer_can_be_sound() -> None:
    found = await report(Silent(deployment()), told=False)
    assert [str(finding) for finding in found.findings] == []


async def test_an_endpoint_that_never_says_the_same_twice_is_called_so_and_still_judged() -> None:
    found = (await report(deployment(engine=Moody()), "plain")).findings
    assert [(finding.cause, finding.level) for finding in found] == [("not_reproducible", "note")]
    leaking = next(fault for fault in FAULTS if fault.name == "end token leaked")
    found = (await report(deployment(leaking, Moody()), "plain")).findings
    assert [finding.cause for finding in found] == ["marker_leaked", "not_reproducible"]


@pytest.mark.parametrize("fmt", FORMATS.values(), ids=list(FORMATS))
def test_every_format_has_its_cases(fmt: Format) -> None:
    cases = built_in(fmt)
    names = [case.name for case in cases]
    assert len(names) == len(set(names))
    assert ("call_auto" in names) == fmt.calls
    assert ("reasoning" in names) == fmt.reasons
    assert Markers.of(fmt).texts


async def test_calls_that_are_not_allowed_may_be_shown_to_the_letter() -> None:
    """As vLLM shows DeepSeek's, with the markers of their section, which our own server leaves out."""
    fmt = unbraid.get_format("deepseek_v31")
    call = '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Bonn", "days": 1}<｜tool▁call▁end｜>'
    text = f"I'd call get_weather: <｜tool▁calls▁begin｜>{call}<｜tool▁calls▁end｜>"
    tokens = Tokens(fmt, [text])
    entry = {
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "token_ids": tokens.encode(text),
    }
    delta = {"delta": entry["message"], "finish_reason": "stop", "token_ids": entry["token_ids"]}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "m", "owned_by": "vllm"}]})
        if not json.loads(request.content).get("stream"):
            return httpx.Response(200, json={"choices": [{"index": 0, **entry}]})
        chunks = [{"choices": [{"index": 0, **delta}]}, {"choices": [], "usage": {"completion_tokens": 1}}]
        return httpx.Response(200, text="".join(f"data: {json.dumps(c)}\n\n" for c in chunks) + "data: [DONE]\n\n")

    case = next(case for case in built_in(fmt) if case.name == "call_none")
    async with Endpoint("http://zoo", transport=httpx.MockTransport(answer)) as endpoint:
        (result,) = (await check(endpoint, fmt, [case], vocabulary=tokens.vocabulary)).results
    assert result.raw
    assert [f.cause for f in result.findings if f.level == "error"] == []


async def test_a_marker_that_the_model_spelled_may_be_either() -> None:
    """An empty pair of markers, spelled by a tokenizer that has no such tokens: shown or taken for markup, it's no certain fault."""
    fmt = unbraid.get_format("chatml")
    text = "The tags <tool_call> </tool_call> are a pair."
    tokens = Tokens(fmt, [text])
    shown = Said(content=text)
    raw = Raw(tokens.encode(text), tokens.bound)
    story = tell(raw, fmt, {})
    (finding,) = Comparison("c", "stream", story.said, shown, Markers.of(fmt), 0, story).findings()
    assert (finding.cause, finding.level) == ("marker_leaked", "warning")
    assert "it may be text or markup" in finding.message


async def test_an_endpoint_that_does_not_tell_a_token_has_no_raw_layer() -> None:
    asked: list[int] = []

    async def tokenize(text: str) -> list[int] | None:
        return [1]

    async def detokenize(ids: Sequence[int]) -> str | None:
        asked.extend(ids)
        return "x" if ids != [7] else None

    pieces = Pieces(tokenize, detokenize)
    assert await pieces.vocabulary([3, 7], FORMAT) is None
    assert asked.count(7) == 2
    assert await pieces.vocabulary([3, 4], FORMAT) is not None


async def test_the_form_that_is_right_says_what_the_other_should_be() -> None:
    """A cut call is text in the one-shot reply, as with vLLM's hermes: the stream, which has it as an unfinished call, is sound."""
    left = Fault("cut call as text", "V", "call_cut", "one-shot", "", "", calls_as_text("<tool_call>\n%s"))
    found = (await report(deployment(left), "call_cut")).findings
    assert [(f.layer, f.cause) for f in found if f.level == "error"] == [("one-shot", "call_lost")]
    assert "was left in content as text" in found[0].message


async def test_a_refused_case_is_skipped_with_the_reason() -> None:
    found = await report(deployment(), "plain")
    assert found.sound
    odd = Case("odd", {**CASES["plain"].request, "response_format": {"type": "poem"}})
    async with Endpoint("http://zoo", transport=httpx.ASGITransport(deployment())) as endpoint:
        result = (await check(endpoint, FORMAT, [odd])).results[0]
    assert result.status == "skipped"
    assert "'poem' is not supported" in result.reason


async def test_a_call_that_turns_out_to_be_none_is_text_in_both_forms() -> None:
    request = {**CASES["call_auto"].request, "messages": [{"role": "user", "content": "Break a call"}]}
    async with Endpoint("http://zoo", transport=httpx.ASGITransport(deployment())) as endpoint:
        result = (await check(endpoint, FORMAT, [Case("broken", request)])).results[0]
    assert [(finding.cause, finding.level) for finding in result.findings] == [("off_format", "note")]
    assert '"withdrawn":true' in result.captures["stream"]


async def test_a_server_error_is_a_finding() -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        body = b'{"data": [{"id": "m"}]}' if scope["path"] == "/v1/models" else b'{"error": {"message": "boom"}}'
        await send(
            {"type": "http.response.start", "status": 200 if scope["path"] == "/v1/models" else 500, "headers": []}
        )
        await send({"type": "http.response.body", "body": body})

    found = (await report(failing, "plain", told=False)).findings
    assert [(finding.cause, finding.message) for finding in found] == [("server_error", "500: boom")]
