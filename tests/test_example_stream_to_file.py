"""The worked example, as a user runs it: real sockets, a real MCP server in its own process, files compared byte for byte."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from broken import FORMAT, THOUGHT, Actor, serving, zoo_tokens
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import unbraid
from unbraid.server import create_app

pytest.importorskip("mcp")
from mcp.server.mcpserver.exceptions import ToolError

SCRIPT = Path(__file__).parent.parent / "examples" / "stream_to_file" / "stream_to_file.py"
TEXT = "Zeile eins: Brücke über Fluß.\n\tTabs,  blanks  , 桥 and 🌉🌁.\r\n" * 6 + "    the last line ends in blanks   "


class Telling(Actor):
    """Says the text, whatever it is asked."""

    def __init__(self) -> None:
        super().__init__({"": THOUGHT + TEXT}, zoo_tokens())


class Cutting:
    """Breaks the connection after some bytes, wherever that is: in an event, in a character."""

    def __init__(self, app: ASGIApp, after: int) -> None:
        self.app = app
        self.left = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def some(message: Message) -> None:
            body = message.get("body", b"")
            if message["type"] == "http.response.body" and len(body) >= self.left:
                await send({"type": "http.response.body", "body": body[: self.left], "more_body": True})
                raise ConnectionError("the cable was pulled")
            self.left -= len(body)
            await send(message)

        await self.app(scope, receive, some)


def run(app: ASGIApp, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    with serving(app) as url:
        command = [sys.executable, str(SCRIPT), "--url", url, "--directory", str(folder), *words, "Write."]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_whole_reply_is_a_whole_file(tmp_path: Path) -> None:
    done = run(create_app(Telling(), "qwen3"), tmp_path, "--name", "text.txt")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "text.txt").read_bytes() == TEXT.encode()
    assert done.stdout == f"{tmp_path / 'text.txt'} (stop)\n"
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]


def test_a_reply_that_the_token_limit_cuts_is_kept_and_called_so(tmp_path: Path) -> None:
    done = run(create_app(Telling(), "qwen3"), tmp_path, "--name", "text.txt", "--max-tokens", "60")
    assert done.returncode == 1
    assert "(length)" in done.stdout
    written = (tmp_path / "text.txt.part").read_bytes()
    ids = zoo_tokens().encode(THOUGHT + TEXT)[:60]
    content = unbraid.parse(FORMAT.bind(zoo_tokens().vocabulary), ids, finish_reason="length").content
    assert content is not None
    assert written == content.encode()
    assert len(content) > 40
    assert not (tmp_path / "text.txt").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_all_that_arrived_before_the_connection_broke_is_there(tmp_path: Path) -> None:
    done = run(Cutting(create_app(Telling(), "qwen3"), 9337), tmp_path, "--name", "text.txt")
    assert done.returncode == 1, done.stderr
    assert "(broken)" in done.stdout
    written = (tmp_path / "text.txt.part").read_bytes()
    assert len(written) > 10
    assert TEXT.encode().startswith(written)
    assert not (tmp_path / "text.txt").exists()


def test_an_endpoint_or_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for words, said in [
        (["--url", "http://127.0.0.1:9", "--directory", str(tmp_path)], "http://127.0.0.1:9 can't be reached"),
        (["--directory", str(tmp_path / "none")], "none: there is no such folder"),
    ]:
        command = [sys.executable, str(SCRIPT), *words, "Write."]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert said in done.stderr
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.iterdir())


async def test_a_refusal_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    example: Any = importlib.import_module("stream_to_file")
    transport = httpx.ASGITransport(create_app(Telling(), "qwen3"))
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        request = {"messages": [{"role": "user", "content": "Write."}], "max_tokens": 0}
        with pytest.raises(example.Refused, match=r"400: .*max_tokens"):
            async for _ in example.pieces(http, request):
                pass


def test_pieces_are_written_once_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(SCRIPT.parent)
    monkeypatch.setattr(sys, "argv", ["files_server.py", str(tmp_path)])
    files: Any = importlib.import_module("files_server")
    assert files.append("a", 0, "Brü") == 4
    assert files.append("a", 0, "Brü") == 4  # the answer was lost, the piece came again
    assert files.append("a", 4, "cke") == 7
    with pytest.raises(ToolError, match="something is missing"):
        files.append("a", 9, "!")
    with pytest.raises(ToolError, match="8 were sent"):
        files.finish("a", 8, True)
    assert files.finish("a", 7, True) == str(tmp_path / "a")
    assert (tmp_path / "a").read_bytes() == "Brücke".encode()
    for name in ("a/b", ".hidden", "", "..", "/etc/x"):
        with pytest.raises(ToolError, match="no plain file name"):
            files.append(name, 0, "x")
