"""What a failure looks like to a client: in the shape of the API that it speaks, with a status that says whose fault it is.

Whoever answers a request before it reaches a route (a limit, a missing key) uses `failure` as well, so that every
client gets errors that its SDK can read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from unbraid import anthropic, openai
from unbraid.errors import EngineError, RequestError
from unbraid.protocol import encode_json

log = logging.getLogger("unbraid.server")

MESSAGES = "/v1/messages"
"""Below this path Anthropic's clients speak."""

_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    529: "overloaded_error",
}
_OPENAI = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
}


def failure(
    path: str,
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The reply to a request of `path` that failed."""
    return json_response(failure_object(path, status, message, param=param, code=code), status, headers)


def failure_object(
    path: str, status: int, message: str, *, param: str | None = None, code: str | None = None
) -> dict[str, Any]:
    fallback = "invalid_request_error" if status < 500 else "server_error"
    if path.startswith(MESSAGES):
        return anthropic.error_object(message, type=_ANTHROPIC.get(status, "api_error" if status >= 500 else fallback))
    return openai.error_object(message, type=_OPENAI.get(status, fallback), param=param, code=code)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(encode_json(value), status, headers, media_type="application/json")


async def on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return failure(request.url.path, error.status, str(error), param=error.param, code=error.code)


async def on_engine_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    log.warning("engine failed: %s", error)
    return failure(request.url.path, error.status, str(error), code="engine_error")


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path, message, code = request.url.path, error.detail, None
    if error.status_code == 404:
        message, code = f"there is no {path} here{_instead(request)}", "unknown_url"
    elif error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        message, code = f"{request.method} is not allowed on {path}; use {allowed}", "method_not_allowed"
    return failure(path, error.status_code, message, code=code, headers=error.headers)


def _instead(request: Request) -> str:
    """OpenAI's clients want an address that ends in /v1, Anthropic's one that doesn't: either is soon mistaken."""
    path = request.url.path
    there = {getattr(route, "path", None) for route in request.app.routes}
    if f"/v1{path}" in there:
        return f", but /v1{path}: the base URL has to end in /v1"
    if path.startswith("/v1/v1/") and path.removeprefix("/v1") in there:
        return f", but {path.removeprefix('/v1')}: the base URL must not end in /v1"
    return "; /openapi.json lists what there is"


async def on_bug(request: Request, error: Exception) -> Response:
    """A mistake of ours. Starlette logs it with its traceback; the client learns that it wasn't the request."""
    return failure(request.url.path, 500, "internal error; the server's log has it")


HANDLERS = {
    RequestError: on_request_error,
    EngineError: on_engine_error,
    HTTPException: on_http_error,
    Exception: on_bug,
}
