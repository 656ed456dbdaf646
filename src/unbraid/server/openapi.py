"""The server described as OpenAPI 3.1, from the very types that read its requests."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from unbraid.server import requests

_REF = "#/components/schemas/{name}"

_POSTS: dict[str, tuple[type[msgspec.Struct], str, bool]] = {
    "/v1/chat/completions": (requests.ChatRequest, "Chat Completions", True),
    "/v1/completions": (requests.CompletionRequest, "Completions: raw text", True),
    "/v1/responses": (requests.ResponsesRequest, "Responses", True),
    "/v1/responses/input_tokens": (requests.ResponsesRequest, "What a Responses request would take", False),
    "/v1/messages": (requests.MessagesRequest, "Anthropic's Messages", True),
    "/v1/messages/count_tokens": (requests.CountRequest, "What a Messages request would take", False),
    "/tokenize": (requests.TokenizeRequest, "A text's or a conversation's tokens", False),
    "/detokenize": (requests.DetokenizeRequest, "The text of tokens", False),
    "/apply-template": (requests.TemplateRequest, "A conversation as the model would read it", False),
}
"""path -> its request, a title, whether it can stream."""

_GETS = {
    "/v1/models": "The models that are served",
    "/health": "The process is alive",
    "/ready": "A request sent now would be served",
    "/openapi.json": "This description",
}

_STATUSES = {
    "400": "The request can't be served; the message names the field and the remedy",
    "404": "No such model",
    "413": "The body is larger than this server takes",
    "500": "The engine failed",
}


@cache
def description() -> dict[str, Any]:
    """The document that `/openapi.json` serves."""
    types = {type for type, _, _ in _POSTS.values()}
    _, components = msgspec.json.schema_components(sorted(types, key=lambda type: type.__name__), ref_template=_REF)
    paths: dict[str, Any] = {path: {"post": _post(*row)} for path, row in _POSTS.items()}
    paths |= {path: {"get": _get(title)} for path, title in _GETS.items()}
    name = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    paths["/v1/models/{name}"] = {"get": _get("One model") | {"parameters": [name]}}
    info = {"title": "Unbraid", "version": version("unbraid"), "license": {"name": "Apache-2.0"}}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": components | _ERRORS}}


def _post(type: type[msgspec.Struct], title: str, streams: bool) -> dict[str, Any]:
    body = {"application/json": {"schema": {"$ref": _REF.format(name=type.__name__)}}}
    reply: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    if streams:
        reply["text/event-stream"] = {"schema": {"type": "string"}}
    replies = {"200": {"description": "The reply", "content": reply}}
    replies |= {status: {"description": said, "content": _ERROR} for status, said in _STATUSES.items()}
    return {"summary": title, "requestBody": {"required": True, "content": body}, "responses": replies}


def _get(title: str) -> dict[str, Any]:
    replies = {"200": {"description": title, "content": {"application/json": {"schema": {"type": "object"}}}}}
    return {"summary": title, "responses": replies | {"404": {"description": "There is none", "content": _ERROR}}}


_ERROR = {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}
_ERRORS = {
    "Error": {
        "type": "object",
        "description": "OpenAI's shape, or Anthropic's below /v1/messages.",
        "required": ["error"],
        "properties": {
            "type": {"const": "error"},
            "error": {
                "type": "object",
                "required": ["message", "type"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            },
        },
    }
}
