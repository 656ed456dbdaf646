"""The renderer writes what the parser reads: a round trip for every registered format."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from effort import A_QUARTER
from fixtures import own_texts
from hypothesis import given
from hypothesis import strategies as st
from tokens import tokens

import unbraid
from unbraid import Message, ToolCall
from unbraid.formats import FORMATS
from unbraid.schema import MAX_DEPTH

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "on": {"type": "boolean"},
        "tree": {"type": "object"},
        "list": {"type": "array"},
    },
}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in ("find", "get_weather", "a.b")
]

MARKUP = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "</parameter>",
    "<|im_end|>",
    "\n</parameter>\n",
    "```",
    "</arg_value>",
]


@cache
def texts(name: str) -> st.SearchStrategy[str]:
    """Any text; and what a careless parser would take for markup: the format's own markers, and others'."""
    pieces = [*sorted(own_texts(FORMATS[name])), *MARKUP, "a", " ", "\n", '"', "\\", "🙂", "深"]
    return st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.sampled_from(pieces)).map("".join)


@cache
def arguments(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """What a tool may be called with: unicode, nested objects, numbers of any size, nothing at all."""
    text = texts(name)
    scalars = (
        text
        | st.integers()
        | st.integers(10**30, 10**40)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.booleans()
        | st.none()
    )
    values = st.recursive(
        scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "text": text,
            "count": st.integers(),
            "ratio": st.floats(allow_nan=False, allow_infinity=False),
            "on": st.booleans(),
            "tree": st.dictionaries(text, values, max_size=3),
            "list": st.lists(values, max_size=3),
        },
    )


@st.composite
def messages(draw: st.DrawFn, format: str) -> Message:
    calls = [
        ToolCall(
            f"functions.{name}:{index}", name, json.dumps(draw(arguments(format)), ensure_ascii=draw(st.booleans()))
        )
        for index, name in enumerate(draw(st.lists(st.sampled_from(["find", "get_weather", "a.b"]), max_size=3)))
    ]
    reasoning, content = (draw(st.none() | texts(format).filter(bool)) for _ in range(2))
    return Message(reasoning, content, calls)


def same(wanted: Message, got: Message) -> bool:
    """Equal but for the spelling of arguments' white space and for ids that the format doesn't write."""
    return (wanted.reasoning, wanted.content) == (got.reasoning, got.content) and [
        (call.name, json.loads(call.arguments), call.complete) for call in wanted.tool_calls
    ] == [(call.name, json.loads(call.arguments), call.complete) for call in got.tool_calls]


@pytest.mark.parametrize("name", FORMATS)
@A_QUARTER
@given(data=st.data())
def test_what_is_written_is_read(name: str, data: st.DataObject) -> None:
    fmt, message = FORMATS[name], data.draw(messages(name))
    try:
        text = unbraid.render(fmt, message, tools=TOOLS)
    except unbraid.RenderError as error:
        assert error.part  # noqa: PT017 - the error is one of two good outcomes
        assert error.format == name  # noqa: PT017
        return
    assert same(message, unbraid.parse(fmt, text, tools=TOOLS))


@pytest.mark.parametrize("name", FORMATS)
@A_QUARTER
@given(data=st.data())
def test_what_is_written_as_ids_is_read(name: str, data: st.DataObject) -> None:
    tok, message = tokens(name), data.draw(messages(name))
    try:
        ids = unbraid.render_ids(tok.bound, message, tools=TOOLS)
    except (unbraid.RenderError, unbraid.VocabularyError):
        return
    assert same(message, unbraid.parse(tok.bound, ids, tools=TOOLS))


PLAIN = Message(
    "Which one?\nThe first.", "Looking.", [ToolCall("functions.find:0", "find", '{"text": "a b", "count": 3}')]
)


@pytest.mark.parametrize("name", FORMATS)
def test_an_ordinary_message_can_be_written(name: str) -> None:
    """Whatever a format can hold at all, it holds for a message without traps."""
    fmt = FORMATS[name]
    places = {state.strand for state in fmt.states if not state.otherwise and not state.undecided}
    reasoning = PLAIN.reasoning if "reasoning" in places else None
    if any(state.prepend for state in fmt.states):
        pytest.skip("what this format shows isn't what was written: a view, not a way of writing")
    calls = PLAIN.tool_calls if fmt.calls else []
    for message in (Message(reasoning, PLAIN.content, []), Message(reasoning, None, calls)):
        assert same(message, unbraid.parse(fmt, unbraid.render(fmt, message, tools=TOOLS), tools=TOOLS))


def tree(depth: int) -> Message:
    inner = '{"a": ' * depth + '"x"' + "}" * depth
    return Message(None, None, [ToolCall("functions.find:0", "find", f'{{"tree": {inner}}}')])


@pytest.mark.parametrize("name", [name for name, fmt in FORMATS.items() if fmt.calls])
def test_arguments_nest_as_deep_in_every_format(name: str) -> None:
    """Some count what stands around the arguments too, but none more than three brackets."""
    deep = tree(MAX_DEPTH - 4)
    assert same(deep, unbraid.parse(FORMATS[name], unbraid.render(FORMATS[name], deep, tools=TOOLS), tools=TOOLS))
    with pytest.raises(unbraid.RenderError):
        unbraid.render(FORMATS[name], tree(MAX_DEPTH), tools=TOOLS)


@pytest.mark.parametrize(("depth", "kinds"), [(MAX_DEPTH, []), (MAX_DEPTH + 1, ["malformed_call"])])
def test_elements_nest_no_deeper(depth: int, kinds: list[str]) -> None:
    sign = "]<]minimax[>["
    body = f"{sign}<a>" * depth + f"{sign}</a>" * depth
    text = f'{sign}<tool_call>{sign}<invoke name="f">{body}{sign}</invoke>{sign}</tool_call>'
    message = unbraid.parse(FORMATS["minimax_m3"], text)
    assert [each.kind for each in message.diagnostics] == kinds
    assert bool(message.tool_calls) == (not kinds)


@pytest.mark.parametrize("name", ["mistral_v13", "mistral_v15", "magistral"])
def test_behind_the_last_call_no_thought_begins(name: str) -> None:
    assert unbraid.render(FORMATS[name], Message(None, None, PLAIN.tool_calls), tools=TOOLS).endswith("}")


@pytest.mark.parametrize("name", ["glm47", "lfm2", "olmo3", "qwen3", "seed_oss"])
def test_white_space_that_a_marker_would_take_is_kept(name: str) -> None:
    """The marker gets all the white space that it may own, so that the text's own is none of it."""
    message = Message("\n\nHm.\n\n", "\n\nYes.\n\n")
    assert same(message, unbraid.parse(FORMATS[name], unbraid.render(FORMATS[name], message)))


@pytest.mark.parametrize("name", ["minimax_m2", "beam", "deepseek_v41"])
def test_a_name_with_quotes_stands_in_others(name: str) -> None:
    message = Message(None, None, [ToolCall("x", "f", '{"a \\"b\\"": "c", "it\'s": "d"}')])
    assert same(message, unbraid.parse(FORMATS[name], unbraid.render(FORMATS[name], message)))
    with pytest.raises(unbraid.RenderError):
        unbraid.render(FORMATS[name], Message(None, None, [ToolCall("x", "f", '{"\'\\"": "c"}')]))


def test_an_error_names_the_part() -> None:
    with pytest.raises(unbraid.RenderError, match="qwen3 can't express reasoning") as caught:
        unbraid.render(FORMATS["qwen3"], Message("a </think> b", "c"))
    assert caught.value.part == "reasoning"
    with pytest.raises(unbraid.RenderError, match="glm47 can't express the call of f"):
        unbraid.render(FORMATS["glm47"], Message(tool_calls=[ToolCall("x", "f", '{"a": "</arg_value>"}')]))


def test_ids_tell_text_from_markers() -> None:
    """What text can't express, ids can: a marker spelled in content is text."""
    bound = tokens("qwen3").bound
    message = Message(content="write <think> to think")
    with pytest.raises(unbraid.RenderError):
        unbraid.render(bound.format, message)
    assert unbraid.parse(bound, unbraid.render_ids(bound, message)) == message.__class__(
        None, message.content, [], [unbraid.TextPart("content", "write <think> to think")]
    )
