"""`unbraid detect`: which format a model writes, with the evidence."""

from __future__ import annotations

import argparse
import sys

from unbraid.checkpoint import read_checkpoint
from unbraid.detect import Candidate, Detection, detect
from unbraid.terminal import BOLD, DIM, Screen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid detect`."""
    parser.add_argument(
        "path",
        metavar="DIR|GGUF",
        help="a model's folder, a GGUF, or one of its files (tokenizer_config.json, chat_template.jinja)",
    )
    parser.add_argument("--all", action="store_true", help="all candidates, not just the best three")
    parser.add_argument("--json", action="store_true", help="JSON instead of text")


def main(args: argparse.Namespace) -> int:
    """Print what the model's files say; 1 if they say nothing."""
    checkpoint = read_checkpoint(args.path)
    found = detect(checkpoint)
    screen = Screen(sys.stdout)
    shown = found.candidates if args.all else found.candidates[:3]
    if args.json:
        whole = {
            "format": found.format.name if found.format else None,
            "confidence": found.confidence if found.format else None,
            "response_template": checkpoint.response is not None,
            "candidates": [as_json(candidate) for candidate in shown],
        }
        screen.json(whole)
    else:
        show(found, shown, screen)
        if checkpoint.response is not None:
            screen.line(f"\nThe tokenizer describes its output itself; `--format {args.path}` reads that instead.")
    return int(found.format is None)


def as_json(candidate: Candidate) -> dict[str, object]:
    """A candidate with its evidence."""
    return {
        "format": candidate.format.name,
        "score": round(candidate.score, 3),
        "evidence": [{"weight": round(each.weight, 3), "message": each.message} for each in candidate.evidence],
    }


def show(found: Detection, shown: tuple[Candidate, ...], screen: Screen) -> None:
    """The format, how sure it is, and the evidence for the best candidates."""
    if found.format is None:
        screen.line("no format: nothing in these files is a marker of one (`unbraid formats` lists them)")
        return
    screen.line(f"{screen.paint(found.format.name, BOLD)}  {found.confidence}  {found.format.about}")
    for candidate in shown:
        screen.line(f"\n  {candidate.format.name}  {candidate.score:.2f}")
        for each in candidate.evidence:
            screen.line("    " + screen.paint(f"{each.weight:+.2f}", DIM) + "  " + screen.safe(each.message))
