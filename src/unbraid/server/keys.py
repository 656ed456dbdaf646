"""API keys: who has one of them may ask, whichever API's header carries it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from starlette.types import ASGIApp, Receive, Scope, Send

from unbraid.server.failures import failure

OPEN = frozenset(("/health", "/ready"))
"""What an orchestrator asks without a key."""


class Keys:
    """Middleware. A key comes as `Authorization: Bearer KEY` (OpenAI) or as `x-api-key: KEY` (Anthropic)."""

    def __init__(self, app: ASGIApp, keys: Iterable[str]) -> None:
        self.app = app
        self._digests = [_digest(key.encode()) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN or self._known(scope):
            await self.app(scope, receive, send)
            return
        message = "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY"
        reply = failure(scope["path"], 401, message, code="invalid_api_key", headers={"www-authenticate": "Bearer"})
        await reply(scope, receive, send)

    def _known(self, scope: Scope) -> bool:
        # Digests are compared, all of them, each in constant time: how long it takes says nothing about the keys.
        given = [_digest(key) for key in _given(scope)]
        return sum(hmac.compare_digest(own, one) for own in self._digests for one in given) > 0


def _given(scope: Scope) -> list[bytes]:
    keys = []
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            keys.append(value.strip())
        elif name == b"authorization":
            scheme, _, key = value.strip().partition(b" ")
            if scheme.lower() == b"bearer":
                keys.append(key.strip())
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
