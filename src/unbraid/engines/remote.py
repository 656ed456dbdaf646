"""What all engines elsewhere share: one HTTP request per generation, whose events are read as they come.

An engine's own words are its *dialect* (`vllm.py`, `sglang.py`, `llama_server.py`, `completions.py`): how it is asked for raw
tokens, and what its events mean. Everything else is here:

- What the engine can't do is refused before anything is sent.
- A request is tried again only while nothing has come of it: afterwards the reply would have to be taken back.
- Three clocks run: to connect, until the first token, and between two. An engine that stands still is an error, not an end.
- Closing the iterator closes the connection, by which nearly all these engines notice that nobody reads any more; who takes
  longer is told as well.
- Nonsense (no event stream, no JSON, a number where a list should be) is an `EngineError` that quotes it.
"""

from __future__ import annotations

import asyncio
import random
import re
import ssl
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

try:
    import aiohttp
    import httpx
    import msgspec
    from yarl import URL
except ImportError as missing:
    from unbraid.errors import EngineError

    raise EngineError("engines elsewhere need aiohttp, httpx and msgspec: pip install 'unbraid[server]'") from missing

from unbraid.engines.base import Abilities, Generation, Step, TokenLogprob
from unbraid.engines.profile import Profile, Told
from unbraid.errors import EngineError, RequestError
from unbraid.vocabulary import Vocabulary

T = TypeVar("T")

MAX_EVENT = 16 * 1024 * 1024
"""Bytes of one event. Whoever sends more without a line's end sends no events."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds, and how often to try again."""

    connect: float = 10.0
    first_token: float = 300.0
    """From sending the request to its first token: a busy engine queues, and long prompts take their time."""
    stall: float = 60.0
    """Between two reads, from the first token on."""
    retries: int = 2
    pause: float = 0.2
    """Before the first retry; doubled for each further one, and spread."""


DEFAULT_TIMING = Timing()


@dataclass(slots=True)
class Reading:
    """One generation while its events are read."""

    generation: Generation
    vocabulary: Vocabulary
    begun: bool = False
    """Something has come, be it an id or a text; events that say nothing of tokens don't count."""
    seen: int = 0
    """Tokens so far."""
    notes: dict[str, Any] = field(default_factory=dict)

    def named(self, id: int, logprob: float, top: Sequence[tuple[int, float]] = ()) -> TokenLogprob:
        """A token with its probability, its bytes from our own vocabulary; as many others as were asked for."""
        wanted = self.generation.logprobs or 0
        best = sorted(top, key=lambda pair: -pair[1])[:wanted]
        data = self.vocabulary.bytes_of(id) or b""
        others = tuple(self.named(*pair) for pair in best)
        return TokenLogprob(id, logprob, data.decode("utf-8", "replace"), data, others)


class Dialect(Protocol):
    """How one kind of engine is spoken to."""

    name: str
    """What it is called in messages."""
    kind: str
    """What it is called on the command line."""
    abilities: Abilities
    path: str
    """Where a generation is asked for."""
    decoder: msgspec.json.Decoder[Any]
    """Of one event."""

    @property
    def abort_path(self) -> str | None:
        """Where a generation is ended by the `rid` that it was given, if the engine doesn't end it as soon as its connection
        closes."""

    def told(self, get: Get, wanted: str | None) -> Told:
        """What the engine says about its model, or about the one that is wanted of several."""

    def body(self, generation: Generation, model: str) -> dict[str, Any]:
        """The request, with what was handed on for it."""

    def steps(self, event: Any, reading: Reading) -> list[Step]:
        """What one event says; none if it says nothing of tokens. Raises `EngineError` for an end that is none."""

    def end(self, reading: Reading) -> Step | None:
        """The stream is over: the last step, if it was kept back until now."""

    def tokenize(self, text: str, post: Post, model: str, *, special: bool) -> list[int]:
        """The engine's own ids of a text. Raises `EngineError` if it can't say."""


class Get(Protocol):
    """GET a path of the engine: its JSON, or `None` where it has no such path."""

    def __call__(self, path: str) -> Any: ...


class Post(Protocol):
    """POST JSON to a path of the engine: its JSON."""

    def __call__(self, path: str, body: dict[str, Any]) -> Any: ...


class Transient(EngineError):
    """A failure that may be gone next time, if nothing has come yet."""


class RemoteEngine:
    """An engine at `url`. Implements `unbraid.engines.base.Engine`."""

    def __init__(
        self, url: str, dialect: Dialect, profile: Profile, *, key: str | None = None, timing: Timing = DEFAULT_TIMING
    ) -> None:
        self.url = url.rstrip("/")
        self.dialect = dialect
        self.abilities = dialect.abilities
        self.model = profile.model
        self.vocabulary = profile.vocabulary
        self.context_length = profile.context_length
        self.chat_template = profile.chat_template
        self.special_tokens = dict(profile.special_tokens)
        self.names = profile.names or (profile.model,)
        self.end_ids = profile.end_ids
        self.timing = timing
        self._profile = profile
        self._encode = profile.encode
        self._call = Caller(self.url, key, timing.connect)
        self._running: set[str] = set()
        self._aborts: set[asyncio.Task[None]] = set()
        self._headers = {"accept-encoding": "identity", **_authorization(key)}
        self._address = URL(self.url).with_user(None) if key else URL(self.url)
        self._open: aiohttp.ClientSession | None = None

    @property
    def format_hint(self) -> str | None:
        return self.names[0]

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        if self._encode is not None:
            return self._encode(text, special)
        return self.dialect.tokenize(text, self._call.post, self._profile.served, special=special)

    def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        self.abilities.check(generation, self.dialect.name)
        return self._steps(self.dialect.body(generation, self._profile.served), generation)

    async def ready(self) -> None:
        try:
            status = await self._health()
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError(f"can't reach {self._who} ({_said(error)})", status=503) from error
        if status >= 500:
            raise EngineError(f"{self._who} isn't ready (status {status})", status=503)

    async def _health(self) -> int:
        """Its status."""
        async with (
            asyncio.timeout(self.timing.connect),
            self._session.get(self._at("/health"), allow_redirects=False) as response,
        ):
            return response.status

    async def close(self) -> None:
        for rid in [*self._running]:  # a server that ends may close us before the generations that it has cut off
            self._abort(rid)
        await asyncio.gather(*self._aborts)
        self._call.close()
        if self._open is not None:
            await self._open.close()

    @property
    def _session(self) -> aiohttp.ClientSession:
        """Made when it is first needed, since it belongs to the event loop that runs then: the engine does, from then on."""
        if self._open is None:
            self._open = aiohttp.ClientSession(
                headers=self._headers,
                # The clocks of `timing` run here; as many connections as there are generations.
                timeout=aiohttp.ClientTimeout(total=None, connect=self.timing.connect),
                connector=aiohttp.TCPConnector(limit=0, ssl=_authorities(self.url)),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._open

    def _at(self, path: str) -> URL:
        return self._address.joinpath(path.removeprefix("/"))

    @property
    def _who(self) -> str:
        return f"{self.dialect.name} at {shown(self.url)}"

    async def _steps(self, body: dict[str, Any], generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        """All attempts. Only the first step commits us to one."""
        for attempt in range(self.timing.retries + 1):
            begun = False
            try:
                async with aclosing(self._attempt(body, generation)) as reads:
                    async for steps in reads:
                        begun = True
                        yield steps
                return
            except Transient:
                if begun or attempt == self.timing.retries:
                    raise
            await asyncio.sleep(self.timing.pause * 2**attempt * random.uniform(0.5, 1.5))

    async def _attempt(self, body: dict[str, Any], generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        deadline = asyncio.get_running_loop().time() + self.timing.first_token
        answer, rid = None, ""
        if self.dialect.abort_path:
            rid = uuid.uuid4().hex
            body = body | {"rid": rid}
            self._running.add(rid)
        try:
            answer = await self._within(self._ask(body), deadline)
            await self._check(answer, deadline)
            reading = Reading(generation, self.vocabulary)
            async with aclosing(self._reads(answer, deadline, reading)) as reads:
                async for events in reads:
                    steps, failure = self._understood(events, reading)
                    if steps and steps[-1].finish is not None:
                        self._running.discard(rid)
                        await self._drain(reads, answer)
                        yield steps
                        return
                    if steps:
                        yield steps
                    if failure is not None:
                        raise failure
            if (last := self.dialect.end(reading)) is not None:
                yield (last,)
                return
        finally:
            self._abort(rid)
            if answer is not None:
                answer.close()  # at once, unless it was read to its end: then its connection is kept
        raise Transient(f"{self._who} ended its answer without saying why", status=502)

    def _abort(self, rid: str) -> None:
        """Tell an engine that doesn't notice it soon enough. Nobody waits for its answer."""
        path = self.dialect.abort_path
        if path is None or rid not in self._running:
            return
        self._running.discard(rid)

        async def told() -> None:
            with suppress(aiohttp.ClientError, OSError):
                async with (
                    asyncio.timeout(self.timing.connect),
                    self._session.post(self._at(path), json={"rid": rid}, allow_redirects=False),
                ):
                    pass

        task = asyncio.create_task(told())
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    async def _ask(self, body: dict[str, Any]) -> aiohttp.ClientResponse:
        return await self._session.post(
            self._at(self.dialect.path),
            data=msgspec.json.encode(body),
            headers={"content-type": "application/json"},
            allow_redirects=False,
        )

    async def _within(self, work: Coroutine[Any, Any, T], deadline: float) -> T:
        """The result of one wait for the engine, or the error that it amounts to."""
        try:
            async with asyncio.timeout_at(deadline):
                return await work
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as error:
            raise Transient(f"{self._who} can't be reached ({_said(error)})", status=502) from error
        except TimeoutError as error:
            raise EngineError(f"{self._who} said nothing in time", status=504) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Transient(f"{self._who} broke off ({_said(error)})", status=502) from error

    async def _reads(
        self, answer: aiohttp.ClientResponse, deadline: float, reading: Reading
    ) -> AsyncGenerator[list[bytes], None]:
        """The data of the events that each read brings, up to `[DONE]` or the end."""
        lines, clock = Lines(), asyncio.get_running_loop()
        while piece := await self._within(answer.content.readany(), deadline):
            events = []
            for line in lines.feed(piece):
                if line.startswith(b"data:"):
                    events.append(line[5:].strip())
                elif line and not line.startswith((b":", b"event:", b"id:", b"retry:")):
                    events.append(line)  # no JSON either: what is wrong with it is said in its turn
            if b"[DONE]" in events:
                yield events[: events.index(b"[DONE]")]
                return
            if events:
                yield events
            if reading.begun:
                deadline = clock.time() + self.timing.stall
            if len(lines.rest) > MAX_EVENT:
                raise self._nonsense(lines.rest)

    async def _drain(self, reads: AsyncIterator[list[bytes]], answer: aiohttp.ClientResponse) -> None:
        """To the end of the stream, so that the connection can be used again; not for long, and nothing can fail now."""
        try:
            async with asyncio.timeout(0.5):
                async for _ in reads:
                    pass
                while await answer.content.readany():
                    pass
        except (aiohttp.ClientError, OSError, EngineError):
            pass

    def _understood(self, events: list[bytes], reading: Reading) -> tuple[list[Step], EngineError | None]:
        """The steps of all events of a read, up to the last one or as far as they can be understood, and why no further."""
        found: list[Step] = []
        for data in events:
            try:
                found += self._steps_of(data, reading)
            except EngineError as error:
                return found, error
            if found and found[-1].finish is not None:
                break
        return found, None

    def _steps_of(self, data: bytes, reading: Reading) -> list[Step]:
        try:
            event = self.dialect.decoder.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self._nonsense(data) from error
        if getattr(event, "error", None):
            raise self._failure(event.error, reading)
        steps = self.dialect.steps(event, reading)
        reading.seen += sum(len(step.ids) for step in steps)
        reading.begun = reading.begun or bool(steps)
        return steps

    def _failure(self, error: Any, reading: Reading) -> Exception:
        """What an error inside the stream means: before the first token, what its code says as a status would."""
        code = error.get("code") if isinstance(error, dict) else None
        if not reading.seen and isinstance(code, int) and 400 <= code < 600:
            return self._refusal(code, error_text(error), "")
        return EngineError(f"{self._who} failed: {error_text(error)}", status=502)

    def _nonsense(self, data: bytes) -> EngineError:
        return EngineError(f"{self._who} says what it can't mean: {excerpt(data)}", status=502)

    async def _check(self, answer: aiohttp.ClientResponse, deadline: float) -> None:
        """An answer that is no stream of events is an error: whose, its status says."""
        kind = answer.headers.get("content-type", "")
        if answer.status == 200 and kind.lower().startswith("text/event-stream"):
            return
        said = await self._within(_beginning(answer), deadline)
        text = error_text(_json(said)) if _json(said) is not None else excerpt(said)
        raise self._refusal(answer.status, text, kind)

    def _refusal(self, status: int, said: str, kind: str) -> Exception:
        if status == 200:
            return self._nonsense(f"{kind or 'no content-type'}: {said}".encode())
        if status in (400, 413, 422):
            return RequestError(f"{self.dialect.name} refuses the request: {said}")
        if status in (429, 502, 503, 504):
            return Transient(f"{self._who} is overloaded (status {status}: {said})", status=503)
        if status in (401, 403):
            return EngineError(f"{self._who} refuses our key (status {status}): set --engine-key", status=502)
        if status in (404, 405):
            remedy = (
                "if it has no such path, set --engine-kind; what only chats can't be asked for what its model wrote"
            )
            return EngineError(f"{self._who}{self.dialect.path} says {status}: {said}; {remedy}", status=502)
        return EngineError(f"{self._who} failed with status {status}: {said}", status=502)


class Lines:
    """Bytes in, whole lines out."""

    __slots__ = ("rest",)

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that `data` completes, without their ends."""
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [line.rstrip(b"\r") for line in lines]


class Caller:
    """Plain questions to an engine, outside of any generation: what it serves, how it spells a text. They block."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self.url = url
        self._client = httpx.Client(
            headers=_authorization(key),
            timeout=timeout,
            # Questions are rare: the engine may have closed what was kept.
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=False,
            verify=_authorities(url),
        )

    def get(self, path: str) -> Any:
        """JSON, or `None` where there is no such path or no JSON at it. Raises `EngineError` if nobody answers."""
        try:
            response = self._client.get(self.url + path)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise EngineError(f"can't reach an engine at {shown(self.url)} ({_said(error)})", status=503) from error
        if response.status_code in (401, 403):
            raise EngineError(f"the engine at {shown(self.url)} wants a key: give it with --engine-key", status=502)
        return _json(response.content) if response.status_code == 200 else None

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """JSON. Raises `EngineError` for whatever else there is."""
        try:
            response = self._client.post(self.url + path, json=body)
        except httpx.HTTPError as error:
            raise EngineError(f"can't reach the engine at {shown(self.url)} ({_said(error)})", status=502) from error
        found = _json(response.content) if response.status_code == 200 else None
        if found is None:
            raise EngineError(f"{shown(self.url)}{path} failed with status {response.status_code}", status=502)
        return found

    def close(self) -> None:
        self._client.close()


def error_text(error: Any) -> str:
    """The message in an error object, whatever its shape."""
    for name in ("error", "message", "detail", "msg"):
        while isinstance(error, dict) and name in error:
            error = error[name]
    return error if isinstance(error, str) else excerpt(msgspec.json.encode(error))


def excerpt(data: bytes) -> str:
    """The beginning of what somebody said, on one line."""
    text = data[:200].decode("utf-8", "replace")
    return repr(text if len(data) <= 200 else f"{text}...")


def ended(reason: str | None, who: str) -> Any:
    """A finish reason in our words. Any other than these two is no end but a failure."""
    if reason in (None, "stop", "length"):
        return reason
    raise EngineError(f"{who} gave up: its finish reason is {reason!r}", status=502)


def ids_of(found: Any, who: str) -> list[int]:
    """A list of ids in an engine's answer."""
    if isinstance(found, list) and all(type(id) is int for id in found):
        return found
    raise EngineError(f"{who} has no ids for a text: {excerpt(msgspec.json.encode(found))}", status=502)


async def _beginning(answer: aiohttp.ClientResponse) -> bytes:
    """Enough of a body to tell what went wrong."""
    said = b""
    while len(said) <= 4096 and (piece := await answer.content.readany()):
        said += piece
    return said


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _said(error: Exception) -> str:
    """On one line."""
    return " ".join(str(error).split()) or type(error).__name__


def shown(url: str) -> str:
    """An address as messages may say it, which reach clients and logs: without a name and a password."""
    return re.sub(r"(?<=//)[^/?#]*@", "", url)


def _authorities(url: str) -> ssl.SSLContext | bool:
    """Whom to believe: those that the system trusts, or that SSL_CERT_FILE names. Over plain HTTP, nobody is asked."""
    return ssl.create_default_context() if url.lower().startswith("https:") else False


def _authorization(key: str | None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} if key else {}
