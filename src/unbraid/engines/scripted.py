"""An engine that replays given ids, for unit tests: what it says is known beforehand, so tests can assert on all of it.

Not for serving: it has no model behind it, and ignores every sampling setting.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from itertools import cycle

from unbraid.engines.base import Abilities, Generation, Step, TokenLogprob
from unbraid.errors import EngineError
from unbraid.vocabulary import Vocabulary

LOGPROB = -0.5
"""What every token of a script is given."""


class ScriptedEngine:
    """Each generation replays the next of `scripts`: the ids of each step. After the last comes the first again.

    A script ends with "stop", or with "length" where `max_tokens` cuts it. An EngineError in place of a step is raised
    there. `generations` lists what was asked, `aborted` counts the iterators that were closed before their end.
    """

    abilities = Abilities(constraints=("mask",), top_logprobs=1000)

    def __init__(
        self,
        vocabulary: Vocabulary,
        scripts: Iterable[Sequence[Sequence[int] | EngineError]],
        *,
        model: str = "scripted",
        chat_template: str | None = None,
        special_tokens: dict[str, str] | None = None,
        names: Sequence[str] = (),
        end_ids: Iterable[int] = (),
        context_length: int = 4096,
        delay: float = 0.0,
    ) -> None:
        self.vocabulary = vocabulary
        self.model = model
        self.chat_template = chat_template
        self.special_tokens = special_tokens or {}
        self.names = (*names, model)
        self.end_ids = frozenset(end_ids)
        self.context_length = context_length
        self.generations: list[Generation] = []
        self.aborted = 0
        self.closed = False
        self._scripts = cycle(list(scripts))
        self._delay = delay

    @property
    def format_hint(self) -> str | None:
        return self.names[0]

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        return self.vocabulary.encode(text, special=special)

    def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        self.generations.append(generation)
        return self._replay(generation, next(self._scripts))

    async def _replay(
        self, generation: Generation, script: Sequence[Sequence[int] | EngineError]
    ) -> AsyncGenerator[Sequence[Step], None]:
        room = self.context_length - len(generation.prompt)
        left = room if generation.max_tokens is None else min(room, generation.max_tokens)
        ended = False
        try:
            for number, said in enumerate(script, 1):
                await asyncio.sleep(self._delay)
                if isinstance(said, EngineError):
                    ended = True
                    raise said
                ids = tuple(said[:left])
                left -= len(ids)
                cut = len(ids) < len(said) or (left == 0 and number < len(script))
                step = Step(ids, self._logprobs(generation, ids), "length" if cut else None)
                if number == len(script) and not cut:
                    step = Step(ids, step.logprobs, "stop")
                ended = step.finish is not None
                yield (step,)
                if ended:
                    return
            ended = True
            yield (Step((), finish="stop"),)
        finally:
            self.aborted += not ended

    def _logprobs(self, generation: Generation, ids: tuple[int, ...]) -> tuple[TokenLogprob, ...]:
        if generation.logprobs is None:
            return ()
        return tuple(self._logprob(id, bool(generation.logprobs)) for id in ids)

    def _logprob(self, id: int, top: bool) -> TokenLogprob:
        data = self.vocabulary.bytes_of(id) or b""
        plain = TokenLogprob(id, LOGPROB, data.decode("utf-8", "replace"), data)
        return TokenLogprob(id, LOGPROB, plain.token, data, (plain,)) if top else plain

    async def ready(self) -> None:
        if self.closed:
            raise EngineError("the engine is closed")

    async def close(self) -> None:
        self.closed = True
