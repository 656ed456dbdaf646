"""`check` on a real llama.cpp server with its own parsing, on models that write what we want (`actor_gguf`).

What it finds there are habits of the pinned llama.cpp; the report in docs/reports says more about them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from test_integrity_doctor import TEMPLATE

import unbraid
from unbraid.integrity.cases import Case, built_in
from unbraid.integrity.check import Result, check
from unbraid.integrity.client import Endpoint

xllamacpp = pytest.importorskip("xllamacpp")
pytest.importorskip("numpy")

from actor_gguf import write_actor  # noqa: E402

QWEN3 = unbraid.get_format("qwen3")
CASES = {case.name: case for case in built_in(QWEN3)}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}\n</tool_call>'


@contextmanager
def llama(file: Path) -> Iterator[str]:
    """llama.cpp's server on this model; its URL."""
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx, params.n_parallel, params.verbosity = 4096, 1, 10  # it tells its tokens only if it tells everything
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    yield server.listening_address
    del server


async def result(folder: Path, text: str, case: str, **fields: Any) -> Result:
    """What a check of one case says where the model writes this text."""
    write_actor(folder / "actor.gguf", text, TEMPLATE)
    asked = Case(case, {**CASES[case].request, **fields})
    with llama(folder / "actor.gguf") as url:
        async with Endpoint(url) as endpoint:
            return (await check(endpoint, QWEN3, [asked])).results[0]


def errors(found: Result) -> list[tuple[str, str, str]]:
    return [(f.layer, f.field, f.cause) for f in found.findings if f.level == "error"]


async def test_an_answer_is_whole(tmp_path: Path) -> None:
    found = await result(tmp_path, "The Loire, 桥 and 🌉.", "unicode")
    assert found.raw
    assert found.findings == []


async def test_a_thought_and_a_call(tmp_path: Path) -> None:
    """Sound but for the newline that ends the thought, and for reasoning tokens, which llama.cpp doesn't count."""
    found = await result(tmp_path, f"<think>\nRain?\n</think>\n\n{CALL}", "call_auto")
    assert found.raw
    assert '"name":"get_weather"' in found.captures["stream"]
    assert errors(found) == []
    assert {f.cause for f in found.findings} == {"edge_space", "usage"}


async def test_logprobs_of_the_thought_stand_among_those_of_the_answer(tmp_path: Path) -> None:
    found = await result(tmp_path, "<think>\nOne of ten.\n</think>\n\nSeven", "logprobs")
    assert [("logprobs", layer) for layer in ("one-shot", "stream")] == [
        (cause, layer) for layer, _, cause in errors(found)
    ]


async def test_what_it_does_not_offer_is_no_fault(tmp_path: Path) -> None:
    found = await result(tmp_path, "<think>\nThree times 19.\n</think>\n\nNo prime.", "hidden_reasoning")
    assert errors(found) == []
    assert {f.cause for f in found.findings if f.level == "note"} >= {"hidden_reasoning"}
