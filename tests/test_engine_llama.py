"""The embedded engine on the real default model (fetched once into the cache), small contexts, short replies."""

from __future__ import annotations

import asyncio
import math
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("xllamacpp")

from unbraid.chat_template import ChatTemplate  # noqa: E402
from unbraid.engines import llama_api  # noqa: E402
from unbraid.engines.base import Generation, Step  # noqa: E402
from unbraid.engines.llama import LlamaEngine, _cut  # noqa: E402
from unbraid.engines.model import default_model  # noqa: E402
from unbraid.errors import EngineError, RequestError  # noqa: E402
from unbraid.vocabulary import Vocabulary  # noqa: E402

CONTEXT = 256


@pytest.fixture(scope="session")
def engine() -> Iterator[LlamaEngine]:
    engine = LlamaEngine(default_model(), context=CONTEXT, parallel=3)
    yield engine
    engine.close_now()


@pytest.fixture(scope="session")
def france(engine: LlamaEngine) -> list[int]:
    return prompt(engine, "What is the capital of France?")


def prompt(engine: LlamaEngine, text: str) -> list[int]:
    template = ChatTemplate(engine.chat_template or "", engine.special_tokens)
    return engine.tokenize(template.render([{"role": "system", "content": "Hi."}, {"role": "user", "content": text}]))


async def _each(reads: AsyncGenerator[Sequence[Step], None]) -> AsyncGenerator[Step, None]:
    async for steps in reads:
        for step in steps:
            yield step


async def collect(reads: AsyncGenerator[Sequence[Step], None]) -> tuple[list[int], str | None]:
    """All ids, and why it ended."""
    ids: list[int] = []
    finish = None
    async for steps in reads:
        for step in steps:
            assert finish is None, "a step after the last one"
            ids += step.ids
            finish = step.finish
    return ids, finish


async def until_idle(engine: LlamaEngine) -> None:
    deadline = time.monotonic() + 20
    while engine._running:
        assert time.monotonic() < deadline, "the worker never came to rest"
        await asyncio.sleep(0.01)


# -- what the model is -------------------------------------------------------------------------------------------------


def test_what_the_file_says(engine: LlamaEngine) -> None:
    assert engine.model == "SmolLM2-135M-Instruct.Q4_1"
    assert engine.format_hint == engine.names[0] == engine.model
    assert "smollm2" in engine.names
    assert engine.context_length == CONTEXT
    assert engine.metadata("general.architecture") == "llama"
    assert engine.metadata("no.such.key") is None
    assert engine.special_tokens["bos_token"] == "<|im_start|>"
    assert engine.special_tokens["eos_token"] == "<|im_end|>"
    assert engine.vocabulary.special["<|im_end|>"] in engine.end_ids
    assert "<|im_start|>" in (engine.chat_template or "")
    assert engine.bos is None


def test_the_vocabulary_has_the_bytes_of_every_token(engine: LlamaEngine) -> None:
    vocabulary = engine.vocabulary
    assert len(vocabulary) == 49152
    assert vocabulary.special["<|im_start|>"] == 1
    assert 1 in vocabulary.control
    for text in ("Hello, world!", "  two\n\nlines\t", "Grüße, 世界 🧶", '{"a": [1, 2]}'):
        ids = engine.tokenize(text)
        assert b"".join(vocabulary.tokens[id] for id in ids).decode() == text
        assert vocabulary.encode(text) == ids


def test_special_spellings_become_ids_only_if_asked(engine: LlamaEngine) -> None:
    text = "a<|im_end|>b"
    assert 2 in engine.tokenize(text)
    plain = engine.tokenize(text, special=False)
    assert 2 not in plain
    assert engine.vocabulary.decode(plain) == text
    assert engine.tokenize("") == []


def test_a_cut_leaves_no_spelling_whole() -> None:
    assert _cut("a<think>b<think>", ["<think>"]) == ["a<", "think>b<", "think>"]
    assert _cut("aaa", ["aa"]) == ["a", "a", "a"]
    assert _cut("", ["<think>"]) == []
    assert _cut("plain", ["x"]) == ["plain"]


def test_added_tokens_that_are_not_control(tmp_path: Path) -> None:
    """As `<think>` in the files of Qwen: here a control token of the default model is made one."""
    path = tmp_path / "patched.gguf"
    path.write_bytes(default_model().read_bytes())
    with path.open("r+b") as file:
        _seek_token_types(file)
        file.seek(4 * 3, 1)
        assert struct.unpack("<i", file.read(4)) == (3,)  # control ...
        file.seek(-4, 1)
        file.write(struct.pack("<i", 4))  # ... becomes user-defined
    engine = LlamaEngine(path, context=64, parallel=1)
    try:
        spelling = engine.vocabulary.tokens[3].decode()
        assert engine.vocabulary.special[spelling] == 3
        assert 3 not in engine.vocabulary.control
        assert 2 in engine.vocabulary.control
        text = f"a {spelling} b"
        assert 3 in engine.tokenize(text)
        plain = engine.tokenize(text, special=False)
        assert 3 not in plain
        assert engine.vocabulary.decode(plain) == text
    finally:
        engine.close_now()


def _seek_token_types(file: BinaryIO) -> None:
    """To the first element of `tokenizer.ggml.token_type`."""
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def number(format: str) -> int:
        value: int = struct.unpack(format, file.read(struct.calcsize(format)))[0]
        return value

    def skip(kind: int) -> None:
        if kind == 8:
            file.seek(number("<Q"), 1)
        elif kind == 9:
            inner, count = number("<I"), number("<Q")
            for _ in range(count if inner in (8, 9) else 0):
                skip(inner)
            file.seek(0 if inner in (8, 9) else count * sizes[inner], 1)
        else:
            file.seek(sizes[kind], 1)

    file.seek(16)
    for _ in range(number("<Q")):
        key = file.read(number("<Q"))
        kind = number("<I")
        if key == b"tokenizer.ggml.token_type":
            file.seek(12, 1)
            return
        skip(kind)
    raise AssertionError("no token types")


# -- generating --------------------------------------------------------------------------------------------------------


async def test_it_answers_and_stops(engine: LlamaEngine, france: list[int]) -> None:
    asked = Generation(france, temperature=0)
    steps = [step async for steps in engine.generate(asked) for step in steps]
    assert all(len(step.ids) == 1 for step in steps)
    assert [step.finish for step in steps[:-1]] == [None] * (len(steps) - 1)
    assert steps[-1].finish == "stop"
    assert steps[-1].ids[0] in engine.end_ids
    assert "Paris" in engine.vocabulary.decode(id for step in steps for id in step.ids)


async def test_greedy_output_does_not_depend_on_what_else_runs(engine: LlamaEngine, france: list[int]) -> None:
    wanted = Generation(france, temperature=0, max_tokens=24, ignore_eos=True)
    alone = await collect(engine.generate(wanted))
    again = await collect(engine.generate(wanted))  # most of the prompt now comes from the cache
    others = [prompt(engine, text) for text in ("Count to ten.", "Name three colours of the rainbow, please.")]
    together = await asyncio.gather(
        *(collect(engine.generate(Generation(other, temperature=1, seed=5, max_tokens=24))) for other in others),
        *(collect(engine.generate(wanted)) for _ in range(3)),
    )
    assert again == alone
    assert together[2:] == [alone] * 3
    assert together[0][0] != together[1][0]


async def test_seeded_output_is_reproducible(engine: LlamaEngine, france: list[int]) -> None:
    async def run(seed: int) -> list[int]:
        return (await collect(engine.generate(Generation(france, temperature=1.5, seed=seed, max_tokens=12))))[0]

    assert await run(1) == await run(1)
    assert len({tuple(await run(seed)) for seed in range(4)}) > 1


async def test_requests_stream_side_by_side(engine: LlamaEngine, france: list[int]) -> None:
    order: list[int] = []

    async def read(number: int) -> None:
        async for steps in engine.generate(Generation(france, temperature=0, max_tokens=20, ignore_eos=True)):
            order.extend(number for _ in steps)

    await asyncio.gather(read(0), read(1))
    assert order.count(0) == order.count(1) == 20
    first_ends = min(len(order) - 1 - order[::-1].index(number) for number in (0, 1))
    assert len(set(order[: first_ends // 2])) == 2, "one waited for the other"


async def test_more_requests_than_slots(engine: LlamaEngine, france: list[int]) -> None:
    ended: list[int] = []

    async def read(number: int) -> None:
        ids, finish = await collect(engine.generate(Generation(france, max_tokens=4, ignore_eos=True)))
        assert (len(ids), finish) == (4, "length")
        ended.append(number)

    await asyncio.gather(*(read(number) for number in range(7)))
    assert sorted(ended) == list(range(7))
    assert set(ended[:3]) == {0, 1, 2}, "who came first was served later"


async def test_the_event_loop_goes_on(engine: LlamaEngine) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    turning = asyncio.create_task(turn())
    long = engine.tokenize("word " * 150)
    await collect(engine.generate(Generation(long, max_tokens=2, ignore_eos=True)))
    turning.cancel()
    assert turns > 20


class Recorder:
    """A constraint that only counts, or forces what it is told to."""

    def __init__(self, masks: Sequence[Any] = ()) -> None:
        self.masks = list(masks)
        self.accepted: list[int] = []

    def mask(self) -> Any:
        at = len(self.accepted)
        mask = self.masks[at] if at < len(self.masks) else None
        if isinstance(mask, Exception):
            raise mask
        return mask

    def accept(self, id: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.accepted.append(id)


async def test_a_client_that_leaves_frees_its_slot(engine: LlamaEngine, france: list[int]) -> None:
    seen = Recorder()
    steps = engine.generate(Generation(france, max_tokens=200, ignore_eos=True, constraint=seen))
    for _ in range(3):
        await anext(steps)
    await steps.aclose()
    left_at = len(seen.accepted)
    await until_idle(engine)
    assert len(seen.accepted) <= left_at + 2, "it went on generating"
    assert (await collect(engine.generate(Generation(france, max_tokens=1))))[1] == "length"


async def test_a_client_that_leaves_while_waiting(engine: LlamaEngine, france: list[int]) -> None:
    wanted = Generation(france, max_tokens=40, ignore_eos=True)
    running = [asyncio.create_task(collect(engine.generate(wanted))) for _ in range(4)]
    await asyncio.sleep(0.1)
    running[3].cancel()
    with pytest.raises(asyncio.CancelledError):
        await running[3]
    assert [finish for _, finish in await asyncio.gather(*running[:3])] == ["length"] * 3


async def test_an_iterator_that_is_never_started_costs_nothing(engine: LlamaEngine, france: list[int]) -> None:
    await until_idle(engine)
    steps = engine.generate(Generation(france))
    await steps.aclose()
    assert not engine._running


async def test_log_probabilities_are_the_models_distribution(engine: LlamaEngine, france: list[int]) -> None:
    size = len(engine.vocabulary)
    asked = Generation(france, temperature=0, max_tokens=2, logprobs=size, logit_bias={504: -100})
    async for step in _each(engine.generate(asked)):
        (chosen,) = step.logprobs
        assert chosen.id == step.ids[0] != 504
        assert chosen.bytes == engine.vocabulary.tokens[chosen.id]
        assert chosen.logprob <= chosen.top[0].logprob
        assert [other.logprob for other in chosen.top] == sorted((o.logprob for o in chosen.top), reverse=True)
        assert math.fsum(math.exp(other.logprob) for other in chosen.top) == pytest.approx(1, abs=1e-9)
    # The bias changed the choice, not what the model thinks: "The" (504) is still its first.
    (first,) = (await anext(_each(engine.generate(asked)))).logprobs
    assert first.top[0].id == 504


@pytest.mark.parametrize(("logprobs", "tops"), [(None, None), (0, 0), (3, 3)])
async def test_as_many_alternatives_as_asked(
    engine: LlamaEngine, france: list[int], logprobs: int | None, tops: int | None
) -> None:
    asked = Generation(france, temperature=0, max_tokens=1, logprobs=logprobs)
    step = await anext(_each(engine.generate(asked)))
    assert [len(chosen.top) for chosen in step.logprobs] == ([] if tops is None else [tops])


async def test_limits(engine: LlamaEngine, france: list[int]) -> None:
    for limit in (0, 1, 3):
        ids, finish = await collect(engine.generate(Generation(france, max_tokens=limit, temperature=0)))
        assert (len(ids), finish) == (limit, "length")
    nearly_full = engine.tokenize("word " * 400)[: CONTEXT - 3]
    ids, finish = await collect(engine.generate(Generation(nearly_full, ignore_eos=True, max_tokens=50)))
    assert (len(ids), finish) == (3, "length")


async def test_stop_ids_end_it_and_are_shown(engine: LlamaEngine, france: list[int]) -> None:
    capital = engine.tokenize(" capital")[0]
    ids, finish = await collect(engine.generate(Generation(france, temperature=0, stop_ids=(capital,))))
    assert ids[-1] == capital
    assert finish == "stop"
    assert len(ids) == 2


async def test_the_end_can_be_ignored(engine: LlamaEngine, france: list[int]) -> None:
    ids, finish = await collect(engine.generate(Generation(france, temperature=0, ignore_eos=True, max_tokens=16)))
    assert engine.end_ids & set(ids[:-1])
    assert (len(ids), finish) == (16, "length")


async def test_bias_and_penalties(engine: LlamaEngine, france: list[int]) -> None:
    comma = engine.tokenize(",")[0]
    forced, _ = await collect(engine.generate(Generation(france, logit_bias={comma: 100.0}, max_tokens=4)))
    assert forced == [comma] * 4
    once, _ = await collect(
        engine.generate(
            Generation(france, temperature=0, logit_bias={comma: 30.0}, max_tokens=40, frequency_penalty=2.0)
        )
    )
    assert once.count(comma) < 40


# -- a constraint ------------------------------------------------------------------------------------------------------


def booleans(size: int, ids: Sequence[int]) -> Any:
    mask = np.zeros(size, dtype=bool)
    mask[list(ids)] = True
    return mask


def words(size: int, ids: Sequence[int]) -> Any:
    packed = np.packbits(np.pad(booleans(size, ids), (0, -size % 32)), bitorder="little")
    return packed.view(np.int32)


@pytest.mark.parametrize("form", [booleans, words, lambda size, ids: words(size, ids).reshape(1, -1).view(np.uint32)])
async def test_a_constraint_decides(engine: LlamaEngine, france: list[int], form: Any) -> None:
    wanted = engine.tokenize(" purple monkey dishwasher")
    size = len(engine.vocabulary)
    constraint = Recorder([form(size, [id, 2]) if at == 0 else form(size, [id]) for at, id in enumerate(wanted)])
    asked = Generation(france, logit_bias={2: -100}, max_tokens=len(wanted), constraint=constraint)
    ids, _ = await collect(engine.generate(asked))
    assert ids == wanted == constraint.accepted


async def test_a_short_mask_forbids_the_rest(engine: LlamaEngine, france: list[int]) -> None:
    constraint = Recorder([booleans(300, [290])])
    ids, _ = await collect(engine.generate(Generation(france, temperature=0, max_tokens=1, constraint=constraint)))
    assert ids == [290]


async def test_no_mask_allows_everything(engine: LlamaEngine, france: list[int]) -> None:
    free = await collect(engine.generate(Generation(france, temperature=0)))
    assert await collect(engine.generate(Generation(france, temperature=0, constraint=Recorder()))) == free


@pytest.mark.parametrize("mask", [np.zeros(10, dtype=bool), ValueError("the grammar broke"), np.zeros(10)])
async def test_a_broken_constraint_ends_its_own_request_only(engine: LlamaEngine, france: list[int], mask: Any) -> None:
    broken = Generation(france, max_tokens=9, constraint=Recorder([None, mask]))
    good = asyncio.create_task(collect(engine.generate(Generation(france, temperature=0))))
    with pytest.raises((EngineError, ValueError)) as caught:
        await collect(engine.generate(broken))
    assert str(caught.value)
    assert (await good)[1] == "stop"


# -- what can't be served ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        (Generation([]), "prompt"),
        (Generation([1, 49152]), "prompt"),
        (Generation([-1]), "prompt"),
        (Generation([1] * CONTEXT), "prompt"),
        (Generation([1], temperature=-1), "temperature"),
        (Generation([1], temperature=float("nan")), "temperature"),
        (Generation([1], top_p=1.5), "top_p"),
        (Generation([1], logit_bias={49152: 1.0}), "logit_bias"),
    ],
)
async def test_a_request_that_cannot_be_served_is_told_at_once(
    engine: LlamaEngine, asked: Generation, param: str
) -> None:
    with pytest.raises(RequestError) as caught:
        engine.generate(asked)
    assert caught.value.param == param


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no such file"):
        LlamaEngine(tmp_path / "missing.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(EngineError, match="can't load it"):
        LlamaEngine(tmp_path / "bad.gguf")


def test_another_version_of_the_library_is_refused() -> None:
    with pytest.raises(EngineError, match=llama_api.VERSION):
        llama_api.check_version("2020.1.1")
    with pytest.raises(EngineError, match=llama_api.VERSION):
        llama_api.check_defaults(llama_api.ContextParams(n_batch=512))


async def test_closing_ends_what_runs() -> None:
    engine = LlamaEngine(default_model(), name="mine", context=128, parallel=1, sampling={"temperature": 0})
    assert engine.model == "mine"
    asked = Generation(engine.tokenize("One, two,"), max_tokens=3)
    assert await collect(engine.generate(asked)) == await collect(engine.generate(replace(asked, temperature=0)))
    asked = Generation(engine.tokenize("Once"), ignore_eos=True)
    running = [asyncio.create_task(collect(engine.generate(asked))) for _ in range(2)]  # one waits
    late = engine.generate(asked)
    await asyncio.sleep(0.05)
    await engine.close()
    for task in running:
        with pytest.raises(EngineError, match="closed"):
            await task
    with pytest.raises(EngineError, match="closed"):
        await anext(late)
    with pytest.raises(EngineError, match="closed"):
        engine.tokenize("x")
    await engine.close()


AT_EXIT = """
import asyncio, sys
from unbraid.engines.base import Generation
from unbraid.engines.llama import LlamaEngine
from unbraid.engines.model import default_model

async def main():
    engine = LlamaEngine(default_model(), context=2048, parallel=2)
    asked = Generation(engine.tokenize("Once upon a time"), ignore_eos=True)
    steps = engine.generate(asked)
    await anext(steps)
    return engine, steps

if sys.argv[1] == "open":
    kept = asyncio.new_event_loop().run_until_complete(main())  # the loop isn't even closed
else:
    asyncio.run(main())
print("done")
"""


@pytest.mark.parametrize("loop", ["open", "closed"])
@pytest.mark.filterwarnings("ignore")
def test_no_crash_at_exit(loop: str) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", AT_EXIT, loop], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    assert "ggml" not in done.stderr + done.stdout
    assert "llama_" not in done.stderr
    assert time.monotonic() - started < 20


def test_the_file_alone_tells_the_same_tokens(engine: LlamaEngine) -> None:
    """An engine elsewhere is read with the vocabulary of its GGUF, without loading it."""
    read = Vocabulary.from_file(default_model())
    assert dict(read.tokens) == dict(engine.vocabulary.tokens)
    assert read.special == engine.vocabulary.special
    assert read.control == engine.vocabulary.control
