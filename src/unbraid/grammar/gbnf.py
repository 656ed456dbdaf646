"""A tree as a GBNF grammar for llama.cpp.

A special token is a token (`<[151657]>`); a marker for which the vocabulary has none is text. GBNF matches text by what tokens
spell, so that text excludes the spelling of every special token. It has no word for text without something, nor for a schema: the first
is written as an automaton (`unbraid.grammar.automaton`), the second taken apart (`unbraid.grammar.json_values`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from re import _constants as codes  # type: ignore[attr-defined, unused-ignore]
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from unbraid.errors import SchemaError
from unbraid.grammar import automaton
from unbraid.grammar.json_values import lower
from unbraid.grammar.rules import RuleWriter
from unbraid.grammar.tree import BLANK, GrammarError, Json, Node, Quoted, Regex, Repeat, Text, Until
from unbraid.table import Special
from unbraid.vocabulary import Vocabulary

_CONTROLS = "\\x00-\\x1F"
_CHAR = f'[^"\\\\{_CONTROLS}]'
_ESCAPE = r'"\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})'
_INTEGER = '"-"? ("0" | [1-9] [0-9]{0,15})'
_NUMBER = f'{_INTEGER} ("." [0-9]{{1,16}})? ([eE] [-+]? [0-9]{{1,3}})?'
MOST_REPEATED = 2000
"""llama.cpp refuses repetitions beyond that."""


def write(node: Node, vocabulary: Vocabulary) -> str:
    """The grammar's text. Raises `GrammarError`, `SchemaError` for what GBNF can't say."""
    writer = _Writer(vocabulary)
    start = writer.node(node)
    return "\n".join([f"root ::= {start}", *writer.rules]) + "\n"


class _Writer(RuleWriter):
    __slots__ = ()
    JOINT, DEFINES = "-", " ::= "

    def leaf(self, node: Node) -> str:
        match node:
            case Json():
                return self._json(node)
            case Until():
                return self._until(node)
            case Text():
                return self._text(node.without, not_first=node.not_first, not_only=BLANK if node.said else "")
            case Regex():
                return _regex(node.pattern)
            case Quoted():
                return self._string(node)
        raise TypeError(f"no node of a grammar: {node!r}")

    def quoted(self, text: str) -> list[str]:
        return _quoted(text)

    def repeat(self, node: Repeat) -> str:
        if max(node.least, node.most or 0) > MOST_REPEATED:
            raise GrammarError(f"GBNF repeats nothing more than {MOST_REPEATED} times")
        if node.most == 0:
            return '""'
        item = self.node(node.item)
        if node.separator is None or node.most == 1:
            return f"({item}){_times(node.least, node.most)}"
        rule = self._rule("item", item)
        least, most = max(node.least - 1, 0), None if node.most is None else node.most - 1
        some = f"{rule} ({self.node(node.separator)} {rule}){_times(least, most)}"
        return some if node.least else f"({some})?"

    def _json(self, node: Json) -> str:
        kind = node.schema.get("type") if isinstance(node.schema, dict) else None
        if kind in ("integer", "number") and not node.schema.keys() & {"enum", "const", "anyOf", "oneOf", "allOf"}:
            limits = [key for key in node.schema if key in _LIMITS]
            if limits:
                raise SchemaError(
                    f"/{limits[0]}", f"{limits[0]!r} of a number can't be enforced in GBNF: use llguidance"
                )
            return self._rule(kind, _INTEGER if kind == "integer" else _NUMBER)
        if kind == "string" and (limits := [key for key in ("pattern", "format") if key in node.schema]):
            raise SchemaError(f"/{limits[0]}", f"{limits[0]!r} of a string can't be enforced in GBNF: use llguidance")
        if kind == "string" and (node.schema.keys() & {"minLength", "maxLength"}):
            times = _times(node.schema.get("minLength", 0), node.schema.get("maxLength"))
            return f'"\\"" ({_CHAR} | {_ESCAPE}){times} "\\""'
        return self.node(lower(node.schema, node.without))

    def _until(self, node: Until) -> str:
        """A raw value and what closes it."""
        if node.pattern is not None:
            raise GrammarError(
                f"the pattern {node.pattern!r} of a string that is written raw can't be enforced in GBNF: use llguidance"
            )
        texts = ["".join(p if isinstance(p, str) else p.text for p in node.stop)]
        if any(isinstance(piece, Special) and piece.text in self.vocabulary.special for piece in node.stop):
            texts = []  # the token can't stand in the value
        closers = [text.rstrip("\n") or text for text in texts if text]
        null = automaton.NULL if node.not_null else ""
        value = self._text([*node.without, *closers], node.head, not_only=null, not_first=node.not_first)
        return " ".join([*_quoted(node.head), value, self.spelling(node.stop)])

    def _text(self, without: Iterable[str], head: str = "", *, not_only: str = "", not_first: str = "") -> str:
        """The rule for text without some strings and special tokens."""
        banned = tuple(dict.fromkeys([*without, *self.vocabulary.special]))
        key = (banned, head, not_only, not_first)
        if key not in self.names:
            found = automaton.without(banned, head, not_only=not_only, not_first=not_first)
            if not_only == automaton.NULL:
                # llama.cpp lets a token in where its first characters fit and the token is expected behind them, and then fails to
                # take it. Only here can a text not be over where it begins: it may end in no character with which a token begins.
                found = replace(found, ends=tuple(end and at in found.plain for at, end in enumerate(found.ends)))
            self.names[key] = self._states(found, "text")
        return self.names[key]

    def _string(self, node: Quoted) -> str:
        """A string in quotes."""
        banned = tuple(dict.fromkeys([*node.without, *self.vocabulary.special]))
        key = (banned, node.quote)
        if key not in self.names:
            escape = _ESCAPE if node.quote == '"' else f'"\\\\" [{automaton.inside(node.escapes)}]'
            never = automaton.inside(node.quote + "\\") + _CONTROLS
            self.names[key] = self._states(automaton.without(banned), "string", escape=escape, never=never)
        quote = _quoted(node.quote)[0]
        return f"{quote} {self.names[key]} {quote}"

    def _states(self, found: automaton.Automaton, kind: str, **more: str) -> str:
        """A rule for each state. Returns the first one's name."""
        prefix = f"{kind}{len(self.rules)}-"
        self.rules += automaton.rules(found, prefix, **more)
        return f"{prefix}0"

    def _rule(self, kind: str, body: str) -> str:
        if body not in self.names:
            self.names[body] = f"{kind}{len(self.rules)}"
            self.rules.append(f"{self.names[body]} ::= {body}")
        return self.names[body]


_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def _quoted(text: str) -> list[str]:
    """Text as a GBNF literal, which knows fewer escapes than JSON."""
    if not text:
        return []
    inside = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    return [f'"{inside}"']


def _times(least: int, most: int | None) -> str:
    simple = {(0, 1): "?", (0, None): "*", (1, None): "+", (1, 1): ""}
    return simple.get((least, most), f"{{{least},{'' if most is None else most}}}")


# Regular expressions


def _regex(pattern: str) -> str:
    """A regular expression in GBNF's words. Raises `GrammarError` for what it has none for."""
    try:
        parsed = parser.parse(pattern)
    except re.error as error:
        raise GrammarError(f"{pattern!r} is no regular expression: {error}") from None
    return _sequence(parsed, pattern)


def _sequence(parsed: Any, pattern: str) -> str:
    return " ".join(filter(None, (_part(code, value, pattern) for code, value in parsed))) or '""'


def _part(code: Any, value: Any, pattern: str) -> str:
    if code is codes.LITERAL:
        return f"[{_char(value)}]"
    if code is codes.NOT_LITERAL:
        return f"[^{_char(value)}]"
    if code is codes.ANY:
        return "[^\\n]"
    if code is codes.IN:
        negated = value[0][0] is codes.NEGATE
        return f"[{'^' if negated else ''}{''.join(_range(item[0], item[1], pattern) for item in value[negated:])}]"
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
        least, most, inner = value
        return f"({_sequence(inner, pattern)}){_times(least, None if most is codes.MAXREPEAT else most)}"
    if code is codes.SUBPATTERN and not (value[1] or value[2]):
        return f"({_sequence(value[3], pattern)})"
    if code is codes.BRANCH:
        return f"({' | '.join(_sequence(option, pattern) for option in value[1])})"
    if code is codes.AT and value in (codes.AT_BEGINNING, codes.AT_END):
        return ""  # the whole is matched anyway
    raise GrammarError(f"{str(code).lower()} in the regular expression {pattern!r} can't be written in GBNF")


def _range(code: Any, value: Any, pattern: str) -> str:
    if code is codes.LITERAL:
        return _char(value)
    if code is codes.RANGE:
        return f"{_char(value[0])}-{_char(value[1])}"
    kinds = {
        codes.CATEGORY_DIGIT: "0-9",
        codes.CATEGORY_WORD: "0-9A-Za-z_",
        codes.CATEGORY_SPACE: " \\t\\n\\r\\x0B\\x0C",
    }
    if code is codes.CATEGORY and value in kinds:
        return kinds[value]
    raise GrammarError(f"{str(value).lower()} in the regular expression {pattern!r} can't be written in GBNF")


def _char(code: int) -> str:
    return chr(code) if chr(code).isalnum() and code < 128 else f"\\x{code:02X}" if code < 256 else f"\\U{code:08X}"


__all__ = ["write"]
