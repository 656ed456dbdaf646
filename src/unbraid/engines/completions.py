"""Any `/v1/completions`, in text mode: text in, text out, and no ids.

The format's markers then count by spelling, so text that merely looks like one can't be told from it; replies say so
(`x-unbraid-evidence: text`). The server is asked to keep special tokens in its text: one that doesn't know the wish may swallow
the very markers of the format. Where an engine has a dialect of its own, that one is better.
"""

from __future__ import annotations

from typing import Any

import msgspec

from unbraid.engines.base import Abilities, Generation, Spent, Step
from unbraid.engines.profile import Told, told_by_models
from unbraid.engines.remote import Get, Post, Reading, ended
from unbraid.errors import EngineError

LENGTH = 2048
"""Tokens of a reply whose length nobody has limited, if the context isn't known: these servers' own default is 16."""


class _Choice(msgspec.Struct):
    text: str = ""
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


class Completions:
    """The dialect."""

    name = "the completions server"
    kind = "completions"
    path = "/v1/completions"
    abort_path = None
    decoder = msgspec.json.Decoder(_Event)
    abilities = Abilities(
        token_ids=False,
        settings=frozenset(("temperature", "top_p", "seed", "frequency_penalty", "presence_penalty")),
    )

    def told(self, get: Get, wanted: str | None) -> Told:
        return told_by_models(get, wanted)

    def body(self, generation: Generation, model: str) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "prompt": generation.text,
            "max_tokens": LENGTH if generation.max_tokens is None else generation.max_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "add_special_tokens": False,
        }
        for name in self.abilities.settings:
            if (value := getattr(generation, name)) is not None:
                body[name] = value
        return body

    def steps(self, event: _Event, reading: Reading) -> list[Step]:
        """The end waits for the count of tokens, which comes in an event of its own behind it."""
        notes = reading.notes
        steps = []
        if event.choices:
            choice = event.choices[0]
            notes["finish"] = ended(choice.finish_reason, self.name) or notes.get("finish")
            if choice.text:
                steps.append(Step((), text=choice.text))
        if event.usage is not None and notes.get("finish") is not None:
            spent = Spent(event.usage.prompt_tokens, event.usage.completion_tokens)
            steps.append(Step((), finish=notes.pop("finish"), text="", spent=spent))
        return steps

    def end(self, reading: Reading) -> Step | None:
        """Of a server that counts nothing."""
        finish = reading.notes.get("finish")
        return None if finish is None else Step((), finish=finish, text="")

    def tokenize(self, text: str, post: Post, model: str, *, special: bool) -> list[int]:
        raise EngineError("in text mode nothing is tokenized here")
