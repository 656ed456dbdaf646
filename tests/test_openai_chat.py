"""Chat Completions from hand-made events: what the assembler promises, whatever format and engine wrote them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any, Literal

import pytest
from handmade import FULL, PARTS, PLAIN, Logprob, Script, deltas_of, script_of
from hypothesis import given
from hypothesis import strategies as st

from unbraid.errors import RequestError
from unbraid.openai import (
    ChatWriter,
    Choice,
    Delta,
    Options,
    StopStrings,
    Usage,
    choice_object,
    chunk_object,
    reasoning_wishes,
    usage_object,
)
from unbraid.protocol import encode_json


def reply_of(script: Script, options: Options = PLAIN, reason: Literal["stop", "length"] = "stop") -> dict[str, Any]:
    return choice_object(0, deltas_of(script, options, reason), options)


def joined(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of a stream, written without looking at `fold`."""
    out: dict[str, Any] = {
        "content": "",
        "reasoning_content": "",
        "reasoning": "",
        "calls": {},
        "finish": None,
        "entries": [],
    }
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            for name in ("content", "reasoning_content", "reasoning"):
                out[name] += delta.get(name) or ""
            for call in delta.get("tool_calls", ()):
                known = out["calls"].setdefault(call["index"], {"id": "", "name": "", "arguments": ""})
                known["id"] += call.get("id", "")
                known["name"] += call["function"].get("name", "")
                known["arguments"] += call["function"]["arguments"]
                known["withdrawn"] = call.get("withdrawn", False)
            out["finish"] = choice["finish_reason"] or out["finish"]
            out["entries"] += (choice["logprobs"] or {}).get("content", [])
    out["calls"] = {index: call for index, call in out["calls"].items() if not call.pop("withdrawn")}
    return out


def chunks_of(data: bytes) -> list[dict[str, Any]]:
    lines = data.decode().split("\n\n")
    assert lines.pop() == ""
    assert all(line.startswith("data: ") for line in lines)
    return [json.loads(line.removeprefix("data: ")) for line in lines if line != "data: [DONE]"]


# The shape of a stream


def test_role_comes_first_and_once_and_the_reason_last() -> None:
    deltas = deltas_of(FULL)
    assert [d.kind for d in deltas] == [
        "role",
        "reasoning",
        "reasoning",
        "content",
        "content",
        "call",
        *["arguments"] * 2,
        "call_end",
        "finish",
    ]
    first = chunk_object({"id": "x", "created": 1, "model": "m"}, 0, deltas[0], Options())
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    last = chunk_object({"id": "x", "created": 1, "model": "m"}, 0, deltas[-1], Options())
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "tool_calls"}


def test_a_call_is_named_once_and_nothing_stands_beside_it() -> None:
    chunks = chunks_of(ChatWriter("x", 1, "m").encode(0, deltas_of(FULL)))
    calls = [chunk["choices"][0]["delta"] for chunk in chunks if "tool_calls" in chunk["choices"][0]["delta"]]
    assert all(set(delta) == {"tool_calls"} and len(delta["tool_calls"]) == 1 for delta in calls)
    assert calls[0]["tool_calls"][0] == {
        "index": 0,
        "id": "call_weather",
        "type": "function",
        "function": {"name": "weather", "arguments": ""},
    }
    assert calls[1]["tool_calls"][0] == {"index": 0, "function": {"arguments": '{"city": '}}


def test_ids_come_with_every_piece_for_clients_that_want_them() -> None:
    options = Options(repeat_call_ids=True)
    chunks = chunks_of(ChatWriter("x", 1, "m", options).encode(0, deltas_of(FULL, options)))
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [(call["id"], call["type"]) for call in calls] == [("call_weather", "function")] * 3
    assert [call["function"].get("name") for call in calls] == ["weather", None, None]


def test_one_shot_message() -> None:
    assert reply_of(FULL) == {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": "Let me look.",
            "refusal": None,
            "reasoning_content": "They want Oslo.",
            "reasoning": "They want Oslo.",
            "tool_calls": [
                {
                    "id": "call_weather",
                    "type": "function",
                    "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
                }
            ],
        },
        "logprobs": None,
        "finish_reason": "tool_calls",
    }


def test_content_is_null_with_calls_only_and_absent_strands_leave_no_field() -> None:
    message = reply_of(Script().call("f", "{}"))["message"]
    assert message["content"] is None
    assert "reasoning" not in message
    assert "tool_calls" not in reply_of(Script().say("Hi"))["message"]


def test_reasoning_fields_are_configurable() -> None:
    message = reply_of(FULL, Options(reasoning_fields=("thinking",)))["message"]
    assert message["thinking"] == "They want Oslo."
    assert "reasoning" not in message


def test_index_is_the_ordinal_of_the_call_even_if_events_count_otherwise() -> None:
    script = (
        Script()
        .call("a", "{}", index=0)
        .call("b", '{"x', outcome="withdrawn", index=1)
        .say('{"x')
        .call("c", "{}", index=1)
    )
    calls = joined(chunks_of(ChatWriter("x", 1, "m").encode(0, deltas_of(script))))["calls"]
    assert {index: call["name"] for index, call in calls.items()} == {0: "a", 2: "c"}


def test_a_withdrawn_call_is_marked_in_the_stream_and_absent_from_the_one_shot_reply() -> None:
    script = Script().call("f", '{"a": 1', outcome="withdrawn").say('f{"a": 1 oops').call("g", "{}", index=0)
    reply = reply_of(script)
    assert reply["finish_reason"] == "tool_calls"
    assert reply["message"]["content"] == 'f{"a": 1 oops'
    assert [call["function"]["name"] for call in reply["message"]["tool_calls"]] == ["g"]
    chunks = chunks_of(ChatWriter("x", 1, "m").encode(0, deltas_of(script)))
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    assert [call["index"] for call in calls if call.get("withdrawn")] == [0]
    assert [call["index"] for call in calls if "id" in call] == [0, 1]
    only = reply_of(Script().call("f", '{"a": 1', outcome="withdrawn").say("f oops"))
    assert (only["finish_reason"], "tool_calls" in only["message"]) == ("stop", False)


# Arguments and reasons


def test_call_without_arguments_ends_as_an_object() -> None:
    assert reply_of(Script().call("f"))["message"]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_cut_call_keeps_what_came() -> None:
    reply = reply_of(Script().call("f", '{"a', outcome="incomplete"), reason="length")
    assert reply["message"]["tool_calls"][0]["function"]["arguments"] == '{"a'


@pytest.mark.parametrize(
    ("script", "reason", "named", "expected"),
    [
        (Script().say("Hi"), "stop", False, "stop"),
        (Script().say("Hi"), "length", False, "length"),
        (Script().call("f", "{}"), "stop", False, "tool_calls"),
        (Script().call("f", "{}"), "stop", True, "stop"),
        (Script().call("f", "{}"), "length", False, "length"),
        (Script().call("f", "{", outcome="incomplete"), "length", False, "length"),
        (Script().call("f", "{", outcome="incomplete"), "stop", False, "stop"),
        (Script().call("f", "{}").call("g", "{", outcome="incomplete", index=1), "stop", False, "tool_calls"),
    ],
)
def test_finish_reason(script: Script, reason: Literal["stop", "length"], named: bool, expected: str) -> None:
    assert reply_of(script, Options(named_tool_choice=named), reason)["finish_reason"] == expected


def test_what_is_said_after_the_one_call_is_not_passed_on() -> None:
    options = Options(one_call=True)
    choice = Choice(0, options)
    deltas = deltas_of(Script().call("f", "{}"), options, choice=choice)
    assert choice.stopped
    late = Script().say("late")
    assert choice.feed(late.events, [1]) == []
    assert deltas[-1].text == "tool_calls"


def test_one_call_of_a_list_ends_the_reply() -> None:
    reply = reply_of(Script().calls(("f", "{}"), ("g", "{}")), Options(one_call=True))
    assert [call["function"]["name"] for call in reply["message"]["tool_calls"]] == ["f"]
    assert reply["finish_reason"] == "tool_calls"


def test_one_call_at_most_ends_the_reply() -> None:
    script = Script().say("a").call("f", "{}").say("b").call("g", "{}", index=1)
    reply = reply_of(script, Options(one_call=True), "length")
    assert (reply["message"]["content"], reply["finish_reason"]) == ("a", "tool_calls")
    assert len(reply["message"]["tool_calls"]) == 1
    broken = Script().call("f", "{", outcome="withdrawn").say("f{").call("g", "{}", index=1)
    assert len(reply_of(broken, Options(one_call=True))["message"]["tool_calls"]) == 1


# Usage


def test_reasoning_tokens_are_those_of_the_strand_without_delimiters() -> None:
    choice = Choice()
    deltas_of(FULL, choice=choice)
    assert (choice.tokens, choice.reasoning_tokens) == (len(FULL.tokens), 2)
    assert usage_object(Usage(7, choice.tokens, choice.reasoning_tokens)) == {
        "prompt_tokens": 7,
        "completion_tokens": 12,
        "total_tokens": 19,
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def test_usage_chunk_and_null_on_the_others() -> None:
    chunks = ChatWriter("x", 1, "m", include_usage=True)
    data = chunks.encode(0, deltas_of(FULL)) + chunks.end(Usage(7, 11, 2))
    *others, last = chunks_of(data)
    assert all(chunk["usage"] is None for chunk in others)
    assert last["choices"] == []
    assert last["usage"]["total_tokens"] == 18
    assert data.endswith(b"data: [DONE]\n\n")
    assert "usage" not in chunks_of(ChatWriter("x", 1, "m").encode(0, deltas_of(FULL)))[0]


# Log-probabilities and ids


def test_logprobs_line_up_with_the_visible_content_only() -> None:
    options = Options(logprobs=True)
    entries = reply_of(FULL, options)["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == ["Let me ", "look."]
    assert b"".join(bytes(entry["bytes"]) for entry in entries).decode() == "Let me look."


def test_entries_of_a_split_character_go_with_the_chunk_that_completes_it() -> None:
    data = "\U0001f642".encode()
    deltas = deltas_of(Script().say("Hi ").split("\U0001f642", data[:2], data[2:]).say("!"), Options(logprobs=True))
    shown = [(d.text, [e.bytes for e in d.logprobs or ()]) for d in deltas if d.kind == "content"]
    assert shown == [("Hi ", [b"Hi "]), ("\U0001f642", [data[:2], data[2:]]), ("!", [b"!"])]


def test_top_alternatives_and_minus_infinity() -> None:
    script = Script().say("Hi")
    script.tokens[0] = script.tokens[0]._replace(top=(Logprob(5, float("-inf"), "Yo", b"Yo"),))
    entry = reply_of(script, Options(logprobs=True, tokens_as_ids=True))["logprobs"]["content"][0]
    assert entry["token"] == "token_id:100"
    assert entry["top_logprobs"] == [{"token": "token_id:5", "logprob": -9999.0, "bytes": [89, 111]}]


def test_token_ids_cover_all_tokens_unless_reasoning_is_hidden() -> None:
    ids = [token.id for token in FULL.tokens]
    assert reply_of(FULL, Options(token_ids=True))["token_ids"] == ids
    hidden = reply_of(FULL, Options(token_ids=True, reasoning="hidden"))["token_ids"]
    assert hidden == [
        token.id for token in FULL.tokens if token.token in ("Let me ", "look.", "weather", '{"city": ', '"Oslo"}')
    ]


# How reasoning is shown


def test_hidden_reasoning_leaves_nothing_but_usage() -> None:
    options = Options(reasoning="hidden", logprobs=True, token_ids=True)
    choice = Choice(0, options)
    deltas = deltas_of(FULL, choice=choice)
    data = ChatWriter("x", 1, "m", options).encode(0, deltas) + encode_json(choice_object(0, deltas, options))
    for secret in (
        b"They want",
        b"Oslo.",
        b"think",
        b"reasoning",
        str(list(b"They want"))[1:-1].replace(" ", "").encode(),
    ):
        assert secret not in data
    hidden_ids = {token.id for token in FULL.tokens[:4]}
    assert not hidden_ids & {id for delta in deltas for id, _ in delta.tokens or ()}
    assert all(d.text or d.kind in ("role", "call") for d in deltas)
    assert choice.reasoning_tokens == 2


def test_hidden_is_shown_filtered() -> None:
    shown = [d for d in deltas_of(FULL) if d.kind != "reasoning"]
    assert deltas_of(FULL, Options(reasoning="hidden")) == shown


def test_inline_reasoning_is_content_with_its_delimiters() -> None:
    reply = reply_of(FULL, Options(reasoning="inline", logprobs=True))
    assert reply["message"]["content"] == "<think>\nThey want Oslo.\n</think>\n\nLet me look."
    assert "reasoning" not in reply["message"]
    assert b"".join(bytes(e["bytes"]) for e in reply["logprobs"]["content"]).decode() == reply["message"]["content"]


INLINE = Options(reasoning="inline", thought_openers=frozenset({"<think>"}), thought_closers=frozenset({"</think>"}))


@pytest.mark.parametrize(
    ("between", "shown"),
    [
        (["</think>", "<tool_call>"], "Hm.</think>"),
        (["\n</think>", "\n\n", "<tool_call>", "\n"], "Hm.\n</think>"),
        (["\n</think>\n\n<tool_call>\n"], "Hm.\n</think>"),
        (["\n</th", "ink>\n\n<tool_call>\n"], "Hm.\n</think>"),
        (["<tool_call>", "\n"], "Hm."),
        (["\n<tool_call>\n"], "Hm."),
    ],
)
def test_inline_reasoning_before_a_call_keeps_its_closer_and_not_the_calls_opener(
    between: list[str], shown: str
) -> None:
    """However the engine's steps cut what stands between them."""
    script = Script().think("Hm.")
    for raw in between:
        script.markup(raw)
    script.call("f", "{}").markup("</tool_call>")
    assert reply_of(script, INLINE)["message"]["content"] == shown


@pytest.mark.parametrize(
    "between", [["</tool_call>", "<think>", "\n"], ["</tool_call>\n<think>\n"], ["</tool_call>\n<th", "ink>\n"]]
)
def test_inline_reasoning_behind_a_call_has_its_opener(between: list[str]) -> None:
    script = Script().call("f", "{}")
    for raw in between:
        script.markup(raw)
    assert reply_of(script.think("Hm."), INLINE)["message"]["content"] == "<think>\nHm."


def test_logprobs_of_an_inline_thought_are_those_of_what_is_shown() -> None:
    script = Script().think("Hm.").markup("\n</think>\n\n<tool_call>\n").call("f", "{}")
    reply = reply_of(script, replace(INLINE, logprobs=True))
    spelled = b"".join(bytes(entry["bytes"]) for entry in reply["logprobs"]["content"]).decode()
    assert spelled.startswith(reply["message"]["content"])


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({}, "separate"),
        ({"include_reasoning": False}, "hidden"),
        ({"include_reasoning": True, "separate_reasoning": False}, "inline"),
        ({"separate_reasoning": False, "include_reasoning": False}, "hidden"),
        ({"reasoning_format": "none"}, "inline"),
        ({"reasoning_format": "parsed"}, "separate"),
        ({"reasoning": {"exclude": True}}, "hidden"),
        ({"include_reasoning": None}, "separate"),
    ],
)
def test_synonyms_of_showing(fields: dict[str, Any], shown: str) -> None:
    assert reasoning_wishes(fields).shown == shown


@pytest.mark.parametrize(
    ("fields", "thinking", "effort"),
    [
        ({}, None, None),
        ({"reasoning_effort": "none"}, False, None),
        ({"reasoning_effort": "low"}, True, "low"),
        ({"think": False}, False, None),
        ({"think": "high"}, True, "high"),
        ({"thinking": {"type": "disabled"}}, False, None),
        ({"thinking": {"type": "adaptive"}}, None, None),
        ({"enable_thinking": True, "reasoning_effort": "low"}, True, "low"),
        ({"reasoning": {"effort": "high"}}, True, "high"),
        ({"reasoning": {"enabled": False}}, False, None),
    ],
)
def test_synonyms_of_thinking(fields: dict[str, Any], thinking: bool | None, effort: str | None) -> None:
    assert reasoning_wishes(fields)[1:] == (thinking, effort)


@pytest.mark.parametrize(
    "fields", [{"include_reasoning": "no"}, {"include_reasoning": 0}, {"reasoning_format": "xml"}, {"think": 3}]
)
def test_wrong_synonyms_are_refused_by_name(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as error:
        reasoning_wishes(fields)
    assert error.value.param == next(iter(fields))


# Stop strings


@given(
    st.lists(st.text("ab<", max_size=4), max_size=8),
    st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_stop_strings_end_at_the_first_match_and_hold_no_more_than_they_must(
    pieces: list[str], stops: list[str]
) -> None:
    scan, shown, fed = StopStrings(stops), "", ""
    for piece in pieces:
        shown += scan.feed(piece)
        fed += piece
        places = [at for stop in stops if (at := fed.find(stop)) >= 0]
        if places:
            assert shown == fed[: shown_until(fed, stops)]
            assert scan.match is not None
            assert scan.feed("more") == ""
            return
        held = fed[len(shown) :]
        assert fed.startswith(shown)
        assert not held or any(stop.startswith(held) for stop in stops)
        assert not any(stop.startswith(fed[at:]) for at in range(len(shown)) for stop in stops)
    assert scan.match is None
    assert shown + scan.flush() == fed


def shown_until(text: str, stops: list[str]) -> int:
    """Where the match begins that is complete first when read a piece at a time: here, the leftmost."""
    return min(at for stop in stops if (at := text.find(stop)) >= 0)


def test_stop_is_scoped_to_content() -> None:
    options = Options(stop=("END",))
    script = Script().think("END of thought").call("f", '{"a": "END"}').say("So: E", "ND and more")
    reply = reply_of(script, options)
    assert reply["message"]["content"] == "So: "
    assert reply["message"]["reasoning"] == "END of thought"
    assert reply["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": "END"}'
    assert reply["stop_reason"] == "END"


def test_stop_wins_over_length_and_what_follows_is_gone() -> None:
    reply = reply_of(Script().say("a", "STOP", "b"), Options(stop=("STOP",)), "length")
    assert (reply["message"]["content"], reply["finish_reason"]) == ("a", "stop")


def test_markup_after_a_stop_string_is_gone_too_when_reasoning_is_inline() -> None:
    options = Options(stop=("b",), reasoning="inline")
    choice = Choice(0, options)
    deltas = choice.open() + choice.feed(Script().say("b").markup("<x>").events) + choice.finish("stop")
    assert [delta.kind for delta in deltas] == ["role", "finish"]


def test_held_text_is_released_before_another_strand_and_at_the_end() -> None:
    deltas = deltas_of(Script().say("so E").call("f", "{}").say("E"), Options(stop=("END",)))
    assert [(d.kind, d.text) for d in deltas][1:3] == [("content", "so "), ("content", "E")]
    assert [(d.kind, d.text) for d in deltas][-2:] == [("content", "E"), ("finish", "tool_calls")]


def test_logprobs_follow_the_text_through_a_stop_string() -> None:
    options = Options(stop=("STOP",), logprobs=True)
    deltas = deltas_of(Script().say("ab", "cS", "T", "x").split("yz", b"y", b"z").say("q", "STOP", "r"), options)
    shown = [(d.text, [e.token for e in d.logprobs or ()]) for d in deltas if d.kind == "content"]
    assert shown == [("ab", ["ab"]), ("c", ["cS"]), ("STx", ["T", "x"]), ("yz", ["y", "z"]), ("q", ["q"])]
    assert deltas[-1].logprobs is None


# Bytes


TEXTS = st.text(st.characters(codec=None), max_size=20)


@given(TEXTS, TEXTS, TEXTS)
def test_templates_say_what_the_objects_say(thought: str, text: str, arguments: str) -> None:
    options = Options()
    deltas = [Delta("reasoning", thought), Delta("content", text), Delta("arguments", arguments, 3)] * 2
    chunks = ChatWriter("x", 1, 'm"', options, include_usage=True)
    expected = [chunk_object(chunks.head, 2, delta, options, include_usage=True) for delta in deltas]
    assert chunks_of(chunks.encode(2, deltas)) == expected


@given(
    PARTS,
    st.sampled_from(["separate", "inline", "hidden"]),
    st.sampled_from([(), ("END",), ("b", "EN")]),
    st.sampled_from(["stop", "length"]),
    st.integers(1, 4),
)
def test_joined_stream_is_the_one_shot_reply_however_it_is_grouped(
    parts: list[tuple[str, str]], shown: Any, stop: tuple[str, ...], reason: Any, group: int
) -> None:
    script = script_of(parts)
    options = Options(reasoning=shown, stop=stop, logprobs=True)
    deltas = deltas_of(script, options, reason)
    reply = choice_object(0, deltas, options)
    stream = joined(chunks_of(ChatWriter("x", 1, "m", options).encode(0, deltas)))
    message = reply["message"]
    assert stream["content"] == (message["content"] or "")
    assert stream["reasoning"] == stream["reasoning_content"] == message.get("reasoning", "")
    assert [c["arguments"] for c in stream["calls"].values()] == [
        c["function"]["arguments"] for c in message.get("tool_calls", ())
    ]
    assert stream["finish"] == reply["finish_reason"]
    assert stream["entries"] == reply["logprobs"]["content"]
    assert all(a.kind != "finish" for a, _ in pairwise(deltas))

    grouped = Choice(0, options)
    out = grouped.open()
    for at in range(0, len(script.events), group):
        events = script.events[at : at + group]
        tokens = script.tokens[events[0].token_start : events[-1].token_stop]
        out += grouped.feed(events, [token.id for token in tokens], tokens)
    assert choice_object(0, out + grouped.finish(reason), options) == reply


def test_the_whole_reply() -> None:
    reply = ChatWriter("x", 1, "m").whole([deltas_of(FULL)], Usage(1, 2, 0))
    assert list(reply) == ["id", "object", "created", "model", "choices", "usage"]
    assert reply["object"] == "chat.completion"


def test_a_thought_in_one_piece() -> None:
    deltas = deltas_of(FULL, Options(stream_reasoning=False))
    assert [(d.kind, d.text) for d in deltas][:3] == [
        ("role", ""),
        ("reasoning", "They want Oslo."),
        ("content", "Let me "),
    ]
    assert reply_of(FULL, Options(stream_reasoning=False)) == reply_of(FULL)
    cut = deltas_of(Script().think("Hm", "."), Options(stream_reasoning=False), "length")
    assert [(d.kind, d.text) for d in cut] == [("role", ""), ("reasoning", "Hm."), ("finish", "length")]


def test_usage_along_the_way() -> None:
    writer = ChatWriter("x", 1, "m", include_usage=True, continuous_usage=True)
    chunks = chunks_of(writer.encode(0, [Delta("role"), Delta("content", "Hi")], Usage(3, 2, 1)))
    assert [chunk["usage"]["total_tokens"] for chunk in chunks] == [5, 5]


def test_the_stop_string_is_shown_if_asked_for() -> None:
    reply = reply_of(Script().say("so E", "ND and more"), Options(stop=("END",), include_stop=True, logprobs=True))
    assert (reply["message"]["content"], reply["stop_reason"]) == ("so END", "END")
    assert [entry["token"] for entry in reply["logprobs"]["content"]] == ["so E", "ND and more"]


def test_prefill_comes_first_and_has_no_tokens() -> None:
    choice = Choice(0, Options(reasoning="inline", logprobs=True), prefill="<think>\n")
    deltas = deltas_of(Script().think("Hm.").markup("</think>").say("Hi"), choice.options, choice=choice)
    reply = choice_object(0, deltas, choice.options)
    assert reply["message"]["content"] == "<think>\nHm.</think>Hi"
    assert len(reply["logprobs"]["content"]) == 3


def test_the_library_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import unbraid.openai, unbraid.anthropic; "
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}; "
        "print(*sorted(names - set(sys.stdlib_module_names) - {'unbraid'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
