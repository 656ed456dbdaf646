"""Work grows with the length of the output and no faster. Nothing here looks at a clock: what is counted is work.

Two counts, for neither sees everything. In text mode the machine is fed strings that count every character that is
looked at, copied or searched, with regular expressions that do the same (`counting.py`). In ids mode the calls of
functions are counted, Python's and C's. Both may grow by a tenth per character at most, up to a million characters.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from counting import WORK, Counted
from fixtures import expand
from test_formats import check_tiling
from tokens import Tokens

import unbraid
from unbraid.events import CallArguments

TOOLS = expand({"save": {"text": "string", "data": "object", "count": "integer"}})
GROWTH = 1.1

# Every way of writing a call, around the text of a string parameter.
DSML = "｜DSML｜"
CALLS = {
    "qwen3_instruct": (
        '<tool_call>\n{"name": "save", "arguments": {"text": "',
        '"}}\n</tool_call>',
    ),
    "qwen3_coder": (
        "<tool_call>\n<function=save>\n<parameter=text>\n",
        "\n</parameter>\n</function>\n</tool_call>",
    ),
    "seed_oss": (
        "<seed:tool_call>\n<function=save>\n<parameter=text>",
        "</parameter>\n</function>\n</seed:tool_call>",
    ),
    "minimax_m2": (
        '</think><minimax:tool_call>\n<invoke name="save">\n<parameter name="text">',
        "</parameter>\n</invoke>\n</minimax:tool_call>",
    ),
    "glm47": (
        "</think><tool_call>save<arg_key>text</arg_key><arg_value>",
        "</arg_value></tool_call>",
    ),
    "kimi_k2_instruct": (
        '<|tool_calls_section_begin|><|tool_call_begin|>functions.save:0<|tool_call_argument_begin|>{"text": "',
        '"}<|tool_call_end|><|tool_calls_section_end|>',
    ),
    "deepseek_v3": (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>save\n```json\n{"text": "',
        '"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek_v31": (
        '</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>save<｜tool▁sep｜>{"text": "',
        '"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
    ),
    "deepseek_v4": (
        f'</think><{DSML}tool_calls>\n<{DSML}invoke name="save">\n<{DSML}parameter name="text" string="true">',
        f"</{DSML}parameter>\n</{DSML}invoke>\n</{DSML}tool_calls>",
    ),
    "chatml": (
        '<tool_call>\n{"name": "save", "arguments": {"text": "',
        '"}}\n</tool_call>',
    ),
}
JSON_BODIES = {"qwen3_instruct", "kimi_k2_instruct", "deepseek_v3", "deepseek_v31", "chatml"}

LINES = (
    "def greet(name: str) -> str:\n",
    '    """Says "hello", of course."""\n',
    "    if name < 3 and a << 2 or '\\n' in name:\n",
    "        return f'<b>{name}</b> & {{more}}'  # 漢字 é 🙂\n",
    "\n",
    "\t<parameter> </param> </ tool_call> [x] {y}: z,\n",
)


def prose(length: int) -> str:
    """Text of the kind that a coding agent writes into a file."""
    text = "".join(LINES)
    return (text * (length // len(text) + 1))[:length]


def call(format: str, text: str) -> str:
    """A call whose string parameter is `text`."""
    before, after = CALLS[format]
    return before + (json.dumps(text, ensure_ascii=False)[1:-1] if format in JSON_BODIES else text) + after


def tokenizer(format: str, text: str) -> Tokens:
    return Tokens(unbraid.get_format(format), [text[:20_000]])


# -- arguments stream --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", CALLS)
def test_a_long_string_argument_streams(format: str) -> None:
    text = prose(100_000)
    raw = call(format, text)
    tok = tokenizer(format, raw)
    ids = tok.encode(raw)
    parser = unbraid.Parser(tok.bound, tools=TOOLS)
    events = [event for id in ids for event in parser.feed([id])]
    events += parser.finish()
    check_tiling(events, raw, len(ids))
    deltas = [event.delta for event in events if isinstance(event, CallArguments) and event.delta]
    assert len(deltas) >= len(ids) / 10
    assert json.loads("".join(deltas)) == {"text": text}
    assert parser.message.tool_calls[0].arguments == "".join(deltas)
    (whole,) = unbraid.parse(tok.bound, ids, tools=TOOLS).tool_calls
    assert (whole.name, whole.arguments, whole.complete) == ("save", "".join(deltas), True)


# -- calls of functions, by ids ----------------------------------------------------------------------------------------


def count_calls(run: Callable[[], object]) -> int:
    """How many functions are called in a run, Python's and C's."""
    count = 0

    def profile(frame: object, event: str, argument: object) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count


def feed_ids(tok: Tokens, ids: list[int]) -> None:
    parser = unbraid.Parser(tok.bound, tools=TOOLS)
    for id in ids:
        parser.feed([id])
    parser.finish("length")


@pytest.mark.parametrize("format", CALLS)
def test_calls_of_functions_grow_with_the_length(format: str) -> None:
    """A million characters of argument, and one file of a real size for comparison."""
    tok = tokenizer(format, call(format, prose(10_000)))
    cost = {}
    for length in (10_000, 100_000, 1_000_000):
        ids = tok.encode(call(format, prose(length)))
        cost[length] = count_calls(partial(feed_ids, tok, ids)) / len(ids)
    assert cost[100_000] <= cost[10_000] * GROWTH
    assert cost[1_000_000] <= cost[100_000] * GROWTH


# -- characters looked at, by text -------------------------------------------------------------------------------------

GARBAGE = {
    "prose": "".join(LINES),
    "less_than": "<",
    "newlines": "\n",
    "blanks": " \n\t",
    "quotes": '"',
    "backslashes": "\\",
    "brackets": "[",
    "braces": '{"a":',
    "digits": "1",
    "closers": "</",
    "halves": "\n</thi<tool_c",
    "openers": "<tool_call>",
    "thoughts": "<think>\n\n</think>",
    "calls": '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>\n',
    "functions": "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>\n",
    "parameters": "\n<parameter=a>\n</parameter>",
    "pairs": "<arg_key>a</arg_key><arg_value>1</arg_value>",
    "bars": f"<{DSML}",
    "ends": "<|im_end|>\n",
}
PLACES = {
    "content": ("qwen3_instruct", ""),
    "reasoning": ("qwen3_thinking", ""),
    "undecided": ("seed_oss", ""),
    "text_markers": ("chatml", ""),
    "json_string": ("qwen3_instruct", CALLS["qwen3_instruct"][0]),
    "json_value": ("qwen3_instruct", '<tool_call>\n{"name": "save", "arguments": {"data": '),
    "json_before_the_name": ("qwen3_instruct", '<tool_call>\n{"arguments": {"text": "'),
    "json_behind_an_id": ("kimi_k2_instruct", CALLS["kimi_k2_instruct"][0]),
    "call_id": ("kimi_k2_instruct", "<|tool_calls_section_begin|><|tool_call_begin|>"),
    "between_calls": ("kimi_k2_instruct", "<|tool_calls_section_begin|>"),
    "fenced_json": ("deepseek_v3", CALLS["deepseek_v3"][0]),
    "framed_string": ("qwen3_coder", CALLS["qwen3_coder"][0]),
    "framed_object": ("qwen3_coder", '<tool_call>\n<function=save>\n<parameter=data>\n{"k": "'),
    "framed_integer": ("qwen3_coder", "<tool_call>\n<function=save>\n<parameter=count>\n"),
    "function_name": ("qwen3_coder", "<tool_call>\n<function="),
    "between_parameters": ("qwen3_coder", "<tool_call>\n<function=save>\n"),
    "inline_string": ("minimax_m2", CALLS["minimax_m2"][0]),
    "inline_object": ("minimax_m2", CALLS["minimax_m2"][0].replace("text", "data") + '{"k": "'),
    "verbatim_string": ("deepseek_v4", CALLS["deepseek_v4"][0]),
    "json_parameter": ("deepseek_v4", CALLS["deepseek_v4"][0].replace('text" string="true', 'data" string="false')),
    "pair_value": ("glm47", CALLS["glm47"][0]),
    "pair_object": ("glm47", CALLS["glm47"][0].replace("text", "data")),
    "pair_name": ("glm47", "</think><tool_call>"),
    "between_pairs": ("glm47", "</think><tool_call>save"),
}


@pytest.fixture(scope="module")
def counting() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(Path(__file__).with_name("counting.py")), str(Path(unbraid.__file__).parent.parent)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.communicate()


def looked_at(process: subprocess.Popen[str], place: str, unit: str, length: int, step: int = 7) -> list[float]:
    """Characters looked at per character fed: some at a time, and all at once."""
    format, before = PLACES[place]
    job = {"format": format, "tools": TOOLS, "before": before, "unit": unit, "length": length, "steps": [step, 0]}
    assert process.stdin
    assert process.stdout
    process.stdin.write(json.dumps(job) + "\n")
    process.stdin.flush()
    answer: list[float] = json.loads(process.stdout.readline())
    return answer


@pytest.mark.parametrize("garbage", GARBAGE)
@pytest.mark.parametrize("place", PLACES)
def test_characters_looked_at_grow_with_the_length(counting: subprocess.Popen[str], place: str, garbage: str) -> None:
    unit = GARBAGE[garbage]
    small, large = (  # both end with a whole one: what the end cuts off is looked at once more
        looked_at(counting, place, unit, length // len(unit) * len(unit)) for length in (2_000, 10_000)
    )
    assert large[0] <= small[0] * GROWTH, "seven characters at a time"
    assert large[1] <= small[1] * GROWTH, "all at once"


MILLION = ["content", "json_string", "framed_string", "framed_object", "inline_string", "verbatim_string", "pair_value"]


@pytest.mark.parametrize("place", MILLION)
def test_a_million_characters_cost_a_hundred_times_ten_thousand(counting: subprocess.Popen[str], place: str) -> None:
    costs = [looked_at(counting, place, GARBAGE["prose"], length, 40) for length in (10_000, 100_000, 1_000_000)]
    for small, large in pairwise(costs):
        assert large[0] <= small[0] * GROWTH, "forty characters at a time"
        assert large[1] <= small[1] * GROWTH, "all at once"


def test_the_count_sees_a_quadratic_program() -> None:
    """The witness of the witness: a buffer that grows and is searched at every step."""
    costs = []
    for length in (1_000, 10_000):
        WORK[0] = 0
        buffer: str = Counted("")
        for _ in range(length):
            buffer = buffer + Counted("x")
            buffer.find("y")
        costs.append(WORK[0] / length)
    assert costs[1] > 5 * costs[0]
