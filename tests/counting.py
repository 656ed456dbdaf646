"""Counts the characters that parsing looks at. A program of its own: `test_linear.py` talks to it by JSON lines.

Regular expressions must be replaced before the package is imported, hence the process. What goes in is a `Counted`
string: whatever is done with it is counted, and what is made of it counts too. Copying counts as looking.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

WORK = [0]


def span(text: str, bounds: tuple[Any, ...]) -> int:
    """How much of a text a search between two positions may look at."""
    start = bounds[0] if bounds and bounds[0] is not None else 0
    stop = bounds[1] if len(bounds) > 1 and bounds[1] is not None else len(text)
    return max(0, min(stop, len(text)) - max(start, 0))


Cost = Callable[[str, tuple[Any, ...], Any], int]


def counted(name: str, cost: Cost) -> Any:
    """A method of `str` that also counts."""
    plain = getattr(str, name)

    def method(self: str, *args: Any, **kwargs: Any) -> Any:
        result = plain(self, *args, **kwargs)
        WORK[0] += 1 + cost(self, args, result)
        return Counted(result) if type(result) is str else result

    return method


def whole(text: str, args: tuple[Any, ...], result: Any) -> int:
    return len(text)


def made(text: str, args: tuple[Any, ...], result: Any) -> int:
    return len(result)


def searched(text: str, args: tuple[Any, ...], result: int) -> int:
    start = args[1] if len(args) > 1 else 0
    return span(text, args[1:]) if result < 0 else result - start


def bounded(text: str, args: tuple[Any, ...], result: Any) -> int:
    return span(text, args[1:])


def compared(text: str, args: tuple[Any, ...], result: Any) -> int:
    return max(map(len, args[0]), default=0) if isinstance(args[0], tuple) else len(args[0])


class Counted(str):
    __slots__ = ()
    for _name in "__getitem__ __add__ join".split():
        locals()[_name] = counted(_name, made)
    for _name in "__contains__ __hash__ strip lstrip rstrip isspace isdigit isalnum isalpha isdecimal".split():
        locals()[_name] = counted(_name, whole)
    for _name in "split rsplit splitlines partition rpartition replace encode translate lower casefold".split():
        locals()[_name] = counted(_name, whole)
    for _name in "rfind rindex count".split():
        locals()[_name] = counted(_name, bounded)
    for _name in "find index".split():
        locals()[_name] = counted(_name, searched)
    for _name in "startswith endswith".split():
        locals()[_name] = counted(_name, compared)

    def __radd__(self, other: str) -> Counted:
        WORK[0] += len(self) + len(other)
        return Counted(str.__add__(other, self))

    def __iter__(self) -> Iterator[str]:
        for char in str.__iter__(self):
            WORK[0] += 1
            yield char


class CountedMatch:
    """A match whose groups are counted strings."""

    def __init__(self, match: re.Match[str]) -> None:
        self._match = match

    def group(self, *keys: Any) -> Any:
        found = self._match.group(*keys)
        if not isinstance(found, str):
            return found
        WORK[0] += len(found)
        return Counted(found)

    __getitem__ = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._match, name)


class CountedPattern:
    """A pattern that counts what it goes over. A match that fails counts as one character: tags differ early."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def search(self, text: str, *bounds: int) -> CountedMatch | None:
        match = self._pattern.search(text, *bounds)
        WORK[0] += 1 + (match.end() - (bounds[0] if bounds else 0) if match else span(text, bounds))
        return CountedMatch(match) if match else None

    def match(self, text: str, *bounds: int) -> CountedMatch | None:
        match = self._pattern.match(text, *bounds)
        WORK[0] += 1 + (match.end() - match.start() if match else 0)
        return CountedMatch(match) if match else None

    def fullmatch(self, text: str, *bounds: int) -> CountedMatch | None:
        match = self._pattern.fullmatch(text, *bounds)
        WORK[0] += 1 + span(text, bounds)
        return CountedMatch(match) if match else None

    def finditer(self, text: str, *bounds: int) -> Iterator[CountedMatch]:
        WORK[0] += 1 + span(text, bounds)
        return map(CountedMatch, self._pattern.finditer(text, *bounds))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._pattern, name)
        if not callable(found):
            return found

        def method(*args: Any) -> Any:
            WORK[0] += 1 + sum(len(arg) for arg in args if isinstance(arg, str))
            return found(*args)

        return method


def counted_package(source: str) -> Any:
    """The package, with every regular expression that it compiles replaced by one that counts."""
    plain = re.compile

    def compiled(*args: Any, **kwargs: Any) -> CountedPattern:
        return CountedPattern(plain(*args, **kwargs))

    sys.path.insert(0, source)
    for name in "codecs contextlib dataclasses difflib enum inspect json pathlib typing urllib.parse".split():
        __import__(name)  # what the standard library compiles is its own business
    re.compile = compiled  # type: ignore[assignment]
    import unbraid

    re.compile = plain
    own = ModuleType("re")
    own.__dict__.update(vars(re))
    own.__dict__["compile"] = compiled
    for name, module in list(sys.modules.items()):
        if name.startswith("unbraid") and getattr(module, "re", None) is re:
            module.__dict__["re"] = own
    return unbraid


ENOUGH = 2_000
"""Characters looked at per character fed at which nobody needs to see the rest."""


def cost(unbraid: Any, job: dict[str, Any], text: str, step: int) -> float:
    """Characters looked at for each character fed, `step` at a time (0: all at once)."""
    step = step or len(text)
    parser = unbraid.Parser(unbraid.get_format(job["format"]), tools=job["tools"])
    WORK[0] = 0
    for at in range(0, len(text), step):
        parser.feed_text(Counted(text[at : at + step]))
        if WORK[0] > ENOUGH * len(text):
            return WORK[0] / (at + step)
    parser.finish("length")
    return WORK[0] / len(text)


def main() -> None:
    unbraid = counted_package(sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        text = job["before"] + (job["unit"] * (job["length"] // len(job["unit"]) + 1))[: job["length"]]
        print(json.dumps([cost(unbraid, job, text, step) for step in job["steps"]]), flush=True)


if __name__ == "__main__":
    main()
