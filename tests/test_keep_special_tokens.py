"""Special tokens that readers expect to see: per format, per server, per request; the same in the stream and in the one-shot reply."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from broken import FORMAT, Actor, zoo_tokens
from fixtures import FIXTURES
from tokens import tokens

import unbraid
from unbraid.errors import UnbraidError
from unbraid.formats import FORMATS
from unbraid.integrity.cases import end_tokens
from unbraid.integrity.layers import Said, from_object, from_stream
from unbraid.server import Settings, create_app
from unbraid.server.options import add_arguments, resolved, settings_of
from unbraid.table import Format

END = "<|im_end|>"
KEEP = unbraid.Policy(keep_special_tokens=frozenset({END}))


async def said(fmt: Format, settings: Settings, stream: bool, asked: str = "Say good night.", **fields: Any) -> Said:
    """What a client of this server is told."""
    transport = httpx.ASGITransport(create_app(Actor(), fmt, settings))
    body = {"messages": [{"role": "user", "content": asked}], "stream": stream, **fields}
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        response = await http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    reply = from_stream(response.text) if stream else from_object(response.text)
    assert reply.problems == []
    return reply.choices[0]


def flags(*words: str) -> Settings:
    """The settings of `unbraid serve` with these words."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return settings_of(resolved(parser.parse_args(words), {}))


WAYS: dict[str, tuple[Format, Settings, dict[str, Any]]] = {
    "not at all": (FORMAT, Settings(), {}),
    "format": (FORMAT.replace(visible=(END,)), Settings(), {}),
    "server": (FORMAT, flags("--keep-special-tokens", END), {}),
    "request": (FORMAT, Settings(), {"keep_special_tokens": [END]}),
}


@pytest.mark.parametrize("stream", [False, True], ids=["one-shot", "stream"])
@pytest.mark.parametrize("way", WAYS)
async def test_the_end_tag_is_shown_where_it_is_wanted(way: str, stream: bool) -> None:
    fmt, settings, fields = WAYS[way]
    heard = await said(fmt, settings, stream, **fields)
    assert heard.content == ("Good night." if way == "not at all" else f"Good night.{END}")
    assert heard.reasoning == "They want a short answer.\n\nSo be it."
    assert heard.finish == "stop"


@pytest.mark.parametrize("stream", [False, True], ids=["one-shot", "stream"])
async def test_a_reply_that_was_cut_off_has_no_end_tag(stream: bool) -> None:
    """Whoever waits for the tag waits for ever; `finish_reason` comes all the same."""
    heard = await said(*WAYS["server"][:2], stream, asked="Tell a story about a lighthouse.", max_tokens=4)
    assert heard.content is not None
    assert END not in heard.content
    assert heard.finish == "length"


@pytest.mark.parametrize("stream", [False, True], ids=["one-shot", "stream"])
async def test_calls_are_calls_and_the_tag_follows(stream: bool) -> None:
    tool = {"type": "function", "function": {"name": "get_time"}}
    heard = await said(*WAYS["server"][:2], stream, asked="What time is it?", tools=[tool])
    assert [(call.name, call.arguments) for call in heard.calls] == [("get_time", "{}")]
    assert (heard.content, heard.finish) == (END, "tool_calls")


def test_a_tag_that_the_model_only_spells_is_text_and_no_end() -> None:
    made = zoo_tokens()
    ids = made.encode(f"Write ⟦{END}⟧ at the end.{END}")
    message = unbraid.parse(FORMAT.bind(made.vocabulary), ids, thinking=False, policy=KEEP)
    assert message.content == f"Write {END} at the end.{END}"
    assert unbraid.parse(FORMAT.bind(made.vocabulary), ids, thinking=False).content == f"Write {END} at the end."


def test_a_token_that_the_model_does_not_have_is_refused_at_the_start() -> None:
    with pytest.raises(UnbraidError, match=r"keep-special-tokens: '<end>' is no special token of 'actor'"):
        create_app(Actor(), FORMAT, flags("--keep-special-tokens", "<end>"))


def test_an_engine_without_ids_keeps_what_its_format_knows() -> None:
    engine = Actor()
    engine.abilities = replace(engine.abilities, token_ids=False)
    create_app(engine, FORMAT, flags("--keep-special-tokens", END))
    with pytest.raises(
        UnbraidError, match=r"'<end>' is no special token of qwen3, which reads text here; it has .*<\|im_end\|>"
    ):
        create_app(engine, FORMAT, flags("--keep-special-tokens", "<end>"))


def kept() -> Iterator[Any]:
    """For every format, a fixture that ends with an end of turn by a token of its own."""
    for name, fmt in FORMATS.items():
        for case in FIXTURES.get(name, ()):
            end = next((t for t in end_tokens(fmt) if case.raw.endswith(t) and t in tokens(name).special), None)
            if end and case.finish == "stop" and case.policy == unbraid.Policy() and (case.content or case.calls):
                yield pytest.param(name, case, end, id=f"{name}-{case.name}")
                break


@pytest.mark.parametrize(("name", "case", "end"), [*kept()])
def test_every_format_can_show_its_end(name: str, case: Any, end: str) -> None:
    made = tokens(name)
    policy = unbraid.Policy(keep_special_tokens=frozenset({end}))
    ids = made.encode(case.raw)
    words: dict[str, Any] = {"tools": case.tools, "thinking": case.thinking}
    words["prompt"] = made.encode(case.prompt) if case.prompt else None
    bound = FORMATS[name].bind(made.vocabulary)
    plain, shown = unbraid.parse(bound, ids, **words), unbraid.parse(bound, ids, policy=policy, **words)
    # White space between a call and the tag is nobody's where the tag is nobody's, and content beside a tag that is shown.
    assert shown.content is not None
    assert shown.content.endswith(end)
    assert shown.content.removesuffix(end).rstrip() == (plain.content or "").rstrip()
    assert (shown.reasoning, shown.tool_calls) == (plain.reasoning, plain.tool_calls)
    parser = unbraid.Parser(bound, policy=policy, **words)
    for id in ids:
        parser.feed([id])
    parser.finish("stop")
    assert parser.message == shown


def test_a_table_in_a_file_can_say_it(tmp_path: Any) -> None:
    from unbraid.serialize import to_json

    data = to_json(FORMAT)
    data["visible"] = [END]
    file = tmp_path / "ours.json"
    file.write_text(json.dumps(data))
    made = zoo_tokens()
    ids = made.encode(f"Hi.{END}")
    assert (
        unbraid.parse(unbraid.get_format(str(file)).bind(made.vocabulary), ids, thinking=False).content == f"Hi.{END}"
    )
