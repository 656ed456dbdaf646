"""What the command line itself can't go on from, what it says about it, and the exit codes."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from unbraid.errors import EngineError, EngineFileError, TableError, VocabularyError
from unbraid.terminal import Screen

USAGE = 2
FILE = 3
ENGINE = 4


class Problem(Exception):
    """A plain word to the user, and the exit code that goes with it."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        self.code = code
        super().__init__(message)


def exit_code(problem: Exception) -> int:
    """The exit code for an error that this package raises on purpose."""
    if isinstance(problem, Problem):
        return problem.code
    if isinstance(problem, EngineError) and not isinstance(problem, EngineFileError):
        return ENGINE
    unread = (VocabularyError, TableError, EngineFileError)
    return FILE if isinstance(problem, unread) or isinstance(problem.__cause__, OSError) else USAGE


def unreadable(path: object, error: OSError) -> Problem:
    """A file that the system won't give us."""
    return Problem(f"{path}: {error.strerror or error}", FILE)


def near(word: str, words: Iterable[str]) -> str:
    """`; did you mean ...?`, if something is near."""
    found = difflib.get_close_matches(word, [other for other in words if other != word], n=2, cutoff=0.65)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def read_text(path: str) -> str:
    """A small text file, as it is: no newline is translated. `-` is standard input."""
    return read_bytes(path).decode("utf-8", "replace")


def read_bytes(path: str) -> bytes:
    """A file, or standard input (`-`)."""
    try:
        return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error


def write_text(path: str | Path, text: str) -> None:
    """A file, or a clear word why not."""
    try:
        Path(path).write_bytes(text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise unreadable(path, error) from error


def write_json(path: str, value: Any) -> None:
    """A file of JSON, indented, or a clear word why not."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def report(path: str | None, screen: Screen, whole: Callable[[], Any], show: Callable[[], None]) -> None:
    """What was found, as `--json FILE` has it: `whole` as JSON into the file, `show`n all the same; for `-`, JSON only.

    Raises `Problem` if the file can't be written, after all has been shown: a disk that is full by now hides nothing.
    """
    try:
        if path and path != "-":
            write_json(path, whole())
    finally:
        if path == "-":
            screen.json(whole())
        else:
            show()


def writable(*paths: str | Path | None) -> None:
    """What can't be written after long work is told before it; all files stay as they are. None and `-`: nothing to write."""
    for path in paths:
        if path is None or path == "-":
            continue
        try:
            if not os.path.exists(path):
                place = os.path.realpath(path)  # a link to nowhere: what it points to is made
                open(place, "xb").close()
                os.unlink(place)
            elif not Path(path).is_fifo():  # opening a pipe waits for its reader, who then sees its end
                open(path, "ab").close()
        except OSError as error:
            raise unreadable(path, error) from error


def label(path: str) -> str:
    """What to call a file in a message."""
    return "standard input" if path == "-" else path


def read_json(path: str) -> Any:
    """A small JSON file, or standard input (`-`)."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise Problem(f"{label(path)}: not JSON ({error})", FILE) from error


def read_tools(path: str) -> list[dict[str, Any]]:
    """The offered tools from a file: a list, or a whole request that has one."""
    found = read_json(path)
    if isinstance(found, dict):
        found = found.get("tools")
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        raise Problem(f"{label(path)}: not a list of tools (nor a request with one)", FILE)
    for at, tool in enumerate(found):
        function = tool.get("function", tool)
        own = tool.get("type", "function") == "function"  # others are the server's own: they may have no name
        if own and not (isinstance(function, dict) and isinstance(function.get("name"), str)):
            raise Problem(
                f'{label(path)}: tool {at} has no name; expected {{"type": "function", "function": {{"name": ...}}}}',
                FILE,
            )
    return found
