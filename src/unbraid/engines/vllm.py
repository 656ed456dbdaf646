"""vLLM, over `/v1/completions`: ids in, and ids out by `return_token_ids` (vLLM 0.10.2 and newer).

It is asked for every token, special ones too, and runs none of its parsers on completions. Fields as in vLLM 0.32's
`CompletionRequest`; what it answered was looked at with the real one (`make test-vllm`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from unbraid.engines.base import SETTINGS, Abilities, Generation, Grammar, Step, TokenLogprob
from unbraid.engines.profile import Told, told_by_models
from unbraid.engines.remote import Get, Post, Reading, ended, ids_of
from unbraid.errors import EngineError


class _Logprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    token_ids: list[int] | None = None
    text: str = ""
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    error: Any = None


class Vllm:
    """The dialect."""

    name = "vLLM"
    kind = "vllm"
    path = "/v1/completions"
    abort_path = None
    decoder = msgspec.json.Decoder(_Event)
    abilities = Abilities(
        constraints=("structural_tag", "json_schema", "regex"),
        top_logprobs=20,
        passed=frozenset(
            "repetition_penalty min_tokens bad_words allowed_token_ids priority kv_transfer_params vllm_xargs cache_salt".split()
        ),
    )

    def told(self, get: Get, wanted: str | None) -> Told:
        return told_by_models(get, wanted)

    def body(self, generation: Generation, model: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "prompt": list(generation.prompt),
            "stream": True,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "include_stop_str_in_output": True,
        }
        for name in ("max_tokens", *SETTINGS):
            if (value := getattr(generation, name)) is not None:
                body[name] = value
        if generation.stop_ids:
            body["stop_token_ids"] = list(generation.stop_ids)
        if generation.ignore_eos:
            body["ignore_eos"] = True
        if generation.logit_bias:
            body["logit_bias"] = {str(id): bias for id, bias in generation.logit_bias.items()}
        if generation.logprobs is not None:
            body |= {"logprobs": generation.logprobs, "return_tokens_as_token_ids": True}
        if isinstance(generation.constraint, Grammar):
            body["structured_outputs"] = structured_outputs(generation.constraint)
        return body | generation.extra

    def steps(self, event: _Event, reading: Reading) -> list[Step]:
        if not event.choices:
            return []
        choice = event.choices[0]
        if choice.token_ids is None:
            if choice.text:
                raise EngineError("vLLM reports no token ids: it is older than 0.10.2 (or no vLLM)", status=502)
            choice.token_ids = []
        finish = ended(choice.finish_reason, self.name)
        if not choice.token_ids and finish is None:
            return []
        logprobs = _logprobs(choice.logprobs, reading) if choice.logprobs else ()
        return [Step(tuple(choice.token_ids), logprobs, finish)]

    def end(self, reading: Reading) -> None:
        return None

    def tokenize(self, text: str, post: Post, model: str, *, special: bool) -> list[int]:
        if not special:
            raise EngineError("vLLM can't spell special tokens as text: give its tokenizer with --tokenizer")
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        found = post("/tokenize", body)
        return ids_of(found.get("tokens") if isinstance(found, dict) else found, self.name)


def structured_outputs(grammar: Grammar) -> dict[str, Any]:
    """vLLM's name for each kind of constraint."""
    if grammar.kind == "structural_tag":
        return {"structural_tag": msgspec.json.encode(grammar.value).decode()}
    return {"json" if grammar.kind == "json_schema" else grammar.kind: grammar.value}


def _logprobs(found: _Logprobs, reading: Reading) -> tuple[TokenLogprob, ...]:
    out = []
    for at, (token, logprob) in enumerate(zip(found.tokens, found.token_logprobs, strict=False)):
        top = found.top_logprobs[at] if found.top_logprobs and at < len(found.top_logprobs) else None
        others = [(_id(other), value) for other, value in (top or {}).items()]
        out.append(reading.named(_id(token), -9999.0 if logprob is None else logprob, others))
    return tuple(out)


def _id(token: str) -> int:
    number = token.removeprefix("token_id:")
    if not number.isdigit():
        raise EngineError(f"vLLM names a token {token!r} where an id was asked for", status=502)
    return int(number)
