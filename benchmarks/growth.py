"""How cost grows with length: the exponent of time and of work, 10,000 to 1,000,000 characters.

Work is what can be counted without a clock: calls and returns, Python's and C's, as the interpreter's profiler reports
them. It is exact and the same on every machine, so it can guard a repository; time sees also what a single C call does
over a long text, so both are shown. An exponent of 1 is linear, 2 is quadratic; it is the slope of a least-squares line
through the logarithms.

Streams are built by repeating the ids of one unit, so that a million characters cost no tokenising.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import unbraid
from benchmarks import prose, workloads
from benchmarks.timing import once
from benchmarks.tokens import Tokens, standing_in
from benchmarks.workloads import TOOLS, Syntax

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)


@dataclass(frozen=True)
class Case:
    """A stream of any length: a head, a unit as often as it takes, a tail."""

    name: str
    format: str
    tokens: Tokens
    prompt: str
    head: str
    unit: str
    tail: str
    repeat_head: bool = False
    """The head is repeated as well as the unit and before it: for nesting."""

    def steps(self, characters: int) -> list[list[int]]:
        times = max(1, characters // len(self.unit))
        encode = self.tokens.encode
        ids = encode(self.head) + encode(self.unit) * times + encode(self.tail)
        return [[id] for id in ids]


@dataclass(frozen=True)
class Growth:
    case: str
    format: str
    mode: str
    work: float
    """Exponent of the counted work."""
    time: float
    """Exponent of CPU time."""
    calls_per_token: float
    """At the greatest length."""
    ns_per_token: float
    sizes: tuple[int, ...]


def parse_ids(case: Case, steps: Sequence[Sequence[int]]) -> Callable[[], unbraid.Message]:
    bound = unbraid.get_format(case.format).bind(case.tokens.vocabulary)
    prompt = case.tokens.encode(case.prompt)

    def work() -> unbraid.Message:
        parser = unbraid.Parser(bound, tools=TOOLS, prompt=prompt)
        feed = parser.feed
        for step in steps:
            for _event in feed(step):
                pass
        for _event in parser.finish("stop"):
            pass
        return parser.message

    return work


def parse_text(case: Case, deltas: Sequence[str]) -> Callable[[], unbraid.Message]:
    fmt = unbraid.get_format(case.format)

    def work() -> unbraid.Message:
        parser = unbraid.Parser(fmt, tools=TOOLS, prompt=case.prompt)
        feed = parser.feed_text
        for delta in deltas:
            for _event in feed(delta):
                pass
        for _event in parser.finish("stop"):
            pass
        return parser.message

    return work


def count_calls(work: Callable[[], Any]) -> int:
    """How many calls the work makes, of Python functions and of C functions."""
    seen = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal seen
        if event in ("call", "c_call"):
            seen += 1

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the least-squares line through the points' logarithms."""
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(max(y, 1e-9)) for _, y in points]
    x0, y0 = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((x - x0) * (y - y0) for x, y in zip(xs, ys, strict=True)) / sum((x - x0) ** 2 for x in xs)


def _call_cases(syntax: Syntax, wrap: Callable[[str], tuple[str, str]], unit: str, name: str) -> Iterator[Case]:
    head, tail = wrap(unit)
    yield Case(name, syntax.format, syntax.tokens(), syntax.plain, head, unit, tail + syntax.end)


def _around(syntax: Syntax, unit: str, encoded: str) -> Callable[[str], tuple[str, str]]:
    """The text before and after a long string argument, from the syntax's own writer."""

    def wrap(_: str) -> tuple[str, str]:
        text = syntax.calls((("write_file", {"path": "a", "text": "\x00", "mode": 1}),))
        mark = "\\u0000" if "\\u0000" in text else "\x00"
        head, tail = text.split(mark)
        return head, tail

    return wrap


def cases() -> Iterator[Case]:
    """For every codec a long argument; content, reasoning and held text; and garbage built to hurt."""
    code = prose.code(2_000)
    escaped = _json_escape(code)
    spoken = prose.prose(2_000)
    q, x, g, m, d = workloads.QWEN3, workloads.QWEN3_5, workloads.GLM47, workloads.MINIMAX, workloads.DEEPSEEK
    yield Case("content", q.format, q.tokens(), q.plain, "", spoken, q.end)
    yield Case("reasoning", q.format, q.tokens(), q.thinking, "<think>\n", spoken, "\n</think>\n\nYes." + q.end)
    for syntax, unit in ((q, escaped), (d, escaped), (x, code), (g, code), (m, code)):
        yield from _call_cases(syntax, _around(syntax, unit, unit), unit, "long argument")
    for syntax in (q, x, g, m, d):
        yield Case("never closed", syntax.format, syntax.tokens(), syntax.plain, _open(syntax), code, "")
    for syntax in (x, g, m):
        for name, unit in GARBAGE.items():
            yield from _call_cases(syntax, _around(syntax, unit, unit), unit, f"argument of {name}")
    for name, unit in JSON_GARBAGE.items():
        yield from _call_cases(q, _around(q, unit, unit), unit, f"argument of {name}")
    for name, (head, unit) in JSON_STRUCTURE.items():
        yield Case(name, q.format, q.tokens(), q.plain, head, unit, "")
    for syntax in (q, x):
        for name, unit in GARBAGE.items():
            yield Case(f"content of {name}", syntax.format, syntax.tokens(), syntax.plain, "", unit, syntax.end)
            yield Case(f"reasoning of {name}", syntax.format, syntax.tokens(), syntax.thinking, "<think>\n", unit, "")
    q_calls = "<tool_call>\n" + '{"name": "get_weather", "arguments": {"city": "Oslo"}}' + "\n</tool_call>\n"
    yield Case("many calls", q.format, q.tokens(), q.plain, "", q_calls, q.end)
    yield Case("many openers", q.format, q.tokens(), q.plain, "", "<tool_call>\n", "")
    yield Case("many closers", q.format, q.tokens(), q.plain, "", "</tool_call></think>", "")
    for name, head, unit, tail in HELD:
        yield Case("held text", name, standing_in(name, ()), "", head, unit, tail)


GARBAGE = {
    "<": "<",
    "nearly-markers": "</parameter</think<tool_cal</tool_cal <function</arg_valu<minimax:tool_cal",
    "newlines": "\n",
    "quotes": "\"'`",
    "backslashes": "\\",
    "brackets": "[{(",
    "tags": "<a></b>\n",
    "closers in text": "x</think >\n</parameter>x\n",
}
JSON_GARBAGE = {
    "escaped quotes": '\\"',
    "escaped backslashes": "\\\\",
    "unicode escapes": "\\u00e9\\ud83d\\ude00",
    "closers": "</tool_call>}]",
    "control characters": "\t\n",
}
JSON_STRUCTURE = {
    "nested arrays": ('<tool_call>\n{"name": "write_file", "arguments": {"tags": ', "["),
    "nested objects": ('<tool_call>\n{"name": "write_file", "arguments": {"tags": ', '{"a":'),
    "long array": ('<tool_call>\n{"name": "write_file", "arguments": {"tags": [', '"a", '),
    "long number": ('<tool_call>\n{"name": "write_file", "arguments": {"mode": ', "1234567890"),
    "blanks": ('<tool_call>\n{"name": "write_file", "arguments": ', " \n"),
    "long name": ('<tool_call>\n{"name": "', "write_file"),
}
# Formats whose calls have no opener of their own hold text until they know; they are measured once they are registered.
HELD = (
    ("llama3_json", "", '{"a": 1}; ', ""),
    ("llama3_json", '{"name": "write_file", "parameters": {"path": "', "some text ", '"}}'),
    ("pythonic", "[", "1, ", "]"),
    ("pythonic", "[write_file(path='", "some text ", "')]"),
    ("xlam", "[", "1, ", "]"),
    ("mistral", '[TOOL_CALLS]write_file[ARGS]{"path": "', "some text ", '"}'),
    ("gemma4", '<|tool_call>call:write_file{path:<|"|>', "some text ", '<|"|>}<tool_call|>'),
    ("kimi_k3", "", "<|open|>x<|sep|>", ""),
)


def _open(syntax: Syntax) -> str:
    text = syntax.calls((("write_file", {"path": "a", "text": "\x00"}),))
    return text.split("\\u0000" if "\\u0000" in text else "\x00")[0]


def _json_escape(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)[1:-1]


def measure(sizes: Sequence[int], say: Callable[[str], None], only: str = "", text: bool = True) -> list[Growth]:
    """Every case at every size, from ids and (text markers, hold-back) from text."""
    rows: list[Growth] = []
    missing: set[str] = set()
    for case in cases():
        if not any(text in f"{case.format} {case.name}" for text in only.split(",")):
            continue
        try:
            unbraid.get_format(case.format)
        except unbraid.UnbraidError:
            if case.format not in missing:
                missing.add(case.format)
                say(f"growth: no format {case.format!r} is registered yet, its cases are skipped")
            continue
        for mode in ("ids", "text") if text else ("ids",):
            rows.append(_grow(case, mode, sizes))
            row = rows[-1]
            say(
                f"  {row.format:14} {row.case:28} {mode:4}  work {row.work:5.2f}  time {row.time:5.2f}"
                f"  {row.calls_per_token:6.1f} calls and {row.ns_per_token:7.0f} ns a token"
            )
    return rows


def _grow(case: Case, mode: str, sizes: Sequence[int]) -> Growth:
    works: list[tuple[float, float]] = []
    times: list[tuple[float, float]] = []
    tokens = 1
    for size in sizes:
        steps = case.steps(size)
        tokens = len(steps)
        work = parse_ids(case, steps) if mode == "ids" else parse_text(case, case.tokens.deltas(steps))
        spent = min(once(work) for _ in range(3 if size < 200_000 else 1))
        times.append((size, spent))
        if spent < 3e9:
            works.append((size, count_calls(work)))
    return Growth(
        case.name,
        case.format,
        mode,
        work=slope(works) if len(works) > 1 else math.nan,
        time=slope(times),
        calls_per_token=works[-1][1] / (works[-1][0] / times[-1][0] * tokens) if works else math.nan,
        ns_per_token=times[-1][1] / tokens,
        sizes=tuple(sizes),
    )
