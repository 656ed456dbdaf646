"""The benchmarks' last table: a goal that is missed is called so, and what a rival got wrong doesn't count for it."""

from __future__ import annotations

from typing import Any

import pytest

goals = pytest.importorskip("benchmarks.goals", reason="the benchmarks are part of the repository only")


def row(contestant: str, ratio: float, *, mode: str = "text x1", **other: Any) -> Any:
    from benchmarks.contest import Row

    given: dict[str, Any] = {"workload": "plain", "verdict": "right", "bound": None, **other}
    ns = ratio * 100
    return Row(mode=mode, contestant=contestant, tokens=10, ns=ns, median_ns=ns, ratio=ratio, **given)


def verdicts(rows: list[Any]) -> list[tuple[float, float, bool]]:
    return [(goal.bound, goal.found, goal.reached) for goal in goals.of_contest(rows)]


def test_the_worst_workload_decides() -> None:
    rows = [row("unbraid", 4.9, bound=5.0), row("unbraid", 5.1, bound=5.0, workload="calls"), row("floor", 1.0)]
    assert verdicts(rows) == [(0, 0, True), (5.0, 5.1, False)]
    assert verdicts(rows[:1]) == [(0, 0, True), (5.0, 4.9, True)]


def test_each_size_of_step_has_its_own_bound() -> None:
    rows = [row("unbraid", 4.0, bound=5.0), row("unbraid", 4.0, bound=3.0, mode="ids x8")]
    assert verdicts(rows) == [(0, 0, True), (5.0, 4.0, True), (3.0, 4.0, False)]


def test_a_wrong_result_of_ours_is_a_goal_missed() -> None:
    assert verdicts([row("unbraid", 1.0, verdict="wrong: content")]) == [(0, 1, False)]


def test_the_fastest_other_that_is_right_is_compared() -> None:
    rows = [
        row("unbraid", 2.0),
        row("vllm", 3.0, verdict="wrong: content"),
        row("vllm", 3.0, verdict="failed: KeyError"),
        row("sglang", 11.0),
        row("transformers", 14.0, verdict="right but for blanks"),
    ]
    assert verdicts(rows)[1:] == [(6.0, 5.5, False)]
    assert verdicts([*rows[:3], rows[4]])[1:] == [(6.0, 7.0, True)]


def test_all_at_once_is_a_goal_of_its_own() -> None:
    rows = [row("unbraid", 2.0, mode="whole text"), row("sglang", 1.9, mode="whole text")]
    assert verdicts(rows)[1:] == [(1.0, 0.95, False)]


def test_one_that_was_stopped_took_at_least_so_long() -> None:
    rows = [
        row("unbraid", 1.0, workload="xml_call_20k"),
        row("vllm", 2000.0, workload="xml_call_20k", verdict="stopped"),
    ]
    assert verdicts(rows)[1:] == [(6.0, 2000.0, True), (1000.0, 2000.0, True)]


def test_what_a_parser_costs_and_how_that_grows() -> None:
    from benchmarks.growth import Growth
    from benchmarks.small import Construction, Memory

    made, held = goals.of_small([Construction("a", 1.0, 29.0), Construction("b", 1.0, 31.0)], [Memory("a", 900.0)])
    assert (made.found, made.reached, held.reached) == (31.0, False, True)
    slow = Growth("garbage", "think", "ids", work=1.0, time=1.2, calls_per_token=1.0, ns_per_token=1.0, sizes=(1, 2))
    time, work = goals.of_growth([slow])
    assert (time.reached, work.reached) == (False, True)
    assert "MISSED" in str(time)
