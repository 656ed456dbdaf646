"""What every format's fixtures say, in every protocol: the joined stream is the one-shot reply, and both are the message."""

from __future__ import annotations

import json
from typing import Any

import fixtures
import pytest
from fixtures import Fixture
from test_openai_chat import chunks_of, joined
from test_projections import accumulated, sent
from tokens import tokens

import unbraid
from unbraid.anthropic import MessagesWriter
from unbraid.openai import ChatWriter, Choice, Delta, Options, ResponsesWriter, Usage

SPENT = Usage(1, 2, 0)
OPTIONS = Options(logprobs=False)


def deltas_of(case: Fixture, finish: Any, upto: int | None = None) -> tuple[list[Delta], unbraid.Message]:
    """A token at a time."""
    tok = tokens(case.format)
    prompt = None if case.prompt is None else tok.encode(case.prompt)
    parser = unbraid.Parser(tok.bound, prompt=prompt, **case.options)
    choice = Choice(0, OPTIONS)
    out = choice.open()
    for id in tok.encode(case.raw)[:upto]:
        out += choice.feed(parser.feed([id]), [id])
    out += choice.feed(parser.finish(finish))
    return out + choice.finish(finish), parser.message


@pytest.mark.parametrize("format", fixtures.FIXTURES)
def test_every_protocol_says_what_the_message_says(format: str) -> None:
    for case in fixtures.FIXTURES[format]:
        check(*deltas_of(case, case.finish), case.finish)
        check(*deltas_of(case, "length", upto=len(tokens(format).encode(case.raw)) * 2 // 3), "length")


def check(said: list[Delta], message: unbraid.Message, finish: str) -> None:
    calls = [(call.name, call.arguments, call.complete) for call in message.tool_calls]
    expected = "length" if finish == "length" else "tool_calls" if any(whole for _, _, whole in calls) else "stop"
    chat(said, message, expected)
    messages(said, calls, {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens"}[expected])
    responses(said, calls, "incomplete" if finish == "length" else "completed")


def chat(said: list[Delta], message: unbraid.Message, expected: str) -> None:
    (choice,) = ChatWriter("x", 1, "m").whole([said], SPENT)["choices"]
    one = choice["message"]
    stream = joined(chunks_of(ChatWriter("x", 1, "m").encode(0, said)))
    assert one["content"] == message.content
    assert one.get("reasoning") == message.reasoning
    assert [(c["function"]["name"], c["id"]) for c in one.get("tool_calls", ())] == [
        (call.name, call.id) for call in message.tool_calls
    ]
    for call, own in zip(one.get("tool_calls", ()), message.tool_calls, strict=True):
        assert call["function"]["arguments"] == own.arguments
    assert choice["finish_reason"] == stream["finish"] == expected
    assert (stream["content"] or None, stream["reasoning"] or None) == (one["content"], one.get("reasoning"))
    assert [(call["id"], call["arguments"]) for call in stream["calls"].values()] == [
        (call["id"], call["function"]["arguments"]) for call in one.get("tool_calls", ())
    ]


def messages(said: list[Delta], calls: list[tuple[str, str, bool]], expected: str) -> None:
    whole = MessagesWriter("x", "m").whole([said], SPENT)
    writer = MessagesWriter("x", "m")
    assert accumulated(sent(writer.encode(0, said) + writer.end(SPENT))) == whole
    used = [block for block in whole["content"] if block["type"] == "tool_use"]
    assert [block["name"] for block in used] == [name for name, _, _ in calls]
    for block, (_, arguments, complete) in zip(used, calls, strict=True):
        assert not complete or block["input"] == json.loads(arguments)
    assert whole["stop_reason"] == expected


def responses(said: list[Delta], calls: list[tuple[str, str, bool]], expected: str) -> None:
    whole = ResponsesWriter("x", 1, "m").whole([said], SPENT)
    writer = ResponsesWriter("x", 1, "m")
    events = sent(writer.encode(0, said) + writer.end(SPENT))
    assert (events[-1]["response"], events[-1]["type"]) == (whole, f"response.{expected}")
    made = [(item["name"], item["arguments"]) for item in whole["output"] if item["type"] == "function_call"]
    assert made == [(name, arguments) for name, arguments, _ in calls]
