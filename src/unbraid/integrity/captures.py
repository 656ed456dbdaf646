"""Captures of replies, as people have them: a HAR from a browser or proxy, the output of `curl -N` (with `-i` or `-v`, too), a reply's
JSON, or JSON Lines of chunks, replies, or records of one's own.

A record is `{"response": ..., "request"?: {...}, "raw"?: "...", "ids"?: [...], "prompt"?: ..., "name"?: ...}`, its response a reply, a
list of chunks, or the text of a stream.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from unbraid.errors import UnbraidError
from unbraid.integrity.layers import Json, Reply, from_object, from_stream

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


def read_captures(text: str, path: str) -> list[Capture]:
    """Every reply in a file. Raises `UnbraidError` if there is none."""
    found = list(_read(text, path))
    if not found:
        raise UnbraidError(
            f"{path}: no reply in it; expected a HAR, the output of curl -N, a reply's JSON, or JSON Lines of chunks"
        )
    return [_named(capture, path, at, len(found)) for at, capture in enumerate(found, 1)]


def _named(capture: Capture, path: str, at: int, count: int) -> Capture:
    if not capture.name:
        capture.name = path if count == 1 else f"{path} reply {at}"
    return capture


def _read(text: str, path: str) -> Iterator[Capture]:
    data = _json(text)
    if isinstance(data, dict) and isinstance(data.get("log"), dict):
        yield from _har(data["log"])
    elif isinstance(data, dict):
        yield from _entry(data)
    elif isinstance(data, list):
        yield from _lines(data)
    elif (lines := _json_lines(text)) is not None:
        yield from _lines(lines)
    else:
        yield from _transcript(text)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _json_lines(text: str) -> list[Any] | None:
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines or not lines[0].lstrip().startswith("{"):
        return None
    found = [_json(line) for line in lines]
    if found and found[-1] is None:
        found.pop()  # cut off while it was written
    return found if found and all(isinstance(each, dict) for each in found) else None


# -- HAR ---------------------------------------------------------------------------------------------------------------


def _har(log: Json) -> Iterator[Capture]:
    for entry in log.get("entries") or ():
        content = (entry.get("response") or {}).get("content") or {}
        text = content.get("text")
        if not isinstance(text, str):
            continue
        if content.get("encoding") == "base64":
            text = base64.b64decode(text).decode("utf-8", "replace")
        sent = entry.get("request") or {}
        request = _json(str((sent.get("postData") or {}).get("text") or ""))
        stream = "event-stream" in str(content.get("mimeType")) or text.lstrip().startswith("data:")
        if not stream and not isinstance((_json(text) or {}).get("choices"), list):
            continue  # something else of the same page
        yield _capture(text, stream, request if isinstance(request, dict) else None)


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
    elif isinstance(data.get("choices"), list):
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
            yield _capture(body, True)
        elif isinstance((_json(body) or {}).get("choices"), list):
            yield _capture(body, False)


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
