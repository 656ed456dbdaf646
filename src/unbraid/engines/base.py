"""The one small interface between the server and whatever generates tokens.

Tokens in, tokens out: an engine never parses. It is told the prompt's ids and says, step by step, which ids came, with
log-probabilities if asked. Reasoning, content and calls are the machine's business.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from unbraid.errors import RequestError
from unbraid.vocabulary import Vocabulary

if TYPE_CHECKING:  # only an engine that samples itself has numpy
    from numpy import bool_, int32, uint32
    from numpy.typing import NDArray

    Mask = NDArray[bool_] | NDArray[int32] | NDArray[uint32]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with its natural-log probability. `token` is its text as the tokenizer spells it."""

    id: int
    logprob: float
    token: str
    bytes: bytes
    top: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens of one generation, as counted by an engine that reports no ids."""

    prompt: int
    completion: int


class Step(NamedTuple):
    """What one step of an engine brought: one token, or several with speculative decoding.

    `finish` is set on the last step only: "stop" (a stop token, which is among `ids` if the engine shows it), "length".
    """

    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: Literal["stop", "length"] | None = None
    text: str | None = None
    """In text mode, where the engine reports no ids: what came. Else `None`."""
    spent: Spent | None = None
    """In text mode, on the last step: the engine's own count, if it gives one."""


AT_ONCE = 32
"""Steps that an engine hands on together at most: so many chunks of a stream are made before others have their turn."""


class Constraint(Protocol):
    """What decides, token by token, which ids may come next: the gate, or a grammar alone.

    An engine that samples itself (the embedded one) calls `mask` before it samples and `accept` with what it sampled,
    in turn, beginning with the first token after the prompt. Both run in the engine's own thread, one at a time, and
    hold up every request while they run. What they raise ends this request only, and reaches whoever iterates over its
    steps.
    """

    def mask(self) -> Mask | None:
        """Which ids may come next; `None`: all of them. The engine doesn't keep or change what it is given.

        Either one boolean per id, or one bit per id in 32-bit words, lowest bit first, as llguidance and xgrammar fill
        them. Ids beyond the end are forbidden. A mask that allows nothing at all is an `EngineError`.
        """

    def accept(self, id: int) -> None:
        """`id` was sampled: an allowed one, or a stop token that the mask allowed."""


GrammarKind = Literal["structural_tag", "lark", "gbnf", "json_schema", "regex"]
"""Languages in which engines elsewhere take a constraint: xgrammar's structural tag, llguidance's Lark, llama.cpp's GBNF."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A constraint written down, for an engine that samples elsewhere. It rules from the first token after the prompt."""

    kind: GrammarKind
    value: Any
    """A text, or JSON where the kind is JSON (`structural_tag`, `json_schema`)."""


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
    constraint: Constraint | Grammar | None = None
    """Asked before each token, or written down: whichever of the two the engine's abilities say."""
    text: str = ""
    """The prompt as text, for an engine in text mode."""
    extra: dict[str, Any] = field(default_factory=dict)


SETTINGS = ("temperature", "top_p", "top_k", "min_p", "seed", "frequency_penalty", "presence_penalty")
"""The settings of a `Generation` that only some engines know by these names: numbers, `None` where nothing is asked."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do for a request. What it can't is refused before anything is sent, never dropped."""

    constraints: tuple[GrammarKind | Literal["mask"], ...] = ()
    """How it takes a constraint, the best way first; `mask`: it asks a `Constraint` before every token."""
    top_logprobs: int | None = None
    """Alternatives per token that it can report; `None`: it reports no log-probabilities."""
    token_ids: bool = True
    """False: text mode. The format's markers then count by spelling."""
    settings: frozenset[str] = frozenset((*SETTINGS, "logit_bias", "ignore_eos", "stop_ids"))
    """Which settings of a generation it obeys."""
    passed: frozenset[str] = frozenset()
    """Fields of a request that are handed on to it as they came (`Generation.extra`), under the names that it gives them."""

    def check(self, generation: Generation, engine: str) -> None:
        """Raises `RequestError` for the first wish that `engine` (its name in the message) can't fulfil."""
        for name in (*SETTINGS, "logit_bias", "ignore_eos"):
            if name not in self.settings and getattr(generation, name) not in (None, False, {}):
                raise RequestError(f"{name}: {engine} can't do that; leave it out", param=name)
        if generation.logprobs is not None and self.top_logprobs is None:
            raise RequestError(f"logprobs: {engine} reports none here; leave them out", param="logprobs")
        if (generation.logprobs or 0) > (self.top_logprobs or 0):
            message = f"top_logprobs: {engine} reports at most {self.top_logprobs}, not {generation.logprobs}"
            raise RequestError(message, param="top_logprobs")
        kind = constraint_kind(generation.constraint)
        if kind is not None and kind not in self.constraints:
            known = ", ".join(self.constraints) or "none at all"
            raise RequestError(f"{engine} takes no constraint written as {kind} (it takes: {known})")


def constraint_kind(constraint: Constraint | Grammar | None) -> str | None:
    """How a constraint is given: one of `Abilities.constraints`."""
    if constraint is None:
        return None
    return constraint.kind if isinstance(constraint, Grammar) else "mask"


class Engine(Protocol):
    """An engine that serves one model."""

    @property
    def abilities(self) -> Abilities: ...

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

    @property
    def names(self) -> tuple[str, ...]:
        """Everything that may tell the model's format, the best hint first (`format_hint` is its first entry)."""

    @property
    def end_ids(self) -> frozenset[int]:
        """Ids at which the engine stops by itself, unless `ignore_eos` is set."""

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        """Text to ids; `special` lets spelled special tokens become their ids, as in a rendered prompt."""

    def generate(self, generation: Generation) -> AsyncIterator[Sequence[Step]]:
        """Steps until the end, as they come: those that are there together, together, for they will share a write; a step that
        is there alone waits for no other. How many may come at once is bounded. Closing the iterator aborts the generation.

        Calling it raises `RequestError` for what can't be served (a prompt that fills the context, a number out of
        range): before the first step, so that a server can still answer with a status. Iterating raises `EngineError`.
        """

    async def ready(self) -> None:
        """Raises `EngineError` if the engine can't take a request now."""

    async def close(self) -> None: ...
