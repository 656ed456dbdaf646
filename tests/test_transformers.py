"""The logits processor in a real `generate`: a model with random weights, which would write anything."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import torch
import transformers
from sampling import Sampler, sampler
from test_closed_loop import SCHEMAS, TOOLS

import unbraid
from unbraid.grammar.build import Structured
from unbraid.transformers import GateLogitsProcessor

WORDS = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}


@pytest.fixture(scope="module")
def it() -> Sampler:
    return sampler("qwen3")


@pytest.fixture(scope="module")
def model(it: Sampler) -> Any:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = transformers.LlamaConfig(
        vocab_size=it.size + 7, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        max_position_embeddings=1024, eos_token_id=it.end, pad_token_id=it.end,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def generate(
    model: Any, it: Sampler, prompts: list[str], wishes: dict[str, Any], **how: Any
) -> list[tuple[list[int], list[int]]]:
    """Prompts and outputs, as ids without filling and end token."""
    ids = [it.vocabulary.encode(prompt) for prompt in prompts]
    width = max(map(len, ids))
    filled = torch.tensor([[it.end] * (width - len(row)) + row for row in ids])
    processor = GateLogitsProcessor.of_request(it.bound, end_ids=[it.end], pad_id=it.end, **wishes)
    torch.manual_seed(1)
    found = model.generate(
        filled, attention_mask=(filled != it.end).long(), logits_processor=[processor], max_new_tokens=80, **how
    )
    each = len(found) // len(ids)
    return [(ids[n // each], [id for id in row[width:].tolist() if id != it.end]) for n, row in enumerate(found)]


def parse(it: Sampler, prompt: list[int], output: list[int]) -> unbraid.Message:
    return unbraid.parse(it.bound, output, tools=TOOLS, prompt=prompt, thinking=True)


OPEN = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n"
SHORT = "<|im_start|>assistant\n<think>\n"


def test_a_thought_is_had_where_there_must_be_one(model: Any, it: Sampler) -> None:
    """A model that would rather close its thought than say a word, as often as it is asked."""
    end = it.vocabulary.special["</think>"]
    bias = {"sequence_bias": [[[end], 1000.0]]}
    for must_think in (False, True):
        wishes = {"tools": TOOLS, "tool_choice": "required", "parallel": False, "must_think": must_think}
        for prompt, output in generate(model, it, [OPEN, SHORT], wishes, do_sample=True, **bias):
            assert output.index(end) == must_think
            assert bool(parse(it, prompt, output).reasoning) == must_think


@pytest.mark.parametrize(
    "how", [{"do_sample": True}, {"do_sample": True, "num_beams": 3}, {"num_beams": 3, "num_return_sequences": 2}]
)
def test_forced_calls_behind_a_budget(model: Any, it: Sampler, how: dict[str, Any]) -> None:
    wishes = {
        "tools": TOOLS,
        "tool_choice": {"type": "function", "function": {"name": "ping"}},
        "parallel": False,
        "budget": 9,
    }
    for prompt, output in generate(model, it, [OPEN, SHORT], wishes, **how):
        message = parse(it, prompt, output)
        assert [call.name for call in message.tool_calls] == ["ping"]
        assert message.reasoning
        assert message.content is None
        jsonschema.validate(json.loads(message.tool_calls[0].arguments), SCHEMAS["ping"])


def test_structured_output(model: Any, it: Sampler) -> None:
    wishes = {"structured": Structured(json_schema=WORDS), "budget": 5, "thinking": True}
    for prompt, output in generate(model, it, [OPEN, SHORT] * 2, wishes, do_sample=True):
        message = parse(it, prompt, output)
        assert message.content is not None
        jsonschema.validate(json.loads(message.content), WORDS)


def test_what_cannot_be_enforced_is_refused_first(it: Sampler) -> None:
    with pytest.raises(unbraid.SchemaError, match="not"):
        GateLogitsProcessor.of_request(it.bound, end_ids=[it.end], structured=Structured(json_schema={"not": {}}))


def test_a_processor_is_for_one_call(it: Sampler) -> None:
    processor = GateLogitsProcessor.of_request(it.bound, end_ids=[it.end], tools=TOOLS)
    scores = torch.zeros(1, it.size)
    prompt = it.vocabulary.encode(OPEN)
    processor(torch.tensor([[*prompt]]), scores)
    processor(torch.tensor([[*prompt, 65]]), scores)
    with pytest.raises(unbraid.EngineError, match="one processor"):
        processor(torch.tensor([[*prompt, 66, 66]]), scores)
