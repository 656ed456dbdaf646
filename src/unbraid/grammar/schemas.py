"""Schemas made fit for a grammar, or refused before anything is decoded.

A client's schema is untrusted: it may be malformed, endless, or large enough to keep a compiler busy for minutes. What is checked here
is bounded in time and memory; what passes is small, has resolvable references and a finite value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from unbraid.errors import SchemaError

MAX_NODES = 5_000
"""Objects and arrays in one schema. The largest real ones (OpenAPI descriptions as tools) have some 2,000."""
MAX_DEPTH = 64
MAX_CHARACTERS = 200_000
"""Of all its texts together."""
MAX_VALUES = 2_000
"""Values of one enumeration."""
MAX_COUNT = 100_000
"""The largest number of items, characters or properties that may be asked for."""
_REFUSED = (
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "unevaluatedProperties",
    "propertyNames",
    "contains",
)


def check(schema: Any, path: str = "") -> dict[str, Any]:
    """The schema itself if a grammar can be made of it. Raises `SchemaError` with the place otherwise."""
    if schema is None or schema is True:
        return {}
    if not isinstance(schema, Mapping):
        raise SchemaError(path, f"a schema is an object, not {type(schema).__name__}")
    _check_size(schema, path)
    _check_shape(schema, schema, path)
    _finite(schema, schema, path, (), set())
    return dict(schema)


def _check_size(schema: Any, path: str) -> None:
    """Refuse what would keep a compiler busy, before anything else looks at it."""
    queue: list[tuple[str, int, Any]] = [(path, 0, schema)]
    count = characters = 0
    while queue:
        place, depth, node = queue.pop()
        if isinstance(node, str):
            characters += len(node)
            if not node.isascii() and any("\ud800" <= char <= "\udfff" for char in node):
                raise SchemaError(place, "half of a surrogate pair is no text")
        else:
            count += 1
        if depth > MAX_DEPTH:
            raise SchemaError(_short(place), f"the schema nests deeper than {MAX_DEPTH}")
        items = list(node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ())
        for key, item in items:
            queue += [(place, depth, key)] if isinstance(key, str) else []
            queue += [(f"{place}/{key}", depth + 1, item)] if isinstance(item, Mapping | list | str) else []
        characters += len(items)
        if count > MAX_NODES or characters > MAX_CHARACTERS:
            what = f"{MAX_NODES} nodes" if count > MAX_NODES else f"{MAX_CHARACTERS} characters"
            raise SchemaError(path, f"the schema has more than {what}: split the tool or simplify it")


def _short(place: str) -> str:
    return place if len(place) < 100 else f"{place[:48]}...{place[-48:]}"


_SCHEMAS = ("additionalProperties", "items", "additionalItems", "unevaluatedItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_COUNTS = (
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "minContains",
    "maxContains",
)
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def _check_shape(node: Any, root: Mapping[str, Any], place: str) -> None:
    """Refuse what is no schema, and keywords that can't be enforced."""
    if isinstance(node, bool):
        return
    if not isinstance(node, Mapping):
        raise SchemaError(place, f"a schema is an object, not {type(node).__name__}")
    _check_words(node, place)
    _check_limits(node, place)
    if (reference := node.get("$ref")) is not None:
        resolve(reference, root, f"{place}/$ref")
    for keyword in _SCHEMAS:
        if keyword in node:
            _check_shape(node[keyword], root, f"{place}/{keyword}")
    for keyword in _MAPS:
        if not isinstance(parts := node.get(keyword, {}), Mapping):
            raise SchemaError(f"{place}/{keyword}", f"{keyword} are an object of schemas")
        for key, part in parts.items():
            _check_shape(part, root, f"{place}/{keyword}/{key}")
    for keyword in _LISTS:
        if keyword not in node:
            continue
        options = node[keyword]
        if not isinstance(options, list) or not options:
            raise SchemaError(f"{place}/{keyword}", f"{keyword} is a list of schemas, one at least")
        for index, option in enumerate(options):
            _check_shape(option, root, f"{place}/{keyword}/{index}")


def _check_words(node: Mapping[str, Any], place: str) -> None:
    for keyword in _REFUSED:
        if keyword in node:
            raise SchemaError(
                f"{place}/{keyword}", f"the keyword {keyword!r} can't be enforced while decoding: leave it out"
            )
    kinds = node.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in ("null", "integer", "number", "boolean", "object", "array", "string"):
            raise SchemaError(f"{place}/type", f"{kind!r} is no type of JSON Schema")
    if not isinstance(required := node.get("required", []), list) or not all(isinstance(key, str) for key in required):
        raise SchemaError(f"{place}/required", "required is a list of names")
    if "enum" in node and not (isinstance(node["enum"], list) and node["enum"]):
        raise SchemaError(f"{place}/enum", "enum is a list of values, one at least")
    if len(node.get("enum", ())) > MAX_VALUES:
        raise SchemaError(f"{place}/enum", f"an enumeration has at most {MAX_VALUES} values")
    for keyword in ("pattern", "format"):
        if not isinstance(node.get(keyword, ""), str):
            raise SchemaError(f"{place}/{keyword}", f"{keyword} is a text")
    try:
        re.compile(node.get("pattern", ""))
    except (re.error, RecursionError, OverflowError) as error:
        raise SchemaError(f"{place}/pattern", f"{node['pattern']!r} is no regular expression: {error}") from None


def _check_limits(node: Mapping[str, Any], place: str) -> None:
    for keyword in _COUNTS:
        count = node.get(keyword, 0)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise SchemaError(f"{place}/{keyword}", f"{keyword} is a whole number that isn't negative")
        if keyword.startswith("min") and count > MAX_COUNT:
            raise SchemaError(f"{place}/{keyword}", f"more than {MAX_COUNT} can't be asked for")
    for keyword in _NUMBERS:
        number = node.get(keyword, 1)
        exclusive = isinstance(number, bool) and keyword.startswith("exclusive")  # as in draft 4
        if not isinstance(number, int | float) or (isinstance(number, bool) and not exclusive):
            raise SchemaError(f"{place}/{keyword}", f"{keyword} is a number")
    if node.get("multipleOf", 1) <= 0:
        raise SchemaError(f"{place}/multipleOf", "multipleOf is greater than zero")
    for what in ("Items", "Length", "Properties"):
        if f"max{what}" in node and node.get(f"min{what}", 0) > node[f"max{what}"]:
            raise SchemaError(f"{place}/min{what}", f"min{what} is greater than max{what}")
    if "minimum" in node and "maximum" in node and node["minimum"] > node["maximum"]:
        raise SchemaError(f"{place}/minimum", "minimum is greater than maximum")


def unfoldable(schema: Mapping[str, Any], path: str = "") -> None:
    """Refuse a schema that would be too large with its references filled in, as a format without a word for JSON writes it."""
    sizes: dict[int, int] = {}

    def size(node: Any, on_the_way: frozenset[int]) -> int:
        if id(node) in on_the_way or not isinstance(node, Mapping | list):
            return 0
        if id(node) in sizes:
            return sizes[id(node)]
        way = on_the_way | {id(node)}
        if isinstance(node, list):
            count = sum(size(item, way) for item in node)
        else:
            count = 1 + sum(size(part, way) for key, part in node.items() if key not in ("$defs", "definitions"))
            if "$ref" in node:
                count += size(resolve(node["$ref"], schema, path), way)
        sizes[id(node)] = count
        return count

    if (found := size(schema, frozenset())) > MAX_NODES:
        raise SchemaError(path, f"with its references filled in the schema has {found} nodes, more than {MAX_NODES}")


def resolve(reference: Any, root: Mapping[str, Any], place: str) -> Any:
    """What a reference within the schema points at."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        raise SchemaError(place, f"only references within the schema can be followed, not {reference!r}")
    node: Any = root
    for part in reference[1:].lstrip("/").split("/") if reference != "#" else []:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            raise SchemaError(place, f"{reference!r} points at nothing")
    return node


def _finite(node: Any, root: Mapping[str, Any], place: str, on_the_way: tuple[int, ...], proven: set[int]) -> None:
    """Refuse a schema whose every value would have to contain another of its kind. `proven`: nodes that needn't be asked again."""
    if not isinstance(node, Mapping) or id(node) in proven:
        return
    if id(node) in on_the_way:
        raise SchemaError(place, "the schema requires a value inside itself without end: make the inner one optional")
    if len(on_the_way) > MAX_DEPTH:
        return
    way = (*on_the_way, id(node))
    if "$ref" in node:
        _finite(resolve(node["$ref"], root, place), root, f"{place}/$ref", way, proven)
    for index, part in enumerate(node.get("allOf", []) if isinstance(node.get("allOf"), list) else []):
        _finite(part, root, f"{place}/allOf/{index}", way, proven)
    for keyword in ("anyOf", "oneOf"):
        options = node.get(keyword)
        if isinstance(options, list) and options:
            _one_finite(options, root, f"{place}/{keyword}", way, proven)
    properties = node.get("properties", {})
    for key in node.get("required", []):
        if isinstance(key, str) and key in properties:
            _finite(properties[key], root, f"{place}/properties/{key}", way, proven)
    if isinstance(node.get("minItems"), int) and node["minItems"] > 0:
        _finite(node.get("items"), root, f"{place}/items", way, proven)
    proven.add(id(node))


def _one_finite(
    options: list[Any], root: Mapping[str, Any], place: str, way: tuple[int, ...], proven: set[int]
) -> None:
    """One of several options must have an end."""
    last: SchemaError | None = None
    for index, option in enumerate(options):
        try:
            _finite(option, root, f"{place}/{index}", way, proven)
        except SchemaError as error:
            last = error
        else:
            return
    if last:
        raise last


def arguments(schema: Any, path: str) -> dict[str, Any]:
    """A tool's parameters as the schema of one object: no argument that the tool doesn't know."""
    checked = check(schema, path)
    if checked.get("type", "object") != "object":
        raise SchemaError(f"{path}/type", "a tool's parameters are an object")
    if "properties" not in checked and not any(key in checked for key in ("$ref", "anyOf", "oneOf", "allOf")):
        return (
            {"type": "object", "properties": {}, "additionalProperties": False, **definitions_of(checked)}
            if checked.get("additionalProperties") is False or not checked
            else {**checked, "type": "object"}
        )
    return {"additionalProperties": False, **checked, "type": "object"} if "properties" in checked else dict(checked)


def described(schema: Any) -> Mapping[str, Any]:
    """The schema of a value: `true` is one that says nothing, and `false` can't be written."""
    if schema is False:
        raise SchemaError("", "nothing satisfies the schema `false`: leave the key out")
    return schema if isinstance(schema, Mapping) else {}


def definitions_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What the schema's references point into, to be put beside a part of it."""
    return {key: schema[key] for key in ("$defs", "definitions") if key in schema}


def properties(schema: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], bool]]:
    """The parameters of a tool with their schemas (definitions included) and whether they must be given."""
    definitions = definitions_of(schema)
    required = schema.get("required", [])
    return [
        (key, {**definitions, **(part if isinstance(part, Mapping) else {})}, key in required)
        for key, part in schema.get("properties", {}).items()
    ]


def narrowed(schema: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Of a schema that allows several types what it says of one of them."""
    for keyword in ("anyOf", "oneOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and all(
            isinstance(o, Mapping) and isinstance(o.get("type"), str) for o in options
        ):
            return {**schema, keyword: [option for option in options if option["type"] == kind]}
    if any(keyword in schema for keyword in ("$ref", "anyOf", "oneOf", "allOf")):
        return {"allOf": [schema, {"type": kind}]}
    return {**schema, "type": kind}
