"""`unbraid audit FILE`: what is wrong with captured replies.

exit code 0  nothing found
          1  an error among the findings (with --strict: or a warning)
          2  asked in a way that can't be answered; no reply in the file
          3  a file can't be read or written
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from unbraid import Vocabulary, get_format
from unbraid.cli.problems import Problem, read_bytes, read_text, report, writable
from unbraid.integrity.audit import Audited, audit_all
from unbraid.integrity.captures import Capture, read_captures, text_of
from unbraid.integrity.report_text import show_causes, show_finding, worst
from unbraid.terminal import BOLD, DIM, Screen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid audit`."""
    add = parser.add_argument
    add(
        "files",
        metavar="FILE",
        nargs="+",
        help="a HAR, output of curl -N, a reply's JSON, or JSON Lines of chunks or records; - reads standard input",
    )
    add(
        "--format",
        metavar="F",
        help="how the model writes: its markers and the order of its strands are looked at, too",
    )
    add("--raw", metavar="FILE", help="the raw text of the reply, as the engine wrote it (needs --format)")
    add(
        "--tokenizer",
        metavar="T",
        help="for captures that hold token ids: tokenizer.json or its folder (needs --format)",
    )
    add("--json", metavar="FILE", help="write the findings as JSON; - for standard output")
    add("--strict", action="store_true", help="warnings count as errors")
    parser.epilog = "exit codes: 0 nothing found, 1 findings, 2 wrong use, 3 unreadable"


def main(args: argparse.Namespace) -> int:
    """Look through the files, and say what was found."""
    if (args.raw or args.tokenizer) and not args.format:
        raise Problem("--raw and --tokenizer need --format: without a format nobody can say what the raw layer means")
    writable(args.json)
    captures = [capture for path in args.files for capture in read_captures(text_of(read_bytes(path)), path)]
    if args.raw:
        if len(captures) != 1:
            raise Problem(
                f"--raw is the text of one reply, and there are {len(captures)}; use records with a field `raw`"
            )
        captures[0].raw = read_text(args.raw)
    vocabulary = Vocabulary.from_file(args.tokenizer) if args.tokenizer else None
    found = audit_all(captures, get_format(args.format) if args.format else None, vocabulary)
    findings = [finding for audited in found for finding in audited.findings]
    screen = Screen(sys.stdout)
    report(args.json, screen, lambda: [as_json(audited) for audited in found], lambda: show(found, screen))
    return worst(findings, strict=args.strict)


def show(found: list[Audited], screen: Screen) -> None:
    """Each capture in a line, its findings below."""
    for audited in found:
        screen.line(f"{screen.paint(audited.capture.name, BOLD)}  {screen.paint(about(audited.capture), DIM)}")
        for finding in audited.findings:
            show_finding(finding, screen)
    findings = [finding for audited in found for finding in audited.findings]
    count = f"{len(findings)} finding{'s' if len(findings) > 1 else ''}" if findings else "nothing found"
    screen.line(f"\n{len(found)} repl{'y' if len(found) == 1 else 'ies'}: {count}")
    show_causes([finding for finding in findings if finding.level != "note"], screen)


def about(capture: Capture) -> str:
    """What a reply holds, in a few words."""
    parts = ["stream" if capture.stream else "one-shot"]
    for said in capture.reply.choices.values():
        sizes = {"reasoning": len(said.reasoning or ""), "content": len(said.content or ""), "calls": len(said.calls)}
        parts.append(", ".join(f"{name} {size}" for name, size in sizes.items() if size) + f" ({said.finish})")
    return "; ".join(parts)


def as_json(audited: Audited) -> dict[str, Any]:
    """One capture's findings."""
    return {
        "capture": audited.capture.name,
        "stream": audited.capture.stream,
        "findings": [finding.object() for finding in audited.findings],
    }
