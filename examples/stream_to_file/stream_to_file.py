"""Write what a model says to a file, while it says it, through an MCP tool server: complete to the last character.

    python stream_to_file.py --url http://127.0.0.1:8000 --directory out --name poem.txt "Write a poem about the sea."

exit code 0  the file is whole
          1  the reply was cut off: by the token limit, or because the connection broke; `NAME.part` holds all that arrived
          2  the request was refused

What it takes, in the order in which people get it wrong:

- The end is `finish_reason`, not a tag in the text and not the end of the connection. Only `stop` means that the text is whole; `length` is a cut, and so is a stream that
  ends without a finish_reason.
- The last piece may come in the same chunk as the finish_reason: it is written before anything else is looked at.
- What has arrived is written also if the next read fails. Nothing waits for the end in a buffer of ours.
- Each piece says at which byte it belongs, so a repeated one is harmless and a lost one is noticed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from mcp import Client, StdioServerParameters, stdio_client

SERVER = Path(__file__).with_name("files_server.py")
Json = dict[str, Any]


class Refused(Exception):
    """The endpoint can't be reached, or answered with an error before it said anything."""


@dataclass
class Piece:
    """One chunk's news."""

    text: str
    finish: str | None


async def pieces(http: httpx.AsyncClient, request: Json) -> AsyncIterator[Piece]:
    """The content of a streamed reply as it comes, with the finish_reason where there is one."""
    async with http.stream("POST", "/v1/chat/completions", json={**request, "stream": True}) as response:
        if response.status_code != 200:
            raise Refused(f"{response.status_code}: {(await response.aread()).decode('utf-8', 'replace')}")
        async for line in response.aiter_lines():
            data = line.removeprefix("data:").strip()
            if not line.startswith("data:") or data == "[DONE]":
                continue
            chunk = json.loads(data)
            if "error" in chunk:
                raise httpx.RemoteProtocolError(f"error inside the stream: {chunk['error']}")
            for choice in chunk.get("choices") or ():
                yield Piece(choice["delta"].get("content") or "", choice.get("finish_reason"))


class RemoteFile:
    """A file at the tool server, and how much of it is there."""

    def __init__(self, tools: Client, name: str) -> None:
        self.tools = tools
        self.name = name
        self.size = 0

    async def append(self, text: str) -> None:
        await self._call("append", offset=self.size, text=text)
        self.size += len(text.encode("utf-8"))

    async def finish(self, *, complete: bool) -> str:
        return await self._call("finish", size=self.size, complete=complete)

    async def _call(self, tool: str, **arguments: Any) -> str:
        result = await self.tools.call_tool(tool, {"name": self.name, **arguments})
        text = "".join(getattr(part, "text", "") for part in result.content)
        if result.is_error:
            raise RuntimeError(f"the tool server refuses {tool}: {text}")
        return text


async def stream_to_file(http: httpx.AsyncClient, request: Json, file: RemoteFile) -> tuple[str, str]:
    """Stream a reply into the file. Returns the path and why it ended: a finish_reason, or `broken`."""
    finish = None
    try:
        async for piece in pieces(http, request):
            if piece.text:
                await file.append(piece.text)
            finish = finish or piece.finish
    except httpx.ConnectError as error:
        raise Refused(f"{http.base_url} can't be reached ({error})") from error
    except (httpx.TransportError, json.JSONDecodeError):
        pass  # what arrived whole has been written; without a finish_reason it is a cut
    return await file.finish(complete=finish == "stop"), finish or "broken"


async def main() -> int:
    parser = argparse.ArgumentParser(description="Stream a model's answer into a file.")
    add = parser.add_argument
    add("prompt", help="what the model is asked")
    add("--url", default="http://127.0.0.1:8000", help="the endpoint, without /v1 (default: %(default)s)")
    add("--directory", type=Path, default=Path("."), help="where the file goes (default: here)")
    add("--name", default="answer.txt", help="what it is called (default: %(default)s)")
    add("--max-tokens", type=int, help="limit of the reply")
    args = parser.parse_args()
    if not args.directory.is_dir():
        parser.error(f"--directory {args.directory}: there is no such folder; make it first")
    request: Json = {"messages": [{"role": "user", "content": args.prompt}]}
    if args.max_tokens is not None:
        request["max_tokens"] = args.max_tokens
    server = StdioServerParameters(command=sys.executable, args=[str(SERVER), str(args.directory)])
    async with Client(stdio_client(server)) as tools, httpx.AsyncClient(base_url=args.url, timeout=None) as http:
        try:
            path, reason = await stream_to_file(http, request, RemoteFile(tools, args.name))
        except Refused as error:
            print(f"refused: {error}", file=sys.stderr)
            return 2
    print(f"{path} ({reason})")
    return 0 if reason == "stop" else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
