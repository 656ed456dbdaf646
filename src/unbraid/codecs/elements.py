"""Calls written as elements: an argument is an element of its name, and what is in it nests.

    <invoke name="plan">
    <days><item>1</item><item>2</item></days><note>a<b</note>
    </invoke>                                                          (every tag with the format's own sign before it)

Only a tag that carries the sign is one, so any other text stands for itself. What an element is follows from the schema: text,
typed; children by their names as an object; children in order as an array. Without a schema, text is a string and children
are an object. Names that come again are a list, text between children is the key `$text`.

A parameter that can't hold children is raw text up to its own closing tag and streams; anything else waits for its end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from unbraid.codecs.base import (
    HEADER_LIMIT,
    Inexpressible,
    Number,
    ObjectWriter,
    Outcome,
    Reader,
    Sink,
    WrittenCall,
    by_spelling,
    escape,
    json_string,
    literal,
    partial,
)
from unbraid.codecs.tagged_values import beginnings
from unbraid.errors import SchemaError
from unbraid.grammar.raw_values import raw_value, text_and_rest, typed_value
from unbraid.grammar.schemas import definitions_of, properties, resolve, unfoldable
from unbraid.grammar.tree import Node, Repeat, choice, optional, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.schema import MAX_DEPTH, UNKNOWN, Type, coerce
from unbraid.search import SURROGATES
from unbraid.table import Piece, Spelling, spelled

_CONTAINERS = frozenset(("object", "array"))
_BLANKS = r"[ \t]{0,8}"
_INSIDE = rf"[^<>\n\ud800-\udfff]{{0,{HEADER_LIMIT}}}"
_WHOLE = f"(?={_INSIDE}>)"
"""What isn't waited for in pieces is no tag in one piece either: one with a newline in it, or a very long one."""
_TAG_NAME = r"[^<>/\s\ud800-\udfff][^<>\n\ud800-\udfff]{0,511}?"
_NAME = re.compile(r"[^<>/\s\ud800-\udfff](?:[^<>\n\ud800-\udfff]{0,510}[^<>\s\ud800-\udfff])?")


@dataclass(frozen=True, slots=True)
class Elements:
    """`sign`: what stands before every tag. `call`: the element that holds a call, its name in the attribute `name`.

    `item`: the name that the template gives to an array's items; any other counts as well.
    """

    sign: Spelling
    call: str = "invoke"
    item: str = "item"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return ((*self.sign, f"<{self.call}"), (*self.sign, f" <{self.call}"))

    def spellings(self) -> Iterable[Spelling]:
        return (self.sign,)

    def compile(self, alphabet: Any) -> _Elements:
        return _Elements(self, alphabet)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call = calls[0]
        out: list[Piece] = [*self.sign, f'<{self.call} name="{call.name}">']
        for key, _, json_text in call.items():
            out += self._written(key, by_spelling(json_text))
        return (*out, *self.sign, f"</{self.call}>")

    def _written(self, key: str, value: Any) -> list[Piece]:
        if not _NAME.fullmatch(key):
            raise Inexpressible(f"{key!r} can't be the name of an element")
        inside: list[Piece] = []
        if isinstance(value, Mapping):
            for name, each in value.items():
                inside += self._written(name, each)
        elif isinstance(value, list):
            for each in value:
                inside += self._written(self.item, each)
        elif isinstance(value, str):
            inside = [value]
        else:
            inside = [value.text if isinstance(value, Number) else json.dumps(value)]
        return [*self.sign, f"<{key}>", *inside, *self.sign, f"</{key}>"]

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        unfoldable(schema)
        parts = self._children(schema, ())
        return sequence(
            exactly(*self.sign, f'<{self.call} name="{name}">'), *parts, exactly(*self.sign, f"</{self.call}>")
        )

    def _children(self, schema: Mapping[str, Any], on_the_way: tuple[str, ...]) -> list[Node]:
        elements = [(self._element(key, part, on_the_way), required) for key, part, required in properties(schema)]
        return [element if required else optional(element) for element, required in elements]

    def _element(self, key: str, schema: Mapping[str, Any], on_the_way: tuple[str, ...]) -> Node:
        """One element: children where the schema says which, else text, or JSON as text."""
        if not _NAME.fullmatch(key):
            raise SchemaError("", f"{key!r} can't be the name of an element")
        if reference := schema.get("$ref"):
            if reference in on_the_way:
                raise SchemaError("/$ref", "a recursive schema can't be enforced in this format's elements")
            target = {**schema, **resolve(reference, schema, "/$ref")}
            if target.get("$ref") == reference:
                del target["$ref"]
            return self._element(key, target, (*on_the_way, reference))
        opening, close = exactly(*self.sign, f"<{key}>"), (*self.sign, f"</{key}>")
        if schema.get("type") == "object" and schema.get("properties"):
            return sequence(opening, *self._children(schema, on_the_way), exactly(*close))
        if schema.get("type") == "array" and isinstance(items := schema.get("items"), Mapping):
            item = self._element(self.item, {**definitions_of(schema), **items}, on_the_way)
            return sequence(opening, Repeat(item, schema.get("minItems", 0), schema.get("maxItems")), exactly(*close))
        text, other = text_and_rest(schema)
        options = [] if text is None else [sequence(opening, raw_value(text, close, (spelled(self.sign),)))]
        if other is not None:
            options.append(sequence(opening, typed_value(other), exactly(*close)))
        return choice(options)


class _Elements:
    """`Elements` for an alphabet."""

    def __init__(self, codec: Elements, alphabet: Any) -> None:
        self.codec = codec
        self.signs = alphabet.spell([codec.sign])
        self.sign = re.compile(literal(self.signs))
        self.longest = max(map(len, self.signs))
        name = r"""\s+name\s*=\s*(?:"([^"<>]*)"|'([^'<>]*)'|([^"'<>\s]*))\s*"""
        self.call = re.compile(rf"(?:{literal(self.signs)}){_BLANKS}<{_WHOLE}{re.escape(codec.call)}{name}>")
        self.head = re.compile(rf"(?:{literal(self.signs)}){_BLANKS}<{re.escape(codec.call)}")
        self.tag = re.compile(rf"{_BLANKS}<(/?){_WHOLE}({_TAG_NAME})\s*>")
        self.half = re.compile(rf"{_BLANKS}(?:</?{_INSIDE})?")
        firsts = "".join(sorted({re.escape(text[0]) for text in self.signs}))
        self.unsafe = re.compile(f"[{firsts}{SURROGATES}]")

    def reader(self, sink: Sink) -> Reader:
        return _ElementReader(sink, self)


@dataclass(slots=True)
class _Member:
    """What stands under one name: a list if the name came more than once."""

    values: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    """The same, each read as an item of the array that the schema wants under this name."""

    def json(self) -> str:
        return self.values[0] if len(self.values) == 1 else f"[{', '.join(self.items)}]"


@dataclass(slots=True)
class _Element:
    """An open element that may have children."""

    name: str
    type: Type
    texts: list[str] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)
    """Its text, cut where a child stands."""
    members: dict[str, _Member] = field(default_factory=dict)
    ordered: list[str] = field(default_factory=list)
    array: bool = False

    def end_run(self) -> None:
        """A tag comes: what is between two tags belongs together."""
        self.runs.append("".join(self.texts))
        self.texts.clear()

    def child(self, name: str, item: str) -> Type:
        """What the schema says of a child."""
        if not self.members and not self.ordered:
            kinds = self.type.kinds
            self.array = "array" in kinds and ("object" not in kinds or name == item)
        return self.type.item(len(self.ordered)) if self.array else self.type.property(name)

    def add(self, name: str, value: str, item: str) -> None:
        if self.array:
            self.ordered.append(value)
            return
        member = self.members.setdefault(name, _Member())
        member.values.append(value)
        member.items.append(item)


class _ElementReader(Reader):
    """Reads `<invoke name="N"> elements </invoke>`."""

    __slots__ = (
        "begins",
        "emitted",
        "function",
        "key",
        "open",
        "pending",
        "spec",
        "step",
        "stream",
        "texts",
        "type",
        "writer",
    )

    def __init__(self, sink: Sink, spec: _Elements) -> None:
        super().__init__(sink)
        self.spec = spec
        self.unsafe = spec.unsafe
        self.step: Callable[[str, int, bool], int] = self._begin
        self.function = ""
        self.writer = ObjectWriter()
        self.pending = _Element("", UNKNOWN)
        """Parameters that are whole but not written: their names may come again."""
        self.emitted: set[str] = set()
        self.open: list[_Element] = []
        self.key = ""
        """The element that is raw text, its type, its text so far, and what it may begin with if it isn't a string."""
        self.type = UNKNOWN
        self.texts: list[str] = []
        self.begins: frozenset[str] = frozenset()
        self.stream = False

    @property
    def streams(self) -> bool:
        return self.stream and self.step == self._raw

    @property
    def verbatim(self) -> bool:
        return self.step not in (self._begin, self._body)

    # Tags

    def _sign(self, text: str, at: int, final: bool) -> tuple[int, int]:
        """Where the next sign begins and ends; its end is -1 if it may only have begun, 0 if there is none."""
        if match := self.spec.sign.search(text, at):
            return match.start(), match.end()
        for start in range(max(at, len(text) - self.spec.longest + 1), len(text)):
            if not final and partial(text, start, self.spec.signs):
                return start, -1
        return len(text), 0

    def _tag(self, text: str, at: int, final: bool) -> re.Match[str] | int:
        """The tag behind a sign that ends at `at`; 0: there is none; -1: it can't be said yet."""
        if match := self.spec.tag.match(text, at):
            return match
        return -1 if not final and self.spec.half.fullmatch(text, at) else 0

    def _begin(self, text: str, at: int, final: bool) -> int:
        if match := self.spec.call.match(text, at):
            self.function = self.sink.expand(next(group for group in match.groups() if group is not None)).strip()
            if not self.function:
                return self.fail(at, "a call without a name")
            self.named = True
            self.sink.call_start(match.end(), self.function)
            self.step = self._body
            return match.end()
        start, stop = self._sign(text, at, final)
        if start == at and (stop < 0 or (stop and not final and self.spec.half.fullmatch(text, stop))):
            return -1
        if self.spec.head.match(text, at):
            return self.fail(at, "a call without a name")
        return self.no_body(text, at, final, f"<{self.spec.codec.call} name=...>")

    def _body(self, text: str, at: int, final: bool) -> int:
        """Between the parameters."""
        start, stop = self._sign(text, at, final)
        if start > at or not stop:
            return self.expected(at, "an element")
        tag = self._tag(text, stop, final) if stop > 0 else -1
        if tag == -1:
            return -1
        if isinstance(tag, int):
            return self.expected(at, "an element")
        if tag[1]:
            return self._end(tag) if tag[2].strip() == self.spec.codec.call else self.expected(at, "the call's end")
        return self._enter(
            tag.end(), tag[2].strip(), self.sink.tools.parameter(self.function, self.sink.expand(tag[2].strip()))
        )

    def _end(self, tag: re.Match[str]) -> int:
        self._flush(tag.end())
        self.sink.call_arguments(tag.end(), self.writer.close())
        self.sink.call_end(tag.end())
        self.done = True
        return tag.end()

    def _enter(self, stop: int, name: str, type: Type) -> int:
        """An element opens."""
        if len(self.open) >= MAX_DEPTH:
            return self.fail(stop, f"nested deeper than {MAX_DEPTH}")
        if not self.open and name in self.emitted:
            return self.fail(stop, f"the parameter {name!r} comes twice")
        if not type.known or type.kinds & _CONTAINERS:
            self.open.append(_Element(name, type))
            self.step = self._mixed
            return stop
        self.key, self.type, self.texts = name, type, []
        self.stream = False
        top = not self.open and name not in self.pending.members and "string" in type.kinds
        self.begins = beginnings(type) if top else frozenset()
        if top and type.is_text:
            self._stream(stop)
        self.step = self._raw
        return stop

    # Elements that are text

    def _raw(self, text: str, at: int, final: bool) -> int:
        """Text up to the element's own closing tag, other tags included."""
        begin = at
        while True:
            start, stop = self._sign(text, at, final)
            tag = self._tag(text, stop, final) if stop > 0 else stop
            if tag == -1:
                self._take(text, begin, start)
                return start if start > begin else -1
            if not stop:
                self._take(text, begin, len(text))
                return len(text)
            if not isinstance(tag, int) and tag[1] and tag[2].strip() == self.key:
                self._take(text, begin, start)
                return self._close_raw(tag.end())
            at = stop

    def _take(self, text: str, start: int, stop: int) -> None:
        if start == stop:
            return
        piece = self.sink.expand(text[start:stop])
        if self.stream:
            self.sink.call_arguments(stop, escape(piece))
            return
        self.texts.append(piece)
        if self.begins and not piece.isspace():
            first, self.begins = piece.lstrip()[0] not in self.begins, frozenset()
            if first:  # no other type begins like this: it is text
                self._stream(stop)

    def _stream(self, stop: int) -> None:
        """The parameter is a string for certain: it is written as it comes."""
        self._flush(stop)
        self.stream = True
        self.emitted.add(self.key)
        self.sink.call_arguments(stop, self.writer.key(self.key) + '"' + escape("".join(self.texts)))
        self.texts = []

    def _close_raw(self, stop: int) -> int:
        if self.stream:
            self.stream = False
            self.sink.call_arguments(stop, '"')
            self.step = self._body
            return stop
        value = self._scalar(stop, "".join(self.texts), self.type, self.key)
        return self._closed(stop, self.key, value, value)

    def _scalar(self, stop: int, text: str, type: Type, name: str) -> str:
        result = coerce(text, type)
        if not result.fits:
            self.note_mismatch(stop, name)
        return result.json

    # Elements that may have children

    def _mixed(self, text: str, at: int, final: bool) -> int:
        element = self.open[-1]
        start, stop = self._sign(text, at, final)
        if start > at:
            element.texts.append(self.sink.expand(text[at:start]))
            return start
        tag = self._tag(text, stop, final) if stop > 0 else -1
        if tag == -1:
            return -1
        if isinstance(tag, int):
            self.sink.note("odd_tag", at, "the sign of a tag without a tag is text")
            element.texts.append(self.sink.expand(text[at:stop]))
            return stop
        name = tag[2].strip()
        element.end_run()
        if not tag[1]:
            return self._enter(tag.end(), name, element.child(name, self.spec.codec.item))
        if name != element.name:
            return self.expected(at, f"</{element.name}>")
        self.open.pop()
        return self._close(tag.end(), element)

    def _close(self, stop: int, element: _Element) -> int:
        text = "".join(element.runs)
        kinds = element.type.kinds
        if element.ordered or element.members:
            value = item = self._container(element, text)
        elif not text.strip() and element.type.known and "string" not in kinds:
            value = item = "{}" if element.type.container() == "object" else "[]"
        else:
            value = item = self._scalar(stop, text, element.type, element.name)
            if "array" in kinds:
                item = coerce(text, element.type.item(0)).json
        return self._closed(stop, element.name, value, item)

    def _container(self, element: _Element, text: str) -> str:
        if element.array and not text.strip():
            return f"[{', '.join(element.ordered)}]"
        members = {name: member.json() for name, member in element.members.items()}
        if element.ordered:
            members[self.spec.codec.item] = f"[{', '.join(element.ordered)}]"
        if text.strip():
            key = "$text"
            while key in members:
                key = "$" + key
            members[key] = json_string("".join(run for run in element.runs if run.strip()))
        return "{" + ", ".join(f"{json_string(name)}: {value}" for name, value in members.items()) + "}"

    def _closed(self, stop: int, name: str, value: str, item: str) -> int:
        """An element is whole: it belongs to the one around it, or it is a parameter."""
        (self.open[-1] if self.open else self.pending).add(name, value, item)
        self.step = self._mixed if self.open else self._body
        return stop

    def _flush(self, stop: int) -> None:
        """Write the parameters that wait."""
        for name, member in self.pending.members.items():
            self.emitted.add(name)
            self.sink.call_arguments(stop, self.writer.key(self.sink.expand(name)) + member.json())
        self.pending.members.clear()

    def finish(self) -> Outcome:
        return "malformed" if self.named else "blank"
