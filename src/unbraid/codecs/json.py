"""Calls written as JSON: one object, an array of objects, or a name followed by its arguments.

    {"name": "get_weather", "arguments": {"city": "Oslo"}}        JsonObject
    [{"name": "f", "arguments": {}}, {"name": "g", ...}]          JsonArray
    get_weather<sep>{"city": "Oslo"}                              NameThenJson
    {"city": "Oslo"}                                              JsonArguments: a header gave the name

The arguments are passed on as the model wrote them, byte for byte; the scanner only makes sure that they are JSON. It knows
where they end: a marker inside a string is data. One repair is made, because it is lossless: a raw control character inside a
string, which JSON forbids, is passed on as its escape.
"""

from __future__ import annotations

import functools
import json
import re
import string
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

from unbraid.codecs.base import (
    HEADER_LIMIT,
    PLAIN_IN_STRING,
    Compiled,
    Outcome,
    Reach,
    Reader,
    Sink,
    WrittenCall,
    fitting,
    literal,
    partial,
)
from unbraid.codecs.json_stretch import Spot, stretch
from unbraid.grammar.tree import Json, Node, Regex, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.native import mypyc_attr
from unbraid.schema import MAX_DEPTH, escape, has_surrogate, is_json_object, json_string, no_constant
from unbraid.table import Piece, Spelling

_SPACE = re.compile(r"[ \t\n\r]*")
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPE_PART = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_ESCAPED = tuple('"\\/bfnrt')
_BACKSLASH = re.compile(r"\\")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]+")
_SCALAR_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_LONG, _FEW = 4000, 16
"""Characters of a text that is long, and values of which there are few."""
_DELIMITED = ("{", "[", '"')
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.S)
_DIGITS = re.compile("[1-9][0-9]*")
"""Any number will do for these: what may follow is the same."""

# What the scanner expects next.
_VALUE, _VALUE_OR_END, _KEY_OR_END, _KEY, _COLON, _AFTER, _IN_STRING, _IN_KEY, _IN_SCALAR = range(9)
_EXPECTED = {
    _VALUE: "a value", _VALUE_OR_END: 'a value or "]"', _KEY_OR_END: 'a key or "}"', _KEY: "a key", _COLON: '":"',
    _AFTER: '"," or a closing bracket', _IN_STRING: "a string's end", _IN_KEY: "a key's end", _IN_SCALAR: "a number or literal",
}  # fmt: skip
_SPOTS: dict[int, Spot] = {
    _VALUE: "value", _VALUE_OR_END: "value or end", _KEY_OR_END: "key or end", _KEY: "key", _COLON: "colon", _AFTER: "comma",
    _IN_STRING: "string", _IN_KEY: "name", _IN_SCALAR: "digits",
}  # fmt: skip
_HEAD_PART = r"[^{}]"
_HEAD_REST = re.compile(rf"{_HEAD_PART}{{1,64}}")
"""What of a call stands before its arguments comes again: keys, and names of tools."""


_JSON: Any = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=no_constant, object_pairs_hook=list)
_read_value: Callable[[str, int], tuple[Any, int]] = _JSON.scan_once


def _end_of_whole(text: str, at: int) -> int:
    """Where the object, array or string ends that begins at `at`, if all of it is there and is strict JSON of no unusual depth; else -1.

    That is what the standard library's decoder is quickest to tell; who has to know more must look at it piece by piece.
    """
    try:
        value, stop = _read_value(text, at)
    except (ValueError, StopIteration, RecursionError):
        return -1
    return -1 if _too_deep(value, text, at, stop) or has_surrogate(text[at:stop]) else stop


def _too_deep(value: Any, text: str, at: int, stop: int) -> bool:
    """Whether more than `MAX_DEPTH` brackets are open anywhere in this value of `text[at:stop]`; an object is given as the list of its
    pairs. To count brackets is quick, those in strings too, but a look at the few values of a long text is quicker."""
    length = stop - at
    if length < 2 * MAX_DEPTH or (length > _LONG and _is_shallow(value)):
        return False
    if text.count("{", at, stop) + text.count("[", at, stop) <= MAX_DEPTH:
        return False
    level, depth = _containers([value]), 0
    while level and depth <= MAX_DEPTH:
        level, depth = _inside(level), depth + 1
    return depth > MAX_DEPTH


def _is_shallow(value: Any) -> bool:
    """Whether there are but a few values, one in another."""
    level = _containers([value])
    for _ in range(_FEW):
        if sum(map(len, level)) > _FEW:
            return False
        level = _inside(level)
        if not level:
            return True
    return False


def _inside(level: list[Any]) -> list[Any]:
    """The objects and arrays that stand in these."""
    return _containers([each[1] if isinstance(each, tuple) else each for container in level for each in container])


def _containers(values: list[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, list)]


@mypyc_attr(serializable=True)
class Scanner:
    """Finds the end of one JSON value, piece by piece, and refuses what isn't JSON."""

    __slots__ = ("done", "error", "fixes", "phase", "scalar", "stack")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.phase = _VALUE
        self.stack: list[str] = []
        self.scalar: list[str] = []
        self.done = False
        self.error = ""
        self.fixes: list[int] = []
        """Positions in the text just scanned whose character can't stand in a JSON string as it is."""

    def scan(self, text: str, at: int) -> int:
        """Read on from `at` to the end of the value or of the text; returns the position reached."""
        self.fixes.clear()
        stop = len(text)
        if (
            self.phase == _VALUE
            and not self.stack
            and text.startswith(_DELIMITED, at)
            and (end := _end_of_whole(text, at)) > 0
        ):
            self._value_ends()
            return end
        while at < stop and not (self.done or self.error):
            phase = self.phase
            if phase in (_IN_STRING, _IN_KEY):
                if match := PLAIN_IN_STRING.match(text, at):
                    at = match.end()
                    if at == stop:
                        break
                here = self._in_string(text, at)
                if here == at:
                    break
                at = here
            elif phase == _IN_SCALAR:
                at = self._in_scalar(text, at)
            else:
                match = _SPACE.match(text, at)
                at = match.end() if match else at
                if at < stop:
                    at = self._structure(text, at)
        return at

    def _in_string(self, text: str, at: int) -> int:
        """At a character of a string that isn't plain. Returns the same position if more text must come first."""
        char = text[at]
        if char == '"':
            if self.phase == _IN_KEY:
                self.phase = _COLON
            else:
                self._value_ends()
            return at + 1
        if char == "\\":
            if match := _ESCAPE.match(text, at):
                return match.end()
            if not _ESCAPE_PART.match(text, at):
                self.error = f"{text[at : at + 2]!r} is no escape of JSON"
            return at
        self.fixes.append(at)
        return at + 1

    def _in_scalar(self, text: str, at: int) -> int:
        match = _SCALAR.match(text, at)
        if match:
            self.scalar.append(match.group())
            at = match.end()
            if at == len(text):
                return at
        self.end_scalar()
        return at

    def end_scalar(self) -> None:
        """Nothing more of a number or literal comes."""
        whole = "".join(self.scalar)
        self.scalar.clear()
        if _SCALAR_WHOLE.fullmatch(whole):
            self._value_ends()
        else:
            self.error = "expected a value, found what is neither a number nor true, false or null"

    def _value_ends(self) -> None:
        self.phase = _AFTER
        if not self.stack:
            self.done = True

    def _structure(self, text: str, at: int) -> int:
        phase, char = self.phase, text[at]
        if char == '"' and phase in (_KEY_OR_END, _KEY):
            self.phase = _IN_KEY
        elif char == ":" and phase == _COLON:
            self.phase = _VALUE
        elif char == "," and phase == _AFTER:
            self.phase = _KEY if self.stack[-1] == "{" else _VALUE
        elif (char == "}" and (phase == _KEY_OR_END or (phase == _AFTER and self.stack[-1] == "{"))) or (
            char == "]" and (phase == _VALUE_OR_END or (phase == _AFTER and self.stack[-1] == "["))
        ):
            self.stack.pop()
            self._value_ends()
        elif phase not in (_VALUE, _VALUE_OR_END):
            return self._unexpected(at)
        elif char == '"':
            self.phase = _IN_STRING
        elif char in "{[":
            if len(self.stack) >= MAX_DEPTH:
                self.error = f"nested deeper than {MAX_DEPTH}"
                return at
            self.stack.append(char)
            self.phase = _KEY_OR_END if char == "{" else _VALUE_OR_END
        elif _SCALAR.match(char):
            self.phase = _IN_SCALAR
            return at
        else:
            return self._unexpected(at)
        return at + 1

    def _unexpected(self, at: int) -> int:
        self.error = f"expected {_EXPECTED[self.phase]}"
        return at

    def place(self) -> Hashable | None:
        """Where it stands, for `Reader.place`. `None` where that would be said in too many ways."""
        if not (self.stack or self.scalar or self.error):
            return self.phase, self.done, "", ""
        scalar = _DIGITS.sub("1", "".join(self.scalar)) if self.scalar else ""
        if self.error or len(self.stack) > 12 or len(scalar) > 8:
            return None
        return self.phase, self.done, "".join(self.stack), scalar

    def resume(self, place: Any) -> None:
        self.phase, self.done, stack, scalar = place
        self.stack[:] = stack
        self.scalar[:] = [scalar] if scalar else []

    @property
    def in_string(self) -> bool:
        return self.phase == _IN_STRING and not (self.done or self.error)

    def stretch(self) -> re.Pattern[str] | None:
        """What it would read on inside the object or array in which it stands."""
        if self.done or self.error or not self.stack:
            return None
        if self.phase == _IN_SCALAR and not _DIGITS.fullmatch("".join(self.scalar)):
            return None
        return stretch(self.stack[-1], _SPOTS[self.phase])

    def repaired(self, text: str, start: int, stop: int, sink: Sink) -> str:
        """The text just scanned, as JSON: special tokens spelled out, raw control characters escaped."""
        if not self.fixes:
            return text[start:stop]
        pieces: list[str] = []
        for at in self.fixes:
            pieces += text[start:at], escape(sink.expand(text[at]))
            start = at + 1
        pieces.append(text[start:stop])
        return "".join(pieces)


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
    stop = _end_of_whole(text, at) if text.find("}", at) > 0 else -1
    return (stop, stop, 0) if stop > 0 else _along(_begun_object, text, at)


def _begun(text: str, at: int) -> Reach:
    """Over what follows an object's brace, up to where it may end. Of a whole object: up to its last brace, or the number or literal
    before that; the character behind which it stops says then what is expected."""
    if not text.startswith("{", at):
        return at, at, 0
    end = _end_of_whole(text, at) if text.find("}", at) > 0 else -1
    if end < 0:
        return _along(_begun_object, text, at)
    stop = at + len(text[at : end - 1].rstrip(_LOOSE))
    return stop, stop, ord(text[stop - 1])


Spec = TypeVar("Spec", bound=Compiled)


class _ArgumentsReader(Reader, Generic[Spec]):
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
        return _BACKSLASH if self.inner_active and self.scanner.phase in (_IN_STRING, _IN_KEY) else None

    @property
    def inner_active(self) -> bool:
        """Whether the reader is inside the arguments."""
        return False

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
class JsonObject:
    """One call as one JSON object that holds its name and its arguments, in any order, other keys ignored.

    The keys that hold name, arguments and id are listed by preference. `wrap`: keys whose object holds the real one
    (`{"type": "function", "function": {...}}`). `encoded`: arguments encoded twice, as a string that holds JSON, are read too. A
    name missing here may be the header's, if the format has headers. `bare`: nothing but its keys says that it's a call, so it needs
    a name and arguments and must be whole. `offered`: only an offered tool's name makes it one, if any tools were offered.
    """

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ()
    wrap: tuple[str, ...] = ("function",)
    encoded: bool = True
    id_length: int = 0
    """Ids are this many letters and digits; 0: they are numbers."""
    bare: bool = False
    offered: bool = False

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return (("{",),)

    def spellings(self) -> Iterable[Spelling]:
        return ()

    def compile(self, alphabet: Any) -> _JsonCalls:
        return _JsonCalls(self, many=False, single=True)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        """The body of the one call given."""
        call = calls[0]
        id = fitting(call.id, self.id_length) if self.id_length or call.id.isdecimal() else str(call.index)
        head = f"{{{json_string(self.id[0])}: {json_string(id)}, " if self.id else "{"
        return (
            f"{head}{json_string(self.name[0])}: {json_string(call.name)}, {json_string(self.arguments[0])}: {call.arguments}}}",
        )

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        head = f'{{{json_string(self.id[0])}: "' if self.id else "{"
        id = (
            (Regex(f"[a-zA-Z0-9]{{{self.id_length}}}" if self.id_length else "[0-9]{1,4}"), exactly('", '))
            if self.id
            else ()
        )
        keys = f"{json_string(self.name[0])}: {json_string(name)}, {json_string(self.arguments[0])}: "
        return sequence(exactly(head), *id, exactly(keys), Json(schema), exactly("}"))


@dataclass(frozen=True, slots=True)
class JsonArray:
    """All calls of a section as one JSON array. A missing last bracket is read too; `single`: and one object without array.

    `unit`: the array is one value, none of its calls is complete before it is. `under`: keys of an object that may hold the array
    (`{"tool_calls": [...]}`).
    """

    element: JsonObject = JsonObject()
    single: bool = True
    unit: bool = False
    under: tuple[str, ...] = ()

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return (("[",), ("{",)) if self.single else (("[",),)

    def spellings(self) -> Iterable[Spelling]:
        return ()

    def compile(self, alphabet: Any) -> _JsonCalls:
        return _JsonCalls(self.element, many=True, single=self.single, unit=self.unit, under=self.under)

    @property
    def many(self) -> bool:
        return True

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        """All calls given, as one array."""
        return (f"[{', '.join(str(self.element.write([call])[0]) for call in calls)}]",)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        return self.element.grammar(name, schema)


class _JsonCalls:
    """`JsonObject` made ready, for one object or (`many`) an array of them."""

    def __init__(
        self, shape: JsonObject, *, many: bool, single: bool, unit: bool = False, under: tuple[str, ...] = ()
    ) -> None:
        self.shape = shape
        self.many = many
        self.single = single
        self.unit = unit
        self.under = under
        name, arguments = literal(map(json_string, shape.name)), literal(map(json_string, shape.arguments))
        before = r"[\s,\[]{0,4}\{" if many else r"\s{0,4}\{"
        whole = rf'\s{{0,4}}(?:{name})\s?:\s?"[^"\\\x00-\x1f]{{1,64}}"\s?,\s{{0,4}}(?:{arguments})\s?:\s?(?=\{{)'
        self.opening = re.compile(rf"{before}(?:{whole}|{_HEAD_PART}{{0,64}})")
        """How a call begins as the template writes it, up to its arguments, or as much of that as is there."""

    def reader(self, sink: Sink) -> Reader:
        return _ObjectReader(sink, self)


_LONG_NAME, _LONG_COUNTER = 64, 4
"""Characters of a call's name and id that may be part of a place."""


class _ObjectReader(_ArgumentsReader[_JsonCalls]):
    """Reads `{"name": ..., "arguments": ...}`, or an array of such objects."""

    __slots__ = (
        "enclosed",
        "id",
        "key",
        "many",
        "name",
        "nested",
        "shape",
        "single",
        "started",
        "step",
        "under",
    )

    def __init__(self, sink: Sink, spec: _JsonCalls) -> None:
        super().__init__(sink, spec)
        self.shape = spec.shape
        self.many = spec.many
        self.single = spec.single
        self.unit = spec.unit
        self.under = spec.under
        self.started = False
        self.enclosed: Literal["", "open", "over"] = ""
        """The array stands in an object: it is being read, or has been."""
        self.step = self._begin
        self._next_object()

    def _next_object(self) -> None:
        self.name = ""
        self.id: str | None = None
        self.key = ""
        self.nested = 0
        self.named = False
        self.begin_arguments()

    @property
    def inner_active(self) -> bool:
        return bool(self.step == self._in_arguments)

    def place(self) -> Hashable | None:
        once = len(self.name) > _LONG_NAME or len(self.id or "") > _LONG_COUNTER  # an id that is no counter comes once
        return None if once else super().place()

    def _name_known(self, stop: int, name: str, id: str | None) -> None:
        super()._name_known(stop, name, id)
        self.name, self.id = "", None

    def standing(self) -> tuple[Hashable, ...]:
        return self.key, self.nested, self.started, self.enclosed, self.name, self.id

    def stand(self, *standing: Any) -> None:
        self.key, self.nested, self.started, self.enclosed, self.name, self.id = standing

    @property
    def nothing(self) -> str:
        return "" if self.shape.bare else "{}"

    @property
    def verbatim(self) -> bool:
        return self.step in (self._in_arguments, self._in_other)

    def skip_space(self, text: str, at: int) -> int:
        match = _SPACE.match(text, at)  # JSON knows no other
        return match.end() if match else at

    @property
    def moves_on(self) -> bool:
        # Before the arguments: a whole object as arguments is just that.
        return bool(
            self.step == self._value
            and self.named
            and not self.seen
            and self.enclosed != "over"
            and self.key in self.shape.arguments
        )

    @property
    def head(self) -> re.Pattern[str] | None:
        if self.seen or self.enclosed == "over":
            return super().head
        return self.spec.opening if self.step in (self._begin, self._element, self._between) else _HEAD_REST

    def _begin(self, text: str, at: int, final: bool) -> int:
        char = text[at]
        marker = self.sink.marker_at(text, at, final) if char == "[" else 0
        if (char == "{" and self.single) or (char == "[" and not marker and self.many and not self.started):
            self.step = self._first_key if char == "{" else self._element
            if char == "[":
                self.started = True
            return at + 1
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:
            self.empty = True
            return at
        return -1 if marker < 0 else self.fail(at, f"expected a JSON {'array' if self.many else 'object'}")

    def _element(self, text: str, at: int, final: bool) -> int:
        if text[at] == "{":
            self.step = self._first_key
            return at + 1
        if text[at] == "]":
            return self._array_over(at + 1)
        return self.fail(at, 'expected an object or "]"')

    def _first_key(self, text: str, at: int, final: bool) -> int:
        if text[at] == "}":
            return self._close(text, at)
        return self._next_key(text, at, final)

    def _next_key(self, text: str, at: int, final: bool) -> int:
        if text[at] != '"':
            return self.fail(at, "expected a key")
        stop = self._string(text, at)
        if stop > at:
            key = self._decoded(text, at, stop)
            if key is None:
                return self.fail(at, "a key that is no JSON string")
            self.key = key
            self.step = self._colon
        return stop

    def _colon(self, text: str, at: int, final: bool) -> int:
        if text[at] != ":":
            return self.fail(at, 'expected ":"')
        self.step = self._value
        return at + 1

    def _value(self, text: str, at: int, final: bool) -> int:
        shape, key = self.shape, self.key
        if self.enclosed == "over":
            key = ""
        elif key in self.under and text[at] == "[" and not (self.started or self.named or self.nested):
            self.started, self.enclosed = True, "open"
            self.step = self._element
            return at + 1
        if key in shape.name and not self.named and (text[at] == '"' or key not in shape.wrap):
            return self._named_value(text, at, "name")
        if key in shape.id and text[at] == '"':
            return self._named_value(text, at, "id")
        if key in shape.wrap and text[at] == "{" and not self.nested:
            self.nested += 1
            self.step = self._first_key
            return at + 1
        if key in shape.arguments and not self.seen:
            if self._half_null(text, at, final):
                return -1
            if self.name and not self.named:
                self._name_known(at, self.name, self.id)
            fits = text[at] == "{" or (self.shape.encoded if text[at] == '"' else not self.shape.bare)
            if not fits or not self._open_arguments(text, at):
                return self.fail(at, "expected an object as arguments")
            self.step = self._in_arguments
            if not self.named and self.sink.called in self.sink.tools:
                self._name_known(at, self.sink.called, self.id)
            return at
        self.scanner.restart()
        self.step = self._in_other
        return at

    def _named_value(self, text: str, at: int, what: str) -> int:
        if text[at] != '"':
            return self.fail(at, f"expected a string as {what}")
        stop = self._string(text, at)
        if stop > at:
            value = self._decoded(text, at, stop)
            if not value and what == "name":
                return self.fail(at, "a call without a name")
            if what == "name" and self.shape.offered and self.sink.tools.names and value not in self.sink.tools:
                return self.fail(at, f"no tool {value!r} was offered")
            if what == "id":
                self.id = None if self.named else value
            else:
                self.name = value or ""
            self.step = self._after
            # An id may come between name and arguments; behind them it's too late, the call has been announced.
            if self.name and not self.named and (self.id is not None or self.seen or not self.shape.id):
                self._name_known(stop, self.name, self.id)
        return stop

    def _string(self, text: str, at: int) -> int:
        """Where the short string at `at` ends; -1: not yet; `at`: it is too long."""
        match = _STRING.match(text, at, at + HEADER_LIMIT)
        if match:
            return match.end()
        return (
            -1
            if len(text) - at < HEADER_LIMIT
            else self.fail(at, f"a key or name of more than {HEADER_LIMIT} characters")
        )

    def _decoded(self, text: str, at: int, stop: int) -> str | None:
        if PLAIN_IN_STRING.fullmatch(text, at + 1, stop - 1):
            return text[at + 1 : stop - 1]
        try:
            value = json.loads(self.sink.expand(text[at:stop]))
        except ValueError:
            return None
        return value if isinstance(value, str) else None

    def _in_arguments(self, text: str, at: int, final: bool) -> int:
        stop = self._arguments(text, at)
        if self.scanner.done and not self.failed:
            self.step = self._after
        return stop if stop > at or self.step == self._after or self.failed else -1

    def _in_other(self, text: str, at: int, final: bool) -> int:
        stop = self.scanner.scan(text, at)
        if self.scanner.error:
            return self.fail(stop, self.scanner.error)
        if self.scanner.done:
            self.step = self._after
        return stop if stop > at or self.scanner.done else -1

    def _after(self, text: str, at: int, final: bool) -> int:
        if text[at] == ",":
            self.step = self._next_key
            return at + 1
        if text[at] == "}":
            if self.nested:
                self.nested -= 1
                return at + 1
            if self.enclosed == "over":
                self.done = True
                return at + 1
            return self._close(text, at)
        return self._missing_brace(text, at, final, 'expected "," or "}"')

    def _missing_brace(self, text: str, at: int, final: bool, reason: str) -> int:
        """The closing brace was forgotten although all is there: models do that before the closing marker."""
        if self.named and self.seen and not (self.many or self.shape.bare):
            marker = self.sink.marker_at(text, at, final)
            if marker < 0:
                return -1
            if marker:
                self.sink.note("missing_brace", at, "the call's last brace is missing")
                self.sink.call_end(at)
                self.done = True
                return at
        return self.fail(at, reason)

    def _close(self, text: str, at: int) -> int:
        if not self.named:
            if not (self.name or self.sink.called):
                return self.fail(at, "a call without a name")
            self._name_known(at, self.name or self.sink.called, self.id)
        if not self.seen:
            if self.shape.bare:
                return self.fail(at, "an object without arguments")
            self.sink.call_arguments(at + 1, "{}")
        self.sink.call_end(at + 1)
        if self.started:
            self.step = self._between
            self._next_object()
        else:
            self.done = True
        return at + 1

    def _between(self, text: str, at: int, final: bool) -> int:
        if text[at] == ",":
            self.step = self._element
            return at + 1
        if text[at] == "]":
            return self._array_over(at + 1)
        marker = 0 if self.shape.bare else self.sink.marker_at(text, at, final)
        if marker > 0:
            self.sink.note("missing_bracket", at, "the array of calls isn't closed")
            self.done = True
            return at
        return -1 if marker < 0 else self.fail(at, 'expected "," or "]"')

    def _array_over(self, stop: int) -> int:
        """Behind the array's bracket."""
        if not self.enclosed:
            self.done = True
        else:
            self.enclosed = "over"
            self.step = self._after
        return stop

    @property
    def proven(self) -> bool:
        asked = self.key in self.shape.arguments and self.step in (self._colon, self._value)
        return self.named and (self.seen or asked or not self.shape.bare)

    def finish(self) -> Outcome:
        if self.step == self._begin:
            return "blank"
        if self.shape.bare:
            return "malformed"
        if self.step in (self._between, self._element):
            return "complete"
        if self.step == self._after and self.named and self.seen and not self.nested:
            return "complete"
        return "malformed"


@dataclass(frozen=True, slots=True)
class NameThenJson:
    """A call as its name, a separator, and the arguments as a JSON object.

    `lead`: what may stand before the name (DeepSeek's `function` and separator). `separator`: what ends the name. `fence`: a
    Markdown fence may stand around the JSON. `prefix` and `number`: the name is written as an id, `functions.NAME:0`, which
    is the call's id as well.
    """

    separator: tuple[Spelling, ...]
    lead: tuple[Spelling, ...] = ()
    fence: bool = False
    prefix: str = ""
    number: str = ""
    closed: Literal["body", "marker"] = "body"
    """What makes a call complete: its body, or only the marker behind it."""

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return self.lead

    def spellings(self) -> Iterable[Spelling]:
        return (*self.separator, *self.lead)

    def compile(self, alphabet: Any) -> _NamedJson:
        return _NamedJson(self, tuple(alphabet.spell(self.separator)), tuple(alphabet.spell(self.lead)))

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call = calls[0]
        head = call.id if self.number else call.name
        if self.number and not re.fullmatch(
            rf"{re.escape(self.prefix)}{re.escape(call.name)}{re.escape(self.number)}\d+", head
        ):
            head = f"{self.prefix}{call.name}{self.number}{call.index}"
        fence = "```json\n" if self.fence else ""  # the closing fence belongs to the marker behind the body
        return (*(self.lead[0] if self.lead else ()), head, *self.separator[0], f"{fence}{call.arguments}")

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        lead = self.lead[0] if self.lead else ()
        number = (exactly(self.number), Regex("[0-9]{1,4}")) if self.number else ()
        fence = "```json\n" if self.fence else ""
        return sequence(exactly(*lead, self.prefix, name), *number, exactly(*self.separator[0], fence), Json(schema))


class _NamedJson:
    """`NameThenJson` for an alphabet."""

    def __init__(self, codec: NameThenJson, separators: tuple[str, ...], leads: tuple[str, ...]) -> None:
        self.codec = codec
        self.separators = separators
        self.leads = leads
        fence = "`" if codec.fence else ""  # it can open or close a body, so it is never part of a name
        self.stop = re.compile(rf"({literal(separators)})|[{{{fence}\ud800-\udfff]")
        lead = f"(?:{literal(leads)})?" if leads else ""
        self.opening = re.compile(rf"\s{{0,4}}{lead}[\w.:/-]{{1,64}}(?:(?:{literal(separators)})(?:```(?:json)?\n?)?)?")
        """How a call begins, up to its arguments, or as much of that as is there."""
        tail = f"{re.escape(codec.number)}[0-9]+" if codec.number else ""
        self.id = re.compile(rf"(?:{re.escape(codec.prefix)})?(?P<name>.*?)(?:{tail})?", re.S) if codec.number else None

    def reader(self, sink: Sink) -> Reader:
        return _NamedReader(sink, self)


class _NamedReader(_ArgumentsReader[_NamedJson]):
    """Reads `NAME separator {...}`."""

    __slots__ = ("counter", "step")

    def __init__(self, sink: Sink, spec: _NamedJson) -> None:
        super().__init__(sink, spec)
        self.counter = ""
        self.step = self._lead if spec.leads else self._name

    @property
    def inner_active(self) -> bool:
        return bool(self.step == self._in_arguments)

    @property
    def opens(self) -> bool:
        return bool(self.step == self._gap)

    @property
    def head(self) -> re.Pattern[str] | None:
        return self.spec.opening if self.step in (self._lead, self._name) else super().head

    def standing(self) -> tuple[Hashable, ...]:
        return (self.counter,)

    def stand(self, *standing: Any) -> None:
        (self.counter,) = standing

    def _lead(self, text: str, at: int, final: bool) -> int:
        for lead in self.spec.leads:
            if text.startswith(lead, at):
                self.step = self._name
                return at + len(lead)
        if not final and partial(text, at, self.spec.leads):
            return -1
        self.step = self._name
        return at

    def _name(self, text: str, at: int, final: bool) -> int:
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:
            self.empty = True
            return at
        if marker < 0:
            return -1
        match = self.spec.stop.search(text, at, at + HEADER_LIMIT)
        stop = len(text) if not match else match.start() if match.group(1) else match.end()
        interrupted = self.sink.find_marker(text, at, min(stop, at + HEADER_LIMIT))
        if interrupted >= 0 and self.sink.marker_at(text, interrupted, True) <= at + HEADER_LIMIT:
            return self._interrupted(text, at, interrupted)
        if not match:
            if len(text) - at >= HEADER_LIMIT:
                return self.fail(at, f"a name of more than {HEADER_LIMIT} characters")
            return -1
        if not match.group(1) and not final and partial(text, match.start(), self.spec.separators):
            return -1
        if not match.group(1) and text[match.start()] != "{":
            return self.fail(match.start(), "expected the end of a name")
        head = self.sink.expand(text[at : match.start()]).strip()
        if not head:
            return self.fail(at, "a call without a name")
        self._announce(head, match.end() if match.group(1) else match.start(), at)
        self.step = self._gap
        return match.end() if match.group(1) else match.start()

    def _interrupted(self, text: str, at: int, marker: int) -> int:
        """A marker stands where a name should end."""
        if not self.sink.opens_at(text, marker):
            return self.fail(marker, "expected the end of a name")
        self.sink.note("false_header", at, "the next call begins before this one has a name")
        self.empty = True
        return marker

    def _announce(self, head: str, stop: int, at: int) -> None:
        if not self.spec.id:
            self._name_known(stop, head, None)
            return
        if head.isdigit() and self.sink.tools.names:
            self.counter = head  # the name was forgotten: the arguments may tell which tool is meant
            return
        match = self.spec.id.fullmatch(head)
        name = (match and match.group("name")) or head
        if name == head or head == self.spec.codec.prefix + name:
            self.sink.note(
                "odd_call_id", at, f"{head!r} isn't of the form {self.spec.codec.prefix}NAME{self.spec.codec.number}0"
            )
        self._name_known(stop, name, head)

    def _guess(self, stop: int) -> None:
        """Name a call whose head is a bare counter: the one offered tool that has all its arguments."""
        keys = json.loads("".join(self.early or ["{}"]), parse_int=str, parse_float=str).keys()
        fitting = [name for name in self.sink.tools.names if all(key in self.sink.tools.keys(name) for key in keys)]
        self.sink.note("odd_call_id", stop, f"{self.counter!r} has no name")
        self._name_known(stop, fitting[0] if len(fitting) == 1 else self.counter, self.counter)

    def _gap(self, text: str, at: int, final: bool) -> int:
        """Between the name and the arguments: a fence, if the format has one."""
        if self.spec.codec.fence and text[at] == "`":
            for fence in ("```json", "```"):
                if text.startswith(fence, at) and not (fence == "```" and not final and partial(text, at, ["```json"])):
                    return at + len(fence)
            if not final and partial(text, at, ["```json"]):
                return -1
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:  # no body at all: no arguments
            if self.counter:
                self._guess(at)
            self.sink.call_arguments(at, "{}")
            self.sink.call_end(at)
            self.done = True
            return at
        if marker < 0:
            return -1
        if text[at] not in '{"' or not self._open_arguments(text, at):
            return self.fail(at, "expected a JSON object as arguments")
        self.step = self._in_arguments
        return at

    def _in_arguments(self, text: str, at: int, final: bool) -> int:
        stop = self._arguments(text, at)
        if self.scanner.done and not self.failed:
            if self.counter:
                self._guess(stop)
            if self.spec.codec.closed == "body":
                self.sink.call_end(stop)
            self.done = True
        return stop if stop > at or self.done or self.failed else -1

    def finish(self) -> Outcome:
        if not self.named:
            return "blank" if self.step in (self._lead, self._name) else "malformed"
        return "malformed"


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


class _BareReader(_ArgumentsReader[_BareJson]):
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
                return self.fail(at, "expected a JSON object as arguments")
        stop = self._arguments(text, at)
        if self.scanner.done and not self.failed:
            self.sink.call_end(stop)
            self.done = True
        return stop

    def finish(self) -> Outcome:
        return "malformed" if self.seen else "complete"

    def tail(self) -> str:
        return "{}"
