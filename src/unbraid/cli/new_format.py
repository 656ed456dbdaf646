"""`unbraid new-format`: the skeleton of a format, a table and its fixtures, complete and green from the start.

What it writes is a made-up format of the commonest kind (a thought, an answer, calls as JSON objects), so that the tests
pass before the first change, and every change can be seen.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
from pathlib import Path
from typing import Any

from unbraid.cli.problems import FILE, USAGE, Problem
from unbraid.errors import FormatNotFound
from unbraid.formats import get_format
from unbraid.terminal import Screen

TABLE = '''\
"""TODO who makes the model, which models: what they write, in a line.

    <think>
    A thought.
    </think>

    An answer.
    <tool_call>
    {{"name": "get_weather", "arguments": {{"city": "Oslo"}}}}
    </tool_call><|im_end|>

TODO the traps: whose white space is it, who opens the thought, what may stand inside a value. Source: TODO.
"""

from unbraid.codecs import JsonObject
from unbraid.table import (
    CONTENT, ENDED, REASONING, ROLE, START, WAITING, Format, Start, Thinking, calling, special, text, turn,
)  # fmt: skip

TURN, END = turn("<|im_start|>"), turn("<|im_end|>")
NEWLINE = text("\\n")
THINK = special("<think>", after="\\n")  # the newline belongs to the markup, not to the thought
UNTHINK = special("</think>", before="\\n", after="\\n\\n")
CALL = special("<tool_call>", before="\\n", after="\\n")
UNCALL = special("</tool_call>", before="\\n")
CALLING = calling(JsonObject())

{constant} = Format(
    name="{name}",
    about="TODO: which models, what they write",
    aliases=(),  # the names under which vLLM and SGLang know it
    models=("TODO/{name}-*",),
    states={{
        REASONING: {{THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING}},  # read without its prompt, it may open the thought
        CONTENT: {{THINK: REASONING, CALL: CALLING}},
        WAITING: {{THINK: REASONING, UNTHINK: CONTENT, CALL: CALLING}},
        CALLING: {{UNCALL: CONTENT, CALL: CALLING}},
        ROLE: {{NEWLINE: START, THINK: REASONING, UNTHINK: CONTENT}},
        ENDED: {{}},
    }},
    turns={{TURN: ROLE, END: ENDED}},
    thinking=Thinking(("enable_thinking",), default=True),
    start=Start(on=WAITING, unknown=REASONING),
)
'''

_PROMPT = "<|im_start|>user\nWhere to?<|im_end|>\n<|im_start|>assistant\n"
_OFF = _PROMPT + "<think>\n\n</think>\n\n"
_CALL = '<tool_call>\n{"name": "go", "arguments": {"to": "Ulm"}}\n</tool_call>'
_GO = ["go", {"to": "Ulm"}]

FIXTURES: list[dict[str, Any]] = [
    {"name": "call", "prompt": _OFF, "raw": f"{_CALL}<|im_end|>", "calls": [_GO]},
    {
        "name": "reasoning_then_answer",
        "prompt": _PROMPT,
        "raw": "<think>\nNorth.\n</think>\n\nUp.<|im_end|>",
        "reasoning": "North.",
        "content": "Up.",
    },
    {
        "name": "reasoning_then_answer_without_the_prompt",
        "raw": "<think>\nNorth.\n</think>\n\nUp.<|im_end|>",
        "reasoning": "North.",
        "content": "Up.",
    },
    {"name": "parallel_calls", "prompt": _OFF, "raw": f"{_CALL}\n{_CALL}<|im_end|>", "calls": [_GO, _GO]},
    {
        "name": "marker_in_an_argument",
        "prompt": _OFF,
        "raw": _CALL.replace("Ulm", "</tool_call>"),
        "calls": [["go", {"to": "</tool_call>"}]],
    },
    {
        "name": "marker_spelled_in_an_argument",
        "prompt": _OFF,
        "raw": _CALL.replace("Ulm", "⟦</tool_call>⟧"),
        "calls": [["go", {"to": "</tool_call>"}]],
    },
    {
        "name": "cut_inside_a_string",
        "prompt": _OFF,
        "raw": _CALL[: _CALL.index("lm")],
        "finish": "length",
        "calls": [["go", {"to": "U"}, False]],
    },
    {
        "name": "reasoning_open_in_the_prompt_continued",
        "prompt": f"{_PROMPT}<think>\nNor",
        "raw": "th.\n</think>\n\nUp.",
        "reasoning": "th.",
        "content": "Up.",
    },
    {"name": "continued_inside_content", "prompt": f"{_OFF}Go", "raw": " up.", "content": " up."},
    {"name": "marker_spelled_in_content", "prompt": _OFF, "raw": "Say ⟦<think>⟧.", "content": "Say <think>."},
    {
        "name": "example_in_the_system_prompt",
        "prompt": f"<|im_start|>system\nWrite {_CALL}<think><|im_end|>\n{_OFF}",
        "raw": "Up.",
        "content": "Up.",
    },
    {
        "name": "earlier_turn_thought",
        "prompt": f"<|im_start|>assistant\n<think>\nHm.<|im_end|>\n{_OFF}",
        "raw": "Up.",
        "content": "Up.",
    },
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid new-format`."""
    add = parser.add_argument
    add("name", metavar="NAME", help="the format's name: small letters, digits, underscores")
    add("--root", type=Path, default=Path(), help="the root of unbraid's repository (default: here)")


def main(args: argparse.Namespace) -> int:
    """Write the two files; never over a file that is there."""
    name: str = args.name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise Problem(f"{name!r} can't be a format's name: small letters, digits and underscores", USAGE)
    try:
        taken = get_format(name).name
    except FormatNotFound:
        taken = ""
    if taken:
        raise Problem(f"the name {name!r} is taken by {taken}", USAGE)
    table, fixtures = (
        args.root / "src" / "unbraid" / "formats" / f"{name}.py",
        args.root / "tests" / "data" / f"{name}.jsonl",
    )
    for file in (table, fixtures):
        if file.exists():
            raise Problem(f"{file} is there already", FILE)
        if not file.parent.is_dir():
            raise Problem(
                f"{file.parent}: no such folder; run this at the root of unbraid's repository, or give --root", FILE
            )
    table.write_text(TABLE.format(name=name, constant=name.upper()), "utf-8", newline="\n")
    lines = [json.dumps(fixture, ensure_ascii=False) for fixture in FIXTURES]
    fixtures.write_text("\n".join(lines) + "\n", "utf-8", newline="\n")
    screen = Screen(sys.stdout)
    screen.line(f"{table}\n{fixtures}")
    screen.line(f"next: docs/adding-a-format.md, and `python -m pytest tests/test_formats.py -k {name}`")
    return 0
