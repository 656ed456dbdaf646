"""Recordings: what was said is said again, to the token."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from fake_engine import write_tokenizer

from unbraid.engines.base import Engine, Generation, Step
from unbraid.engines.connect import connect
from unbraid.engines.profile import Local
from unbraid.engines.recording import RecordedEngine, Recorder
from unbraid.engines.scripted import ScriptedEngine
from unbraid.errors import EngineError, RequestError
from unbraid.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_tokens({0: b"a", 1: b"b", 2: b"\xff", 5: b"c"}, special={"<end>": 3})


async def steps(engine: Engine, generation: Generation) -> list[Step]:
    return [step async for steps in engine.generate(generation) for step in steps]


def scripted(*scripts: Any) -> ScriptedEngine:
    return ScriptedEngine(
        VOCABULARY,
        scripts,
        model="tiny",
        chat_template="{{ messages }}",
        special_tokens={"eos_token": "<end>"},
        names=["maker/tiny"],
        end_ids=[3],
        context_length=100,
    )


async def test_a_recording_says_what_was_said(tmp_path: Path) -> None:
    file = tmp_path / "said.jsonl"
    recorder = Recorder(scripted([[0, 1], [2, 3]], [[1], [0], [3]]), file)
    asked = [Generation([0], logprobs=1), Generation([1])]
    said = [await steps(recorder, generation) for generation in asked]
    await recorder.close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    replayed = RecordedEngine.read(file, pace=0)
    # By their prompts, not by their order.
    assert [await steps(replayed, generation) for generation in reversed(asked)] == said[::-1]
    assert await steps(replayed, Generation([1])) == said[1]
    for name in ("model", "context_length", "chat_template", "special_tokens", "names", "end_ids"):
        assert getattr(replayed, name) == getattr(recorder, name)
    assert dict(replayed.vocabulary.tokens) == dict(VOCABULARY.tokens)
    assert replayed.vocabulary.control == VOCABULARY.control
    assert replayed.tokenize("ab<end>") == [0, 1, 3]


async def test_other_prompts_take_turns(tmp_path: Path) -> None:
    file = tmp_path / "said.jsonl"
    recorder = Recorder(scripted([[0], [3]], [[1], [3]]), file)
    for prompt in ([0], [1]):
        await steps(recorder, Generation(prompt))
    replayed = RecordedEngine.read(file, pace=0)
    found = [(await steps(replayed, Generation([5])))[0].ids for _ in range(4)]
    assert found == [(0,), (1,), (0,), (1,)]


async def test_recorders_share_a_file(tmp_path: Path) -> None:
    file = tmp_path / "said.jsonl"
    for script in ([[0], [3]], [[1], [3]]):
        recorder = Recorder(scripted(script), file)
        await steps(recorder, Generation([script[0][0]]))
        await recorder.close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [set(line) & {"recording", "prompt"} for line in lines] == [
        {"recording"},
        {"prompt"},
        set(),
        {"prompt"},
        set(),
    ]


async def test_limits_and_stop_tokens_still_hold(tmp_path: Path) -> None:
    file = tmp_path / "said.jsonl"
    recorder = Recorder(scripted([[0, 1, 5], [0], [3]]), file)
    await steps(recorder, Generation([0]))
    replayed = RecordedEngine.read(file, pace=0)

    async def said(**more: Any) -> list[tuple[Any, ...]]:
        return [(step.ids, step.finish) for step in await steps(replayed, Generation([0], **more))]

    assert await said(max_tokens=2) == [((0, 1), "length")]
    assert await said(max_tokens=3) == [((0, 1, 5), "length")]
    assert await said(max_tokens=4) == [((0, 1, 5), None), ((0,), "length")]
    assert await said(stop_ids=(1,)) == [((0, 1), "stop")]
    assert await said(max_tokens=5) == [((0, 1, 5), None), ((0,), None), ((3,), "stop")]


async def test_what_went_wrong_goes_wrong_again(tmp_path: Path) -> None:
    file = tmp_path / "said.jsonl"
    recorder = Recorder(scripted([[0], EngineError("gone")], [[0], [1], [3]]), file)
    with pytest.raises(EngineError, match="gone"):
        await steps(recorder, Generation([0]))
    running = recorder.generate(Generation([1]))
    await anext(running)
    await running.aclose()
    replayed = RecordedEngine.read(file, pace=0)
    with pytest.raises(EngineError, match="gone"):
        await steps(replayed, Generation([0]))
    with pytest.raises(EngineError, match="aborted when it was made"):
        await steps(replayed, Generation([1]))


async def test_what_was_not_recorded_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "said.jsonl"
    await steps(Recorder(scripted([[0], [3]]), file), Generation([0]))
    with pytest.raises(RequestError, match="logprobs"):
        RecordedEngine.read(file).generate(Generation([0], logprobs=0))


async def test_the_pace_is_kept(tmp_path: Path) -> None:
    """Not how long it takes, which a busy machine decides, but that it doesn't take less."""
    file = tmp_path / "said.jsonl"
    lines = [{"ids": [0], "at": 0.02}, {"ids": [1], "at": 0.1}, {"ids": [3], "at": 0.1, "finish": "stop"}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    local = Local(tokenizer=write_tokenizer(tmp_path))
    for pace, least in ((None, 0.1), (20.0, 0.1)):
        started = time.monotonic()
        await steps(RecordedEngine.read(file, pace=pace, local=local), Generation([0]))
        assert time.monotonic() - started >= least


async def test_lines_of_ids_alone_are_a_recording(tmp_path: Path) -> None:
    file = tmp_path / "ids.jsonl"
    file.write_text('{"ids": [72, 105]}\n\n{"ids": [33], "finish": "stop"}\n')
    with pytest.raises(EngineError, match="--tokenizer"):
        connect(str(file))
    engine = connect(str(file), local=Local(tokenizer=write_tokenizer(tmp_path)), pace=0)
    assert isinstance(engine, RecordedEngine)
    found = await steps(engine, Generation([1]))
    assert engine.vocabulary.decode([id for step in found for id in step.ids]) == "Hi!"


async def test_a_text_recording(tmp_path: Path) -> None:
    file = tmp_path / "text.jsonl"
    header = {"recording": 1, "text_mode": True, "model": "m"}
    said = [{"prompt_text": "Q", "text": "H"}, {"text": "i", "finish": "stop", "spent": [3, 2]}]
    file.write_text("".join(json.dumps(line) + "\n" for line in (header, *said)))
    engine = connect(str(file), "recording", pace=0)
    assert not engine.abilities.token_ids
    found = await steps(engine, Generation([], text="Q"))
    assert [(step.text, step.finish) for step in found] == [("H", None), ("i", "stop")]
    again = tmp_path / "again.jsonl"
    assert await steps(Recorder(engine, again), Generation([], text="Q")) == found
    assert await steps(connect(str(again), "recording", pace=0), Generation([], text="Q")) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no generation"),
        ('{"recording": 1}\n', "holds no generation"),
        ('{"recording": 2}\n{"ids": [1]}\n', "version 2"),
        ('{"ids": [1]}\nnonsense\n', "line 2"),
        ('{"ids": "one"}\n', "line 1"),
    ],
)
def test_what_is_no_recording(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(text)
    with pytest.raises(EngineError, match=message):
        RecordedEngine.read(file)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="can't be read"):
        RecordedEngine.read(tmp_path / "nothing")
    with pytest.raises(EngineError, match="can't record"):
        Recorder(scripted([[0]]), tmp_path / "no" / "folder")


def test_a_recording_that_is_not_there_is_no_host(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"said\.jsonl: can't be read"):
        connect(str(tmp_path / "said.jsonl"))
