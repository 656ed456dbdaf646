"""llama.cpp's own grammar engine as a matcher: what it allows is what a llama.cpp server would let a model write."""

from __future__ import annotations

import ctypes
import tempfile
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int32, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import tiny_gguf

from unbraid.engines import llama_api
from unbraid.vocabulary import Vocabulary


class _Candidates(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("size", c_size_t), ("selected", c_int64), ("sorted", c_bool)]


_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "llama_sampler_init_grammar": (c_void_p, [c_void_p, c_char_p, c_char_p]),
    "llama_sampler_clone": (c_void_p, [c_void_p]),
    "llama_sampler_apply": (None, [c_void_p, POINTER(_Candidates)]),
    "llama_sampler_accept": (None, [c_void_p, c_int32]),
    "llama_sampler_free": (None, [c_void_p]),
}
assert ctypes.sizeof(c_float) == _CANDIDATE["logit"].itemsize


class LlamaVocabulary:
    """A vocabulary in a model of its own."""

    def __init__(self, vocabulary: Vocabulary, end: int) -> None:
        self.end = end
        self.library = llama_api.load()
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.library, name)
            function.restype, function.argtypes = result, arguments
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "tiny.gguf")
            tiny_gguf.write(path, vocabulary.tokens, vocabulary.special, end)
            self.model = self.library.llama_model_load_from_file(
                str(path).encode(), self.library.llama_model_default_params()
            )
        assert self.model, list(llama_api.complaints)
        self.vocabulary = self.library.llama_model_get_vocab(self.model)
        ids = range(vocabulary.size)
        self.ends = [id for id in ids if id != end and self.library.llama_vocab_is_eog(self.vocabulary, id)]
        """What llama.cpp takes for the end of a turn by its spelling: allowed wherever the grammar is at its end."""

    def matcher(self, grammar: str) -> LlamaMatcher:
        sampler = self.library.llama_sampler_init_grammar(self.vocabulary, grammar.encode(), b"root")
        assert sampler, f"llama.cpp can't read the grammar: {grammar[:500]}"
        return LlamaMatcher(self, sampler)


class LlamaMatcher:
    """As much of a matcher as sampling needs: it can't be rolled back."""

    def __init__(self, owner: LlamaVocabulary, sampler: int) -> None:
        self.owner = owner
        self.sampler = sampler
        self.terminated = False

    def __del__(self) -> None:
        self.owner.library.llama_sampler_free(self.sampler)

    def _allowed(self, ids: Any) -> Any:
        """Which of the ids may come next."""
        data = np.zeros(len(ids), dtype=_CANDIDATE)
        data["id"] = ids
        candidates = _Candidates(data.ctypes.data, len(ids), -1, False)
        self.owner.library.llama_sampler_apply(self.sampler, ctypes.byref(candidates))
        return data["logit"] == 0

    def fill(self, mask: Any, row: int = 0) -> None:
        bits = self._allowed(np.arange(mask.shape[1] * 32, dtype=np.int32) % self.owner.end)
        bits[self.owner.end :] = False
        bits[self.owner.ends] = False
        bits[self.owner.end] = self._allowed([self.owner.end])[0]
        mask[row] = np.packbits(bits, bitorder="little").view(np.int32)

    def accept(self, id: int) -> bool:
        if self.terminated or id in self.owner.ends or not self._allowed([id])[0]:
            return False
        if id == self.owner.end:
            self.terminated = True
        else:
            self.owner.library.llama_sampler_accept(self.sampler, id)
        return True

    def validate(self, ids: list[int]) -> int:
        copy = self.fork()
        return next((at for at, id in enumerate(ids) if not copy.accept(id)), len(ids))

    def rollback(self, n: int) -> None:
        raise NotImplementedError("llama.cpp's grammars only go forward")

    def fork(self) -> LlamaMatcher:
        return LlamaMatcher(self.owner, self.owner.library.llama_sampler_clone(self.sampler))
