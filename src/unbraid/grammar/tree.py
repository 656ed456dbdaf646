"""The intermediate form of a decode-time grammar: what may be written, before any backend's syntax.

A codec says how it writes a call (`codec.grammar`), the builder adds the markers of the table around it (`unbraid.grammar.build`), and
each backend has a writer: Lark for llguidance, a structural tag for xgrammar, GBNF for llama.cpp. What a backend can't express is
an error of its writer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from unbraid.errors import SchemaError, UnbraidError
from unbraid.table import Piece, Spelling


class GrammarError(UnbraidError):
    """What is asked for can't be written as a grammar of this format or backend."""


BLANK = "".join(char for char in map(chr, range(0x3001)) if char.isspace())
"""All white space."""


@dataclass(frozen=True, slots=True)
class Literal:
    """Exactly this text, special tokens as tokens."""

    pieces: Spelling


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item` between `least` and `most` times (`None`: without bound), with `separator` between two."""

    item: Node
    least: int = 0
    most: int | None = None
    separator: Node | None = None


@dataclass(frozen=True, slots=True)
class Json:
    """A JSON value that satisfies a schema, without white space that nobody asked for."""

    schema: Any
    without: tuple[str, ...] = ()
    """What none of its strings may spell: the tags around it, if they are ordinary text."""


@dataclass(frozen=True, slots=True)
class Until:
    """Text up to and including `stop`: the first place where `stop` stands ends it. None of `without` stands in it.

    This is how a raw value is written: nothing in it is escaped, its closing tag ends it.
    """

    stop: Spelling
    without: tuple[str, ...] = ()
    pattern: str | None = None
    """What the text matches as a whole, if its schema says so."""
    not_null: bool = False
    """Something else than letters of `null` stands in it: what spells null would be read as null."""
    head: str = ""
    """Written before the text, and counted where `without` and `stop` are looked for: the newline of a framed value, behind which a
    closing tag would stand at the beginning of a line."""
    not_first: str = ""
    """Characters with which the text doesn't begin; then it isn't empty."""


@dataclass(frozen=True, slots=True)
class Text:
    """Ordinary text of any length without special tokens and without any of `without`."""

    without: tuple[str, ...] = ()
    not_first: str = ""
    """Characters with which it doesn't begin; then it isn't empty."""
    said: bool = False
    """It says something: not all of it is white space."""


@dataclass(frozen=True, slots=True)
class Regex:
    """Text that matches this regular expression (the common subset of all backends)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Quoted:
    """A string in its quotes, of whatever text, none of `without` in its spelling: JSON's, or Python's in single quotes."""

    without: tuple[str, ...] = ()
    quote: str = '"'

    @property
    def escapes(self) -> str:
        """Characters that may stand behind a backslash."""
        return r'"\/bfnrt' if self.quote == '"' else r"'\nrt"


@dataclass(frozen=True, slots=True)
class Named:
    """A node that may stand within itself: there stands a `Ref` to its name."""

    name: str
    body: Node


@dataclass(frozen=True, slots=True)
class Ref:
    name: str


Node = Literal | Sequence | Choice | Repeat | Json | Until | Text | Regex | Quoted | Named | Ref


def literal(*pieces: Piece) -> Literal:
    """Pieces as one literal, neighbouring texts joined, empty ones left out."""
    joined: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        elif piece:
            joined.append(piece)
    return Literal(tuple(joined))


def sequence(*items: Node) -> Node:
    """Items one after the other, neighbouring literals joined."""
    flat: list[Node] = []
    for item in items:
        for part in item.items if isinstance(item, Sequence) else (item,):
            if isinstance(part, Literal) and flat and isinstance(flat[-1], Literal):
                flat[-1] = literal(*flat[-1].pieces, *part.pieces)
            elif not (isinstance(part, Literal) and not part.pieces):
                flat.append(part)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def choice(items: Iterable[Node]) -> Node:
    """One of the items."""
    options = tuple(dict.fromkeys(items)) if _hashable(items := tuple(items)) else tuple(items)
    return options[0] if len(options) == 1 else Choice(options)


def _hashable(items: tuple[Node, ...]) -> bool:
    try:
        hash(items)
    except TypeError:  # schemas are plain JSON
        return False
    return True


def optional(item: Node) -> Node:
    return Repeat(item, 0, 1)


MOST_OPTIONAL = 64
"""Optional members of which any may come first: each is written with all that may follow."""


def listed(members: list[tuple[Node, bool]], separator: Node) -> Node:
    """Members in order with separators between those that are there; the flag says which must be.

    Without any that must be, the first one that is there is chosen and the rest is optional behind it.
    """
    optional_first = next((index for index, (_, must) in enumerate(members) if must), len(members))
    if optional_first > MOST_OPTIONAL:
        raise SchemaError(
            "", f"more than {MOST_OPTIONAL} optional keys before one that is required: describe required ones first"
        )
    following = [
        sequence(separator, member) if must else optional(sequence(separator, member)) for member, must in members
    ]
    first = next((index for index, (_, must) in enumerate(members) if must), None)
    last = len(members) - 1 if first is None else first
    heads = [sequence(members[index][0], *following[index + 1 :]) for index in range(last + 1)]
    if first is None:
        return optional(choice(heads)) if heads else literal()
    return choice(heads)
