"""SGLang, over its own `/generate`: ids in, ids out, no parser of its own in between.

Read in the source of SGLang 0.5.23 (paths below `sglang/srt/`), and spoken to a double in the tests: the engine itself needs a GPU.

- What is asked: `GenerateReqInput` in `managers/io_struct.py`, `SamplingParams` in `sampling/sampling_params.py`. A structural tag and a
  JSON schema are texts there; a `top_k` of 0 is refused, all others are as we have them.
- What is answered: `_handle_batch_output` in `managers/tokenizer_manager.py`. Each event repeats all ids so far (and all their
  log-probabilities), unless the engine runs with `--incremental-streaming-output`. The list of an event that waits to be
  sent goes on growing, so it may be ahead of the event's own `completion_tokens`, and the next event brings nothing new.
- A request that can't be served is answered with 200 and an error event (`entrypoints/http_server.py`), or with an end of the type
  `abort` that has a status (`FINISH_ABORT` in `managers/schedule_batch.py`).
- A generation goes on for two seconds after its connection was closed (`create_abort_task`), so it is ended by `/abort_request`.
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
    status_code: int | None = None


class _Meta(msgspec.Struct):
    completion_tokens: int = 0
    finish_reason: _Finish | None = None
    output_token_logprobs: list[_Entry] | None = None
    output_top_logprobs: list[list[_Entry] | None] | None = None


class _Event(msgspec.Struct):
    output_ids: list[int] | None = None
    meta_info: _Meta | None = None
    error: Any = None

    def __post_init__(self) -> None:
        """An end that is none is an error like any other."""
        finish = self.meta_info.finish_reason if self.meta_info else None
        if finish is not None and finish.type == "abort":
            self.error = {"message": finish.message or "Aborted", "code": finish.status_code}


class Sglang:
    """The dialect."""

    name = "SGLang"
    kind = "sglang"
    path = "/generate"
    abort_path = "/abort_request"
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
        finish = ended(meta.finish_reason.type if meta.finish_reason else None, self.name)
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
