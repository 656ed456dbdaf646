"""A call whose name is one word, then its arguments as a JSON object, with single delimiters between them.

    lookup[ARGS]{"q": "x"}        lookup[CALL_ID]aB3dE6gH9[ARGS]{"q": "x"}        lookup{"q": "x"}

Nothing is taken before the head is whole and sound: what has no name, or something else behind its name, is no call, and that is
certain at the first character that doesn't fit. Where the object ends, the body ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unbraid.codecs.base import Outcome, Reader, Sink, WrittenCall, fitting, partial
from unbraid.codecs.json_arguments import ArgumentsReader
from unbraid.grammar.tree import Json, Node, Regex, literal, sequence
from unbraid.table import Piece, Spelling

_WORD = re.compile(r"[\w.\-]{1,128}")  # OpenAI lets names have 64 characters, Anthropic 128


@dataclass(frozen=True, slots=True)
class WordThenJson:
    """A name, its delimiters in the order in which they are written, and a JSON object.

    `between`: the delimiters from the name to the object; white space between them is free, and one that a model forgot isn't
    missed. `lead`: what stands before the name. `id`: what stands before the call's id, behind the name; `quiet`: the id
    is read if it's there but isn't written. `name`: what stands before the name if the id comes first.
    """

    between: tuple[Spelling, ...]
    lead: Spelling = ()
    id: Spelling = ()
    quiet: bool = False
    id_length: int = 0
    """Ids are this many letters and digits; one that isn't is written as such a one, always the same."""
    name: Spelling = ()

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return (self.lead,) if self.lead else ()

    def spellings(self) -> Iterable[Spelling]:
        return tuple(
            spelling for spelling in (*(run for _, run in self.runs), self.lead, self.id, self.name) if spelling
        )

    @property
    def runs(self) -> list[tuple[int, Spelling]]:
        """Neighbouring delimiters as one, because a tokenizer may have one token for them, and how many are passed behind it."""
        count = len(self.between)
        runs = [(stop, self.between[start:stop]) for start in range(count) for stop in range(count, start, -1)]
        return [(stop, tuple(piece for spelling in run for piece in spelling)) for stop, run in runs]

    def compile(self, alphabet: Any) -> _Words:
        return _Words(self, alphabet)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call = calls[0]
        id = () if self.quiet or not self.id else (*self.id, fitting(call.id, self.id_length))
        between = [piece for spelling in self.between for piece in spelling]
        if self.name:
            return (*self.lead, fitting(call.id, self.id_length), *self.name, call.name, *between, call.arguments)
        return (*self.lead, call.name, *id, *between, call.arguments)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        written = self.id and not self.quiet
        id = (literal(*self.id), Regex(f"[a-zA-Z0-9]{{{self.id_length or '1,32'}}}")) if written else ()
        between = [piece for spelling in self.between for piece in spelling]
        if self.name:
            first = Regex(f"[a-z0-9]{{{self.id_length or '1,32'}}}")
            return sequence(literal(*self.lead), first, literal(*self.name, name, *between), Json(schema))
        return sequence(literal(*self.lead, name), *id, literal(*between), Json(schema))


class _Words:
    """`WordThenJson` for an alphabet."""

    def __init__(self, codec: WordThenJson, alphabet: Any) -> None:
        self.codec = codec
        self.between = [(stop, alphabet.spell([run])) for stop, run in codec.runs]
        self.lead = alphabet.spell([codec.lead]) if codec.lead else []
        self.id = alphabet.spell([codec.id]) if codec.id else []
        self.name = alphabet.spell([codec.name]) if codec.name else []
        self.delimiters = [text for texts in (*(texts for _, texts in self.between), self.id) for text in texts]

    def reader(self, sink: Sink) -> Reader:
        return _WordReader(sink, self)


class _WordReader(ArgumentsReader[_Words]):
    """Reads `NAME[CALL_ID]ID[ARGS]{...}`."""

    __slots__ = ("given", "led", "passed", "step")

    def __init__(self, sink: Sink, spec: _Words) -> None:
        super().__init__(sink, spec)
        self.step: Callable[[str, int, bool], int] = self._lead
        self.led = False
        self.given: str | None = None
        """The id, where it came before the name."""
        self.passed = 0
        """How many of the delimiters behind the name have been seen."""

    def place(self) -> Hashable | None:
        own = self.given is not None and not self.named  # an id comes once
        return None if own else super().place()

    def standing(self) -> tuple[Hashable, ...]:
        return self.led, self.passed

    def stand(self, *standing: Any) -> None:
        self.led, self.passed = standing

    @property
    def opens(self) -> bool:
        return self.step == self._gap

    def _delimiter(self, text: str, at: int, options: list[str]) -> int:
        """Where one of these delimiters ends that begins at `at`; 0: none does."""
        return next((at + len(option) for option in options if text.startswith(option, at)), 0)

    def _lead(self, text: str, at: int, final: bool) -> int:
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:
            self.empty = True
            return at
        if marker < 0 or partial(text, at, self.spec.lead):
            return -1
        self.step = self._first if self.spec.name else self._name
        stop = self._delimiter(text, at, self.spec.lead)
        self.led = stop > 0
        return stop or at

    def _first(self, text: str, at: int, final: bool) -> int:
        """The id, if there is one, where it comes before the name."""
        if partial(text, at, self.spec.name):
            return -1
        if not (behind := self._delimiter(text, at, self.spec.name)):
            id, stop = self._word(text, at)
            if id is None or stop < 0 or partial(text, stop, self.spec.name):
                return self.expected(at, "a call's id") if id is not None and stop < 0 else -1
            behind = self._delimiter(text, stop, self.spec.name)
            if not behind:
                return self.expected(stop, "a delimiter behind an id")
            self.given = id
        self.led = True
        self.step = self._name
        return behind

    def _name(self, text: str, at: int, final: bool) -> int:
        """The name, the id if there is one, and what shows that both are whole."""
        name, stop = self._word(text, at)
        if name is None or stop < 0:
            return -1 if name is None else self.expected(at, "a name")
        id = self.given
        if behind := self._delimiter(text, stop, self.spec.id):
            id, stop = self._word(text, self.skip_space(text, behind))
            if id is None or stop < 0:
                return -1 if id is None else self.expected(behind, "a call's id")
        if partial(text, stop, self.spec.delimiters):
            return -1
        if text[stop] != "{" and not any(self._delimiter(text, stop, texts) for _, texts in self.spec.between):
            return self.expected(stop, "a delimiter behind a name")
        self._name_known(stop, name, id)
        self.step = self._gap
        return stop

    def _word(self, text: str, at: int) -> tuple[str | None, int]:
        """The word at `at` and where what follows it begins; -1 for the latter: there is none; `None` for the word: not yet."""
        word = _WORD.match(text, at)
        stop = self.skip_space(text, word.end() if word else at)
        if stop == len(text):
            self.waits_on_blank = text[stop - 1].isspace()
            return None, stop
        return (word[0], stop) if word else ("", -1)

    def _gap(self, text: str, at: int, final: bool) -> int:
        """Between the name and the arguments."""
        due = [(passed, texts) for passed, texts in self.spec.between if passed > self.passed]
        for passed, texts in due:
            if stop := self._delimiter(text, at, texts):
                self.passed = passed
                self.sink.call_arguments(stop, "")
                return stop
        if any(partial(text, at, texts) for _, texts in due):
            return -1
        return self._begin_arguments(text, at)

    def arguments_over(self, stop: int) -> None:
        self.sink.call_end(stop)
        self.done = True

    def finish(self) -> Outcome:
        return "malformed" if self.named or self.led else "blank"
