"""What is said about output that leaves its format: once for each thing, where it stands, and what stands there.

That no cut of a stream changes it holds for every format, and any input: see `test_properties.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from fixtures import own_texts
from tokens import UNKNOWN, tokens

import unbraid
from unbraid.events import MOST_OF_A_KIND, QUOTED, Diagnostic
from unbraid.formats import FORMATS


def notes(name: str, text: str, size: int) -> list[Diagnostic]:
    parser = unbraid.Parser(unbraid.get_format(name))
    for at in range(0, len(text), size):
        parser.feed_text(text[at : at + size])
    parser.finish()
    return parser.message.diagnostics


SECTION = "<｜tool▁calls▁begin｜>"
STREAMS: dict[str, tuple[str, str, list[tuple[str, str, str]]]] = {
    # what: format, text, of each diagnostic kind, the character before it, and the first of what was found
    "text between calls is one, with all its white space": (
        "minimax_m2",
        "<minimax:tool_call>\nnot \n a call <invoke name=\"f\"></invoke></minimax:tool_call>",
        [("stray_text", "\n", "not \n a call <invoke")],
    ),
    "brackets behind a body": (
        "qwen3", '<tool_call>\n{"name": "f", "arguments": {}}} }\n]</tool_call>', [("surplus_text", "}", "} }\n]</tool_call>")],
    ),
    "a body that is none": ("qwen3", "<tool_call>\nnone</tool_call>", [("malformed_call", "\n", "none</tool_call>")]),
    "tags in a framed value: once for each call": (
        "qwen3_coder",
        2 * ("<tool_call>\n<function=f>\n<parameter=a>\nx </parameter> y\n</parameter>\nz\n</parameter>\nz\n</parameter>\n"
        "<parameter=b>\n</parameter>\nz\n</parameter>\n</function>\n</tool_call>\n"),
        2 * [("ambiguous_value", "\n", "</parameter>\nz\n")],
    ),
    "a tag at once in a framed value": (
        "qwen3_coder",
        "<tool_call>\n<function=f>\n<parameter=a>\n</function>\nis one\n</parameter>\n</function>\n</tool_call>",
        [("ambiguous_value", "\n", "</function>\nis one\n")],
    ),
    "a tag in a value without frame": (
        "minimax_m2",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">x</invoke>y</parameter>\n</invoke>\n</minimax:tool_call>',
        [("ambiguous_value", "x", "</invoke>y<")],
    ),
    "the call's end in a value": (
        "glm45",
        "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</tool_call> y</arg_value>\n</tool_call>",
        [("ambiguous_value", "x", "</tool_call> y</")],
    ),
    "two calls, each with strings that needed repair": (
        "qwen3",
        2 * '<tool_call>{"name": "f", "arguments": {"a": "x\ny\nz", "b": "\t"}}</tool_call>',
        [("repaired_string", "x", ""), ("repaired_string", "x", "")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", STREAMS)
@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_what_goes_on_is_one(what: str, size: int) -> None:
    name, text, wanted = STREAMS[what]
    found = notes(name, text, size)
    assert [each.kind for each in found] == [kind for kind, _, _ in wanted]
    for each, (_, before, first) in zip(found, wanted, strict=True):
        assert text[each.offset - 1] == before
        assert each.found.startswith(first)
        assert each.found == (text[each.offset :][:QUOTED] if first else "")


@pytest.mark.parametrize("body", ['{"' + "n" * 600 + '": 1}', '{"name": "' + "n" * 600 + '"}'])
@pytest.mark.parametrize("size", [1, 50, 1000])
def test_a_key_or_name_that_is_too_long_is_called_that(body: str, size: int) -> None:
    (note,) = notes("qwen3_instruct", f"<tool_call>\n{body}\n</tool_call>", size)
    assert note.message.startswith("a key or name of more than 512 characters")


def test_what_was_found_is_said_with_the_rest() -> None:
    note = notes("qwen3", "<tool_call>\n{'name'}\n</tool_call> and more of it, until the line is full", 7)[0]
    assert note.text == f"{note.message}: {note.found!r}"
    assert str(note) == f"qwen3, state calling, character 13: {note.text}"
    assert note.found == "'name'}\n</tool_call> and more of it, unt"
    assert "found" in note._asdict()


def by_ids(name: str, ids: Sequence[int], size: int, prompt: str = "") -> list[Diagnostic]:
    parser = unbraid.Parser(tokens(name).bound, prompt=prompt)
    for at in range(0, len(ids), size):
        parser.feed(ids[at : at + size])
    parser.finish()
    return parser.message.diagnostics


@pytest.mark.parametrize("size", [1, 2, 100])
def test_an_unknown_id_is_noted_where_it_stands(size: int) -> None:
    tok = tokens("qwen3_instruct")
    call = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'
    first, second = tok.encode("One. "), tok.encode(call)
    found = by_ids("qwen3_instruct", [UNKNOWN[0], *first, UNKNOWN[1], *second, UNKNOWN[2], UNKNOWN[3]], size)
    assert [(each.kind, each.offset) for each in found] == [
        ("unknown_token", at) for at in (0, 5, 5 + len(call), 5 + len(call))
    ]
    assert [f"id {id} " in each.message for each, id in zip(found, UNKNOWN, strict=False)] == [True] * 4


@pytest.mark.parametrize("size", [1, 3, 100])
def test_every_stray_marker_is_one(size: int) -> None:
    ids = tokens("minimax_m2_append_think").encode("a </minimax:tool_call></minimax:tool_call> b </minimax:tool_call>")
    found = by_ids("minimax_m2_append_think", ids, size, "]~b]ai\n<think>\n")
    assert [(each.kind, each.offset) for each in found] == [("stray_marker", at) for at in (2, 22, 45)]


def test_a_message_has_them_in_order_and_a_parser_as_they_grow() -> None:
    parser = unbraid.Parser(unbraid.get_format("qwen3_instruct"))
    parser.feed_text("<tool_call>\nno")
    assert [each.found for each in parser.diagnostics] == ["no"]
    parser.feed_text(" call")
    assert [each.found for each in parser.message.diagnostics] == ["no call"]


def test_what_was_noted_of_the_prompt_is_none_of_the_output() -> None:
    prompt = "<|im_start|>assistant\n<tool_call>\nno call"
    parser = unbraid.Parser(unbraid.get_format("qwen3_instruct"), prompt=prompt)
    parser.feed_text(" at all, " * 20)
    assert parser.diagnostics == []
    assert parser.fork().message.diagnostics == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_message_has_so_many_of_a_kind_however_much_garbage_comes(name: str) -> None:
    """Of what is noticed at each of a thousand places the first are listed, and the last of those counts the rest."""
    chance = random.Random(name)
    markers = sorted(own_texts(FORMATS[name])) or ["<tool_call>"]
    chance.shuffle(markers)
    unit = "".join(marker + chance.choice(("x", "{", "[{", "", "\n", " }", '{"name')) for marker in markers)
    text = unit * (MOST_OF_A_KIND + 3)
    found = notes(name, text, len(text))
    assert found == notes(name, text, 3)
    assert max(Counter(each.kind for each in found).values(), default=0) <= MOST_OF_A_KIND
    cut = [each for each in found if each.more]
    for last in cut:
        listed = [each for each in found if each.kind == last.kind]
        assert len(listed) == MOST_OF_A_KIND
        assert last.text.endswith(f"and {last.more} more of this kind behind it")
        assert all(each.offset <= last.offset for each in listed)
    ids = tokens(name).encode(text)
    assert by_ids(name, ids, len(ids)) == by_ids(name, ids, 1)


def test_each_brace_is_counted() -> None:
    (section, *_) = (notes("minimax_m1", "<tool_calls>\n" + "{" * 1000 + "</tool_calls>", 7),)
    assert sum(1 + each.more for each in section) == 500
    assert len(section) == MOST_OF_A_KIND
