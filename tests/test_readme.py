"""What the README shows is true: its Python runs, its commands print what it says.

Examples that need a server, an engine or a tokenizer file have tests of their own; here they must only be Python.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)( notest)?\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
PYTHON = [body for language, _, body in BLOCKS if language == "python"]
RUN = [body for language, skip, body in BLOCKS if language == "python" and not skip and "http://" not in body]
CONSOLE = [body for language, _, body in BLOCKS if language == "console"]


def test_examples_were_found() -> None:
    assert len(PYTHON) >= 3
    assert RUN
    assert CONSOLE


@pytest.mark.parametrize("source", PYTHON)
def test_python_is_python(source: str) -> None:
    ast.parse(source)


@pytest.mark.parametrize("source", RUN)
def test_python_runs(source: str) -> None:
    exec(compile(source, "README.md", "exec"), {"__name__": "readme"})


def commands() -> list[tuple[str, str]]:
    """Each command of the console blocks with what it is said to print."""
    found = []
    for block in CONSOLE:
        for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = example.partition("\n")
            found.append((command, output))
    return found


@pytest.mark.parametrize(("command", "output"), commands())
def test_commands_print_what_is_said(command: str, output: str) -> None:
    command = re.sub(r"\bunbraid\b", f"{sys.executable} -m unbraid", command)
    environment = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR",)}
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment, timeout=60, check=True
    )
    assert done.stdout == output
    assert not done.stderr


def test_its_chores_are_words_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for word in re.findall(
        r"\bmake ([a-z]+)\b(?= |`|$)", "\n".join(re.findall(r"`[^`]+`|^make .*$", text, re.MULTILINE))
    ):
        assert re.search(rf"^{word}:", makefile, re.MULTILINE), f"no `make {word}`"
