"""From logits to one id: the sampling settings of a request, in numpy.

The order is vLLM's: penalties and bias, the constraint's mask, temperature, then top-k, top-p, min-p. Log-probabilities
are the model's own distribution: natural logarithms, before any of that. Everything here is deterministic, given the
logits and a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unbraid.engines.base import Generation
from unbraid.errors import EngineError, RequestError

if TYPE_CHECKING:
    from unbraid.engines.base import Mask

Logits = NDArray[np.float32]

_HEAD = 1024  # sorting a whole vocabulary costs milliseconds, and nearly always the mass is in its head


class Sampler:
    """One request's way of choosing. `defaults` are what the model recommends where the request says nothing."""

    def __init__(self, generation: Generation, n_vocab: int, defaults: Mapping[str, float] | None = None) -> None:
        known = {"temperature": 1.0, "top_p": 1.0, "top_k": 0.0, "min_p": 0.0, **(defaults or {})}
        asked = {name: getattr(generation, name) for name in known}
        chosen = {name: known[name] if asked[name] is None else asked[name] for name in known}
        self.temperature = _within("temperature", chosen["temperature"], 0.0, 100.0)
        self.top_p = _within("top_p", chosen["top_p"], 0.0, 1.0)
        self.min_p = _within("min_p", chosen["min_p"], 0.0, 1.0)
        self.top_k = max(0, int(chosen["top_k"]))
        self.frequency_penalty = _within("frequency_penalty", generation.frequency_penalty or 0.0, -2.0, 2.0)
        self.presence_penalty = _within("presence_penalty", generation.presence_penalty or 0.0, -2.0, 2.0)
        for id in generation.logit_bias:
            if not 0 <= id < n_vocab:
                raise RequestError(f"logit_bias: the model has no token {id}", param="logit_bias")
        self._bias_ids = np.array(list(generation.logit_bias), dtype=np.int64)
        self._bias = np.array(list(generation.logit_bias.values()), dtype=np.float32)
        seed = generation.seed
        self._random = np.random.default_rng(None if seed is None else seed % 2**64)
        self._seen: dict[int, int] = {}

    def sample(self, logits: Logits, mask: Mask | None = None) -> int:
        """The next id. `logits` isn't changed."""
        scores = self._modified(logits, mask)
        return int(scores.argmax()) if self.temperature == 0 else self._draw(scores)

    def accept(self, id: int) -> None:
        """`id` is part of the output now: the penalties count it."""
        self._seen[id] = self._seen.get(id, 0) + 1

    def _modified(self, logits: Logits, mask: Mask | None) -> Logits:
        penalised = bool(self._seen) and (self.frequency_penalty != 0 or self.presence_penalty != 0)
        if not penalised and not self._bias_ids.size and mask is None:
            return logits
        scores = logits.copy()
        if penalised:
            ids = np.fromiter(self._seen.keys(), dtype=np.int64)
            counts = np.fromiter(self._seen.values(), dtype=np.float32)
            scores[ids] -= self.frequency_penalty * counts + self.presence_penalty
        scores[self._bias_ids] += self._bias
        if mask is not None:
            scores[~allowed(mask, scores.size)] = -np.inf
            if scores.max() == -np.inf:
                raise EngineError("the constraint allows no token at all here")
        return scores

    def _draw(self, scores: Logits) -> int:
        scaled = scores.astype(np.float64) / self.temperature
        weights = np.exp(scaled - scaled.max())
        total = weights.sum()
        ids = self._candidates(weights, total)
        if ids is not None:
            weights = weights[ids]
        summed = weights.cumsum()
        at = int(np.searchsorted(summed, self._random.random() * summed[-1], side="right"))
        at = min(at, summed.size - 1)
        return at if ids is None else int(ids[at])

    def _candidates(self, weights: NDArray[np.float64], total: float) -> NDArray[np.int64] | None:
        """The ids that may be drawn, likeliest first; None: all."""
        if not self.top_k and self.top_p == 1 and not self.min_p:
            return None
        size = weights.size
        head = min(self.top_k or _HEAD, size)
        ids = _largest(weights, head)
        if self.top_k:
            total = weights[ids].sum()
        if self.min_p:
            floor = self.min_p * weights[ids[0]]
        else:
            floor = 0.0
        # The head has all there is to choose from if it reaches the mass, or falls below the floor.
        enough = self.top_k or (self.top_p < 1 and weights[ids].sum() >= self.top_p * total)
        if not enough and weights[ids[-1]] >= floor:
            ids = _largest(weights, size)
        kept = weights[ids]
        inside = (kept >= floor) & (kept > 0)
        if self.top_p < 1:
            # The token that crosses the line is kept, too: so the first one always is.
            inside[1:] &= kept.cumsum()[:-1] < self.top_p * total
        chosen: NDArray[np.int64] = ids[inside]
        return chosen


def allowed(mask: Mask, n_vocab: int) -> NDArray[np.bool_]:
    """One boolean per id, whichever of the two forms the mask has; ids beyond its end aren't allowed."""
    bits: NDArray[Any] = np.asarray(mask).reshape(-1)
    if bits.dtype.itemsize == 4:
        words = np.ascontiguousarray(bits).view(np.uint32).astype("<u4", copy=False)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(np.bool_)
    elif bits.dtype != np.bool_:
        raise EngineError(f"a constraint's mask is boolean or 32-bit words, not {bits.dtype}")
    missing = n_vocab - bits.size
    return np.pad(bits, (0, missing)) if missing > 0 else bits[:n_vocab]


def log_probabilities(logits: Logits, id: int, top: int) -> tuple[float, list[tuple[int, float]]]:
    """The natural logarithm of the model's probability of `id`, and the `top` likeliest ids with theirs."""
    exact = logits.astype(np.float64)
    peak = exact.max()
    norm = peak + np.log(np.exp(exact - peak).sum())
    best = _largest(exact, min(top, exact.size)) if top else ()
    return float(exact[id] - norm), [(int(other), float(exact[other] - norm)) for other in best]


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """The ids of the `count` largest values, largest first; of equals the lower id first."""
    if count < values.size:
        least = np.partition(values, -count)[-count]
        above = np.flatnonzero(values > least)
        ids = np.concatenate((above, np.flatnonzero(values == least)[: count - above.size]))
    else:
        ids = np.arange(values.size)
    return ids[np.argsort(-values[ids], kind="stable")]


def _within(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise RequestError(f"{name} is {value}, but must be between {low:g} and {high:g}", param=name)
    return float(value)
