"""What a parser costs before it has read anything: time to construct, and memory while it idles."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import unbraid
from benchmarks import workloads
from benchmarks.timing import floor, taking_turns
from benchmarks.workloads import TOOLS

PARSERS = 2_000


@dataclass(frozen=True)
class Construction:
    what: str
    ns: float
    ratio: float
    """To one call of the floor."""


@dataclass(frozen=True)
class Memory:
    what: str
    bytes: float
    """Of one live parser."""


def _makers() -> dict[str, Callable[[], Any]]:
    syntax = workloads.QWEN3
    bound = unbraid.get_format(syntax.format).bind(syntax.tokens().vocabulary)
    prompt = syntax.tokens().encode(syntax.thinking)
    Parser = unbraid.Parser
    return {
        "a parser": lambda: Parser(bound),
        "a parser with a short prompt": lambda: Parser(bound, prompt=prompt),
        "a parser with a short prompt and two tools": lambda: Parser(bound, prompt=prompt, tools=TOOLS),
    }


def construction(repeats: int) -> list[Construction]:
    """On a bound format, which is made once and shared."""
    deltas = ["word"] * 1000
    rows = []
    for what, make in _makers().items():
        base, made = taking_turns([lambda: floor(deltas), make], repeats)
        rows.append(Construction(what, made.least, made.least / (base.least / len(deltas))))
    return rows


def binding(repeats: int) -> float:
    """Nanoseconds to bind a format to a vocabulary of 150,000 tokens, once per process."""
    syntax = workloads.QWEN3
    fmt, vocabulary = unbraid.get_format(syntax.format), syntax.tokens().vocabulary
    return taking_turns([lambda: fmt.bind(vocabulary)], repeats)[0].least


def memory() -> list[Memory]:
    """Traced by the interpreter's own allocator hooks over many live parsers."""
    rows = []
    for what, make in _makers().items():
        make()
        gc.collect()
        tracemalloc.start()
        alive = [make() for _ in range(PARSERS)]
        gc.collect()
        spent, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        rows.append(Memory(what, spent / len(alive) - 8))
        del alive
    return rows
