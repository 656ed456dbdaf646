"""What a token costs, counted in calls of functions: a change that makes the per-token path dearer shows here.

Time isn't measured: calls are exact, and the same on every machine. The bounds leave little room on purpose. Raise one only
for something that is worth it to everybody who streams a token.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from test_linear import TOOLS, call, count_calls, prose
from tokens import Tokens, tokens

import unbraid
from unbraid.machine import Machine
from unbraid.native import compiled, fields
from unbraid.parser import text_program
from unbraid.policy import DEFAULT_POLICY

pytestmark = pytest.mark.skipif(compiled(), reason="counts calls, which are none when they are compiled")

CODE = prose(6_000)
ANSWER = "Weekdays differ from the weekend. " * 60
MESSAGES = (
    "<|channel|>analysis<|message|>It may change before the weekend.<|end|>"
    "<|start|>assistant<|channel|>commentary<|message|>I write it down.<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.save <|constrain|>json<|message|>"
    '{"text": "Oslo, cold and dry"}<|end|><|start|>assistant'
)
STREAMS = {
    "answer": ("qwen3", f"</think>{ANSWER}", 5.5),
    "reasoning": ("qwen3", f"<think>\n{ANSWER}\n</think>\n\nYes.", 5.5),
    "angles": ("qwen3", "</think>" + "a < b, <b>bold</b> and x << 2\n" * 60, 5.5),
    "json": ("qwen3_instruct", call("qwen3_instruct", CODE), 5.8),
    "xml": ("qwen3_coder", call("qwen3_coder", CODE), 5.8),
    "pairs": ("glm47", call("glm47", CODE), 5.8),
    "section": ("minimax_m2", call("minimax_m2", CODE), 5.9),
    "short values": (
        "qwen3_coder",
        "\n".join(
            "<tool_call>\n<function=save>\n"
            f"<parameter=count>\n{n}7\n</parameter>\n<parameter=text>\nt{n}\n</parameter>\n"
            f'<parameter=data>\n{{"k": [{n}, true]}}\n</parameter>\n</function>\n</tool_call>'
            for n in range(1, 9)
        ),
        9.6,
    ),
    "tags with types": (
        "kimi_k3",
        "<|open|>tools<|sep|>"
        + "".join(
            f'<|open|>call tool="save" index="{n}"<|sep|><|open|>argument key="count" type="number"<|sep|>{n}7<|close|>argument<|sep|>'
            f'<|open|>argument key="text" type="string"<|sep|>t{n}<|close|>argument<|sep|><|close|>call<|sep|>'
            for n in range(1, 9)
        ),
        7.3,
    ),
    "bare json": ("deepseek_v31", call("deepseek_v31", CODE), 5.8),
    "parallel": (
        "qwen3",
        "</think>"
        + "\n".join(
            f"<tool_call>\n{json.dumps({'name': 'save', 'arguments': {'text': f't{n}'}})}\n</tool_call>"
            for n in range(16)
        ),
        7.7,
    ),
    "headers": ("harmony", MESSAGES * 4, 8.0),
    "special tokens": ("deepseek_v4", call("deepseek_v4", "Mild,\nthen cold. " * 20), 6.4),
    "ids": (
        "kimi_k2_instruct",
        "<|tool_calls_section_begin|>"
        + "".join(
            f'<|tool_call_begin|>functions.save:{n}<|tool_call_argument_begin|>{{"text": "t{n}"}}<|tool_call_end|>'
            for n in range(12)
        ),
        7.7,
    ),
    "unmarked": (
        "llama3_json",
        json.dumps({"name": "save", "parameters": {"text": "Mild, then cold. " * 20}}) + "<|eot_id|>",
        5.8,
    ),
    "array": (
        "cohere_command3",
        "<|START_ACTION|>["
        + ", ".join(
            f'{{"tool_call_id": "{n}", "tool_name": "save", "parameters": {{"text": "t{n}"}}}}' for n in range(12)
        ),
        7.0,
    ),
}
"""A format, a stream of it, and how many calls a token may cost once the format is warm: `feed`, `len`, a look-up, the append to what is
gathered, and the event; in a call sometimes one look-up and `_take` more."""


def warm(tok: Tokens, ids: list[int]) -> None:
    for _ in range(3):
        feed(tok, ids)


def feed(tok: Tokens, ids: list[int]) -> unbraid.Message:
    parser = unbraid.Parser(tok.bound, tools=TOOLS)
    for id in ids:
        parser.feed((id,))
    parser.finish()
    return parser.message


@pytest.mark.parametrize("name", STREAMS)
def test_calls_for_a_token(name: str) -> None:
    format, text, most = STREAMS[name]
    tok = Tokens(unbraid.get_format(format), [text])
    ids = tok.encode(text)
    warm(tok, ids)
    assert count_calls(partial(feed, tok, ids)) / len(ids) <= most


@pytest.mark.parametrize("name", STREAMS)
def test_nothing_is_worked_out_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for what depends on more than the token: a name that is looked up, a value that is read whole by its type."""
    format, text, _ = STREAMS[name]
    tok = Tokens(unbraid.get_format(format), [text])
    ids = tok.encode(text)
    warm(tok, ids)
    worked: list[Machine] = []
    turn = Machine._turn

    def counted(self: Machine) -> None:
        worked.append(self)
        turn(self)

    monkeypatch.setattr(Machine, "_turn", counted)
    feed(tok, ids)
    assert len(worked) <= 2


def words(random: Random, count: int) -> str:
    return " ".join("".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(2, 8))) for _ in range(count))


def arguments(random: Random) -> str:
    return json.dumps({"text": f"{words(random, 4)}\n{words(random, 2)}", "count": random.randint(1, 10**6)})


FRESH: dict[str, tuple[str, Callable[[Random], str]]] = {
    "answer": (
        "qwen3",
        lambda r: f"<think>\n{words(r, 9)}:\n{words(r, 5)}\n</think>\n\n{words(r, 9)}!\n\n- {words(r, 9)}",
    ),
    "json": (
        "qwen3",
        lambda r: words(r, 4) + f'\n<tool_call>\n{{"name": "save", "arguments": {arguments(r)}}}\n</tool_call>' * 2,
    ),
    "xml": (
        "qwen3_coder",
        lambda r: (
            "<tool_call>\n<function=save>\n"
            f"<parameter=text>\n{words(r, 9)}\n  {words(r, 5)}\n</parameter>\n<parameter=count>\n{r.randint(1, 10**6)}\n</parameter>\n"
            "</function>\n</tool_call>"
        ),
    ),
    "pairs": (
        "glm47",
        lambda r: (
            f"{words(r, 9)}</think><tool_call>save<arg_key>text</arg_key><arg_value>{words(r, 9)}</arg_value></tool_call>"
        ),
    ),
    "bare json": (
        "deepseek_v31",
        lambda r: (
            "<｜tool▁calls▁begin｜>"
            + f"<｜tool▁call▁begin｜>save<｜tool▁sep｜>{arguments(r)}<｜tool▁call▁end｜>" * 2
            + "<｜tool▁calls▁end｜>"
        ),
    ),
}
"""Texts of which only the structure comes again: no value, and no prose."""


@pytest.mark.parametrize("name", FRESH)
@pytest.mark.parametrize("size", [30, 100_000])
def test_text_of_several_tokens_needn_t_be_known(name: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is passed on as it is goes out in stretches, whatever it is, and isn't remembered; only structure is."""
    format, fresh = FRESH[name]
    fmt = unbraid.get_format(format)
    memo = text_program(fmt, DEFAULT_POLICY).memo
    worked: list[str] = []
    known = memo.count
    turn = Machine._turn

    def counted(self: Machine) -> None:
        worked.append(self._buffer)
        turn(self)

    monkeypatch.setattr(Machine, "_turn", counted)
    for number in range(150):
        if number == 110:
            worked.clear()
            known = memo.count
        text, cuts = fresh(Random(number)), Random(-number)
        parser, at = unbraid.Parser(fmt, tools=TOOLS), 0
        while at < len(text):
            step = size + cuts.randint(-8, 8)
            parser.feed_text(text[at : at + step])
            at += step
        parser.finish()
    assert len(worked) <= 25, "of some 400 steps: structure, cut where no token ends"
    assert memo.count - known <= 60


def test_a_parser_is_small() -> None:
    """Per live parser that waits for its first token, what all share left out: fields, and the lists that they hold."""
    tok = tokens("qwen3")
    parser = unbraid.Parser(tok.bound, prompt=tok.encode("<|im_start|>assistant\n"))
    own = [value for name in fields(type(parser)) if isinstance(value := getattr(parser, name, None), (list, set))]
    assert sys.getsizeof(parser) + sum(map(sys.getsizeof, own)) < 2_000
