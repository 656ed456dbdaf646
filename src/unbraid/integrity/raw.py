"""The raw layer of an endpoint: what the engine wrote, before any parser.

Ways, the best first: token ids in the reply (`return_token_ids`: vLLM, Unbraid; `return_meta_info`: SGLang), log-probabilities that
carry ids (llama.cpp), that carry each token's text (older SGLang, and its streams). What the tokens are is known from a tokenizer's file, or asked of the endpoint, token by token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from unbraid.integrity.align import Raw
from unbraid.integrity.layers import Said, entry_bytes
from unbraid.table import Format
from unbraid.vocabulary import Vocabulary

PSEUDO = 1 << 40
"""From here on ids are made up: no tokenizer has them."""

_BYTES = {PSEUDO * 2 + byte: bytes([byte]) for byte in range(256)}
"""With these a vocabulary of few tokens can spell any prompt."""

WIDE = ("vllm", "sglang", "llama")
"""Who puts every token of the output into `logprobs.content`, not only those of the content."""


class Pieces:
    """Tokens and what they are, learnt from an endpoint as they come."""

    def __init__(
        self,
        tokenize: Callable[[str], Awaitable[list[int] | None]],
        detokenize: Callable[[Sequence[int]], Awaitable[str | None]],
    ) -> None:
        self._tokenize = tokenize
        self._detokenize = detokenize
        self._texts: dict[int, bytes] = {}
        self._special: dict[str, int] | None = None
        self._answers: bool | None = None
        """Whether the endpoint tells what tokens are."""

    async def vocabulary(self, ids: Sequence[int], fmt: Format) -> tuple[Vocabulary, list[int]] | None:
        """A vocabulary of these ids, and the ids as it knows them; `None` if the endpoint doesn't tell."""
        special = await self._specials(fmt)
        if special is None:
            return None
        unknown = [id for id in dict.fromkeys(ids) if id not in self._texts and id not in special.values()]
        gate = asyncio.Semaphore(16)

        async def learn(id: int) -> None:
            async with gate:
                text = await self._detokenize([id])
                if text is None:  # once more: a busy server may have broken a connection
                    text = await self._detokenize([id])
            if text is not None:
                self._texts[id] = text.encode()

        await asyncio.gather(*map(learn, unknown))
        if any(id not in self._texts for id in unknown):
            return None
        tokens, read = dict(self._texts), list(ids)
        for start, stop in _broken_runs(ids, self._texts):
            text = await self._detokenize(ids[start:stop])
            for at in range(start, stop):  # the characters count as those of the run's first token
                read[at] = PSEUDO + at
                tokens[PSEUDO + at] = (text or "").encode() if at == start else b""
        return Vocabulary.from_tokens(_BYTES | tokens, special), read

    async def text(self, ids: Sequence[int]) -> str | None:
        """What these ids spell, if the endpoint tells."""
        return await self._detokenize(ids)

    async def _specials(self, fmt: Format) -> dict[str, int] | None:
        if self._special is None and self._answers is not False:
            self._answers = await self._tokenize("a") is not None and await self._detokenize([0]) is not None
            if self._answers:
                found = {}
                for spelling in fmt.specials:
                    ids = await self._tokenize(spelling)
                    if ids is not None and len(ids) == 1:
                        found[spelling] = ids[0]
                self._special = found
        return self._special


def _broken_runs(ids: Sequence[int], texts: Mapping[int, bytes]) -> list[tuple[int, int]]:
    """Stretches of tokens that hold parts of characters."""
    runs: list[tuple[int, int]] = []
    for at, id in enumerate(ids):
        if "�".encode() in texts.get(id, b""):
            if runs and runs[-1][1] == at:
                runs[-1] = (runs[-1][0], at + 1)
            else:
                runs.append((at, at + 1))
    return runs


async def raw_of(
    said: Said, prompt: Sequence[int] | str | None, fmt: Format, pieces: Pieces, owner: str, known: Vocabulary | None
) -> Raw | None:
    """The raw layer of one choice, if its reply lets us have it."""
    ids = said.token_ids
    entries = said.logprobs or []
    if ids is None and entries and all(isinstance(entry.get("id"), int) for entry in entries):
        ids = [entry["id"] for entry in entries]
    if ids is not None:
        if known is not None:
            return Raw(ids, fmt.bind(known), prompt=prompt)
        if (found := await pieces.vocabulary(ids, fmt)) is not None:
            vocabulary, read = found
            # A prompt of ids would need all their tokens looked up: its text says the same.
            return Raw(read, fmt.bind(vocabulary), ids, prompt=await _prompt_text(prompt, pieces))
    if entries and any(name in owner for name in WIDE) and not any("�".encode() in entry_bytes(e) for e in entries):
        return _from_texts(entries, fmt, prompt)  # a token that is a part of a character has no text of its own
    return None


async def _prompt_text(prompt: Sequence[int] | str | None, pieces: Pieces) -> str | None:
    """A prompt as text."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    return await pieces.text(prompt)


def _from_texts(entries: Sequence[Mapping[str, Any]], fmt: Format, prompt: Sequence[int] | str | None) -> Raw:
    """Tokens known by their text alone: one that spells a special token of the format is taken for it."""
    ids: dict[bytes, int] = {}
    read = []
    for entry in entries:
        text = entry_bytes(entry)
        read.append(ids.setdefault(text, PSEUDO + len(ids)))
    special = {
        text: ids.get(text.encode(), PSEUDO * 3 + at)  # those that the output lacks may stand in the prompt
        for at, text in enumerate(fmt.specials)
    }
    vocabulary = Vocabulary.from_tokens(_BYTES | {id: data for data, id in ids.items()}, special)
    return Raw(read, fmt.bind(vocabulary), [None] * len(read), prompt=prompt if isinstance(prompt, str) else None)
