"""The log: one line per request, as text or as JSON. What people ask and are told isn't in it, unless the operator wants it."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from unbraid.message import Message
from unbraid.parser import Parser
from unbraid.server.observe import Exchange

access = logging.getLogger("unbraid.access")

QUIET = frozenset(("/health", "/ready", "/metrics"))
"""Asked every few seconds by machines: worth a line only if they fail."""


class AccessLog:
    """Writes a line for every request that is over."""

    def __init__(self, *, contents: bool = False) -> None:
        self._contents = contents

    def began(self, exchange: Exchange) -> None:
        """Nothing yet."""

    def ended(self, exchange: Exchange) -> None:
        if exchange.path in QUIET and exchange.status == 200:
            return
        fields = facts(exchange)
        if self._contents and exchange.plan is not None:
            fields["contents"] = _contents(exchange)
        access.info("%s %s %s", exchange.method, exchange.path, exchange.status, extra={"fields": fields})


def facts(exchange: Exchange) -> dict[str, Any]:
    """What is known of a request: numbers and names."""
    found: dict[str, Any] = {
        "id": exchange.id,
        "method": exchange.method,
        "path": exchange.path,
        "status": exchange.status,
        "seconds": round(exchange.seconds, 4),
        "bytes": exchange.bytes,
        "whole": exchange.whole,
    }
    plan = exchange.plan
    if plan is None:
        return found
    first = exchange.first_token
    runs = plan.runs
    found |= {
        "stream": plan.stream,
        "prompt_tokens": plan.prompt_tokens,
        "tokens": dict(exchange.tokens),
        "first_token": None if first is None else round(first, 4),
        "finish": [run.watch.finish for run in runs],
        "calls": _summed(dict(run.watch.calls) for run in runs),
        "diagnostics": _summed(dict(run.watch.diagnostics) for run in runs),
    }
    return found


def _summed(counts: Any) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


def _contents(exchange: Exchange) -> dict[str, Any]:
    assert exchange.plan is not None
    runs = exchange.plan.runs
    messages = [run.parser.message if isinstance(run.parser, Parser) else Message() for run in runs]
    return {
        "prompt": runs[0].generation.text,
        "replies": [
            {
                "reasoning": message.reasoning,
                "content": message.content,
                "calls": [[call.name, call.arguments] for call in message.tool_calls],
            }
            for message in messages
        ],
    }


class JsonLines(logging.Formatter):
    """A record as one JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        return json.dumps(said, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """A record for people: the facts behind it as name=value."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        fields = {**getattr(record, "fields", {})}
        for shown in ("method", "path", "status"):
            fields.pop(shown, None)
        facts = " ".join(f"{name}={_plain(value)}" for name, value in fields.items() if value not in (None, {}, []))
        text = super().format(record)
        return f"{text} {facts}" if facts else text


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}:{inner}" for name, inner in value.items())
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def set_up(level: str, form: str) -> None:
    """Where the log goes: standard error, one line a record."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("httpx", "httpcore", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
