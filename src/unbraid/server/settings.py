"""What the operator decides: limits, names and defaults of one server."""

from __future__ import annotations

from dataclasses import dataclass

from unbraid.policy import DEFAULT_POLICY, Policy


@dataclass(frozen=True, slots=True)
class Settings:
    """All have defaults that are safe on a small machine."""

    model_names: tuple[str, ...] = ()
    """Names under which the model is served; empty: the engine's own. Replies carry the first."""
    max_body_bytes: int = 8 * 1024 * 1024
    max_choices: int = 16
    """The largest `n` of a request."""
    max_tools: int = 1024
    max_stops: int = 16
    max_stop_length: int = 1024
    """Characters of one stop string."""
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    policy: Policy = DEFAULT_POLICY


DEFAULT_SETTINGS = Settings()
