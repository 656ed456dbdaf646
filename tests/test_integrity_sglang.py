"""`check` on a double of SGLang: its raw layer is known by ids, in its streams and in older versions by the tokens' texts."""

from __future__ import annotations

import httpx
import pytest
from broken import FAULTS, FORMAT, zoo_tokens
from sglang_double import SGLang

from unbraid.integrity.cases import built_in
from unbraid.integrity.check import Report, check
from unbraid.integrity.client import Endpoint
from unbraid.vocabulary import Vocabulary

BY_NAME = {fault.name: fault for fault in FAULTS}


async def report(app: SGLang, *names: str, vocabulary: Vocabulary | None = None) -> Report:
    cases = [case for case in built_in(FORMAT) if not names or case.name in names]
    async with Endpoint("http://zoo", transport=httpx.ASGITransport(app)) as endpoint:
        return await check(endpoint, FORMAT, cases, vocabulary=vocabulary)


@pytest.mark.parametrize("told", [True, False], ids=["tokenizer given", "tokens asked for"])
async def test_a_sound_sglang_is_sound_but_for_its_habit(told: bool) -> None:
    """Log-probabilities cover the thoughts (sgl-project/sglang#25055), and hiding reasoning is asked for by another name."""
    found = await report(SGLang(), vocabulary=zoo_tokens().vocabulary if told else None)
    assert all(result.raw for result in found.results)
    odd = {(f.case, f.layer, f.cause, f.level) for f in found.findings}
    assert {each for each in odd if each[0] != "hidden_reasoning"} == {
        ("logprobs", "one-shot", "logprobs", "error"),
        ("logprobs", "stream", "logprobs", "error"),
    }
    assert found.results[0].raw


async def test_an_older_sglang_is_known_by_the_texts_of_its_tokens() -> None:
    found = await report(SGLang(old=True))
    unknown = [result.case.name for result in found.results if not result.raw]
    assert unknown == ["unicode"]  # a part of a character has no text of its own
    assert {f.case for f in found.findings if f.level == "error"} == {"logprobs"}


FOUND = (
    "last piece of the arguments lost",
    "thoughts in content, stream only",
    "quoted closer swallowed",
    "text doubled",
)


@pytest.mark.parametrize("old", [False, True], ids=["ids", "texts"])
@pytest.mark.parametrize("name", FOUND)
async def test_a_fault_of_its_streams_is_found_at_its_token(name: str, old: bool) -> None:
    fault = BY_NAME[name]
    found = (await report(SGLang(old=old, spoil=fault.stream), fault.case)).findings
    named = [f for f in found if (f.layer, f.cause) == (fault.layer, fault.cause) and fault.field in f.field]
    assert named, [(f.layer, f.field, f.cause) for f in found]
    assert named[0].token is not None
    assert (named[0].token.id is None) == old
