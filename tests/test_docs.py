"""The pages are what the tables and fixtures say today, and the skeleton of a new format is sound."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import fixtures
import pytest
from tokens import Tokens

import unbraid
from unbraid.cli import COMMANDS, _parser, main
from unbraid.docs import pages, stale
from unbraid.formats import FORMATS
from unbraid.lint import lint

ROOT = Path(__file__).parent.parent


def test_the_pages_are_current() -> None:
    found = stale(pages(ROOT / "tests" / "data"), ROOT / "docs")
    assert found == [], f"make docs: {', '.join(found)}"


def test_every_format_has_a_page_that_says_what_makes_it() -> None:
    for name in FORMATS:
        first, *_ = (ROOT / "docs" / "formats" / f"{name}.md").read_text("utf-8").split("\n")
        assert first.startswith("<!-- Made by `python -m unbraid.docs` from src/unbraid/formats/")


def test_links_lead_somewhere() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_commands_in_the_guide_exist() -> None:
    guide = (ROOT / "docs" / "adding-a-format.md").read_text("utf-8")
    assert len(re.findall(r"^\d\. ", guide, re.MULTILINE)) == 8
    assert set(re.findall(r"unbraid ([a-z][a-z-]+) ", guide)) <= COMMANDS.keys()


PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
]


def commands_of(page: Path) -> list[tuple[list[str], bool]]:
    """The words behind `unbraid` wherever a page names a command, and whether they are said in full, as in a block of code."""
    text = page.read_text("utf-8")
    blocks = re.findall(r"^```(?:sh|console)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [(line, True) for block in blocks for line in block.splitlines()]
    lines += [(line, True) for line in re.findall(r"^    +(unbraid .*)$", text, re.MULTILINE)]
    lines += [(line, False) for line in re.findall(r"`(unbraid [^`]+)`", text)]
    found = []
    for line, whole in lines:
        if command := re.search(r"(?:^|[$|] *)(?:[A-Z_]+=\S+ )*unbraid (.*?)(?: [|&>].*)?$", line):
            words = shlex.split(command[1], comments=True)
            found.append(([word for word in words if word != "..."], whole and "..." not in words))
    return [(words, whole) for words, whole in found if words and words[0] in COMMANDS]


def test_every_command_of_the_pages_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    """With all its flags and values, as argparse reads them; in running text some of it may be left out."""
    seen = 0
    for page in PAGES:
        for words, whole in commands_of(page):
            unknown: list[str] = []
            with contextlib.suppress(SystemExit):
                _, unknown = _parser(words[0]).parse_known_args(words)
            said = capsys.readouterr().err
            assert not unknown, f"{page}: unbraid {' '.join(words)}: {unknown}"
            left_out = re.search("are required|expected (one|at least one) argument", said)
            assert not said or (left_out and not whole), f"{page}: unbraid {' '.join(words)}: {said}"
            seen += 1
    assert seen > 50


def test_every_policy_is_explained() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    for field in dataclasses.fields(unbraid.Policy):
        (row,) = re.findall(rf"^\| `{field.name}` \|(.*)$", page, re.MULTILINE)
        values = get_args(get_type_hints(unbraid.Policy)[field.name])
        assert get_origin(get_type_hints(unbraid.Policy)[field.name]) is frozenset or all(
            f"`{value}`" in row for value in values
        )


PYTHON = {
    f"{page.stem}-{at}": source
    for page in sorted((ROOT / "docs").glob("*.md"))
    for at, source in enumerate(
        re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    )
}


@pytest.mark.parametrize("name", PYTHON)
def test_examples_run(name: str) -> None:
    exec(compile(PYTHON[name], name, "exec"), {"__name__": "example"})


# -- new-format --------------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty repository."""
    (tmp_path / "src" / "unbraid" / "formats").mkdir(parents=True)
    (tmp_path / "tests" / "data").mkdir(parents=True)
    return tmp_path


def test_the_skeleton_is_green(root: Path) -> None:
    assert main(["new-format", "acme_1", "--root", str(root)]) == 0
    file = root / "src" / "unbraid" / "formats" / "acme_1.py"
    spec = importlib.util.spec_from_file_location("acme_1", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fmt: unbraid.Format = module.ACME_1
    assert fmt.name == "acme_1"
    assert lint(fmt) == []
    cases = list(fixtures.read(root / "tests" / "data" / "acme_1.jsonl"))
    tok = Tokens(fmt, [text for case in cases for text in (case.raw, case.prompt or "")])
    for case in cases:
        prompt = None if case.prompt is None else tok.encode(case.prompt)
        got = unbraid.parse(tok.bound, tok.encode(case.raw), prompt=prompt, finish_reason=case.finish, **case.options)
        assert (got.reasoning, got.content) == (case.reasoning, case.content), case.name
        read = [[c.name, json.loads(fixtures.completed(c.arguments)), c.complete] for c in got.tool_calls]
        assert read == [[*call, True][:3] for call in case.calls], case.name
    names = [case.name for case in cases]
    assert "continued_inside_content" in names  # tests/test_properties.py builds on it
    for part in ("call", "parallel", "cut_inside", "spelled", "system_prompt", "earlier_turn", "continued"):
        assert any(part in name for name in names)


def test_the_tests_of_the_skeleton_pass(tmp_path: Path) -> None:
    """In a copy of the repository, as the page on adding a format says: what the tests demand of every format, it has."""
    for folder in ("src", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "real_vllm", "*.so")
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert main(["new-format", "acme_1", "--root", str(tmp_path)]) == 0
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    words = ["tests/test_formats.py", "-k", "acme_1"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src")}
    done = subprocess.run(
        [*command, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert re.search(r"^\d\d+ passed", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(("name", "said"), [("Acme", "can't be"), ("class", "can't be"), ("hermes", "is taken by")])
def test_names_that_a_format_cannot_have(root: Path, name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-format", name, "--root", str(root)]) == 2
    assert said in capsys.readouterr().err


def test_nothing_is_written_over(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-format", "acme_1", "--root", str(root)]) == 0
    assert main(["new-format", "acme_1", "--root", str(root)]) == 3
    assert "is there already" in capsys.readouterr().err
    assert main(["new-format", "acme_2", "--root", str(root / "none")]) == 3
    assert "no such folder" in capsys.readouterr().err


def test_the_page_on_grammars_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parent.parent / "docs" / "grammar.md").read_text(encoding="utf-8")
    (source,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(compile(source, "grammar.md", "exec"), {"__name__": "page"})
    assert capsys.readouterr().out.strip() == re.findall(r"# (start: .*)", source)[0]
