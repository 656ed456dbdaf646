"""Engines that speak their dialect on a real socket, say what they are told, and fail as they are told.

Raw asyncio, not a web framework: a test must be able to break off in the middle of a chunk, and to see the client leave.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import unbraid
from unbraid.vocabulary import Vocabulary

LOGPROB = -0.5
OTHER = 65
"""The id that every token might have been instead."""
FORMAT = unbraid.get_format("qwen3")
SPECIAL = tuple(dict.fromkeys([*FORMAT.specials, "<|im_start|>", "<|im_end|>"]))
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_tokenizer(folder: Path) -> Path:
    """A folder with a tokenizer of single bytes and Qwen3's special tokens, and a chat template."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    moved = iter(range(0x100, 0x200))
    alphabet = [chr(byte) if byte in printable else chr(next(moved)) for byte in range(256)]
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 256 + at,
                "content": text,
                "special": text.startswith("<|"),
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            for at, text in enumerate(SPECIAL)
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {char: byte for byte, char in enumerate(alphabet)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    config = {"name_or_path": "Qwen/Qwen3-8B", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    return folder


def vocabulary(folder: Path) -> Vocabulary:
    return Vocabulary.from_file(folder)


@dataclass
class Faults:
    """What goes wrong. Numbers of events are counted from 0."""

    refuse: int = 0
    """The first so many requests are answered with `status`."""
    status: int = 503
    close: int = 0
    """The connections of the first so many requests are closed without a word."""
    kill_at: int | None = None
    stall_at: int | None = None
    error_at: int | None = None
    error: Any = field(default_factory=lambda: {"error": {"message": "out of memory", "code": 500}})
    nonsense: bytes | None = None
    """Sent as the body, in place of events."""
    silent_end_at: int | None = None
    """The stream ends properly here, but nobody said why."""


@dataclass
class FakeEngine:
    """`steps`: the ids of each event (in `completions`: the texts)."""

    kind: str
    steps: Sequence[Any] = ()
    finish: str = "stop"
    faults: Faults = field(default_factory=Faults)
    delay: float = 0.0
    cumulative: bool = False
    """SGLang: each event repeats all ids so far."""
    ahead: bool = False
    """SGLang: an event waited to be sent, and its list of ids went on growing."""
    padding: str = "?"
    """The text beside the ids: nobody reads it, but it takes room on the way."""
    content_type: str = "text/event-stream"
    chat_template: str | None = None
    model_path: str = "/nowhere/Qwen3-8B"
    requests: list[dict[str, Any]] = field(default_factory=list)
    connections: int = 0
    running: int = 0
    said: int = 0
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """A client left before the end, and the engine has noticed."""
    aborted: list[str] = field(default_factory=list)
    """SGLang: what it was told to end."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._tasks: set[asyncio.Task[Any]] = set()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def stop(self) -> None:
        """As a process that is killed: the port is gone, and every connection with it."""
        self._server.close()
        for task in list(self._tasks):
            task.cancel()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, path, _ = head.split(" ", 2)
        length = next((int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0)
        body = json.loads(await reader.readexactly(length)) if length else {}
        if method == "GET":
            return await self._reply(writer, *self._about(path))
        if path == "/tokenize":
            return await self._reply(writer, 200, {"tokens": list((body.get("prompt") or body["content"]).encode())})
        if path == "/abort_request":
            self.aborted.append(body["rid"])
            self.left.set()
            return await self._reply(writer, 200, {})
        self.requests.append(body)
        number = len(self.requests)
        if number <= self.faults.close:
            return False
        if number <= self.faults.refuse:
            return await self._reply(writer, self.faults.status, {"error": {"message": "not now"}})
        return await self._stream(reader, writer, body)

    def _about(self, path: str) -> tuple[int, Any]:
        owner = {"vllm": "vllm", "vllm-tokens": "vllm", "sglang": "sglang", "llama": "llamacpp"}.get(
            self.kind, "somebody"
        )
        if path == "/v1/models":
            card = {"id": "tiny", "object": "model", "owned_by": owner, "root": self.model_path, "max_model_len": 2000}
            return 200, {"object": "list", "data": [card]}
        if path == "/props" and self.kind == "llama":
            settings = {"n_ctx": 2000}
            return 200, {
                "default_generation_settings": settings,
                "model_path": f"{self.model_path}.gguf",
                "chat_template": self.chat_template or TEMPLATE,
                "eos_token": "<|im_end|>",
            }
        if path == "/model_info" and self.kind == "sglang":
            return 200, {"model_path": self.model_path}
        return (200, {}) if path == "/health" else (404, {"error": "no such path"})

    async def _reply(self, writer: asyncio.StreamWriter, status: int, value: Any) -> bool:
        body = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        return True

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[str, Any]) -> bool:
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {self.content_type}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        writer.write(head.encode())
        watch = asyncio.create_task(reader.read(1))
        say = asyncio.create_task(self._say(writer, asked))
        self.running += 1
        try:
            done, _ = await asyncio.wait({watch, say}, return_when=asyncio.FIRST_COMPLETED)
            if say not in done or say.exception() is not None:
                if self.kind == "sglang":
                    await self._go_on()
                self.left.set()
            return False
        finally:
            self.running -= 1
            for task in (watch, say):
                task.cancel()
            await asyncio.gather(watch, say, return_exceptions=True)

    async def _go_on(self) -> None:
        """SGLang generates for two seconds more, for nobody, unless it is told that somebody left."""
        end = asyncio.get_running_loop().time() + 2
        while not self.left.is_set() and asyncio.get_running_loop().time() < end:
            self.said += 1
            await asyncio.sleep(self.delay)

    async def _say(self, writer: asyncio.StreamWriter, asked: dict[str, Any]) -> None:
        faults = self.faults
        if faults.nonsense is not None:
            await self._chunk(writer, faults.nonsense)
            await self._chunk(writer, b"")
            return
        for at, event in enumerate(self.events(asked)):
            if at == faults.kill_at:
                writer.write(b"40\r\ndata: {")  # in the middle of a chunk
                await writer.drain()
                writer.transport.abort()
                return
            if at == faults.stall_at:
                await asyncio.Event().wait()
            if at == faults.silent_end_at:
                break
            data = faults.error if at == faults.error_at else event
            await self._chunk(writer, b"data: " + json.dumps(data).encode() + b"\n\n")
            self.said += 1
            await asyncio.sleep(self.delay)
        if self.kind != "llama":
            await self._chunk(writer, b"data: [DONE]\n\n")
        await self._chunk(writer, b"")

    async def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()

    def events(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """What is said, in the engine's own words."""
        make = {
            "vllm": self._vllm,
            "vllm-tokens": self._vllm_tokens,
            "sglang": self._sglang,
            "llama": self._llama,
            "completions": self._completions,
        }
        events = make[self.kind]()
        logprobs = asked.get("sampling_params", asked).get("logprobs")
        if asked.get("return_logprob") or asked.get("n_probs") or logprobs is not None:
            self._with_logprobs(events)
        return events

    def _with_logprobs(self, events: list[dict[str, Any]]) -> None:
        """Every token's, with itself and another one as its alternatives."""
        sofar: list[Any] = []
        for event, ids in zip(events, self.steps, strict=False):
            if self.kind == "vllm":
                event["choices"][0]["logprobs"] = {
                    "tokens": [f"token_id:{id}" for id in ids],
                    "token_logprobs": [LOGPROB for _ in ids],
                    "top_logprobs": [{f"token_id:{id}": LOGPROB, f"token_id:{OTHER}": LOGPROB - 1} for id in ids],
                    "text_offset": [0 for _ in ids],
                }
            elif self.kind == "vllm-tokens":
                tops = [
                    [{"token_id": top, "logprob": LOGPROB - at} for at, top in enumerate((id, OTHER))] for id in ids
                ]
                event["choices"][0]["logprobs"] = {"content": [top[0] | {"top_logprobs": top} for top in tops]}
            elif self.kind == "sglang":
                sofar += ids
                shown = event["output_ids"] if self.cumulative else ids
                entries = [[(LOGPROB, id, None), (LOGPROB - 1, OTHER, None)] for id in shown]
                meta = {"output_token_logprobs": [entry[0] for entry in entries], "output_top_logprobs": entries}
                event["meta_info"] |= meta | {"output_token_logprobs_length": len(sofar), "input_token_logprobs": []}
            elif self.kind == "llama":
                event["completion_probabilities"] = [
                    {
                        "id": id,
                        "token": "?",
                        "bytes": [63],
                        "logprob": LOGPROB,
                        "top_logprobs": [{"id": top, "logprob": LOGPROB - at} for at, top in enumerate((id, OTHER))],
                    }
                    for id in ids
                ]

    def _ends(self) -> list[str | None]:
        return [*[None] * (len(self.steps) - 1), self.finish]

    def _vllm(self) -> list[dict[str, Any]]:
        return [
            {
                "choices": [
                    {"index": 0, "text": self.padding, "token_ids": list(ids), "finish_reason": end, "logprobs": None}
                ]
            }
            for ids, end in zip(self.steps, self._ends(), strict=True)
        ]

    def _vllm_tokens(self) -> list[dict[str, Any]]:
        return [
            {
                "request_id": "x",
                "output_mode": "tokens",
                "choices": [
                    {"index": 0, "token_ids": list(ids), "finish_reason": end, "stop_reason": None, "logprobs": None}
                ],
            }
            for ids, end in zip(self.steps, self._ends(), strict=True)
        ]

    def _sglang(self) -> list[dict[str, Any]]:
        """With what of `meta_info` 0.5.23 sends for every request."""
        out: list[dict[str, Any]] = []
        sofar: list[int] = []
        for at, (ids, end) in enumerate(zip(self.steps, self._ends(), strict=True), 1):
            sofar += ids
            meta = {
                "id": "x",
                "finish_reason": self._sglang_end(end, len(sofar)),
                "prompt_tokens": 1,
                "weight_version": "default",
                "num_retractions": 0,
                "reasoning_tokens": 0,
                "completion_tokens": len(sofar),
                "cached_tokens": 0,
            }
            later = self.steps[at : at + 1] if self.ahead else []
            shown = [*sofar, *(id for step in later for id in step)] if self.cumulative else ids
            out.append({"text": self.padding, "output_ids": list(shown), "meta_info": meta})
        return out

    def _sglang_end(self, end: str | None, length: int) -> dict[str, Any] | None:
        match end:
            case None:
                return None
            case "length":
                return {"type": end, "length": length}
            case "abort":
                return {"type": end, "message": "Aborted", "status_code": None, "err_type": None}
            case _:
                return {"type": end, "matched": 1}

    def _llama(self) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        count = 0
        for ids in self.steps:
            count += len(ids)
            out.append({"index": 0, "content": "?", "tokens": list(ids), "stop": False, "tokens_predicted": count})
        kind = {"stop": "eos", "length": "limit"}.get(self.finish, self.finish)
        return [*out, {"content": "", "tokens": [], "stop": True, "stop_type": kind, "tokens_predicted": count}]

    def _completions(self) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = [
            {"choices": [{"index": 0, "text": text, "finish_reason": end}], "usage": None}
            for text, end in zip(self.steps, self._ends(), strict=True)
        ]
        usage = {"prompt_tokens": 11, "completion_tokens": len(self.steps)}
        return [*out, {"choices": [], "usage": usage}]
