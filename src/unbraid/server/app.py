"""The ASGI application: routes, and how a reply gets out.

A reply's first byte goes out with the engine's first step, not before: whatever fails until then still has a real
status. After that the status is spent, and a failure is an error event that ends the stream, never a normal finish. A
client that leaves takes its generation with it, one-shot or streamed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from unbraid.engines.base import Engine
from unbraid.errors import RequestError, UnbraidError
from unbraid.protocol import Delta, encode_json
from unbraid.server import apis, rawtext
from unbraid.server.drain import Drain, ShuttingDown
from unbraid.server.failures import HANDLERS, json_response
from unbraid.server.gateway import Gateway, Plan
from unbraid.server.generation import run_plan, usage_of, written
from unbraid.server.observe import SERVER_SEND
from unbraid.server.openapi import description
from unbraid.server.operation import operation
from unbraid.server.settings import DEFAULT_SETTINGS, Settings
from unbraid.table import Format

log = logging.getLogger("unbraid.server")

T = TypeVar("T")
_LAST_SECONDS = 1.0
"""So long a client has to take the last event of a reply that is cut."""

GENERATING: dict[str, Callable[[Gateway, bytes], Plan]] = {
    "/v1/chat/completions": apis.chat,
    "/v1/completions": rawtext.completions,
    "/v1/responses": apis.responses,
    "/v1/messages": apis.messages,
}
"""What asks for tokens: how its request becomes a plan."""

ANSWERED: dict[str, Callable[[Gateway, bytes], dict[str, Any]]] = {
    "/v1/responses/input_tokens": apis.count_responses,
    "/v1/messages/count_tokens": apis.count_messages,
    "/tokenize": rawtext.tokenize,
    "/detokenize": rawtext.detokenize,
    "/apply-template": rawtext.apply_template,
}
"""What is answered at once."""


class Application(Starlette):
    """Starlette, which remembers the server's own `send`."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[SERVER_SEND] = send
        await super().__call__(scope, receive, send)


def create_app(engine: Engine, format: Format | str = "auto", settings: Settings = DEFAULT_SETTINGS) -> Starlette:
    """The application that serves this engine's model. It closes the engine when it shuts down."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await engine.close()

    gateway = Gateway(engine, format, settings)
    middleware, routes = operation(gateway)
    app = Application(
        routes=[
            *(Route(path, generating(planned), methods=["POST"]) for path, planned in GENERATING.items()),
            *(Route(path, answering(answer), methods=["POST"]) for path, answer in ANSWERED.items()),
            Route("/v1/responses/{id:path}", not_stored, methods=["GET", "POST", "DELETE"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{name:path}", model, methods=["GET"]),
            Route("/health", health, methods=["GET"]),
            Route("/ready", ready, methods=["GET"]),
            Route("/openapi.json", openapi, methods=["GET"]),
            *routes,
        ],
        middleware=middleware,
        exception_handlers=HANDLERS,
        lifespan=lifespan,
    )
    app.state.gateway = gateway
    app.state.drain = Drain()
    app.state.started = int(time.time())
    return app


Endpoint = Callable[[Request], Coroutine[Any, Any, Response]]


def generating(planned: Callable[[Gateway, bytes], Plan]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        plan = await worked_out(request, planned)
        request.scope["unbraid.plan"] = plan  # for whoever watches: metrics, logs, traces
        return Generated(request.app.state.gateway.engine, plan, request.app.state.drain)

    return endpoint


def answering(answer: Callable[[Gateway, bytes], dict[str, Any]]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return json_response(await worked_out(request, answer))

    return endpoint


async def worked_out(request: Request, work: Callable[[Gateway, bytes], T]) -> T:
    """Done in a thread: a slow template or schema, or a tokenizer over the network, holds up nobody else."""
    gateway: Gateway = request.app.state.gateway
    with request.app.state.drain.waiting():
        body = await read_body(request, gateway.settings.max_body_bytes)
        return await asyncio.to_thread(work, gateway, body)


async def not_stored(request: Request) -> Response:
    message = "this server keeps no responses; it answered once, and that was all of it"
    raise RequestError(message, status=404, code="response_not_found")


async def health(request: Request) -> Response:
    """The process is alive."""
    return json_response({"status": "ok"})


async def ready(request: Request) -> Response:
    """A request sent now would be served."""
    gateway: Gateway = request.app.state.gateway
    with request.app.state.drain.waiting():
        await gateway.engine.ready()
    return json_response({"status": "ready", "model": gateway.model_names[0], "format": gateway.format.name})


async def openapi(request: Request) -> Response:
    return json_response(description())


async def models(request: Request) -> Response:
    """The models, in a shape that is OpenAI's and Anthropic's at once."""
    names = request.app.state.gateway.model_names
    data = [_model_object(request, name) for name in names]
    return json_response(
        {"object": "list", "data": data, "first_id": names[0], "last_id": names[-1], "has_more": False}
    )


async def model(request: Request) -> Response:
    name = request.path_params["name"]
    request.app.state.gateway.check_model(name)
    return json_response(_model_object(request, name))


def _model_object(request: Request, name: str) -> dict[str, Any]:
    state = request.app.state
    created = datetime.fromtimestamp(state.started, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "id": name,
        "object": "model",
        "created": state.started,
        "owned_by": "unbraid",
        "max_model_len": state.gateway.engine.context_length,
        "type": "model",
        "display_name": name,
        "created_at": created,
    }


class Generated(Response):
    """The reply to a generation: streamed or one-shot, aborted when the client leaves."""

    def __init__(self, engine: Engine, plan: Plan, drain: Drain) -> None:
        self.engine = engine
        self.plan = plan
        self.drain = drain
        self.started = False
        """The status is out."""
        self.background = None
        self.extra_headers = [] if engine.abilities.token_ids else [(b"x-unbraid-evidence", b"text")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._stream(send, scope) if self.plan.stream else self._one_shot(send)
        try:
            await unless_gone(receive, answer, self.drain)
        except ShuttingDown as error:
            if not self.started:
                raise
            last = self.plan.writer.error(str(error))
            with suppress(TimeoutError):  # whoever doesn't take it isn't waited for: then the connection is closed
                async with asyncio.timeout(_LAST_SECONDS):
                    await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _one_shot(self, send: Send) -> None:
        deltas: list[list[Delta]] = [[] for _ in self.plan.runs]
        async with aclosing(run_plan(self.engine, self.plan)) as steps:
            async for index, step, _ in steps:
                deltas[index] += step
        reply = self.plan.writer.whole(deltas, usage_of(self.plan))
        await send_bytes(send, 200, "application/json", encode_json(reply), self.extra_headers)

    async def _stream(self, send: Send, scope: Scope) -> None:
        """One write for what came together. An error before the first is raised, later it is part of the stream.

        Between its start and its end a stream goes straight to the server: what stands between us and the socket looks at
        those two only, and would cost as much as all that is done here.
        """
        exchange = scope["unbraid.exchange"]
        plan, writer = self.plan, self.plan.writer
        write = exchange.send
        try:
            async with aclosing(written(self.engine, plan)) as reads:
                async for data in reads:
                    if not self.started:
                        self.started = True
                        await self._start(send)
                    if data:
                        exchange.bytes += len(data)
                        await write({"type": "http.response.body", "body": data, "more_body": True})
            last = writer.end(usage_of(plan))
        except UnbraidError as error:
            if not self.started:
                raise
            log.warning("engine failed inside a stream: %s", error)
            last = writer.error(str(error))
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _start(self, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        headers.append((b"x-accel-buffering", b"no"))  # nginx would collect the chunks
        await send({"type": "http.response.start", "status": 200, "headers": headers + self.extra_headers})


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, None], drain: Drain) -> None:
    """Do the work unless the client leaves before it is done. Either way nothing is left running. Raises `ShuttingDown` if it isn't
    done and the server has to go."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.create_task(work), asyncio.create_task(left())
    try:
        with drain.working(task):
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.cancelled() and drain.over:
            raise ShuttingDown
        if task.done():
            task.result()
    finally:
        task.cancel()
        watch.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def read_body(request: Request, limit: int) -> bytes:
    """The body, as far as it is allowed to go: a longer one is refused as soon as that is known."""
    too_large = RequestError(f"the body is larger than {limit} bytes; send less", status=413, code="request_too_large")
    length = request.headers.get("content-length", "")
    if length.isdigit() and int(length) > limit:
        raise too_large
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise too_large
        pieces.append(piece)
    return b"".join(pieces)


async def send_bytes(
    send: Send, status: int, kind: str, body: bytes, more_headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode()), *more_headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
