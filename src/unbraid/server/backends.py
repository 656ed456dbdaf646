"""A grammar's tree in a language that an engine elsewhere understands.

What the engine would get is what the embedded one enforces: the tree is the same, only its spelling differs. A tree that none of
the engine's languages can hold is refused by name, never sent in part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from unbraid.boundary import BoundFormat
from unbraid.engines.base import Grammar, GrammarKind
from unbraid.errors import SchemaError
from unbraid.grammar import gbnf, lark, structural_tag
from unbraid.grammar.build import GrammarError
from unbraid.grammar.tree import Json, Node, Regex


def write(tree: Node, bound: BoundFormat, kinds: Sequence[str]) -> Grammar:
    """The tree in the first of `kinds` that can hold it. Raises `GrammarError`."""
    reasons = []
    for kind in kinds:
        if kind in _WRITERS:
            try:
                return Grammar(kind, _WRITERS[kind](tree, bound))
            except (GrammarError, SchemaError) as error:
                reasons.append(f"{kind}: {error}")
    if not reasons:
        raise GrammarError("this engine can't be told what may be written: ask without a forced call or schema")
    raise GrammarError(f"this engine can't be told what may be written ({'; '.join(reasons)})")


def _lark(tree: Node, bound: BoundFormat) -> str:
    return lark.write(tree, bound.vocabulary)


def _structural_tag(tree: Node, bound: BoundFormat) -> Any:
    return structural_tag.write(tree, bound.vocabulary)


def _gbnf(tree: Node, bound: BoundFormat) -> str:
    return gbnf.write(tree, bound.vocabulary)


def _schema(tree: Node, bound: BoundFormat) -> Any:
    if not isinstance(tree, Json):
        raise GrammarError("more than one JSON value is to be written")
    return tree.schema


def _regex(tree: Node, bound: BoundFormat) -> str:
    if not isinstance(tree, Regex):
        raise GrammarError("more than one regular expression is to be written")
    return tree.pattern


_WRITERS: dict[GrammarKind, Callable[[Node, BoundFormat], Any]] = {
    "structural_tag": _structural_tag,
    "lark": _lark,
    "gbnf": _gbnf,
    "json_schema": _schema,
    "regex": _regex,
}
