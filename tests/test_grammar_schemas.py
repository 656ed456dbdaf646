"""Schemas that can't be enforced are refused before anything is decoded, with the place, in bounded time and memory."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest

from unbraid.errors import SchemaError
from unbraid.formats import FORMATS, get_format
from unbraid.grammar import gbnf, lark, structural_tag
from unbraid.grammar.build import Structured, build
from unbraid.grammar.ranges import limited
from unbraid.grammar.schemas import MAX_NODES
from unbraid.grammar.tree import GrammarError, Node
from unbraid.table import Format
from unbraid.vocabulary import Vocabulary

VOCABULARY = Vocabulary.from_tokens({byte: bytes([byte]) for byte in range(256)})
UNFOLDING = ("qwen3", "qwen3_coder", "gemma4", "llama4_pythonic", "minimax_m3", "kimi_k3")
"""One format for each way to write arguments."""


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def doubling(keyword: str) -> dict[str, Any]:
    """Small to write, with more than 2**40 nodes if every reference is filled in."""
    pairs = {
        f"a{n}": {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/a{n + 1}"} for key in "lr"},
            "required": ["l", "r"],
        }
        if keyword == "properties"
        else {keyword: [{"$ref": f"#/$defs/a{n + 1}"}] * 2}
        for n in range(40)
    }
    return {
        "type": "object",
        "properties": {"v": {"$ref": "#/$defs/a0"}},
        "$defs": {**pairs, "a40": {"type": "string"}},
    }


BAD: dict[str, tuple[Any, str]] = {
    "no_schema": (3, "a schema is an object, not int"),
    "a_list": ([], "a schema is an object, not list"),
    "unknown_type": ({"type": "objekt"}, "/type: 'objekt' is no type of JSON Schema"),
    "type_of_a_wrong_type": ({"type": [[]]}, "/type: [] is no type"),
    "properties_as_list": ({"properties": []}, "/properties: properties are an object of schemas"),
    "property_without_schema": ({"properties": {"a": None}}, "/properties/a: a schema is an object"),
    "required_as_text": ({"required": "a"}, "/required: required is a list of names"),
    "required_numbers": ({"required": [1]}, "/required: required is a list of names"),
    "enum_as_text": ({"enum": "abc"}, "/enum: enum is a list of values"),
    "enum_of_nothing": ({"enum": []}, "/enum: enum is a list of values, one at least"),
    "any_of_nothing": ({"anyOf": []}, "/anyOf: anyOf is a list of schemas, one at least"),
    "items_as_text": ({"items": "integer"}, "/items: a schema is an object"),
    "negative_length": ({"minLength": -1}, "/minLength: minLength is a whole number that isn't negative"),
    "endless_minimum": ({"type": "array", "minItems": 10**9}, "/minItems: more than 100000 can't be asked for"),
    "least_above_most": ({"minItems": 3, "maxItems": 2}, "/minItems: minItems is greater than maxItems"),
    "minimum_above_maximum": ({"minimum": 3, "maximum": 2}, "/minimum: minimum is greater than maximum"),
    "minimum_as_text": ({"minimum": "3"}, "/minimum: minimum is a number"),
    "multiple_of_nothing": ({"multipleOf": 0}, "/multipleOf: multipleOf is greater than zero"),
    "pattern_that_is_none": ({"pattern": "("}, "/pattern: '(' is no regular expression"),
    "pattern_as_number": ({"pattern": 3}, "/pattern: pattern is a text"),
    "reference_to_nothing": ({"$ref": "#/$defs/a"}, "/$ref: '#/$defs/a' points at nothing"),
    "reference_elsewhere": ({"$ref": "https://example.org/s"}, "/$ref: only references within the schema"),
    "half_a_character": ({"properties": {"\ud800": {}}}, "half of a surrogate pair is no text"),
    "itself": ({"$ref": "#"}, "without end"),
    "itself_in_a_circle": ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "without end"),
    "itself_as_a_required_key": ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "without end"),
    "itself_in_every_option": ({"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]}, "without end"),
    "too_deep": (nested(70), "nests deeper than 64"),
    "too_many_nodes": ({"anyOf": [{"type": "string"}] * (MAX_NODES + 1)}, f"more than {MAX_NODES} nodes"),
    "too_much_text": ({"const": "x" * 300_000}, "more than 200000 characters"),
    "too_many_values": ({"enum": list(range(2001))}, "/enum: an enumeration has at most 2000 values"),
    **{
        word: ({word: {}}, f"/{word}: the keyword '{word}' can't be enforced")
        for word in ("not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties", "dependentRequired")
    },
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_it_is_refused_with_its_place(case: str) -> None:
    schema, said = BAD[case]
    with pytest.raises(SchemaError) as found:
        build(get_format("qwen3"), structured=Structured(json_schema=schema))
    assert said in str(found.value)


@pytest.mark.parametrize("name", UNFOLDING)
@pytest.mark.parametrize(
    "case", [case for case in BAD if not case.startswith("itself") and case != "reference_to_nothing"]
)
def test_as_a_tools_parameter_it_is_refused_in_every_syntax(name: str, case: str) -> None:
    with pytest.raises(SchemaError, match="/tools/f"):
        forced(get_format(name), {"type": "object", "properties": {"v": BAD[case][0]}, "required": ["v"]})


def forced(fmt: Format, parameters: Any) -> Node:
    return build(
        fmt, tools=[{"type": "function", "function": {"name": "f", "parameters": parameters}}], tool_choice="required"
    )


def calls_of(work: Any) -> int:
    """How many Python functions were called: time, without a clock."""
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    except (SchemaError, GrammarError):
        pass
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", UNFOLDING)
@pytest.mark.parametrize("keyword", ["properties", "anyOf"])
def test_references_that_double_cost_no_more_than_what_is_written(name: str, keyword: str) -> None:
    """A format whose syntax has no word for JSON would have to write them out: it refuses."""
    assert calls_of(lambda: forced(get_format(name), doubling(keyword))) < 20_000


@pytest.mark.parametrize("case", BAD)
def test_to_refuse_it_is_cheap(case: str) -> None:
    assert calls_of(lambda: build(get_format("qwen3"), structured=Structured(json_schema=BAD[case][0]))) < 60_000


GOOD: dict[str, Any] = {
    "a_tree": {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}}}},
    "one_option_ends": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]},
    "draft_4": {"type": "number", "minimum": 1, "exclusiveMinimum": True},
    "true": {"type": "object", "properties": {"a": True}},
    "annotated": {
        "type": "string",
        "description": "if not: contains",
        "default": {"not": 1},
        "examples": [{"type": "x"}],
    },
    "keys_like_keywords": {"type": "object", "properties": {"not": {"type": "string"}, "enum": {"type": "integer"}}},
}


@pytest.mark.parametrize("case", GOOD)
def test_what_can_be_enforced_is_not_refused(case: str) -> None:
    tree = build(get_format("qwen3"), structured=Structured(json_schema=GOOD[case]))
    assert "%json" in lark.write(tree, VOCABULARY)


WRITERS: dict[str, Callable[[Node], object]] = {
    "xgrammar": lambda tree: structural_tag.write(tree, VOCABULARY),
    "GBNF": lambda tree: gbnf.write(tree, VOCABULARY),
}
LOOSE: list[tuple[str, Any, str]] = [
    ("xgrammar", {"type": "array", "uniqueItems": True}, "uniqueItems"),
    ("xgrammar", {"type": "string", "pattern": "^a*$", "minLength": 3}, "minLength"),
    ("xgrammar", {"type": "string", "format": "date", "maxLength": 3}, "maxLength"),
    ("xgrammar", {"type": "string", "format": "colour"}, "colour"),
    ("xgrammar", {"type": "string", "pattern": "^(?=a)b"}, "lookaround"),
    ("xgrammar", {"type": "string", "pattern": '^(a"|b)+$'}, "unescaped"),
    ("xgrammar", {"allOf": [{"type": "integer"}, {"minimum": 3}]}, "allOf"),
    ("xgrammar", {"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf"),
    ("xgrammar", {"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, "beside anyOf"),
    ("xgrammar", {"type": "object", "required": ["a"]}, "'a'"),
    ("xgrammar", {"type": "number", "multipleOf": 0.5}, "multipleOf"),
    ("xgrammar", {"type": "string", "enum": ["a", "bcd"], "minLength": 2}, "beside enum"),
    ("GBNF", {"type": "integer", "multipleOf": 3}, "multipleOf"),
    ("GBNF", {"type": "number", "exclusiveMinimum": 0}, "exclusiveMinimum"),
    ("GBNF", {"type": "number", "maximum": 0.5}, "maximum"),
    ("GBNF", {"type": "string", "pattern": "^(?=a)b"}, "assert"),
    ("GBNF", {"type": "string", "pattern": "a(^b)"}, "at in the"),
    ("GBNF", {"type": "string", "pattern": "^[\\n\\t]$"}, "escapes"),
    ("GBNF", {"type": "string", "pattern": "^a*$", "minLength": 3}, "minLength"),
    ("GBNF", {"type": "string", "format": "date"}, "format"),
    ("GBNF", {"type": "object", "patternProperties": {"^a": {}}}, "patternProperties"),
    ("GBNF", {"type": "object", "required": ["a"]}, "'a'"),
    ("GBNF", {"allOf": [{"type": "integer"}, {"type": "number"}]}, "allOf"),
    ("GBNF", {"type": "array", "minItems": 3000}, "2000"),
]


@pytest.mark.parametrize(("backend", "schema", "named"), LOOSE)
def test_what_a_backend_would_drop_is_named(backend: str, schema: Any, named: str) -> None:
    tree = build(get_format("qwen3"), structured=Structured(json_schema=schema))
    with pytest.raises((SchemaError, GrammarError), match=named):
        WRITERS[backend](tree)
    assert "%json" in lark.write(tree, VOCABULARY)  # llguidance judges for itself


def test_numbers_between_limits_as_a_regular_expression() -> None:
    rng = random.Random(0)
    for _ in range(300):
        low = rng.randint(-(10 ** rng.randint(1, 4)), 10 ** rng.randint(1, 4))
        high = low + rng.randint(0, 10 ** rng.randint(0, 4))
        near = [low - 1, low, high, high + 1, 0, *(rng.randint(low - 20, high + 20) for _ in range(20))]
        given = {"type": "integer", "exclusiveMinimum": low - 0.5, "maximum": high + 0.5}
        whole, number = (
            re.compile(rf"(?:{limited(schema)})\Z")
            for schema in (given, {"type": "number", "minimum": low, "maximum": high})
        )
        for value in near:
            assert bool(whole.match(str(value))) == bool(number.match(str(value))) == (low <= value <= high)
            inside = low <= value + (0.25 if value >= 0 else -0.25) <= high
            assert bool(number.match(f"{value}.25")) == inside
        assert not whole.match("-0")
        assert not whole.match(f"0{high}")
    with pytest.raises(SchemaError, match="no number"):
        limited({"type": "integer", "minimum": 3, "maximum": 2})


@pytest.mark.parametrize("backend", WRITERS)
def test_the_pattern_of_a_raw_string_is_llguidances(backend: str) -> None:
    tree = forced(
        get_format("qwen3_coder"), {"type": "object", "properties": {"v": {"type": "string", "pattern": "^a+$"}}}
    )
    with pytest.raises(GrammarError, match="llguidance"):
        WRITERS[backend](tree)


@pytest.mark.parametrize("name", sorted(name for name, fmt in FORMATS.items() if not fmt.calls))
def test_a_format_without_calls_says_so(name: str) -> None:
    with pytest.raises(GrammarError, match="has no calls"):
        forced(get_format(name), {})


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"type": "function", "function": {"name": "g"}}, "names 'g', which isn't among the tools: f"),
        ({"type": "function"}, "no tool is named"),
        ({"type": "allowed_tools", "tools": [{"name": "h"}]}, "names 'h'"),
    ],
)
def test_a_choice_of_nothing_is_refused(choice: Any, said: str) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    with pytest.raises(GrammarError, match=said):
        build(get_format("qwen3"), tools=tools, tool_choice=choice)


def named(fmt: Format, name: str, key: str) -> Node:
    """The grammar that forces a call of this tool."""
    function = {"name": name, "parameters": {"type": "object", "properties": {key: {"type": "string"}}}}
    return build(fmt, tools=[{"type": "function", "function": function}], tool_choice="required")


@pytest.mark.parametrize(
    ("format", "name", "key"),
    [
        ("pythonic", "ns:fn", "a"),
        ("lfm2", "f", "$filter"),
        ("gemma4", "x/y", "a"),
        ("mistral_v15", "n" * 129, "a"),
        ("qwen3_coder", "f", "x>y"),
        ("minimax_m3", "f", "x>y"),
        ("muse_glimmer", "user", "a"),
        ("functionary_v32", "all", "a"),
    ],
)
def test_a_name_that_could_not_be_read_back_is_refused(format: str, name: str, key: str) -> None:
    """Forced all the same, the call would come back as content."""
    with pytest.raises(GrammarError, match=f"/tools/{re.escape(name)}: {format} has no way to write a call of it"):
        named(get_format(format), name, key)


@pytest.mark.parametrize("format", [name for name, fmt in FORMATS.items() if fmt.calls])
def test_names_that_clients_use_can_be_forced(format: str) -> None:
    for name, key in (("resolve-library-id", "max-results"), ("3d.model", "2fa"), ("n" * 128, "a.b")):
        named(get_format(format), name, key)
