"""Side by side: every workload in every mode, the floor first, then us, then whichever rivals can be imported.

All of it runs in one process. Rivals usually live in another environment than ours; since the core needs nothing but
the standard library, the whole contest moves there: `UNBRAID_RIVALS_PYTHON` names that environment's interpreter.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import unbraid
from benchmarks.rivals.base import Result, Rival
from benchmarks.timing import Timing, TooLong, at_most, bare_floor, floor, once, taking_turns
from benchmarks.workloads import TOOLS, Expected, Workload

MODES = ("ids x1", "ids x8", "text x1", "text x8", "whole ids", "whole text")
"""Token ids or text, so many tokens a step; `whole`: the one-shot call."""

ONCE = 2e9
"""A rival that takes longer than this (ns) for its first run is measured by that run alone."""
SLOW = 10e9
"""One that takes longer than this isn't given longer workloads of the same family."""
LIMIT = 60e9
"""One that takes longer than this is stopped: its figure is this time, and it's more than that."""
STOPPED = "stopped"


@dataclass(frozen=True)
class Row:
    """One contestant on one workload in one mode."""

    workload: str
    mode: str
    contestant: str
    tokens: int
    ns: float
    """Nanoseconds a token, the least of the repeats."""
    median_ns: float
    ratio: float
    """To the floor of the same run, one call per token."""
    verdict: str
    """`right`, `right but for blanks`, `wrong: ...`, `failed: ...` or `stopped`: it took longer than is said."""
    bound: float | None = None
    synthetic: bool = False


@dataclass
class Prepared:
    """A workload cut into steps, so that no measurement pays for tokenising."""

    workload: Workload
    ids: list[int]
    prompt: list[int]
    deltas: list[str]
    steps: dict[int, list[list[int]]] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)
    cut_steps: dict[int, list[list[int]]] = field(default_factory=dict)
    cut_texts: dict[int, list[str]] = field(default_factory=dict)
    """The same without the stop token: what the rivals' engines hand to their parsers."""

    @classmethod
    def of(cls, workload: Workload) -> Prepared:
        ids = workload.tokens.encode(workload.text)
        made = cls(workload, ids, workload.tokens.encode(workload.prompt), [])
        cut = ids[: len(ids) - len(workload.tokens.encode(workload.stop))] if workload.stop else ids
        for size in (1, 8):
            made.steps[size] = [ids[n : n + size] for n in range(0, len(ids), size)]
            made.texts[size] = workload.tokens.deltas(made.steps[size])
            made.cut_steps[size] = [cut[n : n + size] for n in range(0, len(cut), size)]
            made.cut_texts[size] = workload.tokens.deltas(made.cut_steps[size])
        made.deltas = made.texts[1]
        return made


def ours(prepared: Prepared, mode: str, bound: unbraid.BoundFormat | None = None) -> Callable[[], unbraid.Message]:
    """Our contestant. `bound`: the workload's format, bound before."""
    workload = prepared.workload
    fmt = unbraid.get_format(workload.format)
    bound = bound or fmt.bind(workload.tokens.vocabulary)
    Parser, parse = unbraid.Parser, unbraid.parse
    prompt, prompt_text = prepared.prompt, workload.prompt
    if mode == "whole ids":
        ids = prepared.ids
        return lambda: parse(bound, ids, tools=TOOLS, prompt=prompt)
    if mode == "whole text":
        text = workload.text
        return lambda: parse(fmt, text, tools=TOOLS, prompt=prompt_text)
    kind, _, size = mode.partition(" x")
    if kind == "ids":
        steps = prepared.steps[int(size)]

        def from_ids() -> unbraid.Message:
            parser = Parser(bound, tools=TOOLS, prompt=prompt)
            feed = parser.feed
            for step in steps:
                for _event in feed(step):
                    pass
            for _event in parser.finish("stop"):
                pass
            return parser.message

        return from_ids
    texts = prepared.texts[int(size)]

    def from_text() -> unbraid.Message:
        parser = Parser(fmt, tools=TOOLS, prompt=prompt_text)
        feed = parser.feed_text
        for delta in texts:
            for _event in feed(delta):
                pass
        for _event in parser.finish("stop"):
            pass
        return parser.message

    return from_text


def as_result(message: unbraid.Message) -> Result:
    """A message in the terms in which all contestants are judged."""
    return Result(message.reasoning, message.content, [(call.name, call.arguments) for call in message.tool_calls])


def judge(result: Result, expected: Expected) -> str:
    """Is it the message that was written? White space at the ends of a field is forgiven, but said."""
    try:
        calls = [(name, json.loads(arguments or "null")) for name, arguments in result.calls]
    except ValueError:
        return "wrong: arguments aren't JSON"
    if calls != [(name, dict(arguments)) for name, arguments in expected.calls]:
        if [name for name, _ in calls] != [name for name, _ in expected.calls]:
            return f"wrong: {len(calls)} calls of {len(expected.calls)}"
        return "wrong: arguments"
    exact = True
    for name, got, wanted in (
        ("reasoning", result.reasoning, expected.reasoning),
        ("content", result.content, expected.content),
    ):
        if (got or "").strip() != (wanted or "").strip():
            return f"wrong: {name}"
        exact = exact and (got or None) == wanted
    return "right" if exact else "right but for blanks"


def run(
    workloads: Iterable[Workload],
    modes: Sequence[str],
    rivals: Sequence[Rival],
    repeats: int,
    say: Callable[[str], None],
) -> list[Row]:
    """The contest. `say` hears how far it is, and what is skipped."""
    rows: list[Row] = []
    too_slow: set[tuple[str, str, str]] = set()
    for workload in workloads:
        try:
            unbraid.get_format(workload.format)
        except unbraid.UnbraidError:
            say(f"{workload.name}: skipped, no format {workload.format!r} is registered yet")
            continue
        prepared = Prepared.of(workload)
        for mode in modes:
            say(f"{workload.name}, {mode} ...")
            rows += _one(prepared, mode, rivals, repeats, too_slow, say)
    return rows


def _one(
    prepared: Prepared,
    mode: str,
    rivals: Sequence[Rival],
    repeats: int,
    too_slow: set[tuple[str, str, str]],
    say: Callable[[str], None],
) -> list[Row]:
    workload = prepared.workload
    deltas = prepared.deltas
    entries: list[tuple[str, Callable[[], Any], str]] = [
        ("floor", lambda: floor(deltas), "right"),
        ("bare floor", lambda: bare_floor(deltas), "right"),
    ]
    mine = ours(prepared, mode)
    entries.append(("unbraid", mine, judge(as_result(mine()), workload.expected)))
    slow: list[tuple[str, float, str]] = []
    for rival in rivals:
        key = (rival.name, workload.family or workload.name, mode)
        if key in too_slow:
            say(f"{workload.name}, {mode}: {rival.name} sits out, the shorter one took too long")
            continue
        work = rival.contestant(prepared, mode)
        if work is None:
            continue
        spent, verdict = _first(work, workload.expected)
        if spent > SLOW:
            too_slow.add(key)
        if spent <= ONCE:
            entries.append((rival.name, work, verdict))
        else:
            slow.append((rival.name, spent, verdict))
    timings = taking_turns([work for _, work, _ in entries], repeats)
    base = timings[0].least
    measured = [(name, t, verdict) for (name, _, verdict), t in zip(entries, timings, strict=True)]
    measured += [(name, Timing(spent, spent), verdict) for name, spent, verdict in slow]
    count = len(prepared.ids)
    return [
        Row(
            workload=workload.name,
            mode=mode,
            contestant=name,
            tokens=count,
            ns=timing.least / count,
            median_ns=timing.middle / count,
            ratio=timing.least / base,
            verdict=verdict,
            bound=_bound(workload, mode) if name == "unbraid" else None,
            synthetic=workload.tokens.synthetic,
        )
        for name, timing, verdict in measured
    ]


def _first(work: Callable[[], Result], expected: Expected) -> tuple[float, str]:
    """A rival's first run: what it took (ns; not a number if it failed) and the verdict."""
    results: list[Result] = []
    try:
        with at_most(LIMIT):
            spent = once(lambda: results.append(work()))
    except TooLong:
        return LIMIT, STOPPED
    except Exception as error:  # noqa: BLE001  whatever a rival raises is its result
        return math.nan, f"failed: {type(error).__name__}: {error}"[:120]
    return spent, judge(results[0], expected)


def _bound(workload: Workload, mode: str) -> float | None:
    if mode.startswith("whole"):
        return None
    return workload.bound[0] if mode.endswith("x1") else workload.bound[1]


def to_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


def from_json(data: Sequence[dict[str, Any]]) -> list[Row]:
    return [Row(**row) for row in data]


__all__ = ["MODES", "Prepared", "Row", "Timing", "as_result", "from_json", "judge", "ours", "run", "to_json"]
