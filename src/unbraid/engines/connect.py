"""From an address to an engine: what kind of engine listens there, and what it serves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from unbraid.engines.base import AT_ONCE, Engine
from unbraid.engines.completions import Completions
from unbraid.engines.llama_server import LlamaServer
from unbraid.engines.profile import Local, profile_of
from unbraid.engines.recording import RecordedEngine
from unbraid.engines.remote import DEFAULT_TIMING, Caller, Dialect, Get, RemoteEngine, Timing, shown
from unbraid.engines.sglang import Sglang
from unbraid.engines.vllm import Vllm, VllmTokens
from unbraid.errors import EngineError

DIALECTS: Mapping[str, Dialect] = {
    dialect.kind: dialect for dialect in (Vllm(), VllmTokens(), Sglang(), LlamaServer(), Completions())
}
KINDS = ("auto", *DIALECTS, "recording")

_OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama"}
"""`owned_by` in a list of models -> the kind of engine."""


def connect(
    where: str,
    kind: str = "auto",
    *,
    local: Local | None = None,
    key: str | None = None,
    timing: Timing = DEFAULT_TIMING,
    pace: float | None = None,
    burst: int = AT_ONCE,
) -> Engine:
    """The engine at a URL, or in a recording's file. Asks it what it serves, so it must be up. Raises `EngineError`.

    `pace`: of a recording, tokens per second (0: as fast as they are read; `None`: as they came). At most `burst` steps that have
    come due come at once.
    """
    local = local or Local()
    if kind == "recording" or (kind == "auto" and "://" not in where and _is_file(where)):
        return RecordedEngine.read(Path(where), pace=pace, burst=burst, local=local)
    url = (where if "://" in where else f"http://{where}").rstrip("/").removesuffix("/v1")
    asked = Caller(url, key, timing.connect)
    try:
        dialect = DIALECTS[detected(asked.get, url) if kind == "auto" else kind]
        told = dialect.told(asked.get, local.model)
    finally:
        asked.close()
    profile = profile_of(told, local, ids=dialect.abilities.token_ids)
    return RemoteEngine(url, dialect, profile, key=key, timing=timing)


def _is_file(where: str) -> bool:
    """A recording that isn't there is none the less no host of that name."""
    return Path(where).is_file() or where.endswith(".jsonl")


def detected(get: Get, url: str) -> str:
    """The kind of engine, by what it says of itself in its list of models."""
    listed = get("/v1/models")
    data = listed.get("data") if isinstance(listed, dict) else None
    owners = [card.get("owned_by") for card in data or () if isinstance(card, dict)]
    for owner in owners:
        if owner in _OWNERS:
            return _OWNERS[owner]
    if isinstance(get("/props"), dict):
        return "llama"
    if owners:
        return "completions"
    raise EngineError(f"can't tell what kind of engine is at {shown(url)}: say it with --engine-kind")
