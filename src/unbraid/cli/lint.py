"""`unbraid lint`: doubts about a format's table, alone or held against a tokenizer and a chat template."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from unbraid import Vocabulary, get_format
from unbraid.boundary import BoundFormat
from unbraid.checkpoint import read_checkpoint
from unbraid.cli.problems import FILE, Problem
from unbraid.lint import Finding, lint, ordered
from unbraid.table import Format
from unbraid.terminal import BOLD, DIM, RED, Screen

STYLES = {"error": RED, "warning": "33", "note": DIM}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid lint`."""
    add = parser.add_argument
    add("format", metavar="F", help="name, alias, model id, or a table's file (.json)")
    add("--tokenizer", metavar="T", help="tokenizer.json, tekken.json, tiktoken.model, or the folder that holds it")
    add(
        "--template",
        metavar="J",
        help="a chat template: a .jinja file, tokenizer_config.json, a model's folder or GGUF",
    )
    add("--json", action="store_true", help="JSON instead of text")


def main(args: argparse.Namespace) -> int:
    """Print what there is to doubt; 1 if there is an error among it."""
    fmt = get_format(args.format)
    bound = fmt.bind(Vocabulary.from_file(args.tokenizer)) if args.tokenizer else None
    found = lint(fmt, bound.vocabulary if bound else None)
    if args.template:
        found = ordered([*found, *_with_template(fmt, args.template, bound)])
    screen = Screen(sys.stdout)
    if args.json:
        screen.json([dataclasses.asdict(finding) for finding in found])
    else:
        show(fmt.name, found, screen)
    return int(any(finding.level == "error" for finding in found))


def _with_template(fmt: Format, path: str, bound: BoundFormat | None) -> list[Finding]:
    from unbraid.probes import lint_template

    checkpoint = read_checkpoint(path)
    if checkpoint.template is None:
        raise Problem(f"{path}: holds no chat template", FILE)
    return lint_template(fmt, checkpoint.template, checkpoint.special_tokens, bound)


def show(name: str, found: Sequence[Finding], screen: Screen) -> None:
    """The findings for people, and how many there are."""
    for finding in found:
        level = screen.paint(finding.level, STYLES[finding.level])
        screen.line(f"{level}  {screen.paint(finding.place, BOLD)}: {screen.safe(finding.message)}")
        screen.line(screen.paint(f"    why  {finding.why}", DIM))
        screen.line(screen.paint(f"    do   {finding.remedy}", DIM))
    counts = {level: sum(finding.level == level for finding in found) for level in STYLES}
    said = ", ".join(f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts.items() if count)
    screen.line(f"{name}: {said or 'nothing to doubt'}")
