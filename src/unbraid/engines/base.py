"""The one small interface between the server and whatever generates tokens.

Tokens in, tokens out: an engine never parses. It is told the prompt's ids and says, step by step, which ids came, with
log-probabilities if asked. Reasoning, content and calls are the machine's business.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from unbraid.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its natural-log probability. `token` is its text as the tokenizer spells it."""

    id: int
    logprob: float
    token: str
    bytes: bytes
    top: tuple["TokenLogprob", ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of an engine brought: one token, or several with speculative decoding.

    `finish` is set on the last step only: "stop" (a stop token, which is among `ids` if the engine shows it), "length".
    """

    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: Literal["stop", "length"] | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """What to generate. `None` means the engine's default."""

    prompt: Sequence[int]
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[int, float] = field(default_factory=dict)
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    """How many alternatives per token; 0: only the chosen token's; `None`: none at all."""
    extra: dict[str, Any] = field(default_factory=dict)


class Engine(Protocol):
    """An engine that serves one model."""

    @property
    def model(self) -> str:
        """The name under which the model is served."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    @property
    def context_length(self) -> int:
        """Tokens that prompt and output may have together."""

    @property
    def chat_template(self) -> str | None:
        """The model's Jinja template, as it ships with the model."""

    @property
    def special_tokens(self) -> dict[str, str]:
        """Names that a template may use: bos_token, eos_token, ..."""

    @property
    def format_hint(self) -> str | None:
        """What the model calls itself (`general.name`, a repository id): a hint for finding its format."""

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """Text to ids; `special` lets spelled special tokens become their ids, as in a rendered prompt."""

    def generate(self, generation: Generation) -> AsyncIterator[Step]:
        """Steps until the end. Closing the iterator aborts the generation. Raises `EngineError`."""

    async def close(self) -> None: ...
