"""`unbraid formats`: which formats there are."""

from __future__ import annotations

import argparse
import sys

from unbraid.formats import FORMATS
from unbraid.table import Format
from unbraid.terminal import BOLD, Screen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid formats`."""
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")


def main(args: argparse.Namespace) -> int:
    """Print the registry."""
    screen = Screen(sys.stdout)
    formats = [FORMATS[name] for name in sorted(FORMATS)]
    if args.json:
        screen.json([summary(fmt) for fmt in formats])
        return 0
    head = ("FORMAT", "WRITES", "ALIASES", "MODELS")
    rows = [
        (fmt.name, ", ".join(writes(fmt)), ", ".join(fmt.aliases) or "-", ", ".join(fmt.models) or "-")
        for fmt in formats
    ]
    screen.table([head, *rows], styles=(BOLD,))
    return 0


def writes(fmt: Format) -> list[str]:
    """What may be in a message of this format."""
    return [*(["reasoning"] if fmt.reasons else []), "content", *(["calls"] if fmt.calls else [])]


def summary(fmt: Format) -> dict[str, object]:
    """A format's names and what it writes."""
    return {
        "name": fmt.name,
        "about": fmt.about,
        "writes": writes(fmt),
        "aliases": list(fmt.aliases),
        "models": list(fmt.models),
    }
