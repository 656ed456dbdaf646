"""The ASGI application: routes, and what a failure looks like to a client.

A reply's first byte goes out with the engine's first step, not before: whatever fails until then still has a real
status. After that the status is spent, and a failure is an error event that ends the stream, never a normal finish and
no `[DONE]`. A client that leaves takes its generation with it, one-shot or streamed.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from unbraid.engines.base import Engine
from unbraid.errors import EngineError, RequestError, UnbraidError
from unbraid.openai import DONE, Chunks, Delta, completion_object, encode_json, error_object, fold, server_sent
from unbraid.server.gateway import Gateway, Plan
from unbraid.server.generation import run_plan, usage_of
from unbraid.server.settings import DEFAULT_SETTINGS, Settings
from unbraid.table import Format

log = logging.getLogger("unbraid.server")


def create_app(engine: Engine, format: Format | str = "auto", settings: Settings = DEFAULT_SETTINGS) -> Starlette:
    """The application that serves this engine's model. It closes the engine when it shuts down."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await engine.close()

    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/models", models, methods=["GET"]),
            Route("/v1/models/{name:path}", model, methods=["GET"]),
            Route("/health", health, methods=["GET"]),
        ],
        exception_handlers={
            RequestError: on_request_error,
            EngineError: on_engine_error,
            HTTPException: on_http_error,
            Exception: on_bug,
        },
        lifespan=lifespan,
    )
    app.state.gateway = Gateway(engine, format, settings)
    app.state.started = int(time.time())
    return app


async def chat_completions(request: Request) -> Response:
    gateway: Gateway = request.app.state.gateway
    return Generated(gateway.engine, await planned(request, gateway.chat))


async def planned(request: Request, plan: Callable[[bytes], Plan]) -> Plan:
    """The plan of a request, made in a thread: a slow template or schema, or a tokenizer over the network, holds up nobody else."""
    body = await read_body(request, request.app.state.gateway.settings.max_body_bytes)
    made = await asyncio.to_thread(plan, body)
    request.scope["unbraid.plan"] = made  # for whoever watches: metrics, logs, traces
    return made


async def health(request: Request) -> Response:
    return json_response({"status": "ok"})


async def models(request: Request) -> Response:
    names = request.app.state.gateway.model_names
    return json_response({"object": "list", "data": [_model_object(request, name) for name in names]})


async def model(request: Request) -> Response:
    name = request.path_params["name"]
    request.app.state.gateway.check_model(name)
    return json_response(_model_object(request, name))


def _model_object(request: Request, name: str) -> dict[str, Any]:
    state = request.app.state
    created, length = state.started, state.gateway.engine.context_length
    return {"id": name, "object": "model", "created": created, "owned_by": "unbraid", "max_model_len": length}


class Generated(Response):
    """The reply to a generation: streamed or one-shot, aborted when the client leaves."""

    def __init__(self, engine: Engine, plan: Plan) -> None:
        self.engine = engine
        self.plan = plan
        self.background = None
        self.chunks = Chunks(
            f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), plan.model, plan.options, include_usage=plan.include_usage
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._stream(send) if self.plan.stream else self._one_shot(scope, receive, send)
        await unless_gone(receive, answer)

    async def _one_shot(self, scope: Scope, receive: Receive, send: Send) -> None:
        deltas: list[list[Delta]] = [[] for _ in self.plan.runs]
        async with aclosing(run_plan(self.engine, self.plan)) as steps:
            async for index, step in steps:
                deltas[index] += step
        choices = [fold(index, said, self.plan.options) for index, said in enumerate(deltas)]
        reply = completion_object(self.chunks.head, choices, usage_of(self.plan))
        await send_bytes(send, 200, "application/json", encode_json(reply))

    async def _stream(self, send: Send) -> None:
        started = False
        async with aclosing(self._written()) as pieces:
            async for piece in pieces:
                if not started:
                    started = True
                    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
                    headers.append((b"x-accel-buffering", b"no"))  # nginx would collect the chunks
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _written(self) -> AsyncGenerator[bytes, None]:
        """One write per engine step. An error before the first is raised, later it is part of the stream."""
        started = False
        try:
            async with aclosing(run_plan(self.engine, self.plan)) as steps:
                async for index, deltas in steps:
                    if data := self.chunks.encode(index, deltas):
                        started = True
                        yield data
        except UnbraidError as error:
            if not started:
                raise
            log.warning("engine failed inside a stream: %s", error)
            yield server_sent(engine_error_object(error))
            return
        usage = self.chunks.usage(usage_of(self.plan)) if self.plan.include_usage else b""
        yield usage + DONE


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work unless the client leaves before it is done. Either way nothing is left running."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.create_task(work), asyncio.create_task(left())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
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


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode_json(value), status, headers, media_type="application/json")


async def send_bytes(send: Send, status: int, kind: str, body: bytes) -> None:
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def engine_error_object(error: UnbraidError) -> dict[str, Any]:
    return error_object(str(error), type="server_error", code="engine_error")


async def on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return json_response(error_object(str(error), param=error.param, code=error.code), error.status)


async def on_engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    log.warning("engine failed: %s", error)
    return json_response(engine_error_object(error), error.status)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message, code = error.detail, None
    if error.status_code == 404:
        message, code = f"there is no {request.url.path} here; see /v1/chat/completions and /v1/models", "unknown_url"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message, code = f"{request.method} is not allowed on {request.url.path}; use {allowed}", "method_not_allowed"
    return json_response(error_object(message, code=code), error.status_code, dict(error.headers or {}))


async def on_bug(request: Request, error: Exception) -> Response:
    """A mistake of ours. Starlette logs it with its traceback; the client learns that it wasn't the request."""
    return json_response(error_object("internal error; the server's log has it", type="server_error"), 500)
