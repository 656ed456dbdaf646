"""What may be written as a value between tags, where strings are written raw: nothing in them is escaped, their closing tag ends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unbraid.errors import SchemaError
from unbraid.grammar.schemas import definitions_of
from unbraid.grammar.tree import Json, Node, Regex, Until, choice, literal, sequence
from unbraid.schema import Tools
from unbraid.table import Spelling


def text_and_rest(schema: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """A parameter's schema as the part that is text and the part that is other JSON; `None`: there is no such part.

    What the reader takes for another type must not be written as text: `null` of a nullable string is the null.
    """
    kind = Tools.resolve(
        [{"name": "t", "parameters": {**definitions_of(schema), "properties": {"v": dict(schema)}}}]
    ).parameter("t", "v")
    if kind.is_text:
        return dict(schema), None
    if "string" not in kind.kinds:
        return None, dict(schema)
    kinds = sorted(kind.kinds - {"string"})
    text = {
        key: value for key, value in schema.items() if key in ("enum", "pattern", "const", "minLength", "maxLength")
    }
    if "enum" in text:
        text["enum"] = [value for value in text["enum"] if isinstance(value, str)]
    if kinds == ["null"]:
        return {"type": "string", "not_null": True, **text}, {"type": "null"}
    raise SchemaError(
        "", f"a value that may be text or {' or '.join(kinds)} can't be told apart in this format: choose one type"
    )


def raw_value(schema: Mapping[str, Any], close: Spelling, forbidden: tuple[str, ...], head: str = "") -> Node:
    """A string as raw text with its closing tag, and what is written in front of it."""
    options = [schema["const"]] if "const" in schema else schema.get("enum")
    if options is not None:
        texts = choice(literal(option) for option in options if isinstance(option, str))
        return sequence(literal(head), texts, literal(*close))
    for keyword in ("minLength", "maxLength", "format", "anyOf", "oneOf", "allOf", "$ref"):
        if keyword in schema:
            raise SchemaError(f"/{keyword}", f"{keyword!r} of a string can't be enforced where strings are written raw")
    pattern = schema.get("pattern")
    return Until(
        close, forbidden, anchored(pattern) if pattern is not None else None, bool(schema.get("not_null")), head
    )


_LIMITS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const"))
_NUMBER = Regex(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,16})?([eE][+-]?[0-9]{1,2})?")
"""One that no reader finds too large: beyond a double's range it would be read as text."""


def typed_value(schema: Mapping[str, Any], without: tuple[str, ...] = ()) -> Node:
    """A value that isn't text, as JSON. `without`: what its strings can't spell."""
    kinds = schema.get("type")
    if isinstance(kinds, list) and not schema.keys() & {"anyOf", "oneOf", "allOf", "$ref", "enum", "const"}:
        return choice([typed_value({**schema, "type": kind}, without) for kind in kinds])
    if kinds == "number" and not schema.keys() & (_LIMITS | {"anyOf", "oneOf", "allOf", "$ref"}):
        return _NUMBER
    return Json(schema, without)


def anchored(pattern: str) -> str:
    """A JSON Schema pattern, which may match anywhere, as one that matches the whole."""
    start = pattern[1:] if pattern.startswith("^") else f"(?s:.*){pattern}"
    return start[:-1] if start.endswith("$") and not start.endswith("\\$") else f"{start}(?s:.*)"
