"""A tree as a structural tag for xgrammar.

A special token is a token (`{"type": "token", "token": 151657}`); a marker for which the vocabulary has none is text.

xgrammar matches what a token decodes to, so that text may be met by a special token unless its spelling is excluded. Where the tokenizer
was made by `unbraid.matchers.xgrammar_tokenizer` special tokens spell what no text does (`hidden=True`) and needn't be. Elsewhere (vLLM,
SGLang) they are excluded by their spelling; then text that only looks like one is refused, too.

What xgrammar would drop with a warning, or silently, is a `GrammarError` here: see `plain`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from re import _constants as codes  # type: ignore[attr-defined, unused-ignore]
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any

from unbraid.errors import SchemaError
from unbraid.grammar import automaton
from unbraid.grammar.json_values import disjoint, fits, may_spell
from unbraid.grammar.tree import (
    BLANK,
    Choice,
    GrammarError,
    Json,
    Literal,
    Named,
    Node,
    Quoted,
    Ref,
    Regex,
    Repeat,
    Sequence,
    Text,
    Until,
)  # fmt: skip
from unbraid.table import Piece, Special, Spelling
from unbraid.vocabulary import Vocabulary

FORMATS = frozenset(
    ("email", "date", "time", "date-time", "duration", "ipv4", "ipv6", "hostname", "uuid", "uri", "uri-reference",
     "uri-template", "json-pointer", "relative-json-pointer")
)  # fmt: skip
"""Formats of strings that xgrammar 0.2 knows; of others it says nothing."""


def write(node: Node, vocabulary: Vocabulary, *, hidden: bool = False) -> dict[str, Any]:
    """The structural tag. `hidden`: whether the backend's tokenizer keeps special tokens apart from text."""
    return {"type": "structural_tag", "format": _Writer(vocabulary, hidden).node(node)}


@dataclass(frozen=True, slots=True)
class _Writer:
    vocabulary: Vocabulary
    hidden: bool

    def node(self, node: Node) -> dict[str, Any]:
        match node:
            case Literal():
                return _sequence(self.spelling(node.pieces))
            case Sequence():
                return _sequence([self.node(item) for item in node.items])
            case Choice():
                return {"type": "or", "elements": [self.node(item) for item in node.items]}
            case Repeat():
                return self._repeat(node)
            case Json():
                return self._json(node)
            case Until():
                return self._until(node)
            case Text():
                if not (node.not_first or node.said):
                    return self._text(node.without)
                return self._begun(node.without, not_first=node.not_first, not_only=BLANK if node.said else "")
            case Regex():
                return _regex(node.pattern)
            case Quoted():
                return self._quoted(node)
            case Named() | Ref():  # schemas are only taken apart for those who can't read one
                raise GrammarError("a structural tag holds schemas whole")

    def spelling(self, pieces: Spelling) -> list[dict[str, Any]]:
        """Texts and tokens."""
        parts: list[dict[str, Any]] = []
        for piece in pieces:
            if self._is_token(piece):
                parts.append({"type": "token", "token": self.vocabulary.special[_spelled(piece)]})
            elif parts and parts[-1]["type"] == "const_string":
                parts[-1]["value"] += _spelled(piece)
            elif _spelled(piece):
                parts.append({"type": "const_string", "value": _spelled(piece)})
        return parts

    def _is_token(self, piece: Piece) -> bool:
        return isinstance(piece, Special) and piece.text in self.vocabulary.special

    def _repeat(self, node: Repeat) -> dict[str, Any]:
        if node.most == 0:
            return _sequence([])
        item = self.node(node.item)
        most = -1 if node.most is None else node.most
        if node.separator is None or node.most == 1:
            return _times(item, node.least, most)
        more = _sequence([self.node(node.separator), item])
        some = _sequence([item, _times(more, max(node.least - 1, 0), most if most < 0 else most - 1)])
        return some if node.least else {"type": "optional", "content": some}

    def _json(self, node: Json) -> dict[str, Any]:
        schema = plain(node.schema)
        form: dict[str, Any] = {"type": "json_schema", "json_schema": schema, "max_whitespace_cnt": 1}
        banned = [text for text in node.without if text not in self.vocabulary.special]
        if banned:
            _check_limits(schema, tuple(banned))
        if not self.hidden and not any(_limited(schema)):  # exclusions would put limits of length out of force
            banned += self.vocabulary.special
        return {**form, "excludes": banned} if banned else form

    def _text(self, banned: tuple[str, ...]) -> dict[str, Any]:
        texts = [text for text in banned if text not in self.vocabulary.special]
        if texts or not self.hidden:  # with exclusions xgrammar takes any bytes, hidden ones too
            texts += self.vocabulary.special
        return {"type": "any_text", "excludes": texts}

    def _until(self, node: Until) -> dict[str, Any]:
        """A raw value and what closes it."""
        if node.pattern is not None:
            raise GrammarError(
                f"the pattern {node.pattern!r} of a string that is written raw can't be enforced by xgrammar: use llguidance"
            )
        stop = self.spelling(node.stop)
        closer = "" if not stop or stop[0]["type"] == "token" else str(stop[0]["value"])
        if len(stop) == 1:
            closer = closer.rstrip("\n") or closer
        else:  # what is text in front of a token may stand in the value, too
            closer = ""
        banned = tuple(dict.fromkeys([*node.without, *([closer] if closer else [])]))
        if not (node.head or node.not_null or node.not_first):
            return _sequence([self._text(banned), *stop])
        head = [{"type": "const_string", "value": node.head}] if node.head else []
        null = automaton.NULL if node.not_null else ""
        value = self._begun(banned, node.head, not_only=null, not_first=node.not_first)
        return _sequence([*head, value, *stop])

    def _quoted(self, node: Quoted) -> dict[str, Any]:
        """A string in quotes, as EBNF."""
        banned = [text for text in node.without if text not in self.vocabulary.special]
        found = automaton.without(banned if self.hidden else [*banned, *self.vocabulary.special])
        escape = rf'"\\" [{automaton.inside(node.escapes)}]'
        if node.quote == '"':
            escape = f'{escape} | "\\" "u" [0-9a-fA-F]{{4}}'
        never = automaton.inside(node.quote + "\\") + "\\x00-\\x1f"
        rules = automaton.rules(found, "s", never=never, escape=escape)
        quote = json.dumps(node.quote)
        return {"type": "grammar", "grammar": "\n".join([f"root ::= {quote} s0 {quote}", *rules])}

    def _begun(
        self, banned: tuple[str, ...], head: str = "", *, not_only: str = "", not_first: str = ""
    ) -> dict[str, Any]:
        """Text whose beginning matters, as EBNF: a rule for each state until it may go on as any text."""
        excluded = self._text(banned)["excludes"]
        found = automaton.without(excluded, head, not_only=not_only, not_first=not_first)
        rules = automaton.rules(found, "s", plain="any")
        return {"type": "grammar", "grammar": "\n".join(["root ::= s0", f"any ::= {_any_text(excluded)}", *rules])}


def _any_text(excluded: list[str]) -> str:
    if not excluded:
        return "[^\\x00]*"
    texts = ", ".join(json.dumps(text, ensure_ascii=False) for text in excluded)
    return f"TagDispatch(loop_after_dispatch=false, excludes=({texts}))"


def _sequence(parts: list[dict[str, Any]]) -> dict[str, Any]:
    if not parts:
        return {"type": "const_string", "value": ""}
    return parts[0] if len(parts) == 1 else {"type": "sequence", "elements": parts}


def _times(item: dict[str, Any], least: int, most: int) -> dict[str, Any]:
    if (least, most) == (1, 1):
        return item
    if (least, most) == (0, 1):
        return {"type": "optional", "content": item}
    return {"type": "repeat", "min": least, "max": most, "content": item}


def _spelled(piece: Piece) -> str:
    return piece if isinstance(piece, str) else piece.text


def _regex(pattern: str) -> dict[str, Any]:
    _check_pattern(pattern, "")
    return {"type": "regex", "pattern": pattern}


def _check_pattern(pattern: Any, path: str) -> None:
    if isinstance(pattern, str) and re.search(r"\(\?(?!:|P<|<[^=!])|\\[bB1-9]", pattern):
        raise SchemaError(path, f"xgrammar has no lookaround, flags or back references: {pattern!r}")


def _names_escaped(pattern: str) -> bool:
    """Whether a pattern asks for a character that JSON escapes: classes that hold one are left without it, single ones aren't."""
    try:
        waiting = list(parser.parse(pattern))
    except re.error:
        return False  # xgrammar says so itself
    while waiting:
        code, value = waiting.pop()
        if code is codes.LITERAL and (value < 0x20 or chr(value) in '"\\'):
            return True
        if code is codes.BRANCH:
            waiting += [item for option in value[1] for item in option]
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.SUBPATTERN):
            waiting += list(value[-1])
    return False


def plain(schema: Any, path: str = "") -> Any:
    """The schema as xgrammar enforces all of it. Raises `SchemaError` for what it would drop without a word.

    Found by trying (0.2.9): limits of length beside a pattern or format, unknown formats, several schemas in `allOf`, options of `oneOf`
    that overlap, options beside properties, properties that are required but not described, a type or limits beside `enum`,
    `uniqueItems`, `multipleOf` of a number, quotes in a pattern (it would write them unescaped).
    """
    if isinstance(schema, list):
        return [plain(item, f"{path}/{index}") for index, item in enumerate(schema)]
    if not isinstance(schema, Mapping):
        return schema
    found = _fitting_enum(schema, path)
    for keyword in ("uniqueItems", "minContains", "maxContains"):
        if found.get(keyword):
            raise _refused(path, keyword)
    if "multipleOf" in found and found.get("type") != "integer":
        raise _refused(path, "multipleOf", "of what isn't an integer")
    length = next((keyword for keyword in ("minLength", "maxLength") if keyword in found), None)
    if length and ("pattern" in found or "format" in found):
        raise _refused(path, length, "beside a pattern or format")
    if "format" in found and found["format"] not in FORMATS:
        raise SchemaError(f"{path}/format", f"xgrammar doesn't know the format {found['format']!r}")
    pattern = found.get("pattern")
    _check_pattern(pattern, f"{path}/pattern")
    if isinstance(pattern, str) and _names_escaped(pattern):
        raise SchemaError(f"{path}/pattern", f"xgrammar would write a quote of the pattern {pattern!r} unescaped")
    _check_options(found, path)
    missing = [key for key in found.get("required", ()) if key not in found.get("properties", {})]
    if missing:
        raise SchemaError(
            f"{path}/required", f"xgrammar can't enforce that {missing[0]!r} is there: describe it in properties"
        )
    return {
        key: {name: plain(part, f"{path}/{key}/{name}") for name, part in value.items()}
        if key in ("properties", "$defs", "definitions", "patternProperties") and isinstance(value, Mapping)
        else value if key in ("enum", "const", "default", "examples")
        else plain(value, f"{path}/{key}")
        for key, value in found.items()
    }  # fmt: skip


_OPTIONS = ("anyOf", "oneOf", "allOf", "$ref")
_NOTES = frozenset(
    ("title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions", "deprecated",
     "readOnly", "writeOnly", "nullable")
)  # fmt: skip


def _fitting_enum(schema: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Of an enumeration only what is of the type, too; the type is then said."""
    found = dict(schema)
    if "enum" not in found and "const" not in found:
        return found
    beside = [key for key in found if key not in _NOTES and key not in ("enum", "const", "type")]
    if beside:
        raise _refused(path, beside[0], "beside enum or const")
    found.pop("type", None)
    values = found.pop("enum", None)
    if "const" in found:
        values = [found.pop("const")] if values is None or found["const"] in values else []
    fitting = [value for value in values or () if fits(value, schema)]
    if not fitting:
        raise SchemaError(path, "no value of the enumeration is of the type")
    return {**found, "enum": fitting}


def _check_options(schema: Mapping[str, Any], path: str) -> None:
    given = [key for key in _OPTIONS if key in schema]
    if not given:
        return
    beside = [
        key
        for key in schema
        if key not in _NOTES and key != given[0] and not (key == "type" and _same_type(schema, given[0]))
    ]
    if beside:
        raise _refused(path, beside[0], f"beside {given[0]}")
    if given[0] == "allOf" and len(schema["allOf"]) > 1:
        raise _refused(path, "allOf", "of several schemas")
    if given[0] == "oneOf" and not disjoint(schema["oneOf"]):
        raise _refused(path, "oneOf", "of options that aren't of different types: use anyOf")


def _same_type(schema: Mapping[str, Any], keyword: str) -> bool:
    options = schema[keyword]
    return isinstance(options, list) and all(
        isinstance(option, Mapping) and option.get("type") == schema["type"] for option in options
    )


def _limited(schema: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Strings with limits, which xgrammar holds against nothing else."""
    if isinstance(schema, list):
        for index, item in enumerate(schema):
            yield from _limited(item, f"{path}/{index}")
    elif isinstance(schema, Mapping):
        limits = {key: schema[key] for key in ("pattern", "format", "minLength", "maxLength") if key in schema}
        if limits and all(isinstance(limit, str | int) for limit in limits.values()):
            yield path, limits
        for key, part in schema.items():
            yield from _limited(part, f"{path}/{key}")


def _check_limits(schema: Any, banned: tuple[str, ...]) -> None:
    for path, limits in _limited(schema):
        if may_spell(limits, banned):
            raise _refused(path, next(iter(limits)), f"of a string that could spell {banned[0]!r}")


def _refused(path: str, keyword: str, when: str = "") -> SchemaError:
    said = f" {when}" if when else ""
    return SchemaError(
        f"{path}/{keyword}", f"{keyword!r}{said} can't be enforced by xgrammar: leave it out or use llguidance"
    )
