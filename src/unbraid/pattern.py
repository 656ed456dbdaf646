"""Regular expressions that are nearly markers, taken apart.

Response templates (`unbraid.response_template`) may give a delimiter as a pattern. Nearly all that are published say no more than
a marker can: fixed text, white space around it, a name somewhere in it.

    <tool_call>\\s*<function=(?P<name>\\w+)>      Text, Space, Text, Group("name"), Text

Those are read here. What is left (a choice of characters in the middle, a back reference) is refused, with the piece that it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SPACE = re.compile(r"(?:\\s|\[\\s\]|\\n|\n| )(?:[*+?]\??|\{\d*,?\d*\}\??)")
_GAP = re.compile(r"\\b|(?:\[(?:\\.|[^\]\\])+\]|\\[wdSWD]|\.)(?:[*+]\??|\?|\{\d*,?\d*\}\??)")
_NAMED = re.compile(r"\(\?P<(\w+)>")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


_MOST = 64
"""Alternatives of a pattern, and brackets within brackets, at most: a template comes from somebody else."""


class NoMarker(ValueError):
    """A pattern that says more than a marker can; the message is the piece that does."""


@dataclass(frozen=True, slots=True)
class Text:
    """Fixed characters."""

    text: str


@dataclass(frozen=True, slots=True)
class Space:
    """White space that may stand here."""

    newline: bool = False
    """At most one newline."""


@dataclass(frozen=True, slots=True)
class Wildcard:
    """Characters of some kind, any number of them."""


@dataclass(frozen=True, slots=True)
class Group:
    """What is captured here. `name` is empty if it has none."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of the text."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What must follow but isn't part of it."""

    text: str


@dataclass(frozen=True, slots=True)
class Maybe:
    """What may be missing."""

    items: Sequence[Item]


Item = Text | Space | Wildcard | Group | Begin | Ahead | Maybe


def alternatives(pattern: str) -> list[list[Item]]:
    """The pattern's alternatives, each as its items. The end of the text is none: there every marker ends.

    Raises `NoMarker`.
    """
    return [joined(items) for items in _Patterns(pattern).read() if items]


def joined(items: Iterable[Item]) -> list[Item]:
    """Neighbouring texts as one."""
    out: list[Item] = []
    for item in items:
        if isinstance(item, Text) and out and isinstance(last := out[-1], Text):
            out[-1] = Text(last.text + item.text)
        else:
            out.append(item)
    return out


class _Patterns:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.depth = 0

    def read(self, inside: bool = False) -> list[list[Item]]:
        """Alternatives up to the closing bracket or the end, each combined with what follows it."""
        options: list[list[Item]] = []
        branch: list[list[Item]] = [[]]
        while self.at < len(self.pattern):
            char = self.pattern[self.at]
            if char == ")" and inside:
                break
            if char == "|":
                self.at += 1
                options += branch
                branch = [[]]
                continue
            found = self.item()
            branch = [[*before, *after] for before in branch for after in found]
            if len(branch) > _MOST:
                raise NoMarker("more alternatives than a marker has spellings")
        return options + branch

    def item(self) -> list[list[Item]]:
        """What stands here: its alternatives."""
        pattern, at = self.pattern, self.at
        if match := _SPACE.match(pattern, at):
            self.at = match.end()
            newline = match.group() in ("\\n?", "\n?")
            return [[Space(newline)]]
        if match := _GAP.match(pattern, at):
            self.at = match.end()
            return [[Wildcard()]]
        if pattern[at] == "(":
            return self.group()
        if pattern[at] in "^$":
            self.at += 1
            return [[Begin()]] if pattern[at] == "^" else [[]]
        text = self.character()
        if self.at < len(pattern) and pattern[self.at] in "*+?{":
            raise NoMarker(pattern[at : self.at + 1])
        return [[Text(text)]]

    def character(self) -> str:
        char = self.pattern[self.at]
        self.at += 1
        if char != "\\":
            if char in ".[*+?{":
                raise NoMarker(self.pattern[self.at - 1 :][:20])
            return char
        escaped = self.pattern[self.at : self.at + 1]
        self.at += 1
        if escaped.isalnum() and escaped not in _ESCAPES:
            raise NoMarker("\\" + escaped)
        return _ESCAPES.get(escaped, escaped)

    def group(self) -> list[list[Item]]:
        start = self.at
        name = None
        if named := _NAMED.match(self.pattern, start):
            name, self.at = named.group(1), named.end()
        elif self.pattern.startswith(("(?:", "(?="), start):
            self.at += 3
        elif self.pattern.startswith("(?", start):
            raise NoMarker(self.pattern[start:][:20])
        else:
            self.at += 1
            name = None if "(?P<" in self.pattern[start : self.end_of(start)] else ""
        if name is not None:
            self.at = self.end_of(start)
            inner: list[list[Item]] = [[Group(name)]]
        else:
            self.depth += 1
            if self.depth > _MOST:
                raise NoMarker("brackets within brackets")
            inner = self.read(inside=True)
            self.depth -= 1
        if self.pattern[self.at : self.at + 1] != ")":
            raise NoMarker(self.pattern[start:][:20])
        self.at += 1
        if self.pattern.startswith("(?=", start):
            return [[Ahead("".join(item.text for item in joined(items) if isinstance(item, Text)))] for items in inner]
        if self.pattern[self.at : self.at + 1] == "?":
            self.at += 1
            return [[Maybe(joined(items))] for items in inner]
        if self.pattern[self.at : self.at + 1] in ("*", "+", "{"):
            raise NoMarker(self.pattern[start : self.at + 1])
        return inner

    def end_of(self, start: int) -> int:
        """Where the bracket stands that closes the one at `start`."""
        depth, classed, at = 0, False, start
        while at < len(self.pattern):
            char = self.pattern[at]
            if char == "\\":
                at += 1
            elif classed:
                classed = char != "]"
            elif char == "[":
                classed = True
            elif char in "()":
                depth += 1 if char == "(" else -1
                if not depth:
                    break
            at += 1
        return at


__all__ = [
    "Ahead",
    "Begin",
    "Group",
    "Item",
    "Maybe",
    "NoMarker",
    "Space",
    "Text",
    "Wildcard",
    "alternatives",
    "joined",
]
