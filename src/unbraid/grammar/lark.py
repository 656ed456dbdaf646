"""A tree as a Lark grammar for llguidance.

A special token is written by its id, `<[151657]>`: llguidance treats as special what its tokenizer was built with, and that differs
between a `tokenizer.json` and a GGUF file, but the number always means the token. A marker for which the vocabulary has no token is
text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from unbraid.grammar.automaton import NULL
from unbraid.grammar.json_values import lower
from unbraid.grammar.rules import RuleWriter
from unbraid.grammar.tree import BLANK, Json, Node, Quoted, Regex, Repeat, Text, Until
from unbraid.table import Special
from unbraid.vocabulary import Vocabulary

_ANY = "(?s:.*)"


def write(node: Node, vocabulary: Vocabulary, end: int | None = None) -> str:
    """The grammar's text. `end`: the id of the token that ends the turn, if it has to be part of the grammar."""
    writer = _Writer(vocabulary)
    start = writer.node(node)
    tail = f" <[{end}]>" if end is not None else ""
    return "\n".join(["%llguidance {}", f"start: {start}{tail}", *writer.rules]) + "\n"


class _Writer(RuleWriter):
    __slots__ = ()
    JOINT, DEFINES = "_", ": "

    def leaf(self, node: Node) -> str:
        match node:
            case Json():
                banned = tuple(text for text in node.without if text not in self.vocabulary.special)
                if banned:
                    return self.node(lower(node.schema, banned))
                return self._rule(f"%json {_compact(node.schema)}", "json")
            case Quoted():
                return self._rule(self._text(node.without, _string(node)), "STRING")
            case Until():
                return self._until(node)
            case Text():
                parts = [f"[^{_inside(node.not_first)}]{_ANY}"] if node.not_first else []
                parts += [f"{_ANY}[^{_inside(BLANK)}]{_ANY}"] if node.said else []
                wanted = " & ".join(f"/{part}/" for part in parts or [_ANY])
                return self._rule(self._text(node.without, wanted), "TEXT")
            case Regex():
                return self._rule(f"/{_slashes(node.pattern)}/", "REGEX")
        raise TypeError(f"no node of a grammar: {node!r}")

    def quoted(self, text: str) -> list[str]:
        return _quoted(text)

    def repeat(self, node: Repeat) -> str:
        item = self.node(node.item)
        if node.most == 0:
            return '""'
        if node.most == 1:
            return f"({item})?" if node.least == 0 else f"({item})"
        if node.separator is None:
            return f"({item}){{{node.least},{'' if node.most is None else node.most}}}"
        rule = self._rule(item, "item")
        bounds = f"{{{max(node.least - 1, 0)},{'' if node.most is None else node.most - 1}}}"
        more = f"({self.node(node.separator)} {rule}){bounds}"
        return f"{rule} {more}" if node.least else f"({rule} {more})?"

    def _until(self, node: Until) -> str:
        """A raw value and what closes it."""
        stop = node.stop
        at = next(
            (k for k, piece in enumerate(stop) if isinstance(piece, Special) and piece.text in self.vocabulary.special),
            len(stop),
        )
        text = "".join(p if isinstance(p, str) else p.text for p in stop[:at])
        rest = self.spelling(stop[at:]) if at < len(stop) else ""
        if text and not rest:
            closer = text.rstrip("\n") or text
            forbidden = [f for f in node.without if node.head or f not in closer]
            body = self._rule(self._text(forbidden, _wanted(node, node.head)), "TEXT")
            value = self._rule(body, "value", suffix=closer)
            return " ".join([value, *_quoted(text[len(closer) :])])
        head = _quoted(node.head)
        if not text:
            return " ".join([*head, self._rule(self._text(node.without, _wanted(node)), "TEXT"), rest]).strip()
        return " ".join([*head, self._until_token(node, text, rest)])

    def _until_token(self, node: Until, before: str, rest: str) -> str:
        """A value whose closer begins with text and goes on with a token: wherever that text stands, either may follow."""
        if node.pattern is not None or node.not_null or node.not_first:
            body = self._rule(f"{_wanted(node)} & ~/{_ANY}{_escape(before)}/", "TEXT")
            return f"{body} {json.dumps(before, ensure_ascii=False)} {rest}"
        chunk = self._rule(f"/{_ANY}/", "chunk", suffix=before)
        name = f"value{len(self.rules)}"
        self.rules.append(f"{name}: {chunk} ({rest} | /(?s:.)/ {name})")
        return name

    def _text(self, without: Iterable[str], wanted: str = f"/{_ANY}/") -> str:
        """A terminal for text that is wanted, without some strings."""
        banned = [t for t in without if t not in self.vocabulary.special]
        if not banned:
            return wanted
        return f"{wanted} & ~/{_ANY}({'|'.join(_escape(t) for t in banned)}){_ANY}/"

    def _rule(self, body: str, kind: str, suffix: str | None = None) -> str:
        key = f"{kind} {suffix} {body}"
        if key not in self.names:
            name = f"{kind}{len(self.names)}"
            self.names[key] = name
            attribute = f"[suffix={json.dumps(suffix, ensure_ascii=False)}]" if suffix is not None else ""
            self.rules.append(f"{name}{attribute}: {body}")
        return self.names[key]


def _wanted(node: Until, head: str = "") -> str:
    """What a raw value matches as a whole."""
    wanted = [node.pattern] if node.pattern is not None else []
    if node.not_first:
        wanted.append(f"[^{_inside(node.not_first)}]{_ANY}")
    if node.not_null:
        wanted.append(f"{_ANY}(?s:[^{NULL}]){_ANY}")
    return " & ".join(f"/{_escape(head)}{_slashes(pattern)}/" for pattern in wanted or [_ANY])


def _quoted(text: str) -> list[str]:
    """Text as terminals. Each newline is one of its own: the lexer takes the longest terminal and doesn't come back, so that
    two continuations which share their beginning (`\n<` and `\n</`) must share the terminals too."""
    return [json.dumps(part, ensure_ascii=False) for part in re.split(r"(\n)", text) if part]


def _string(node: Quoted) -> str:
    hex = "|u[0-9a-fA-F]{4}" if node.quote == '"' else ""
    return rf"/{node.quote}([^{node.quote}\\\x00-\x1f]|\\([{_inside(node.escapes)}]{hex}))*{node.quote}/"


def _inside(chars: str) -> str:
    """Characters of a class."""
    return "".join(f"\\x{{{ord(char):x}}}" for char in chars)


def _compact(schema: Any) -> str:
    """A schema for `%json`, without free white space: a weak model would write it for ever."""
    if isinstance(schema, dict):
        schema = {**schema, "x-guidance": {"whitespace_flexible": False, "key_separator": ": ", "item_separator": ", "}}
    return json.dumps(schema, ensure_ascii=False)


def _escape(text: str) -> str:
    return _slashes(re.sub(r"([\\.^$|?*+()\[\]{}])", r"\\\1", text).replace("\n", "\\n"))


def _slashes(pattern: str) -> str:
    return re.sub(r"(?<!\\)/", r"\\/", pattern)
