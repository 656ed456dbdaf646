"""Every request is watched from outside: what it was, how it ended, how long it took. Numbers and names, never texts.

Whoever wants to know (metrics, the log, traces) is told once, when a request is over. Prompts and replies stay out of it, unless
the operator asks for them in the log.
"""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

if TYPE_CHECKING:
    from unbraid.server.gateway import Plan

_ID = re.compile(rb"[\w.:-]{1,128}")
PATHS = frozenset(
    """/v1/chat/completions /v1/completions /v1/responses /v1/messages /v1/messages/count_tokens /v1/models /tokenize /detokenize
    /apply-template /health /ready /metrics /openapi.json""".split()
)


SERVER_SEND = "unbraid.send"
"""In a scope: the server's own `send`, before any middleware has put itself in between."""


@dataclass(slots=True)
class Exchange:
    """One request and its reply."""

    id: str
    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    send: Send
    """The server's own, for the middle of a stream: who uses it adds to `bytes`."""
    began: float = field(default_factory=time.monotonic)
    began_ns: int = field(default_factory=time.time_ns)
    seconds: float = 0.0
    status: int = 0
    """0: the client left before there was one."""
    bytes: int = 0
    whole: bool = False
    """The reply was sent to its end."""
    plan: Plan | None = None
    """What was generated, if anything was."""

    @property
    def place(self) -> str:
        """The path, or `other` for one that isn't ours: a label must not grow with what strangers ask for."""
        return self.path if self.path in PATHS else "/v1/models" if self.path.startswith("/v1/models/") else "other"

    @property
    def tokens(self) -> Counter[str]:
        """Tokens by strand, of all choices."""
        total: Counter[str] = Counter()
        for run in self.plan.runs if self.plan else ():
            total.update(run.watch.tokens)
        return total

    @property
    def first_token(self) -> float | None:
        """Seconds until the engine's first step."""
        found = [run.watch.first for run in (self.plan.runs if self.plan else ()) if run.watch.first is not None]
        return min(found) - self.began if found else None


class Watcher(Protocol):
    """Who is told."""

    def began(self, exchange: Exchange) -> None: ...
    def ended(self, exchange: Exchange) -> None: ...


class Observe:
    """Middleware, the outermost. Each reply carries an `x-request-id`: the request's own, or a new one."""

    def __init__(self, app: ASGIApp, watchers: Iterable[Watcher]) -> None:
        self.app = app
        self._watchers = tuple(watchers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = scope["headers"]
        given = next((value for name, value in headers if name == b"x-request-id" and _ID.fullmatch(value)), None)
        id = given or secrets.token_hex(12).encode()
        exchange = Exchange(id.decode(), scope["method"], scope["path"], headers, scope.get(SERVER_SEND, send))

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", id)]
            else:
                exchange.bytes += len(message.get("body", b""))
                exchange.whole = not message.get("more_body")
            await send(message)

        scope["unbraid.exchange"] = exchange
        for watcher in self._watchers:
            watcher.began(exchange)
        try:
            await self.app(scope, receive, watched)
        except ClientDisconnect:
            pass  # in the middle of its request: there is nobody to answer, and nothing of ours has failed
        except Exception:
            exchange.status = exchange.status or 500
            raise
        finally:
            exchange.seconds = time.monotonic() - exchange.began
            exchange.plan = scope.get("unbraid.plan")
            for watcher in self._watchers:
                watcher.ended(exchange)
