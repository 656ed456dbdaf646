"""Messages, Responses and Completions from hand-made events: order, indices, ends, and that a stream says what one piece says."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from handmade import FULL, PARTS, PLAIN, Script, deltas_of, script_of
from hypothesis import given
from hypothesis import strategies as st

from unbraid.anthropic import MessagesWriter, chat_fields, signature
from unbraid.errors import RequestError
from unbraid.events import CallOutcome
from unbraid.openai import CompletionsWriter, Detokenizer, ResponsesWriter, responses_as_chat
from unbraid.partial_json import readable_object
from unbraid.protocol import Choice, Options, Usage
from unbraid.vocabulary import Vocabulary

SPENT = Usage(7, 12, 2)
INTERLEAVED = Script().think("One.").say("First").think("Two.").say("then").call("f", '{"a": 1}').call("g", index=1)


def sent(data: bytes) -> list[dict[str, Any]]:
    """Server-sent events, each with its name."""
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        name, line = block.split("\n")
        value = json.loads(line.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        events.append(value)
    return events


# -- Messages ----------------------------------------------------------------------------------------------------------


def message_events(script: Script, options: Options = PLAIN, reason: Literal["stop", "length"] = "stop") -> Any:
    writer = MessagesWriter("msg_1", "m", options, prompt_tokens=7)
    return sent(writer.encode(0, deltas_of(script, options, reason)) + writer.end(SPENT))


def whole_message(script: Script, options: Options = PLAIN, reason: Literal["stop", "length"] = "stop") -> Any:
    return MessagesWriter("msg_1", "m", options).whole([deltas_of(script, options, reason)], SPENT)


def accumulated(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What a client makes of a stream, written without looking at the writer."""
    message: dict[str, Any] = {}
    texts: dict[int, str] = {}
    gone: list[int] = []
    for event in events:
        match event["type"]:
            case "message_start":
                message = event["message"]
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(dict(event["content_block"]))
                texts[event["index"]] = ""
            case "content_block_delta":
                delta = {name: value for name, value in event["delta"].items() if name != "type"}
                ((field, piece),) = delta.items()
                block = message["content"][event["index"]]
                if field == "partial_json":
                    texts[event["index"]] += piece
                    block["input"] = readable_object(texts[event["index"]])
                else:
                    block[field] += piece
            case "content_block_stop" if event.get("withdrawn"):
                gone.append(event["index"])
            case "message_delta":
                message |= event["delta"] | {"usage": event["usage"]}
                assert set(gone) <= set(event.get("withdrawn", ()))
                gone = event.get("withdrawn", [])
    message["content"] = [block for at, block in enumerate(message["content"]) if at not in gone]
    return message


def test_blocks_open_and_close_in_order() -> None:
    kinds = [event["type"].removeprefix("content_block_") for event in message_events(FULL)]
    thinking = ["start", "delta", "delta", "delta", "stop"]  # two pieces and the signature
    text = ["start", "delta", "delta", "stop"]
    assert kinds == ["message_start", *thinking, *text, *text, "message_delta", "message_stop"]


def test_a_thought_is_signed_just_before_its_own_stop_and_always_alike() -> None:
    events = message_events(INTERLEAVED)
    signed = [at for at, event in enumerate(events) if event.get("delta", {}).get("type") == "signature_delta"]
    assert [events[at + 1] for at in signed] == [{"type": "content_block_stop", "index": index} for index in (0, 2)]
    assert [events[at]["delta"]["signature"] for at in signed] == [signature("One."), signature("Two.")]
    blocks = whole_message(INTERLEAVED)["content"]
    assert [block["signature"] for block in blocks if block["type"] == "thinking"] == [
        signature("One."),
        signature("Two."),
    ]
    assert signature("One.", b"another key") != signature("One.")


def test_interleaved_thoughts_keep_their_places() -> None:
    blocks = whole_message(INTERLEAVED)["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "thinking", "text", "tool_use", "tool_use"]
    assert [block["input"] for block in blocks[4:]] == [{"a": 1}, {}]
    pieces = [e["delta"]["partial_json"] for e in message_events(INTERLEAVED) if "partial_json" in e.get("delta", {})]
    assert pieces == ['{"a": 1}', "{}"]


@pytest.mark.parametrize(
    ("script", "reason", "stop", "expected"),
    [
        (Script().say("Hi"), "stop", (), ("end_turn", None)),
        (Script().say("Hi"), "length", (), ("max_tokens", None)),
        (Script().call("f", "{}"), "stop", (), ("tool_use", None)),
        (Script().call("f", "{}"), "length", (), ("max_tokens", None)),
        (Script().call("f", '{"a', outcome="incomplete"), "length", (), ("max_tokens", None)),
        (Script().call("f", '{"a', outcome="withdrawn").say("f{"), "stop", (), ("end_turn", None)),
        (Script().say("so END"), "stop", ("END",), ("stop_sequence", "END")),
        (Script().call("f", "{}").say("so END"), "stop", ("END",), ("tool_use", None)),
    ],
)
def test_stop_reasons(script: Script, reason: Any, stop: tuple[str, ...], expected: tuple[str, str | None]) -> None:
    reply = whole_message(script, Options(stop=stop), reason)
    assert (reply["stop_reason"], reply["stop_sequence"]) == expected


def test_a_withdrawn_call_is_marked_and_gone() -> None:
    script = Script().call("f", '{"a": 1', outcome="withdrawn").say("f oops")
    events = message_events(script)
    marked = [(event["type"], event["withdrawn"]) for event in events if "withdrawn" in event]
    assert marked == [("content_block_stop", True), ("message_delta", [0])]
    assert [block["type"] for block in whole_message(script)["content"]] == ["text"]


@pytest.mark.parametrize("outcome", ["complete", "incomplete", "withdrawn"])
def test_calls_of_a_list_end_together(outcome: CallOutcome) -> None:
    """Each is over where the next one begins, whatever becomes of the list."""
    script = Script().calls(("f", "{}"), ("g",), ("h", '{"a": 1}'), outcome=outcome)
    events = message_events(script)
    assert accumulated(events) == whole_message(script)
    blocks = [event["index"] for event in events if event["type"] in ("content_block_start", "content_block_stop")]
    assert blocks == [0, 0, 1, 1, 2, 2]
    final = response_events(script)[-1]["response"]
    assert final == whole_response(script)
    kept = 0 if outcome == "withdrawn" else 3
    assert [item["arguments"] for item in final["output"]] == ["{}", "{}", '{"a": 1}'][:kept]
    assert len(whole_message(script)["content"]) == kept


def test_usage_is_told_at_both_ends() -> None:
    events = message_events(FULL)
    assert events[0]["message"]["usage"]["input_tokens"] == 7
    assert events[-2]["usage"]["output_tokens"] == 12


@given(PARTS, st.sampled_from(["separate", "inline", "hidden"]), st.sampled_from(["stop", "length"]), st.booleans())
def test_the_stream_of_a_message_adds_up(parts: Any, shown: Any, reason: Any, streamed: bool) -> None:
    options = Options(reasoning=shown, stream_reasoning=streamed)
    script = script_of(parts)
    message = accumulated(message_events(script, options, reason))
    assert message == whole_message(script, options, reason)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    ),
    st.integers(0, 200),
)
def test_a_cut_input_reads_as_the_sdk_reads_it(value: Any, cut: int) -> None:
    jiter = pytest.importorskip("jiter")
    text = json.dumps({"key": value})[: max(cut, 1)]
    try:
        expected = jiter.from_json(text.encode(), partial_mode=True)
    except ValueError:
        return
    assert readable_object(text) == expected


def test_an_input_with_numbers_beyond_python_is_still_json() -> None:
    """One such number neither makes the reply unreadable nor takes the rest of the input with it."""
    digits = "9" * 5_000
    found = readable_object(f'{{"far": -1e999, "long": [{digits}, 1e3], "path": "x", "cut": 1e999')
    assert found == {"far": "-1e999", "long": [digits, 1000.0], "path": "x", "cut": "1e999"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


# -- Responses ---------------------------------------------------------------------------------------------------------


def response_events(script: Script, options: Options = PLAIN, reason: Literal["stop", "length"] = "stop") -> Any:
    writer = ResponsesWriter("resp_1", 1, "m", options)
    return sent(writer.encode(0, deltas_of(script, options, reason)) + writer.end(SPENT))


def whole_response(script: Script, options: Options = PLAIN, reason: Literal["stop", "length"] = "stop") -> Any:
    return ResponsesWriter("resp_1", 1, "m", options).whole([deltas_of(script, options, reason)], SPENT)


def test_items_come_in_order_and_every_added_has_its_done() -> None:
    events = response_events(INTERLEAVED)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added = [event["item"]["type"] for event in events if event["type"] == "response.output_item.added"]
    assert added == ["reasoning", "message", "reasoning", "message", "function_call", "function_call"]
    done = [(event["output_index"], event["item"]) for event in events if event["type"] == "response.output_item.done"]
    assert [index for index, _ in done] == list(range(6))
    assert [item for _, item in done] == events[-1]["response"]["output"]
    assert [item["arguments"] for _, item in done[4:]] == ['{"a": 1}', "{}"]
    assert len({item["id"] for _, item in done}) == 6


def test_one_item_in_full() -> None:
    names = [event["type"].removeprefix("response.") for event in response_events(Script().say("a", "b"))]
    text = ["content_part.added", "output_text.delta", "output_text.delta", "output_text.done", "content_part.done"]
    assert names == [
        "created", "in_progress", "output_item.added", *text, "output_item.done", "completed",
    ]  # fmt: skip


def test_what_was_cut_is_incomplete() -> None:
    reply = whole_response(Script().say("a").call("f", '{"a', outcome="incomplete"), reason="length")
    assert (reply["status"], reply["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in reply["output"]] == ["completed", "incomplete"]
    assert response_events(Script().say("a"), reason="length")[-1]["type"] == "response.incomplete"


def test_a_withdrawn_call_ends_incomplete_and_is_not_in_the_response() -> None:
    script = Script().call("f", '{"a": 1', outcome="withdrawn").say("f oops")
    events = response_events(script)
    items = [(e["output_index"], e["item"]["status"]) for e in events if e["type"] == "response.output_item.done"]
    assert items == [(0, "incomplete"), (1, "completed")]
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]


def test_a_failure_is_a_failed_response() -> None:
    writer = ResponsesWriter("resp_1", 1, "m")
    deltas = deltas_of(Script().say("a"))[:-1]
    last = sent(writer.encode(0, deltas) + writer.error("the cable was pulled"))[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": "server_error", "message": "the cable was pulled"}


def test_the_request_is_echoed() -> None:
    writer = ResponsesWriter("resp_1", 1, "m", request={"instructions": "Be brief.", "store": True, "input": "Hi"})
    reply = writer.whole([deltas_of(Script().say("a"))], SPENT)
    assert (reply["instructions"], reply["store"], "input" in reply) == ("Be brief.", False, False)


@given(PARTS, st.sampled_from(["separate", "inline", "hidden"]), st.sampled_from(["stop", "length"]), st.booleans())
def test_the_stream_of_a_response_adds_up(parts: Any, shown: Any, reason: Any, logprobs: bool) -> None:
    options = Options(reasoning=shown, logprobs=logprobs)
    script = script_of(parts)
    events = response_events(script, options, reason)
    assert events[-1]["response"] == whole_response(script, options, reason)
    for item in events[-1]["response"]["output"]:
        mine = [event for event in events if event.get("item_id") == item["id"]]
        joined = "".join(event["delta"] for event in mine if event["type"].endswith(".delta"))
        entries = [entry for event in mine if event["type"].endswith(".delta") for entry in event.get("logprobs", ())]
        if item["type"] == "function_call":
            assert joined == item["arguments"]
        else:
            assert joined == item["content"][0]["text"]
            assert entries == item["content"][0].get("logprobs", [])


# -- Completions -------------------------------------------------------------------------------------------------------

SMILE = "\U0001f642".encode()
VOCABULARY = Vocabulary.from_tokens({0: b"ab", 1: SMILE[:2], 2: SMILE[2:], 3: b"c"}, special={"<x>": 9})


@given(st.lists(st.sampled_from([0, 1, 2, 3, 9]), max_size=8), st.integers(1, 3), st.booleans())
def test_raw_text_is_the_text_of_the_ids_however_they_come(ids: list[int], group: int, shown: bool) -> None:
    reader = Detokenizer(VOCABULARY, frozenset() if shown else frozenset({9}))
    events = [event for at in range(0, len(ids), group) for event in reader.feed(ids[at : at + group])]
    events += reader.finish("stop")
    data = b"".join(VOCABULARY.bytes_of(id) or b"" if shown or id != 9 else b"\xff" for id in ids)
    expected = data.decode("utf-8", "replace")
    text = "".join(event.raw for event in events)
    assert text == (expected if shown else text_without_marks(ids))
    assert [event.token_start for event in events] == [0, *(event.token_stop for event in events)][: len(events)]
    assert (events[-1].token_stop if events else 0) == len(ids)


def text_without_marks(ids: list[int]) -> str:
    """Each stretch between hidden tokens decoded on its own."""
    stretches: list[bytes] = [b""]
    for id in ids:
        if id == 9:
            stretches.append(b"")
        else:
            stretches[-1] += VOCABULARY.bytes_of(id) or b""
    return "".join(stretch.decode("utf-8", "replace") for stretch in stretches)


def test_completions_chunks() -> None:
    options = Options(logprobs=True, stop=("END",))
    script = Script().say("so ", "E", "xENDs")
    whole = CompletionsWriter("c", 1, "m", options).whole([deltas_of(script, options)], SPENT)
    (choice,) = whole["choices"]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("so Ex", "stop", "END")
    writer = CompletionsWriter("c", 1, "m", options)
    lines = (writer.encode(0, deltas_of(script, options)) + writer.end(SPENT)).decode().split("\n\n")
    chunks = [json.loads(line.removeprefix("data: "))["choices"][0] for line in lines[:-2]]
    assert "".join(chunk["text"] for chunk in chunks) == "so Ex"
    tokens = [token for chunk in chunks for token in (chunk["logprobs"] or {"tokens": []})["tokens"]]
    assert tokens == choice["logprobs"]["tokens"] == ["so ", "E", "xENDs"]
    offsets = [at for chunk in chunks for at in (chunk["logprobs"] or {"text_offset": []})["text_offset"]]
    assert offsets == choice["logprobs"]["text_offset"] == [0, 3, 4]
    assert [chunk["finish_reason"] for chunk in chunks][-1] == "stop"


# -- requests in other words -------------------------------------------------------------------------------------------


def test_a_messages_request_as_chat() -> None:
    chat = chat_fields(
        {
            "system": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}],
            "max_tokens": 2000,
            "stop_sequences": ["END"],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tools": [{"name": "f", "input_schema": {"type": "object"}, "strict": True}],
            "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
            "include_reasoning": False,
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Hm.", "signature": "any"},
                        {"type": "redacted_thinking", "data": "x"},
                        {"type": "text", "text": "Wait."},
                        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "2"}]},
                        {"type": "text", "text": "So?"},
                    ],
                },
                {"role": "assistant", "content": "It"},
            ],
        }
    )
    call = {"id": "t", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert chat["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Wait.", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": "2"},
        {"role": "user", "content": "So?"},
        {"role": "assistant", "content": "It"},
    ]
    del chat["messages"]
    assert chat == {
        "max_tokens": 2000,
        "stop": ["END"],
        "thinking": {"type": "enabled"},
        "thinking_token_budget": 1024,
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "parallel_tool_calls": False,
        "include_reasoning": False,
        "continue_final_message": True,
    }


def test_a_responses_request_as_chat() -> None:
    chat = responses_as_chat(
        {
            "instructions": "Be brief.",
            "max_output_tokens": 9,
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}},
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
            "tool_choice": {"type": "function", "name": "f"},
            "include": ["message.output_text.logprobs", "web_search_call.action.sources"],
            "top_logprobs": 2,
            "store": True,
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {
                    "type": "reasoning",
                    "id": "rs",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "Hm."}],
                },
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Wait."}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "2"},
            ],
        }
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert chat["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Wait.", "reasoning_content": "Hm.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    del chat["messages"]
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    assert chat == {
        "max_completion_tokens": 9,
        "reasoning": {"effort": "low"},
        "response_format": {"type": "json_schema", "json_schema": schema},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "logprobs": True,
        "top_logprobs": 2,
    }


HI: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize(
    ("fields", "param", "hint"),
    [
        ({"messages": []}, "messages", "at least one"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "user or assistant"),
        ({"messages": [{"role": "user", "content": []}]}, "messages[0].content", "needs a block"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0]", "in text what is"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}, "messages[0].content[0].tool_use_id", "missing"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": []}]}]},
         "messages[0].content[0].input", "an object"),
        (HI | {"tools": [{"type": "web_search_20250305", "name": "w"}]}, "tools[0].type", "runs no tools"),
        (HI | {"tools": [{"name": "w", "input_schema": 3}]}, "tools[0].input_schema", "an object"),
        (HI | {"tool_choice": {"type": "some"}}, "tool_choice.type", "auto, any"),
        (HI | {"tool_choice": {"type": "tool"}}, "tool_choice.name", "missing"),
        (HI | {"thinking": {"type": "maybe"}}, "thinking.type", "enabled, disabled"),
        (HI | {"thinking": {"type": "enabled", "budget_tokens": "x"}}, "thinking.budget_tokens", "number"),
        (HI | {"output_config": {"format": {"type": "xml"}}}, "output_config.format.type", "json_schema"),
        (HI | {"mcp_servers": [{}]}, "mcp_servers", "in `tools`"),
    ],
)  # fmt: skip
def test_bad_messages_requests_name_field_and_remedy(fields: dict[str, Any], param: str, hint: str) -> None:
    with pytest.raises(RequestError) as error:
        chat_fields(fields)
    assert error.value.param == param
    assert str(error.value).startswith(param)
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("fields", "param", "hint"),
    [
        ({}, "input", "missing"),
        ({"input": []}, "input", "at least one"),
        ({"input": [{"type": "message", "role": "robot", "content": "x"}]}, "input[0].role", "one of user"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]", "in text what is"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]", "send the item itself"),
        ({"input": [{"type": "computer_call"}]}, "input[0]", "function_call"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id", "missing"),
        ({"input": "x", "previous_response_id": "r"}, "previous_response_id", "as items of `input`"),
        ({"input": "x", "conversation": "c"}, "conversation", "as items of `input`"),
        ({"input": "x", "background": True}, "background", "leave it out"),
        ({"input": "x", "tools": [{"type": "web_search"}]}, "tools[0].type", "runs no tools"),
        ({"input": "x", "tool_choice": {"type": "mcp"}}, "tool_choice.type", "allowed_tools"),
        ({"input": "x", "text": {"format": {"type": "xml"}}}, "text.format.type", "json_object"),
        ({"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format.schema", "missing"),
        ({"input": "x", "include": ["everything"]}, "include", "message.output_text.logprobs"),
    ],
)
def test_bad_responses_requests_name_field_and_remedy(fields: dict[str, Any], param: str, hint: str) -> None:
    with pytest.raises(RequestError) as error:
        responses_as_chat(fields)
    assert error.value.param == param
    assert str(error.value).startswith(param)
    assert hint in str(error.value)


def test_hidden_reasoning_leaves_a_break_and_no_block() -> None:
    script = Script().think("One.").say("First").think("Two.").say("then")
    options = Options(reasoning="hidden")
    choice = Choice(0, options)
    assert [delta.kind for delta in deltas_of(script, options, choice=choice)] == [
        "role", "content", "break", "content", "finish",
    ]  # fmt: skip
    blocks = whole_message(script, options)["content"]
    assert blocks == [block for block in whole_message(script)["content"] if block["type"] == "text"]
