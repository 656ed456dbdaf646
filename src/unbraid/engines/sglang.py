"""SGLang, over its own `/generate`: ids in, ids out, no parser of its own in between.

Its stream repeats everything said so far in each event, unless it runs with `--incremental-streaming-output`: both are read.
Fields as in SGLang 0.5.23's `GenerateReqInput` and `SamplingParams`. Read in its source, and spoken to a double in the tests: the
engine itself needs a GPU.
"""

from __future__ import annotations

from typing import Any

import msgspec

from unbraid.engines.base import Abilities, Generation, Grammar, Step, TokenLogprob
from unbraid.engines.profile import Told, told_by_models
from unbraid.engines.remote import Get, Post, Reading, ended, ids_of
from unbraid.errors import EngineError

_SAMPLED = {"repetition_penalty": "repetition_penalty", "min_tokens": "min_new_tokens", "stop_regex": "stop_regex"}
"""Fields that are handed on among the sampling parameters, and their names there."""

_Entry = tuple[float | None, int, str | None]
"""Log-probability, id, text."""


class _Finish(msgspec.Struct):
    type: str
    message: str | None = None


class _Meta(msgspec.Struct):
    completion_tokens: int = 0
    finish_reason: _Finish | None = None
    output_token_logprobs: list[_Entry] | None = None
    output_top_logprobs: list[list[_Entry] | None] | None = None


class _Event(msgspec.Struct):
    output_ids: list[int] | None = None
    meta_info: _Meta | None = None
    error: Any = None


class Sglang:
    """The dialect."""

    name = "SGLang"
    kind = "sglang"
    path = "/generate"
    decoder = msgspec.json.Decoder(_Event)
    abilities = Abilities(
        constraints=("structural_tag", "json_schema", "regex"),
        top_logprobs=20,
        passed=frozenset(("custom_logit_processor", "lora_path", "priority", "session_params", *_SAMPLED)),
    )

    def told(self, get: Get, wanted: str | None) -> Told:
        about = get("/model_info") or get("/get_model_info") or {}
        path = about.get("tokenizer_path") or about.get("model_path") if isinstance(about, dict) else None
        told = told_by_models(get, wanted)
        return told if not isinstance(path, str) else told.with_path(path)

    def body(self, generation: Generation, model: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "input_ids": list(generation.prompt),
            "stream": True,
            "sampling_params": self._sampling(generation),
        }
        if generation.logprobs is not None:
            body |= {"return_logprob": True, "logprob_start_len": -1, "top_logprobs_num": generation.logprobs}
        return body | {name: value for name, value in generation.extra.items() if name not in _SAMPLED}

    def _sampling(self, generation: Generation) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "max_new_tokens": generation.max_tokens,
            "temperature": generation.temperature,
            "top_p": generation.top_p,
            "top_k": generation.top_k or None,  # 0 means all of them, which is how it is there anyway
            "min_p": generation.min_p,
            "sampling_seed": generation.seed,
            "frequency_penalty": generation.frequency_penalty,
            "presence_penalty": generation.presence_penalty,
            "logit_bias": {str(id): bias for id, bias in generation.logit_bias.items()} or None,
            "stop_token_ids": list(generation.stop_ids) or None,
            "ignore_eos": generation.ignore_eos or None,
        }
        wanted |= {_SAMPLED[name]: value for name, value in generation.extra.items() if name in _SAMPLED}
        said = {name: value for name, value in wanted.items() if value is not None}
        said |= {"skip_special_tokens": False, "spaces_between_special_tokens": False, "no_stop_trim": True}
        if isinstance(generation.constraint, Grammar):
            value = generation.constraint.value
            said[generation.constraint.kind] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return said

    def steps(self, event: _Event, reading: Reading) -> list[Step]:
        meta = event.meta_info
        if event.output_ids is None or meta is None:
            return []
        new = self._new(event.output_ids, meta.completion_tokens, reading)
        reason = meta.finish_reason
        if reason is not None and reason.message:
            raise EngineError(f"SGLang gave up: {reason.message}", status=502)
        finish = ended(reason.type if reason else None, self.name)
        if not new and finish is None:
            return []
        return [Step(tuple(new), _logprobs(meta, len(new), reading), finish)]

    def _new(self, ids: list[int], total: int, reading: Reading) -> list[int]:
        """Those of an event's ids that came with it: all if it is a piece of the output, the last if it is all of it."""
        if reading.seen and len(ids) >= total:
            return ids[reading.seen :]
        return ids

    def end(self, reading: Reading) -> None:
        return None

    def tokenize(self, text: str, post: Post, model: str, *, special: bool) -> list[int]:
        if not special:
            raise EngineError("SGLang can't spell special tokens as text: give its tokenizer with --tokenizer")
        found = post("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})
        return ids_of(found.get("tokens") if isinstance(found, dict) else found, self.name)


def _logprobs(meta: _Meta, count: int, reading: Reading) -> tuple[TokenLogprob, ...]:
    """Those of the last `count` tokens: like the ids, all so far or only the new ones."""
    if reading.generation.logprobs is None or not meta.output_token_logprobs or not count:
        return ()
    entries = meta.output_token_logprobs[-count:]
    tops = (meta.output_top_logprobs or [])[-count:]
    out = []
    for at, (logprob, id, _) in enumerate(entries):
        top = tops[at] if at < len(tops) else None
        others = [(other, value) for value, other, _ in top or () if value is not None]
        out.append(reading.named(id, -9999.0 if logprob is None else logprob, others))
    return tuple(out)
