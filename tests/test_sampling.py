"""Sampling, against a plain reference."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from unbraid.engines.base import Generation  # noqa: E402
from unbraid.engines.sampling import Sampler, allowed, log_probabilities  # noqa: E402
from unbraid.errors import EngineError, RequestError  # noqa: E402


def logits(*values: float) -> Any:
    return np.array(values, dtype=np.float32)


def drawn(scores: Any, count: int = 200, **settings: Any) -> set[int]:
    sampler = Sampler(Generation([1], seed=7, **settings), scores.size)
    return {sampler.sample(scores) for _ in range(count)}


def reference(scores: Any, temperature: float, top_k: int, top_p: float, min_p: float) -> set[int]:
    """The ids that may be drawn: one filter after the other, by the book."""
    weights = np.exp(scores.astype(float) / temperature - (scores.astype(float) / temperature).max())
    ids = sorted(range(scores.size), key=lambda id: (-weights[id], id))
    if top_k:
        ids = ids[:top_k]
    total, mass = sum(weights[id] for id in ids), 0.0
    nucleus: list[int] = []
    for id in ids:
        if mass >= top_p * total and nucleus and top_p < 1:
            break
        nucleus.append(id)
        mass += weights[id]
    return {id for id in nucleus if weights[id] >= min_p * weights[ids[0]] and weights[id] > 0}


@given(
    st.lists(st.floats(-8, 8, width=16), min_size=1, max_size=3000),
    st.sampled_from([0.3, 1.0, 2.0]),
    st.sampled_from([0, 1, 5, 2000]),
    st.sampled_from([0.0, 0.1, 0.5, 0.95, 1.0]),
    st.sampled_from([0.0, 0.05, 1.0]),
)
def test_candidates_are_those_of_the_reference(
    values: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    scores = logits(*values)
    asked = Generation([1], temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=0)
    sampler = Sampler(asked, scores.size)
    scaled = scores.astype(np.float64) / sampler.temperature
    weights = np.exp(scaled - scaled.max())
    found = sampler._candidates(weights, weights.sum())
    expected = reference(scores, temperature, top_k, top_p, min_p)
    chosen = set(range(scores.size)) if found is None else set(found.tolist())
    # Where sums of floats decide, one id more or less is right.
    assert len(chosen ^ expected) <= 1
    assert sampler.sample(scores) in chosen


def test_a_large_vocabulary_is_not_cut_at_its_head() -> None:
    scores = np.zeros(5000, dtype=np.float32)
    assert max(drawn(scores, 2000, top_p=0.9)) > 2048
    assert max(drawn(scores, 2000, min_p=0.5)) > 2048


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert drawn(logits(0, 3, 3, 1), 3, temperature=0) == {1}


def test_draws_follow_the_distribution() -> None:
    sampler = Sampler(Generation([1], seed=1), 3)
    scores = logits(math.log(0.5), math.log(0.3), math.log(0.2))
    counts = [0, 0, 0]
    for _ in range(10_000):
        counts[sampler.sample(scores)] += 1
    for count, share in zip(counts, (0.5, 0.3, 0.2), strict=True):
        assert count / 10_000 == pytest.approx(share, abs=0.02)


def test_penalties_count_the_output() -> None:
    sampler = Sampler(Generation([1], temperature=0, frequency_penalty=1.0, presence_penalty=0.5), 3)
    scores = logits(2, 1, 0)
    chosen = []
    for _ in range(4):
        chosen.append(sampler.sample(scores))
        sampler.accept(chosen[-1])
    # 2, 1, 0 -> 0.5, 1, 0 -> 0.5, -0.5, 0 -> -0.5, -0.5, 0
    assert chosen == [0, 1, 0, 2]
    assert scores.tolist() == [2, 1, 0]


def test_what_the_model_recommends_holds_where_nothing_is_said() -> None:
    scores = logits(0, 1, 0.9)
    assert Sampler(Generation([1]), 3, {"temperature": 0.0}).sample(scores) == 1
    assert Sampler(Generation([1]), 3, {"top_k": 1.0}).top_k == 1
    assert Sampler(Generation([1], temperature=0.5), 3, {"temperature": 0.0}).temperature == 0.5
    assert Sampler(Generation([1], top_k=-1), 3, {"top_k": 40.0}).top_k == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_mask_forbids(temperature: float) -> None:
    sampler = Sampler(Generation([1], temperature=temperature), 4)
    mask = np.array([False, True, False, False])
    assert {sampler.sample(logits(9, 0, 9, 9), mask) for _ in range(20)} == {1}
    with pytest.raises(EngineError, match="no token"):
        sampler.sample(logits(9, 0, 9, 9), np.zeros(4, dtype=bool))


@given(st.lists(st.booleans(), min_size=1, max_size=100), st.integers(1, 120))
def test_masks_in_both_forms(bits: list[bool], n_vocab: int) -> None:
    expected = (bits + [False] * n_vocab)[:n_vocab]
    assert allowed(np.array(bits), n_vocab).tolist() == expected
    padded = bits + [False] * (-len(bits) % 32)
    packed = np.array(
        [sum(bit << at for at, bit in enumerate(padded[i : i + 32])) for i in range(0, len(padded), 32)], np.uint32
    )
    assert allowed(packed, n_vocab).tolist() == expected
    assert allowed(packed.view(np.int32)[None], n_vocab).tolist() == expected


def test_a_mask_of_another_type() -> None:
    with pytest.raises(EngineError, match="float64"):
        allowed(np.ones(4), 4)


def test_log_probabilities_add_up() -> None:
    scores = logits(*(x / 7 for x in range(50)))
    logprob, top = log_probabilities(scores, 3, 50)
    assert math.fsum(math.exp(each) for _, each in top) == pytest.approx(1, abs=1e-12)
    assert [id for id, _ in top] == list(range(49, -1, -1))
    assert dict(top)[3] == logprob
    assert log_probabilities(scores, 3, 0) == (logprob, [])


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.inf}, "temperature"),
        ({"min_p": 2.0}, "min_p"),
        ({"presence_penalty": 3.0}, "presence_penalty"),
        ({"logit_bias": {4: 1.0}}, "logit_bias"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias"),
    ],
)
def test_settings_out_of_range(asked: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        Sampler(Generation([1], **asked), 4)
    assert caught.value.param == param
