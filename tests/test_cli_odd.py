"""Whatever a command is given where it expects something else: one line that says what is wrong, the documented exit code, no traceback.

Every argument of every command is tried with files that are none, hold nothing or nonsense, and with words that mean nothing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from broken import serving
from test_cli import Run
from test_cli import run as run
from test_integrity_nonsense import MODELS, SOUND, Odd

from unbraid.cli import COMMANDS, _parser

CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "noise": bytes(range(256)) * 16,
    "broken.json": b"{",
    "list.json": b"[null]",
    "object.json": b'{"nonsense": 1}',
    "array.json": b'[{"nonsense": 1}]',
    "deep.json": b"[" * 100_000,
    "lines.jsonl": b'{"a": 1}\nno\n',
    "long.gguf": b"GGUF\3\0\0\0" + b"\xff" * 60,
}
WORDS = ("absent", "folder", "", "two\nlines", "x" * 5_000, "\udcff", "http://[::1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    for name, content in CONTENTS.items():
        (folder / name).write_bytes(content)
    (folder / "folder").mkdir()
    (folder / "raw").write_text("Hm.")
    (folder / "message.json").write_text('{"content": "Hm."}')
    return folder


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(Odd(MODELS, SOUND)) as url:
        yield url


NEEDED: dict[str, list[str]] = {
    "parse": ["raw", "--format", "qwen3"],
    "show": ["qwen3"],
    "lint": ["qwen3"],
    "render": ["qwen3", "message.json"],
    "diagram": ["qwen3"],
    "detect": ["raw"],
    "new-format": ["qwen3"],  # is there already: none is written
    "compare": ["URL", "URL", "--format", "qwen3", "--only", "plain"],
    "check": ["URL", "--format", "qwen3", "--only", "plain"],
    "audit": ["raw"],
    "serve": ["--port", "0", "--engine", "absent.jsonl"],  # so that none comes up
}
"""What a command can't do without; the odd thing takes its place or stands beside it."""

TRIED = {
    "serve": ("config", "host", "port", "api_key_file", "format", "tokenizer", "chat_template", "record"),
    "compare": ("count", "save", "baseline", "state", "examples", "json"),  # the others are those of `check`
}
"""Of a command with many options: these."""
BRIEFLY = {"check": 4, "compare": 4, "serve": 4}
"""Commands of which one thing takes long: every fourth is tried."""


def uses(command: str, odd: str) -> Iterator[list[str]]:
    """The command with this in the place of each of its arguments."""
    parsers = next(a for a in _parser(command)._actions if isinstance(a, argparse._SubParsersAction))
    actions = [action for action in parsers.choices[command]._actions if action.nargs != 0]
    given = NEEDED.get(command, [])
    options = next((at for at, word in enumerate(given) if word.startswith("--")), len(given))
    for at in range(options):
        yield [*given[:at], odd, *given[at + 1 :]]
    for action in actions:
        if action.option_strings and action.dest in TRIED.get(command, (action.dest,)):
            yield [*given, max(action.option_strings, key=len), odd]


ODD = [*CONTENTS, *WORDS]


@pytest.mark.parametrize(
    ("command", "odd"),
    [(command, odd) for command in COMMANDS for odd in ODD[:: BRIEFLY.get(command, 1)]],
    ids=lambda word: word[:12] or "nothing",
)
def test_odd_things_are_told_in_one_line(
    command: str, odd: str, folder: Path, url: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for words in uses(command, odd):
        before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        ran = run(command, *(url if word == "URL" else word for word in words))
        for path in folder.iterdir():  # some are written: `--save`, `--json`
            if path.is_file() and path not in before:
                path.unlink()
        for path, content in before.items():
            path.write_bytes(content)
        assert ran.code in (0, 1, 2, 3, 4), words
        assert "Traceback" not in ran.err, words
        if ran.code > 1:
            line = ran.err.splitlines()[-1]
            assert line.startswith("unbraid: "), words
            assert len(ran.err.splitlines()) == 1, words
            assert len(line) > len("unbraid: ") + 10, words


def test_compare_with_nothing_says_what_with(run: Run) -> None:
    ran = run("compare", "http://127.0.0.1:1")
    assert ran.code == 2
    assert "http://127.0.0.1:1 is to be compared with nothing: give a second URL, or --baseline FILE" in ran.err
    ran = run("compare", "http://127.0.0.1:1", "--save", "a", "--baseline", "b")
    assert ran.code == 2
    assert "--baseline and --save exclude each other" in ran.err


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"contents": "Hm."}, "contents: unknown; known are role, reasoning"),
        ({"contents": "Hm."}, "did you mean content?"),
        ({"tool_calls": [{"name": "f", "argumens": {}, "argument": {"a": 1}}]}, "tool_calls/0/argument: unknown"),
        ([], "expected an object with reasoning, content, tool_calls, found list"),
        ({"tool_calls": 3}, "tool_calls: expected a list"),
    ],
)
def test_a_message_is_read_whole_or_not_at_all(message: object, said: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "message.json"
    file.write_text(json.dumps(message))
    ran = run("render", "qwen3", file)
    assert ran.code == 3
    assert f"{file}: " in ran.err
    assert said in ran.err


def test_what_an_api_says_besides_is_no_matter_if_it_is_nothing(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "message.json"
    file.write_text('{"role": "assistant", "content": "Hm.", "refusal": null, "annotations": [], "audio": null}')
    assert run("render", "qwen3_instruct", file).code == 0


@pytest.mark.parametrize(
    "tools", [{}, 3, [3], [{}], [{"type": "function"}], [{"type": "function", "function": {"name": 3}}]]
)
@pytest.mark.parametrize("command", ["parse", "render"])
def test_tools_that_are_none_are_told(command: str, tools: object, run: Run, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps(tools))
    first = ["-f", "qwen3", folder / "raw"] if command == "parse" else ["qwen3", folder / "message.json"]
    ran = run(command, *first, "--tools", file)
    assert ran.code == 3
    assert f"{file}: " in ran.err
