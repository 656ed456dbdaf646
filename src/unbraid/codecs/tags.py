"""Calls written as tags around raw text: one tag for the call, one for each parameter.

    <function=get_weather>            <invoke name="get_weather">           get_weather
    <parameter=city>                  <parameter name="city">Oslo</par...   <arg_key>city</arg_key>
    Oslo                              </invoke>                             <arg_value>Oslo</arg_value>
    </parameter>
    </function>
    XmlParameters, frame="\\n"         XmlParameters, quoted=True            KeyValueTags

Nothing in a value is escaped, so its end is a rule, and the rule is the table's: see `XmlParameters.ends`. A value's type comes
from the tool's schema (or from an attribute). A string streams as it comes; anything else waits for its end, because what it
is depends on all of it.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from unbraid.codecs.base import (
    HEADER_LIMIT,
    ObjectWriter,
    Outcome,
    Reach,
    Reader,
    Sink,
    ValueReader,
    WrittenCall,
    escape,
    json_string,
    literal,
    partial,
)
from unbraid.codecs.json import Scanner
from unbraid.errors import SchemaError
from unbraid.grammar.schemas import properties
from unbraid.grammar.tree import Json, Node, Regex, Until, choice, optional, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.native import mypyc_attr
from unbraid.schema import Coerced, Kind, Tools, Type, coerce, is_json, is_json_object
from unbraid.search import SURROGATES, Search
from unbraid.table import ANY, Piece, Spelling, spelled

# A name holds no special token. The second is what could still become a name and the `>` behind it: the two must agree.
_NAME = (
    r"""\s*(?:"(?P<double>[^"\n\ud800-\udfff]*)"|'(?P<single>[^'\n\ud800-\udfff]*)'"""
    r"""|(?P<bare>[^"'\s>\ud800-\udfff][^>\n\ud800-\udfff]*?))\s*"""
)
_HALF_NAME = re.compile(
    r"""\s*(?:"[^"\n\ud800-\udfff]*(?:"[^>\ud800-\udfff]*)?|'[^'\n\ud800-\udfff]*(?:'[^>\ud800-\udfff]*)?"""
    r"""|[^"'\s>\ud800-\udfff][^>\n\ud800-\udfff]*\s*)?"""
)
_SHORT_NAME = r"[^<>\n\ud800-\udfff]{1,64}"
_SPACE = re.compile(r"\s*")
# The characters with which a value of each type may begin: one that begins otherwise is text, and can stream at once.
_BEGINS = {
    "object": "{", "array": "[(", "integer": "+-0123456789", "number": "+-.0123456789", "boolean": "tTfF01", "null": "nN",
}  # fmt: skip
_ANY_JSON = frozenset("{[-0123456789tfn")
_CDATA, _UNCDATA = "<![CDATA[", "]]>"
_UNCDATA_SEARCH = Search([_UNCDATA])


def _beginnings(type: Type) -> frozenset[str]:
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
    """A value's text as JSON. `attribute`, `unquotes`: see `_Value` and `_TagReader`."""
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


def _value_reach(until: Callable[[str, int], int], closing: re.Pattern[str], text: str, at: int) -> Reach:
    """How far a value's text goes, and where ends what closes it."""
    stop = until(text, at)
    found = closing.match(text, stop) if stop < len(text) else None
    return stop, found.end() if found else stop, 0


def _first_reach(
    begins: frozenset[str], not_at: Search | None, reach: Callable[[str, int], Reach], text: str, at: int
) -> Reach:
    """The same at its beginning. `begins`: if not empty, with one of these; `not_at`: not with one of these tags."""
    if (begins and text[at : at + 1] not in begins) or (not_at is not None and not_at.stands(text, at)):
        return at, at, 0
    return reach(text, at)


class _TagReader(Reader):
    """What the readers of both syntaxes share: writing values into the arguments' object."""

    __slots__ = ("added", "given", "name", "reached", "unquotes", "value", "whole", "wrapped", "writer")

    def __init__(self, sink: Sink) -> None:
        super().__init__(sink)
        self.added: list[str] = []
        """Pieces of the arguments that the sink hasn't been told: they are one event, for text that comes at once."""
        self.reached = -1
        """The text up to here gave them; -1: there are none."""
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
        begins = _beginnings(kind) if undecided else frozenset()
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
            self.sink.note(
                "type_mismatch",
                self.reached,  # what was added hasn't been told: it lies there, not where the sink stands
                f"the value of {value.key!r} isn't of the type that the tool's schema wants",
            )

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


@dataclass(frozen=True, slots=True)
class XmlParameters:
    """A tag with the function's name, in it a tag for each parameter with its value as raw text. `call=()`: a header gave the name, and
    there are only the parameters.

    The tags are given by what stands before the name and what closes the element; between the two stand the name, in quotes of
    either kind or bare, and `>`. `frame`: the newline that the format puts directly inside a parameter on both sides; `ANY`: white space
    there is never part of the value. `cdata`: a value may stand in `<![CDATA[...]]>`, and is then all that's between the brackets.
    `attribute`: the parameter's attribute that says whether the value is a string (`string="true"`) or JSON. `wrappers`: names
    of a parameter that models invent to hold all arguments as one object.

    `ends`: which closing tag ends a value. `followed`: only one that, after white space, is followed by the next parameter, the
    function's end or the end of the turn, so that a value may contain the tag. `first`: the first one. A framed value
    (its opening tag is followed by a newline) always ends by a closing tag at the start of a line that is `followed`.
    """

    call: Spelling = ("<function=",)
    uncall: Spelling = ("</function>",)
    parameter: Spelling = ("<parameter=",)
    unparameter: Spelling = ("</parameter>",)
    frame: str = ""
    cdata: bool = False
    quoted: bool = False
    attribute: str = ""
    ends: Literal["first", "followed"] = "followed"
    wrappers: tuple[str, ...] = ()
    untyped: Literal["string", "json"] = "string"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return tuple(_with_blanks(self.call))

    def spellings(self) -> Iterable[Spelling]:
        return tuple(tag for tag in (self.call, self.uncall, self.parameter, self.unparameter) if tag)

    def compile(self, alphabet: Any) -> _Xml:
        return _Xml(self, alphabet, "tokens", _Xml(self, alphabet, "text", None))

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call = calls[0]
        out: list[Piece] = [*self.call, f"{self._named(call.name)}>\n"] if self.call else []
        for key, value, json_text in call.items():
            text = self._guarded(value) if json_text.startswith('"') else json_text
            kind = (
                f' {self.attribute}="{"true" if json_text.startswith(chr(34)) else "false"}"' if self.attribute else ""
            )
            out += [
                *self.parameter,
                f"{self._named(key)}{kind}>{self._inside}{text}{self._inside}",
                *self.unparameter,
                "\n",
            ]
        return (*out, *self.uncall)

    def _named(self, name: str) -> str:
        """A name as it stands in its tag: in quotes that it doesn't hold."""
        quote = "" if not self.quoted else "'" if '"' in name and "'" not in name else '"'
        return f"{quote}{name}{quote}"

    @property
    def _inside(self) -> str:
        """What is written directly inside a parameter."""
        return "" if self.frame == ANY else self.frame

    def _guarded(self, text: str) -> str:
        """A text that can't be told from markup or framing, in brackets if the syntax has them."""
        if not self.cdata or _UNCDATA in text or (text == text.strip() and "<" not in text):
            return text
        return f"{_CDATA}{text}{_UNCDATA}"

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        parts: list[Node] = [exactly(*self.call, f"{self._named(name)}>\n")] if self.call else []
        for key, part, required in properties(schema):
            item = self._parameter_grammar(self._named(key), part)
            parts.append(item if required else optional(item))
        return sequence(*parts, exactly(*self.uncall))

    def _parameter_grammar(self, key: str, schema: Mapping[str, Any]) -> Node:
        """One parameter: as text if it may be a string, as JSON otherwise."""
        close = (self._inside, *self.unparameter, "\n")
        options: list[Node] = []
        text, other = split(schema)
        if text is not None:
            kind = f' {self.attribute}="true"' if self.attribute else ""
            opening = exactly(*self.parameter, f"{key}{kind}>")
            options.append(sequence(opening, raw_value(text, close, self._forbidden(), self._inside)))
        if other is not None:
            kind = f' {self.attribute}="false"' if self.attribute else ""
            options.append(
                sequence(
                    exactly(*self.parameter, f"{key}{kind}>{self._inside}"),
                    typed_value(
                        other, () if self._inside else self._forbidden()
                    ),  # JSON has no line that begins with a tag
                    exactly(*close),
                )
            )
        return choice(options)

    def _forbidden(self) -> tuple[str, ...]:
        """What may not stand in a raw value, because the reader could end it there."""
        tags = (self.unparameter, self.uncall, self.parameter, self.call)
        texts = [spelled(found) for tag in tags if len(tag) == 1 for found in _with_blanks(tag)]
        return tuple(f"{self._inside}{text}" for text in texts)


def split(schema: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """A parameter's schema as the part that is text and the part that is other JSON; `None`: there is no such part.

    What the reader takes for another type must not be written as text: `null` of a nullable string is the null.
    """
    kind = Tools.resolve(
        [{"name": "t", "parameters": {**_definitions(schema), "properties": {"v": dict(schema)}}}]
    ).parameter("t", "v")
    if kind.is_text:
        return dict(schema), None
    if "string" not in kind.kinds:
        return None, dict(schema)
    kinds = sorted(kind.kinds - {"string"})
    text = {
        key: value for key, value in schema.items() if key in ("enum", "pattern", "const", "minLength", "maxLength")
    }
    if "enum" in text:
        text["enum"] = [value for value in text["enum"] if isinstance(value, str)]
    if kinds == ["null"]:
        return {"type": "string", "not_null": True, **text}, {"type": "null"}
    raise SchemaError(
        "", f"a value that may be text or {' or '.join(kinds)} can't be told apart in this format: choose one type"
    )


def _definitions(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {key: schema[key] for key in ("$defs", "definitions") if key in schema}


def raw_value(schema: Mapping[str, Any], close: Spelling, forbidden: tuple[str, ...], head: str = "") -> Node:
    """A string as raw text with its closing tag, and what is written in front of it."""
    options = [schema["const"]] if "const" in schema else schema.get("enum")
    if options is not None:
        texts = choice(exactly(option) for option in options if isinstance(option, str))
        return sequence(exactly(head), texts, exactly(*close))
    for keyword in ("minLength", "maxLength", "format", "anyOf", "oneOf", "allOf", "$ref"):
        if keyword in schema:
            raise SchemaError(f"/{keyword}", f"{keyword!r} of a string can't be enforced where strings are written raw")
    pattern = schema.get("pattern")
    return Until(
        close, forbidden, anchored(pattern) if pattern is not None else None, bool(schema.get("not_null")), head
    )


_LIMITS = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "enum", "const"))
_NUMBER = Regex(r"-?(0|[1-9][0-9]{0,15})(\.[0-9]{1,16})?([eE][+-]?[0-9]{1,2})?")
"""One that no reader finds too large: beyond a double's range it would be read as text."""


def typed_value(schema: Mapping[str, Any], without: tuple[str, ...] = ()) -> Node:
    """A value that isn't text, as JSON. `without`: what its strings can't spell."""
    kinds = schema.get("type")
    if isinstance(kinds, list) and not schema.keys() & {"anyOf", "oneOf", "allOf", "$ref", "enum", "const"}:
        return choice([typed_value({**schema, "type": kind}, without) for kind in kinds])
    if kinds == "number" and not schema.keys() & (_LIMITS | {"anyOf", "oneOf", "allOf", "$ref"}):
        return _NUMBER
    return Json(schema, without)


def anchored(pattern: str) -> str:
    """A JSON Schema pattern, which may match anywhere, as one that matches the whole."""
    start = pattern[1:] if pattern.startswith("^") else f"(?s:.*){pattern}"
    return start[:-1] if start.endswith("$") and not start.endswith("\\$") else f"{start}(?s:.*)"


def _with_blanks(tag: Spelling) -> list[Spelling]:
    """A tag of ordinary text with the blanks that models put into it, `< parameter =`, `</ parameter >`, or lose, `<paramname=`."""
    if len(tag) != 1 or not isinstance(tag[0], str):
        return [tag] if tag else []
    opening = "</" if tag[0].startswith("</") else "<"
    end = tag[0][-1]
    name = tag[0][len(opening) : -1]
    names = dict.fromkeys([name, name.replace(" ", ""), name.replace(" ", "Ġ")])  # the last: a blank never decoded
    return [(f"{opening}{before}{name}{after}{end}",) for name in names for before in ("", " ") for after in ("", " ")]


class _Xml:
    """`XmlParameters` for an alphabet."""

    def __init__(self, codec: XmlParameters, alphabet: Any, only: str, spelled_out: _Xml | None) -> None:
        self.codec = codec
        self.spelled_out = spelled_out
        """The same syntax spelled with ordinary tokens: for a call that was opened so."""

        def spell(tag: Spelling) -> tuple[str, ...]:
            return tuple(alphabet.spell(_with_blanks(tag), only=only))

        self.calls, self.uncalls = spell(codec.call), spell(codec.uncall)
        self.parameters, self.unparameters = spell(codec.parameter), spell(codec.unparameter)
        self.sure = len(codec.parameter) > 1
        """The tags hold a special token: a parameter's tag in a value can only mean that the value's closer is missing."""
        attribute = (
            rf"""(?:{re.escape(codec.attribute)}\s*=\s*["']?(?P<attribute>true|false)["']?\s*)?"""
            if codec.attribute
            else ""
        )
        self.call = re.compile(rf"(?:{literal(self.calls) or '(?!)'}){_NAME}(?P<empty>/)?>")
        self.parameter = re.compile(rf"(?:{literal(self.parameters)}){_NAME}{attribute}>")
        self.uncall = re.compile(literal(self.uncalls) or "(?!)")
        self.unparameter = re.compile(literal(self.unparameters))
        self.closers = [*self.unparameters, *self.uncalls]
        self.openers = (*self.parameters, *self.uncalls, *self.calls)
        """What may follow a closed parameter; behind a call, another one."""
        opening, closing = literal(self.parameters), literal(self.unparameters)
        after = rf"(?:{opening}|{literal(self.uncalls) or '(?!)'})"
        then = rf"(?:(?:{opening}){_SHORT_NAME}>\n?|{after})"
        cut = r"<(?:/?[a-z]*\Z)?"
        self.opening = re.compile(rf"\s{{0,8}}(?:{literal(self.calls) or '(?!)'}){_SHORT_NAME}>\n?")
        """How a body mostly begins."""
        self.heads = {
            "open": re.compile(rf"{self.opening.pattern}|{_SHORT_NAME}>\n?"),
            "body": re.compile(rf"\s{{0,8}}{then}|{_SHORT_NAME}>\n?|\s{{1,8}}"),
            "value": re.compile(
                rf"\s{{0,8}}(?:(?:{closing})(?:\s{{0,8}}{after})?|{cut})|/?[a-z]{{1,20}}>(?:\s{{0,8}}{after})?"
            ),
            "text": re.compile(
                rf"\s{{0,8}}(?:(?:{closing})(?:\s{{0,8}}{then})?|{cut})|/?[a-z]{{1,20}}>(?:\s{{0,8}}{then})?"
            ),
        }
        """How what comes next is cut, by the reader's step, so that it may be known: the tags of a call and what of them is there. Behind a
        value that isn't `text` no further than up to the next name: what it comes to depends on the request, and so does what follows."""
        self.trims = codec.frame == ANY
        ends = sorted([*self.closers, *self.parameters], key=len, reverse=True)
        self.ends = Search(ends)
        """For what may end a value."""
        self.line_ends = Search([f"\n{tag}" for tag in ends])
        """For what may end a framed one: it begins a line."""

    def reader(self, sink: Sink) -> Reader:
        return _XmlReader(sink, self)

    def trimmed_until(self, text: str, at: int) -> int:
        """How far a value's text goes for certain where white space at its end isn't part of it."""
        return at + len(text[at : self.ends.find(text, at)].rstrip())


def _name(match: re.Match[str]) -> str:
    double, single, bare = match.group("double", "single", "bare")
    return str(double or single or bare or "").strip()


class _XmlReader(_TagReader):
    """Reads `<function=NAME> <parameter=KEY>VALUE</parameter> ... </function>`."""

    __slots__ = ("framed", "json", "spec", "start", "step")

    def __init__(self, sink: Sink, spec: _Xml) -> None:
        super().__init__(sink)
        self.spec = spec
        self.step = "open"
        self.framed = False
        self.start = False
        self.json: Scanner | None = None

    def begin(self) -> None:
        if not self.spec.codec.call:
            self.name = self.sink.called
            self.named = True
            self.sink.call_start(0, self.name)
            self.step = "body"

    @property
    def streams(self) -> bool:
        return self.step in ("value", "cdata") and not self.start and self.value is not None and self.value.verbatim

    def plain_until(self) -> Callable[[str, int], int] | None:
        if not self.streams:
            return None
        if self.step == "cdata":
            return _UNCDATA_SEARCH.find
        return self.spec.trimmed_until if self.spec.trims else self._ends.find

    def reach(self) -> Callable[[str, int], Reach] | None:
        value = self.value
        if value is None or self.step != "value" or self.private:
            return super().reach()
        until = self.spec.trimmed_until if self.spec.trims else self._ends.find
        reach = functools.partial(_value_reach, until, self.spec.heads["text" if value.verbatim else "value"])
        if not self.moves_on:
            return reach
        return functools.partial(
            _first_reach, value.begins, self.spec.ends if self.framed and self.start else None, reach
        )

    @property
    def moves_on(self) -> bool:
        return self.step == "value" and self.value is not None and (self.start or bool(self.value.begins))

    @property
    def head(self) -> re.Pattern[str] | None:
        return self.spec.heads.get("text" if self.streams else self.step)

    @property
    def _ends(self) -> Search:
        return self.spec.line_ends if self.framed else self.spec.ends

    def read(self, text: str, at: int, final: bool) -> int:
        self.waits_on_blank = False
        while not (self.done or self.empty or self.failed):
            if self.step in _BETWEEN and text[at : at + 1].isspace():
                at = self.skip_space(text, at)
            if at == len(text):
                break
            here = _XML_STEPS[self.step](self, text, at, final)
            if here < 0:
                break
            at = here
        self.hand_on()
        return at

    def _open(self, text: str, at: int, final: bool) -> int:
        other = self.spec.spelled_out
        if other and other.calls != self.spec.calls and text.startswith(other.calls, at):
            self.spec = other
        if text.startswith(self.spec.calls, at) and (stop := self._cut_short(text, at)):
            return stop
        if match := self.spec.call.match(text, at, at + HEADER_LIMIT):
            self.begin_call()
            self.name = self.sink.expand(_name(match))
            if not self.name:
                return self.fail(at, "a call without a name")
            self.named = True
            self.sink.call_start(match.end(), self.name)
            self.step = "body"
            if match.group("empty"):
                self.close_object(match.end())
                self.done = True
            return match.end()
        if self._half_tag(text, at, final, self.spec.calls):
            return -1
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:
            self.empty = True
            return at
        return -1 if marker < 0 else self.fail(at, f"expected {spelled(self.spec.codec.call)}")

    def _cut_short(self, text: str, at: int) -> int:
        """`</function>` before any `>` is a call whose tag lost its end. Returns where it ends, 0: it isn't one."""
        head = at + next(len(tag) for tag in self.spec.calls if text.startswith(tag, at))
        match = self.spec.uncall.search(text, head, at + HEADER_LIMIT)
        if not match or ">" in text[head : match.start()]:
            return 0
        self.name = self.sink.expand(text[head : match.start()]).strip().strip("\"'")
        if not self.name or re.search(r"[\s<]", self.name):
            return 0
        self.sink.note("cut_tag", at, f"{spelled(self.spec.codec.call)} without its end")
        self.named = True
        self.sink.call_start(match.start(), self.name)
        self.close_object(match.end())
        self.done = True
        return match.end()

    def _half_tag(self, text: str, at: int, final: bool, tags: Sequence[str]) -> bool:
        """Whether a tag may have begun at `at` whose end hasn't come."""
        if final or len(text) - at >= HEADER_LIMIT:
            return False
        if partial(text, at, tags):
            return True
        for tag in tags:
            if text.startswith(tag, at):
                start = at + len(tag)
                half = _HALF_NAME.match(text, start)
                stop = half.end() if half else start
                # What cuts the name short may have begun in it.
                begun = range(max(start, stop - max(map(len, self.spec.uncalls), default=0)), stop + 1)
                return stop == len(text) or any(partial(text, at, self.spec.uncalls) for at in begun)
        return False

    def _body(self, text: str, at: int, final: bool) -> int:
        spec = self.spec
        if match := spec.parameter.match(text, at, at + HEADER_LIMIT):
            self._begin_parameter(text, match)
            return match.end()
        if match := spec.uncall.match(text, at):
            self.close_object(match.end())
            self.done = True
            return match.end()
        if text[at] == "{" and not self.given:  # the arguments as one JSON object in place of parameters
            self.json = Scanner()
            self.step = "json"
            return at
        if not final and (
            self._half_tag(text, at, final, spec.parameters)
            or partial(text, at, spec.uncalls)
            or partial(text, at, spec.calls)
        ):
            return -1
        marker = self.sink.marker_at(text, at, final)
        if marker < 0:
            return -1
        if marker > 0 or text.startswith(spec.calls, at):
            if spec.codec.uncall:
                self.sink.note("missing_closer", at, f"{spelled(spec.codec.uncall)} is missing")
            self.close_object(at)
            self.done = True
            return at
        end = spelled(spec.codec.uncall) or "the end of the message"
        return self.fail(at, f"expected a parameter or {end}")

    def _begin_parameter(self, text: str, match: re.Match[str]) -> None:
        codec = self.spec.codec
        attribute = match.group("attribute") if codec.attribute else None
        untyped = "json" if codec.attribute and not attribute else codec.untyped
        self.open_value(
            match.end(), self.sink.expand(_name(match)), verbatim=None if attribute is None else attribute == "true", untyped=untyped,
            wrappers=codec.wrappers,
        )  # fmt: skip
        self.framed = False
        self.start = True
        self.step = "frame" if codec.frame or codec.cdata else "value"

    def _json_body(self, text: str, at: int, final: bool) -> int:
        scanner = self.json
        assert scanner is not None
        stop = scanner.scan(text, at)
        if stop > at:
            self.add(stop, scanner.repaired(text, at, stop, self.sink))
        if scanner.error:
            return self.fail(stop, scanner.error)
        if scanner.done:
            self.whole = True
            self.step = "closing"
        return stop if stop > at else -1

    def _closing(self, text: str, at: int, final: bool) -> int:
        """Behind a body that was one JSON object."""
        match = self.spec.uncall.match(text, at)
        if not match and not final and partial(text, at, self.spec.uncalls):
            return -1
        stop = match.end() if match else at
        self.hand_on()
        self.sink.call_end(stop)
        self.done = True
        return stop

    def _frame(self, text: str, at: int, final: bool) -> int:
        """Directly behind a parameter's tag: a newline there is the format's."""
        codec = self.spec.codec
        if codec.cdata:
            inside = self.skip_space(text, at)
            if inside == len(text) and not final:
                self.waits_on_blank = True
                return -1
            if text.startswith(_CDATA, inside):
                self.step, self.start = "cdata", False
                return inside + len(_CDATA)
            if not final and partial(text, inside, [_CDATA]):
                return -1
        if self.spec.trims:
            at = self.skip_space(text, at)
            if at < len(text):
                self.step = "value"
            return at
        self.step = "value"
        if codec.frame and text.startswith(codec.frame, at):
            self.framed = True
            return at + len(codec.frame)
        return at

    def _cdata(self, text: str, at: int, final: bool) -> int:
        """Between the brackets: nothing but their end has a meaning."""
        stop = _UNCDATA_SEARCH.find(text, at)
        self.take(text, at, stop)
        if text.startswith(_UNCDATA, stop):
            self.step = "uncdata"
            return stop + len(_UNCDATA)
        return stop if stop > at else -1

    def _uncdata(self, text: str, at: int, final: bool) -> int:
        """Behind the brackets: the parameter's closing tag."""
        match = self.spec.unparameter.match(text, at)
        if not match and not final and partial(text, at, self.spec.unparameters):
            return -1
        if not match:
            self.sink.note("missing_closer", at, f"{spelled(self.spec.codec.unparameter)} is missing")
        stop = match.end() if match else at
        self.close_value(at, stop)
        self.step = "body"
        return stop

    # Values

    def _value(self, text: str, at: int, final: bool) -> int:
        """Read on in a value; what can't be decided yet stays."""
        start = at
        if self.framed and self.start and self.spec.ends.stands(text, at):
            verdict, stop = self._line_ends(text, at, at, final)
            if verdict != "data":
                return self._settle(text, start, at, verdict, stop)
        ends = self._ends
        while (at := ends.find(text, at)) < len(text):
            if self.framed:
                verdict, stop = self._line_ends(text, at, at + 1, final)
            else:
                verdict, stop = self._tag_ends(text, at, final)
            if verdict != "data":
                return self._settle(text, start, at, verdict, stop)
            at += 1
        stop = self._trimmed(text, start, len(text))
        self.take(text, start, stop)
        self.start = self.start and start == stop
        if stop < len(text):
            self.waits_on_blank = not final
            return stop if stop > start else -1
        return stop

    def _trimmed(self, text: str, start: int, stop: int) -> int:
        """Where the value's text ends for now: white space at its end may not be part of it."""
        return start + len(text[start:stop].rstrip()) if self.spec.trims else stop

    def _settle(self, text: str, start: int, at: int, verdict: str, stop: int) -> int:
        """The value's text goes to `at`; there it ends or must wait."""
        at = self._trimmed(text, start, at)
        self.take(text, start, at)
        self.start = self.start and at == start
        if verdict == "wait":
            return at if at > start else -1
        if verdict == "missing":
            self.sink.note("missing_closer", at, f"{spelled(self.spec.codec.unparameter)} is missing")
        self.close_value(at, stop)
        self.step = "body"
        return stop

    def _line_ends(self, text: str, newline: int, at: int, final: bool) -> tuple[str, int]:
        """What a line that begins at `at` means for a framed value whose last newline stands at `newline`."""
        spec = self.spec
        if match := spec.unparameter.match(text, at):
            return self._followed(text, match.end(), final)
        if match := spec.uncall.match(text, at):
            verdict, _ = self._followed(text, match.end(), final, after_call=True)
            return ("missing", at) if verdict == "ends" else (verdict, at)
        if match := spec.parameter.match(text, at, at + HEADER_LIMIT):
            return ("missing", at) if self._expected(match) else ("data", at)
        if not final and (partial(text, at, spec.closers) or self._half_tag(text, at, final, spec.parameters)):
            return "wait", at
        return "data", at

    def _tag_ends(self, text: str, at: int, final: bool) -> tuple[str, int]:
        """What a tag in a value without frame means."""
        spec = self.spec
        if match := spec.unparameter.match(text, at):
            if spec.codec.ends == "first" or (spec.codec.frame and not spec.trims):
                return "ends", match.end()
            return self._followed(text, match.end(), final)
        if match := spec.uncall.match(text, at):
            verdict, _ = self._followed(text, match.end(), final, after_call=True)
            return ("missing", at) if verdict == "ends" else (verdict, at)
        if match := spec.parameter.match(text, at, at + HEADER_LIMIT):
            return ("missing", at) if self._expected(match) else ("data", at)
        if not final and (partial(text, at, spec.closers) or self._half_tag(text, at, final, spec.parameters)):
            return "wait", at
        return "data", at

    def _expected(self, match: re.Match[str]) -> bool:
        """Whether this tag opens a parameter of the tool that isn't given yet: then the open value has lost its closer."""
        key, keys = self.sink.expand(_name(match)), self.sink.tools.keys(self.name)
        return key not in self.given and (self.spec.sure or key in keys)

    def _followed(self, text: str, at: int, final: bool, after_call: bool = False) -> tuple[str, int]:
        """Whether what follows a closing tag that ends at `at` lets it be one."""
        spec = self.spec
        space = _SPACE.match(text, at)
        next = space.end() if space else at
        if next == len(text):
            self.waits_on_blank = not final
            return ("ends", at) if final else ("wait", at)
        openers = spec.calls if after_call else spec.openers
        if text.startswith(openers, next):
            return "ends", at
        if not final and partial(text, next, openers):
            return "wait", at
        marker = self.sink.marker_at(text, next, final)
        if marker < 0:
            return "wait", at
        return ("ends", at) if marker else ("data", at)

    def place(self) -> Hashable | None:
        if self.json or self.done or self.private or (self.gathers and self.step not in ("frame", "value")):
            return None
        stage = None if self.value is None else self.value.stage
        return self.spec, self.step, self.framed, self.start, self.named, stage, bool(self.given)

    def resume(self, place: Any) -> None:
        opens = self.step == "frame"
        self.spec, self.step, self.framed, self.start, self.named, stage, _ = place
        self.catch_up(stage, opens=opens)

    def whole_value(self, tail: str) -> str | None:
        # Before the text: what the format puts there came with the tail.
        return None if self.step == "frame" else super().whole_value(tail)

    def value_reader(self) -> ValueReader | None:
        return None if self.step == "frame" else super().value_reader()

    @property
    def frame(self) -> str:
        return self.spec.codec.frame if self.framed or self.spec.trims else ""

    def finish(self) -> Outcome:
        if self.step == "open":
            return "blank"
        if self.step in ("body", "closing"):
            return "complete"
        return "malformed"


_BETWEEN = frozenset(("open", "body", "closing", "uncdata"))
"""Steps before which white space means nothing."""
_XML_STEPS: dict[str, Callable[[_XmlReader, str, int, bool], int]] = {
    "open": _XmlReader._open,
    "body": _XmlReader._body,
    "frame": _XmlReader._frame,
    "value": _XmlReader._value,
    "json": _XmlReader._json_body,
    "closing": _XmlReader._closing,
    "cdata": _XmlReader._cdata,
    "uncdata": _XmlReader._uncdata,
}


@dataclass(frozen=True, slots=True)
class KeyValueTags:
    """The function's name, then pairs of a key's and a value's element. The marker behind the call closes it.

    `separator`: what ends the name, if anything but the first key does (`<tool_sep>`). `kind`, `unkind`: an element between key
    and value that may name the value's type (`array[string]`). `untyped`: what a value is that no schema knows: `string`;
    `json` if all of it is JSON of another type than string; `quoted` if all of it is JSON, strings included.
    """

    key: Spelling
    unkey: Spelling
    value: Spelling
    unvalue: Spelling
    separator: tuple[Spelling, ...] = ()
    kind: Spelling = ()
    unkind: Spelling = ()
    newline: str = ""
    """What the template writes after the name and between the elements."""
    untyped: Literal["string", "json", "quoted"] = "json"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return ()

    def spellings(self) -> Iterable[Spelling]:
        kind = (self.kind, self.unkind) if self.kind else ()
        return (self.key, self.unkey, *kind, self.value, self.unvalue, *self.separator)

    def compile(self, alphabet: Any) -> _Pairs:
        return _Pairs(self, alphabet)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call, gap = calls[0], self.newline
        out: list[Piece] = [call.name, *(self.separator[0] if self.separator else ()), gap]
        for key, value, json_text in call.items():
            text = value if json_text.startswith('"') else json_text
            out += [*self.key, key, *self.unkey, gap, *self.value, text, *self.unvalue, gap]
        return tuple(out)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        parts: list[Node] = [exactly(name, *(self.separator[0] if self.separator else ()), self.newline)]
        close = (*self.unvalue, self.newline)
        for key, part, required in properties(schema):
            opening = exactly(*self.key, key, *self.unkey, self.newline, *self.value)
            text, other = split(part)
            options: list[Node] = []
            if text is not None:
                options.append(sequence(opening, raw_value(text, close, ())))
            if other is not None:
                options.append(sequence(opening, typed_value(other), exactly(*close)))
            parts.append(choice(options) if required else optional(choice(options)))
        return sequence(*parts)


class _Pairs:
    """`KeyValueTags` for an alphabet."""

    def __init__(self, codec: KeyValueTags, alphabet: Any) -> None:
        self.codec = codec
        spell = alphabet.spell
        self.keys, unkeys = spell([codec.key]), spell([codec.unkey])
        self.values, self.unvalues = spell([codec.value]), spell([codec.unvalue])
        self.kinds = spell([codec.kind]) if codec.kind else []
        unkinds = spell([codec.unkind]) if codec.kind else []
        self.unkey, self.unkind = re.compile(literal(unkeys)), re.compile(literal(unkinds))
        self.separators = spell(codec.separator)
        self.unkeys = unkeys
        self.foreign = [*unkeys, *self.values, *self.kinds, *unkinds]
        """What can't stand in a name."""
        self.ends = Search(self.unvalues)
        self._ends_and: dict[Search, Search] = {}
        self.name_ends = [*self.separators, *self.keys]
        key, unkey, value, unvalue = (literal(tags) for tags in (self.keys, unkeys, self.values, self.unvalues))
        name = r"[^<>\ud800-\udfff]{1,64}"
        self.heads = {
            "name": re.compile(rf"(?:{name})?(?:{literal([*self.separators, *self.keys])})"),
            "pair": re.compile(rf"\s{{0,8}}(?:{key})"),
            "key": re.compile(rf"(?:{name})?(?:{unkey})(?:\s{{0,8}}(?:{value}))?"),
            "gap": re.compile(rf"\s{{0,8}}(?:{value})"),
            "value": re.compile(rf"(?:{unvalue})(?:\s{{0,8}}(?:{key}))?"),
            "text": re.compile(rf"(?:{unvalue})(?:\s{{0,8}}(?:{key})(?:{name}(?:{unkey})\s{{0,8}}(?:{value}))?)?"),
        }
        """The same as in `_Xml`."""
        self.opening = re.compile(rf"{name}(?:{literal([*self.separators, *self.keys])})")
        """How a body mostly begins."""
        tags = [*self.keys, *unkeys, *self.kinds, *unkinds, *self.values, *self.unvalues, *self.separators]
        firsts = "".join(sorted({re.escape(tag[0]) for tag in tags} | {"<"}))
        self.tag = re.compile(f"[{firsts}{SURROGATES}]")

    def reader(self, sink: Sink) -> Reader:
        return _PairReader(sink, self)

    def ends_and(self, markers: Search) -> Search:
        """For what may end a value, or the call in it."""
        found = self._ends_and.get(markers)
        if found is None:
            texts = sorted({*self.unvalues, *markers.texts}, key=len, reverse=True)
            found = self._ends_and[markers] = Search(texts)
        return found


class _PairReader(_TagReader):
    """Reads `NAME <arg_key>K</arg_key><arg_value>V</arg_value> ...` up to the marker behind it."""

    __slots__ = ("declared", "key", "spec", "step")

    def __init__(self, sink: Sink, spec: _Pairs) -> None:
        super().__init__(sink)
        self.spec = spec
        self.unquotes = spec.codec.untyped == "quoted"
        self.declared = ""
        self.step = "name"
        self.key = ""

    @property
    def streams(self) -> bool:
        return self.step == "value" and self.value is not None and self.value.verbatim

    def plain_until(self) -> Callable[[str, int], int] | None:
        return self.spec.ends_and(self.sink.markers).find if self.streams else None

    def reach(self) -> Callable[[str, int], Reach] | None:
        value = self.value
        if value is None or self.step != "value" or self.private:
            return None
        until = self.spec.ends_and(self.sink.markers).find
        reach = functools.partial(_value_reach, until, self.spec.heads["text" if value.verbatim else "value"])
        return functools.partial(_first_reach, value.begins, None, reach) if value.begins else reach

    @property
    def moves_on(self) -> bool:
        return self.step == "value" and self.value is not None and bool(self.value.begins)

    @property
    def head(self) -> re.Pattern[str] | None:
        return self.spec.heads.get("text" if self.streams else self.step)

    def read(self, text: str, at: int, final: bool) -> int:
        self.waits_on_blank = False
        while not (self.done or self.empty or self.failed):
            if self.step in ("name", "pair", "gap") and text[at : at + 1].isspace():
                at = self.skip_space(text, at)
            if at == len(text):
                break
            here = _PAIR_STEPS[self.step](self, text, at, final)
            if here < 0:
                break
            at = here
        self.hand_on()
        return at

    def _name(self, text: str, at: int, final: bool) -> int:
        stop = at
        limit = at + HEADER_LIMIT
        while match := self.spec.tag.search(text, stop, limit):
            stop = match.start()
            end = next((stop + len(tag) for tag in self.spec.name_ends if text.startswith(tag, stop)), 0)
            marker = self.sink.marker_at(text, stop, final)
            odd = next((stop + len(tag) for tag in self.spec.unvalues if text.startswith(tag, stop)), 0)
            known = [*self.spec.name_ends, *self.spec.unvalues, *self.spec.foreign]
            if not end and (marker < 0 or (not final and partial(text, stop, known))):
                break
            if end or marker > 0 or odd:
                return self._named(text, at, stop, end, odd)
            if any(text.startswith(tag, stop) for tag in self.spec.foreign):
                return self._named_with_key(text, at, stop)
            stop += 1
        if final and text[at:].strip() in self.sink.tools:
            return self._named(text, at, len(text), 0, 0)
        if len(text) - at >= HEADER_LIMIT:
            return self.fail(at, f"a name of more than {HEADER_LIMIT} characters")
        return -1

    def _named(self, text: str, at: int, stop: int, end: int, odd: int) -> int:
        name = self.sink.expand(text[at:stop]).strip()
        if not name:
            if end:
                return self.fail(at, "a call without a name")
            self.empty = True
            return at
        if re.search(r"\s", name):
            return self.fail(at, f"{name[:40]!r} is no name")
        self.name = name
        self.named = True
        self.sink.call_start(stop, name)
        self.step = "pair"
        if odd and not end:  # quantised models close a call without arguments by a value's closer
            self.sink.note("odd_closer", stop, "a value's closer where the call's was expected")
            self.close_pairs(odd)
            return odd
        return end if end and any(text.startswith(tag, stop) for tag in self.spec.separators) else stop

    def _named_with_key(self, text: str, at: int, stop: int) -> int:
        """`NAMEKEY</arg_key>`: the key's opener is missing, and only the offered tools tell where the name ends."""
        said = self.sink.expand(text[at:stop]).strip()
        end = next((stop + len(tag) for tag in self.spec.unkeys if text.startswith(tag, stop)), 0)
        name = max(
            (tool for tool in self.sink.tools.names if said != tool and said.startswith(tool)), key=len, default=""
        )
        if not end or not name:
            return self.fail(at, "expected the end of a name")
        self.sink.note("missing_opener", stop, f"{spelled(self.spec.codec.key)} is missing")
        self.name, self.key = name, said.removeprefix(name).strip()
        self.named = True
        self.sink.call_start(stop, name)
        self.step = "gap"
        return end

    def close_pairs(self, stop: int) -> None:
        self.add(stop, self.wrapped or self.writer.close())
        self.done = True

    def _pair(self, text: str, at: int, final: bool) -> int:
        for tag in self.spec.keys:
            if text.startswith(tag, at):
                self.step = "key"
                return at + len(tag)
        if not final and partial(text, at, self.spec.keys):
            return -1
        marker = self.sink.marker_at(text, at, final)
        if marker < 0:
            return -1
        if marker:
            self.close_pairs(at)
            return at
        return self.fail(at, "expected a key or the end of the call")

    def _key(self, text: str, at: int, final: bool) -> int:
        if match := self.spec.unkey.search(text, at, at + HEADER_LIMIT):
            self.key = self.sink.expand(text[at : match.start()]).strip()
            self.step = "gap"
            return match.end()
        if len(text) - at >= HEADER_LIMIT:
            return self.fail(at, f"a key of more than {HEADER_LIMIT} characters")
        return -1

    def _kind(self, text: str, at: int, final: bool) -> int:
        if match := self.spec.unkind.search(text, at, at + HEADER_LIMIT):
            self.declared = self.sink.expand(text[at : match.start()]).strip().partition("[")[0]
            self.step = "gap"
            return match.end()
        if len(text) - at >= HEADER_LIMIT:
            return self.fail(at, f"a type of more than {HEADER_LIMIT} characters")
        return -1

    def _gap(self, text: str, at: int, final: bool) -> int:
        for tag in self.spec.values:
            if text.startswith(tag, at):
                return self._opened(at + len(tag))
        for tag in self.spec.kinds:
            if text.startswith(tag, at):
                self.step = "kind"
                return at + len(tag)
        if text.startswith("\\n", at):  # seen in the wild: the two characters in place of a newline
            return at + 2
        if not final and (partial(text, at, [*self.spec.values, *self.spec.kinds]) or text[at:] == "\\"):
            return -1
        known = [*self.spec.foreign, *self.spec.keys, *self.spec.unvalues]
        marker = self.sink.marker_at(text, at, final)
        if marker < 0 or (not final and partial(text, at, known)):
            return -1
        if not marker and not any(text.startswith(tag, at) for tag in known):
            self.sink.note("missing_opener", at, f"{spelled(self.spec.codec.value)} is missing")
            return self._opened(at)
        return self.fail(at, f"expected {spelled(self.spec.codec.value)}")

    def _opened(self, at: int) -> int:
        """The value begins at `at`."""
        untyped, declared = self.spec.codec.untyped, self.declared
        self.open_value(at, self.key, verbatim=None, untyped=untyped, declared=declared)
        self.step, self.key, self.declared = "value", "", ""
        return at

    def _value(self, text: str, at: int, final: bool) -> int:
        start, end = at, self.spec.ends.find(text, at)
        while (at := self.sink.markers.find(text, at, end)) < end:
            verdict = self._closes_call(text, at, final)
            if verdict == "wait":
                self.take(text, start, at)
                return at if at > start else -1
            if verdict == "ends":
                self.sink.note("missing_closer", at, f"{spelled(self.spec.codec.unvalue)} is missing")
                self.take(text, start, at)
                self.close_value(at, at)
                self.close_pairs(at)
                return at
            at += 1
        stop = next((end + len(tag) for tag in self.spec.unvalues if text.startswith(tag, end)), 0)
        if final and not stop:
            end = len(text)
        self.take(text, start, end)
        if stop:
            self.close_value(end, stop)
            self.step = "pair"
            return stop
        return end if end > start else -1

    def _closes_call(self, text: str, at: int, final: bool) -> str:
        """Whether the call's closer in a value means that the value's own is missing: only if the next call, a turn boundary or
        the end follows it."""
        marker = self.sink.marker_at(text, at, final)
        if marker <= 0:
            return "wait" if marker < 0 else "data"
        space = _SPACE.match(text, marker)
        next = space.end() if space else marker
        if next == len(text):
            self.waits_on_blank = not final
            return "ends" if final else "wait"
        after = self.sink.marker_at(text, next, final)
        return "wait" if after < 0 else "ends" if after else "data"

    def place(self) -> Hashable | None:
        if self.done or self.private:
            return None
        stage = None if self.value is None else self.value.stage
        return self.spec, self.step, self.key, self.declared, self.named, stage, bool(self.given)

    def resume(self, place: Any) -> None:
        _, self.step, self.key, self.declared, self.named, stage, _ = place
        self.catch_up(stage, opens=False)

    def finish(self) -> Outcome:
        if self.step == "name":
            return "blank"
        if self.step == "pair":
            return "complete"
        return "malformed"


_PAIR_STEPS: dict[str, Callable[[_PairReader, str, int, bool], int]] = {
    "name": _PairReader._name,
    "pair": _PairReader._pair,
    "key": _PairReader._key,
    "kind": _PairReader._kind,
    "gap": _PairReader._gap,
    "value": _PairReader._value,
}
