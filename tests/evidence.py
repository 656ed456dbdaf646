"""What a real server says, asked again without any of our code between, for whoever confirms a finding by hand.

Nothing here uses the package: bodies come from httpx, a stream's fields are joined as its chunks have them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx

Json = dict[str, Any]


def evidence(url: str, body: Json, decoded: Callable[[Sequence[int]], str]) -> str:
    """Both forms of one request: the raw text that its token ids spell, and what the reply has in each field."""
    lines = []
    for stream in (False, True):
        answer = httpx.post(f"{url}/v1/chat/completions", json={**body, "stream": stream}, timeout=600).text
        chunks = [line[6:] for line in answer.split("\n") if line.startswith("data: {")] if stream else [answer]
        lines += _said([json.loads(chunk) for chunk in chunks], "stream" if stream else "one-shot", decoded)
    return "\n".join(lines) + "\n"


def _said(chunks: Sequence[Json], form: str, decoded: Callable[[Sequence[int]], str]) -> list[str]:
    """A form of a reply in lines, by choice; a list for what came in pieces."""
    lines: list[str] = []
    for index in sorted({choice["index"] for chunk in chunks for choice in chunk.get("choices") or ()}):
        mine = [choice for chunk in chunks for choice in chunk.get("choices") or () if choice["index"] == index]
        ids = [id for choice in mine for id in choice.get("token_ids") or ()]
        lines.append(f"{form} {index} raw: {decoded(ids)!r}")
        for name in ("reasoning", "reasoning_content", "content"):
            pieces = [text for choice in mine if (text := _message(choice).get(name))]
            if pieces:
                lines.append(f"{form} {index} {name}: {''.join(pieces)!r} in {len(pieces)}")
        calls = [call for choice in mine for call in _message(choice).get("tool_calls") or ()]
        heads = [json.dumps(call, ensure_ascii=False) for call in calls if "name" in (call.get("function") or {})]
        lines += [f"{form} {index} call: {head}" for head in heads]
        arguments = _arguments(mine) if form == "stream" else {}
        lines += [f"{form} {index} arguments of {at}: {text!r}" for at, text in arguments.items()]
        entries = [e for choice in mine for e in (choice.get("logprobs") or {}).get("content") or ()]
        if entries:
            lines.append(f"{form} {index} logprobs: {[entry['token'] for entry in entries]}")
        lines.append(f"{form} {index} finish: {[c['finish_reason'] for c in mine if c.get('finish_reason')]}")
    usage = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    return [*lines, f"{form} usage: {json.dumps(usage[-1]) if usage else None}"]


def _message(choice: Json) -> Mapping[str, Any]:
    return choice.get("message") or choice.get("delta") or {}


def _arguments(choices: Sequence[Json]) -> dict[int, str]:
    found: dict[int, str] = {}
    for choice in choices:
        for call in _message(choice).get("tool_calls") or ():
            found[call["index"]] = found.get(call["index"], "") + ((call.get("function") or {}).get("arguments") or "")
    return found
