"""The pictures: every state and every arrow of the table is in them, in every notation."""

from __future__ import annotations

import re
import shutil

import pytest

import unbraid
from unbraid.diagram import Kind, arrows, diagram
from unbraid.formats import FORMATS

every_format = pytest.mark.parametrize("name", FORMATS)
KINDS: tuple[Kind, ...] = ("text", "mermaid", "dot")


@every_format
def test_every_marker_and_state_has_an_arrow(name: str) -> None:
    fmt = FORMATS[name]
    drawn = list(arrows(fmt))
    for state, row in fmt.states.items():
        assert sum(arrow.source == state.name for arrow in drawn) >= len(row)
    states = {arrow.source for arrow in drawn} | {arrow.target for arrow in drawn}
    assert {state.name for state in fmt.states if fmt.states[state]} <= states


@every_format
@pytest.mark.parametrize("kind", KINDS)
def test_the_picture_has_every_state(name: str, kind: Kind) -> None:
    picture = diagram(FORMATS[name], kind)
    assert all(state.name in picture for state in FORMATS[name].states if FORMATS[name].states[state])


def test_as_text() -> None:
    picture = diagram(FORMATS["qwen3"])
    assert "reasoning [reasoning]\n" in picture
    assert re.search(r"--  </think>  -+> content|-- </think> -+> content", picture)


def test_as_mermaid() -> None:
    picture = diagram(FORMATS["qwen3"], "mermaid")
    assert picture.startswith("stateDiagram-v2\n")
    assert "#60;/think#62;" in picture
    assert "</think>" not in picture


def test_as_dot() -> None:
    assert '"reasoning" -> "content" [label="</think>"];' in diagram(FORMATS["qwen3"], "dot")


def test_as_svg() -> None:
    if shutil.which("dot"):
        assert "<svg" in diagram(FORMATS["qwen3"], "svg")
    else:
        with pytest.raises(unbraid.UnbraidError, match="Graphviz"):
            diagram(FORMATS["qwen3"], "svg")
