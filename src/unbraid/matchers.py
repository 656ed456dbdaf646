"""Grammar backends behind the gate's `Matcher`: llguidance (the default: light, no torch) and xgrammar.

    pip install llguidance numpy        LlguidanceMatcher
    pip install xgrammar                XgrammarMatcher (brings torch)

Neither is imported before it is used. A grammar that a backend can't use is a `SchemaError` when the matcher is made, never a matcher that
lets everything through. A backend that fails while it runs (a limit of its own) is an `EngineError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from unbraid.bitmask import paint, row_of
from unbraid.errors import EngineError, SchemaError
from unbraid.vocabulary import Vocabulary


class LlguidanceMatcher:
    """A grammar in llguidance.

    `tokenizer`: an `llguidance.LLTokenizer`. `grammar`: Lark, or what `LLMatcher.grammar_from_json_schema` and its like return; a
    mapping is a JSON schema. Special tokens are written `<[id]>`: by their spelling they match in some tokenizers only.

    llguidance refuses an end-of-turn token once nothing else can follow, although its mask allows it. Here it is taken.
    """

    def __init__(self, tokenizer: Any, grammar: str | Mapping[str, Any], *, limits: Any = None) -> None:
        from llguidance import LLMatcher

        if not isinstance(grammar, str):
            try:
                grammar = LLMatcher.grammar_from_json_schema(dict(grammar))
            except ValueError as error:
                raise SchemaError("", str(error)) from error
        self._matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=limits)
        self._ends = frozenset(tokenizer.eos_tokens)
        self._size: int = tokenizer.vocab_size  # an id beyond it would kill the backend
        self._words = (self._size + 31) // 32
        self._ended = 0
        """End-of-turn tokens taken that the backend hasn't seen."""
        if self._matcher.is_error():
            message = _first_line(self._matcher.get_error())
            raise SchemaError("", f"too large for llguidance ({message})" if message.startswith("panic") else message)

    def accept(self, id: int) -> bool:
        if self._ended:
            return False
        if not 0 <= id < self._size:
            return False
        if self._matcher.try_consume_tokens([id]):
            return True
        if id in self._ends and self._matcher.is_stopped():
            self._ended = 1
            return True
        self._check()
        return False

    def fill(self, mask: Any, row: int = 0) -> None:
        words = row_of(mask, row)
        if self._ended:
            paint(words, 0)
            return
        own = words[: self._words]
        if hasattr(own, "ctypes") and own.flags["C_CONTIGUOUS"] and own.itemsize == 4 and own.size == self._words:
            self._matcher.unsafe_compute_mask_ptr(own.ctypes.data, own.size * 4)
        else:
            data = self._matcher.compute_bitmask()
            for at in range(min(self._words, len(words))):
                words[at] = int.from_bytes(data[at * 4 : at * 4 + 4], "little", signed=True)
        if len(words) > self._words:
            words[self._words :] = 0 if hasattr(words, "ndim") else [0] * (len(words) - self._words)
        if self._matcher.is_error():
            self._check()

    def validate(self, ids: Sequence[int]) -> int:
        if self._ended:
            return 0
        known = next((at for at, id in enumerate(ids) if not 0 <= id < self._size), len(ids))
        ids = list(ids[:known])
        count: int = self._matcher.validate_tokens(ids)
        if count < len(ids) and ids[count] in self._ends:
            copy = self._matcher.deep_copy() if count else self._matcher
            if count:
                copy.try_consume_tokens(ids[:count])
            if copy.is_stopped() and not copy.is_error() and not any(id in self._ends for id in ids[:count]):
                return count + 1
        return count

    def rollback(self, n: int) -> None:
        own = min(n, self._ended)
        self._ended -= own
        if n > own and not self._matcher.rollback(n - own):
            self._check()

    def fork(self) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._matcher = self._matcher.deep_copy()
        return other

    @property
    def terminated(self) -> bool:
        return bool(self._ended) or self._matcher.is_stopped()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise EngineError(f"llguidance gave up: {_first_line(self._matcher.get_error())}")


def llguidance_tokenizer(vocabulary: Vocabulary, end_ids: Collection[int]) -> Any:
    """The vocabulary as an `llguidance.LLTokenizer`, in which text never matches a special token. `end_ids`: they end a turn."""
    import llguidance

    return llguidance.LLTokenizer(
        llguidance.TokenizerWrapper(_Tokens(vocabulary, end_ids)),
        n_vocab=vocabulary.size,
        eos_token=sorted(end_ids) or None,
    )


class _Tokens:
    """A vocabulary as llguidance asks for it."""

    def __init__(self, vocabulary: Vocabulary, end_ids: Collection[int]) -> None:
        self._vocabulary = vocabulary
        self.tokens = [vocabulary.bytes_of(token) or b"" for token in range(vocabulary.size)]
        self.special_token_ids = sorted(set(vocabulary.special.values()))
        self.eos_token_id = self.bos_token_id = min(end_ids, default=vocabulary.size - 1)
        self.unk_token_id = None

    def __call__(self, text: str | bytes) -> list[int]:
        text = text.decode(errors="replace") if isinstance(text, bytes) else text
        return self._vocabulary.encode(text, special=False)


def xgrammar_tokenizer(vocabulary: Vocabulary, end_ids: Collection[int]) -> Any:
    """The vocabulary as an `xgrammar.TokenizerInfo`, in which text never matches a special token: write structural tags for it with
    `hidden=True`. `end_ids`: they end a turn.

    xgrammar refuses a token without bytes everywhere, also where the grammar names its id, so special tokens get bytes that no UTF-8
    text holds.
    """
    import xgrammar

    special = set(vocabulary.special.values())
    tokens = [
        b"\xff" * (token in special) + (vocabulary.bytes_of(token) or b"\xff") for token in range(vocabulary.size)
    ]
    return xgrammar.TokenizerInfo(
        tokens, xgrammar.VocabType.RAW, vocab_size=vocabulary.size, stop_token_ids=sorted(end_ids)
    )


class XgrammarMatcher:
    """A grammar in xgrammar. `compiled`: an `xgrammar.CompiledGrammar`, made with `compile` so that a bad grammar is a `SchemaError`."""

    def __init__(self, compiled: Any) -> None:
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher(compiled, max_rollback_tokens=-1)

    @classmethod
    def compile(cls, compiler: Any, grammar: str | Mapping[str, Any]) -> Self:
        """`grammar`: EBNF, or a structural tag as JSON (`{"type": "structural_tag", ...}`), or a JSON schema."""
        try:
            if isinstance(grammar, str):
                compiled = compiler.compile_grammar(grammar)
            elif grammar.get("type") == "structural_tag":
                compiled = compiler.compile_structural_tag(dict(grammar))
            else:
                import json

                compiled = compiler.compile_json_schema(json.dumps(grammar))
        except (RuntimeError, ValueError) as error:  # what the C++ side raises for a grammar it can't use
            raise SchemaError("", _first_line(str(error))) from error
        return cls(compiled)

    def accept(self, id: int) -> bool:
        return not self._matcher.is_terminated() and bool(self._matcher.accept_token(id))

    def fill(self, mask: Any, row: int = 0) -> None:
        if self._matcher.is_terminated():
            paint(row_of(mask, row), 0)
        else:
            self._matcher.fill_next_token_bitmask(mask, row)

    def validate(self, ids: Sequence[int]) -> int:
        count = 0
        for id in ids:
            if not self.accept(id):
                break
            count += 1
        if count:
            self._matcher.rollback(count)
        return count

    def rollback(self, n: int) -> None:
        if n:
            self._matcher.rollback(n)

    def fork(self) -> Self:
        other = object.__new__(type(self))
        other._matcher = self._matcher.fork()
        return other

    @property
    def terminated(self) -> bool:
        return bool(self._matcher.is_terminated())


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]


__all__ = ["LlguidanceMatcher", "XgrammarMatcher", "llguidance_tokenizer", "xgrammar_tokenizer"]
