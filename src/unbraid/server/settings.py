"""What the operator decides: limits, names and defaults of one server."""

from __future__ import annotations

from dataclasses import dataclass

from unbraid.policy import DEFAULT_POLICY, Policy


@dataclass(frozen=True, slots=True)
class Settings:
    """All have defaults that are safe on a small machine."""

    model_names: tuple[str, ...] = ()
    """Names under which the model is served; empty: the engine's own. Replies carry the first."""
    api_keys: tuple[str, ...] = ()
    """Any one of them opens the server; empty: it is open."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may ask from a browser, `*` for all; empty: none."""
    max_body_bytes: int = 8 * 1024 * 1024
    max_choices: int = 16
    """The largest `n` of a request."""
    max_tokens: int | None = None
    """The most tokens of a reply, whatever the request says; `None`: the context's length."""
    max_tools: int = 1024
    max_schema_nodes: int = 20_000
    """Values in all the JSON schemas of a request together: its tools' parameters and its response format."""
    max_schema_depth: int = 64
    max_stops: int = 16
    max_stop_length: int = 1024
    """Characters of one stop string."""
    max_requests: int = 1024
    """Requests being served at the same time; one more is told to come back later."""
    body_seconds: float = 60.0
    """How long a request may take to arrive."""
    request_seconds: float = 3600.0
    """How long a request may take altogether."""
    literal_messages: bool = True
    """What users and tools write is text, also where it spells a special token. Otherwise it is that token, and ends turns."""
    log_contents: bool = False
    """Write prompts and replies to the log as well."""
    metrics: bool = True
    """Count, and serve `/metrics`, if prometheus-client is installed."""
    tracing: bool = False
    """A span for every request (extra `telemetry`)."""
    repeat_call_ids: bool = False
    """Chat Completions: a call's id and type come with every piece of its arguments, not with the first alone."""
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    policy: Policy = DEFAULT_POLICY


DEFAULT_SETTINGS = Settings()
