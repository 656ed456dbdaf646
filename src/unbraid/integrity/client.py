"""An endpoint over HTTP: requests in both forms, and what it can tell about its raw layer.

Nothing is retried: a request that fails is a finding. What is asked beside the chat itself (tokens and their text) is asked once and
kept. The ways of vLLM, SGLang, llama.cpp and Unbraid are known by who the endpoint says it is (`owned_by`) and by what it answers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

try:
    import httpx
except ImportError as missing:
    raise ImportError("unbraid.integrity needs httpx: pip install 'unbraid[check]'", name="httpx") from missing

from unbraid.errors import UnbraidError
from unbraid.integrity.layers import Reply, from_object, from_stream
from unbraid.integrity.raw import Pieces

Json = dict[str, Any]
CHAT = "/v1/chat/completions"


class Unreachable(UnbraidError):
    """Nobody answers there, or not in this protocol."""


@dataclass(slots=True)
class Answer:
    """What came back for one request in one form."""

    status: int
    reply: Reply
    error: str = ""
    """What a refusal says."""


class Endpoint:
    """One deployment. Use it as an async context manager."""

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        key: str | None = None,
        timeout: float = 300.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1").rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise UnbraidError(f"{url!r} is no URL of an endpoint: expected http://HOST:PORT or http://HOST:PORT/v1")
        self.model = model
        self.owner = ""
        """Who serves, in its own words: `vllm`, `sglang`, `llamacpp`, `unbraid`."""
        self.pieces = Pieces(self._tokenize, self._detokenize)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=httpx.Timeout(timeout, connect=10), transport=transport
        )

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def greet(self) -> None:
        """Find out which model is served, and by whom. Raises `Unreachable`."""
        status, body = await self._send("GET", "/v1/models", None)
        if status in (401, 403):
            raise Unreachable(f"{self.url}: refuses us ({status}); give its key with --key or $OPENAI_API_KEY")
        data = _object(body)
        served = [entry for entry in data.get("data") or () if isinstance(entry, dict)]
        if status != 200 or not served:
            raise Unreachable(
                f"{self.url}/v1/models: answers {status} and names no model; is this an OpenAI-compatible endpoint?"
            )
        ours = next((entry for entry in served if entry.get("id") == self.model), None)
        if self.model is not None and ours is None:
            names = ", ".join(str(entry.get("id")) for entry in served[:8])
            raise UnbraidError(f"{self.url} doesn't serve {self.model!r}; it serves {names} (--model)")
        ours = ours or served[0]
        self.model = str(ours.get("id"))
        self.owner = str(ours.get("owned_by") or "").lower()

    # Chat

    def body(self, request: Mapping[str, Any], *, stream: bool) -> Json:
        """The body that is sent for a case's request."""
        body: Json = {"model": self.model, **request}
        return {**body, "stream": True, "stream_options": {"include_usage": True}} if stream else body

    async def chat(self, request: Mapping[str, Any], *, stream: bool) -> Answer:
        """One request in one form. Raises `Unreachable` if the connection can't be made."""
        status, text = await self._send("POST", CHAT, self.body(request, stream=stream))
        if status != 200:
            return Answer(status, Reply(text=text), _said(text))
        return Answer(status, from_stream(text, asked_usage=True) if stream else from_object(text))

    # Around it

    async def prompt_of(self, request: Mapping[str, Any]) -> Sequence[int] | str | None:
        """The prompt that a chat request becomes, as ids or text, if the endpoint tells."""
        shown = {
            k: request[k]
            for k in ("messages", "tools", "chat_template_kwargs", "continue_final_message")
            if k in request
        }
        going_on = bool(request.get("continue_final_message"))
        body = {"model": self.model, **shown, "add_generation_prompt": not going_on}
        for path, field in (("/tokenize", "tokens"), ("/apply-template", "prompt")):
            if path == "/tokenize" and "llama" in self.owner:
                continue  # it has the route, but not for messages
            found = (await self._ask(path, body) or {}).get(field)
            if found and isinstance(found, list | str):
                return found
        return None

    async def _tokenize(self, text: str) -> list[int] | None:
        body = {"model": self.model, "prompt": text, "add_special_tokens": False}
        if "llama" in self.owner:
            body = {"content": text, "add_special": False, "parse_special": True}
        found = await self._ask("/tokenize", body)
        tokens = (found or {}).get("tokens")
        return tokens if isinstance(tokens, list) and all(isinstance(id, int) for id in tokens) else None

    async def _detokenize(self, ids: Sequence[int]) -> str | None:
        found = await self._ask("/detokenize", {"model": self.model, "tokens": list(ids)}) or {}
        text = next((found[name] for name in ("prompt", "content", "text") if isinstance(found.get(name), str)), None)
        return text

    async def _ask(self, path: str, body: Json) -> Json | None:
        status, text = await self._send("POST", path, body)
        return _object(text) if status == 200 else None

    async def _send(self, method: str, path: str, body: Json | None) -> tuple[int, str]:
        try:
            response = await self._http.request(method, path, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            raise Unreachable(f"{self.url}: can't be reached ({str(error) or type(error).__name__})") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            return 0, json.dumps({"error": {"message": f"the connection broke ({type(error).__name__}: {error})"}})
        return response.status_code, response.content.decode("utf-8", "replace")


def _object(text: str) -> Json:
    try:
        data = json.loads(text)
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}


def _said(text: str) -> str:
    """What an error says, wherever it says it."""
    data = _object(text)
    error = data.get("error", data)
    message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    return str(message or text[:200] or "no reason given")
