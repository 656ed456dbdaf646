"""Whoever comes from vLLM or SGLang finds their parser's name: each one of both leads to a format."""

from __future__ import annotations

import json
from pathlib import Path

import unbraid

NAMES = json.loads((Path(__file__).parent / "data" / "parser_names.json").read_text(encoding="utf-8"))
ALL = sorted({name for engine in ("vllm", "sglang") for kind in NAMES[engine].values() for name in kind})
MISSING: set[str] = {
    "apertus", "apertus2509", "beam", "lfm2", "llama3", "llama3_json", "llama4_json", "llama4_pythonic",
    "olmo3", "phi4_mini_json", "plamo3", "pythonic", "xlam",
}  # fmt: skip
"""Names whose family has no table yet. To be emptied, and empty it stays."""


def resolves(name: str) -> bool:
    try:
        unbraid.get_format(name)
    except unbraid.UnbraidError:
        return False
    return True


def test_every_parser_name_of_the_engines_leads_to_a_format() -> None:
    assert {name for name in ALL if not resolves(name)} == MISSING
