"""A JSON schema taken apart into the tree's own nodes: for GBNF, which has no word for one, and where strings must not hold some text.

Between tags that are ordinary text (`<parameter=options>{"a": "..."}</parameter>`) a string within the JSON could spell the closing tag,
and the parser would end the value there. llguidance can't forbid that in a schema, so the schema is written out.

What comes out is never looser than the schema, at times stricter: keys come in the order of the schema, and an object that describes
some keys has no others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from unbraid.errors import SchemaError
from unbraid.grammar.schemas import resolve
from unbraid.grammar.tree import Json, Named, Node, Quoted, Ref, Repeat, choice, listed, literal, sequence

_KINDS = ("object", "array", "string", "number", "boolean", "null")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_REFUSED = ("patternProperties", "minProperties", "maxProperties", "uniqueItems", "minContains", "maxContains")
_COMMA, _COLON = literal(", "), literal(": ")


def lower(schema: Any, without: tuple[str, ...] = ()) -> Node:
    """The nodes. `without`: what no string may spell. Numbers and their limits stay `Json`. Raises `SchemaError` for what can't be
    said."""
    return _Lowering(schema if isinstance(schema, Mapping) else {}, without).value(schema, "")


@dataclass(slots=True)
class _Lowering:
    root: Mapping[str, Any]
    without: tuple[str, ...]
    names: dict[str, str] = field(default_factory=dict)
    """References and the rules made for them."""

    def value(self, schema: Any, path: str) -> Node:
        if schema is False:
            raise SchemaError(path, "nothing satisfies `false`")
        if schema is True or not isinstance(schema, Mapping):
            return self.anything()
        for keyword in _REFUSED:
            if schema.get(keyword):
                raise SchemaError(f"{path}/{keyword}", f"{keyword!r} can't be enforced here: leave it out")
        if "const" in schema or "enum" in schema:
            return self._constants(schema, path)
        if reference := schema.get("$ref"):
            return self._named(reference, path)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema:
                return self._options(schema, keyword, path)
        kinds = schema.get("type", "object" if "properties" in schema else list(_KINDS))
        return choice([self._kind(kind, schema, path) for kind in ([kinds] if isinstance(kinds, str) else kinds)])

    def anything(self) -> Node:
        """Any JSON value."""
        known = "#any" in self.names
        name = self.names.setdefault("#any", "anything")
        if known:
            return Ref(name)
        return Named(name, choice([self._kind(kind, {}, "") for kind in _KINDS]))

    def _named(self, reference: Any, path: str) -> Node:
        if reference in self.names:
            return Ref(self.names[reference])
        self.names[reference] = name = f"definition{len(self.names)}"
        return Named(name, self.value(resolve(reference, self.root, f"{path}/$ref"), f"{path}/$ref"))

    def _options(self, schema: Mapping[str, Any], keyword: str, path: str) -> Node:
        options = schema[keyword]
        limits = [key for key in ("properties", "required", "items", *_NUMBERS) if key in schema]
        if limits:
            raise SchemaError(f"{path}/{limits[0]}", f"{limits[0]!r} beside {keyword!r} can't be enforced here")
        if keyword == "allOf" and len(options) > 1:
            raise SchemaError(f"{path}/allOf", "several schemas in 'allOf' can't be enforced here: merge them")
        if keyword == "oneOf" and not disjoint(options):
            raise SchemaError(f"{path}/oneOf", "options of 'oneOf' that overlap can't be enforced here: use anyOf")
        kind = {"type": schema["type"]} if "type" in schema else {}
        return choice([
            self.value({**kind, **option} if isinstance(option, Mapping) else option, f"{path}/{keyword}/{index}")
            for index, option in enumerate(options)
        ])  # fmt: skip

    def _constants(self, schema: Mapping[str, Any], path: str) -> Node:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        fitting = [value for value in values if fits(value, schema)]
        texts = [json.dumps(value, ensure_ascii=False) for value in fitting]
        allowed = [text for text in texts if not any(banned in text for banned in self.without)]
        if not allowed:
            raise SchemaError(path, "no value of the enumeration can be written")
        return choice([literal(text) for text in allowed])

    def _kind(self, kind: str, schema: Mapping[str, Any], path: str) -> Node:
        match kind:
            case "object":
                return self._object(schema, path)
            case "array":
                return self._array(schema, path)
            case "string":
                return self._string(schema, path)
            case "boolean":
                return choice([literal("true"), literal("false")])
            case "null":
                return literal("null")
        return Json({"type": kind, **{key: schema[key] for key in _NUMBERS if key in schema}})

    def _object(self, schema: Mapping[str, Any], path: str) -> Node:
        described = schema.get("properties", {})
        required = schema.get("required", [])
        if missing := [key for key in required if key not in described]:
            raise SchemaError(f"{path}/required", f"{missing[0]!r} has to be described in properties")
        if described:
            members = [
                (sequence(self._key(key, path), self.value(part, f"{path}/properties/{key}")), key in required)
                for key, part in described.items()
            ]
            return sequence(literal("{"), listed(members, _COMMA), literal("}"))
        more = schema.get("additionalProperties", True)
        if more is False:
            return literal("{}")
        pair = sequence(Quoted(self.without), _COLON, self.value(more, f"{path}/additionalProperties"))
        return sequence(literal("{"), Repeat(pair, 0, None, _COMMA), literal("}"))

    def _key(self, key: str, path: str) -> Node:
        text = json.dumps(key, ensure_ascii=False)
        if any(banned in text for banned in self.without):
            raise SchemaError(f"{path}/properties/{key}", "the key spells a tag of the format")
        return literal(f"{text}: ")

    def _array(self, schema: Mapping[str, Any], path: str) -> Node:
        first = [self.value(part, f"{path}/prefixItems/{at}") for at, part in enumerate(schema.get("prefixItems", ()))]
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if first:
            if least > len(first) or (most is not None and most < len(first)):
                raise SchemaError(f"{path}/prefixItems", "limits beside 'prefixItems' can't be enforced here")
            joined = [part for at, item in enumerate(first) for part in ((_COMMA, item) if at else (item,))]
            return sequence(literal("["), *joined, literal("]"))
        item = self.value(schema.get("items", True), f"{path}/items")
        return sequence(literal("["), Repeat(item, least, most, _COMMA), literal("]"))

    def _string(self, schema: Mapping[str, Any], path: str) -> Node:
        limits = {key: schema[key] for key in ("pattern", "format", "minLength", "maxLength") if key in schema}
        if not limits:
            return Quoted(self.without)
        if self.without and may_spell(limits, self.without):
            raise SchemaError(
                f"{path}/{next(iter(limits))}", f"a string that could spell {self.without[0]!r} can't have limits here"
            )
        return Json({"type": "string", **limits})


def may_spell(limits: Mapping[str, Any], without: tuple[str, ...]) -> bool:
    """Whether a string with these limits could hold one of the texts. All of them begin with the same character."""
    if "format" in limits:
        return False  # dates, addresses and the like
    pattern, first = limits.get("pattern"), without[0].lstrip()[:1]
    if pattern is None or not (pattern.startswith("^") and pattern.endswith("$")):
        return True
    wide = re.search(r"\.|\[\^|\\[SWDxu]|\(\?", pattern) is not None
    return wide or first in pattern or any(low <= first <= high for low, high in re.findall(r"(.)-(.)", pattern))


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value is of the schema's type."""
    kinds = schema.get("type")
    if kinds is None:
        return True
    kind = (
        "null" if value is None
        else "boolean" if isinstance(value, bool)
        else "integer" if isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        else "number" if isinstance(value, float)
        else "string" if isinstance(value, str)
        else "array" if isinstance(value, list)
        else "object"
    )  # fmt: skip
    wanted = [kinds] if isinstance(kinds, str) else kinds
    return kind in wanted or (kind == "integer" and "number" in wanted)


def disjoint(options: list[Any]) -> bool:
    """Whether no value can satisfy two of the options: they are of different types."""
    kinds = [option.get("type") if isinstance(option, Mapping) else None for option in options]
    names = ["number" if kind == "integer" else kind for kind in kinds]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
