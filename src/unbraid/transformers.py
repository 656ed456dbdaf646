"""A logits processor for Hugging Face `generate`: the gate, with a grammar of the format if one is wanted.

    from transformers import AutoModelForCausalLM, AutoTokenizer
    from unbraid.transformers import GateLogitsProcessor

    bound = unbraid.get_format("qwen3").bind(unbraid.Vocabulary.from_huggingface(tokenizer))
    processor = GateLogitsProcessor.of_request(bound, tools=tools, tool_choice="required", end_ids=[tokenizer.eos_token_id])
    model.generate(**inputs, logits_processor=[processor])

Needs the extra `transformers`. A processor serves one call of `generate`: make a new one for the next. Sampling, several sequences
and beams work: each sequence has a gate of its own, and a beam that goes on from another takes a copy of that one's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from unbraid.boundary import BoundFormat
from unbraid.errors import EngineError
from unbraid.gate import Gate, Matcher
from unbraid.grammar import lark
from unbraid.grammar.build import Structured, build
from unbraid.matchers import LlguidanceMatcher, llguidance_tokenizer
from unbraid.schema import Tools
from unbraid.table import State


class GateLogitsProcessor(LogitsProcessor):  # type: ignore[misc]
    """`gate` makes the gate of one sequence from its prompt's ids; its `stop_ids` are those at which `generate` stops. `pad_id`: what fills shorter prompts up on the left."""

    supports_continuous_batching = False

    def __init__(self, gate: Callable[[Sequence[int]], Gate], *, pad_id: int | None = None) -> None:
        self._make = gate
        self._pad = pad_id
        self._prompt = 0
        """Length of the prompts, filling included."""
        self._gates: list[Gate] = []

    @classmethod
    def of_request(
        cls,
        bound: BoundFormat,
        *,
        end_ids: Collection[int],
        tools: Sequence[Mapping[str, Any]] | None = None,
        tool_choice: Any = "auto",
        parallel: bool = True,
        structured: Structured | None = None,
        thinking: bool | None = None,
        budget: int | None = None,
        must_think: bool = False,
        pad_id: int | None = None,
    ) -> GateLogitsProcessor:
        """What a request to the server would get: its grammar, enforced by llguidance from the end of reasoning on.

        `end_ids`: the model's end-of-turn tokens. `thinking`: the switch that the chat template was given. `budget`: tokens of
        reasoning. `must_think`: unless the prompt has ended reasoning there is some, and not only white space. Raises `SchemaError`,
        `GrammarError` for what can't be enforced, before anything is generated.
        """
        offered = Tools.resolve(tools)
        index = llguidance_tokenizer(bound.vocabulary, end_ids)
        ready: dict[State, Matcher] = {}

        def matcher(state: State) -> Matcher:
            if state not in ready:
                tree = build(
                    bound.format,
                    tools=offered,
                    tool_choice=tool_choice,
                    parallel=parallel,
                    structured=structured,
                    must_think=must_think,
                    state=state,
                )
                ready[state] = LlguidanceMatcher(index, lark.write(tree, bound.vocabulary))
            return ready[state].fork()

        def gate(prompt: Sequence[int]) -> Gate:
            return Gate(
                bound, prompt, matcher(bound.state_at(prompt, thinking)), reasoning=thinking, budget=budget, must_think=must_think,
                tools=offered, mode="framed" if bound.format.frames else "strict", stop_ids=end_ids,
            )  # fmt: skip

        matcher(bound.state_at((), thinking))  # what can't be enforced is refused now
        return cls(gate, pad_id=pad_id)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.Tensor) -> torch.Tensor:
        rows: list[list[int]] = input_ids.tolist()
        if not self._gates:
            self._prompt = len(rows[0])
            self._gates = [self._make(self._unfilled(row)) for row in rows]
        else:
            self._advance([row[self._prompt :] for row in rows])
        width = scores.shape[-1]
        mask = np.empty((1, (width + 31) // 32), dtype=np.int32)
        for row, gate in enumerate(self._gates):
            if _finished(gate) or not gate.restricts:
                continue
            gate.fill(mask)
            allowed = np.unpackbits(mask[0].view(np.uint8), bitorder="little")[:width].astype(bool)
            scores[row].masked_fill_(~torch.from_numpy(allowed).to(scores.device), -torch.inf)
        return scores

    def _unfilled(self, row: list[int]) -> list[int]:
        start = next((at for at, id in enumerate(row) if id != self._pad), len(row))
        return row[start:]

    def _advance(self, outputs: list[list[int]]) -> None:
        """Give each sequence the gate of the one that it goes on from, and its newest token."""
        before, taken = self._gates, set()
        self._gates = []
        for row, output in enumerate(outputs):
            source = self._source(before, row, output[:-1])
            gate = before[source] if source not in taken else None
            taken.add(source)
            self._gates.append(before[source].fork() if gate is None else gate)
        for gate, output in zip(self._gates, outputs, strict=True):
            if not _finished(gate) and not gate.advance(output[-1:]).accepted:
                raise EngineError(f"the grammar refuses token {output[-1]}, which the mask had allowed")

    @staticmethod
    def _source(gates: Sequence[Gate], row: int, output: Sequence[int]) -> int:
        """Which sequence had this output so far: the one in the same row, unless beams were exchanged."""
        at: int
        for at in (row, *range(len(gates))):
            if gates[at].ids == tuple(output[: len(gates[at].ids)]) and (
                len(gates[at].ids) == len(output) or _finished(gates[at])
            ):
                return at
        raise EngineError("the sequences don't go on from those before: use one processor for one call of generate")


def _finished(gate: Gate) -> bool:
    """Whether the sequence is over: what comes now is filling."""
    return bool(gate.ids) and gate.ids[-1] in gate.stop_ids


__all__ = ["GateLogitsProcessor"]
