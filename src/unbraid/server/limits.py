"""Limits: what a request may cost before anybody looks at what it wants.

How many are served at once, how long one may take to arrive and altogether (middleware); how much schema it may bring
(`check_schemas`, called while a request is read). The size of a body is cut off where it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unbraid.errors import RequestError
from unbraid.server.failures import failure
from unbraid.server.settings import Settings

ALWAYS = frozenset(("/health", "/ready", "/metrics"))
"""What is answered however busy the server is."""


class Limits:
    """Middleware: places and time."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._settings = settings
        self._served = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in ALWAYS:
            await self.app(scope, receive, send)
            return
        if self._served >= self._settings.max_requests:
            message = f"{self._served} requests are being served, which is all there is room for; try again later"
            reply = failure(scope["path"], 503, message, code="overloaded", headers={"retry-after": "1"})
            await reply(scope, receive, send)
            return
        self._served += 1
        try:
            await self._timed(scope, receive, send)
        finally:
            self._served -= 1

    async def _timed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The request, within its time. Afterwards it is told so: by a status, or inside the stream that has begun."""
        sent = _Sent(send)
        seconds = self._settings.request_seconds
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                await self.app(scope, _arriving(receive, self._settings.body_seconds), sent)
        except TimeoutError:
            if not clock.expired():
                raise
            message = f"the request took longer than {seconds:g} seconds, as long as one may take"
            if not sent.started:
                await failure(scope["path"], 504, message, code="timeout")(scope, receive, send)
            elif not sent.ended:  # only a stream is sent in pieces
                body = scope["unbraid.plan"].writer.error(message)
                await send({"type": "http.response.body", "body": body, "more_body": False})


class _Sent:
    """`send`, and how far the response has got."""

    __slots__ = ("_send", "ended", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = self.ended = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
        elif not message.get("more_body"):
            self.ended = True
        await self._send(message)


def _arriving(receive: Receive, seconds: float) -> Receive:
    """`receive`, which loses patience with a body that doesn't come to its end."""
    deadline = asyncio.get_running_loop().time() + seconds
    arrived = False

    async def wait() -> Message:
        nonlocal arrived
        if arrived:  # what is waited for now is the client's leaving
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"the request took longer than {seconds:g} seconds to arrive") from None
        arrived = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return wait


def check_schemas(schemas: Iterable[tuple[str, Any]], settings: Settings) -> None:
    """Raises `RequestError` for more schema than a request may bring. Each comes with the field that holds it."""
    left = settings.max_schema_nodes
    for where, schema in schemas:
        for depth in _depths(schema):
            left -= 1
            if depth > settings.max_schema_depth:
                message = f"{where}: nested deeper than {settings.max_schema_depth} levels"
                raise RequestError(message, param=where)
            if left < 0:
                most = settings.max_schema_nodes
                raise RequestError(f"{where}: its schema is too large; {most} values are allowed in all", param=where)


def _depths(value: Any) -> Iterator[int]:
    """The depth of every value in a JSON value; without recursion, since it may be deep."""
    waiting = [(value, 0)]
    while waiting:
        value, depth = waiting.pop()
        yield depth
        if isinstance(value, Mapping):
            waiting += [(inner, depth + 1) for inner in value.values()]
        elif isinstance(value, list):
            waiting += [(inner, depth + 1) for inner in value]
