"""Calls whose opening wrapper is missing (`orphan_call="recover"`): what is one, and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest
from tokens import tokens

import unbraid

RECOVER = unbraid.Policy(orphan_call="recover")
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "now"}},
    {
        "type": "function",
        "function": {
            "name": "ferry",
            "parameters": {
                "$ref": "#/$defs/trip",
                "anyOf": [{"required": ["boat"]}, {"required": ["line"]}],
                "properties": {"guests": {"type": "integer"}},
                "$defs": {
                    "trip": {"properties": {"to": {"type": "string"}}, "allOf": [{"required": ["to"]}], "required": 7}
                },
            },
        },
    },
]
BODIES = {
    "qwen2_5": ('{"name": "%s", "arguments": {"%s": "x"}}', "\n</tool_call>"),
    "lfm2": ("[now(), %s(%s='x')]", "<|tool_call_end|>"),
    "glm45": ("%s\n<arg_key>%s</arg_key>\n<arg_value>x</arg_value>", "\n</tool_call>"),
    "deepseek_v31": ('%s<｜tool▁sep｜>{"%s": "x"}', "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
}  # fmt: skip
"""Of some formats, a body whose last call has a name and a key to fill in, and the closer."""


def read(name: str, text: str, size: int, tools: list[dict[str, Any]] | None, ids: bool) -> unbraid.Message:
    source = tokens(name)
    parser = unbraid.Parser(
        source.bound if ids else unbraid.get_format(name), tools=tools, thinking=False, policy=RECOVER
    )
    whole = source.encode(text) if ids else text
    for at in range(0, len(whole), size):
        piece: Any = whole[at : at + size]
        parser.feed(piece) if ids else parser.feed_text(piece)
    parser.finish()
    return parser.message


@pytest.mark.parametrize("ids", [False, True], ids=["text", "ids"])
@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("name", BODIES)
def test_a_call_is_one_if_it_could_be_meant(name: str, size: int, ids: bool) -> None:
    body, closer = BODIES[name]

    def called(tool: str, key: str, tools: list[dict[str, Any]] | None = TOOLS, end: str = closer) -> unbraid.Message:
        return read(name, body % (tool, key) + end, size, tools, ids)

    good = called("ferry", "to")
    assert (good.tool_calls[-1].name, good.tool_calls[-1].arguments, good.content) == ("ferry", '{"to": "x"}', None)
    assert not good.diagnostics
    assert called("anything", "to", None).tool_calls[-1].name == "anything"  # nobody knows what is offered

    for tool, key, said in [
        ("train", "to", "no tool 'train' was offered"),
        ("ferry", "guests", "a call of 'ferry' without its required 'to'"),
    ]:
        other = called(tool, key)
        assert not other.tool_calls
        assert (other.content or "").startswith(body % (tool, key))  # one of several is enough
        assert [(note.kind, note.message) for note in other.diagnostics if note.kind == "no_call"] == [
            ("no_call", said)
        ]

    assert not called("ferry", "to", end="").tool_calls
    assert not called("ferry", "to", end=" is how I would write it.").tool_calls


def test_what_is_offered_decides_not_what_becomes_of_unknown_tools() -> None:
    text = '{"name": "train", "arguments": {}}\n</tool_call>'
    for unknown in ("forward", "content"):
        policy = unbraid.Policy(orphan_call="recover", unknown_tool=unknown)
        message = unbraid.parse(unbraid.get_format("qwen2_5"), text, tools=TOOLS, policy=policy)
        assert not message.tool_calls
    opened = unbraid.parse(unbraid.get_format("qwen2_5"), f"<tool_call>\n{text}", tools=TOOLS, policy=RECOVER)
    assert [call.name for call in opened.tool_calls] == ["train"]  # with its opener it is a call, whatever it calls
