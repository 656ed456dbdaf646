"""Values between tags, read into the JSON of a call's arguments: what the readers of tagged syntaxes share.

Nothing in such a value is escaped. Its type comes from the tool's schema (or from an attribute). A string streams as it comes; anything
else waits for its end, because what it is depends on all of it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any, ClassVar

from unbraid.codecs.base import ObjectWriter, Outcome, Reach, Reader, Sink, ValueReader, escape, json_string
from unbraid.native import mypyc_attr
from unbraid.schema import Coerced, Kind, Type, coerce, is_json, is_json_object
from unbraid.search import Search
from unbraid.table import ANY

# The characters with which a value of each type may begin: one that begins otherwise is text, and can stream at once.
_BEGINS = {
    "object": "{", "array": "[(", "integer": "+-0123456789", "number": "+-.0123456789", "boolean": "tTfF01", "null": "nN",
}  # fmt: skip
_ANY_JSON = frozenset("{[-0123456789tfn")


def beginnings(type: Type) -> frozenset[str]:
    return _beginnings_of(type.kinds) if type.known else _ANY_JSON


@functools.cache
def _beginnings_of(kinds: frozenset[Kind]) -> frozenset[str]:
    return frozenset("".join(_BEGINS.get(kind, "") for kind in kinds))


_Stage = tuple[bool, frozenset[str], str, bool]
"""What has been decided of a value: the fields of `_Value` that its constructor names behind the type."""
_TEXT: _Stage = (True, frozenset(), "", False)


@mypyc_attr(serializable=True)
class _Value:
    """One value being read: streamed if it is text, collected and coerced if it isn't."""

    __slots__ = ("attribute", "begins", "declared", "held", "key", "type", "verbatim")

    def __init__(
        self, key: str, type: Type, verbatim: bool, begins: frozenset[str], declared: str, attribute: bool
    ) -> None:
        self.key = key
        self.type = type
        self.verbatim = verbatim
        self.begins = begins
        """First characters of values that aren't text; empty once the first one has been seen."""
        self.declared = declared
        """The type that the model wrote; `type` is narrowed to it where the schema leaves a choice."""
        self.attribute = attribute
        """An attribute of its tag says that it is JSON."""
        self.held: list[str] = []

    @property
    def stage(self) -> _Stage:
        return _TEXT if self.verbatim else (False, self.begins, self.declared, self.attribute)


def _narrowed(type: Type, declared: str) -> Type:
    """The schema's type, or the one that the model wrote, where the schema leaves a choice."""
    if declared and (not type.known or (len(type.kinds) > 1 and declared in type.kinds)):
        kinds: Any = frozenset({declared})
        return Type(kinds, known=True)
    return type


def _coerced(text: str, type: Type, attribute: bool, unquotes: bool) -> Coerced:
    """A value's text as JSON. `attribute`, `unquotes`: see `_Value` and `TagReader`."""
    if attribute or not type.known:
        bare = text.strip()
        if is_json(bare) and (attribute or unquotes or not bare.startswith('"')):
            return Coerced(bare)
        if not type.known:
            return Coerced(json_string(text))
    return coerce(text, type)


def _fitting(text: str, type: Type, attribute: bool, unquotes: bool) -> str | None:
    """The same; `None`: it isn't of this type."""
    result = _coerced(text, type, attribute, unquotes)
    return result.json if result.fits else None


def _inside(frame: str, text: str) -> str:
    """What follows a value's tag, without what the format puts between the two."""
    return text.lstrip() if frame == ANY else text.removeprefix(frame)


def _value_json(frame: str, declared: str, attribute: bool, unquotes: bool, text: str, type: Type) -> str | None:
    """See `Reader.value_reader`."""
    return _fitting(_inside(frame, text), _narrowed(type, declared), attribute, unquotes)


def _nothing(text: str) -> str:
    """What is passed on of a value that is read whole, before its end."""
    return ""


def value_reach(until: Callable[[str, int], int], closing: re.Pattern[str], text: str, at: int) -> Reach:
    """How far a value's text goes, and where ends what closes it."""
    stop = until(text, at)
    found = closing.match(text, stop) if stop < len(text) else None
    return stop, found.end() if found else stop, 0


def first_reach(
    begins: frozenset[str], not_at: Search | None, reach: Callable[[str, int], Reach], text: str, at: int
) -> Reach:
    """The same at its beginning. `begins`: if not empty, with one of these; `not_at`: not with one of these tags."""
    if (begins and text[at : at + 1] not in begins) or (not_at is not None and not_at.stands(text, at)):
        return at, at, 0
    return reach(text, at)


class TagReader(Reader):
    """What the readers of both syntaxes share: writing values into the arguments' object."""

    __slots__ = ("added", "given", "name", "reached", "step", "unquotes", "value", "whole", "wrapped", "writer")

    first: ClassVar[str]
    """The step before which nothing of a call was read."""
    between: ClassVar[frozenset[str]] = frozenset()
    """Steps before which white space means nothing."""
    closable: ClassVar[frozenset[str]] = frozenset()
    """Steps at which a call lacks nothing but its closer."""

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self.added: list[str] = []
        """Pieces of the arguments that the sink hasn't been told: they are one event, for text that comes at once."""
        self.reached = -1
        """The text up to here gave them; -1: there are none."""
        self.step = self.first
        self.unquotes = False
        """A value of unknown type that is a JSON string in quotes is that string."""
        self.begin_call()

    def begin_call(self) -> None:
        self.writer = ObjectWriter()
        self.value: _Value | None = None
        self.given: set[str] = set()
        self.whole = False
        """The arguments' object has been passed on whole, brackets included."""
        self.name = ""
        self.wrapped = ""
        """Arguments that came as one JSON object in a wrapper parameter: written once it is clear that nothing else comes."""

    def take_step(self, text: str, at: int, final: bool) -> int:
        """Read what comes next, by the name of the `step`. As `Reader.step`."""
        raise TypeError("a reader of tags must say how it takes a step")

    def read(self, text: str, at: int, final: bool) -> int:
        self.waits_on_blank = False
        while not (self.done or self.empty or self.failed):
            if self.step in self.between and text[at : at + 1].isspace():
                at = self.skip_space(text, at)
            if at == len(text):
                break
            here = self.take_step(text, at, final)
            if here < 0:
                break
            at = here
        self.hand_on()
        return at

    def add(self, stop: int, delta: str) -> None:
        """The text up to `stop` gave this piece of the arguments' JSON."""
        self.added.append(delta)
        self.reached = stop

    def hand_on(self) -> None:
        """Tell the sink what was added."""
        if self.reached >= 0:
            self.sink.call_arguments(self.reached, "".join(self.added))
            self.added.clear()
            self.reached = -1

    exact: ClassVar[bool] = True

    forgets: ClassVar[bool] = True

    @property
    def gathers(self) -> bool:
        return self.value is not None and not self.value.verbatim

    @property
    def private(self) -> bool:
        """Something is held that only this reader knows: arguments that came as one object, white space before a value."""
        held = self.value is not None and self.value.begins and self.value.held
        return bool(self.wrapped or held) or self.whole

    @property
    def written(self) -> Callable[[str], str]:
        return _nothing if self.gathers else escape

    def catch_up(self, stage: _Stage | None, *, opens: bool) -> None:
        """Learn from the sink what was read without this reader, which is at this stage of a value now, if in one. `opens`: when it
        last read, it stood between the value's tag and its text."""
        name, begun, text = self.sink.missed(stage is not None and not stage[0])
        if name:
            self.name = name
        if begun:
            self.given.update([key for key, _ in begun])
            self.writer.keys += len(begun)
        if stage is None:
            self.value = None
            return
        value = self.value
        if begun or value is None:
            key, kind = begun[-1]
            verbatim, begins, declared, attribute = stage
            value = _Value(key, _narrowed(kind, declared), verbatim, begins, declared, attribute)
            self.value = value
        else:
            value.verbatim, value.begins, value.declared, value.attribute = stage
        if begun or opens:
            text = _inside(self.frame, text)
        if text:
            value.held.append(text)

    @property
    def frame(self) -> str:
        """What the format puts between a value's tag and its text; `ANY`: white space."""
        return ""

    def finish(self) -> Outcome:
        if self.step == self.first:
            return "blank"
        return "complete" if self.step in self.closable else "malformed"

    def tail(self) -> str:
        return "" if self.whole else self.wrapped or self.writer.close()

    def open_value(
        self,
        stop: int,
        key: str,
        *,
        verbatim: bool | None,
        untyped: str,
        wrappers: tuple[str, ...] = (),
        declared: str = "",
    ) -> None:
        """A parameter begins. `verbatim`: what an attribute says, None if the schema decides; `declared`: the type that the
        model wrote."""
        self._unwrap_not(stop)
        declared = declared if declared in _BEGINS or declared == "string" else ""
        kind = _narrowed(self.sink.parameter(stop, self.name, key), declared)
        text = verbatim
        if verbatim is None:
            text = kind.is_text and (kind.known or untyped == "string")
        if verbatim is not True and key in wrappers and not self.writer.keys and not kind.known:
            text = False
            self.wrapped = key
        self.given.add(key)
        undecided = not text and verbatim is None and not self.wrapped
        begins = beginnings(kind) if undecided else frozenset()
        if begins and self.unquotes and not kind.known:
            begins |= {'"'}
        self.value = _Value(key, kind, bool(text), begins, declared, verbatim is not None)
        if self.wrapped:
            self.add(stop, "")
            return
        self.add(stop, self.writer.key(key) + ('"' if text else ""))

    def take(self, text: str, start: int, stop: int) -> None:
        """A piece of the open value."""
        value = self.value
        assert value is not None
        if start == stop:
            return
        piece = self.sink.expand(text[start:stop])
        if value.verbatim:
            self.add(stop, escape(piece))
            return
        value.held.append(piece)
        if value.begins and not piece.isspace():
            if piece.lstrip()[0] not in value.begins:
                value.verbatim = True
                self.add(stop, '"' + escape("".join(value.held)))
                return
            value.begins = frozenset()
        self.add(stop, "")

    def close_value(self, end: int, stop: int) -> None:
        """The open value is whole: its text ends at `end`, its element at `stop`."""
        value = self.value
        assert value is not None
        self.value = None
        if value.verbatim:
            self.add(stop, '"')
            return
        text = "".join(value.held)
        if self.wrapped:
            if self._unwraps(text.strip()):
                self.wrapped = text.strip()
                self.add(stop, "")
                return
            self.wrapped = ""
            self.add(stop, self.writer.key(value.key))
        result = _coerced(text, value.type, value.attribute, self.unquotes)
        self.add(stop, result.json)
        self.sink.value_end(end, result.json)
        if not result.fits:
            # What was added hasn't been told: it lies there, not where the sink stands.
            self.note_mismatch(self.reached, value.key)

    def whole_value(self, tail: str) -> str | None:
        value = self.value
        assert value is not None
        return _fitting("".join([*value.held, tail]), value.type, value.attribute, self.unquotes)

    def value_reader(self) -> ValueReader | None:
        value = self.value
        if value is None or self.wrapped:
            return None
        return functools.partial(_value_json, self.frame, value.declared, value.attribute, self.unquotes)

    def _unwraps(self, text: str) -> bool:
        """Whether the wrapper's value is the real object: all its keys are parameters of the tool."""
        if not is_json_object(text):
            return False
        keys = self.sink.tools.keys(self.name)
        return bool(keys) and all(key in keys for key in json.loads(text, parse_int=str, parse_float=str))

    def _unwrap_not(self, stop: int) -> None:
        """Another parameter follows, so the first was no wrapper after all."""
        if self.wrapped:
            self.add(stop, self.writer.key("arguments") + self.wrapped)
            self.wrapped = ""

    def close_object(self, stop: int) -> None:
        self.add(stop, self.wrapped or self.writer.close())
        self.wrapped = ""
        self.hand_on()
        self.sink.call_end(stop)
