"""What an endpoint is asked: small conversations, each of which has shown a fault somewhere.

A case is a request. What is expected of the reply follows from the request (`response_format`: JSON; `tool_choice: "required"`: a
call; `include_reasoning: false`: no thought), so a case of one's own is nothing but a request with a name: a JSON list, or a JSON
object a line, of `{"name": ..., "request": {...}}` or of bare requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from unbraid.errors import UnbraidError
from unbraid.integrity.files import Json, read_file
from unbraid.table import ENDED, Format, Special

BASE: Json = {"temperature": 0, "seed": 7}
"""Greedy, and seeded for whoever samples all the same."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request, without model and stream."""

    name: str
    request: Mapping[str, Any]
    about: str = ""
    kind: str = ""
    """What the format must know for the case to mean anything: `calls`, `reasons`, `switch`."""


def _tool(name: str, about: str, **properties: Any) -> Json:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


WEATHER = _tool("get_weather", "Weather of a city.", city={"type": "string"}, days={"type": "integer"})
TIME = _tool("get_time", "The present time.")
WRITE = _tool("write_file", "Writes a file.", path={"type": "string"}, text={"type": "string"})
BOOK = _tool(
    "book_table", "Books a table.", guests={"type": "integer"}, outside={"type": "boolean"},
    note={"anyOf": [{"type": "string"}, {"type": "null"}]}, dishes={"type": "array", "items": {"type": "string"}},
)  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "inhabitants": {"type": "integer"}},
    "required": ["city", "inhabitants"],
    "additionalProperties": False,
}
STRUCTURED = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA, "strict": True}}


def _ask(text: str, **fields: Any) -> Json:
    return {"messages": [{"role": "user", "content": text}], **BASE, **fields}


def built_in(fmt: Format, most: int = 512) -> list[Case]:
    """The cases for a format. `most`: the token limit of those that aren't about being cut off."""
    cases = [case for case in _cases(fmt) if _applies(case, fmt)]
    return [Case(c.name, {"max_tokens": most, **c.request}, c.about, c.kind) for c in cases]


def _applies(case: Case, fmt: Format) -> bool:
    known = {"calls": fmt.calls, "reasons": fmt.reasons, "switch": fmt.reasons and bool(fmt.thinking.keywords)}
    return all(known[word] for word in case.kind.split())


def _cases(fmt: Format) -> Iterator[Case]:
    yield from _text_cases(fmt)
    yield from _special_cases(fmt)
    yield from _reasoning_cases(fmt)
    yield from (replace(case, kind="calls") for case in _call_cases(fmt))


def _text_cases(fmt: Format) -> Iterator[Case]:
    """Answers."""
    yield Case("plain", _ask("Name a river in France, in one short sentence."), "an answer and nothing else")
    yield Case(
        "unicode",
        _ask("Write the words for bridge in Chinese and Greek, and three emoji."),
        "characters split over tokens",
    )
    yield Case("long_text", _ask("Count from one to sixty in words, separated by commas."), "many deltas")
    yield Case(
        "markers_in_prompt",
        _ask(f"Repeat this line exactly, and nothing else: {' '.join(spellings(fmt))} are tags"),
        "the user writes the format's own markers: text is no markup",
    )
    yield Case("truncated", _ask("Tell a story about a lighthouse.", max_tokens=12), "cut off by the token limit")
    yield Case(
        "stop_string",
        _ask("Count from one to nine in digits, separated by commas.", stop=["5,"]),
        "ends at it, and only in content",
    )
    yield Case(
        "two_choices",
        _ask("Name a colour.", n=2, temperature=0.7),
        "each choice has its own state; seeded, since some engines refuse two greedy ones",
    )
    yield Case(
        "multi_turn",
        {
            **BASE,
            "messages": [
                {"role": "user", "content": "My name is Ada."},
                {"role": "assistant", "content": "Hello, Ada."},
                {"role": "user", "content": "What is my name?"},
            ],
        },
        "an earlier turn never decides where this one starts",
    )
    yield Case(
        "continued",
        {
            **BASE,
            "messages": [
                {"role": "user", "content": "Name three fruits."},
                {"role": "assistant", "content": "Three fruits are apples,"},
            ],
            "continue_final_message": True,
            "add_generation_prompt": False,
        },
        "the final message goes on where it ended",
    )
    yield Case(
        "logprobs",
        _ask("Name a number below ten, in one word.", logprobs=True, top_logprobs=2),
        "they spell the content",
    )
    yield Case(
        "structured",
        _ask("Give a city in Italy and its inhabitants, as JSON.", response_format=STRUCTURED),
        "the grammar rules the answer, not the thought",
    )
    yield Case(
        "json_object",
        _ask("Give a colour and its hex code as a JSON object.", response_format={"type": "json_object"}),
        "an answer that is JSON",
    )


def _reasoning_cases(fmt: Format) -> Iterator[Case]:
    """Thoughts, with thinking on and off."""
    off = {"chat_template_kwargs": dict.fromkeys(fmt.thinking.keywords[:1], False)} if fmt.thinking.keywords else {}
    yield Case(
        "reasoning",
        _ask("Is 91 a prime number? Think first, then answer in one sentence."),
        "a thought and an answer",
        "reasons",
    )
    yield Case(
        "reasoning_off",
        _ask("Which is larger, 7 or 9? Answer with the number.", **off),
        "thinking is off: all is content",
        "switch",
    )
    yield Case(
        "hidden_reasoning",
        _ask("Is 57 a prime number? Think first, then answer in one sentence.", include_reasoning=False, logprobs=True),
        "no thought in any field",
        "reasons",
    )
    yield Case(
        "reasoning_cut",
        _ask("Think long about the meaning of bridges.", max_tokens=10),
        "cut off inside the thought",
        "reasons",
    )
    yield Case(
        "structured_off",
        _ask("Give a city in Spain and its inhabitants, as JSON.", response_format=STRUCTURED, **off),
        "structured, thinking off",
        "switch",
    )


def _call_cases(fmt: Format) -> Iterator[Case]:
    """Calls, each as the request forces, allows or forbids it."""
    tools: Json = {"tools": [WEATHER, TIME]}
    yield Case(
        "call_auto", _ask("What will the weather be in Oslo over the next 3 days?", **tools), "the model decides"
    )
    yield Case(
        "call_required",
        _ask("Weather in Rome for 2 days, please.", **tools, tool_choice="required"),
        "a call must come",
    )
    yield Case(
        "call_named",
        _ask("I like Paris.", **tools, tool_choice={"type": "function", "function": {"name": "get_weather"}}),
        "this call must come",
    )
    yield Case(
        "call_none",
        _ask("What would you call to learn the weather in Bonn?", **tools, tool_choice="none"),
        "no call may come",
    )
    yield Case(
        "calls_parallel", _ask("What is the weather in Kyiv and in Lviv, each for 1 day?", **tools), "several calls"
    )
    yield Case(
        "call_single",
        _ask("Weather in Cork and in Galway for 1 day?", **tools, parallel_tool_calls=False),
        "one call at most",
    )
    yield Case("call_no_arguments", _ask("What time is it?", **tools), "a call without arguments is {}")
    yield Case(
        "text_and_call",
        _ask("First say what you will do, then look up the weather in Lima for 4 days.", **tools),
        "text before the call",
    )
    yield Case(
        "call_and_text",
        _ask("Look up the weather in Quito for 5 days, then say that you are waiting.", **tools),
        "text after the call",
    )
    yield Case(
        "call_types",
        _ask("Book a table outside for 4 guests with soup and bread, no note.", tools=[BOOK]),
        "numbers, booleans, null and lists keep their types",
    )
    yield Case(
        "call_long",
        _ask("Write the file poem.txt: twelve lines about the sea, with an indented last line.", tools=[WRITE]),
        "a long argument streams, and every blank arrives",
    )
    yield Case(
        "call_with_markers",
        _ask(f"Write the file tags.md that explains the tags {' '.join(spellings(fmt))} & their use.", tools=[WRITE]),
        "markers and entities inside an argument are data",
    )
    yield Case(
        "call_cut",
        _ask("Write the file long.txt with a hundred words.", tools=[WRITE], max_tokens=40),
        "a cut call is no complete one",
    )
    yield Case("after_result", {**BASE, **tools, "messages": [*_RESULT]}, "the answer to a tool's result")


_RESULT: tuple[Json, ...] = (
    {"role": "user", "content": "What is the weather in Oslo today?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_0123456789abcdefABCDEFGH", "type": "function",
             "function": {"name": "get_weather", "arguments": '{"city": "Oslo", "days": 1}'}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_0123456789abcdefABCDEFGH", "content": "Rain, 4 degrees."},
)  # fmt: skip


def spellings(fmt: Format) -> list[str]:
    """A few of the format's special spellings, as a user might write them."""
    turns = {piece.text for marker in fmt.turns for s in marker.spellings for piece in s if isinstance(piece, Special)}
    return [text for text in fmt.specials if text not in turns][:4] or ["<think>", "<tool_call>"]


def end_tokens(fmt: Format) -> list[str]:
    """The special tokens with which a turn ends."""
    ends = [marker for marker, target in fmt.turns.items() if target is ENDED]
    return [piece.text for marker in ends for s in marker.spellings for piece in s if isinstance(piece, Special)]


def _special_cases(fmt: Format) -> Iterator[Case]:
    if ends := end_tokens(fmt):
        yield Case(
            "end_tag_kept",
            _ask(
                "Say good night.",
                keep_special_tokens=ends[:1],  # Unbraid's word, then vLLM's and SGLang's
                skip_special_tokens=False,
                include_stop_str_in_output=True,
                no_stop_trim=True,
            ),
            "a client that waits for the end tag gets it, in the stream as in the one-shot reply",
        )


def read_cases(path: str) -> list[Case]:
    """Cases from a file. Raises `UnbraidError` that names the place."""
    entries = _entries(read_file(path), path)
    if not entries:
        raise UnbraidError(f"{path}: holds no case; a line is one, such as {_EXAMPLE}")
    return [_read(entry, f"{path}, case {at}", at) for at, entry in enumerate(entries, 1)]


_EXAMPLE = '{"name": "mine", "request": {"messages": [{"role": "user", "content": "..."}]}}'


def _entries(text: str, path: str) -> list[Any]:
    if text.lstrip().startswith("["):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UnbraidError(f"{path}: no JSON ({error})") from error
        return list(found)
    entries = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                entries.append(json.loads(line))
            except (ValueError, RecursionError) as error:
                raise UnbraidError(f"{path}, line {number}: no JSON ({error})") from error
    return entries


def _read(entry: Any, where: str, at: int) -> Case:
    if not isinstance(entry, dict):
        raise UnbraidError(f'{where}: expected an object such as {{"name": ..., "request": {{"messages": [...]}}}}')
    request = entry.get("request", entry)
    if not isinstance(request, dict) or not isinstance(request.get("messages"), list):
        raise UnbraidError(f"{where}: its request has no list `messages`")
    request = {
        name: value for name, value in request.items() if name not in ("stream", "stream_options", "model", "name")
    }
    return Case(str(entry.get("name") or f"case {at}"), {**BASE, **request}, str(entry.get("about") or ""))
