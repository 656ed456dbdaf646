"""The engine that the other tests stand on."""

from __future__ import annotations

import pytest

from unbraid.engines.base import Engine, Generation, Step
from unbraid.engines.scripted import LOGPROB, ScriptedEngine
from unbraid.errors import EngineError
from unbraid.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_tokens({0: b"a", 1: b"b", 2: b"c"}, special={"<end>": 3})


async def steps(engine: ScriptedEngine, generation: Generation) -> list[Step]:
    return [step async for steps in engine.generate(generation) for step in steps]


async def test_it_replays_script_after_script() -> None:
    scripted = ScriptedEngine(VOCABULARY, [[[0, 1], [3]], [[2]]], end_ids=[3])
    engine: Engine = scripted
    assert engine.tokenize("ab<end>") == [0, 1, 3]
    asked = Generation([0])
    assert await steps(scripted, asked) == [Step((0, 1)), Step((3,), finish="stop")]
    assert await steps(scripted, asked) == [Step((2,), finish="stop")]
    assert (await steps(scripted, asked))[0].ids == (0, 1)
    assert scripted.generations == [asked] * 3
    assert scripted.aborted == 0
    await engine.close()
    assert scripted.closed


async def test_max_tokens_cuts_within_a_step() -> None:
    engine = ScriptedEngine(VOCABULARY, [[[0, 1, 2], [3]]])
    assert await steps(engine, Generation([0], max_tokens=2)) == [Step((0, 1), finish="length")]
    assert await steps(engine, Generation([0], max_tokens=3)) == [Step((0, 1, 2), finish="length")]
    assert (await steps(engine, Generation([0], max_tokens=4)))[-1] == Step((3,), finish="stop")


async def test_log_probabilities() -> None:
    engine = ScriptedEngine(VOCABULARY, [[[0]]])
    (plain,) = (await steps(engine, Generation([0], logprobs=0)))[0].logprobs
    assert (plain.id, plain.logprob, plain.token, plain.bytes, plain.top) == (0, LOGPROB, "a", b"a", ())
    (more,) = (await steps(engine, Generation([0], logprobs=2)))[0].logprobs
    assert more.top == (plain,)


async def test_an_error_and_a_client_that_leaves() -> None:
    engine = ScriptedEngine(VOCABULARY, [[[0], EngineError("gone")], [[0], [1], [2]]])
    with pytest.raises(EngineError, match="gone"):
        await steps(engine, Generation([0]))
    assert engine.aborted == 0
    running = engine.generate(Generation([0]))
    await anext(running)
    await running.aclose()
    assert engine.aborted == 1


async def test_an_empty_script_says_nothing() -> None:
    assert await steps(ScriptedEngine(VOCABULARY, [[]]), Generation([0])) == [Step((), finish="stop")]
