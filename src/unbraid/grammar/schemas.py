"""Schemas made fit for a grammar, or refused before anything is decoded.

A client's schema is untrusted: it may be malformed, endless, or large enough to keep a compiler busy for minutes. What is checked here
is bounded in time and memory; what passes is small, has resolvable references and a finite value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from unbraid.errors import SchemaError

MAX_NODES = 5_000
"""Objects and arrays in one schema. The largest real ones (OpenAPI descriptions as tools) have some 2,000."""
MAX_DEPTH = 64
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
    for count, (place, depth, node) in enumerate(_walk(schema, path)):
        if count >= MAX_NODES:
            raise SchemaError(path, f"the schema has more than {MAX_NODES} nodes: split the tool or simplify it")
        if depth > MAX_DEPTH:
            raise SchemaError(place, f"the schema nests deeper than {MAX_DEPTH}")
        if isinstance(node, Mapping):
            _check_node(node, place, schema)
    _finite(schema, schema, path, (), set())
    return dict(schema)


def _walk(schema: Any, path: str) -> Iterator[tuple[str, int, Any]]:
    """Every object and array of a schema, with its place."""
    queue: list[tuple[str, int, Any]] = [(path, 0, schema)]
    while queue:
        place, depth, node = queue.pop()
        yield place, depth, node
        if depth > MAX_DEPTH:
            continue
        items = node.items() if isinstance(node, Mapping) else enumerate(node)
        queue += [(f"{place}/{key}", depth + 1, item) for key, item in items if isinstance(item, Mapping | list)]


def _check_node(node: Mapping[str, Any], place: str, root: Mapping[str, Any]) -> None:
    if place.endswith(("/properties", "/$defs", "/definitions", "/enum", "/const", "/default", "/examples")):
        return
    for keyword in _REFUSED:
        if keyword in node:
            raise SchemaError(
                f"{place}/{keyword}", f"the keyword {keyword!r} can't be enforced while decoding: leave it out"
            )
    kinds = node.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in ("null", "integer", "number", "boolean", "object", "array", "string"):
            raise SchemaError(f"{place}/type", f"{kind!r} is no type of JSON Schema")
    if not isinstance(node.get("properties", {}), Mapping):
        raise SchemaError(f"{place}/properties", "properties are an object of schemas")
    if not isinstance(node.get("required", []), list):
        raise SchemaError(f"{place}/required", "required is a list of names")
    reference = node.get("$ref")
    if reference is not None:
        resolve(reference, root, f"{place}/$ref")


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
            {"type": "object", "properties": {}, "additionalProperties": False, **_definitions(checked)}
            if checked.get("additionalProperties") is False or not checked
            else {**checked, "type": "object"}
        )
    return {"additionalProperties": False, **checked, "type": "object"} if "properties" in checked else dict(checked)


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("$defs", "definitions") if key in schema}


def properties(schema: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], bool]]:
    """The parameters of a tool with their schemas (definitions included) and whether they must be given."""
    definitions = _definitions(schema)
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
