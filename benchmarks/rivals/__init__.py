"""Other people's parsers, each behind a small adapter that is used only where it can be imported."""

from __future__ import annotations

from benchmarks.rivals.base import Rival


def installed() -> list[Rival]:
    """The rivals that this interpreter can import."""
    from benchmarks.rivals import openai_harmony, sglang, transformers, vllm

    found = (module.load() for module in (vllm, sglang, openai_harmony, transformers))
    return [rival for rival in found if rival is not None]
