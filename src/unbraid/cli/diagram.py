"""`unbraid diagram`: the states of a format as a picture."""

from __future__ import annotations

import argparse
import sys

from unbraid import get_format
from unbraid.diagram import diagram


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid diagram`."""
    parser.add_argument("format", metavar="F", help="name, alias, model id, or a table's file (.json)")
    parser.add_argument(
        "--as",
        dest="kind",
        choices=("text", "mermaid", "dot", "svg"),
        default="text",
        help="how to draw it; svg needs Graphviz (default: %(default)s)",
    )


def main(args: argparse.Namespace) -> int:
    """Print the picture."""
    sys.stdout.write(diagram(get_format(args.format), args.kind))
    return 0
