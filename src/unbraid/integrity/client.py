"""An endpoint over HTTP: requests in both forms, and what it can tell about its raw layer.

Nothing is retried: a request that fails is a finding. What is asked beside the chat itself (tokens and their text) is asked once and
kept. The ways of vLLM, SGLang, llama.cpp and Unbraid are known by who the endpoint says it is (`owned_by`) and by what it answers.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

try:
    import httpx
except ImportError as missing:
    raise ImportError("unbraid.integrity needs httpx: pip install 'unbraid[check]'", name="httpx") from missing

from unbraid.errors import UnbraidError
from unbraid.integrity.files import Json
from unbraid.integrity.layers import Reply, from_object, from_stream
from unbraid.integrity.raw import Pieces

CHAT = "/v1/chat/completions"
T = TypeVar("T")
R = TypeVar("R")


class Unreachable(UnbraidError):
    """Nobody answers there, or not in this protocol."""


async def work_through(items: Iterable[T], work: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """Work on every item, so many at the same time; the results in order. Once one has failed no other is begun, and what it raised
    is raised when those that run have ended: a request isn't broken off in the middle."""
    todo = enumerate(items)
    found: dict[int, R] = {}

    async def worker() -> None:
        try:
            for at, item in todo:
                found[at] = await work(item)
        finally:  # either nothing is left to do, or nothing is to be begun any more
            deque(todo, maxlen=0)

    for ended in await asyncio.gather(*(worker() for _ in range(at_once)), return_exceptions=True):
        if ended is not None:
            raise ended
    return [found[at] for at in sorted(found)]


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
        self._gone: Unreachable | None = None
        self.pieces = Pieces(self._tokenize, self._detokenize)
        headers = {"authorization": f"Bearer {key}"} if key else {}
        if key and not (key.isascii() and key.isprintable()):
            raise UnbraidError("the API key has characters that no header can hold: expected printable ASCII")
        try:
            base = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise UnbraidError(f"{url!r} is no URL of an endpoint ({error}): expected http://HOST:PORT") from error
        self._http = httpx.AsyncClient(
            base_url=base,
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=10),
            # None is kept: one that the endpoint closes just as we ask would be a failure that isn't the endpoint's.
            limits=httpx.Limits(max_keepalive_connections=0),
            transport=transport,
        )

    async def __aenter__(self) -> Endpoint:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def greet(self) -> None:
        """Find out which model is served, and by whom. Raises `Unreachable`."""
        status, body = await self._send("GET", "/v1/models", None)
        listed = _object(body).get("data")
        served = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        if status != 200 or not served:
            raise Unreachable(self._no_models(status, body))
        ours = next((entry for entry in served if entry.get("id") == self.model), None)
        if self.model is not None and ours is None:
            names = ", ".join(str(entry.get("id")) for entry in served[:8])
            raise UnbraidError(f"{self.url} doesn't serve {self.model!r}; it serves {names} (--model)")
        ours = ours or served[0]
        self.model = str(ours.get("id"))
        self.owner = str(ours.get("owned_by") or "").lower()

    def _no_models(self, status: int, body: str) -> str:
        """Why it isn't known what is served here, and what to do."""
        if (closed := self._closed(status, body)) is not None:
            return closed
        if status in (0, 502, 503, 504):
            answer = f"{status}: {_said(body)}" if status else _said(body)
            return f"{self.url}: doesn't answer as yet ({answer}); wait until it is up, and look into its log if it never is"
        said = "names no model" if _object(body) else f"says {body[:60].strip()!r}" if body.strip() else "says nothing"
        return (
            f"{self.url}/v1/models: answers {status} and {said}; is this an OpenAI-compatible endpoint? "
            "Its URL is what stands before /v1"
        )

    def _closed(self, status: int, body: str) -> str | None:
        """What to say where nothing else will be answered differently."""
        if status in (401, 403):
            return f"{self.url}: refuses us ({status}); give its key with --key or $OPENAI_API_KEY"
        if 300 <= status < 400:
            return f"{self.url}: sends us elsewhere ({status}, {body}); give the URL of the endpoint itself"
        return None

    # Chat

    def body(self, request: Mapping[str, Any], *, stream: bool) -> Json:
        """The body that is sent for a case's request."""
        body: Json = {"model": self.model, **request}
        return {**body, "stream": True, "stream_options": {"include_usage": True}} if stream else body

    async def chat(self, request: Mapping[str, Any], *, stream: bool) -> Answer:
        """One request in one form. Raises `Unreachable` if the endpoint is closed to us. One that was there and is gone gives no
        answer, to this request and all that follow: that it went is a finding."""
        try:
            status, text = await self._send("POST", CHAT, self.body(request, stream=stream))
        except Unreachable as error:
            return Answer(0, Reply(), str(error))
        if (closed := self._closed(status, text)) is not None:
            raise Unreachable(closed)
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
        try:
            status, text = await self._send("POST", path, body)
        except Unreachable:
            return None
        return _object(text) if status == 200 else None

    async def _send(self, method: str, path: str, body: Json | None) -> tuple[int, str]:
        if self._gone is not None:
            raise self._gone
        try:
            response = await self._http.request(method, path, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            self._gone = Unreachable(
                f"{self.url}: can't be reached ({str(error) or type(error).__name__}); is it running, and are host and "
                "port right?"
            )
            raise self._gone from error
        except httpx.TimeoutException:
            message = f"no answer within {self._http.timeout.read:g} s; give it more with --timeout"
            return 0, json.dumps({"error": {"message": message}})
        except (httpx.TransportError, httpx.DecodingError) as error:
            return 0, json.dumps({"error": {"message": f"the connection broke ({type(error).__name__}: {error})"}})
        if response.has_redirect_location:
            return response.status_code, f"to {response.headers['location']}"
        return response.status_code, response.content.decode("utf-8", "replace")


def _object(text: str) -> Json:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _said(text: str) -> str:
    """What an error says, wherever it says it."""
    data = _object(text)
    error = data.get("error", data)
    message = error.get("message") or error.get("detail") if isinstance(error, dict) else error
    return str(message or text[:200] or "no reason given")
