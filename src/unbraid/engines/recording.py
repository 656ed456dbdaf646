"""Recordings: what an engine said, step by step, kept in a file and said again. No model is needed for that, and no GPU.

A recording is JSON Lines. The first line says what was served, every other one is a step of some generation:

    {"recording": 1, "model": "...", "context_length": 4096, "chat_template": "...", "special_tokens": {...}, "names": [...],
     "end_ids": [2], "tokens": ["...", ...], "special": {"<|im_end|>": 2, ...}, "control": [2]}
    {"generation": "3c1-0", "at": 0.21, "prompt": [1, 520], "ids": [88]}
    {"generation": "3c1-0", "at": 0.24, "ids": [89, 90], "logprobs": [[-0.1, [[89, -0.1], [12, -3.2]]], [-1.5, []]]}
    {"generation": "3c1-1", "at": 0.02, "prompt": [1], "text": "in text mode"}
    {"generation": "3c1-0", "at": 0.29, "ids": [2], "finish": "stop"}
    {"generation": "3c1-1", "at": 0.10, "error": "the engine was gone"}

`tokens` lists the bytes of every id, one character a byte (Latin-1), `null` where there is no such id. `at` counts seconds from
the generation's start. `logprobs` holds, for each id, its own and `[id, logprob]` of its alternatives. A generation without
`finish` was aborted. Lines of several generations may be mixed. Only `ids` (or `text`) must be there: a file of nothing but
`{"ids": [...]}` lines, as `unbraid parse --vocabulary` reads it, is one generation; its tokenizer then has to be given.

A recording holds what people asked and what they were told: it is made readable for its owner only.
"""

from __future__ import annotations

import asyncio
import os
import time
import types
from bisect import bisect_right
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Sequence
from dataclasses import replace
from itertools import accumulate, count, cycle
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from unbraid.engines.base import AT_ONCE, Abilities, Engine, Generation, Spent, Step, TokenLogprob
from unbraid.engines.profile import CONTEXT, Local, Profile, Told, profile_of
from unbraid.errors import EngineError, EngineFileError, UnbraidError
from unbraid.vocabulary import Vocabulary

VERSION = 1


class _Line(msgspec.Struct, omit_defaults=True):
    """One step."""

    generation: str = ""
    at: float = 0.0
    prompt: list[int] | None = None
    prompt_text: str | None = None
    ids: list[int] | None = None
    text: str | None = None
    logprobs: list[tuple[float, list[tuple[int, float]]]] | None = None
    spent: tuple[int, int] | None = None
    finish: str | None = None
    error: str | None = None


class _Header(msgspec.Struct, omit_defaults=True):
    """What was served."""

    recording: int
    model: str = "recording"
    names: list[str] = []
    context_length: int = CONTEXT
    chat_template: str | None = None
    special_tokens: dict[str, str] = {}
    end_ids: list[int] = []
    tokens: list[str | None] | None = None
    special: dict[str, int] = {}
    control: list[int] = []
    text_mode: bool = False


_lines = msgspec.json.Decoder(_Line)
_headers = msgspec.json.Decoder(_Header)


_ABORTED = "the recording ends here: this generation was aborted when it was made"


class _Said(NamedTuple):
    """One generation."""

    steps: list[Step]
    ats: list[float]
    """When each step comes, in seconds from the generation's start; behind them, when the error comes, if it has a time."""
    tokens: int
    inside: frozenset[int]
    """The ids of all steps but the one that ends it: if no stop token is among them, none can end it sooner."""
    logprobs: bool
    error: str
    """What is raised if no step ends it."""


class RecordedEngine:
    """Says again what a recording holds. Implements `unbraid.engines.base.Engine`.

    A prompt that was recorded is answered with what was said to it then (in turn, if it came more than once); any other with the
    next generation in turn, after the last the first again. `pace`: tokens per second; 0: as fast as they are read; `None`: as
    they came. Steps that have come due while nobody looked come together, as they do from any engine, but at most `burst` at
    once. Sampling settings change nothing, except that `max_tokens` and stop tokens end a reply.
    """

    def __init__(
        self,
        profile: Profile,
        generations: Sequence[Sequence[_Line]],
        *,
        pace: float | None,
        burst: int = AT_ONCE,
        text_mode: bool = False,
    ) -> None:
        self.model = profile.model
        self.vocabulary = profile.vocabulary
        self.context_length = profile.context_length
        self.chat_template = profile.chat_template
        self.special_tokens = dict(profile.special_tokens)
        self.names = profile.names or (profile.model,)
        self.end_ids = profile.end_ids
        known = any(line.logprobs for lines in generations for line in lines)
        self.abilities = Abilities(top_logprobs=20 if known else None, token_ids=not text_mode)
        self._encode = profile.encode
        self._burst = burst
        self._plain: dict[tuple[int, ...], Step] = {}
        """Steps of ids alone: the same one wherever it comes again."""
        by_prompt: dict[str | None, list[_Said]] = defaultdict(list)
        everything = []
        self._prompts: dict[str | None, list[int]] = {}
        for lines in generations:
            said = self._said(lines, pace)
            everything.append(said)
            first = lines[0]
            asked = self._asked(first.prompt, first.prompt_text)
            by_prompt[asked].append(said)
            if first.prompt is not None:
                self._prompts[asked] = first.prompt
        self._answers = {asked: cycle(found) for asked, found in by_prompt.items() if asked is not None}
        self._others = cycle(everything)

    @classmethod
    def read(
        cls, path: Path, *, pace: float | None = None, burst: int = AT_ONCE, local: Local | None = None
    ) -> RecordedEngine:
        """From a file. Raises `EngineFileError`, naming the line, for one that is no recording."""
        header, generations = _read(path)
        local = local or Local()
        told = Told(
            header.model,
            header.model,
            tuple(header.names),
            context_length=header.context_length,
            chat_template=header.chat_template,
            special_tokens=header.special_tokens,
        )
        own = header.tokens is not None
        profile = profile_of(told, local, ids=not header.text_mode and (not own or local.tokenizer is not None))
        if own and local.tokenizer is None:
            profile = _with_own(profile, header)
        return cls(profile, generations, pace=pace, burst=burst, text_mode=header.text_mode)

    @property
    def format_hint(self) -> str | None:
        return self.names[0]

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        if special and text in self._prompts:
            return list(self._prompts[text])
        return self._encode(text, special) if self._encode else self.vocabulary.encode(text, special=special)

    def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        self.abilities.check(generation, "a recording")
        asked = self._asked(generation.prompt, generation.text)
        return self._replay(generation, next(self._answers.get(asked or "", self._others)))

    def _asked(self, prompt: Sequence[int] | None, text: str | None) -> str | None:
        """What a prompt is found by: its text, for the tokenizer that is at hand now may cut it another way."""
        if not self.abilities.token_ids:
            return text
        return None if prompt is None else self.vocabulary.decode(prompt)

    async def _replay(self, generation: Generation, said: _Said) -> AsyncGenerator[Sequence[Step], None]:
        steps, ats, burst = self._asked_of(said, generation), said.ats, self._burst
        started, passed, at = time.monotonic(), 0.0, 0
        while at < len(steps):
            if ats[at]:
                await asyncio.sleep(max(0.0, ats[at] - (time.monotonic() - started)))
                passed = time.monotonic() - started
            else:
                await _turn()
            due = bisect_right(ats, passed, at + 1, min(at + burst, len(steps)))
            yield steps[at:due]
            if steps[due - 1].finish is not None:
                return
            at = due
        await asyncio.sleep(max(0.0, ats[-1] - (time.monotonic() - started)))
        raise EngineError(said.error, status=502)

    def _asked_of(self, said: _Said, generation: Generation) -> Sequence[Step]:
        """The steps as this generation gets them: it may end sooner, or ask for less of log-probabilities."""
        steps = said.steps
        room = self.context_length - len(generation.prompt)
        left = room if generation.max_tokens is None else min(room, generation.max_tokens)
        if said.tokens >= left or not said.inside.isdisjoint(generation.stop_ids):
            steps = _cut(steps, left, frozenset(generation.stop_ids))
        if said.logprobs:
            steps = [step._replace(logprobs=self._wanted(step.logprobs, generation.logprobs)) for step in steps]
        return steps

    def _said(self, lines: Sequence[_Line], pace: float | None) -> _Said:
        """A generation, up to where something went wrong with it."""
        error = next((at for at, line in enumerate(lines) if line.error is not None), len(lines))
        steps = [self._step(line) for line in lines[:error]]
        ats = [line.at for line in lines[: error + 1]]
        if pace is not None:
            counts = (len(step.ids) or bool(step.text) for step in steps)
            ats = [count / pace if pace else 0.0 for count in accumulate(counts, initial=0)]
        whole = steps[:-1] if steps and steps[-1].finish is not None else steps
        return _Said(
            steps,
            ats,
            sum(len(step.ids) for step in steps),
            frozenset(id for step in whole for id in step.ids),
            any(step.logprobs for step in steps),
            lines[error].error or _ABORTED if error < len(lines) else _ABORTED,
        )

    def _step(self, line: _Line) -> Step:
        finish: Any = line.finish
        if line.ids and not (line.logprobs or finish or line.text is not None or line.spent):
            ids = tuple(line.ids)
            return self._plain.setdefault(ids, Step(ids))
        ids = tuple(line.ids or ())
        logprobs = tuple(self._named(id, own, top) for id, (own, top) in zip(ids, line.logprobs or (), strict=False))
        spent = None if line.spent is None else Spent(*line.spent)
        return Step(ids, logprobs, finish, line.text, spent)

    def _named(self, id: int, logprob: float, top: Sequence[tuple[int, float]] = ()) -> TokenLogprob:
        data = self.vocabulary.bytes_of(id) or b""
        others = tuple(self._named(*pair) for pair in top)
        return TokenLogprob(id, logprob, data.decode("utf-8", "replace"), data, others)

    def _wanted(self, logprobs: tuple[TokenLogprob, ...], count: int | None) -> tuple[TokenLogprob, ...]:
        if count is None:
            return ()
        return tuple(replace(entry, top=entry.top[:count]) for entry in logprobs)

    async def ready(self) -> None:
        """Always."""

    async def close(self) -> None:
        """Nothing is open."""


class Recorder:
    """Any engine, with all that it says written to a file as well. Implements `unbraid.engines.base.Engine`.

    Several processes may write to one file: each line is one write at the file's end.
    """

    def __init__(self, engine: Engine, path: Path) -> None:
        self.engine = engine
        self.abilities = engine.abilities
        self.model = engine.model
        self.vocabulary = engine.vocabulary
        self.context_length = engine.context_length
        self.chat_template = engine.chat_template
        self.special_tokens = engine.special_tokens
        self.format_hint = engine.format_hint
        self.names = engine.names
        self.end_ids = engine.end_ids
        self._numbers = count()
        self._file = _opened(path, engine)

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        return self.engine.tokenize(text, special=special)

    def generate(self, generation: Generation) -> AsyncGenerator[Sequence[Step], None]:
        return self._noted(self.engine.generate(generation), generation)

    async def _noted(
        self, reads: AsyncIterator[Sequence[Step]], generation: Generation
    ) -> AsyncGenerator[Sequence[Step], None]:
        name, started = f"{os.getpid():x}-{next(self._numbers)}", time.monotonic()
        first = _Line(prompt=list(generation.prompt))
        if not self.abilities.token_ids:
            first = _Line(prompt_text=generation.text)
        try:
            async for steps in reads:
                for step in steps:
                    self._write(_line_of(step, first), name, started)
                    first = _Line()
                yield steps
        except UnbraidError as error:
            first.error = str(error)
            self._write(first, name, started)
            raise
        finally:
            if isinstance(reads, AsyncGenerator):
                await reads.aclose()

    def _write(self, line: _Line, name: str, started: float) -> None:
        line.generation, line.at = name, round(time.monotonic() - started, 4)
        os.write(self._file, msgspec.json.encode(line) + b"\n")

    async def ready(self) -> None:
        await self.engine.ready()

    async def close(self) -> None:
        await self.engine.close()
        os.close(self._file)


@types.coroutine
def _turn() -> Generator[None, None, None]:
    """Others' turn: `asyncio.sleep(0)`, at half its price."""
    yield


def _cut(steps: Sequence[Step], left: int, stop_ids: frozenset[int]) -> list[Step]:
    """The steps as far as a generation with `left` tokens to go gets."""
    out = []
    for step in steps:
        if len(step.ids) >= left or not stop_ids.isdisjoint(step.ids):
            step = _end(step, left, stop_ids)
        left -= len(step.ids)
        out.append(step)
        if step.finish is not None:
            break
    return out


def _end(step: Step, left: int, stop_ids: frozenset[int]) -> Step:
    """The step at which such a generation may end."""
    end = next((at + 1 for at, id in enumerate(step.ids) if id in stop_ids), None)
    if end is not None and end <= left:
        return step if step.finish else Step(step.ids[:end], step.logprobs[:end], "stop")
    if len(step.ids) > left or (len(step.ids) == left and step.finish is None and step.text is None):
        return Step(step.ids[:left], step.logprobs[:left], "length")
    return step


def _line_of(step: Step, line: _Line) -> _Line:
    if step.text is None:
        line.ids = list(step.ids)
    line.text = step.text
    if step.logprobs:
        line.logprobs = [(entry.logprob, [(top.id, top.logprob) for top in entry.top]) for entry in step.logprobs]
    if step.spent is not None:
        line.spent = (step.spent.prompt, step.spent.completion)
    line.finish = step.finish
    return line


def _opened(path: Path, engine: Engine) -> int:
    """The file, with its first line written if it is new."""
    try:
        try:
            file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return os.open(path, os.O_WRONLY | os.O_APPEND)
        os.write(file, msgspec.json.encode(header_of(engine)) + b"\n")
    except OSError as error:
        raise EngineFileError(f"can't record to {path} ({error.strerror or error})") from error
    return file


def header_of(engine: Engine) -> _Header:
    """A recording's first line."""
    vocabulary = engine.vocabulary
    size = max(vocabulary.tokens, default=-1) + 1
    pieces = [None if (data := vocabulary.bytes_of(id)) is None else data.decode("latin-1") for id in range(size)]
    return _Header(
        VERSION,
        engine.model,
        list(engine.names),
        engine.context_length,
        engine.chat_template,
        dict(engine.special_tokens),
        sorted(engine.end_ids),
        pieces if engine.abilities.token_ids else None,
        dict(vocabulary.special),
        sorted(vocabulary.control),
        text_mode=not engine.abilities.token_ids,
    )


def _with_own(profile: Profile, header: _Header) -> Profile:
    """With the tokens that the recording itself lists."""
    tokens = {id: piece.encode("latin-1") for id, piece in enumerate(header.tokens or ()) if piece is not None}
    vocabulary = Vocabulary(tokens, header.special, header.control)
    return Profile(
        profile.model,
        profile.served,
        vocabulary,
        None,
        profile.context_length,
        profile.chat_template,
        profile.special_tokens,
        profile.names,
        frozenset(header.end_ids),
    )


def _read(path: Path) -> tuple[_Header, list[list[_Line]]]:
    header = _Header(VERSION)
    generations: dict[str, list[_Line]] = {}
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, 1):
                if not raw.strip():
                    continue
                try:
                    if number == 1 and b'"recording"' in raw[:64]:
                        header = _headers.decode(raw)
                    else:
                        line = _lines.decode(raw)
                        generations.setdefault(line.generation, []).append(line)
                except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                    raise EngineFileError(f"{path}, line {number}: no step of a recording ({error})") from error
    except OSError as error:
        raise EngineFileError(f"{path}: can't be read ({error.strerror or error})") from error
    if header.recording != VERSION:
        raise EngineFileError(f"{path}: a recording of version {header.recording}; this is for version {VERSION}")
    if not generations:
        raise EngineFileError(f"{path}: the recording holds no generation")
    return header, list(generations.values())
