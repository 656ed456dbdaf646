"""A call that nothing announces, read on trial.

What the reader finds is written down, not said: the text stays where it is until it is certain to be a call. Then the machine
takes it all at once, as if it had known from the beginning (`Trial.replay`); or it is no call, and the machine goes on with the text as if
nobody had tried. A place is tried once, so the cost stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from unbraid.codecs.base import Reader, Sink
from unbraid.native import mypyc_attr
from unbraid.partial_json import readable_object
from unbraid.program import ORPHAN, Program, Row
from unbraid.schema import Tools, Type
from unbraid.search import Search
from unbraid.table import Marker, State

_SPACE = re.compile(r"\s*")


@mypyc_attr(serializable=True)
class Trial:
    """One reader over text that may be a call. It is the reader's sink."""

    __slots__ = (
        "_found", "_machine", "_program", "_taken", "asked", "called", "doubt", "lead", "length", "marker", "reader", "row", "said", "target", "waits",
    )  # fmt: skip

    def __init__(self, program: Program, machine: Sink, lead: str, marker: Marker, target: State) -> None:
        self._program = program
        self._machine = machine
        self.asked = False
        """The reader asked for something of the request."""
        self.called = ""
        self.doubt = ""
        """Why it is no call, although it reads like one."""
        self.lead = lead
        """White space and a separator before the body: markup, should a call follow."""
        self.marker = marker
        self.target = target
        self.row: Row = program.rows[target]
        self.length = 0
        """Characters of the body read so far."""
        self.said = False
        """A piece of the arguments is known."""
        self.waits = False
        """More white space decides nothing."""
        self._taken: list[str] = []
        self._found: list[tuple[Callable[..., None], int, tuple[Any, ...]]] = []
        self.reader: Reader = program.codecs[target].reader(self)
        self.reader.begin()

    @property
    def size(self) -> int:
        """All characters that are held for it, but for those that wait in the buffer."""
        return len(self.lead) + self.length

    @property
    def body(self) -> str:
        """The body's text, as far as it has been read."""
        return "".join(self._taken)

    def read(self, text: str, final: bool) -> int:
        """Let the reader read on; returns how much of `text` it took."""
        at = 0
        while True:
            reader = self.reader
            at = self._take(text, reader.read(text[at:] if at else text, 0, final) + at, at)
            self.waits = reader.waits_on_blank
            if reader.successor is None:
                return at
            self.reader = reader.successor
            if at == len(text):
                return at

    def _take(self, text: str, stop: int, at: int) -> int:
        if stop > at:
            self._taken.append(text[at:stop])
            self.length += stop - at
        return stop

    def replay(self) -> None:
        """Say all that was found, to the machine."""
        for say, stop, rest in self._found:
            say(self._machine, stop, *rest)
        self.reader.sink = self._machine

    def judge(self, text: str, final: bool) -> int:
        """Whether the body that has been read is a call, by what follows it: 1 yes, 0 no, -1 it can't be said yet."""
        verdict = self._closed(text, final)
        if verdict > 0 and self.marker is ORPHAN:
            self.doubt = self._doubt()
            return int(not self.doubt)
        return verdict

    def _doubt(self) -> str:
        """What speaks against a call whose opener is missing: any text may look like one."""
        tools = self.tools
        if not tools:
            return ""
        for name, arguments in self._calls():
            if tools.lack(name):
                return f"no tool {name!r} was offered"
            if missing := sorted(tools.required(name).difference(readable_object(arguments))):
                return f"a call of {name!r} without its required {', '.join(map(repr, missing))}"
        return ""

    def _calls(self) -> list[tuple[str, str]]:
        """Name and arguments of each call in the body."""
        calls: list[tuple[str, list[str]]] = []
        for say, _, rest in self._found:
            if say is _start:
                calls.append((rest[0], []))
            elif say is _arguments:
                calls[-1][1].append(rest[0])
        return [(name, "".join(deltas)) for name, deltas in calls]

    def _closed(self, text: str, final: bool) -> int:
        """Whether the closing marker follows the body."""
        space = _SPACE.match(text)
        at = space.end() if space else 0
        if at == len(text):
            return 0 if final else -1
        marker, stop = self._marker(text, at)
        if marker is None:
            return -1 if not final and self.row.opens(text, at) else 0
        if self.marker.trial == "closed":
            return int(marker not in self._program.format.turns)
        if marker in self._program.format.turns:
            return 1
        space = _SPACE.match(text, stop)
        stop = space.end() if space else stop
        if stop == len(text):
            return 1 if final else -1
        marker, _ = self._marker(text, stop)
        if marker is None:
            return -1 if not final and self.row.opens(text, stop) else 0
        return int(marker in self._program.format.turns)

    def _marker(self, text: str, at: int) -> tuple[Marker | None, int]:
        """The marker at `at` that leads out of calls, and its end."""
        match = self.row.match.match(text, at)
        if not match:
            return None, at
        marker, target = self.row.targets[match.lastindex - 1]  # type: ignore[operator]
        return (None, at) if target.strand == "tool_call" else (marker, match.end())

    @property
    def markers(self) -> Search:
        return self.row.search

    # What the reader says, and asks

    @property
    def tools(self) -> Tools:
        self.asked = True
        return self._machine.tools

    def parameter(self, stop: int, name: str, key: str) -> Type:
        return self.tools.parameter(name, key)

    def value_end(self, end: int, json: str) -> None:
        pass

    def missed(self, text: bool) -> tuple[str, list[tuple[str, Type]], str]:
        return "", [], ""  # nothing is: on trial no place is known

    def call_start(self, stop: int, name: str, id: str | None = None) -> None:
        self._found.append((_start, self.length + stop, (name, id)))

    def call_arguments(self, stop: int, delta: str) -> None:
        self.said = self.said or bool(delta)
        self._found.append((_arguments, self.length + stop, (delta,)))

    def call_end(self, stop: int) -> None:
        self._found.append((_end, self.length + stop, ()))

    def note(self, kind: str, at: int, message: str) -> None:
        self._found.append((_note, self.length + at, (kind, message)))

    def marker_at(self, text: str, at: int, final: bool) -> int:
        return self.row.marker_at(text, at, final)

    def find_marker(self, text: str, at: int, stop: int) -> int:
        return self.row.find_marker(text, at, stop)

    def opens_at(self, text: str, at: int) -> bool:
        return self.row.opens_at(text, at)

    def last_body(self) -> str:
        return self._machine.last_body()

    def expand(self, text: str) -> str:
        return self._program.alphabet.expand(text)


def _start(sink: Sink, stop: int, name: str, id: str | None) -> None:
    sink.call_start(stop, name, id)


def _arguments(sink: Sink, stop: int, delta: str) -> None:
    sink.call_arguments(stop, delta)


def _end(sink: Sink, stop: int) -> None:
    sink.call_end(stop)


def _note(sink: Sink, at: int, kind: str, message: str) -> None:
    sink.note(kind, at, message)
