"""A server without a model: an engine that says the same to everyone, and a client of the app around it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx

import unbraid
from unbraid.engines.base import Abilities, Generation, Step, TokenLogprob
from unbraid.errors import EngineError
from unbraid.server import Settings, create_app

TEMPLATE = """
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %}"""

FORMAT = unbraid.get_format("qwen3")
SPECIAL = {text: 256 + n for n, text in enumerate(dict.fromkeys([*FORMAT.specials, "<|im_start|>", "<|im_end|>"]))}
VOCABULARY = unbraid.Vocabulary.from_tokens({n: bytes([n]) for n in range(256)}, special=SPECIAL)
END = SPECIAL["<|im_end|>"]
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


class Parrot:
    """Says the same text to everyone, a byte or a special token per step.

    Unlike `engines.scripted` it minds stop tokens, and it can stall, or end without a word, as no sound engine does."""

    abilities = Abilities(constraints=("mask",), top_logprobs=20)
    model = "tiny"
    vocabulary = VOCABULARY
    context_length = 2000
    chat_template: str | None = TEMPLATE
    special_tokens: dict[str, str] = {}  # noqa: RUF012
    format_hint: str | None = "Qwen/Qwen3-8B"
    names: tuple[str, ...] = ("Qwen/Qwen3-8B",)
    end_ids = frozenset({END})

    def __init__(self, text: str = "Hi.<|im_end|>", *, fail_at: int | None = None, stall_at: int | None = None) -> None:
        self.ids = VOCABULARY.encode(text)
        self.fail_at, self.stall_at = fail_at, stall_at
        self.asked: list[Generation] = []
        self.running = self.said = 0
        self.closed = False

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        return VOCABULARY.encode(text, special=special)

    async def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        self.asked.append(generation)
        self.running += 1
        try:
            for at, id in enumerate(self.ids):
                await asyncio.sleep(0)
                if at == self.fail_at:
                    raise EngineError("the cable was pulled")
                if at == self.stall_at:
                    await asyncio.Event().wait()
                self.said += 1
                last = at + 1 == generation.max_tokens
                stop = id in generation.stop_ids or (id == END and not generation.ignore_eos)
                logprobs = () if generation.logprobs is None else (self._logprob(id, generation.logprobs),)
                yield [Step((id,), logprobs, "stop" if stop else "length" if last else None)]
                if stop or last:
                    return
        finally:
            self.running -= 1

    def _logprob(self, id: int, top: int) -> TokenLogprob:
        data = VOCABULARY.tokens[id]
        one = TokenLogprob(id, -0.25, data.decode("utf-8", "replace"), data)
        return TokenLogprob(one.id, one.logprob, one.token, one.bytes, (one,) * top)

    async def ready(self) -> None:
        pass

    async def close(self) -> None:
        self.closed = True


class Client:
    """Requests to an app on `engine`, without a socket."""

    def __init__(self, engine: Parrot, settings: Settings | None = None) -> None:
        self.engine = engine
        self.app = create_app(engine, "auto", settings or Settings())

    async def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await http.request(method, path, **kwargs)

    async def post(self, **fields: Any) -> httpx.Response:
        fields.setdefault("messages", [{"role": "user", "content": "Hello"}])
        return await self.request("POST", "/v1/chat/completions", json=fields)

    async def chat(self, **fields: Any) -> dict[str, Any]:
        response = await self.post(**fields)
        assert response.status_code == 200, response.text
        reply: dict[str, Any] = response.json()
        return reply

    async def stream(self, **fields: Any) -> list[dict[str, Any]]:
        response = await self.post(stream=True, **fields)
        assert response.status_code == 200, response.text
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        *lines, done, rest = response.text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(line.removeprefix("data: ")) for line in lines]
