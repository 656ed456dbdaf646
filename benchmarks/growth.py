"""How cost grows with length: the exponent of time, 10,000 to 1,000,000 characters, and of work, up to 100,000.

Work is what can be counted without a clock: calls and returns, Python's and C's, as the interpreter's profiler reports
them. It is exact and the same on every machine, so it needs no great length; time sees also what a single C call does
over a long text, so both are shown. An exponent of 1 is linear, 2 is quadratic; it is the slope of a least-squares line
through the logarithms.

Streams are built by repeating the ids of one unit, so that a million characters cost no tokenising. Every codec is
here by being exported: one that no workload is written in is represented by a registered format, whose calls
`unbraid.render` writes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import unbraid
from benchmarks import prose, workloads
from benchmarks.timing import once
from benchmarks.tokens import Tokens, standing_in
from benchmarks.workloads import Syntax
from unbraid import codecs
from unbraid.formats import FORMATS
from unbraid.message import Message, ToolCall

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
COUNTED = 100_000
"""Calls are counted up to this length."""
LINEAR = 1.1
"""The greatest exponent that passes for linear."""


def _tool(name: str, **parameters: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "parameters": {"type": "object", "properties": parameters}}
    return {"type": "function", "function": function}


STRING, INTEGER = {"type": "string"}, {"type": "integer"}
TOOLS = [
    _tool("write_file", path=STRING, text=STRING, mode=INTEGER, tags={"type": "array", "items": INTEGER}),
    _tool("get_weather", city=STRING),
    _tool("python", code=STRING),
]


@dataclass(frozen=True)
class Case:
    """A stream of any length: a head, a unit as often as it takes, a tail."""

    name: str
    format: str
    tokens: Tokens
    prompt: str | None
    head: str
    unit: str
    tail: str
    again: str = ""
    """If given, the units come once more behind this, half of them on each side."""
    reads: bool = False
    """All units must be found in the arguments of the only call, else the case isn't what its name says."""

    def repeats(self, characters: int) -> int:
        """How often the unit comes in a row in a stream of that length."""
        return max(1, characters // len(self.unit) // (2 if self.again else 1))

    def steps(self, characters: int) -> list[list[int]]:
        """One token each."""
        parts = self._parts(characters, lambda text: [[id] for id in self.tokens.encode(text)])
        return [step for part in parts for step in part]

    def deltas(self, characters: int) -> list[str]:
        """The text of each token. Parts begin and end with whole characters, so each is decoded once only."""
        parts = self._parts(characters, lambda text: self.tokens.deltas([id] for id in self.tokens.encode(text)))
        return [delta for part in parts for delta in part]

    def _parts(self, characters: int, cut: Callable[[str], list[Any]]) -> Iterator[list[Any]]:
        times, unit = self.repeats(characters), cut(self.unit)
        yield cut(self.head)
        yield unit * times
        if self.again:
            yield cut(self.again)
            yield unit * times
        yield cut(self.tail)


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
    """At the greatest length that is counted."""
    ns_per_token: float
    """At the greatest length."""
    sizes: tuple[int, ...]


def parse_ids(case: Case, steps: Sequence[Sequence[int]]) -> Callable[[], unbraid.Message]:
    bound = unbraid.get_format(case.format).bind(case.tokens.vocabulary)
    prompt = None if case.prompt is None else case.tokens.encode(case.prompt)

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


@dataclass(frozen=True)
class Writer:
    """A format with the means to write a call of `write_file` in it."""

    format: str
    tokens: Tokens
    prompt: str | None
    write: Callable[[dict[str, Any]], str]
    """The whole output, for the arguments. `RenderError`: there is no way to write them."""

    @classmethod
    def of_syntax(cls, syntax: Syntax) -> Writer:
        return cls(
            syntax.format,
            syntax.tokens(),
            syntax.plain,
            lambda arguments: syntax.calls((("write_file", arguments),)) + syntax.end,
        )

    @classmethod
    def of_format(cls, fmt: unbraid.Format) -> Writer:
        def write(arguments: dict[str, Any]) -> str:
            message = Message(tool_calls=[ToolCall("call_1", "write_file", json.dumps(arguments, ensure_ascii=False))])
            return unbraid.render(fmt, message, tools=TOOLS)

        return cls(fmt.name, tokens_of(fmt), None, write)

    def argument(self, name: str, unit: str) -> Case:
        """A string argument of such units, escaped as the format does it. Where it can't hold one, it comes raw."""
        try:
            head, escaped, tail = self.write({"path": "a", "text": MARK + unit + MARK, "mode": 1}).split(MARK)
            return self._case(name, head, escaped, tail, reads="</" not in unit)  # a syntax doesn't mind its closer
        except unbraid.RenderError:
            head, tail = self.write({"path": "a", "text": MARK, "mode": 1}).split(MARK)
            return self._case(name, head, unit, tail)

    def value(self, name: str, given: dict[str, Any], unit: str) -> Case:
        """Such units instead of the number in `given`, and no end."""
        return self._case(name, self.write({"path": "a", **given}).split(str(NUMBER))[0], unit, "")

    def cases(self) -> Iterator[Case]:
        """A long argument, well and badly behaved, closed or not, and structure that is no string."""
        code = prose.code(2_000)
        whole = self.argument("long argument", code)
        yield whole
        yield self._case("never closed", whole.head, code, "")
        for name, unit in GARBAGE.items():
            yield self.argument(f"argument of {name}", unit)
        for name, unit in ESCAPES.items():  # as they stand, be they escapes to this format or not
            yield self._case(f"argument of {name}", whole.head, unit, whole.tail)
        for name, (given, unit) in VALUES.items():
            yield self.value(name, given, unit)

    def _case(self, name: str, head: str, unit: str, tail: str, *, reads: bool = False) -> Case:
        return Case(name, self.format, self.tokens, self.prompt, head, unit, tail, reads=reads)


MARK, NUMBER = "QXQ", 31415926
"""What is written into a call to find the place: no format writes these in another way."""


def tokens_of(fmt: unbraid.Format) -> Tokens:
    """Qwen3's tokenizer with all special tokens of the format."""
    return standing_in(fmt.name, tuple(fmt.specials))


def codecs_of(fmt: unbraid.Format) -> set[str]:
    """The codecs that read a call as the format itself writes it."""
    codec = next((state.codec for state in fmt.states if state.codec), None)
    first = codec.codecs[0] if isinstance(codec, codecs.Choice) else codec
    return {type(each).__name__ for each in (codec, first) if each is not None}


def writers() -> Iterator[Writer]:
    """Those that the workloads are written in, and for each codec that is left the first format that writes it."""
    syntaxes = (workloads.QWEN3, workloads.DEEPSEEK, workloads.QWEN3_5, workloads.GLM47, workloads.MINIMAX)
    left = {*codecs.__all__} - {case.name for case in unwritten()}
    for syntax in syntaxes:
        left -= codecs_of(unbraid.get_format(syntax.format))
        yield Writer.of_syntax(syntax)
    for fmt in FORMATS.values():
        found = codecs_of(fmt)
        if found & left:
            left -= found
            yield Writer.of_format(fmt)
    if left:
        raise SystemExit(f"growth: no format writes {', '.join(sorted(left))}: give them a case of their own")


def unwritten() -> Iterator[Case]:
    """Codecs that no format writes by itself, under their names."""
    code = prose.code(2_000)
    llama, lfm = unbraid.get_format("llama3_json"), unbraid.get_format("lfm2")
    yield Case("RawText", llama.name, tokens_of(llama), None, "<|python_tag|>", code, "<|eom_id|>", reads=True)
    yield Case(
        "Repetition",
        lfm.name,
        tokens_of(lfm),
        None,
        "<|tool_call_start|>[write_file(path='a', text='",
        "some text ",
        "')]<|tool_call_end|><|im_end|>",
        again="')]<|tool_call_end|>[write_file(path='a', text='",
        reads=True,
    )


def cases() -> Iterator[Case]:
    """For every codec a long argument; content, reasoning and held text; and garbage built to hurt."""
    spoken = prose.prose(2_000)
    q, x = workloads.QWEN3, workloads.QWEN3_5
    yield Case("content", q.format, q.tokens(), q.plain, "", spoken, q.end)
    yield Case("reasoning", q.format, q.tokens(), q.thinking, "<think>\n", spoken, "\n</think>\n\nYes." + q.end)
    for syntax in (q, x):
        for name, unit in GARBAGE.items():
            yield Case(f"content of {name}", syntax.format, syntax.tokens(), syntax.plain, "", unit, syntax.end)
            yield Case(f"reasoning of {name}", syntax.format, syntax.tokens(), syntax.thinking, "<think>\n", unit, "")
    for name, (head, unit) in MARKUP.items():
        yield Case(name, q.format, q.tokens(), q.plain, head, unit, "")
    for name, head, unit, tail in HELD:
        yield Case("held text", name, tokens_of(unbraid.get_format(name)), None, head, unit, tail)
    yield from unwritten()
    for writer in writers():
        yield from writer.cases()


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
ESCAPES = {
    "escaped quotes": '\\"',
    "unicode escapes": "\\u00e9\\ud83d\\ude00",
    "closers": "</tool_call>}]",
    "control characters": "\t\n",
}
VALUES: dict[str, tuple[dict[str, Any], str]] = {
    "nested arrays": ({"tags": [NUMBER]}, "["),
    "nested objects": ({"tags": [NUMBER]}, '{"a":'),
    "long array": ({"tags": [NUMBER]}, '"a", '),
    "long number": ({"mode": NUMBER}, "1234567890"),
    "blanks": ({"tags": [NUMBER]}, " \n"),
}
MARKUP = {
    "many calls": ("", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'),
    "many openers": ("", "<tool_call>\n"),
    "many closers": ("", "</tool_call></think>"),
    "blanks before arguments": ('<tool_call>\n{"name": "write_file", "arguments": ', " \n"),
    "long name": ('<tool_call>\n{"name": "', "write_file"),
}
# Formats whose calls have no opener of their own hold text until they know.
HELD = (
    ("llama3_json", "", '{"a": 1}; ', ""),
    ("pythonic", "[", "1, ", "]"),
    ("xlam", "[", "1, ", "]"),
    ("kimi_k3", "", "<|open|>x<|sep|>", ""),
)


def measure(sizes: Sequence[int], say: Callable[[str], None], only: str = "", text: bool = True) -> list[Growth]:
    """Every case at every size, from ids and (text markers, hold-back) from text."""
    rows: list[Growth] = []
    for case in cases():
        if not any(text in f"{case.format} {case.name}" for text in only.split(",")):
            continue
        for mode in ("ids", "text") if text else ("ids",):
            row = _grow(case, mode, sizes)
            rows.append(row)
            say(
                f"  {row.format:14} {row.case:28} {mode:4}  work {row.work:5.2f}  time {row.time:5.2f}"
                f"  {row.calls_per_token:6.1f} calls and {row.ns_per_token:7.0f} ns a token"
            )
    return rows


def _grow(case: Case, mode: str, sizes: Sequence[int]) -> Growth:
    runs: dict[int, Callable[[], Message]] = {}
    tokens: dict[int, int] = {}
    for size in sizes:
        runs[size], tokens[size] = _work(case, mode, size)
    _check(case, sizes[0], runs[sizes[0]]())
    spent = {size: min(once(run) for _ in range(1 if size > COUNTED else 3)) for size, run in runs.items()}

    def exponent(cost: Mapping[int, float]) -> float:
        return slope([(tokens[size], spent) for size, spent in cost.items()])

    for _ in range(2):  # a busy machine makes a time longer, never shorter
        if exponent(spent) > LINEAR:
            spent = {size: min(spent[size], once(run)) for size, run in runs.items()}
    counts = {size: count_calls(run) for size, run in runs.items() if size <= COUNTED}
    counted = max(counts)
    return Growth(
        case.name,
        case.format,
        mode,
        work=exponent(counts),
        time=exponent(spent),
        calls_per_token=counts[counted] / tokens[counted],
        ns_per_token=spent[sizes[-1]] / tokens[sizes[-1]],
        sizes=tuple(sizes),
    )


def _work(case: Case, mode: str, size: int) -> tuple[Callable[[], Message], int]:
    """What is measured, and how many tokens it reads."""
    if mode == "ids":
        steps = case.steps(size)
        return parse_ids(case, steps), len(steps)
    deltas = case.deltas(size)
    return parse_text(case, deltas), len(deltas)


def _check(case: Case, size: int, message: Message) -> None:
    """A case whose argument isn't read measures something else."""
    read = [len(call.arguments) for call in message.tool_calls]
    if case.reads and not (len(read) == 1 and read[0] >= case.repeats(size) * len(case.unit)):
        raise RuntimeError(f"growth: {case.format}, {case.name}: the argument isn't read")
