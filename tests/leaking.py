"""Outputs with a secret for a thought, requests for them in every API, and what may be seen of the secret: nothing.

The reasoning of real shapes (the fixtures of every format) is replaced by a secret whose tokens occur nowhere else. Then the
same request is made with the reasoning shown and hidden: no form of the secret may be in what a client receives, and what it
receives must be what it would have got otherwise, with the reasoning filtered out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import fixtures
import httpx
from starlette.applications import Starlette
from tokens import OPEN, Tokens

import unbraid
from unbraid.engines.scripted import ScriptedEngine
from unbraid.events import Event
from unbraid.message import Message
from unbraid.server import Settings

SECRET = "Vuxi wants kumquats\U0001f511 at jolq; zebrafy"
PIECES = ("Vuxi", "kumquats", "jolq", "zebrafy", "\U0001f511")
TEMPLATE = "{{ messages[0].content if tools or not tools }}"  # knows of tools; the test writes the prompt itself
SETTINGS = Settings(literal_messages=False)  # and its markers are tokens
HIDDEN: list[dict[str, Any]] = [
    {"include_reasoning": False},
    {"reasoning_format": "hidden"},
    {"reasoning": {"exclude": True}},
]


@dataclass(frozen=True)
class Case:
    """An output with a secret in it."""

    format: str
    prompt: str
    raw: str
    tools: list[dict[str, Any]] | None
    thinking: bool | None
    tokens: Tokens

    @property
    def ids(self) -> list[int]:
        return self.tokens.encode(self.raw)

    def events(self, tool_choice: str = "auto") -> list[Event]:
        prompt = self.tokens.encode(self.prompt)
        parser = unbraid.Parser(
            self.tokens.bound, tools=self.tools, prompt=prompt, thinking=self.thinking, tool_choice=tool_choice
        )
        return [*(event for id in self.ids for event in parser.feed([id])), *parser.finish("stop")]

    def parsed(self) -> Message:
        prompt = self.tokens.encode(self.prompt)
        return unbraid.parse(self.tokens.bound, self.ids, prompt=prompt, tools=self.tools, thinking=self.thinking)

    def of(self, *strands: str, tool_choice: str = "auto") -> list[int]:
        """The ids of some strands."""
        ids, events = self.ids, self.events(tool_choice)
        return [id for e in events if e.strand in strands for id in ids[e.token_start : e.token_stop]]


def cases() -> Iterator[Case]:
    """One output of each format, if it has one that thinks and then says or calls something; two thoughts for some."""
    for name, rows in fixtures.FIXTURES.items():
        for row in rows:
            usable = row.reasoning and row.raw.count(row.reasoning) == 1 and (row.content or row.calls)
            plain = row.policy == unbraid.Policy() and row.finish == "stop" and row.prompt and OPEN not in row.raw
            if not (usable and plain and row.prompt):
                continue
            raw = row.raw.replace(row.reasoning or "", SECRET)
            tools = row.tools or fixtures.expand({call[0]: {} for call in row.calls}) or None
            case = _case(name, row.prompt, raw, tools, row.thinking)
            found = case.parsed()
            if found.reasoning == SECRET and found.content == row.content and found.tool_calls:
                yield case
                break
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    twice = f"<think>\n{SECRET}\n</think>\n\nFirst this, E<think>\n{SECRET}\n</think>\n\nND then that.<|im_end|>"
    yield _case("qwen3", prompt, twice, None, None)


def _case(name: str, prompt: str, raw: str, tools: Any, thinking: bool | None) -> Case:
    return Case(name, prompt, raw, tools, thinking, Tokens(unbraid.get_format(name), [raw, prompt]))


CASES = list(cases())
THOROUGH = ("qwen3", "harmony", "deepseek_r1", "gemma4", "glm45", "mistral_v13", "minimax_m3", "kimi_k2")
"""Formats that go through all variants; the others share them out among each other."""


def request(case: Case, api: str, **wishes: Any) -> tuple[str, dict[str, Any]]:
    """The same question in each API."""
    turn = [{"role": "user", "content": case.prompt}]
    functions = [tool["function"] for tool in case.tools or ()]
    thinking: dict[str, Any] = {} if case.thinking is None else {"enable_thinking": case.thinking}
    match api:
        case "chat":
            tools: dict[str, Any] = {"tools": case.tools} if case.tools else {}
            return "/v1/chat/completions", {"messages": turn} | tools | thinking | wishes
        case "completions":
            return "/v1/completions", {"prompt": case.prompt, "max_tokens": 1000} | wishes
        case "messages":
            blocks = [{"name": f["name"], "input_schema": f["parameters"]} for f in functions]
            return "/v1/messages", {"messages": turn, "max_tokens": 1000, "tools": blocks} | thinking | wishes
        case _:
            flat = [{"type": "function", **function} for function in functions]
            return "/v1/responses", {"input": turn, "tools": flat} | thinking | wishes


def scripted(case: Case) -> ScriptedEngine:
    return ScriptedEngine(case.tokens.vocabulary, [[[id] for id in case.ids]], chat_template=TEMPLATE)


async def received(app: Starlette, case: Case, api: str, **wishes: Any) -> str:
    path, body = request(case, api, **wishes)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
        response = await http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.text


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *(
        (api, {"stream": stream, "n": n} | spans)
        for api in ("chat", "completions")
        for stream in (False, True)
        for n in (1, 2)
        for spans in ({}, {"logprobs": True, "return_token_ids": True, "return_tokens_as_token_ids": n == 2})
    ),
    *(("messages", {"stream": stream}) for stream in (False, True)),
    *(
        ("responses", {"stream": stream, "include": include})
        for stream in (False, True)
        for include in ([], ["message.output_text.logprobs", "reasoning.encrypted_content"])
    ),
]


async def keeps_the_secret(app: Starlette, case: Case, number: int) -> None:
    """One of the variants, with the thought hidden and shown."""
    api, variant = VARIANTS[number]
    wishes = dict(variant)
    if wishes.get("logprobs"):
        wishes |= {"top_logprobs": 2} if api == "chat" else {"logprobs": 2}
    elif wishes.get("include"):
        wishes["top_logprobs"] = 2
    hidden = await received(app, case, api, **wishes, **HIDDEN[number % len(HIDDEN)])
    no_trace(case, hidden, "none" if api == "completions" else "auto")
    if api != "completions":  # raw text that is shown is another text
        shown = await received(app, case, api, **wishes)
        assert PIECES[0] in joined_text(api, shown)
        assert visible(api, hidden) == visible(api, shown)
    if wishes.get("return_token_ids") and api == "chat":
        assert sorted(token_ids(hidden)) == sorted(case.of("content", "tool_call") * wishes["n"])


def no_trace(case: Case, body: str, tool_choice: str) -> None:
    """No form in which the secret could appear: text, token strings, bytes, ids. Nor its delimiters, nor empty chunks."""
    secret_ids = set(case.of("reasoning", "markup", tool_choice=tool_choice))
    secret_ids -= set(case.of("content", "tool_call", tool_choice=tool_choice))
    text = body.encode().decode("unicode_escape") + body
    for piece in PIECES:
        assert piece not in text
        for data in (piece.encode(), piece[:3].encode()):
            assert json.dumps(list(data), separators=(",", ":"))[1:-1] not in body
    for value in values(body):
        for name, found in walk(value):
            if name in ("token_ids", "prompt_token_ids") and found is not None:
                assert not secret_ids & set(found)
            if isinstance(found, str) and found.startswith("token_id:"):
                assert int(found.removeprefix("token_id:")) not in secret_ids
            assert name not in ("reasoning_content", "thinking", "signature", "reasoning_text")
            assert not (name == "delta" and found == {} and not finished(value))
            if name in ("content", "text", "delta", "token", "partial_json") and isinstance(found, str):
                assert "think>" not in found


def finished(chunk: Any) -> bool:
    return any(choice["finish_reason"] for choice in chunk["choices"])


def values(body: str) -> list[Any]:
    """The JSON values of a reply, streamed or not."""
    if not body.startswith(("data:", "event:")):
        return [json.loads(body)]
    lines = [line.removeprefix("data: ") for line in body.split("\n") if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def walk(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    yield name, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from walk(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)


def joined_text(api: str, body: str) -> str:
    wanted = {"chat": "reasoning", "messages": "thinking", "responses": "delta" if "event:" in body else "text"}[api]
    found = [inner for value in values(body) for name, inner in walk(value) if name == wanted]
    return "".join(piece for piece in found if isinstance(piece, str))


# -- what is visible, as one value that both replies must share ---------------------------------------------------------


def visible(api: str, body: str) -> Any:
    parts = [{"chat": chat_part, "messages": messages_part, "responses": responses_part}[api](v) for v in values(body)]
    return [part for part in parts if part is not None]


def token_ids(body: str) -> list[int]:
    return [id for value in values(body) for name, found in walk(value) if name == "token_ids" for id in found or ()]


def chat_part(value: dict[str, Any]) -> Any:
    """Without ids of the reply and of tokens, which are compared on their own; None for a chunk of reasoning."""
    choices = []
    for choice in value["choices"]:
        plain = {key: inner for key, inner in choice.items() if key not in ("token_ids", "token_logprobs")}
        for holder in ("message", "delta"):
            if holder in plain:
                shown = {k: v for k, v in plain[holder].items() if k not in ("reasoning", "reasoning_content")}
                if not shown and plain[holder]:
                    return None
                plain[holder] = shown
        choices.append(plain)
    return choices, value.get("usage")


def messages_part(value: dict[str, Any]) -> Any:
    if value["type"] == "message":
        blocks = [block for block in value["content"] if block["type"] != "thinking"]
        return blocks, value["stop_reason"], value["usage"]
    text = json.dumps(value)
    if "thinking" in text or "signature_delta" in text or value["type"] in ("content_block_stop", "message_start"):
        return None
    return {key: inner for key, inner in value.items() if key != "index"}


def responses_part(value: dict[str, Any]) -> Any:
    if value.get("item", value.get("part", {})).get("type") in ("reasoning", "reasoning_text"):
        return None
    if value.get("type", "").startswith("response.reasoning"):
        return None
    response = value.get("response", value if value.get("object") == "response" else None)
    if response is not None:
        items = [without(item, "id") for item in response["output"] if item["type"] != "reasoning"]
        return items, response["usage"], response["status"]
    plain = without(value, "sequence_number", "output_index", "item_id")
    return plain | ({"item": without(plain["item"], "id")} if "item" in plain else {})


def without(value: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: inner for key, inner in value.items() if key not in names}
