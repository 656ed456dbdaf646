"""A zoo of broken endpoints: our own server on an engine that answers from a script, with one fault switched on at a time.

A fault changes a reply on its way to the client, as a wrong parser, a detokeniser or a gateway in front would. Each is modelled on a
kind of fault that users of serving stacks report; `like` names a public issue (V vLLM, S SGLang, L llama.cpp, O Ollama, D Dynamo,
LL LiteLLM, T TensorRT-LLM, SMG smg).
"""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from serving import running
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tokens import Tokens

import unbraid
from unbraid.engines.base import Generation, Step
from unbraid.engines.scripted import ScriptedEngine
from unbraid.integrity.layers import read_events
from unbraid.server import create_app
from unbraid.server.run import listen

Json = dict[str, Any]
FORMAT = unbraid.get_format("qwen3")
THOUGHT = "<think>\nThey want a short answer.\n\nSo be it.\n</think>\n\n"
POEM = "The sea is wide\n  and grey,\n" * 12 + "    the end\n"
TAGS = "⟦<think>⟧ ⟦</think>⟧ ⟦<tool_call>⟧ ⟦</tool_call>⟧"


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


ANSWERS = {
    "river in France": THOUGHT + "The Loire flows through France.",
    "bridge in Chinese": THOUGHT + "桥 and γέφυρα, 🌉🌁 and 👩‍🚀.",
    "one to sixty": THOUGHT + ", ".join(f"number {n}" for n in range(1, 61)),
    "Repeat this line": THOUGHT + f"{TAGS} are tags",
    "lighthouse": "Once there was a lighthouse that stood far out at sea, on a rock.",
    "one to nine": "<think>\nCount: 1, 2, 3, 4, 5, 6.\n</think>\n\n1, 2, 3, 4, 5, 6, 7, 8, 9",
    "Name a colour": "<think>\nA colour.\n</think>\n\nBlue|<think>\nAnother.\n</think>\n\nRed",
    "What is my name": THOUGHT + "Your name is Ada.",
    "three fruits": " pears and plums.",
    "number below ten": THOUGHT + "Seven",
    "city in Italy": THOUGHT + '{"city": "Rome", "inhabitants": 2750000}',
    "city in Spain": '{"city": "Soria", "inhabitants": 40000}',
    "hex code": THOUGHT + '{"colour": "teal", "hex": "#008080"}',
    "good night": THOUGHT + "Good night.",
    "91 a prime": "<think>\n7 times 13 is 91.\n</think>\n\n91 is no prime number.",
    "7 or 9": "9",
    "57 a prime": "<think>\nThe secret: 3 times 19 is 57.\n</think>\n\n57 is no prime.",
    "meaning of bridges": "<think>\nBridges join what rivers part, and people cross them every day.\n</think>\n\nYes.",
    "weather be in Oslo": THOUGHT + call("get_weather", '{"city":"Oslo",  "days": 3}'),
    "Weather in Rome": THOUGHT + call("get_weather", '{"city": "Rome", "days": 2}'),
    "I like Paris": THOUGHT + call("get_weather", '{"city": "Paris", "days": 1}'),
    "weather in Bonn": THOUGHT + "I'd call get_weather: " + call("get_weather", '{"city": "Bonn", "days": 1}'),
    "Kyiv": THOUGHT + call("get_weather", '{"city": "Kyiv", "days": 1}') + "\n" + call("get_weather", '{"city": "Lviv", "days": 1}'),
    "Galway": THOUGHT + call("get_weather", '{"city": "Cork", "days": 1}'),
    "What time": THOUGHT + call("get_time", "{}"),
    "First say": THOUGHT + "I'll look up Lima.\n" + call("get_weather", '{"city": "Lima", "days": 4}'),
    "Quito": THOUGHT + call("get_weather", '{"city": "Quito", "days": 5}') + "\n\nI am waiting.",
    "Book a table": THOUGHT + call("book_table", '{"guests": 4, "outside": true, "note": null, "dishes": ["soup", "bread"]}'),
    "poem.txt": THOUGHT + call("write_file", json.dumps({"path": "poem.txt", "text": POEM})),
    "tags.md": THOUGHT + call("write_file", json.dumps({"path": "tags.md", "text": f"{TAGS} &amp; more"}, ensure_ascii=False)),
    "long.txt": call("write_file", json.dumps({"path": "long.txt", "text": "word " * 100})),
    "Break a call": THOUGHT + '<tool_call>\n{"name": "get_weather", "arguments": {"city": oops}}\n</tool_call>',
    "weather in Oslo today": THOUGHT + "Rain, and 4 degrees.",
}  # fmt: skip
"""Words of a case's last question -> what the model writes; `|` parts the answers of several choices."""


@functools.cache
def zoo_tokens() -> Tokens:
    return Tokens(FORMAT, [text for answer in ANSWERS.values() for text in answer.split("|")])


TEMPLATE = """
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or "" }}{% for call in message.tool_calls or [] %}<tool_call>
{{ call.function.name }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""


class Actor(ScriptedEngine):
    """An engine that knows what to answer, token by token."""

    def __init__(self, answers: dict[str, str] = ANSWERS, tokens: Tokens | None = None) -> None:
        self.answers = answers
        self.tokens = tokens or zoo_tokens()
        self.end = self.tokens.special["<|im_end|>"]
        super().__init__(
            self.tokens.vocabulary, [[]], model="actor", names=["Qwen/Qwen3-8B"], chat_template=TEMPLATE,
            end_ids=[self.end], context_length=8192,
        )  # fmt: skip

    def answer(self, generation: Generation) -> list[int]:
        prompt = self.vocabulary.decode(generation.prompt)
        asked = max(self.answers, key=lambda words: (prompt.rfind(words), len(words)))
        assert asked in prompt, prompt
        several = self.answers[asked].split("|")
        return [*self.tokens.encode(several[(generation.seed or 7) % 7 % len(several)]), self.end]

    def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        return self._replay(generation, [[id] for id in self.answer(generation)])


# -- faults ------------------------------------------------------------------------------------------------------------

Change = Callable[[Json], None]
Rewrite = Callable[[list[Json]], list[Json]]


@dataclass(frozen=True)
class Fault:
    """One fault, and what a check must say of it."""

    name: str
    like: str
    case: str
    """A case that shows it."""
    layer: str
    field: str
    cause: str
    once: Change | None = None
    """Changes a choice of a one-shot reply."""
    stream: Rewrite | None = None
    """Changes the chunks of a stream."""
    offset: int | None = None
    token: str | None = None
    """The text of the token that the finding points to."""
    strand: str | None = None
    reply: Change | None = None
    """Changes a one-shot reply as a whole."""
    tail: bytes = b"data: [DONE]\n\n"


def message(choice: Json) -> Json:
    found: Json = choice["message"]
    return found


def deltas(chunks: list[Json]) -> Iterator[tuple[Json, Json]]:
    """Every choice of every chunk, with its delta."""
    for chunk in chunks:
        for choice in chunk["choices"]:
            yield choice, choice["delta"]


def pieces(chunks: list[Json]) -> Iterator[Json]:
    """Every delta of a call."""
    for _, delta in deltas(chunks):
        yield from delta.get("tool_calls") or ()


def set_reasoning(target: Json, text: str | None) -> None:
    for name in ("reasoning", "reasoning_content"):
        target.pop(name, None)
        if text is not None:
            target[name] = text


def thoughts_as_content(choice: Json) -> None:
    said = message(choice)
    if thought := said.get("reasoning"):
        said["content"] = f"<think>\n{thought}\n</think>\n\n{said['content'] or ''}"
        set_reasoning(said, None)


def thought_deltas_as_content(chunks: list[Json]) -> list[Json]:
    for _, delta in deltas(chunks):
        if thought := delta.get("reasoning"):
            set_reasoning(delta, None)
            delta["content"] = thought
    return chunks


def content_as_thought(choice: Json) -> None:
    said = message(choice)
    if said["content"] and not said.get("tool_calls"):
        set_reasoning(said, (said.get("reasoning") or "") + said["content"])
        said["content"] = None


def content_deltas_as_thought(chunks: list[Json]) -> list[Json]:
    for _, delta in deltas(chunks):
        if text := delta.get("content"):
            set_reasoning(delta, text)
            del delta["content"]
    return chunks


def call_text(call: Json) -> str:
    return f'{{"name": "{call["function"]["name"]}", "arguments": {call["function"]["arguments"]}}}'


def calls_as_text(form: str) -> Change:
    def change(choice: Json) -> None:
        said = message(choice)
        if calls := said.pop("tool_calls", None):
            said["content"] = (said["content"] or "") + "\n".join(form % call_text(each) for each in calls)
            if choice["finish_reason"] == "tool_calls":
                choice["finish_reason"] = "stop"

    return change


def arguments(change: Callable[[str], str]) -> Change:
    def changed(choice: Json) -> None:
        for each in message(choice).get("tool_calls") or ():
            each["function"]["arguments"] = change(each["function"]["arguments"])

    return changed


def values(change: Callable[[Any], Any]) -> Change:
    """Every value of complete arguments, changed."""

    def changed(text: str) -> str:
        try:
            before = json.loads(text)
        except ValueError:
            return text
        after = {key: change(value) for key, value in before.items()}
        return text if after == before and repr(after) == repr(before) else json.dumps(after, ensure_ascii=False)

    return arguments(changed)


def content(change: Callable[[str], str | None]) -> Change:
    def changed(choice: Json) -> None:
        said = message(choice)
        if said["content"]:
            said["content"] = change(said["content"])

    return changed


def each_call(change: Callable[[int, Json], None]) -> Rewrite:
    def changed(chunks: list[Json]) -> list[Json]:
        for number, piece in enumerate(pieces(chunks)):
            change(number, piece)
        return chunks

    return changed


def drop(wanted: Callable[[Json, Json], bool]) -> Rewrite:
    """Chunks whose choice is as `wanted` never arrive."""

    def changed(chunks: list[Json]) -> list[Json]:
        return [chunk for chunk in chunks if not any(wanted(choice, choice["delta"]) for choice in chunk["choices"])]

    return changed


def last_argument_lost(chunks: list[Json]) -> list[Json]:
    """The piece that comes in the same step as the closer."""
    at = [n for n, chunk in enumerate(chunks) if any("id" not in piece for piece in pieces([chunk]))]
    return [chunk for n, chunk in enumerate(chunks) if n != at[-1]] if at else chunks


def text_deltas(name: str, change: Callable[[str], str]) -> Rewrite:
    def changed(chunks: list[Json]) -> list[Json]:
        for _, delta in deltas(chunks):
            if delta.get(name):
                delta[name] = change(delta[name])
        return chunks

    return changed


def first_call_only(choice: Json) -> None:
    if calls := message(choice).get("tool_calls"):
        del calls[1:]


def same_index(number: int, piece: Json) -> None:
    piece["index"] = 0


def no_id(number: int, piece: Json) -> None:
    piece.pop("id", None)


def split_name(chunks: list[Json]) -> list[Json]:
    out = []
    for chunk in chunks:
        named = next((piece for piece in pieces([chunk]) if piece["function"].get("name")), None)
        if named is None:
            out.append(chunk)
            continue
        name = named["function"]["name"]
        rest = copy.deepcopy(chunk)
        named["function"]["name"] = name[:3]
        rest["choices"][0]["delta"] = {"tool_calls": [{"index": named["index"], "function": {"name": name[3:]}}]}
        out += [chunk, rest]
    return out


def call_twice_named(chunks: list[Json]) -> list[Json]:
    """Each delta of a call repeats id and name."""
    heads: dict[int, Json] = {}
    for piece in pieces(chunks):
        if "id" in piece:
            heads[piece["index"]] = piece
        else:
            piece["function"]["name"] = heads[piece["index"]]["function"]["name"]
    return chunks


def finish(change: dict[str, str]) -> Change:
    def changed(choice: Json) -> None:
        choice["finish_reason"] = change.get(choice["finish_reason"], choice["finish_reason"])

    return changed


def finish_deltas(change: dict[str, str]) -> Rewrite:
    def changed(chunks: list[Json]) -> list[Json]:
        for choice, _ in deltas(chunks):
            choice["finish_reason"] = change.get(choice["finish_reason"], choice["finish_reason"])
        return chunks

    return changed


def cut_call_is_a_call(choice: Json) -> None:
    if choice["finish_reason"] == "length" and message(choice).get("tool_calls"):
        choice["finish_reason"] = "tool_calls"


def empty_between(chunks: list[Json]) -> list[Json]:
    empty = copy.deepcopy(chunks[0])
    empty["choices"][0] |= {"delta": {}, "logprobs": None, "token_ids": None}
    return [chunks[0], empty, empty, *chunks[1:]]


def text_after_finish(chunks: list[Json]) -> list[Json]:
    at = next(n for n, chunk in enumerate(chunks) if chunk["choices"] and chunk["choices"][0]["finish_reason"])
    last = copy.deepcopy(chunks[at])
    last["choices"][0] |= {"delta": {"content": "\n"}, "finish_reason": None, "token_ids": None, "logprobs": None}
    return [*chunks[: at + 1], last, *chunks[at + 1 :]]


def all_logprobs(choice: Json) -> None:
    """Entries of the whole output, where only those of the content belong."""
    if choice.get("logprobs") and message(choice).get("reasoning"):
        thought = message(choice)["reasoning"]
        entry = {"token": thought, "logprob": -0.1, "bytes": list(thought.encode()), "top_logprobs": []}
        choice["logprobs"]["content"].insert(0, entry)


def hidden_logprobs(choice: Json) -> None:
    """Hidden reasoning can be read there."""
    if choice.get("logprobs") and not message(choice).get("reasoning"):
        secret = "The secret: 3 times 19 is 57."
        entry = {"token": secret, "logprob": -0.1, "bytes": list(secret.encode()), "top_logprobs": []}
        choice["logprobs"]["content"].insert(0, entry)


def hidden_deltas(chunks: list[Json]) -> list[Json]:
    """Hidden reasoning is in the stream all the same."""
    if not any("reasoning" in delta for _, delta in deltas(chunks)):
        leak = copy.deepcopy(chunks[0])
        leak["choices"][0]["delta"] = {"reasoning_content": "The secret: 3 times 19 is 57."}
        return [chunks[0], leak, *chunks[1:]]
    return chunks


def no_reasoning_tokens(reply: Json) -> None:
    reply["usage"]["completion_tokens_details"] = {"reasoning_tokens": 0}


def mixed_choices(chunks: list[Json]) -> list[Json]:
    for choice, _ in deltas(chunks):
        choice["index"] = 0
    return chunks


def one_frame(chunks: list[Json]) -> list[Json]:
    """Arguments are kept back until the call is whole."""
    texts: dict[int, str] = {}
    for piece in pieces(chunks):
        texts[piece["index"]] = texts.get(piece["index"], "") + piece["function"].get("arguments", "")
    out = []
    for chunk in chunks:
        own = list(pieces([chunk]))
        for piece in own:
            if "id" in piece:
                piece["function"]["arguments"] = texts[piece["index"]]
        if not own or any("id" in piece for piece in own):
            out.append(chunk)
    return out


def doubled(chunks: list[Json]) -> list[Json]:
    """Two writers to one buffer: the second delta of the content comes twice."""
    at = [n for n, chunk in enumerate(chunks) if any(delta.get("content") for _, delta in deltas([chunk]))]
    return [*chunks[: at[1] + 1], *chunks[at[1] :]] if len(at) > 1 else chunks


def envelope(chunks: list[Json]) -> list[Json]:
    """The whole envelope arrives as the arguments."""
    for piece in pieces(chunks):
        if "id" in piece:
            piece["function"]["arguments"] = f'{{"name": "{piece["function"]["name"]}", "arguments": '
    return chunks


def stop_shown(choice: Json) -> None:
    if choice.get("stop_reason") == "5,":
        message(choice)["content"] += "5,"


def prefill_again(choice: Json) -> None:
    if (message(choice)["content"] or "").startswith(" pears"):
        message(choice)["content"] = "Three fruits are apples," + message(choice)["content"]


def at_marker(text: str) -> str:
    """Cut where a marker is only quoted."""
    at = text.find("</tool_call>")
    return text if at < 0 else text[:at]


def blank_after_call(chunks: list[Json]) -> list[Json]:
    """White space that the closer owns comes as content."""
    at = [n for n, chunk in enumerate(chunks) if list(pieces([chunk]))]
    if not at:
        return chunks
    blank = copy.deepcopy(chunks[at[-1]])
    blank["choices"][0] |= {"delta": {"content": "\n"}, "token_ids": None}
    return [*chunks[: at[-1] + 1], blank, *chunks[at[-1] + 1 :]]


def same_id(choice: Json) -> None:
    for each in message(choice).get("tool_calls") or ():
        each["id"] = "call_1"


def own_position(number: int, piece: Json) -> None:
    """The index is where the tool stands among the request's tools."""
    piece["index"] = 1


def one_name_cut(choice: Json) -> None:
    """The newer name of the field is filled from another buffer."""
    if thought := message(choice).get("reasoning"):
        message(choice)["reasoning"] = thought[:-3]


def breaks_off(chunks: list[Json]) -> list[Json]:
    """An exception in the middle: the status was sent long ago."""
    return [*chunks[:4], {"error": {"message": "list index out of range", "code": 500}}]


def new_id_each(chunks: list[Json]) -> list[Json]:
    for number, chunk in enumerate(chunks):
        chunk["id"] = f"chatcmpl-{number}"
    return chunks


def half_marker(chunks: list[Json]) -> list[Json]:
    """What may begin a marker is shown before it is known to be one."""
    at = next((n for n, chunk in enumerate(chunks) if list(pieces([chunk]))), None)
    if at is None:
        return chunks
    shown = copy.deepcopy(chunks[at])
    shown["choices"][0] |= {"delta": {"content": "<tool"}, "token_ids": None}
    return [*chunks[:at], shown, *chunks[at:]]


def entry_lost(chunks: list[Json]) -> list[Json]:
    """Of what was held back for a stop string, the text comes later and its log-probabilities don't."""
    first = next((choice for choice, _ in deltas(chunks) if (choice.get("logprobs") or {}).get("content")), None)
    if first is not None:
        del first["logprobs"]["content"][0]
    return chunks


def stopped_in_thought(choice: Json) -> None:
    said = message(choice)
    if "5," in (said.get("reasoning") or ""):
        set_reasoning(said, said["reasoning"].partition("5,")[0])
        said["content"] = None


def call_although_none(choice: Json) -> None:
    said = message(choice)
    if "<tool_call>" in (said["content"] or ""):
        function = {"name": "get_weather", "arguments": '{"city": "Bonn", "days": 1}'}
        said["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
        said["content"] = said["content"].partition("<tool_call>")[0]


def hidden_ids(choice: Json) -> None:
    """The ids of the whole output, thought and all."""
    if not message(choice).get("reasoning"):
        choice["token_ids"] = zoo_tokens().encode(ANSWERS["57 a prime"])


def arguments_as_objects(choice: Json) -> None:
    for each in message(choice).get("tool_calls") or ():
        each["function"]["arguments"] = json.loads(each["function"]["arguments"])


def twice_counted(reply: Json) -> None:
    reply["usage"]["completion_tokens"] *= 2


ARGUMENTS = "tool_calls[0].function.arguments"
NAME = "tool_calls[0].function.name"

FAULTS = (
    Fault("thoughts in content", "V#34684", "reasoning", "one-shot", "content", "reasoning_in_content", thoughts_as_content, strand="content"),
    Fault("thoughts in content, stream only", "V#46042", "reasoning", "stream", "content", "reasoning_in_content", stream=thought_deltas_as_content),
    Fault("answer in reasoning", "D#8636", "reasoning_off", "one-shot", "reasoning", "content_in_reasoning", content_as_thought),
    Fault("JSON in reasoning, stream only", "S#14821", "structured_off", "stream", "reasoning", "content_in_reasoning", stream=content_deltas_as_thought),
    Fault("last piece of the arguments lost", "V#10781", "call_auto", "stream", ARGUMENTS, "text_cut", stream=last_argument_lost, strand="tool_call"),
    Fault("text before the call lost", "T#17296", "text_and_call", "one-shot", "content", "text_cut", lambda c: message(c).update(content=None) if message(c).get("tool_calls") else None, offset=0, strand="content"),
    Fault("text after the call lost", "V#56263", "call_and_text", "one-shot", "content", "text_cut", content(lambda t: None if "waiting" in t else t), offset=0, strand="content"),
    Fault("argument cut at a quoted marker", "V#45167", "call_with_markers", "one-shot", ARGUMENTS, "marker_eaten", arguments(at_marker), strand="tool_call"),
    Fault("content cut at a quoted marker", "L#22371", "markers_in_prompt", "one-shot", "content", "marker_eaten", content(lambda t: t.partition("<tool_call>")[0] if "are tags" in t else t), strand="content"),
    Fault("quoted closer swallowed", "V#51679", "markers_in_prompt", "stream", "content", "marker_eaten", stream=lambda chunks: drop_text(chunks, "</think>"), strand="content"),
    Fault("call's special marker stripped", "V#16190", "call_auto", "one-shot", NAME, "special_stripped", calls_as_text("\n%s\n")),
    Fault("call left as text", "S#26790", "call_auto", "one-shot", NAME, "call_lost", calls_as_text("<tool_call>\n%s\n</tool_call>")),
    Fault("call dropped", "OM#2507", "call_auto", "one-shot", NAME, "call_lost", lambda c: message(c).pop("tool_calls", None)),
    Fault("end token leaked", "V#48645", "plain", "one-shot", "content", "marker_leaked", content(lambda t: t + "<|im_end|>" if t.startswith("The Loire") else t), offset=31, strand="control"),
    Fault("end tag stripped", "V#16190", "end_tag_kept", "stream", "content", "special_stripped", stream=lambda chunks: drop_text(chunks, "<|im_end|>"), offset=11, token="<|im_end|>"),
    Fault("call text deleted in the stream only", "V#55080", "call_none", "stream", "content", "text_cut", stream=lambda chunks: drop_text(chunks, call("get_weather", '{"city": "Bonn", "days": 1}')), offset=22, strand="content"),
    Fault("logprobs cover thoughts", "S#25055", "logprobs", "one-shot", "logprobs.content", "logprobs", all_logprobs, offset=0),
    Fault("hidden thoughts in logprobs", "V#57935", "hidden_reasoning", "one-shot", "logprobs.content", "hidden_reasoning", hidden_logprobs, strand="reasoning"),
    Fault("hidden thoughts in the stream", "V#57935", "hidden_reasoning", "stream", "reasoning", "hidden_reasoning", stream=hidden_deltas, strand="reasoning"),
    Fault("emoji broken", "ferrox#124", "unicode", "stream", "content", "character_broken", stream=text_deltas("content", lambda t: t.replace("🌉", "��"))),
    Fault("numbers become text", "V#36032", "call_types", "one-shot", ARGUMENTS, "argument_type", values(lambda v: str(v) if type(v) is int else v)),
    Fault("null becomes text", "S#27640", "call_types", "one-shot", ARGUMENTS, "argument_type", values(lambda v: "None" if v is None else v)),
    Fault("blanks at the end of a value stripped", "V#48753", "call_long", "one-shot", ARGUMENTS, "white_space", values(lambda v: v.strip() if isinstance(v, str) else v)),
    Fault("entities decoded", "SMG#1888", "call_with_markers", "one-shot", ARGUMENTS, "entities", arguments(lambda t: t.replace("&amp;", "&"))),
    Fault("arguments re-serialised", "V#48852", "call_auto", "one-shot", ARGUMENTS, "arguments_rewritten", arguments(lambda t: json.dumps(json.loads(t)) if t.endswith("}") else t)),
    Fault("no arguments are an empty text", "V#28806", "call_no_arguments", "one-shot", ARGUMENTS, "arguments_broken", arguments(lambda t: "" if t == "{}" else t)),
    Fault("all calls have index 0", "O#15457", "calls_parallel", "stream", "index", "call_index", stream=each_call(same_index)),
    Fault("ids missing in the stream", "V#18412", "call_auto", "stream", "id", "call_id", stream=each_call(no_id)),
    Fault("name in pieces", "V#39757", "call_auto", "stream", "name", "call_name", stream=split_name),
    Fault("name on every delta", "V#42696", "call_auto", "stream", "name", "call_name", stream=call_twice_named),
    Fault("a cut call is called one", "V#58228", "call_cut", "one-shot", "finish_reason", "finish_reason", cut_call_is_a_call),
    Fault("stop instead of tool_calls", "LL#37792", "call_auto", "stream", "finish_reason", "finish_reason", stream=finish_deltas({"tool_calls": "stop"})),
    Fault("stop text shown", "V#52599", "stop_string", "one-shot", "content", "stop_string", stop_shown),
    Fault("empty deltas", "V#54701", "plain", "stream", "delta", "empty_delta", stream=empty_between),
    Fault("delta after the end", "V#55633", "plain", "stream", "delta", "stream_order", stream=text_after_finish),
    Fault("no end of the stream", "LL#37792", "plain", "stream", "[DONE]", "stream_order", stream=lambda chunks: chunks, tail=b""),
    Fault("blank between call and end, stream only", "V#55633", "call_auto", "stream", "content", "edge_space", stream=blank_after_call),
    Fault("reasoning tokens not counted", "LL#41849", "reasoning", "one-shot", "usage.reasoning_tokens", "usage", reply=no_reasoning_tokens, strand="reasoning"),
    Fault("first of several calls only", "S#31860", "calls_parallel", "one-shot", "tool_calls[1].function.name", "call_lost", first_call_only),
    Fault("text doubled", "V#24509", "plain", "stream", "content", "text_doubled", stream=doubled),
    Fault("choices mixed up", "S#30556", "two_choices", "stream", "choices", "choices_mixed", stream=mixed_choices),
    Fault("arguments in one frame", "D#13821", "call_long", "stream", ARGUMENTS, "not_streamed", stream=one_frame),
    Fault("envelope in the arguments", "V#47977", "call_auto", "stream", ARGUMENTS, "text_added", stream=envelope),
    Fault("reasoning deltas dropped", "LL#20246", "reasoning", "stream", "reasoning", "text_cut", stream=drop(lambda c, d: "reasoning" in d), offset=0, strand="reasoning"),
    Fault("prefill repeated", "L (docs/reports)", "continued", "one-shot", "content", "prefill", prefill_again, offset=0),
    Fault("two calls have one id", "O#7881", "calls_parallel", "one-shot", "tool_calls[1].id", "call_id", same_id),
    Fault("index is the tool's position", "S#6310", "call_auto", "stream", "index", "call_index", stream=each_call(own_position)),
    Fault("arguments as an object", "LL (Ollama)", "call_auto", "one-shot", "choices[0].message." + ARGUMENTS, "wrong_type", arguments_as_objects),
    Fault("the two names of reasoning disagree", "LL#20246", "reasoning", "one-shot", "reasoning", "reasoning_fields", one_name_cut),
    Fault("exception in the middle of the stream", "V#46464", "plain", "stream", "chunk 4", "stream_error", stream=breaks_off, tail=b""),
    Fault("a new id on every chunk", "L#18551", "plain", "stream", "id", "stream_order", stream=new_id_each),
    Fault("half a marker shown", "V#57490", "call_auto", "stream", "content", "text_added", stream=half_marker, offset=0),
    Fault("blanks at the ends of pieces stripped", "E/V#55633", "long_text", "stream", "content", "white_space", stream=text_deltas("content", str.strip), strand="content"),
    Fault("log-probabilities lost behind a stop buffer", "V#31135", "logprobs", "stream", "logprobs.content", "logprobs", stream=entry_lost, offset=0),
    Fault("stop string ends the thought", "V#53066", "stop_string", "one-shot", "reasoning", "stop_string", stopped_in_thought, strand="reasoning"),
    Fault("a cut answer is called whole", "exo#2183", "truncated", "one-shot", "finish_reason", "finish_reason", finish({"length": "stop"})),
    Fault("a call although none was allowed", "S#30925", "call_none", "one-shot", NAME, "call_invented", call_although_none),
    Fault("hidden thoughts in token ids", "V#57935", "hidden_reasoning", "one-shot", "token_ids", "hidden_reasoning", hidden_ids, strand="reasoning"),
    Fault("tokens counted twice", "V#14472", "plain", "one-shot", "usage.completion_tokens", "usage", reply=twice_counted),
    Fault("no usage though it was asked for", "LL#10691", "plain", "stream", "usage", "usage", stream=lambda chunks: [{**chunk, "usage": None} for chunk in chunks if chunk["choices"]]),
    Fault("opening brace doubled", "V#48228", "structured", "one-shot", "content", "text_doubled", content(lambda t: "{" + t if t.startswith('{"city"') else t), offset=1),
)  # fmt: skip


def drop_text(chunks: list[Json], text: str) -> list[Json]:
    """A piece of content never arrives, however it was cut."""
    whole = "".join(delta.get("content") or "" for _, delta in deltas(chunks))
    at = whole.find(text)
    seen = 0
    for _, delta in deltas(chunks) if at >= 0 else ():
        if piece := delta.get("content"):
            kept = "".join(c for n, c in enumerate(piece, seen) if not at <= n < at + len(text))
            seen += len(piece)
            delta["content"] = kept
            if not kept:
                delta["content"] = None
    return chunks


class Broken:
    """Stands before an application and spoils its replies."""

    def __init__(self, app: ASGIApp, fault: Fault | None = None) -> None:
        self.app = app
        self.fault = fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.fault is None or scope["type"] != "http" or scope["path"] != "/v1/chat/completions":
            await self.app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def collect(sent: Message) -> None:
            nonlocal start, body
            if sent["type"] == "http.response.start":
                start = sent
            else:
                body += sent.get("body", b"")

        await self.app(scope, receive, collect)
        assert start is not None
        if start["status"] == 200:
            kind = dict(start["headers"])[b"content-type"]
            body = self.spoil_stream(body) if b"event-stream" in kind else self.spoil(body)
            start = {**start, "headers": [(b"content-type", kind)]}
        await send(start)
        await send({"type": "http.response.body", "body": body})

    def spoil(self, body: bytes) -> bytes:
        assert self.fault is not None
        reply = json.loads(body)
        if self.fault.once:
            for choice in reply["choices"]:
                self.fault.once(choice)
        if self.fault.reply:
            self.fault.reply(reply)
        return json.dumps(reply).encode()

    def spoil_stream(self, body: bytes) -> bytes:
        assert self.fault is not None
        if self.fault.stream is None:
            return body
        chunks = [json.loads(event.data) for event in read_events(body.decode()) if event.data != "[DONE]"]
        return (
            b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in self.fault.stream(chunks))
            + self.fault.tail
        )


def deployment(fault: Fault | None = None, engine: Actor | None = None) -> ASGIApp:
    """Our server with this fault."""
    return Broken(create_app(engine or Actor(), FORMAT), fault)


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Any application on a real port, also one that knows no start and end; its URL."""
    config = uvicorn.Config(app, log_level="warning", lifespan="off")
    with listen("127.0.0.1", 0) as listening, running(config, listening) as url:
        yield url


class Silent:
    """Lets nothing of the raw layer out: no token ids, no tokens, as most gateways."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in ("/tokenize", "/detokenize"):
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"{}"})
            return
        if scope["type"] != "http" or scope["path"] != "/v1/chat/completions":
            await self.app(scope, receive, send)
            return
        body, more = b"", True
        while more:
            received = await receive()
            body += received.get("body", b"")
            more = received.get("more_body", False)
        body = json.dumps({k: v for k, v in json.loads(body).items() if k != "return_token_ids"}).encode()
        first = True

        async def changed() -> Message:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        await self.app(scope, changed, send)
