"""What was set out for, held against what was measured: the last table of a run says of each goal whether it is reached, and where
it was nearest to being missed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.contest import STOPPED, Row
from benchmarks.growth import LINEAR, Growth
from benchmarks.small import Construction, Memory

FASTER = 6.0
"""Than the fastest other that is right, one token a step."""
FAR_FASTER = 1_000.0
"""Than vLLM, one token a step, on `FAR_FASTER_ON`."""
FAR_FASTER_ON = "xml_call_20k"
CONSTRUCTION = 30.0
"""Calls of the floor."""
MEMORY = 2_048.0
"""Bytes."""


@dataclass(frozen=True)
class Goal:
    """One goal, at the point of the run that was nearest to missing it."""

    what: str
    bound: float
    found: float
    where: str
    at_least: bool = False
    """It is reached from the bound on, not up to it."""

    @property
    def reached(self) -> bool:
        return self.found >= self.bound if self.at_least else self.found <= self.bound

    def __str__(self) -> str:
        sign = "at least" if self.at_least else "at most"
        verdict = "reached" if self.reached else "MISSED"
        return f"  {self.what:72} {sign:>8} {self.bound:6g}: {self.found:8.3g}  {verdict}, {self.where}"


def of_contest(rows: Sequence[Row]) -> Iterator[Goal]:
    """What one run of the contest tells; a goal about a rival that wasn't there isn't told of."""
    mine = [row for row in rows if row.contestant == "unbraid"]
    wrong = [row for row in mine if not row.verdict.startswith("right")]
    if mine:
        where = _place(wrong[0]) + ": " + wrong[0].verdict if wrong else f"of {len(mine)}"
        yield Goal("results that are wrong", 0, len(wrong), where)
    for size, step in (("x1", "one token a step"), ("x8", "eight tokens a step")):
        for bound in sorted({row.bound for row in mine if row.bound is not None and row.mode.endswith(size)}):
            group = [row for row in mine if row.bound == bound and row.mode.endswith(size)]
            worst = max(group, key=lambda row: row.ratio)
            names = len({row.workload for row in group})
            yield Goal(
                f"floors, {step}, where {bound:g} are allowed ({names} workloads)", bound, worst.ratio, _place(worst)
            )
    yield from _against(rows, FASTER, "times as fast as the fastest other that is right, one token a step", _streams)
    yield from _against(rows, 1.0, "times as fast as the fastest other that is right, all at once", _is_whole)
    yield from _against(
        rows, FAR_FASTER, f"times as fast as vLLM, one token a step, {FAR_FASTER_ON}",
        lambda row: _streams(row) and row.workload == FAR_FASTER_ON and row.contestant in ("unbraid", "vllm"),
    )  # fmt: skip


def of_small(constructed: Iterable[Construction], remembered: Iterable[Memory]) -> Iterator[Goal]:
    """What making a parser and keeping it costs."""
    slowest = max(constructed, key=lambda made: made.ratio)
    yield Goal("calls of the floor to make a parser", CONSTRUCTION, slowest.ratio, slowest.what)
    largest = max(remembered, key=lambda held: held.bytes)
    yield Goal("bytes of a parser that has read nothing", MEMORY, largest.bytes, largest.what)


def of_growth(grown: Sequence[Growth]) -> Iterator[Goal]:
    """How what a token costs grows with the length."""
    for what in ("time", "work") if grown else ():
        worst = max(grown, key=lambda row: float(getattr(row, what)))
        where = f"{worst.format}, {worst.case}, {worst.mode}, of {len(grown)}"
        yield Goal(f"exponent of {what}", LINEAR, getattr(worst, what), where)


def _against(rows: Sequence[Row], bound: float, what: str, counts: Callable[[Row], bool]) -> Iterator[Goal]:
    """Others' time over ours where that is least. One that was stopped took longer than is said: that is enough to go by."""
    ours = {(row.workload, row.mode): row for row in rows if row.contestant == "unbraid" and counts(row)}
    pairs = [
        (row.ns / ours[row.workload, row.mode].ns, row)
        for row in rows
        if counts(row) and _is_rival(row) and (row.verdict.startswith("right") or row.verdict == STOPPED)
    ]
    if pairs:
        least, row = min(pairs, key=lambda pair: pair[0])
        yield Goal(what, bound, least, f"{row.contestant}, {_place(row)}", at_least=True)


def _is_rival(row: Row) -> bool:
    return row.contestant not in ("floor", "bare floor", "unbraid")


def _streams(row: Row) -> bool:
    return row.mode.endswith("x1")


def _is_whole(row: Row) -> bool:
    return row.mode.startswith("whole")


def _place(row: Row) -> str:
    return f"{row.workload}, {row.mode}"


__all__ = ["Goal", "of_contest", "of_growth", "of_small"]
