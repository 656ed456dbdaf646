"""A logits processor for a real vLLM: it writes the ids that a request tells it, whatever the model would have said.

    vllm ... --logits-processors replay:Replay        (with this directory on PYTHONPATH)
    {"prompt": [...], "vllm_xargs": {"replay": "1,2,3"}, ...}

So vLLM's own scheduler, sampler, detokeniser and server-sent events run on output that a test knows. Lists for the choices of one
request are parted by `;`: vLLM seeds choices with neighbouring numbers, which tell them apart. What a grammar forbids isn't forced:
there the model goes on by itself, under the grammar.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.sample.logits_processor import LogitsProcessor


class Replay(LogitsProcessor):
    """One instance per worker; `told` maps a row of the batch to its ids and to the live list of its output."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        self.told: dict[int, tuple[list[int], list[int]]] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        """Rows come, go and change places."""
        if batch_update is None:
            return
        for row in batch_update.removed:
            self.told.pop(row, None)
        for row, params, _prompt, output in batch_update.added:
            ids = (params.extra_args or {}).get("replay")
            self.told.pop(row, None)
            if ids:
                lists = ids.split(";")
                chosen = lists[(params.seed or 0) % len(lists)]
                self.told[row] = ([int(id) for id in chosen.split(",")], output)
        for one, other, direction in batch_update.moved:
            first, second = self.told.pop(one, None), self.told.pop(other, None)
            if first is not None:
                self.told[other] = first
            if second is not None and direction.name == "SWAP":
                self.told[one] = second

    def apply(self, logits: Any) -> Any:
        """Nothing but the next id is possible."""
        forbidden = float("-inf")
        for row, (ids, output) in list(self.told.items()):
            if len(output) >= len(ids):
                continue
            if logits[row, ids[len(output)]] == forbidden:
                del self.told[row]
                continue
            logits[row].fill_(forbidden)
            logits[row, ids[len(output)]] = 0.0
        return logits
