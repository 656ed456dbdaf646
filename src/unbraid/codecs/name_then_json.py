"""Calls written as the function's name, a separator, and the arguments as a JSON object.

get_weather<sep>{"city": "Oslo"}
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from unbraid.codecs.base import HEADER_LIMIT, Outcome, Reader, Sink, WrittenCall, literal, partial
from unbraid.codecs.json_arguments import ArgumentsReader
from unbraid.grammar.tree import Json, Node, Regex, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.table import Piece, Special, Spelling


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
        tokens = [(piece,) for spelling in self.lead for piece in spelling if isinstance(piece, Special)]
        return _NamedJson(self, *map(tuple, map(alphabet.spell, (self.separator, self.lead, tokens))))

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

    def __init__(
        self, codec: NameThenJson, separators: tuple[str, ...], leads: tuple[str, ...], tokens: tuple[str, ...]
    ) -> None:
        self.codec = codec
        self.separators = separators
        self.leads = leads
        fence = "`" if codec.fence else ""  # it can open or close a body, so it is never part of a name
        no_name = f"|{literal(tokens)}" if tokens else ""  # by ids no special token is part of one anyhow
        self.stop = re.compile(rf"({literal(separators)})|[{{{fence}\ud800-\udfff]{no_name}")
        lead = f"(?:{literal(leads)})?" if leads else ""
        self.opening = re.compile(rf"\s{{0,4}}{lead}[\w.:/-]{{1,64}}(?:(?:{literal(separators)})(?:```(?:json)?\n?)?)?")
        """How a call begins, up to its arguments, or as much of that as is there."""
        tail = f"{re.escape(codec.number)}[0-9]+" if codec.number else ""
        self.id = re.compile(rf"(?:{re.escape(codec.prefix)})?(?P<name>.*?)(?:{tail})?", re.S) if codec.number else None

    def reader(self, sink: Sink) -> Reader:
        return _NamedReader(sink, self)


class _NamedReader(ArgumentsReader[_NamedJson]):
    """Reads `NAME separator {...}`."""

    __slots__ = ("counter", "step")

    def __init__(self, sink: Sink, spec: _NamedJson) -> None:
        super().__init__(sink, spec)
        self.counter = ""
        self.step = self._lead if spec.leads else self._name

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
            return self.expected(match.start(), "the end of a name")
        head = self.sink.expand(text[at : match.start()]).strip()
        if not head:
            return self.fail(at, "a call without a name")
        self._announce(head, match.end() if match.group(1) else match.start(), at)
        self.step = self._gap
        return match.end() if match.group(1) else match.start()

    def _interrupted(self, text: str, at: int, marker: int) -> int:
        """A marker stands where a name should end."""
        if not self.sink.opens_at(text, marker):
            return self.expected(marker, "the end of a name")
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
        return self._begin_arguments(text, at)

    def arguments_over(self, stop: int) -> None:
        if self.counter:
            self._guess(stop)
        if self.spec.codec.closed == "body":
            self.sink.call_end(stop)
        self.done = True

    def finish(self) -> Outcome:
        if not self.named:
            return "blank" if self.step in (self._lead, self._name) else "malformed"
        return "malformed"
