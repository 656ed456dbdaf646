"""vLLM, by either of its ways to give ids for ids. It is asked for every token, special ones too, and none of its parsers runs.

- `Vllm`: `/v1/completions` with `return_token_ids` (vLLM 0.10.2 and newer). Fields as in 0.32's `CompletionRequest`
  (`vllm/entrypoints/openai/completion/protocol.py`).
- `VllmTokens`: `/inference/v1/generate`, which a server has that runs with `--tokens-only` or `--enable-scale-out`. Fields as in 0.32's
  `GenerateRequest` (`vllm/entrypoints/scale_out/token_in_token_out/protocol.py`) and `SamplingParams` (`vllm/sampling_params.py`).
  Nothing is detokenized there, and the model's own recommended sampling isn't applied.

What they answer was looked at with the real one (`make test-vllm`).
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


class _TokenLogprob(msgspec.Struct):
    token_id: int
    logprob: float | None = None
    top_logprobs: list[_TokenLogprob] = []


class _TokenLogprobs(msgspec.Struct):
    content: list[_TokenLogprob] | None = None


class _TokensChoice(msgspec.Struct):
    token_ids: list[int] | None = None
    finish_reason: str | None = None
    logprobs: _TokenLogprobs | None = None


class _TokensEvent(msgspec.Struct):
    choices: list[_TokensChoice] = []
    error: Any = None


_SAMPLED = {
    "repetition_penalty": "repetition_penalty",
    "min_tokens": "min_tokens",
    "allowed_token_ids": "allowed_token_ids",
    "vllm_xargs": "extra_args",
}
"""Fields that are handed on among the sampling parameters, and their names there."""


class VllmTokens:
    """The dialect of the token endpoint."""

    name = "vLLM"
    kind = "vllm-tokens"
    path = "/inference/v1/generate"
    abort_path = None
    decoder = msgspec.json.Decoder(_TokensEvent)
    abilities = Abilities(
        constraints=Vllm.abilities.constraints,
        top_logprobs=20,
        passed=frozenset(("priority", "kv_transfer_params", "cache_salt", *_SAMPLED)),
    )

    def told(self, get: Get, wanted: str | None) -> Told:
        return told_by_models(get, wanted)

    def body(self, generation: Generation, model: str) -> dict[str, Any]:
        sampling = {
            name: value for name in ("max_tokens", *SETTINGS) if (value := getattr(generation, name)) is not None
        }
        sampling |= {_SAMPLED[name]: value for name, value in generation.extra.items() if name in _SAMPLED}
        sampling["detokenize"] = False
        if generation.stop_ids:
            sampling["stop_token_ids"] = list(generation.stop_ids)
        if generation.ignore_eos:
            sampling["ignore_eos"] = True
        if generation.logit_bias:
            sampling["logit_bias"] = {str(id): bias for id, bias in generation.logit_bias.items()}
        if generation.logprobs is not None:
            sampling["logprobs"] = generation.logprobs
        if isinstance(generation.constraint, Grammar):
            sampling["structured_outputs"] = structured_outputs(generation.constraint)
        body = {"model": model, "token_ids": list(generation.prompt), "stream": True, "sampling_params": sampling}
        return body | {name: value for name, value in generation.extra.items() if name not in _SAMPLED}

    def steps(self, event: _TokensEvent, reading: Reading) -> list[Step]:
        if not event.choices:
            return []
        choice = event.choices[0]
        finish, ids = ended(choice.finish_reason, self.name), tuple(choice.token_ids or ())
        if not ids and finish is None:
            return []
        return [Step(ids, _named(choice.logprobs, reading), finish)]

    def end(self, reading: Reading) -> None:
        return None

    def tokenize(self, text: str, post: Post, model: str, *, special: bool) -> list[int]:
        return Vllm().tokenize(text, post, model, special=special)


def _named(found: _TokenLogprobs | None, reading: Reading) -> tuple[TokenLogprob, ...]:
    entries = (found.content if found else None) or ()
    return tuple(
        reading.named(
            entry.token_id,
            -9999.0 if entry.logprob is None else entry.logprob,
            [(other.token_id, other.logprob) for other in entry.top_logprobs if other.logprob is not None],
        )
        for entry in entries
    )


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
