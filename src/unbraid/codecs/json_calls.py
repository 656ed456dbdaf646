"""Calls written as JSON: one object with name and arguments, or an array of them.

{"name": "get_weather", "arguments": {"city": "Oslo"}}        JsonObject
[{"name": "f", "arguments": {}}, {"name": "g", ...}]          JsonArray
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from unbraid.codecs.base import (
    HEADER_LIMIT,
    PLAIN_IN_STRING,
    Outcome,
    Reader,
    Sink,
    WrittenCall,
    fitting,
    literal,
)
from unbraid.codecs.json_arguments import ArgumentsReader
from unbraid.codecs.json_scanner import JSON_SPACE, QUOTED, string_value
from unbraid.grammar.tree import Json, Node, Regex, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.schema import json_string
from unbraid.table import Piece, Spelling

_HEAD_PART = r"[^{}]"
_HEAD_REST = re.compile(rf"{_HEAD_PART}{{1,64}}")
"""What of a call stands before its arguments comes again: keys, and names of tools."""


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


class _ObjectReader(ArgumentsReader[_JsonCalls]):
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
        match = JSON_SPACE.match(text, at)  # JSON knows no other
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
        return self.no_body(text, at, final, f"a JSON {'array' if self.many else 'object'}")

    def _element(self, text: str, at: int, final: bool) -> int:
        if text[at] == "{":
            self.step = self._first_key
            return at + 1
        if text[at] == "]":
            return self._array_over(at + 1)
        return self.expected(at, 'an object or "]"')

    def _first_key(self, text: str, at: int, final: bool) -> int:
        if text[at] == "}":
            return self._close(text, at)
        return self._next_key(text, at, final)

    def _next_key(self, text: str, at: int, final: bool) -> int:
        if text[at] != '"':
            return self.expected(at, "a key")
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
            return self.expected(at, '":"')
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
                return self.expected(at, "an object as arguments")
            self.step = self._in_arguments
            if not self.named and self.sink.called in self.sink.tools:
                self._name_known(at, self.sink.called, self.id)
            return at
        self.scanner.restart()
        self.step = self._in_other
        return at

    def _named_value(self, text: str, at: int, what: str) -> int:
        if text[at] != '"':
            return self.expected(at, f"a string as {what}")
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
        match = QUOTED.match(text, at, at + HEADER_LIMIT)
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
        return string_value(self.sink.expand(text[at:stop]))

    def arguments_over(self, stop: int) -> None:
        self.step = self._after

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
        if self.shape.bare:
            return self.expected(at, '"," or "]"')
        return self.no_bracket(text, at, final, "array")

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
