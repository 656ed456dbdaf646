"""llama.cpp's own server, over its native `/completion`: ids in, ids out by `return_tokens`.

Two of its habits are made up for here, both seen with the real one:

- A character that is split over tokens is held back until it is whole, and then only the last token's id is told. How many are
  missing, `tokens_predicted` tells, and their bytes, the text; so ids that spell these bytes take their place.
- It has no stop ids: the stream is ended here when one comes.

Grammars are GBNF, which it refuses with a status if they are wrong. Its JSON schemas and `%llguidance` grammars are not used:
where it can't read one, some builds write to their log and go on without any constraint.
"""

from __future__ import annotations

from typing import Any

import msgspec

from unbraid.engines.base import SETTINGS, Abilities, Generation, Grammar, Step, TokenLogprob
from unbraid.engines.profile import Told
from unbraid.engines.remote import Get, Post, Reading, ended, ids_of
from unbraid.engines.spelling import spell
from unbraid.errors import EngineError


class _Other(msgspec.Struct):
    id: int
    logprob: float | None = None


class _Probability(msgspec.Struct):
    id: int
    logprob: float | None = None
    top_logprobs: list[_Other] = []


class _Event(msgspec.Struct):
    content: str = ""
    tokens: list[int] = []
    stop: bool = False
    stop_type: str = ""
    tokens_predicted: int = 0
    completion_probabilities: list[_Probability] = []
    error: Any = None


_ENDS = {"eos": "stop", "word": "stop", "limit": "length"}


class LlamaServer:
    """The dialect."""

    name = "llama.cpp's server"
    kind = "llama"
    path = "/completion"
    abort_path = None
    decoder = msgspec.json.Decoder(_Event)
    abilities = Abilities(
        constraints=("gbnf",),
        top_logprobs=20,
        passed=frozenset(
            "repeat_penalty repeat_last_n typical_p mirostat mirostat_tau mirostat_eta dry_multiplier dry_base "
            "dry_allowed_length xtc_probability xtc_threshold dynatemp_range dynatemp_exponent samplers cache_prompt".split()
        ),
    )

    def told(self, get: Get, wanted: str | None) -> Told:
        props = get("/props")
        if not isinstance(props, dict):
            raise EngineError("llama.cpp's server doesn't answer /props")
        path = props.get("model_path")
        settings = props.get("default_generation_settings")
        context = settings.get("n_ctx") if isinstance(settings, dict) else None
        special = {name: props[name] for name in ("bos_token", "eos_token") if isinstance(props.get(name), str)}
        template = props.get("chat_template")
        alias = props.get("model_alias")
        names = tuple(name for name in (alias, path) if isinstance(name, str) and name)
        return Told(
            model=names[0].rpartition("/")[2].removesuffix(".gguf") if names else "model",
            served="",
            names=names,
            path=path if isinstance(path, str) else None,
            context_length=context if isinstance(context, int) else None,
            chat_template=template if isinstance(template, str) else None,
            special_tokens=special,
        )

    def body(self, generation: Generation, model: str) -> dict[str, Any]:
        body: dict[str, Any] = {"prompt": list(generation.prompt), "stream": True, "return_tokens": True}
        for name in SETTINGS:
            if (value := getattr(generation, name)) is not None:
                body[name] = value
        if generation.seed is not None:
            body["seed"] = generation.seed % 2**32
        if generation.max_tokens is not None:
            body["n_predict"] = generation.max_tokens
        if generation.ignore_eos:
            body["ignore_eos"] = True
        if generation.logit_bias:
            body["logit_bias"] = [[id, bias] for id, bias in generation.logit_bias.items()]
        if generation.logprobs is not None:
            body["n_probs"] = max(1, generation.logprobs)
        if isinstance(generation.constraint, Grammar):
            body["grammar"] = generation.constraint.value
        return body | generation.extra

    def steps(self, event: _Event, reading: Reading) -> list[Step]:
        steps = []
        if event.tokens:
            if lost := event.tokens_predicted - reading.seen - len(event.tokens):
                steps += self._lost(event, lost, reading)
            steps.append(Step(tuple(event.tokens), _logprobs(event, reading)))
            stops = reading.generation.stop_ids
            if stops and event.tokens[-1] in stops:
                return [*steps[:-1], Step(steps[-1].ids, steps[-1].logprobs, "stop")]
        if event.stop:
            reason = _ENDS.get(event.stop_type, event.stop_type or None)
            steps.append(Step((), finish=ended(reason or "nothing", self.name)))
        return steps

    def _lost(self, event: _Event, lost: int, reading: Reading) -> list[Step]:
        """The tokens before the last one of a character that was held back."""
        last = reading.vocabulary.bytes_of(event.tokens[-1]) or b""
        held = event.content.encode().removesuffix(last)
        ids = spell(reading.vocabulary, held, lost) if lost > 0 else ()
        return [Step(ids)] if ids else []

    def end(self, reading: Reading) -> None:
        return None

    def tokenize(self, text: str, post: Post, model: str, *, special: bool) -> list[int]:
        found = post("/tokenize", {"content": text, "add_special": False, "parse_special": special})
        return ids_of(found.get("tokens") if isinstance(found, dict) else found, self.name)


def _logprobs(event: _Event, reading: Reading) -> tuple[TokenLogprob, ...]:
    if reading.generation.logprobs is None:
        return ()
    return tuple(
        reading.named(
            entry.id,
            -9999.0 if entry.logprob is None else entry.logprob,
            [(other.id, other.logprob) for other in entry.top_logprobs if other.logprob is not None],
        )
        for entry in event.completion_probabilities[-len(event.tokens) :]
    )
