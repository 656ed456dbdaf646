"""Hugging Face response templates as tables: read where a name is accepted, and refused where a table can't say it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unbraid
from unbraid.cli import main
from unbraid.lint import lint
from unbraid.pattern import Begin, Group, Maybe, NoMarker, Space, Text, Wildcard, alternatives
from unbraid.response_schema import to_template
from unbraid.response_template import Tokenizer, from_template
from unbraid.serialize import from_json, to_json

CALL = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
WHOLE = {"type": "function", "function": "{content}"}
THINK = {"open": "<think>", "close": "</think>"}
TAG = r"<parameter=(?P<key>\w+)>\s*(?P<value>.*?)\s*</parameter>"
ATTRIBUTE = r'<arg\b[^>]*?\bname="(?P<key>[^"]+)">(?P<value>.*?)</arg>'
PAIRS = r"<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>"


def template(anchor: str = "<A>", **fields: Any) -> dict[str, Any]:
    return {"defaults": {"role": "assistant"}, "start_anchor": anchor, "fields": fields}


def tags(opener: str, close: str, tag: str) -> dict[str, Any]:
    args = {"tag_pattern": tag, "value_parser": {"name": "json", "args": {"allow_non_json": True}}}
    return {"open_pattern": opener, "close": close, "repeats": True, "content": "xml-inline", "content_args": args, "transform": CALL}  # fmt: skip


JSON_CALLS = {"open": "<call>", "close": "</call>", "repeats": True, "content": "json", "transform": WHOLE}
TEMPLATES: dict[str, tuple[dict[str, Any], str, str, unbraid.Message]] = {
    "leftover content": (
        template(thinking=THINK, tool_calls=JSON_CALLS, content={"close": "<E>"}),
        "<A><think>", 'Two\n</think>\n\nOne. <call>{"name": "f", "arguments": {"a": "</call>"}}</call><E>',
        unbraid.Message("Two", "One.", [unbraid.ToolCall("", "f", '{"a": "</call>"}')]),
    ),
    "content on both sides of a call": (
        template(tool_calls=JSON_CALLS, content={}),
        "<A>", 'Before <call>{"name": "f", "arguments": {}}</call>after<E>',
        unbraid.Message(None, "Beforeafter", [unbraid.ToolCall("", "f", "{}")]),
    ),
    "delimited content": (
        template(
            content={"open": "<SAY>", "close": "</SAY>"}, thinking=THINK,
            tool_calls={
                "open": "<ACT>", "close": "</ACT>", "content": "json", "transform_each": True,
                "transform": {"id": "{no}", "function": {"name": "{tool_name}", "arguments": "{parameters}"}},
            },
        ),
        "<A>", '<think>Hm</think>\n<SAY> Hi </SAY><ACT>[{"no": "7", "tool_name": "f", "parameters": {"a": 1}}]</ACT><E>',
        unbraid.Message("Hm", "Hi", [unbraid.ToolCall("7", "f", '{"a": 1}')]),
    ),
    "an answer without a field": (
        template(content={"open": "<SAY>", "close": "</SAY>"}, thinking=THINK), "<A>", "Just so.<E>", unbraid.Message(None, "Just so."),
    ),
    "a name in the opener": (
        template(tool_calls={**JSON_CALLS, "open_pattern": r"<function=(?P<name>\w+)>", "open": None, "transform": CALL}),
        "<A>", 'Hi<function=f>{"a": 1}</call><E>', unbraid.Message(None, "Hi", [unbraid.ToolCall("", "f", '{"a": 1}')]),
    ),
    "a name directly before the object": (
        template(tool_calls={**JSON_CALLS, "open_pattern": r"<call>(?P<name>\w+)", "open": None, "transform": CALL}),
        "<A>", '<call>f{"a": 1}</call><E>', unbraid.Message(None, None, [unbraid.ToolCall("", "f", '{"a": 1}')]),
    ),
    "keys of another name": (
        template(tool_calls={**JSON_CALLS, "transform": {"function": {"name": "{content.do}", "arguments": "{content.with}"}}}),
        "<A>", '<call>{"with": {"n": 2}, "do": "f"}</call><E>', unbraid.Message(None, None, [unbraid.ToolCall("", "f", '{"n": 2}')]),
    ),
    "another dialect": (
        template(
            tool_calls={
                "open_pattern": r"<\|call>call:(?P<name>\w+)", "close": "<call|>", "repeats": True, "content": "json", "transform": CALL,
                "content_args": {"unquoted_keys": True, "string_delims": [["<q>", "<q>"]]},
            },
            content={"close": ["<E>", "<R>"]},
        ),
        "<A>", 'So.<|call>call:f{a:<q>b "c"<q>,n:3}<call|><R>',
        unbraid.Message(None, "So.", [unbraid.ToolCall("", "f", '{"a": "b \\"c\\"", "n": 3}')]),
    ),
    "parameters as elements": (
        template(thinking=THINK, tool_calls=tags(r"<call>\s*<function=(?P<name>\w+)>", "</call>", TAG)),
        "<A>", "<call>\n<function=f>\n<parameter=a>\n5\n</parameter>\n</function>\n</call><E>",
        unbraid.Message(None, None, [unbraid.ToolCall("", "f", '{"a": 5}')]),
    ),
    "parameters in attributes": (
        template(tool_calls=tags(r'<do\b[^>]*?\bname="(?P<name>[^"]+)">', "</do>", ATTRIBUTE)),
        "<A>", 'Hi\n<do name="a.b"><arg name="p">x y</arg></do><E>',
        unbraid.Message(None, "Hi", [unbraid.ToolCall("", "a.b", '{"p": "x y"}')]),
    ),
    "keys and values": (
        template(
            thinking={"open": "<think>", "close_pattern": r"</think>|(?=<call>)"},
            tool_calls=tags(r"<call>\s*(?P<name>[^\n<]+)\s*", "</call>", PAIRS),
        ),
        "<A><think>", "Hm<call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</call><E>",
        unbraid.Message("Hm", None, [unbraid.ToolCall("", "f", '{"a": "x"}')]),
    ),
    "headers of blocks": (
        template(
            thinking={"open_pattern": r"(?:<A>)?[^<]*<\|think\|>", "close": "<Z>", "repeats": True, "join": "", "content_args": {"strip": False}},
            content={"open_pattern": r"(?:<A>)?[^<]*<\|text\|>", "close": "<Z>", "repeats": True, "join": "", "content_args": {"strip": False}},
            tool_calls={**JSON_CALLS, "open": None, "open_pattern": r"(?:<A>)?[^<]*<\|do\|>", "close": "<Z>"},
        ),
        "<A>", 'me<|think|>Hm <Z><A>f<|do|>{"name": "f", "arguments": {}}<Z><A><|text|> Hi<Z><E>',
        unbraid.Message("Hm ", " Hi", [unbraid.ToolCall("", "f", "{}")]),
    ),
    "the answer begins with the thought": (
        template(thinking={"open_pattern": r"(?:^|<think>\s*)", "close": "</think>"}, content={"open": "<say>\n", "close_pattern": r"\n?</say>"}),
        "<A>", "Hm\n</think>\n\n<say>\nHi\n</say><E>", unbraid.Message("Hm", "Hi"),
    ),
}  # fmt: skip
TOKENS = (
    "<A>",
    "<E>",
    "<R>",
    "<Z>",
    "<think>",
    "</think>",
    "<call>",
    "</call>",
    "<|think|>",
    "<|text|>",
    "<|do|>",
    "<q>",
)
every_template = pytest.mark.parametrize("name", TEMPLATES)


def read(name: str) -> unbraid.Format:
    return from_template(TEMPLATES[name][0], Tokenizer(ends=["<E>"]), name)


def same(wanted: unbraid.Message, got: unbraid.Message) -> None:
    assert (got.reasoning, got.content) == (wanted.reasoning, wanted.content)
    assert [(c.name, json.loads(c.arguments), c.complete) for c in got.tool_calls] == [
        (c.name, json.loads(c.arguments), c.complete) for c in wanted.tool_calls
    ]


@every_template
def test_output_is_read(name: str) -> None:
    _, prompt, raw, wanted = TEMPLATES[name]
    fmt = read(name)
    same(wanted, unbraid.parse(fmt, raw, prompt=prompt))
    parser = unbraid.Parser(fmt, prompt=prompt)
    events = [event for char in raw for event in parser.feed_text(char)] + parser.finish()
    assert "".join(event.raw for event in events) == raw
    same(wanted, parser.message)


@every_template
def test_ids_are_read(name: str) -> None:
    _, prompt, raw, wanted = TEMPLATES[name]
    special = {text: 1000 + n for n, text in enumerate(TOKENS)}
    bound = read(name).bind(unbraid.Vocabulary.from_tokens({n: bytes([n]) for n in range(256)}, special=special))
    prompt_ids, ids = (bound.vocabulary.encode(text) for text in (prompt, raw))
    same(wanted, unbraid.parse(bound, ids, prompt=prompt_ids))
    assert bound.is_reasoning_end([*prompt_ids, *ids])
    assert bound.is_reasoning_end(prompt_ids) == (not bound.format.reasons)


@every_template
def test_it_is_a_table_like_any_other(name: str) -> None:
    fmt = read(name)
    data = json.loads(json.dumps(to_json(fmt)))
    assert to_json(from_json(data)) == data
    jsonschema.validate(data, json.loads(Path(unbraid.__file__).with_name("table.schema.json").read_text("utf-8")))
    assert not [finding for finding in lint(fmt) if finding.level == "error"]
    message = TEMPLATES[name][3]
    same(message, unbraid.parse(fmt, unbraid.render(fmt, message)))


def test_a_marker_in_a_field_that_isnt_its_own_is_text() -> None:
    """The reference looks for nothing but the field's own closer in it; so does the table."""
    message = unbraid.parse(read("leftover content"), 'So <call>{"name": 1}</think>Hi', prompt="<A><think>")
    assert (message.reasoning, message.content) == ('So <call>{"name": 1}', "Hi")


@pytest.mark.parametrize("raw", ["\n Hi \n<E>", "<think>Hm</think>\n Hi \n<E>", "\n Hi \n<call>"])
def test_white_space_at_the_ends_of_the_content_is_stripped(raw: str) -> None:
    assert unbraid.parse(read("leftover content"), raw, prompt="<A>").content == "Hi"


def test_an_opener_may_begin_in_the_prompt() -> None:
    assert unbraid.parse(read("leftover content"), "nk>x", prompt="<A><thi").reasoning == "x"


@pytest.mark.parametrize(("raw", "content"), [("x</a>", None), ("x</a>!y", "y"), ("x</a>y", "y")])
def test_one_closer_may_begin_another(raw: str, content: str | None) -> None:
    data = template(thinking={"open": "<a>", "close": ["</a>", "</a>!"]}, content={})
    message = unbraid.parse(from_template(data, Tokenizer(ends=["<E>"])), raw, prompt="<A><a>")
    assert (message.reasoning, message.content) == ("x", content)


def test_a_cut_call_is_a_cut_call() -> None:
    raw = '<call>{"name": "f", "arguments": {"a": "b'
    (call,) = unbraid.parse(read("leftover content"), raw, prompt="<A>", finish_reason="length").tool_calls
    assert (call.name, call.complete) == ("f", False)


def put(value: Any, *path: str) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


CALLS = ("fields", "tool_calls")
REFUSED = {
    "(top): unknown keys colour": put(1, "colour"),
    "version: only 1 is known": put(2, "version"),
    "fields: is empty": put({}, "fields"),
    "fields: expected an object": put([], "fields"),
    "fields/thinking: expected an object": put("<think>", "fields", "thinking"),
    "fields/thinking: unknown keys opens": put({"opens": "<think>"}, "fields", "thinking"),
    "fields/citations: a message has no place for it": put({"open": "<co>"}, "fields", "citations"),
    "fields: two of them are reasoning": put({"open": "<r>"}, "fields", "reasoning"),
    "fields: only one field may be without `open`": put({"close": "</think>"}, "fields", "thinking"),
    "fields/thinking: `open` and `open_pattern` exclude": put("x", "fields", "thinking", "open_pattern"),
    "fields/thinking/open: expected a text": put([""], "fields", "thinking", "open"),
    "fields/thinking: reasoning and content are plain text": put("json", "fields", "thinking", "content"),
    "fields/content/join: needs `repeats`": put("\n", "fields", "content", "join"),
    "fields/content/close_pattern: no regular expression": put({"close_pattern": "("}, "fields", "content"),
    "fields/thinking/close_pattern: 'a+' is more than a marker": put(
        {"open": "<t>", "close_pattern": "a+"}, "fields", "thinking"
    ),
    "fields/tool_calls/content: no call is written as 'kv-lines'": put("kv-lines", *CALLS, "content"),
    "fields/tool_calls/transform: expected a key": put({"name": "a", "arguments": "{content.b}"}, *CALLS, "transform"),
    "fields/tool_calls/open_pattern: more than fixed text behind the name": put(
        {**JSON_CALLS, "open": None, "open_pattern": r"<c>(?P<name>\w+).*?<m>", "transform": CALL}, *CALLS
    ),
    "start_anchor: is missing": put(None, "start_anchor"),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_no_table_can_say_is_refused_with_its_place(said: str) -> None:
    data = copy.deepcopy(TEMPLATES["leftover content"][0])
    REFUSED[said](data)
    with pytest.raises(unbraid.TableError) as caught:
        from_template(data, Tokenizer(ends=["<E>"]), "mine")
    assert f"mine: response_template, {said}" in str(caught.value)


def test_a_template_that_nothing_ends() -> None:
    with pytest.raises(unbraid.TableError, match="put `eos_token` beside it"):
        from_template(template(thinking=THINK), Tokenizer())


# -- files -------------------------------------------------------------------------------------------------------------

CHAT = "{% for m in messages %}<U>{{ m.content }}<E>{% endfor %}{% if add_generation_prompt %}<A>{% endif %}{# enable_thinking #}"


def write(folder: Path, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({"eos_token": "<E>", "chat_template": CHAT, **config}), "utf-8")
    return file


@pytest.mark.parametrize("place", ["folder", "configuration", "own file", "bare"])
def test_it_is_accepted_where_a_name_is(place: str, tmp_path: Path) -> None:
    said = TEMPLATES["leftover content"][0]
    config = write(tmp_path, response_template=said)
    own, bare = tmp_path / "mine.json", tmp_path / "bare.json"
    own.write_text(json.dumps({"response_template": said}), "utf-8")
    bare.write_text(json.dumps(said), "utf-8")
    path = {"folder": tmp_path, "configuration": config, "own file": own, "bare": bare}[place]
    fmt = unbraid.get_format(str(path))
    _, prompt, raw, wanted = TEMPLATES["leftover content"]
    same(wanted, unbraid.parse(fmt, raw, prompt=prompt))
    assert fmt.thinking.keywords == ("enable_thinking",)


def test_a_folder_without_one_is_a_name(tmp_path: Path) -> None:
    write(tmp_path / "Qwen3-8B")
    assert unbraid.get_format(str(tmp_path / "Qwen3-8B")).name == "qwen3"
    with pytest.raises(unbraid.TableError, match="unbraid_table: expected 1"):
        unbraid.get_format(str(tmp_path / "Qwen3-8B" / "tokenizer_config.json"))


def test_the_command_line_reads_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, response_template=TEMPLATES["leftover content"][0])
    (tmp_path / "raw.txt").write_text("<think>Hm</think>Hi<E>", "utf-8")
    assert main(["parse", "--format", str(tmp_path), "--json", str(tmp_path / "raw.txt")]) == 0
    assert json.loads(capsys.readouterr().out)["reasoning"] == "Hm"
    assert main(["show", "--table", str(tmp_path)]) == 0
    assert from_json(json.loads(capsys.readouterr().out)).reasons
    assert main(["lint", str(tmp_path)]) == 0
    capsys.readouterr()
    main(["detect", str(tmp_path)])
    assert f"--format {tmp_path}" in capsys.readouterr().out


# -- the older schema --------------------------------------------------------------------------------------------------

TEXT = {"type": "string"}
SCHEMAS: dict[str, tuple[dict[str, Any], str, str, unbraid.Message]] = {
    "a pattern a property": (
        {
            "thinking": {**TEXT, "x-regex": r"(?:^|<think>\s*)(.*?)\s*<\/think>"},
            "content": {**TEXT, "x-regex": "<say>\n(.*?)\n?</say>"},
            "tool_calls": {
                "x-regex-iterator": "<call>(.*?)</call>",
                "items": {"x-parser": "json", "x-parser-args": {"transform": "{type: 'function', function: @}"}},
            },
        },
        "", 'Hm</think><say>\nHi\n</say><call>{"name": "f", "arguments": {}}</call><E>',
        unbraid.Message("Hm", "Hi", [unbraid.ToolCall("", "f", "{}")]),
    ),
    "one array": (
        {
            "thinking": {**TEXT, "x-regex": r"<T>(.*?)(?:</T>|$)"}, "content": {**TEXT, "x-regex": r"<S>(.*?)(?:</S>|$)"},
            "tool_calls": {
                "x-regex": r"<C>(.*?)(?:</C>|$)", "x-parser": "json",
                "x-parser-args": {"transform": "[*].{type: 'function', function: {name: tool, arguments: args}}"},
            },
        },
        "", '<T>Hm</T><S>Hi</S><C>[{"tool": "f", "args": {}}]</C><E>',
        unbraid.Message("Hm", "Hi", [unbraid.ToolCall("", "f", "{}")]),
    ),
    "one pattern for all": (
        {"thinking": TEXT, "content": TEXT, "tool_calls": {"x-parser": "json"}},
        r"(?:<think>\n?(?P<thinking>.+?)\n?</think>)?\s*(?:<call>(?P<tool_calls>.+?)</call>)?\s*(?P<content>.+?)?\s*(?:<\|im_end\|>|$)",
        '<think>\nHm\n</think><call>[{"name": "f", "arguments": {}}]</call>Hi<|im_end|>',
        unbraid.Message("Hm", "Hi", [unbraid.ToolCall("", "f", "{}")]),
    ),
    "Gemma's calls": (
        {
            "thinking": TEXT, "content": TEXT,
            "tool_calls": {
                "x-regex-iterator": r"<\|call>(.*?)<call\|>",
                "items": {"properties": {"function": {"properties": {"arguments": {"x-parser": "gemma4-tool-call"}}}}},
            },
        },
        r"(<c>(?P<thinking>.*?)</c>)?(?P<tool_calls>.*)?(?P<content>(?:.)+?)?(?:<E>|<R>)?",
        '<c>Hm</c>Hi<|call>call:f{a:<|"|>b<|"|>}<call|><R>',
        unbraid.Message("Hm", "Hi", [unbraid.ToolCall("", "f", '{"a": "b"}')]),
    ),
    "keys and values": (
        {
            "content": TEXT,
            "tool_calls": {
                "x-regex-iterator": r"<call>(.*?)</call>",
                "items": {"properties": {"function": {"properties": {"arguments": {"x-regex-key-value": PAIRS}}}}},
            },
        },
        "", "Hi<call>f\n<arg_key>a</arg_key>\n<arg_value>5</arg_value>\n</call><E>",
        unbraid.Message(None, "Hi", [unbraid.ToolCall("", "f", '{"a": 5}')]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_says_the_same_as_a_template(name: str, tmp_path: Path) -> None:
    pytest.importorskip("jinja2")  # the anchor is the chat template's
    properties, pattern, raw, wanted = SCHEMAS[name]
    schema = {"type": "object", "properties": {"role": {"const": "assistant"}, **properties}}
    write(tmp_path, response_schema={**schema, "x-regex": pattern} if pattern else schema)
    same(wanted, unbraid.parse(unbraid.get_format(str(tmp_path)), raw, prompt="<U>Which way?<E><A>"))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({}, "properties: is missing"),
        ({"properties": {"thinking": TEXT}}, "properties/thinking: no pattern says where it stands"),
        ({"properties": {"thinking": {"x-regex": "(?<!a)(.*)"}}}, "'(?<!a)(.*)' is more than a marker can say"),
        ({"properties": {"thinking": {"x-regex": 3}}}, "expected a regular expression"),
        ({"properties": {"tool_calls": {"x-regex": "(.*)"}}}, "expected a pattern with a text before"),
        ({"properties": {"tool_calls": {"x-regex": "<c>(.*)</c>"}}}, "calls are read here if they are JSON"),
        (
            {"properties": {"tool_calls": {"x-regex": "<c>(.*)</c>", "x-parser": "json", "x-parser-args": {"transform": "a[]"}}}},
            "this JMESPath expression isn't known",
        ),
    ],
)  # fmt: skip
def test_a_schema_of_another_shape_is_refused(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(unbraid.TableError) as caught:
        to_template(schema, "mine")
    assert said in str(caught.value)


# -- anything ----------------------------------------------------------------------------------------------------------

JUNK = [
    None, 0, 1, True, "", "x", [], ["a"], [1], {}, {"name": "x"}, "(", "(?P<name>.*)", "{content}", "{content.a.b.c}", "(?=x)", "^", "$",
    "\\s*", "a|b|", [["a", "b"]], {"tag_pattern": "x"}, "eos", "xml-inline", "json", "kv-lines",
]  # fmt: skip
WORDS = [
    "open", "open_pattern", "close", "close_pattern", "content", "content_args", "repeats", "join", "transform", "transform_each",
    "start_anchor", "start_anchor_pattern", "thinking", "tag_pattern", "value_parser", "string_delims", "x-regex", "x-parser", "items",
]  # fmt: skip


def nodes(data: Any) -> Iterator[Any]:
    """Every object and list in it."""
    if isinstance(data, dict | list):
        yield data
        for item in data.values() if isinstance(data, dict) else data:
            yield from nodes(item)


def damaged(data: Any, draw: Callable[[st.SearchStrategy[Any]], Any]) -> Any:
    """The same with something else in one to three places."""
    data = copy.deepcopy(data)
    for _ in range(draw(st.integers(1, 3))):
        node = draw(st.sampled_from([node for node in nodes(data) if node] or [data]))
        key = draw(st.sampled_from([*node, *WORDS] if isinstance(node, dict) else list(range(len(node)))))
        node[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    return data


@given(data=st.data())
def test_a_damaged_template_is_a_table_or_an_error(data: st.DataObject) -> None:
    template = damaged(TEMPLATES[data.draw(st.sampled_from(list(TEMPLATES)))][0], data.draw)
    try:
        fmt = from_template(template, Tokenizer(ends=["<E>"]))
    except unbraid.TableError:
        return
    unbraid.parse(fmt, "<think>a</think>b<call>c", prompt="<A>")


@given(data=st.data())
def test_a_damaged_schema_is_a_table_or_an_error(data: st.DataObject) -> None:
    properties, pattern, *_ = SCHEMAS[data.draw(st.sampled_from(list(SCHEMAS)))]
    schema = damaged({"properties": properties, "x-regex": pattern or None}, data.draw)
    try:
        from_template(to_template(schema, "mine"), Tokenizer(ends=["<E>"], anchor="<A>"))
    except unbraid.TableError:
        return


# -- patterns ----------------------------------------------------------------------------------------------------------


def test_patterns_are_taken_apart() -> None:
    assert alternatives(r"<c>\s*<f=(?P<name>\w+)>") == [[Text("<c>"), Space(), Text("<f="), Group("name"), Text(">")]]
    assert alternatives(r"(?:^|<t>\s*)") == [[Begin()], [Text("<t>"), Space()]]
    assert alternatives(r"\n?</r>|$") == [[Space(newline=True), Text("</r>")]]
    assert alternatives(r"(?:<A>)?[^<]*<B>") == [[Maybe([Text("<A>")]), Wildcard(), Text("<B>")]]
    assert alternatives(r"a([)(\])]x)b") == [[Text("a"), Group(""), Text("b")]]


@pytest.mark.parametrize("pattern", ["a+", r"\1", "(?<!a)b", "(?:ab)*", "(?:a|b)" * 20, "(?:" * 200 + "a" + ")" * 200])
def test_patterns_that_are_no_markers(pattern: str) -> None:
    with pytest.raises(NoMarker):
        alternatives(pattern)
