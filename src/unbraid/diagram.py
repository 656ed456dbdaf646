"""A format's states as a picture: text, Mermaid, or Graphviz' language (and SVG where Graphviz is installed).

Events follow from the strands on both sides of an arrow, so the picture shows the strand of every state. Turn boundaries
count in every state: they are drawn once, from a place called "anywhere".
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from unbraid.errors import UnbraidError
from unbraid.events import Strand
from unbraid.lint import besides
from unbraid.table import ENDED, Format, Marker, State

Kind = Literal["text", "mermaid", "dot", "svg"]

COLOURS: Mapping[Strand, str] = {
    "reasoning": "#f3dcf5",
    "content": "#dcf2dc",
    "tool_call": "#d8eef5",
    "markup": "#eeeeee",
    "control": "#f7efcf",
}
"""The strands' colours on the terminal, light enough for black text."""

ANYWHERE = "anywhere"
_START = "(start)"


@dataclass(frozen=True, slots=True)
class Arrow:
    """From a state to another, by a marker or without one."""

    source: str
    label: str
    target: str


def arrows(fmt: Format) -> Iterator[Arrow]:
    """Every way through the table, from where an answer starts to the ends of turns."""
    begins: dict[State, list[str]] = {}
    for when, state in (("thinking on", fmt.start.on), ("off", fmt.start.off), ("no prompt", fmt.start.unknown)):
        if state:
            begins.setdefault(state, []).append(when)
    for state, whens in begins.items():
        yield Arrow(_START, ", ".join(whens) if len(begins) > 1 else "", state.name)
    for state, row in fmt.states.items():
        for marker, target in row.items():
            yield from _entry(state.name, marker, target)
        if state is not ENDED:
            yield from (Arrow(state.name, _without(state, to), to.name) for to in dict.fromkeys(besides(state)))
    for marker, target in fmt.turns.items():
        yield from _entry(ANYWHERE, marker, target)


def _entry(source: str, marker: Marker, target: State) -> Iterator[Arrow]:
    label = " or ".join("".join(p if isinstance(p, str) else p.text for p in spelling) for spelling in marker.spellings)
    label = label.replace("\n", "\\n") or str(marker)
    routes = getattr(target, "routes", ())
    for route in routes:
        said = [f"{word} {value}" for word in ("to", "channel", "words") if (value := getattr(route, word, ""))]
        yield Arrow(source, f"{label} ({', '.join(said) or 'else'})", route.state.name)
    if not routes:
        yield Arrow(source, label, target.name)


def _without(state: State, to: State) -> str:
    if state.otherwise == to:
        return "other text"
    return "body ends" if state.codec else "otherwise"


def diagram(fmt: Format, kind: Kind = "text") -> str:
    """The picture. `svg` needs Graphviz' `dot`."""
    return {"text": _text, "mermaid": _mermaid, "dot": _dot, "svg": _svg}[kind](fmt)


def _names(fmt: Format) -> dict[str, Strand]:
    """Every name in the picture that is a state, with its strand."""
    found: dict[str, Strand] = {state.name: state.strand for state in fmt.states}
    for arrow in arrows(fmt):
        for name in (arrow.source, arrow.target):
            if name not in (_START, ANYWHERE):
                found.setdefault(name, "control" if name == ENDED.name else "markup")
    return found


def _text(fmt: Format) -> str:
    names = _names(fmt)
    lines = [fmt.name]
    by_source: dict[str, list[Arrow]] = {}
    for arrow in arrows(fmt):
        by_source.setdefault(arrow.source, []).append(arrow)
    for source, out in by_source.items():
        strand = f" [{names[source]}]" if source in names else ""
        lines += ["", f"{source}{strand}"]
        wide = max(len(arrow.label) for arrow in out)
        lines += [
            f"  --{arrow.label.join('  ') if arrow.label else ''}{'-' * (wide - len(arrow.label))}--> {arrow.target}"
            for arrow in out
        ]
    return "\n".join(lines) + "\n"


def _mermaid(fmt: Format) -> str:
    ids = {name: f"s{number}" for number, name in enumerate(_names(fmt))}
    lines = ["stateDiagram-v2"]
    lines += [f"    state {_quoted(f'{name} ({strand})')} as {ids[name]}" for name, strand in _names(fmt).items()]
    lines.append(f"    state {_quoted(ANYWHERE)} as any")
    for arrow in arrows(fmt):
        source = {_START: "[*]", ANYWHERE: "any"}.get(arrow.source) or ids[arrow.source]
        label = f" : {_entities(arrow.label)}" if arrow.label else ""
        lines.append(f"    {source} --> {ids[arrow.target]}{label}")
    for strand, colour in COLOURS.items():
        lines.append(f"    classDef {strand} fill:{colour},color:#000")
    lines += [f"    class {ids[name]} {strand}" for name, strand in _names(fmt).items()]
    return "\n".join(lines) + "\n"


def _entities(label: str) -> str:
    """A label of Mermaid: what has a meaning there is written as its number."""
    return "".join(f"#{ord(char)};" if char in '<>#;:"{}[]()`|%&' else char for char in label)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', "#34;") + '"'


def _dot(fmt: Format) -> str:
    lines = [
        f"digraph {json.dumps(fmt.name)} {{",
        '  rankdir=LR; node [shape=box style="rounded,filled" fontname="sans-serif"];',
        '  edge [fontname="monospace" fontsize=10];',
        f"  {json.dumps(_START)} [shape=point];",
        f'  {json.dumps(ANYWHERE)} [shape=plaintext style=""];',
    ]
    for name, strand in _names(fmt).items():
        label = json.dumps(f"{name}\n{strand}", ensure_ascii=False)
        lines.append(f"  {json.dumps(name)} [label={label} fillcolor={json.dumps(COLOURS[strand])}];")
    for arrow in arrows(fmt):
        label = json.dumps(arrow.label, ensure_ascii=False)
        lines.append(f"  {json.dumps(arrow.source)} -> {json.dumps(arrow.target)} [label={label}];")
    return "\n".join([*lines, "}"]) + "\n"


def _svg(fmt: Format) -> str:
    program = shutil.which("dot")
    if program is None:
        raise UnbraidError("an SVG needs Graphviz (`dot`); --as mermaid and --as dot don't")
    done = subprocess.run(
        [program, "-Tsvg"], input=_dot(fmt), capture_output=True, text=True, encoding="utf-8", check=False
    )
    if done.returncode:
        raise UnbraidError(f"Graphviz failed: {done.stderr.strip()}")
    return done.stdout
