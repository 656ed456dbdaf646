"""Arguments as a JSON object: what the readers of all bodies share that hold one, and the body that is nothing else.

    {"city": "Oslo"}                                              JsonArguments: a header gave the name

They are passed on as the model wrote them, byte for byte; the scanner only makes sure that they are JSON. It knows where they end: a
marker inside a string is data. One repair is made, because it is lossless: a raw control character inside a string, which JSON
forbids, is passed on as its escape.
"""

from __future__ import annotations

import functools
import json
import re
import string
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from unbraid.codecs.base import Compiled, Outcome, Reach, Reader, Sink, WrittenCall
from unbraid.codecs.json_scanner import Scanner, end_of_whole
from unbraid.codecs.json_stretch import stretch
from unbraid.grammar.tree import Json, Node
from unbraid.schema import is_json_object
from unbraid.table import Piece, Spelling

_ESCAPED = tuple('"\\/bfnrt')
_BACKSLASH = re.compile(r"\\")


def _along(pattern: re.Pattern[str], text: str, at: int) -> Reach:
    """As far as a stretch goes."""
    found = pattern.match(text, at)
    assert found is not None  # it matches nothing, too
    stop = found.end()
    return stop, stop, found.lastindex or 0


def _escape_and_along(pattern: re.Pattern[str], text: str, at: int) -> Reach:
    """The same behind a backslash."""
    return _along(pattern, text, at + 1) if text.startswith(_ESCAPED, at) else (at, at, 0)


_begun_object = stretch("", "value")
_LOOSE = " \t\n\r+-." + string.ascii_letters + string.digits
"""What numbers, literals and the white space around them are made of."""


def _object(text: str, at: int) -> Reach:
    """Over a whole object, or as much of one as a stretch is."""
    if not text.startswith("{", at):
        return at, at, 0
    stop = end_of_whole(text, at) if text.find("}", at) > 0 else -1
    return (stop, stop, 0) if stop > 0 else _along(_begun_object, text, at)


def _begun(text: str, at: int) -> Reach:
    """Over what follows an object's brace, up to where it may end. Of a whole object: up to its last brace, or the number or literal
    before that; the character behind which it stops says then what is expected."""
    if not text.startswith("{", at):
        return at, at, 0
    end = end_of_whole(text, at) if text.find("}", at) > 0 else -1
    if end < 0:
        return _along(_begun_object, text, at)
    stop = at + len(text[at : end - 1].rstrip(_LOOSE))
    return stop, stop, ord(text[stop - 1])


Spec = TypeVar("Spec", bound=Compiled)


class ArgumentsReader(Reader, Generic[Spec]):
    """What readers of JSON bodies share: passing on one object, or decoding one that was encoded twice."""

    __slots__ = ("early", "inner", "scanner", "seen", "spec", "stringly")

    def __init__(self, sink: Sink, spec: Spec) -> None:
        super().__init__(sink)
        self.spec = spec
        self.scanner = Scanner()
        self.begin_arguments()

    def begin_arguments(self) -> None:
        self.early: list[str] | None = []
        """Arguments that came before the name; `None` once the name is known."""
        self.stringly: list[str] | None = None
        """The arguments' text while it is a JSON string that holds JSON."""
        self.seen = False

    @property
    def streams(self) -> bool:
        return self.inner_active and self.scanner.in_string and self.early is None and self.stringly is None

    def reach(self) -> Callable[[str, int], Reach] | None:
        if self.early is not None or self.stringly is not None:
            return None
        if self.moves_on:
            return _object
        if self.opens:
            return _begun
        inside = self.scanner.stretch() if self.inner_active else None
        return inside and functools.partial(_along, inside)

    def reach_behind(self, held: str) -> Callable[[str, int], Reach] | None:
        inside = self.scanner.stretch() if self.inner_active and self.early is None and self.stringly is None else None
        return inside and functools.partial(_escape_and_along, inside) if held == "\\" else None

    @property
    def head(self) -> re.Pattern[str] | None:
        return _BACKSLASH if self.inner_active and self.scanner.in_quotes else None

    @property
    def inner_active(self) -> bool:
        """Whether the reader is inside the arguments."""
        return bool(self.step == self._in_arguments)

    @property
    def opens(self) -> bool:
        """Whether the arguments' object, with which the body ends, may begin here."""
        return False

    @property
    def nothing(self) -> str:
        """What an empty string of arguments stands for."""
        return "{}"

    exact: ClassVar[bool] = True
    forgets: ClassVar[bool] = True

    @property
    def verbatim(self) -> bool:
        return self.inner_active

    def standing(self) -> tuple[Hashable, ...]:
        """What, besides the arguments' part, makes up where the reader stands."""
        return ()

    def stand(self, *standing: Any) -> None:
        """Go back to where `standing` said this."""

    def place(self) -> Hashable | None:
        scanner = self.scanner.place()
        if scanner is None or self.early or self.stringly is not None:
            return None
        step = self.step and self.step.__name__
        return self.spec, scanner, step, self.seen, self.named, self.early is None, self.standing()

    def resume(self, place: Any) -> None:
        _, scanner, step, self.seen, self.named, named, standing = place
        self.scanner.resume(scanner)
        if step:
            self.step = getattr(self, step)
        self.early = None if named else []
        self.stand(*standing)

    def _begin_arguments(self, text: str, at: int) -> int:
        """A step: from here on the arguments are read, if they begin here."""
        if text[at] not in '{"' or not self._open_arguments(text, at):
            return self.expected(at, "a JSON object as arguments")
        self.step = self._in_arguments
        return at

    def _open_arguments(self, text: str, at: int) -> bool:
        """Begin the value at `at`, which is no white space. False: it can't be arguments."""
        self.scanner.restart()
        self.seen = True
        if text[at] == '"':
            self.stringly = []
        elif text[at] != "{" and not text.startswith("null"[: len(text) - at], at):
            return False
        return True

    def _half_null(self, text: str, at: int, final: bool) -> bool:
        """What is there could still become `null`, which is as good as no arguments, or anything else, which is none."""
        return not final and len(text) - at < len("null") and "null".startswith(text[at:])

    def _in_arguments(self, text: str, at: int, final: bool) -> int:
        """The step that reads them."""
        stop = self._arguments(text, at)
        over = self.scanner.done and not self.failed
        if over:
            self.arguments_over(stop)
        return stop if stop > at or over or self.failed else -1

    def arguments_over(self, stop: int) -> None:
        """They are whole: say so, or say what is read next."""

    def _arguments(self, text: str, at: int) -> int:
        """Read on in the arguments. Sets `failed`; the scanner says when they are whole."""
        scanner = self.scanner
        stop = scanner.scan(text, at)
        ends = stop > at and text[stop - 1] == "}"
        if stop > at:
            delta = scanner.repaired(text, at, stop, self.sink)
            if scanner.fixes:
                self.sink.note(
                    "repaired_string", scanner.fixes[0], "a raw control character or special token in a JSON string"
                )
            if self.stringly is not None:
                self.stringly.append(delta)
            elif scanner.stack or ends:
                self._deliver(stop, delta)
        if scanner.done and self.stringly is not None:
            if not self._decode(stop):
                return self.fail(stop, "the arguments are a string that holds no JSON object")
        elif scanner.error:
            return self.fail(stop, scanner.error)
        elif scanner.done and not ends:  # `null`, which may have come in pieces
            self._deliver(stop, "{}")
        return stop

    def _decode(self, stop: int) -> bool:
        """Arguments encoded twice: the string holds the JSON text."""
        value = json.loads("".join(self.stringly or ()))
        self.stringly = None
        if not isinstance(value, str) or not is_json_object(value.strip() or self.nothing):
            return False
        self._deliver(stop, value.strip() or self.nothing)
        return True

    def _deliver(self, stop: int, delta: str) -> None:
        if self.early is None:
            self.sink.call_arguments(stop, delta)
        else:
            self.early.append(delta)

    def _name_known(self, stop: int, name: str, id: str | None) -> None:
        self.named = True
        self.sink.call_start(stop, name, id)
        if self.early:
            self.sink.call_arguments(stop, "".join(self.early))
        self.early = None


@dataclass(frozen=True, slots=True)
class JsonArguments:
    """A call of which only the arguments are left to write, as a JSON object: its header gave the name. An empty body: no arguments."""

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return (("{",),)

    def spellings(self) -> Iterable[Spelling]:
        return ()

    def compile(self, alphabet: Any) -> _BareJson:
        return _BareJson()

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        return (calls[0].arguments,)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        return Json(schema)


@dataclass(frozen=True, slots=True, eq=False)
class _BareJson:
    def reader(self, sink: Sink) -> Reader:
        return _BareReader(sink, self)


class _BareReader(ArgumentsReader[_BareJson]):
    """Reads `{...}`."""

    __slots__ = ()

    @property
    def inner_active(self) -> bool:
        return self.seen

    @property
    def opens(self) -> bool:
        return not self.seen

    def begin(self) -> None:
        self._name_known(0, self.sink.called, None)

    def read(self, text: str, at: int, final: bool) -> int:
        if not self.seen:
            at = self.skip_space(text, at)
            if at == len(text):
                return at
            marker = self.sink.marker_at(text, at, final)
            if marker < 0:
                return at
            if marker:
                self.sink.call_arguments(at, "{}")
                self.sink.call_end(at)
                self.done = True
                return at
            if text[at] not in '{"' or not self._open_arguments(text, at):
                return self.expected(at, "a JSON object as arguments")
        stop = self._arguments(text, at)
        if self.scanner.done and not self.failed:
            self.sink.call_end(stop)
            self.done = True
        return stop

    def finish(self) -> Outcome:
        return "malformed" if self.seen else "complete"

    def tail(self) -> str:
        return "{}"
