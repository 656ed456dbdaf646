"""llama.cpp in this process: any GGUF file, ids in, ids and log-probabilities out.

One thread owns the model. In a loop it takes the next token of every running request, and one piece of one waiting
prompt, through the model in one batch (continuous batching), then samples each request's next token in numpy. Requests
beyond `parallel` wait in the order in which they came. The event loop never waits for any of it: steps reach it
through `call_soon_threadsafe`.

What a request says doesn't depend on what else is running. llama.cpp sums in another order once it sees 64 or more
tokens of a sequence at once; prompts therefore go in by pieces of 32, which costs nothing on a CPU, and then (with one
thread) logits are the same bit by bit, whatever the batch, the slot, or the prefix taken from the cache. So greedy
output, and seeded output, is reproducible under load: `tests/test_engine_llama.py` holds us to it.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import threading
import weakref
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from unbraid.engines.base import AT_ONCE, Abilities, Generation, Grammar, Step, TokenLogprob
from unbraid.errors import EngineError, EngineFileError, RequestError
from unbraid.vocabulary import Vocabulary

try:
    import numpy as np
except ImportError as missing:
    raise EngineError("the embedded engine needs numpy: pip install 'unbraid[local]'") from missing

from unbraid.engines import llama_api
from unbraid.engines.sampling import Logits, Sampler, log_probabilities

_log = logging.getLogger(__name__)

PIECE = 32
"""Tokens of a prompt that go through the model at once (see above; 64 would change the sums)."""

MAX_CONTEXT = 4096
"""Default context: llama.cpp reserves the memory for all of it, for every slot, at load."""

_ABILITIES = Abilities(constraints=("mask",), top_logprobs=1 << 30)  # of every token there is, if need be

# Keys of a GGUF with which its maker recommends sampling settings.
_RECOMMENDED = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
}


class LlamaEngine:
    """One GGUF model. Implements `unbraid.engines.base.Engine`. Loading blocks: a second for a small model.

    `context` is how many tokens each request may use, prompt and output together (at most what the model was trained
    for); `parallel` requests run at once, and each has its own cache of that size. Leave `threads` at 1 on a small or
    busy machine: llama.cpp's threads spin, and two on two busy cores are many times slower than one. `sampling`
    (`temperature`, `top_p`, `top_k`, `min_p`) holds where a request says nothing; without it, what the file recommends.
    `chat_template` stands in for the file's own.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        name: str | None = None,
        context: int | None = None,
        parallel: int = 4,
        threads: int = 1,
        sampling: Mapping[str, float] | None = None,
        chat_template: str | None = None,
    ) -> None:
        path = Path(path)
        self._model = _Model(path, context=context or MAX_CONTEXT, parallel=parallel, threads=threads)
        self._defaults = {**self._model.recommended, **(sampling or {})}
        self._template = chat_template or self._model.chat_template
        self._name = name or path.stem
        self._file = path.stem
        self._slots = [_Slot(seq) for seq in range(parallel)]
        self._waiting: deque[_Request] = deque()
        self._lock = threading.Lock()  # guards _waiting, _running and _closed
        self._running = False
        self._closed = False
        self._turn = 0
        self._worker: threading.Thread | None = None

    # -- what the model is ---------------------------------------------------------------------------------------------

    @property
    def abilities(self) -> Abilities:
        return _ABILITIES

    @property
    def model(self) -> str:
        """The name under which the model is served: `name`, or the file's name without its ending."""
        return self._name

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's tokens; `encode` gives the ids that llama.cpp would."""
        return self._model.vocabulary

    @property
    def context_length(self) -> int:
        return self._model.n_ctx

    @property
    def chat_template(self) -> str | None:
        return self._template

    @property
    def special_tokens(self) -> dict[str, str]:
        return dict(self._model.special_tokens)

    @property
    def format_hint(self) -> str | None:
        return self.names[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The file's name first: makers of GGUFs name files after the model, and `general.name` after anything."""
        keys = ("general.name", "general.basename", "general.base_model.0.name", "general.repo_url")
        found = [self._file, *(value for key in keys if (value := self._model.metadata(key)))]
        return tuple(dict.fromkeys(found))

    @property
    def end_ids(self) -> frozenset[int]:
        return self._model.end_ids

    @property
    def bos(self) -> int | None:
        """The id that raw text, as opposed to a rendered chat, should begin with; None if the model wants none."""
        return self._model.bos

    def metadata(self, key: str) -> str | None:
        """A scalar of the GGUF's metadata, as text: `general.architecture`, `general.license`, ..."""
        return self._model.metadata(key)

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        return self._model.tokenize(text, special=special)

    # -- generating ----------------------------------------------------------------------------------------------------

    def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        """One step per token."""
        self.abilities.check(generation, "the embedded engine")
        prompt = self._checked_prompt(generation.prompt)
        sampler = Sampler(generation, self._model.n_vocab, self._defaults)
        return self._steps(generation, prompt, sampler)

    def _checked_prompt(self, prompt: Sequence[int]) -> list[int]:
        ids = list(prompt)
        if not ids:
            raise RequestError("the prompt is empty", param="prompt")
        if min(ids) < 0 or max(ids) >= self._model.n_vocab:
            raise RequestError(
                f"the prompt holds ids that the model lacks (it has {self._model.n_vocab})", param="prompt"
            )
        if len(ids) >= self._model.n_ctx:
            raise RequestError(
                f"the prompt has {len(ids)} tokens, which leaves no room in a context of {self._model.n_ctx}",
                param="prompt",
                code="context_length_exceeded",
            )
        return ids

    async def _steps(
        self, generation: Generation, prompt: list[int], sampler: Sampler
    ) -> AsyncGenerator[Sequence[Step], None]:
        room = self._model.n_ctx - len(prompt)
        limit = room if generation.max_tokens is None else min(room, generation.max_tokens)
        if limit <= 0:
            yield (Step((), finish="length"),)
            return
        request = _Request(generation, prompt, sampler, limit, asyncio.get_running_loop())
        self._submit(request)
        try:
            while True:
                items = [await request.delivered.get()]
                while len(items) < AT_ONCE and not request.delivered.empty():
                    items.append(request.delivered.get_nowait())
                if steps := [item for item in items if isinstance(item, Step)]:
                    yield steps
                    if steps[-1].finish is not None:
                        return
                if isinstance(failure := items[-1], BaseException):
                    raise failure
        finally:
            request.left = True  # the worker sees it before its next token, and frees the slot

    def _submit(self, request: _Request) -> None:
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")
            self._waiting.append(request)
            if not self._running:
                # A thread for as long as there is work: none is left waiting that an exit would have to interrupt. Not
                # a daemon, which an exit would leave inside llama.cpp; not an executor's, which hears of an exit last.
                self._worker = threading.Thread(target=self._run, name="unbraid-llama")
                self._worker.start()
                self._running = True

    async def ready(self) -> None:
        with self._lock:
            if self._closed:
                raise EngineError("the engine is closed")

    async def close(self) -> None:
        """Ends what is running with an EngineError, waits for the worker, frees the model. May be called again."""
        await asyncio.to_thread(self.close_now)

    def close_now(self) -> None:
        """`close` without an event loop."""
        with self._lock:
            self._closed = True
        if self._worker is not None:
            self._worker.join()
        self._model.free()

    # -- the worker thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Until nobody wants anything any more."""
        try:
            while self._admit():
                self._advance([slot for slot in self._slots if slot.request is not None])
        except EngineError as error:
            self._fail_all(error)
        except BaseException as error:  # our own fault: those who wait must hear of it, and it must be seen
            self._fail_all(error)
            raise

    def _admit(self) -> bool:
        """Waiting requests into free slots. False, and the worker is marked as gone, if there is nothing to run."""
        # The second condition: the interpreter is shutting down, and nobody is left to read what we'd generate.
        if self._closed or not threading.main_thread().is_alive():
            self._fail_all(EngineError("the engine was closed while it generated"))
            return False
        for slot in self._slots:
            if slot.request is not None and slot.request.left:
                slot.request = None
        with self._lock:
            while self._waiting and self._waiting[0].left:
                self._waiting.popleft()
            free = [slot for slot in self._slots if slot.request is None]
            while free and self._waiting:
                request = self._waiting.popleft()
                if not request.left:
                    slot = max(free, key=lambda slot: (slot.shared(request.prompt), -slot.used))
                    free.remove(slot)
                    slot.begin(request, self._model)
                    self._turn += 1
                    slot.used = self._turn
            self._running = len(free) < len(self._slots)
            return self._running

    def _advance(self, active: list[_Slot]) -> None:
        """One batch: the next token of every request, and the next piece of one prompt, in turns."""
        prompts = [slot for slot in active if len(slot.pending) > 1]
        self._turn += 1
        chosen = prompts[self._turn % len(prompts)] if prompts else None
        batch: list[tuple[_Slot, list[int]]] = []
        for slot in active:
            if slot is chosen:
                batch.append((slot, slot.pending[:PIECE]))
            elif len(slot.pending) == 1:
                batch.append((slot, slot.pending))
        rows = self._model.decode([(slot.seq, len(slot.cached), ids) for slot, ids in batch])
        for (slot, ids), row in zip(batch, rows, strict=True):
            slot.cached += ids
            slot.pending = slot.pending[len(ids) :]
            if not slot.pending:
                self._continue(slot, row)

    def _continue(self, slot: _Slot, row: int) -> None:
        """Samples a request's next token and tells it. Its slot is free again if that was its last."""
        request = slot.request
        assert request is not None
        try:
            step = self._sample(request, self._model.logits(row))
        # A constraint is somebody else's code: whatever it raises is its own request's, not the other requests'.
        except Exception as error:  # noqa: BLE001
            request.deliver(error)
            slot.request = None
            return
        slot.pending = list(step.ids)
        if not request.deliver(step) or step.finish is not None:
            slot.request = None

    def _sample(self, request: _Request, logits: Logits) -> Step:
        generation, constraint = request.generation, request.generation.constraint
        assert not isinstance(constraint, Grammar)  # refused when it came
        id = request.sampler.sample(logits, None if constraint is None else constraint.mask())
        request.sampler.accept(id)
        if constraint is not None:
            constraint.accept(id)
        request.count += 1
        logprobs = () if generation.logprobs is None else (self._logprob(logits, id, generation.logprobs),)
        if id in generation.stop_ids or (id in self._model.end_ids and not generation.ignore_eos):
            return Step((id,), logprobs, "stop")
        return Step((id,), logprobs, "length" if request.count >= request.limit else None)

    def _logprob(self, logits: Logits, id: int, top: int) -> TokenLogprob:
        logprob, best = log_probabilities(logits, id, top)
        return self._named(id, logprob, tuple(self._named(*pair) for pair in best))

    def _named(self, id: int, logprob: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        data = self._model.vocabulary.tokens[id]
        return TokenLogprob(id, logprob, data.decode("utf-8", "replace"), data, top)

    def _fail_all(self, error: BaseException) -> None:
        """The worker's last act."""
        failed = [slot.request for slot in self._slots if slot.request is not None]
        for slot in self._slots:
            slot.request = None
            slot.forget(self._model)
        with self._lock:
            failed += self._waiting
            self._waiting.clear()
            self._running = False
        for request in failed:
            request.deliver(error)


class _Request:
    """A generation under way, shared by the event loop that reads it and the worker that writes it."""

    __slots__ = ("_loop", "count", "delivered", "generation", "left", "limit", "prompt", "sampler")

    def __init__(
        self,
        generation: Generation,
        prompt: list[int],
        sampler: Sampler,
        limit: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.generation = generation
        self.prompt = prompt
        self.sampler = sampler
        self.limit = limit
        self.count = 0
        self.left = False
        self.delivered: asyncio.Queue[Step | BaseException] = asyncio.Queue()
        self._loop = loop

    def deliver(self, item: Step | BaseException) -> bool:
        """False if nobody reads any more."""
        try:
            self._loop.call_soon_threadsafe(self.delivered.put_nowait, item)
        except RuntimeError:  # the event loop is closed
            self.left = True
        return not self.left


class _Slot:
    """One sequence of the cache. It keeps its tokens when a request ends: the next may begin with the same ones."""

    __slots__ = ("cached", "pending", "request", "seq", "used")

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.request: _Request | None = None
        self.cached: list[int] = []  # what has gone through the model
        self.pending: list[int] = []  # what hasn't yet
        self.used = 0

    def shared(self, prompt: list[int]) -> int:
        """How many tokens at the prompt's start are in the cache. Its last token isn't counted: we need its logits."""
        length = min(len(self.cached), len(prompt) - 1)
        if self.cached[:length] == prompt[:length]:
            return length
        return next(at for at, (a, b) in enumerate(zip(self.cached, prompt, strict=False)) if a != b)

    def begin(self, request: _Request, model: _Model) -> None:
        keep = self.shared(request.prompt)
        if not model.keep(self.seq, keep):
            keep = 0
        self.request = request
        self.cached = request.prompt[:keep]
        self.pending = request.prompt[keep:]

    def forget(self, model: _Model) -> None:
        model.keep(self.seq, 0)
        self.cached, self.pending = [], []


class _Model:
    """The handles, and what is read once. `decode`, `logits` and `keep` are the worker's; the rest is for anyone."""

    def __init__(self, path: Path, *, context: int, parallel: int, threads: int) -> None:
        if not path.is_file():
            raise EngineFileError(f"{path}: no such file")
        self._api = api = llama_api.load()
        self._guard = threading.Lock()  # tokenize must not meet free
        llama_api.complaints.clear()
        self._model = api.llama_model_load_from_file(str(path).encode(), api.llama_model_default_params())
        if not self._model:
            raise EngineFileError(f"{path}: llama.cpp can't load it{_complaints()}")
        self._context: int | None = None
        self._free = weakref.finalize(self, _release, api, handles := [self._model, None])
        if api.llama_model_has_encoder(self._model) or not api.llama_model_has_decoder(self._model):
            self.free()
            raise EngineFileError(f"{path}: not a model that generates text from text alone")
        self._vocab = api.llama_model_get_vocab(self._model)
        self.n_vocab: int = api.llama_vocab_n_tokens(self._vocab)
        self.n_ctx = min(context, api.llama_model_n_ctx_train(self._model) or context)
        handles[1] = self._context = self._new_context(path, parallel, threads)
        self._memory = api.llama_get_memory(self._context)
        self._batch, self._arrays = _new_batch(PIECE + parallel)
        self._read_vocabulary()
        self.recommended = self._read_recommended()
        self._prove(path)

    def _new_context(self, path: Path, parallel: int, threads: int) -> int:
        api = self._api
        params = api.llama_context_default_params()
        params.n_ctx = self.n_ctx * parallel  # llama.cpp divides it among the sequences
        params.n_batch = params.n_ubatch = PIECE + parallel
        params.n_seq_max = parallel
        params.n_threads = params.n_threads_batch = threads
        context = api.llama_init_from_model(self._model, params)
        if not context:
            self.free()
            raise EngineError(f"{path}: llama.cpp can't make a context of {parallel} x {self.n_ctx}{_complaints()}")
        # Read back: what we wrote must be where llama.cpp looks for it. (It may round a context up.)
        wanted = (PIECE + parallel, parallel, threads)
        found = (api.llama_n_batch(context), api.llama_n_seq_max(context), api.llama_n_threads(context))
        if found != wanted or not self.n_ctx <= api.llama_n_ctx_seq(context) < self.n_ctx + 1024:
            api.llama_free(context)
            self.free()
            raise llama_api.wrong(f"a context reads batch, sequences, threads = {found} where {wanted} was asked for")
        return int(context)

    def _read_vocabulary(self) -> None:
        api, vocab = self._api, self._vocab
        tokens: dict[int, bytes] = {}
        special: dict[str, int] = {}
        control: set[int] = set()
        self._added: list[str] = []
        ends: set[int] = set()
        size = 256
        buffer = ctypes.create_string_buffer(size)
        for id in range(self.n_vocab):
            length = api.llama_token_to_piece(vocab, id, buffer, size, 0, True)
            if length < 0:
                size = -length
                buffer = ctypes.create_string_buffer(size)
                length = api.llama_token_to_piece(vocab, id, buffer, size, 0, True)
            tokens[id] = piece = buffer.raw[:length]
            attr = api.llama_vocab_get_attr(vocab, id)
            if piece and attr & (llama_api.ATTR_CONTROL | llama_api.ATTR_USER_DEFINED | llama_api.ATTR_UNKNOWN):
                spelling = piece.decode("utf-8", "replace")
                special[spelling] = id
                if attr & llama_api.ATTR_USER_DEFINED:
                    self._added.append(spelling)
                else:
                    control.add(id)
            if api.llama_vocab_is_eog(vocab, id):
                ends.add(id)
        self.end_ids = frozenset(ends)
        self.vocabulary = Vocabulary(tokens, special, control, self.tokenize)
        self.bos: int | None = api.llama_vocab_bos(vocab) if api.llama_vocab_get_add_bos(vocab) else None
        template = api.llama_model_chat_template(self._model, None)
        self.chat_template: str | None = None if template is None else template.decode("utf-8", "replace")
        named = {
            "bos_token": api.llama_vocab_bos(vocab),
            "eos_token": api.llama_vocab_eos(vocab),
            "eot_token": api.llama_vocab_eot(vocab),
            "pad_token": api.llama_vocab_pad(vocab),
            "unk_token": int(self.metadata("tokenizer.ggml.unknown_token_id") or -1),
        }
        self.special_tokens = {
            name: tokens[id].decode("utf-8", "replace") for name, id in named.items() if id in tokens
        }

    def _read_recommended(self) -> dict[str, float]:
        found = {name: self.metadata(key) for name, key in _RECOMMENDED.items()}
        return {name: float(value) for name, value in found.items() if value is not None}

    def _prove(self, path: Path) -> None:
        """One token through the model, so that a wrong ABI shows now and not in somebody's answer."""
        text = "unbraid 1"
        ids = self.tokenize(text)
        spelled = b"".join(self.vocabulary.tokens[id] for id in ids)
        row = self.decode([(0, 0, ids[:1])])[0] if ids else -1
        if text not in spelled.decode("utf-8", "replace") or row < 0 or not np.isfinite(self.logits(row)).all():
            self.free()
            raise EngineError(
                f"{path}: the self-test failed (tokens spell {spelled!r}): the file is damaged, or this isn't the "
                f"llama.cpp of xllamacpp {llama_api.VERSION}"
            )
        self.keep(0, 0)

    def metadata(self, key: str) -> str | None:
        with self._guard:
            if not self._free.alive:
                raise EngineError("the engine is closed")
            size = 1024
            while True:
                buffer = ctypes.create_string_buffer(size)
                length = self._api.llama_model_meta_val_str(self._model, key.encode(), buffer, size)
                if length < size:
                    return buffer.value.decode("utf-8", "replace") if length >= 0 else None
                size = length + 1

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        data = text.encode("utf-8", "replace")
        if special:
            return self._tokenize(data, True)
        # llama.cpp always matches user-defined tokens, `<think>` of a Qwen among them. Cut after their first character,
        # no piece spells one.
        ids: list[int] = []
        for piece in _cut(text, self._added):
            ids += self._tokenize(piece.encode("utf-8", "replace"), False)
        return ids

    def _tokenize(self, data: bytes, special: bool) -> list[int]:
        with self._guard:
            if not self._free.alive:
                raise EngineError("the engine is closed")
            room = len(data) + 16  # a token is a byte at least; the rest is for a space that SentencePiece adds
            while True:
                ids = (ctypes.c_int32 * room)()
                count = self._api.llama_tokenize(self._vocab, data, len(data), ids, room, False, special)
                if count >= 0:
                    return ids[:count]
                room = -count

    def decode(self, batch: Sequence[tuple[int, int, Sequence[int]]]) -> list[int]:
        """(sequence, position, ids) each through the model, all at once. Returns the row of each one's last logits."""
        arrays, at, rows = self._arrays, 0, []
        for seq, position, ids in batch:
            stop = at + len(ids)
            arrays.token[at:stop] = ids
            arrays.pos[at:stop] = np.arange(position, position + len(ids))
            arrays.seq[at:stop] = seq
            arrays.wanted[at:stop] = 0
            arrays.wanted[stop - 1] = 1
            rows.append(stop - 1)
            at = stop
        self._batch.n_tokens = at
        llama_api.complaints.clear()
        code = self._api.llama_decode(self._context, self._batch)
        if code != 0:
            raise EngineError(f"llama_decode failed with code {code}{_complaints()}")
        return rows

    def logits(self, row: int) -> Logits:
        """Valid until the next `decode`."""
        pointer = self._api.llama_get_logits_ith(self._context, row)
        if not pointer:
            raise EngineError(f"llama.cpp has no logits for row {row} of the last batch")
        return np.ctypeslib.as_array(pointer, shape=(self.n_vocab,))

    def keep(self, seq: int, count: int) -> bool:
        """Drops all but the first `count` tokens of a sequence; all of it, and False, where the model can't go back."""
        api = self._api
        # A sliding window may have forgotten the first tokens; a recurrent state has only its last position.
        if (
            count
            and api.llama_memory_seq_rm(self._memory, seq, count, -1)
            and api.llama_memory_seq_pos_min(self._memory, seq) == 0
        ):
            return True
        api.llama_memory_seq_rm(self._memory, seq, -1, -1)
        return count == 0

    def free(self) -> None:
        with self._guard:
            self._free()


def _release(api: Any, handles: list[int | None]) -> None:
    model, context = handles
    if context:
        api.llama_free(context)
    api.llama_model_free(model)


def _complaints() -> str:
    return "".join(f"; {line}" for line in llama_api.complaints)


class _Arrays:
    """The arrays behind a batch, as numpy sees them."""

    def __init__(self, size: int) -> None:
        self.token = np.zeros(size, np.int32)
        self.pos = np.zeros(size, np.int32)
        self.n_seq = np.ones(size, np.int32)
        self.seq = np.zeros(size, np.int32)
        # One pointer per token to its list of sequences, here always of length one.
        self.seq_pointers = self.seq.ctypes.data + self.seq.itemsize * np.arange(size, dtype=np.uintp)
        self.wanted = np.zeros(size, np.int8)


def _new_batch(size: int) -> tuple[llama_api.Batch, _Arrays]:
    arrays = _Arrays(size)
    batch = llama_api.Batch(
        token=arrays.token.ctypes.data,
        pos=arrays.pos.ctypes.data,
        n_seq_id=arrays.n_seq.ctypes.data,
        seq_id=arrays.seq_pointers.ctypes.data,
        logits=arrays.wanted.ctypes.data,
    )
    return batch, arrays


def _cut(text: str, spellings: list[str]) -> list[str]:
    """`text` in pieces, none of which contains a whole one of `spellings` (longer than one character)."""
    cuts: set[int] = set()
    for spelling in spellings:
        at = text.find(spelling)
        while at >= 0 and len(spelling) > 1:
            cuts.add(at + 1)
            at = text.find(spelling, at + 1)
    bounds = [0, *sorted(cuts), len(text)]
    return [text[a:b] for a, b in pairwise(bounds) if a < b]
