"""Text without certain strings, as states and the characters that lead from one to the next.

GBNF has no word for it, and xgrammar none for the beginning of a framed value. A state is what was read last as far as it begins one of
the strings (Aho and Corasick), so that a grammar may write a rule for each: right-linear, nothing to guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

NULL = "nNuUlL"
"""A value of these characters alone could be read as null."""


@dataclass(frozen=True, slots=True)
class Step:
    """`chars` lead to `target`; `others`: every character that isn't among them does."""

    chars: str
    target: int
    others: bool = False


@dataclass(frozen=True, slots=True)
class Automaton:
    """State 0 is the start. `steps[s]` lead on from `s`, `ends[s]`: the text may be over there."""

    steps: tuple[tuple[Step, ...], ...]
    ends: tuple[bool, ...]
    plain: frozenset[int]
    """States in which nothing that is forbidden has begun."""


def without(strings: Sequence[str], head: str = "", *, not_only: str = "", not_first: str = "") -> Automaton:
    """Text behind `head` in which none of the strings stands, part of `head` included. `not_only`: characters of which it doesn't
    wholly consist; `not_first`: characters with which it doesn't begin. With either it isn't empty."""
    return _without(tuple(strings), head, not_only, not_first)


@lru_cache(maxsize=256)
def _without(strings: tuple[str, ...], head: str, not_only: str, not_first: str) -> Automaton:
    """Remembered: every text parameter of every tool of a format asks for the same one, which takes 20 ms to make."""
    begun = {text[:size] for text in strings for size in range(len(text))} | {""}
    chars = sorted(set("".join(strings)) | set(not_only) | set(not_first))
    whole = set(strings)
    sizes = sorted({len(text) for text in strings})

    def after(read: str, char: str) -> str | None:
        read += char
        if any(read[-size:] in whole for size in sizes if size <= len(read)):
            return None
        return next(read[at:] for at in range(len(read) + 1) if read[at:] in begun)

    start = ""
    for char in head:
        start = after(start, char) or ""
    first = (start, not (not_only or not_first))
    found: dict[tuple[str, bool], int] = {first: 0}
    queue = [first]
    steps: list[tuple[Step, ...]] = []
    for read, sound in queue:  # grows as it runs
        groups: dict[tuple[str, bool], str] = {}
        refused = ""
        for char in chars:
            target = after(read, char)
            if target is None or (not sound and char in not_first):
                refused += char
            else:
                key = (target, sound or char not in not_only)
                groups[key] = groups.get(key, "") + char
        other = ("", True)
        listed = "".join(text for key, text in groups.items() if key != other) + refused
        row = []
        for key, text in [*((key, text) for key, text in groups.items() if key != other), (other, listed)]:
            if key not in found:
                found[key] = len(found)
                queue.append(key)
            row.append(Step(text, found[key], others=key == other))
        steps.append(tuple(row))
    return Automaton(
        tuple(steps),
        tuple(sound for _, sound in queue),
        frozenset(found[key] for key in queue if key == ("", True)),
    )


def rules(found: Automaton, prefix: str, *, never: str = "", escape: str = "", plain: str = "") -> list[str]:
    """A rule of EBNF or GBNF for each state, named by prefix and number; the first is the start.

    `never`: what no class may hold, as inside a class. `escape`: what else may stand anywhere, and begins nothing. `plain`: the
    rule that goes on where nothing has begun.
    """
    written = []
    root = min(found.plain, default=0)
    for state, steps in enumerate(found.steps):
        if plain and state in found.plain:
            written.append(f"{prefix}{state} ::= {plain}")
            continue
        options = ['""'] if found.ends[state] else []
        options += [f"{_class(step, never)} {prefix}{step.target}" for step in steps if step.chars or step.others]
        if escape:
            options.append(f"({escape}) {prefix}{root}")
        written.append(f"{prefix}{state} ::= {' | '.join(options)}")
    return written


def _class(step: Step, never: str) -> str:
    if step.others:
        chars = inside(step.chars) + never
        return f"[^{chars}]" if chars else "[^\\x00]"
    return f"[{inside(step.chars)}]"


def inside(chars: str) -> str:
    """Characters as they stand in a class of EBNF and GBNF. Numbers come last: xgrammar reads `\\x5Be` as one."""
    escaped = [char for char in chars if char in _ESCAPES]
    return "".join(char for char in chars if char not in _ESCAPES) + "".join(_ESCAPES[char] for char in escaped)


_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", **{char: f"\\x{ord(char):02X}" for char in '\\]^-["'}}
