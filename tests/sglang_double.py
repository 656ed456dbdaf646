"""A double of SGLang's chat endpoint, by its source (`serving_chat.py`, `sse_utils.py` of 0.5): our server's replies in SGLang's shapes.

What is SGLang's: `reasoning_content`, content `""` for none, log-probabilities of every token of the output by the text of each token
by itself (so a part of a character is U+FFFD), attached to the first chunk of a step and without ids; with `return_meta_info` a one-shot
reply has `meta_info.output_token_logprobs`, entries of `[logprob, id, text]`, and with `return_prompt_token_ids` the prompt. Both are
refused beside `stream`. Fields that it doesn't know, such as `return_token_ids`, are ignored.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from broken import FORMAT, Actor, Json
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unbraid.integrity.layers import read_events
from unbraid.server import create_app

TELLING = ("return_meta_info", "return_prompt_token_ids")


class SGLang:
    """SGLang in front of the zoo's engine. `old`: a version that ignores what `TELLING` asks for."""

    def __init__(self, *, old: bool = False, spoil: Callable[[list[Json]], list[Json]] | None = None) -> None:
        self.engine = Actor()
        self.app: ASGIApp = create_app(self.engine, FORMAT)
        self.old = old
        self.spoil = spoil

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        asked = b""
        while True:
            received = await receive()
            asked += received.get("body", b"")
            if not received.get("more_body"):
                break
        path = scope["path"]
        if path == "/v1/models":
            await answer(send, {"object": "list", "data": [{"id": "actor", "owned_by": "sglang"}]})
        elif path == "/v1/chat/completions":
            await self.chat(scope, json.loads(asked), send)
        elif path in ("/tokenize", "/detokenize") and not self.old:
            status, reply = await self.inner(scope, asked)
            data = json.loads(reply)
            await answer(send, {"text": data["prompt"]} if "prompt" in data else data, status)
        else:
            await answer(send, {"detail": "Not Found"}, 404)

    async def chat(self, scope: Scope, request: Json, send: Send) -> None:
        told = {name: request.pop(name, False) and not self.old for name in TELLING}
        request.pop("return_token_ids", None)
        if request.get("stream") and any(told.values()):
            await answer(send, {"object": "error", "message": f"{TELLING[0]} is not supported with streaming"}, 400)
            return
        shown = request.pop("logprobs", False)
        request.pop("top_logprobs", None)
        status, reply = await self.inner(scope, json.dumps({**request, "return_token_ids": True}).encode())
        if status != 200:
            await answer(send, json.loads(reply), status)
        elif request.get("stream"):
            chunks = [json.loads(e.data) for e in read_events(reply.decode()) if e.data != "[DONE]"]
            chunks = self.spoil(chunks) if self.spoil else chunks
            chunks = [self.shaped(chunk, "delta", shown, told) for chunk in chunks]
            body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
            await answer(send, body.encode(), kind=b"text/event-stream")
        else:
            await answer(send, self.shaped(json.loads(reply), "message", shown, told))

    def shaped(self, data: Json, field: str, shown: bool, told: Json) -> Json:
        """A reply or chunk as SGLang writes it."""
        prompt = data.pop("prompt_token_ids", None)
        if usage := data.get("usage"):
            usage["reasoning_tokens"] = (usage.pop("completion_tokens_details", None) or {}).get("reasoning_tokens", 0)
        for choice in data["choices"]:
            message, ids = choice[field], choice.pop("token_ids", None) or []
            prompt = choice.pop("prompt_token_ids", None) or prompt
            message.pop("reasoning", None)
            if field == "message":
                message["content"] = message["content"] or ""
                message.setdefault("tool_calls", None)
                if told["return_meta_info"] and shown:
                    triples = [[-0.1, id, text] for id, text in zip(ids, self.texts(ids), strict=True)]
                    choice["meta_info"] = {"output_token_logprobs": triples, "completion_tokens": len(ids)}
                choice["prompt_token_ids"] = prompt if told["return_prompt_token_ids"] else None
            entries = [
                {"token": text, "bytes": list(text.encode()), "logprob": -0.1, "top_logprobs": []}
                for text in self.texts(ids)
            ]
            choice["logprobs"] = {"content": entries} if shown and ids else None
        return data

    def texts(self, ids: Sequence[int]) -> list[str]:
        """Each token by itself, decoded as `decode([id])` does."""
        return [self.engine.vocabulary.decode([id]) for id in ids]

    async def inner(self, scope: Scope, body: bytes) -> tuple[int, bytes]:
        """What our server says."""
        status, said = 0, b""

        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Message:
            if (message := next(messages, None)) is None:
                await asyncio.Event().wait()  # nobody leaves
            return message or {}

        async def send(message: Message) -> None:
            nonlocal status, said
            status = message.get("status", status)
            said += message.get("body", b"")

        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        await self.app({**scope, "headers": headers}, receive, send)
        return status, said


async def answer(send: Send, body: Any, status: int = 200, kind: bytes = b"application/json") -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]})
    await send({"type": "http.response.body", "body": body if isinstance(body, bytes) else json.dumps(body).encode()})
