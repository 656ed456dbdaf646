"""Captures of replies, as people have them: a HAR from a browser or proxy, the output of `curl -N` (with `-i` or `-v`, too), a reply's
JSON, or JSON Lines of chunks, replies, or records of one's own.

A record is `{"response": ..., "request"?: {...}, "raw"?: "...", "ids"?: [...], "prompt"?: ..., "name"?: ...}`, its response a reply, a
list of chunks, or the text of a stream.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unbraid.errors import UnbraidError
from unbraid.integrity.files import Json
from unbraid.integrity.layers import Reply, from_object, from_stream

CHUNK = "chat.completion.chunk"
_NOISE = re.compile(r"^(?:[*<>{}] ?|\s*% Total|\s*\d+\s+\d+.*--:--)")
"""What `curl -v` and its progress meter write between the lines of a stream."""


@dataclass(slots=True)
class Capture:
    """One reply, and what is known about it."""

    name: str
    stream: bool
    reply: Reply
    request: Json | None = None
    raw: str | None = None
    ids: Sequence[int] | None = None
    prompt: Sequence[int] | str | None = None


def text_of(data: bytes) -> str:
    """A capture's file as text: UTF-8 or UTF-16, with or without a byte order mark, or packed with gzip as it came over the wire."""
    if data.startswith(b"\x1f\x8b"):
        data = _unpacked(data) or b""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.removeprefix(codecs.BOM_UTF8).decode("utf-8", "replace")


def _unpacked(data: bytes) -> bytes | None:
    """gzip or deflate, one behind the other if there are several; what a cut file still holds. `None` if it is neither."""
    found = None
    try:
        while data:
            unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)
            found = (found or b"") + unpacking.decompress(data)
            data = unpacking.unused_data
    except zlib.error:
        pass
    return found


def read_captures(text: str, path: str) -> list[Capture]:
    """Every reply in a file. Raises `UnbraidError` if there is none, or if they are of another API."""
    found = list(_read(text, path))
    if not found:
        if (other := _other_api(text)) is not None:
            raise UnbraidError(
                f"{path}: {other}; only replies of /v1/chat/completions are read: capture the same request there"
            )
        raise UnbraidError(
            f"{path}: no reply in it; expected a HAR, the output of curl -N, a reply's JSON, or JSON Lines of chunks"
        )
    return [_named(capture, path, at, len(found)) for at, capture in enumerate(found, 1)]


_OTHERS = {
    "OpenAI's Responses": re.compile(r'"type" ?: ?"response\.\w+|"object" ?: ?"response"'),
    "Anthropic's Messages": re.compile(r'"type" ?: ?"(message_start|content_block_\w+|message)"'),
    "/v1/completions": re.compile(r'"object" ?: ?"text_completion"'),
}
"""What the replies of other APIs have, each where it begins. Responses hold messages, too, and come first."""


def _other_api(text: str) -> str | None:
    return next((f"a reply of {name}" for name, shape in _OTHERS.items() if shape.search(text, 0, 4096)), None)


def _named(capture: Capture, path: str, at: int, count: int) -> Capture:
    if not capture.name:
        capture.name = path if count == 1 else f"{path} reply {at}"
    return capture


def _read(text: str, path: str) -> Iterator[Capture]:
    data = _json(text)
    if isinstance(data, dict) and isinstance(data.get("log"), dict):
        yield from _har(data["log"], path)
    elif isinstance(data, dict):
        yield from _entry(data)
    elif isinstance(data, list):
        yield from _lines(data)
    elif (lines := _json_lines(text, path)) is not None:
        yield from _lines(lines)
    else:
        yield from _transcript(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_lines(text: str, path: str) -> list[Any] | None:
    """The objects of JSON Lines; `None` if the first line is none. Raises `UnbraidError` for a line that isn't like the first."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines or not isinstance(_json(lines[0][1]), dict):
        return None
    found = []
    for number, line in lines:
        data = _json(line)
        if isinstance(data, dict):
            found.append(data)
        elif number != lines[-1][0]:  # the last one may have been cut off while it was written
            raise UnbraidError(
                f"{path}, line {number}: expected a JSON object, as in the first line, found {line[:40]!r}"
            )
    return found


# -- HAR ---------------------------------------------------------------------------------------------------------------


def _har(log: Json, path: str) -> Iterator[Capture]:
    for number, entry in enumerate(log.get("entries") or ()):
        if not isinstance(entry, dict):
            continue
        response = _part(entry, "response")
        content = _part(response, "content")
        text = content.get("text")
        if not isinstance(text, str):
            continue
        if content.get("encoding") == "base64":
            text = _body(text, response, f"{path}, entry {number}")
        sent = _part(_part(entry, "request"), "postData")
        request = _json(str(sent.get("text") or ""))
        stream = "event-stream" in str(content.get("mimeType")) or text.lstrip().startswith("data:")
        if not (_streamed(text) if stream else _is_reply(_json(text))):
            continue  # something else of the same page
        yield _capture(text, stream, request if isinstance(request, dict) else None)


def _part(data: Json, name: str) -> Json:
    part = data.get(name)
    return part if isinstance(part, dict) else {}


def _body(text: str, response: Json, where: str) -> str:
    """A body that a HAR holds as base64, unpacked if the proxy has kept it as it came over the wire."""
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise UnbraidError(f"{where}: its body says that it is base64, and isn't ({error})") from error
    headers = [each for each in response.get("headers") or () if isinstance(each, dict)]
    packed = next((str(h.get("value")) for h in headers if str(h.get("name")).lower() == "content-encoding"), "")
    unpacked = _unpacked(data) if packed in ("gzip", "x-gzip", "deflate") else None
    if packed in ("br", "zstd") and not data.lstrip().startswith((b"data:", b"{", b"event:")):
        raise UnbraidError(f"{where}: its body is packed with {packed}; ask without compression, or export it unpacked")
    return text_of(data if unpacked is None else unpacked)


def _capture(text: str, stream: bool, request: Json | None = None, name: str = "") -> Capture:
    usage = bool(((request or {}).get("stream_options") or {}).get("include_usage"))
    reply = from_stream(text, asked_usage=usage) if stream else from_object(text)
    return Capture(name, stream, reply, request)


# -- JSON and JSON Lines -----------------------------------------------------------------------------------------------


def _lines(entries: Sequence[Any]) -> Iterator[Capture]:
    """Chunks belong together by their id; anything else stands for itself."""
    streams: dict[Any, list[Json]] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        if entry.get("object") == CHUNK:
            streams.setdefault(entry.get("id"), []).append(entry)
        else:
            yield from _entry(entry)
    for chunks in streams.values():
        yield _of_chunks(chunks)


def _of_chunks(chunks: Sequence[Json], name: str = "", request: Json | None = None) -> Capture:
    text = "".join(f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    return _capture(text, True, request, name)


def _entry(data: Json) -> Iterator[Capture]:
    if data.get("object") == CHUNK:
        yield _of_chunks([data])
    elif _is_reply(data):
        yield _capture(json.dumps(data, ensure_ascii=False), False)
    elif "response" in data:
        yield _record(data)


def _record(data: Json) -> Capture:
    response, request, name = data["response"], data.get("request"), str(data.get("name") or "")
    request = request if isinstance(request, dict) else None
    if isinstance(response, list):
        capture = _of_chunks([chunk for chunk in response if isinstance(chunk, dict)], name, request)
    elif isinstance(response, str):
        capture = _capture(response, response.lstrip().startswith("data:"), request, name)
    else:
        capture = _capture(json.dumps(response, ensure_ascii=False), False, request, name)
    capture.raw = data["raw"] if isinstance(data.get("raw"), str) else None
    capture.ids = data["ids"] if isinstance(data.get("ids"), list) else None
    capture.prompt = data["prompt"] if isinstance(data.get("prompt"), list | str) else None
    return capture


# -- curl --------------------------------------------------------------------------------------------------------------


def _transcript(text: str) -> Iterator[Capture]:
    """The output of `curl -N`: one stream or several, one after the other, with or without their headers."""
    lines = [line for line in text.replace("\r\n", "\n").split("\n") if not _NOISE.match(line)]
    for part in _parts(lines):
        body = "\n".join(part)
        if any(line.startswith("data:") for line in part):
            if _streamed(body):
                yield _capture(body, True)
        elif _is_reply(_json(body)):
            yield _capture(body, False)


def _is_reply(data: Any) -> bool:
    """Whether this is a one-shot reply of chat completions."""
    return isinstance(data, dict) and isinstance(data.get("choices"), list) and data.get("object") != "text_completion"


def _streamed(text: str) -> bool:
    """Whether a stream isn't another API's."""
    return _other_api(text.lstrip()) is None


def _begins(line: str) -> bool:
    """Whether a line behind the end of a stream begins another one, rather than being too much."""
    chunk = _json(line[5:]) if line.startswith("data:") else None
    return isinstance(chunk, dict) and "id" in chunk


def _parts(lines: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    done = headers = False
    for line in lines:
        if line.startswith("HTTP/") or (done and _begins(line)):
            yield part
            part, done, headers = [], False, line.startswith("HTTP/")
        if headers:
            headers = bool(line)
            continue
        part.append(line)
        done = done or line.strip() == "data: [DONE]"
    yield part
