"""`unbraid doctor`: does this installation fit together?

exit code 0  nothing found
          1  an error among the findings (with --strict: or a warning)
          2  asked in a way that can't be answered
          3  a file can't be read or written
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from unbraid import get_format
from unbraid.cli.lint import show
from unbraid.cli.problems import FILE, Problem, writable, write_json
from unbraid.detect import detect
from unbraid.integrity.doctor import Installation, examine, examine_flags, fitting, read_installation
from unbraid.integrity.versions import (
    changes,
    environment_name,
    examine_tokenizer,
    examine_versions,
    installed,
    read_snapshot,
    snapshot,
)
from unbraid.lint import Finding
from unbraid.table import Format
from unbraid.terminal import DIM, Screen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid doctor`."""
    add = parser.add_argument
    add(
        "path",
        metavar="DIR|GGUF",
        nargs="?",
        help="a model's folder or file (without one, only the packages are looked at)",
    )
    add("--format", metavar="F", help="how the model writes (default: found from its files)")
    add("--engine-args", metavar="LINE", help="the engine's command line, quoted: vllm serve ..., llama-server ...")
    add(
        "--packages",
        metavar="DIR",
        action="append",
        help="site-packages of the engine's environment (default: this Python's)",
    )
    add("--save", metavar="FILE", help="keep what is here, to hold a later state against it")
    add("--diff", metavar="FILE", help="say what has changed since --save")
    add("--json", action="store_true", help="JSON instead of text")
    add("--notes", action="store_true", help="say what is worth knowing, too")
    add("--strict", action="store_true", help="warnings count as errors")
    parser.epilog = "exit codes: 0 nothing found, 1 findings, 2 wrong use, 3 unreadable"


def main(args: argparse.Namespace) -> int:
    """Look at everything, and say what doesn't fit."""
    writable(args.save)
    found = read_installation(args.path) if args.path else None
    fmt = _format(args, found)
    for folder in args.packages or ():
        if not Path(folder).is_dir():
            raise Problem(f"{folder}: there is no such folder; --packages takes an environment's site-packages", FILE)
    packages = installed(args.packages)
    findings = examine_versions(packages)
    if found is not None and fmt is not None:
        findings += [*examine(found, fmt), *examine_tokenizer(found, packages)]
    if args.engine_args:
        if fmt is None:
            raise Problem("--engine-args needs a model's folder or --format: flags fit a format, or don't")
        findings += examine_flags(args.engine_args, fmt, found.vocabulary if found else None)
    state = snapshot(packages, found, fmt)
    if args.diff:
        findings += changes(read_snapshot(args.diff), state)
    if args.save:
        write_json(args.save, state)
    shown = fitting(findings, notes=args.notes)
    _show(shown, Screen(sys.stdout), args, fmt)
    return int(any(finding.level == "error" or (args.strict and finding.level == "warning") for finding in shown))


def _format(args: argparse.Namespace, found: Installation | None) -> Format | None:
    if args.format:
        return get_format(args.format)
    if found is None:
        return None
    detected = detect(found.checkpoint)
    if detected.format is None or detected.confidence == "guess":
        raise Problem(f"can't tell the format of {args.path} from its files; say it with --format")
    return detected.format


def _show(shown: list[Finding], screen: Screen, args: argparse.Namespace, fmt: Format | None) -> None:
    if args.json:
        screen.json([dataclasses.asdict(finding) for finding in shown])
        return
    looked = [f"packages of {environment_name(args.packages)}"]
    looked += [f"{args.path} as {fmt.name}"] if args.path and fmt else []
    looked += ["the engine's flags"] if args.engine_args else []
    screen.line(screen.paint(f"looked at {', '.join(looked)}", DIM))
    show("doctor", shown, screen)
