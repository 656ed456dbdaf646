"""HY's checkpoints put a suffix into every special token: found in the vocabulary, whatever it is."""

from __future__ import annotations

import pytest
from tokens import Tokens

import unbraid
from unbraid.suffix import find_suffix, suffixed, with_suffix

OUTPUT = "Hm.</think>So.<tool_calls><tool_call>f<arg_key>a</arg_key><arg_value>x <arg_key> y</arg_value></tool_call></tool_calls>"


def marked(text: str, suffix: str) -> str:
    """The output as a checkpoint with this suffix writes it; the key's tag in the value stays bare: it's text there."""
    for tag in (
        "</think>",
        "<tool_calls>",
        "<tool_call>",
        "</arg_key>",
        "<arg_value>",
        "</arg_value>",
        "</tool_call>",
        "</tool_calls>",
    ):
        text = text.replace(tag, suffixed(tag, suffix))
    return text.replace("f<arg_key>", "f" + suffixed("<arg_key>", suffix))


@pytest.mark.parametrize("suffix", ["", ":opensource", ":6124c78e", ":v9"])
@pytest.mark.parametrize("name", ["hy_v3", "hy_v4"])
def test_by_ids_any_suffix_is_found(name: str, suffix: str) -> None:
    fmt = unbraid.get_format(name)
    tok = Tokens(with_suffix(fmt, suffix))
    assert find_suffix(fmt, tok.vocabulary.special) == suffix
    bound = fmt.bind(tok.vocabulary)
    prompt = tok.encode(suffixed("<｜hy_Assistant｜>", suffix) + suffixed("<think>", suffix))
    message = unbraid.parse(bound, tok.encode(marked(OUTPUT, suffix)), prompt=prompt)
    assert (message.reasoning, message.content) == ("Hm.", "So.")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("f", '{"a": "x <arg_key> y"}')]
    assert bound.reasoning_end_ids == (tok.special[suffixed("</think>", suffix)],)


@pytest.mark.parametrize(("name", "suffix"), [("hy_v3", ""), ("hy_v3", ":opensource"), ("hy_v4", ":6124c78e")])
def test_in_text_known_suffixes_are_read(name: str, suffix: str) -> None:
    message = unbraid.parse(unbraid.get_format(name), marked(OUTPUT, suffix), thinking=True)
    assert (message.reasoning, message.content) == ("Hm.", "So.")
    assert [call.name for call in message.tool_calls] == ["f"]


@pytest.mark.parametrize(
    ("text", "marked"), [("<think>", "<think:x>"), ("<｜hy_User｜>", "<｜hy_User:x｜>"), ("[END]", "[END:x]")]
)
def test_a_suffix_stands_before_the_closing_bracket(text: str, marked: str) -> None:
    assert suffixed(text, ":x") == marked
