"""Types from schemas, and text read by them."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unbraid.schema import (
    MAX_DEPTH,
    UNKNOWN,
    Kind,
    Tools,
    Type,
    coerce,
    escape,
    is_json_object,
    json_string,
    parse_json,
)


def tools_with(**properties: Any) -> Tools:
    return Tools.resolve([{"name": "f", "parameters": {"type": "object", "properties": properties}}])


def type_of(schema: Any, **definitions: Any) -> Type:
    parameters = {"type": "object", "properties": {"x": schema}, "$defs": definitions}
    return Tools.resolve([{"name": "f", "parameters": parameters}]).parameter("f", "x")


def typed(kinds: str) -> Type:
    return type_of({"type": kinds.split()})


# -- kinds -------------------------------------------------------------------------------------------------------------

KINDS: list[tuple[Any, str]] = [
    # a type's name, as it should be and as it is found
    ({"type": "string"}, "string"),
    ({"type": ["integer", "null"]}, "integer null"),
    ({"type": "STRING"}, "string"),
    ({"type": " Int64 "}, "integer"),
    ({"type": "str"}, "string"),
    ({"type": "float"}, "number"),
    ({"type": "double"}, "number"),
    ({"type": "dict"}, "object"),
    ({"type": "Dict[str, int]"}, "object"),
    ({"type": "list"}, "array"),
    ({"type": "bool"}, "boolean"),
    ({"type": "NoneType"}, "null"),
    ({"type": "interval"}, ""),
    ({"type": "any"}, ""),
    ({"type": {}}, ""),
    ({"type": [7, None, "integer"]}, "integer"),
    # values
    ({"enum": ["a", "b"]}, "string"),
    ({"enum": [1, 2.5, None, True, {}, []]}, "integer number null boolean object array"),
    ({"enum": []}, ""),
    ({"const": 3}, "integer"),
    ({"const": None}, "null"),
    ({"type": ["string", "null"], "enum": ["a"]}, "string"),
    ({"type": "number", "enum": [1, 2]}, "integer"),
    ({"type": "string", "enum": [1, 2]}, "string integer"),  # a mistake: either will do
    ({"type": "integer", "nullable": True}, "integer null"),
    ({"nullable": True}, ""),
    # shapes that only one type has
    ({"properties": {}}, "object"),
    ({"items": {}}, "array"),
    ({"required": True}, ""),
    # combinators
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer null"),
    ({"oneOf": [{"type": "integer"}, {"anyOf": [{"type": "boolean"}]}]}, "integer boolean"),
    ({"anyOf": [{"type": "integer"}, {}]}, "integer string"),
    ({"anyOf": [{}, {"description": "anything"}]}, ""),
    ({"anyOf": [{"type": "integer"}, False]}, "integer"),
    ({"allOf": [{"type": "integer"}]}, "integer"),
    ({"allOf": [{"type": ["integer", "string"]}, {"type": ["string", "null"]}]}, "string"),
    ({"allOf": [{"type": "number"}, {"type": "integer"}]}, "integer"),
    ({"allOf": [{"type": "integer"}, {"description": "at most nine"}]}, "integer"),
    ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, "object"),
    # references
    ({"$ref": "#/$defs/Colour"}, "string"),
    ({"$ref": "#/$defs/Colour", "description": "beside it"}, "string"),
    ({"anyOf": [{"$ref": "#/$defs/Colour"}, {"type": "null"}]}, "string null"),
    ({"$ref": "#/$defs/a~1b%20~0"}, "integer"),
    ({"$ref": "#/$defs/Choice/anyOf/1"}, "boolean"),
    ({"$ref": "#/$defs/Choice/anyOf/9"}, ""),
    ({"$ref": "#"}, "object"),
    ({"$ref": "#/$defs/Missing"}, ""),
    ({"$ref": "https://example.org/schema"}, ""),
    ({"$ref": "#anchor"}, ""),
    ({"$ref": 7}, ""),
    ({"$ref": "#/$defs/Loop"}, ""),
    ({"$ref": "#/$defs/Tree"}, "object string"),
    # no schemas at all
    (True, ""),
    (None, ""),
    ([], ""),
    ("string", ""),
]

DEFINITIONS: dict[str, Any] = {
    "Colour": {"enum": ["red", "blue"]},
    "a/b ~": {"type": "integer"},
    "Choice": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
    "Loop": {"$ref": "#/$defs/Loop"},
    "Tree": {"anyOf": [{"$ref": "#/$defs/Branch"}, {"type": "string"}]},
    "Branch": {"anyOf": [{"type": "object"}, {"$ref": "#/$defs/Tree"}]},
}


@pytest.mark.parametrize(("schema", "kinds"), KINDS, ids=[json.dumps(schema) for schema, _ in KINDS])
def test_kinds(schema: Any, kinds: str) -> None:
    found = type_of(schema, **DEFINITIONS)
    assert found.kinds == set(kinds.split())
    assert found.known == bool(kinds)


def test_a_cycle_gives_every_member_all_kinds_whichever_is_asked_first() -> None:
    parameters = {"properties": {name: {"$ref": f"#/$defs/{name}"} for name in DEFINITIONS}, "$defs": DEFINITIONS}
    tools = Tools.resolve([{"name": "f", "parameters": parameters}])
    assert tools.parameter("f", "Tree").kinds == tools.parameter("f", "Branch").kinds == {"object", "string"}


@pytest.mark.parametrize(
    ("schema", "is_text"),
    [({"type": "string"}, True), ({}, True), ({"type": "integer"}, False), ({"type": ["string", "null"]}, False)],
)
def test_only_a_string_or_an_unknown_may_stream(schema: Any, is_text: bool) -> None:
    assert type_of(schema).is_text is is_text


def test_containers_lead_to_their_members() -> None:
    point = {"properties": {"x": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "boolean"}}}}
    found = type_of({"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]}, Point=point)
    assert found.property("x").kinds == {"integer"}
    assert found.property("tags").item().kinds == {"boolean"}
    assert found.property("nobody") == UNKNOWN
    assert found.item() == UNKNOWN
    assert UNKNOWN.property("x").item() == UNKNOWN


def test_members_of_several_branches_are_any_of_them() -> None:
    schema = {"oneOf": [{"properties": {"v": {"type": "integer"}}}, {"properties": {"v": {"type": "null"}}}]}
    assert type_of(schema).property("v").kinds == {"integer", "null"}
    assert type_of(schema).property("v") == type_of(schema).property("v")


def test_additional_properties_type_what_is_not_listed() -> None:
    found = type_of({"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}})
    assert found.property("a").kinds == {"null"}
    assert found.property("b").kinds == {"integer"}
    assert type_of({"type": "object", "additionalProperties": False}).property("b") == UNKNOWN


def test_tuples_have_items_by_place() -> None:
    found = type_of({"prefixItems": [{"type": "integer"}, {"type": "null"}], "items": {"type": "boolean"}})
    assert [found.item(n).kinds for n in (0, 1, 2)] == [{"integer"}, {"null"}, {"boolean"}]
    assert found.item().kinds == {"integer", "null", "boolean"}
    assert type_of({"items": [{"type": "integer"}]}).item(0).kinds == {"integer"}


def test_recursive_schemas_can_be_followed_down() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "n": {"type": "integer"}}}
    found = type_of({"$ref": "#/$defs/Node"}, Node=node)
    for _ in range(1000):
        found = found.property("next")
    assert found.property("n").kinds == {"integer"}


# -- tools -------------------------------------------------------------------------------------------------------------

PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "function", "function": {"name": "f", "parameters": PARAMETERS, "strict": True}},
        {"type": "function", "name": "f", "parameters": PARAMETERS},
        {"name": "f", "parameters": PARAMETERS},
        {"name": "f", "input_schema": PARAMETERS},
    ],
)
def test_every_way_of_offering_a_tool(tool: dict[str, Any]) -> None:
    tools = Tools.resolve([tool])
    assert tools.names == ("f",)
    assert "f" in tools
    assert "g" not in tools
    assert tools.keys("f") == ("n", "s")
    assert tools.schema("f") == PARAMETERS
    assert tools.arguments("f").kinds == {"object"}
    assert tools.parameter("f", "n").kinds == {"integer"}
    assert tools.parameter("f", "s").is_text
    assert tools.parameter("f", "other") == tools.parameter("g", "n") == UNKNOWN


@pytest.mark.parametrize("parameters", [{}, {"parameters": None}, {"parameters": "none"}, {"parameters": []}])
def test_a_tool_without_a_schema_is_still_a_tool(parameters: dict[str, Any]) -> None:
    tools = Tools.resolve([{"type": "function", "function": {"name": "f", **parameters}}])
    assert tools.names == ("f",)
    assert tools.schema("f") is None
    assert tools.keys("f") == ()
    assert tools.parameter("f", "x") == tools.arguments("f") == UNKNOWN


def test_what_has_no_name_is_passed_over() -> None:
    odd: list[Any] = [{"type": "web_search"}, {"function": None}, {"name": 7}, None, "f", {"name": "g"}]
    assert Tools.resolve(odd).names == ("g",)
    assert Tools.resolve(None).names == Tools.resolve([]).names == ()


def test_keys_come_from_all_branches_once() -> None:
    parameters = {
        "allOf": [{"$ref": "#/definitions/Base"}, {"properties": {"b": {}, "a": {}}}],
        "definitions": {"Base": {"properties": {"a": {"type": "integer"}}}},
    }
    tools = Tools.resolve([{"name": "f", "parameters": parameters}])
    assert tools.keys("f") == ("a", "b")


def test_a_hostile_schema_costs_what_its_size_costs() -> None:
    # Each definition refers twice to the next: 2 ** 60 paths, 60 schemas.
    doubling = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]} for n in range(60)}
    chain = {f"c{n}": {"$ref": f"#/$defs/c{n + 1}"} for n in range(20_000)}
    began = time.process_time()
    type_of({"$ref": "#/$defs/d0"}, **doubling).property("x")
    type_of({"$ref": "#/$defs/c0"}, **chain).property("x")
    wide = tools_with(**{f"p{n}": {"type": "integer"} for n in range(10_000)})
    assert all(wide.parameter("f", key).known for key in wide.keys("f"))
    assert time.process_time() - began < 2


# -- coerce ------------------------------------------------------------------------------------------------------------

LONG = "9" * 5000
DEEP = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)

COERCED: list[tuple[str, str, str]] = [
    # text stays text, character for character
    ("string", "3", '"3"'),
    ("string", "null", '"null"'),
    ("string", ' {"a": 1}\n', '" {\\"a\\": 1}\\n"'),
    ("", "3", '"3"'),
    ("", "true", '"true"'),
    ("", "", '""'),
    # null
    ("null string", "null", "null"),
    ("null string", " NULL\n", "null"),
    ("null string", "None", "null"),
    ("null string", "nothing", '"nothing"'),
    ("null string", "", '""'),
    # integer
    ("integer", "3", "3"),
    ("integer", " -3\n", "-3"),
    ("integer", "+5", "5"),
    ("integer", "007", "7"),
    ("integer", "-000", "-0"),
    ("integer", LONG, LONG),
    ("integer string", "3.0", '"3.0"'),
    ("integer string", "1_000", '"1_000"'),
    ("integer string", "٣", '"٣"'),
    ("integer string", " x ", '" x "'),
    # number
    ("number", "5", "5"),
    ("number", "5.0", "5"),
    ("number", "-3.00", "-3"),
    ("number", "3.140", "3.140"),
    ("number", "1e20", "1e20"),
    ("number", "1.0e2", "1.0e2"),
    ("number", "+1.5", "1.5"),
    ("number", ".5", "0.5"),
    ("number", "5.", "5"),
    ("number", LONG, LONG),
    ("number string", "1e999", '"1e999"'),
    ("number string", "NaN", '"NaN"'),
    ("number string", "Infinity", '"Infinity"'),
    ("integer number", "3.0", "3"),
    # boolean
    ("boolean", "true", "true"),
    ("boolean", " True ", "true"),
    ("boolean", "FALSE", "false"),
    ("boolean", "1", "true"),
    ("boolean", "0", "false"),
    ("boolean integer", "1", "1"),
    ("boolean string", "yes", '"yes"'),
    # containers: byte for byte
    ("object", ' {"b":1,  "a":"\\u00e9"}\n', '{"b":1,  "a":"\\u00e9"}'),
    ("array", "[1, 2.0]", "[1, 2.0]"),
    ("array", f"[{LONG}]", f"[{LONG}]"),
    ("object array", "[]", "[]"),
    ("object string", "[]", '"[]"'),
    ("array string", DEEP, f'"{DEEP}"'),
    ("array string", "[1e99999999999999999999]", '"[1e99999999999999999999]"'),
    ("array", "[1e99999999999999999999]", "[1e99999999999999999999]"),
    # Python literals
    ("object", "{'a': True, 'b': None}", '{"a": true, "b": null}'),
    ("object", "{1: 'x', None: 2, (1,): 3}", '{"1": "x", "null": 2, "(1,)": 3}'),
    ("array", "('a', {'b'})", '["a", ["b"]]'),
    ("array", r"['\d+', 'a\nb', 'c\\']", r'["\\d+", "a\nb", "c\\"]'),
    ("array", r"[r'\d']", r'["\\d"]'),
    ("array", r"['\ud800']", r'["\ud800"]'),
    ("array string", "['a']", '["a"]'),
    ("array string", "{1,2}", '"{1,2}"'),
    ("array", "{1,2}", "[1, 2]"),
]

STAYED: list[tuple[str, str]] = [
    ("integer", "three"),
    ("integer", "3.0"),
    ("number", "1e999"),
    ("boolean", "yes"),
    ("null", ""),
    ("object", "[1]"),
    ("object", '{"a": NaN}'),
    ("object", "{'a': b'x'}"),
    ("object", "{'a': float('nan')}"),
    ("object", "{{}: 1}"),
    ("object", " {'a' "),
    ("object", "{'a': 1j}"),
    ("object", "{'a': ...}"),
    ("object", "{'a': 1e999}"),
    ("object", "{\0}"),
    ("object", "{\ud800}"),
    ("array", "[0x" + "f" * 5000 + "]"),
    ("array", "[" + "-" * 50_000 + "1]"),
    ("array", "[" + "1+" * 40_000 + "1]"),
    ("array", DEEP),
    ("array", "[" * 100_000),
    ("array", "(" * 100_000),
    ("array", '["' + '\\"' * 200_000),
    ("integer", "0" * 200_000 + "x"),
    ("number", "1" * 200_000 + "x"),
]


@pytest.mark.parametrize(("kinds", "text", "result"), COERCED, ids=range(len(COERCED)))
def test_coerce(kinds: str, text: str, result: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = coerce(text, typed(kinds))
    assert found.json == result
    assert found.fits


@pytest.mark.parametrize(("kinds", "text"), STAYED, ids=range(len(STAYED)))
def test_what_fits_no_type_stays_text(kinds: str, text: str) -> None:
    began = time.process_time()
    found = coerce(text, typed(kinds))
    assert found.json == json_string(text)
    assert not found.fits
    assert time.process_time() - began < 1


def test_python_literals_can_be_left_out() -> None:
    assert coerce("{'a': 1}", typed("object"), python_literals=False).json == "\"{'a': 1}\""
    assert coerce('{"a": 1}', typed("object"), python_literals=False).json == '{"a": 1}'


@pytest.mark.parametrize(
    "text", ["[5in, 3in]", "{'a': 1or}", "[1.if]", "[0xfor]", r"{'a': '\d'}", "{'a': '1or', 'b': \"2in\"}"]
)
def test_what_python_warns_of_is_nobodys_business(text: str) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        coerced = coerce(text, typed("array object")).json
    assert not said
    assert isinstance(parse_json(coerced), dict) == ("': '" in text)


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_json_string_is_always_encodable() -> None:
    assert json_string('é"\\\n\x00\u2028😀') == '"é\\"\\\\\\n\\u0000\u2028😀"'
    assert json_string("a\ud800b") == '"a\\ud800b"'
    assert escape('"\udfff') == '\\"\\udfff'


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "{} x", "", "{", '{"a": 1,}', DEEP, "\ufeff{}", "[1e9999999999999999999]"]
)
def test_parse_json_is_strict(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)
    assert not is_json_object(text)


def test_parse_json_has_no_limit_on_numbers() -> None:
    assert parse_json(f"[{LONG}, 1e999, -1]") == [Decimal(LONG), Decimal("1e999"), -1]
    assert is_json_object(f'{{"id": {LONG}}}')


def test_brackets_in_strings_are_not_depth() -> None:
    brackets = "[" * 1000
    assert parse_json(json.dumps([brackets, "'", brackets])) == [brackets, "'", brackets]


def test_only_objects_are_objects() -> None:
    assert is_json_object(' {"a": []} ')
    assert not is_json_object("[]")
    assert not is_json_object('"{}"')


# -- properties --------------------------------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
ALL_KINDS: list[Kind] = ["null", "integer", "number", "boolean", "object", "array", "string"]
words = st.sampled_from(["x", "y"])
references = st.sampled_from(["#", "#/properties/x", "#/properties/y", "#/properties/x/anyOf/0", "#/nowhere", "#/"])
schemas = st.recursive(
    json_values
    | st.fixed_dictionaries({"type": st.sampled_from([*ALL_KINDS, "any"]) | st.lists(st.sampled_from(ALL_KINDS))})
    | st.fixed_dictionaries({"$ref": references})
    | st.fixed_dictionaries({"enum": st.lists(json_values, max_size=3)}),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": inner | st.sampled_from(ALL_KINDS),
            "anyOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=3) | inner,
            "oneOf": st.lists(inner, max_size=3),
            "$ref": references | inner,
            "properties": st.dictionaries(words, inner, max_size=2) | inner,
            "items": st.lists(inner, max_size=2) | inner,
            "nullable": inner | st.just(True),
            "const": inner,
        },
    ),
    max_leaves=10,
)
texts = (
    st.text()
    | json_values.map(json.dumps)
    | json_values.map(repr)
    | st.text(alphabet="{}[]()'\"\\:, 0123456789.eE+-truefalsnoNTF\ud800", max_size=40)
)


@given(schemas, schemas, texts, words, st.booleans())
def test_coerce_is_total_and_always_gives_json(x: Any, y: Any, text: str, key: str, python_literals: bool) -> None:
    parameters = {"properties": {"x": x, "y": y}}
    tools = Tools.resolve([{"name": "f", "parameters": parameters}])
    assert tools.keys("f") == ("x", "y")
    for found in (tools.parameter("f", key), tools.parameter("f", key).property("x"), tools.parameter("f", key).item()):
        assert found.known == bool(found.kinds)
        coerced = coerce(text, found, python_literals=python_literals)
        value = parse_json(coerced.json)
        coerced.json.encode()
        if not coerced.fits:
            assert value == text
        elif found.is_text:
            assert isinstance(value, str)
        else:
            assert _kinds_of(value) & found.kinds


def _kinds_of(value: Any) -> set[Kind]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, (int, Decimal)):
        return {"integer", "number"}
    by_type: dict[type, Kind] = {type(None): "null", float: "number", str: "string", list: "array", dict: "object"}
    return {by_type[type(value)]}


@given(json_values)
def test_json_containers_pass_byte_for_byte(value: Any) -> None:
    text = json.dumps(value)
    if isinstance(value, (dict, list)):
        assert coerce(text, typed("object array null")).json == text


@given(json_values)
def test_python_literals_of_json_values_are_those_values(value: Any) -> None:
    if isinstance(value, (dict, list)):
        assert parse_json(coerce(repr(value), typed("object array")).json) == value


@given(st.text())
def test_text_survives_as_a_string(text: str) -> None:
    assert parse_json(coerce(text, UNKNOWN).json) == parse_json(coerce(text, typed("string")).json) == text


@given(st.text(), st.integers(0, 20))
def test_pieces_of_a_string_add_up(text: str, cut: int) -> None:
    assert escape(text[:cut]) + escape(text[cut:]) == escape(text)


def test_schemas_need_only_be_mappings() -> None:
    class Lazy(dict[str, Any]):
        pass

    schema: Mapping[str, Any] = Lazy(properties=Lazy(x=Lazy(type="integer")))
    assert Tools.resolve([Lazy(name="f", parameters=schema)]).parameter("f", "x").kinds == {"integer"}
