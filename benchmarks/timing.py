"""Measuring: CPU time, the floor, taking turns, and what a figure is made of.

The floor is the loop in which every contestant is measured, around one Python call per token that keeps the delta (they
joined at the end) and hands it on, and does nothing else. Nobody who hands tokens on in Python can be below it by much,
and it moves with the machine, so ratios to it travel where nanoseconds don't. It takes turns with what is measured: a
noisy second hits both. `bare_floor` is the same without anything handed on, for those who'd rather divide by that.

CPU time of this process is read, not the clock on the wall: the machine may be shared. The garbage collector is off
while the watch runs (and runs between measurements): its pauses depend on what else is alive, not on the parser.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import process_time_ns

ENOUGH = 20_000_000
"""A measurement repeats its work until it has taken this long (ns), so that the clock's grain doesn't show."""


class Keep:
    """The floor's stand-in for a parser."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[str] = []

    def feed(self, delta: str) -> tuple[str]:
        self.parts.append(delta)
        return (delta,)

    def keep(self, delta: str) -> None:
        self.parts.append(delta)

    def finish(self) -> str:
        return "".join(self.parts)


def floor(deltas: Sequence[str]) -> str:
    """One call per delta, in the loop that all contestants run in."""
    keep = Keep()
    feed = keep.feed
    for delta in deltas:
        for _event in feed(delta):
            pass
    return keep.finish()


def bare_floor(deltas: Sequence[str]) -> str:
    """One call per delta, and nothing handed on."""
    keep = Keep()
    feed = keep.keep
    for delta in deltas:
        feed(delta)
    return keep.finish()


@dataclass(frozen=True)
class Timing:
    """Nanoseconds of one run of the work: the least and the median of the repeats."""

    least: float
    middle: float


def once(work: Callable[[], object], rounds: int = 1) -> float:
    """CPU nanoseconds of one run, over `rounds` runs in a row."""
    gc.collect()
    gc.disable()
    try:
        start = process_time_ns()
        for _ in range(rounds):
            work()
        return (process_time_ns() - start) / rounds
    finally:
        gc.enable()


class TooLong(BaseException):
    """The work was stopped. No `Exception`: a parser that survives its own errors doesn't survive this."""


@contextmanager
def at_most(ns: float) -> Iterator[None]:
    """Whatever takes longer (CPU time of this process) is stopped by `TooLong`; on Unix, elsewhere it takes what it takes."""

    def stop(signum: int, frame: object) -> None:
        raise TooLong

    if not hasattr(signal, "setitimer"):
        yield
        return
    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, ns / 1e9, 1)  # once more each second, should something have caught it
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def taking_turns(works: Sequence[Callable[[], object]], repeats: int, patience: float = 20e9) -> list[Timing]:
    """Measure the works in turn, `repeats` times over. One that takes longer than `patience` (ns) in all sits out the
    rest."""
    rounds: list[int] = []
    for work in works:
        first = once(work)
        rounds.append(max(1, min(1000, int(ENOUGH / max(first, 1.0)))))
    seen: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for work, count, times in zip(works, rounds, seen, strict=True):
            if not times or sum(times) < patience:
                times.append(once(work, count))
    return [Timing(min(times), median(times)) for times in seen]
