"""`unbraid show`: one format's table, so that one can read it."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence

from unbraid import get_format
from unbraid.cli.formats import summary, writes
from unbraid.codecs.base import Codec
from unbraid.codecs.choice import Choice
from unbraid.serialize import to_json
from unbraid.table import ANY, Format, Marker, Special, State, Transitions, spelled
from unbraid.terminal import BOLD, DIM, STRANDS, Screen


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid show`."""
    parser.add_argument("format", metavar="F", help="name, alias or model id (`unbraid formats` lists them)")
    parser.add_argument("--json", action="store_true", help="JSON instead of a table")
    parser.add_argument("--table", action="store_true", help="the table as a file, as `--format` takes it")


def main(args: argparse.Namespace) -> int:
    """Print the table of a format."""
    fmt = get_format(args.format)
    screen = Screen(sys.stdout)
    if args.json or args.table:
        screen.json(to_json(fmt) if args.table else as_json(fmt))
    else:
        show(fmt, screen)
    return 0


def show(fmt: Format, screen: Screen) -> None:
    """The table, in the order in which one reads it: what it is, its markers, its states, where it starts and ends."""
    screen.line(f"{screen.paint(fmt.name, BOLD)}  {fmt.about}")
    about = [
        ("writes", ", ".join(writes(fmt))),
        ("aliases", ", ".join(fmt.aliases)),
        ("models", ", ".join(fmt.models)),
        ("thinking", thinking(fmt)),
        ("starts in", ", ".join(f"{state} ({when})" for when, state in starts(fmt).items())),
        ("call ids", call_ids(fmt)),
        ("visible", ", ".join(fmt.visible)),
    ]
    screen.table([fact for fact in about if fact[1]], styles=(DIM,))

    screen.line("\n" + screen.paint("markers", BOLD))
    head = ("", "kind", "owns before", "owns after", "")
    rows = [(" = ".join(spellings(m)), kind(m), blank(m.before), blank(m.after), remark(m)) for m in fmt.markers]
    screen.table([head, *rows], indent="  ")

    screen.line("\n" + screen.paint("states", BOLD))
    screen.legend(list(dict.fromkeys(state.strand for state in fmt.states)))
    for state, row in fmt.states.items():
        notes = "; ".join(notes_on(state))
        screen.line(
            f"  {screen.paint(f'{state.name} [{state.strand}]', STRANDS[state.strand])}{'  ' + notes if notes else ''}"
        )
        show_codec(state, screen)
        show_row(row, screen)
    screen.line("\n" + screen.paint("turns", BOLD) + "  (in every state)")
    show_row(fmt.turns, screen)


def show_row(row: Transitions, screen: Screen) -> None:
    """A row: marker -> state."""
    screen.table([(spellings(marker)[0], f"-> {target}") for marker, target in row.items()], indent="      ")


def show_codec(state: State, screen: Screen) -> None:
    """How the body of a call is written; where a format knows several ways, the first that fits."""
    rows: list[tuple[str, str]] = []
    for codec in alternatives(state.codec):
        first, *rest = facts(codec)
        rows += [(f"{'or' if rows else 'body'}: {type(codec).__name__}", first), *(("", fact) for fact in rest)]
    screen.table(rows, indent="      ", styles=(STRANDS["tool_call"],))


def facts(codec: object) -> list[str]:
    """The parameters of a codec that say something, one a line."""
    found = [(f.name, getattr(codec, f.name)) for f in dataclasses.fields(codec)]  # type: ignore[arg-type]
    return [f"{name} {value(thing)}" for name, thing in found if thing not in ((), "", False, None)] or [""]


def spellings(marker: Marker) -> list[str]:
    """The spellings, with white space made visible."""
    return [
        "".join(repr(piece)[1:-1] if isinstance(piece, str) else piece.text for piece in spelling)
        for spelling in marker.spellings
    ] or [str(marker)]


def kind(marker: Marker) -> str:
    """Special, text, or a mixture of both."""
    pieces = [piece for spelling in marker.spellings for piece in spelling]
    specials = sum(isinstance(piece, Special) for piece in pieces)
    return "text" if not specials else "special" if specials == len(pieces) else "special + text"


def blank(owned: str) -> str:
    """White space that a marker owns, made visible."""
    if owned == ANY:
        return "any"
    return "-" if not owned else repr(owned) if " " in owned else repr(owned)[1:-1]


def remark(marker: Marker) -> str:
    """What is unusual about a marker."""
    return ", ".join(
        (["not consumed"] if marker.peek else [])
        + (["ends a call even inside a value"] if marker.inside == "ends" else [])
    )


def notes_on(state: State) -> list[str]:
    """What a state does besides its row."""
    notes = []
    if state.otherwise:
        notes.append(f"the first other text leads to {state.otherwise}")
    if state.undecided:
        notes.append("reasoning may still begin")
    if state.header:
        notes.append("text is the head of a turn")
    if state.blank != "keep":
        notes.append(f"white space alone is markup (in a {state.blank})")
    return notes


def value(thing: object) -> str:
    """What a codec is made of, as a table would write it; of a spelling, its text."""
    if isinstance(thing, Special):
        return repr(thing.text)
    if isinstance(thing, tuple):
        if any(isinstance(piece, Special) for piece in thing) and all(isinstance(p, str | Special) for p in thing):
            return repr(spelled(thing))
        return ", ".join(map(value, thing))
    return repr(thing)


def codec_json(codec: object) -> dict[str, object]:
    """A codec's name and what it is made of."""
    return {"name": type(codec).__name__, "parameters": facts(codec)}


def alternatives(codec: Codec | None) -> Sequence[Codec]:
    """The codecs that may read a body."""
    return codec.codecs if isinstance(codec, Choice) else [codec] if codec else []


def thinking(fmt: Format) -> str:
    """The switch of the chat template."""
    default = "on" if fmt.thinking.default else "off"
    return (
        f"{' = '.join(fmt.thinking.keywords)}, default {default}" if fmt.thinking.keywords else f"no switch: {default}"
    )


def starts(fmt: Format) -> dict[str, State]:
    """Where an answer starts when nothing in the prompt says so."""
    found = {"thinking on": fmt.start.on, "thinking off": fmt.start.off}
    if fmt.start.unknown:
        found["thinking on, no prompt known"] = fmt.start.unknown
    return found


def call_ids(fmt: Format) -> str:
    """The convention for call ids, if there are calls."""
    if not fmt.calls:
        return ""
    return fmt.ids.pattern + (" where the model writes none" if fmt.ids.written else "")


def as_json(fmt: Format) -> dict[str, object]:
    """The table as JSON, for reading by programs."""
    return {
        **summary(fmt),
        "markers": [
            {
                "spellings": [spelled(spelling) for spelling in m.spellings],
                "kind": kind(m),
                "before": m.before,
                "after": m.after,
                "peek": m.peek,
                "inside": m.inside,
            }
            for m in fmt.markers
        ],
        "states": [
            {
                "name": state.name,
                "strand": state.strand,
                "codecs": [codec_json(codec) for codec in alternatives(state.codec)],
                "otherwise": state.otherwise.name if state.otherwise else None,
                "undecided": state.undecided,
                "header": state.header,
                "blank": state.blank,
                "transitions": {str(marker): target.name for marker, target in row.items()},
            }
            for state, row in fmt.states.items()
        ],
        "turns": {str(marker): target.name for marker, target in fmt.turns.items()},
        "start": {when: state.name for when, state in starts(fmt).items()},
        "thinking": {"keywords": list(fmt.thinking.keywords), "default": fmt.thinking.default},
        "call_ids": fmt.ids.pattern if fmt.calls else None,
        "visible": list(fmt.visible),
    }
