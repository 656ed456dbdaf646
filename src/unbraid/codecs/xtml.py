"""XTML, the tag language of Kimi K3: a tag is a token that opens it, ordinary text, and a token that ends it.

    <|open|>call tool="tide" index="1"<|sep|>
    <|open|>argument key="port" type="string"<|sep|>Brest<|close|>argument<|sep|>
    <|open|>argument key="days" type="number"<|sep|>3<|close|>argument<|sep|>
    <|close|>call<|sep|>

(on one line). Attributes are escaped (`&amp;`, `&quot;`), an element's text never is. So only ids tell a tag from text: by ids an
argument ends at its own closing tag or, that missing, at the call's or the section's; in text only at its own, and a value that
quotes that tag is cut there. The type is written down: no schema is needed.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from unbraid.codecs.base import (
    HEADER_LIMIT,
    ObjectWriter,
    Outcome,
    Reader,
    Sink,
    WrittenCall,
    escape,
    json_string,
    literal,
    partial,
)
from unbraid.grammar.raw_values import raw_value
from unbraid.grammar.schemas import definitions_of, narrowed, properties
from unbraid.grammar.tree import Json, Node, Regex, choice, optional, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.schema import Tools, is_json, is_json_object
from unbraid.table import Piece, Spelling

_ATTRIBUTE = re.compile(r'([^\s="]+)="([^"]*)"')
_KINDS = {"t": "boolean", "f": "boolean", "n": "null", '"': "string", "[": "array", "{": "object"}
"""What a JSON value is by its first character; any other: a number."""
_TYPES = {"integer": "number"}
_TAG_LIMIT = 2 * HEADER_LIMIT


@dataclass(frozen=True, slots=True)
class Xtml:
    """Calls as elements that hold an element for each argument.

    `open`, `close`, `sep`: what begins an opening tag, a closing tag, and ends either. `call`, `argument`, `json`: the tags of a call,
    of an argument, and of all arguments as one JSON object. `section`: the tag around all calls, which ends a value too.
    """

    open: Spelling
    close: Spelling
    sep: Spelling
    call: str = "call"
    argument: str = "argument"
    json: str = "json"
    section: str = "tools"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return ((*self.open, self.call),)

    def spellings(self) -> Iterable[Spelling]:
        return (self.open, self.close, self.sep)

    def compile(self, alphabet: Any) -> _Tags:
        return _Tags(self, alphabet)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call = calls[0]
        out: list[Piece] = [*self.open, f'{self.call} tool="{_escaped(call.name)}" index="{call.index + 1}"', *self.sep]
        for key, value, text in call.items():
            kind = _KINDS.get(text[0], "number")
            out += [*self.open, f'{self.argument} key="{_escaped(key)}" type="{kind}"', *self.sep]
            out += [value if kind == "string" else text, *self.close, self.argument, *self.sep]
        return (*out, *self.close, self.call, *self.sep)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        parts: list[Node] = [exactly(*self.open, f'{self.call} tool="{_escaped(name)}" index="'), Regex("[0-9]{1,4}")]
        parts.append(exactly('"', *self.sep))
        for key, part, required in properties(schema):
            item = choice(self._argument(key, part))
            parts.append(item if required else optional(item))
        return sequence(*parts, exactly(*self.close, self.call, *self.sep))

    def _argument(self, key: str, schema: Mapping[str, Any]) -> list[Node]:
        """One argument, in each of the types that it may have: the attribute says which."""
        tool = {"name": "t", "parameters": {**schema, "type": "object", "properties": {"v": dict(schema)}}}
        kinds = Tools.resolve([tool]).parameter("t", "v").kinds or frozenset(
            ("string", "number", "boolean", "object", "array")
        )
        close = (*self.close, self.argument, *self.sep)
        options: list[Node] = []
        for kind in sorted(kinds):
            opening = exactly(
                *self.open, f'{self.argument} key="{_escaped(key)}" type="{_TYPES.get(kind, kind)}"', *self.sep
            )
            if kind == "string":
                options.append(sequence(opening, raw_value(schema if len(kinds) == 1 else _as_text(schema), close, ())))
            else:
                only = schema if len(kinds) == 1 else {**definitions_of(schema), **narrowed(schema, kind)}
                options.append(sequence(opening, Json(only), exactly(*close)))
        return options


def _as_text(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema that allows several types says of the string among them."""
    branches = [
        branch
        for key in ("anyOf", "oneOf")
        for branch in schema.get(key, ())
        if isinstance(branch, Mapping) and branch.get("type") == "string"
    ]
    said = branches[0] if len(branches) == 1 else schema
    text = {key: value for key, value in said.items() if key in ("enum", "pattern", "const", "minLength", "maxLength")}
    if "enum" in text:
        text["enum"] = [value for value in text["enum"] if isinstance(value, str)]
    return text


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _unescaped(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


class _Tags:
    """`Xtml` for an alphabet."""

    def __init__(self, codec: Xtml, alphabet: Any) -> None:
        self.codec = codec
        self.ids = ids = alphabet.vocabulary is not None
        self.open, self.close, self.sep = ([*alphabet.spell([p])] for p in (codec.open, codec.close, codec.sep))
        open, close, sep = map(literal, (self.open, self.close, self.sep))
        inside = rf"(?P<attributes>(?:\s(?:(?!{open}|{close}|{sep}).){{0,{_TAG_LIMIT}}})?)"
        self.call = re.compile(f"(?:{open}){re.escape(codec.call)}{inside}(?:{sep})", re.S)
        self.item = re.compile(f"(?:{open})(?P<tag>{literal([codec.argument, codec.json])}){inside}(?:{sep})", re.S)
        self.uncall = re.compile(f"(?:{close}){re.escape(codec.call)}(?:{sep})")
        enders = [codec.call, codec.section] if ids else []
        self.enders = {
            tag: re.compile(f"(?:{close})({literal([tag, *enders])})(?:{sep})") for tag in (codec.argument, codec.json)
        }
        self.bracket = re.compile(f"{open}|{close}")
        self.first = re.compile("[" + "".join(sorted({re.escape(text[0]) for text in (*self.open, *self.close)})) + "]")
        self.closers = {
            tag: [f"{c}{name}{s}" for c in self.close for name in (tag, *enders) for s in self.sep]
            for tag in (codec.argument, codec.json)
        }

    def reader(self, sink: Sink) -> Reader:
        return _XtmlReader(sink, self)


class _XtmlReader(Reader):
    """Reads one call."""

    __slots__ = ("held", "key", "name", "spec", "step", "stray", "tag", "text", "whole", "writer")

    def __init__(self, sink: Sink, spec: _Tags) -> None:
        super().__init__(sink)
        self.spec = spec
        self.unsafe = spec.first
        self.step = self._open
        self.writer = ObjectWriter()
        self.name = ""
        self.key = self.tag = ""
        self.text = False
        """The value that is open: its key, its tag, and whether it's passed on as it comes."""
        self.whole = ""
        """The arguments, if they came as one JSON object."""
        self.held: list[str] = []
        self.stray = False
        """There was text that has no place here, since the last element: it has been noted."""

    @property
    def streams(self) -> bool:
        return self.step == self._value and self.text

    @property
    def verbatim(self) -> bool:
        return bool(self.step == self._value)

    def _open(self, text: str, at: int, final: bool) -> int:
        spec = self.spec
        match = spec.call.match(text, at)
        if match:
            name = _attributes(self.sink.expand(match["attributes"])).get("tool", "")
            if not name:
                return self.fail(at, "a call without a name")
            self.name = name
            self.named = True
            self.sink.call_start(match.end(), name)
            self.step = self._between
            return match.end()
        if len(text) - at < _TAG_LIMIT and self._unended(text, at):
            return -1
        return self.expected(at, "a call's tag")

    def _unended(self, text: str, at: int) -> bool:
        """Whether a tag that begins at `at` may still come to its end."""
        start = next((len(o) for o in (*self.spec.open, *self.spec.close) if text.startswith(o, at)), 0)
        if not start:
            return any(o.startswith(text[at:]) for o in (*self.spec.open, *self.spec.close))
        other = self.spec.bracket.search(text, at + start)
        return other is None and not any(text.find(s, at + start) >= 0 for s in self.spec.sep)

    def _between(self, text: str, at: int, final: bool) -> int:
        """In the call, outside its arguments."""
        spec = self.spec
        if match := spec.item.match(text, at):
            return self._begin_value(match)
        if match := spec.uncall.match(text, at):
            self.sink.call_arguments(match.end(), self.tail())
            self.sink.call_end(match.end())
            self.done = True
            return match.end()
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:
            self.sink.note("missing_closer", at, "the call isn't closed")
            self.sink.call_arguments(at, self.tail())
            self.sink.call_end(at)
            self.done = True
            return at
        if marker < 0 or (len(text) - at < _TAG_LIMIT and self._unended(text, at)):
            return -1
        return self._noise(text, at)

    def _noise(self, text: str, at: int) -> int:
        """Text where only elements may stand: up to what may begin the next one, or a marker."""
        found = self.spec.first.search(text, at + 1)
        stop = self.sink.markers.find(text, at + 1, found.start() if found else len(text))
        if not self.stray:
            self.stray = True
            self.sink.note("stray_text", at, "no place for it in a call")
        self.sink.call_arguments(stop, "")
        return stop

    def _begin_value(self, match: re.Match[str]) -> int:
        given = _attributes(self.sink.expand(match["attributes"]))
        self.stray = False
        self.tag, self.key = match["tag"], given.get("key", "")
        whole = self.tag == self.spec.codec.json
        kind = "object" if whole else given.get("type", "")
        self.text = not whole and kind not in ("number", "boolean", "null", "object", "array")
        self.held = []
        if self.whole:
            return self.fail(match.start(), "arguments behind a JSON object that holds all of them")
        opening = ""
        if not whole:
            opening = self.writer.key(self.key) + ('"' if self.text else "")
            self.sink.parameter(match.end(), self.name, self.key)  # its type is written here: this says where it begins
        self.sink.call_arguments(match.end(), opening)
        self.step = self._value
        return match.end()

    def _value(self, text: str, at: int, final: bool) -> int:
        stop = at
        while found := self.spec.first.search(text, stop):
            stop = found.start()
            ender = self.spec.enders[self.tag].match(text, stop)
            if ender:
                self._take(text, at, stop)
                return self._end_value(ender, stop)
            if not final and partial(text, stop, self.spec.closers[self.tag]):
                self._take(text, at, stop)
                return stop if stop > at else -1
            stop += 1
        self._take(text, at, len(text))
        return len(text)

    def _take(self, text: str, start: int, stop: int) -> None:
        if start == stop:
            return
        piece = self.sink.expand(text[start:stop])
        if not self.text:
            self.held.append(piece)
        self.sink.call_arguments(stop, escape(piece) if self.text else "")

    def _end_value(self, ender: re.Match[str], at: int) -> int:
        tag, key, text, value = self.tag, self.key, self.text, "".join(self.held)
        own = ender[1] == tag
        stop = ender.end() if own else at
        if not own:
            self.sink.note("missing_closer", at, f"the {tag} {key!r} isn't closed")
        self.step = self._between
        self.key, self.tag, self.text, self.held = "", "", False, []
        if text:
            self.sink.call_arguments(stop, '"')
            return stop
        if tag == self.spec.codec.argument:
            sound = is_json(value.strip())
            if not sound:
                self.sink.note("type_mismatch", at, f"the value of {key!r} is no JSON: it stays text")
            json = value.strip() if sound else json_string(value)
            self.sink.value_end(at, json)
            self.sink.call_arguments(stop, json)
            return stop
        if self.writer.keys or not is_json_object(value.strip()):
            return self.expected(at, "a JSON object as arguments")
        self.whole = value.strip()
        self.sink.call_arguments(stop, value.strip())
        return stop

    # What is remembered

    exact: ClassVar[bool] = True
    forgets: ClassVar[bool] = True

    @property
    def gathers(self) -> bool:
        return bool(self.step == self._value) and not self.text

    def place(self) -> Hashable | None:
        if self.done or self.whole or self.tag == self.spec.codec.json:
            return None
        return self.spec, self.step.__name__, self.tag, self.text, self.named, self.stray, bool(self.writer.keys)

    def resume(self, place: Any) -> None:
        _, step, self.tag, self.text, self.named, self.stray, _ = place
        self.step = getattr(self, step)
        name, begun, text = self.sink.missed(self.gathers)
        self.name = name or self.name
        self.writer.keys += len(begun)
        if begun or not self.tag:
            self.key, self.held = begun[-1][0] if self.tag else "", []
        if text:
            self.held.append(text)

    def whole_value(self, tail: str) -> str | None:
        value = "".join([*self.held, tail]).strip()
        return value if is_json(value) else None

    def finish(self) -> Outcome:
        if not self.named:
            return "nothing"
        return "complete" if self.step == self._between else "malformed"

    def tail(self) -> str:
        return "" if self.whole else self.writer.close()


def _attributes(text: str) -> dict[str, str]:
    """The attributes of a tag, in any order."""
    return {key: _unescaped(value) for key, value in _ATTRIBUTE.findall(text)}
