"""Engines elsewhere, on real sockets: what they are asked, what is read, and what happens when they fail."""

from __future__ import annotations

import asyncio
import gc
import re
import ssl
import warnings
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FORMAT, FakeEngine, Faults, write_tokenizer

from unbraid.engines.base import Constraint, Engine, Generation, Grammar, Spent, Step
from unbraid.engines.connect import connect
from unbraid.engines.llama_server import LlamaServer
from unbraid.engines.profile import Local
from unbraid.engines.remote import RemoteEngine, Timing, _authorities
from unbraid.engines.spelling import spell
from unbraid.engines.vllm import Vllm
from unbraid.errors import EngineError, RequestError, UnbraidError
from unbraid.vocabulary import Vocabulary

KINDS = ("vllm", "vllm-tokens", "sglang", "llama")
ALL = (*KINDS, "completions")
CALM = Timing(connect=10, first_token=30, stall=30, retries=2, pause=0.01)
QUICK = Timing(connect=10, first_token=0.4, stall=0.3, retries=2, pause=0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("model"))


async def reach(fake: FakeEngine, folder: Path, timing: Timing = CALM) -> RemoteEngine:
    kind = fake.kind if fake.kind == "vllm-tokens" else "auto"  # nothing tells it from the other one
    engine = await asyncio.to_thread(connect, fake.url, kind, local=Local(tokenizer=folder), timing=timing)
    assert isinstance(engine, RemoteEngine)
    return engine


async def steps(engine: Engine, generation: Generation) -> list[Step]:
    return [step async for steps in engine.generate(generation) for step in steps]


def said(kind: str, *ids: int) -> list[Any]:
    """What an engine says, a token an event."""
    return [chr(id) for id in ids] if kind == "completions" else [[id] for id in ids]


def ids_of(found: Sequence[Step]) -> list[int]:
    return [id for step in found for id in step.ids]


ASKED = Generation(
    [1, 2, 3],
    max_tokens=9,
    temperature=0.5,
    top_k=7,
    seed=5,
    logit_bias={65: -1.0},
    stop_ids=(256,),
    ignore_eos=True,
    logprobs=2,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("finish", ["stop", "length"])
async def test_ids_come_as_they_were_written(kind: str, finish: str, folder: Path) -> None:
    async with FakeEngine(kind, [[72], [105, 33], [257]], finish) as fake:
        engine = await reach(fake, folder)
        assert engine.dialect.kind == kind
        found = await steps(engine, Generation([1]))
        assert ids_of(found) == [72, 105, 33, 257]
        assert [step.finish for step in found if step.finish] == [finish]
        assert found[-1].finish == finish
        await engine.ready()
        await engine.close()


@pytest.mark.parametrize(("cumulative", "ahead"), [(False, False), (True, False), (True, True)])
async def test_sglang_repeats_itself_or_does_not(cumulative: bool, ahead: bool, folder: Path) -> None:
    async with FakeEngine("sglang", [[72], [72, 72], [257]], cumulative=cumulative, ahead=ahead) as fake:
        engine = await reach(fake, folder)
        found = await steps(engine, Generation([1]))
        assert ids_of(found) == [72, 72, 72, 257]
        assert [step.finish for step in found if step.finish] == ["stop"]
        if not ahead:
            assert [step.ids for step in found] == [(72,), (72, 72), (257,)]
        assert not fake.aborted
        await engine.close()


async def test_sglang_is_told_that_somebody_left(folder: Path) -> None:
    """By closing the connection it would learn of it two seconds later."""
    async with FakeEngine("sglang", [[72]] * 1000, delay=0.01) as fake:
        engine = await reach(fake, folder)
        for _ in range(2):
            running = engine.generate(Generation([1]))
            await anext(running)
            await running.aclose()
        await engine.close()
        assert fake.aborted == [request["rid"] for request in fake.requests]
        assert len(set(fake.aborted)) == 2


async def test_sglang_is_told_when_we_end_before_our_generations(folder: Path) -> None:
    async with FakeEngine("sglang", [[72]] * 1000, delay=0.01) as fake:
        engine = await reach(fake, folder)
        running = engine.generate(Generation([1]))
        await anext(running)
        await engine.close()
        assert fake.aborted == [request["rid"] for request in fake.requests]
        await running.aclose()
        assert not engine._aborts


ABORTED = {"type": "abort", "message": "bad grammar", "err_type": None}


@pytest.mark.parametrize(
    ("kind", "error", "raised", "message"),
    [
        ("sglang", {"error": {"message": "too long", "type": "invalid_request_error", "code": 400}}, RequestError, "SGLang refuses the request: too long"),
        ("sglang", {"output_ids": [], "meta_info": {"finish_reason": ABORTED | {"status_code": 400}}}, RequestError, "bad grammar"),
        ("sglang", {"output_ids": [], "meta_info": {"finish_reason": ABORTED | {"status_code": 503}}}, EngineError, "overloaded"),
        ("sglang", {"output_ids": [], "meta_info": {"finish_reason": ABORTED | {"status_code": None}}}, EngineError, "bad grammar"),
        ("vllm", {"error": {"message": "bad grammar", "type": "BadRequestError", "code": 400}}, RequestError, "bad grammar"),
        ("vllm", {"error": {"message": "dead", "type": "InternalServerError", "code": 500}}, EngineError, "dead"),
        ("llama", {"error": {"message": "too long", "type": "exceed_context_size_error", "code": 400}}, RequestError, "too long"),
        ("llama", {"error": {"message": "hm", "type": "unavailable_error", "code": 503}}, EngineError, "overloaded"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("at", [0, 1])
async def test_a_refusal_inside_the_stream(
    kind: str, error: Any, raised: type[UnbraidError], message: str, at: int, folder: Path
) -> None:
    """Before the first token it is one; afterwards the engine has failed, whatever it says."""
    async with FakeEngine(kind, [[72], [73]], faults=Faults(error_at=at, error=error)) as fake:
        engine = await reach(fake, folder)
        with pytest.raises(raised if at == 0 else EngineError, match=message if at == 0 else "failed: "):
            await steps(engine, Generation([1]))
        assert len(fake.requests) == (3 if message == "overloaded" and at == 0 else 1)
        await engine.close()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "vllm",
            {
                "model": "tiny", "prompt": [1, 2, 3], "stream": True, "return_token_ids": True,
                "skip_special_tokens": False, "spaces_between_special_tokens": False, "include_stop_str_in_output": True,
                "max_tokens": 9, "temperature": 0.5, "top_k": 7, "seed": 5, "stop_token_ids": [256], "ignore_eos": True,
                "logit_bias": {"65": -1.0}, "logprobs": 2, "return_tokens_as_token_ids": True, "priority": 3,
                "min_tokens": 2,
            },
        ),
        (
            "vllm-tokens",
            {
                "model": "tiny", "token_ids": [1, 2, 3], "stream": True, "priority": 3,
                "sampling_params": {
                    "max_tokens": 9, "temperature": 0.5, "top_k": 7, "seed": 5, "stop_token_ids": [256], "ignore_eos": True,
                    "logit_bias": {"65": -1.0}, "logprobs": 2, "min_tokens": 2, "detokenize": False,
                },
            },
        ),
        (
            "sglang",
            {
                "input_ids": [1, 2, 3], "stream": True, "return_logprob": True, "logprob_start_len": -1,
                "top_logprobs_num": 2, "priority": 3,
                "sampling_params": {
                    "max_new_tokens": 9, "temperature": 0.5, "top_k": 7, "sampling_seed": 5, "logit_bias": {"65": -1.0},
                    "stop_token_ids": [256], "ignore_eos": True, "skip_special_tokens": False,
                    "spaces_between_special_tokens": False, "no_stop_trim": True, "min_new_tokens": 2,
                },
            },
        ),
        (
            "llama",
            {
                "prompt": [1, 2, 3], "stream": True, "return_tokens": True, "n_predict": 9, "temperature": 0.5, "top_k": 7,
                "seed": 5, "ignore_eos": True, "logit_bias": [[65, -1.0]], "n_probs": 2, "priority": 3, "min_tokens": 2,
            },
        ),
    ],
)  # fmt: skip
async def test_what_an_engine_is_asked(kind: str, expected: dict[str, Any], folder: Path) -> None:
    async with FakeEngine(kind, [[72]]) as fake:
        engine = await reach(fake, folder)
        await steps(engine, replace(ASKED, extra={"priority": 3, "min_tokens": 2}))
        if kind == "sglang":
            assert fake.requests[0].pop("rid")
        assert fake.requests == [expected]
        await engine.close()


async def test_text_mode_reads_text_and_the_count(folder: Path) -> None:
    async with FakeEngine("completions", ["<think>", "Hm.", "</think>Hi"]) as fake:
        engine = await reach(fake, folder)
        assert not engine.abilities.token_ids
        found = await steps(engine, Generation([], text="the prompt"))
        assert "".join(step.text or "" for step in found) == "<think>Hm.</think>Hi"
        assert (found[-1].finish, found[-1].spent) == ("stop", Spent(11, 3))
        assert (fake.requests[0]["prompt"], fake.requests[0]["max_tokens"]) == ("the prompt", 2048)
        await engine.close()


async def test_a_server_that_counts_nothing_ends_all_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeEngine("completions", ["Hi"]) as fake:
        monkeypatch.setattr(fake, "_completions", lambda: [{"choices": [{"text": "Hi", "finish_reason": "length"}]}])
        engine = await reach(fake, folder)
        found = await steps(engine, Generation([], text="x"))
        assert (found[-1].finish, found[-1].spent) == ("length", None)
        await engine.close()


# What the model is


async def test_the_profile_comes_from_engine_and_files(folder: Path) -> None:
    async with FakeEngine("vllm", [[1]], model_path="Qwen/Qwen3-8B") as fake:
        engine = await reach(fake, folder)
        assert engine.names[0] == "Qwen/Qwen3-8B"
        assert engine.context_length == 2000
        assert engine.chat_template is not None
        assert "add_generation_prompt" in engine.chat_template
        assert engine.end_ids == {engine.vocabulary.special["<|im_end|>"]}
        assert engine.tokenize("hi<|im_end|>") == [104, 105, engine.vocabulary.special["<|im_end|>"]]
        assert len(engine.tokenize("<|im_end|>", special=False)) == len("<|im_end|>")
        await engine.close()


async def test_without_a_tokenizer_it_says_what_is_missing() -> None:
    async with FakeEngine("vllm", [[1]]) as fake:
        with pytest.raises(EngineError, match="--tokenizer"):
            await asyncio.to_thread(connect, fake.url)


async def test_the_engines_own_files_are_used_where_they_are_here(folder: Path) -> None:
    async with FakeEngine("sglang", [[1]], model_path=str(folder)) as fake:
        engine = await asyncio.to_thread(connect, fake.url)
        assert engine.vocabulary.special["<think>"] >= 256
        await engine.close()


async def test_one_model_of_several(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [{"id": name, "owned_by": "vllm", "max_model_len": length} for name, length in (("one", 10), ("two", 20))]
    async with FakeEngine("vllm", [[1]]) as fake:
        monkeypatch.setattr(fake, "_about", lambda path: (200, {"data": cards}))
        local = Local(model="two", tokenizer=folder)
        engine = await asyncio.to_thread(connect, fake.url, local=local)
        assert (engine.model, engine.context_length) == ("two", 20)
        await steps(engine, Generation([1]))
        assert fake.requests[0]["model"] == "two"
        await engine.close()
        with pytest.raises(EngineError, match="serves no 'three', but one, two"):
            await asyncio.to_thread(connect, fake.url, local=Local(model="three", tokenizer=folder))


async def test_nobody_there() -> None:
    with pytest.raises(EngineError, match="can't reach"):
        await asyncio.to_thread(connect, "http://[", timing=QUICK)
    with pytest.raises(EngineError, match="can't reach"):
        await asyncio.to_thread(connect, "http://127.0.0.1:9", timing=QUICK)


# What can't be done is refused before anything is sent


@pytest.mark.parametrize(
    ("kind", "wish", "param"),
    [
        ("vllm", {"constraint": Grammar("gbnf", "root ::= x")}, None),
        ("llama", {"constraint": Grammar("structural_tag", {})}, None),
        ("sglang", {"constraint": "mask"}, None),
        ("vllm", {"logprobs": 21}, "top_logprobs"),
        ("completions", {"logprobs": 0}, "logprobs"),
        ("completions", {"top_k": 3}, "top_k"),
        ("completions", {"ignore_eos": True}, "ignore_eos"),
        ("completions", {"logit_bias": {1: 2.0}}, "logit_bias"),
        ("completions", {"constraint": Grammar("regex", "a")}, None),
    ],
)
async def test_what_an_engine_cannot_do(kind: str, wish: dict[str, Any], param: str | None, folder: Path) -> None:
    class Mask:
        def mask(self) -> None: ...
        def accept(self, id: int) -> None: ...

    if wish.get("constraint") == "mask":
        mask: Constraint = Mask()
        wish = {"constraint": mask}
    async with FakeEngine(kind, [[1]] if kind != "completions" else ["x"]) as fake:
        engine = await reach(fake, folder)
        with pytest.raises(RequestError) as refused:
            engine.generate(Generation([1], **wish))
        assert refused.value.param == param
        assert not fake.requests
        await engine.close()


@pytest.mark.parametrize(
    ("kind", "grammar", "where", "sent"),
    [
        ("vllm", Grammar("structural_tag", {"type": "x"}), "structured_outputs", {"structural_tag": '{"type":"x"}'}),
        ("vllm", Grammar("json_schema", {"type": "null"}), "structured_outputs", {"json": {"type": "null"}}),
        ("vllm", Grammar("regex", "a+"), "structured_outputs", {"regex": "a+"}),
        (
            "vllm-tokens",
            Grammar("structural_tag", {"type": "x"}),
            "structured_outputs",
            {"structural_tag": '{"type":"x"}'},
        ),
        ("llama", Grammar("gbnf", "root ::= x"), "grammar", "root ::= x"),
        ("sglang", Grammar("structural_tag", {"type": "x"}), "structural_tag", '{"type":"x"}'),
        ("sglang", Grammar("regex", "a+"), "regex", "a+"),
    ],
)
async def test_constraints_in_the_engines_words(
    kind: str, grammar: Grammar, where: str, sent: Any, folder: Path
) -> None:
    async with FakeEngine(kind, [[1]]) as fake:
        engine = await reach(fake, folder)
        await steps(engine, Generation([1], constraint=grammar))
        body = fake.requests[0]
        assert body.get("sampling_params", body)[where] == sent
        await engine.close()


# Faults


@pytest.mark.parametrize("kind", ALL)
async def test_only_what_has_not_begun_is_tried_again(kind: str, folder: Path) -> None:
    for faults in (Faults(refuse=2), Faults(close=2)):
        async with FakeEngine(kind, said(kind, 72), faults=faults) as fake:
            engine = await reach(fake, folder)
            found = await steps(engine, Generation([1]))
            assert ids_of(found) == [72] or "".join(step.text or "" for step in found) == "H"
            assert len(fake.requests) == 3
            await engine.close()
    async with FakeEngine(kind, said(kind, 72, 72), faults=Faults(kill_at=1)) as fake:
        engine = await reach(fake, folder)
        with pytest.raises(EngineError, match="broke off"):
            await steps(engine, Generation([1]))
        assert len(fake.requests) == 1
        await engine.close()


async def test_tries_come_to_an_end(folder: Path) -> None:
    async with FakeEngine("vllm", [[72]], faults=Faults(refuse=99)) as fake:
        engine = await reach(fake, folder)
        with pytest.raises(EngineError, match="overloaded") as failed:
            await steps(engine, Generation([1]))
        assert (failed.value.status, len(fake.requests)) == (503, 3)
        await engine.close()


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (Faults(kill_at=2), "broke off"),
        (Faults(stall_at=2), "said nothing in time"),
        (Faults(stall_at=0), "said nothing in time"),
        (Faults(error_at=2), "out of memory"),
        (Faults(silent_end_at=2), "without saying why"),
        (Faults(nonsense=b"<html>Bad Gateway</html>\n"), "can't mean: '<html>"),
        (Faults(nonsense=b"data: {]\n\n"), "can't mean"),
        (Faults(nonsense=b'data: {"choices": 3, "output_ids": "x", "tokens": {}}\n\n'), "can't mean"),
        (Faults(nonsense=b"\xff\xfe\n"), "can't mean"),
        (Faults(nonsense=b"data: " + b"[" * 100_000 + b"\n\n"), "can't mean"),
        (Faults(nonsense=b""), "broke off"),  # a chunk of nothing ends the body, and more comes
    ],
)
@pytest.mark.parametrize("kind", ALL)
async def test_no_failure_looks_like_an_end(kind: str, faults: Faults, message: str, folder: Path) -> None:
    async with FakeEngine(kind, said(kind, 72, 73, 74, 75), faults=faults) as fake:
        engine = await reach(fake, folder, timing=CALM if faults.stall_at is None else QUICK)
        found: list[Step] = []

        async def read() -> None:
            async for steps in engine.generate(Generation([1])):
                found.extend(steps)

        with pytest.raises(EngineError, match=message):
            await asyncio.wait_for(read(), 25)
        assert all(step.finish is None for step in found)
        await asyncio.wait_for(engine.close(), 5)


@pytest.mark.parametrize("kind", ["vllm", "completions"])
async def test_an_event_without_a_token_is_no_beginning(kind: str, folder: Path) -> None:
    """Some servers answer at once with an event that says nothing, and then read the prompt: no stall, the first token is due."""
    patient = Timing(connect=10, first_token=30, stall=0.02)
    async with FakeEngine(kind, ["", "H"] if kind == "completions" else [[], [72]], delay=0.2) as fake:
        engine = await reach(fake, folder, patient)
        async with aclosing(engine.generate(Generation([1], text="x"))) as reads:
            (step,) = await anext(reads)
        assert step.ids == (72,) or step.text == "H"
        await engine.close()


async def test_a_connection_serves_one_generation_after_the_other(folder: Path) -> None:
    """It is read to the end of the body, behind the last token."""
    events = b'data: {"choices": [{"token_ids": [72], "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    served: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(0)
        with suppress(asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
                )
                for chunk in (events[:30], events[30:], b""):
                    writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                    await writer.drain()
                served[-1] += 1
        writer.close()

    async with FakeEngine("vllm", []) as fake, await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        engine = RemoteEngine(f"http://127.0.0.1:{port}", Vllm(), (await reach(fake, folder))._profile, timing=CALM)
        for _ in range(3):
            assert ids_of(await steps(engine, Generation([1]))) == [72]
        await engine.close()
    assert served == [3]


async def test_a_name_and_a_path_in_the_address(folder: Path) -> None:
    async with FakeEngine("vllm", [[72]]) as fake:
        profile = (await reach(fake, folder))._profile
        for key, said in ((None, "Basic bWU6cEBzcw=="), ("k", "Bearer k")):
            url = fake.url.replace("//", "//me:p%40ss@") + "/engines/a%20b%2Fc/"
            engine = RemoteEngine(url, Vllm(), profile, key=key, timing=CALM)
            async with engine._session.post(engine._at("/v1/x")) as answer:
                assert answer.request_info.headers["authorization"] == said
                assert answer.request_info.url.raw_path == "/engines/a%20b%2Fc/v1/x"
            with pytest.raises(EngineError, match="/engines") as failed:
                engine._call.post("/x", {})
            assert not re.search("me:|p%40ss", f"{failed.value} {engine._nonsense(b'')}")
            await engine.close()


async def test_a_certificate_is_asked_for_however_the_scheme_is_spelled() -> None:
    for url in ("https://here", "HTTPS://here"):
        asked = _authorities(url)
        assert isinstance(asked, ssl.SSLContext)
        assert asked.verify_mode == ssl.CERT_REQUIRED


async def test_nobody_there_any_more(folder: Path) -> None:
    async with FakeEngine("vllm", [[72]]) as fake:
        engine = await reach(fake, folder)
    with pytest.raises(EngineError, match="can't be reached") as failed:
        await steps(engine, Generation([1]))
    assert failed.value.status == 502
    await engine.close()


async def test_nobody_waits_for_the_answer_to_an_abort(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it is: its connection is given back (aiohttp tells the loop of one that isn't)."""
    told: list[Any] = []
    asyncio.get_running_loop().set_debug(True)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context["message"]))
    async with FakeEngine("sglang", [[72]] * 1000, delay=0.01) as fake:
        reply = fake._reply
        monkeypatch.setattr(
            fake, "_reply", lambda writer, status, value: reply(writer, status, value or "x" * 2_000_000)
        )
        engine = await reach(fake, folder)
        running = engine.generate(Generation([1]))
        await anext(running)
        await running.aclose()
        await asyncio.wait_for(fake.left.wait(), 5)
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            await asyncio.gather(*engine._aborts)
            gc.collect()
        assert not told
        await engine.close()


async def test_an_answer_that_is_no_stream(folder: Path) -> None:
    async with FakeEngine("vllm", [[1]], faults=Faults(nonsense=b'{"detail": "hm"}'), content_type="text/html") as fake:
        engine = await reach(fake, folder)
        with pytest.raises(EngineError, match="text/html"):
            await steps(engine, Generation([1]))
        await engine.close()


@pytest.mark.parametrize(
    ("status", "kind", "message"),
    [
        (400, RequestError, "vLLM refuses the request: not now"),
        (401, EngineError, "--engine-key"),
        (404, EngineError, "/v1/completions says 404: not now; .*--engine-kind"),
        (500, EngineError, "status 500: not now"),
    ],
)
async def test_whose_fault_a_status_says(status: int, kind: type[UnbraidError], message: str, folder: Path) -> None:
    async with FakeEngine("vllm", [[1]], faults=Faults(refuse=99, status=status)) as fake:
        engine = await reach(fake, folder)
        with pytest.raises(kind, match=message):
            await steps(engine, Generation([1]))
        assert len(fake.requests) == 1
        await engine.close()


@pytest.mark.parametrize("kind", ALL)
async def test_the_engine_sees_that_nobody_listens(kind: str, folder: Path) -> None:
    async with FakeEngine(kind, said(kind, *[72] * 10_000), delay=0.005) as fake:
        engine = await reach(fake, folder)
        running = engine.generate(Generation([1]))
        await anext(running)
        await running.aclose()
        await asyncio.wait_for(fake.left.wait(), 5)
        await engine.close()


async def test_a_slow_reader_holds_the_engine_up(folder: Path) -> None:
    """Nothing is read ahead without bound: the socket's buffers fill, then the engine waits."""
    padding = [72] * 2000
    async with FakeEngine("vllm", [padding] * 3000) as fake:
        engine = await reach(fake, folder)
        running = engine.generate(Generation([1]))
        await anext(running)
        waiting = -1
        while waiting != fake.said:
            waiting = fake.said
            await asyncio.sleep(0.3)
        assert waiting < 2500
        await running.aclose()
        await engine.close()


# llama.cpp's habits


async def test_ids_that_llama_keeps_to_itself_are_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = [
        {"content": "a", "tokens": [97], "tokens_predicted": 1, "stop": False},
        {"content": "\U0001f642", "tokens": [0x82], "tokens_predicted": 5, "stop": False},
        {"content": "", "tokens": [], "tokens_predicted": 5, "stop": True, "stop_type": "limit"},
    ]
    async with FakeEngine("llama", [[1]]) as fake:
        monkeypatch.setattr(fake, "_llama", lambda: events)
        engine = await reach(fake, folder)
        found = await steps(engine, Generation([1]))
        assert bytes(ids_of(found)).decode() == "a\U0001f642"
        assert found[-1].finish == "length"
        await engine.close()


async def test_llama_is_stopped_at_a_stop_token(folder: Path) -> None:
    async with FakeEngine("llama", [[72], [257], [73]]) as fake:
        engine = await reach(fake, folder)
        found = await steps(engine, Generation([1], stop_ids=(257,)))
        assert (ids_of(found), found[-1].finish) == ([72, 257], "stop")
        await engine.close()


def test_spelling() -> None:
    vocabulary = Vocabulary.from_tokens({0: b"\xf0", 1: b"\x9f", 2: b"\x99", 3: b"\xf0\x9f"}, special={"\x99": 9})
    assert spell(vocabulary, b"\xf0\x9f\x99", 2) == (3, 2)
    assert spell(vocabulary, b"\xf0\x9f\x99", 3) == (0, 1, 2)
    assert spell(vocabulary, b"\xf0\x9f\x99", 7) == (3, 2)
    assert spell(vocabulary, b"nothing", 1) == ()


def test_llama_needs_its_properties() -> None:
    with pytest.raises(EngineError, match="/props"):
        LlamaServer().told(lambda path: None, None)
    assert FORMAT.name == "qwen3"
