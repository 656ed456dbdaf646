"""Hidden reasoning: nothing of it reaches the client, in any API, from any engine, and nothing else changes (`leaking.py`)."""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine
from leaking import CASES, SETTINGS, TEMPLATE, THOROUGH, VARIANTS, Case, keeps_the_secret, received, scripted

from unbraid.engines.base import Engine, Generation
from unbraid.engines.connect import DIALECTS
from unbraid.engines.profile import EMPTY, Profile
from unbraid.engines.recording import RecordedEngine, Recorder
from unbraid.engines.remote import RemoteEngine
from unbraid.server import create_app


def test_there_are_formats_enough() -> None:
    assert len({case.format for case in CASES}) > 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format)
async def test_nothing_leaks_and_nothing_else_changes(case: Case) -> None:
    app = create_app(scripted(case), case.format, SETTINGS)
    turn = CASES.index(case)
    for number in range(len(VARIANTS)):
        if case.format in THOROUGH or number % 3 == turn % 3:
            await keeps_the_secret(app, case, number)


# Other engines: the kind of format shouldn't matter to them, so a few of them stand for all.

FORMATS = ("qwen3", "harmony", "deepseek_r1", "glm45", "minimax_m3")
"""JSON in tags, channels, one without calls of its own kind, key and value tags, XML."""
ENGINES = ("recording", "vllm", "vllm-tokens", "sglang", "sglang, cumulative", "llama", "completions")


@asynccontextmanager
async def engine_of(kind: str, case: Case, folder: Path) -> AsyncIterator[Engine]:
    """An engine that says what the case has, over a real socket or from a file."""
    if kind == "recording":
        recorder = Recorder(scripted(case), folder / "said.jsonl")
        async for _ in recorder.generate(Generation(case.tokens.encode(case.prompt), logprobs=1)):
            pass
        await recorder.close()
        yield RecordedEngine.read(folder / "said.jsonl", pace=0, burst=3)
        return
    kind, _, cumulative = kind.partition(", ")
    text_mode = kind == "completions"
    steps: list[Any] = texts(case) if text_mode else [[id] for id in case.ids]
    async with FakeEngine(kind, steps, cumulative=bool(cumulative)) as fake:
        vocabulary = case.tokens.vocabulary
        profile = Profile(
            "tiny",
            "tiny",
            EMPTY if text_mode else vocabulary,
            lambda text, special: vocabulary.encode(text, special=special),
            chat_template=TEMPLATE,
        )
        engine = RemoteEngine(fake.url, DIALECTS[kind], profile)
        yield engine
        await engine.close()


def texts(case: Case) -> list[str]:
    """As a server in text mode says them: characters that are whole."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    pieces = [decoder.decode(case.tokens.vocabulary.bytes_of(id) or b"") for id in case.ids]
    return [piece for piece in pieces if piece]


def asks_for_spans(number: int) -> bool:
    return any(VARIANTS[number][1].get(wish) for wish in ("logprobs", "include"))


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("case", [case for case in CASES if case.format in FORMATS], ids=lambda case: case.format)
async def test_nothing_leaks_from_any_engine(kind: str, case: Case, tmp_path: Path) -> None:
    async with engine_of(kind, case, tmp_path) as engine:
        app = create_app(engine, case.format, SETTINGS)
        for number in range(len(VARIANTS)):
            if engine.abilities.token_ids or not asks_for_spans(number):
                await keeps_the_secret(app, case, number)


async def test_a_stop_string_fires_where_it_would_have_fired_with_the_thought_shown() -> None:
    case = CASES[-1]
    for shown in ({}, {"include_reasoning": False}):
        app = create_app(scripted(case), case.format, SETTINGS)
        body = json.loads(await received(app, case, "chat", stop="END", **shown))
        assert body["choices"][0]["message"]["content"].endswith("END then that.")
        assert body["choices"][0]["finish_reason"] == "stop"
        assert "stop_reason" not in body["choices"][0]
