"""A tree as a GBNF grammar for llama.cpp.

A special token is a token (`<[151657]>`); a marker for which the vocabulary has none is text. GBNF matches text by what tokens
spell, so that text excludes the spelling of every special token. It has no word for text without something, nor for a schema: the first
is written as an automaton (`unbraid.grammar.automaton`), the second taken apart (`unbraid.grammar.json_values`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from re import _constants as codes  # type: ignore[attr-defined, unused-ignore]
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from unbraid.errors import SchemaError
from unbraid.grammar import automaton
from unbraid.grammar.json_values import lower, may_spell
from unbraid.grammar.ranges import limited
from unbraid.grammar.rules import RuleWriter
from unbraid.grammar.tree import BLANK, GrammarError, Json, Node, Quoted, Regex, Repeat, Text, Until
from unbraid.table import Special
from unbraid.vocabulary import Vocabulary

_CONTROLS = "\\x00-\\x1F"
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
            if any(key in node.schema for key in _LIMITS):
                return self._rule(kind, _regex(limited(node.schema)))
            return self._rule(kind, _INTEGER if kind == "integer" else _NUMBER)
        if kind == "string" and "pattern" in node.schema:
            return self._pattern(node.schema, node.without)
        if kind == "string" and "format" in node.schema:
            raise SchemaError("/format", "'format' of a string can't be enforced in GBNF: use llguidance")
        if kind == "string" and (node.schema.keys() & {"minLength", "maxLength"}):
            times = _times(node.schema.get("minLength", 0), node.schema.get("maxLength"))
            return f'"\\"" {self._character()}{times} "\\""'
        return self.node(lower(node.schema, node.without))

    def _pattern(self, schema: Mapping[str, Any], without: tuple[str, ...]) -> str:
        """A JSON string with a pattern, which may match anywhere in it unless it says otherwise."""
        pattern = schema["pattern"]
        beside = next((key for key in ("minLength", "maxLength", "format") if key in schema), None)
        if beside:
            raise SchemaError(f"/{beside}", f"{beside!r} beside a pattern can't be enforced in GBNF: use llguidance")
        if without and may_spell(schema, without):
            raise SchemaError("/pattern", f"a string that could spell {without[0]!r} can't have a pattern in GBNF")
        try:
            written = _quoted_regex(pattern, self._character(), self._openers())
            return self._rule("string", f'"\\"" {written} "\\""')
        except GrammarError as error:
            raise SchemaError("/pattern", f"{error}: use llguidance") from None

    def _openers(self) -> str:
        """Characters with which special tokens begin. Where a limit leaves no room for an automaton they stand escaped or not at all."""
        firsts = {text[:1] for text in self.vocabulary.special}
        return "".join(sorted(char for char in firsts if char and not char.isalnum() and not char.isspace()))

    def _character(self) -> str:
        """A character of a JSON string that has limits."""
        return f'([^"\\\\{_CONTROLS}{automaton.inside(self._openers())}] | {_ESCAPE})'

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
    return _Expression(pattern).sequence(_parsed(pattern))


def _quoted_regex(pattern: str, character: str, never: str) -> str:
    """The same for what a JSON string holds. Characters that are escaped there, and `never`, may only stand where the pattern names
    them. `character`: any one, in front of a pattern that isn't bound to the beginning and behind one that isn't bound to the end."""
    parsed = list(_parsed(pattern))
    begun = parsed[:1] == [(codes.AT, codes.AT_BEGINNING)]
    ended = parsed[-1:] == [(codes.AT, codes.AT_END)]
    apart = (*_NOT_QUOTED, *((ord(char), ord(char)) for char in never))
    inner = _Expression(pattern, apart).sequence(parsed[begun : len(parsed) - ended])
    anything = f"{character}*"
    return " ".join([*([] if begun else [anything]), inner, *([] if ended else [anything])])


def _parsed(pattern: str) -> Any:
    try:
        return parser.parse(pattern)
    except re.error as error:
        raise GrammarError(f"{pattern!r} is no regular expression: {error}") from None


_KINDS = {
    codes.CATEGORY_DIGIT: ((0x30, 0x39),),
    codes.CATEGORY_WORD: ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)),
    codes.CATEGORY_SPACE: ((0x09, 0x0D), (0x20, 0x20)),
}
_NOT_QUOTED = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
"""What stands in no JSON string as itself."""


@dataclass(frozen=True, slots=True)
class _Expression:
    pattern: str
    apart: tuple[tuple[int, int], ...] = ()
    """What stands in no class of characters: in a JSON string, what is escaped there."""

    def sequence(self, parsed: Any) -> str:
        return " ".join(filter(None, (self.part(code, value) for code, value in parsed))) or '""'

    def part(self, code: Any, value: Any) -> str:
        if code is codes.LITERAL:
            if self.apart and any(low <= value <= high for low, high in _NOT_QUOTED):
                return _quoted(json.dumps(chr(value))[1:-1])[0]
            return f"[{_char(value)}]"
        if code is codes.NOT_LITERAL:
            return self.chars([(value, value)], negated=True)
        if code is codes.ANY:
            return self.chars([(0x0A, 0x0A)], negated=True)
        if code is codes.IN:
            negated = value[0][0] is codes.NEGATE
            return self.chars([pair for item in value[negated:] for pair in self.ranges(*item)], negated=negated)
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            least, most, inner = value
            most = None if most is codes.MAXREPEAT else most
            if max(least, most or 0) > MOST_REPEATED:
                raise self.refused(f"more than {MOST_REPEATED} repetitions")
            return f"({self.sequence(inner)}){_times(least, most)}"
        if code is codes.SUBPATTERN and not (value[1] or value[2]):
            return f"({self.sequence(value[3])})"
        if code is codes.BRANCH:
            return f"({' | '.join(self.sequence(option) for option in value[1])})"
        if code is codes.AT and value in (codes.AT_BEGINNING, codes.AT_END) and not self.apart:
            return ""  # the whole is matched anyway
        raise self.refused(str(code).lower())

    def ranges(self, code: Any, value: Any) -> Sequence[tuple[int, int]]:
        if code is codes.LITERAL:
            return ((value, value),)
        if code is codes.RANGE:
            return (value,)
        if code is codes.CATEGORY and value in _KINDS:
            return _KINDS[value]
        raise self.refused(str(value).lower())

    def chars(self, ranges: Sequence[tuple[int, int]], *, negated: bool) -> str:
        """A class of characters."""
        if negated:
            ranges = [*ranges, *self.apart]
        elif self.apart:
            ranges = [part for pair in ranges for part in _less(pair, self.apart)]
            if not ranges:
                raise self.refused("a class of characters that JSON escapes")
        inside = "".join(_char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in ranges)
        return f"[{'^' if negated else ''}{inside}]"

    def refused(self, what: str) -> GrammarError:
        return GrammarError(f"{what} in the regular expression {self.pattern!r} can't be written in GBNF")


def _less(pair: tuple[int, int], without: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """A range of characters without others."""
    left = [pair]
    for low, high in without:
        left = [
            part
            for first, last in left
            for part in ((first, min(last, low - 1)), (max(first, high + 1), last))
            if part[0] <= part[1]
        ]
    return left


def _char(code: int) -> str:
    return chr(code) if chr(code).isalnum() and code < 128 else f"\\x{code:02X}" if code < 256 else f"\\U{code:08X}"


__all__ = ["write"]
