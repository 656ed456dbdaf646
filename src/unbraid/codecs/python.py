"""Calls written in Python: `[f(a=1, b='x'), g()]`, or one call a line.

Only literals are read, nothing is evaluated: strings with all their prefixes and escapes, numbers, `True`, `None` (and JSON's `true`,
`null`), lists, tuples and sets (arrays), dicts (objects). They are written on as JSON while they come: a string streams, a
number waits for its end, `(` and `{` wait until it is clear what they open. A value whose type the tool's schema doesn't allow is
read again as its text (`"3"` for an integer).

A list of calls is one expression: none of its calls is complete before its bracket is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from unbraid.codecs.base import (
    HEADER_LIMIT,
    Codec,
    Compiled,
    Inexpressible,
    Number,
    ObjectWriter,
    Outcome,
    Reader,
    Sink,
    WrittenCall,
    by_spelling,
)
from unbraid.grammar.schemas import definitions_of, described, properties, resolve, unfoldable
from unbraid.grammar.tree import Json, Node, Quoted, Repeat, choice, listed, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.native import mypyc_attr
from unbraid.schema import MAX_DEPTH, UNKNOWN, Kind, Type, coerce, escape, json_string
from unbraid.table import Piece, Spelling

_SPACE = re.compile(r"\s*")
# Tools and their parameters are named by who knows no Python: `3d-model(max-results=3)` is read as it was meant.
_NAME = re.compile(r"\w[\w\-]*(?:\.\w[\w\-]*)*")
_HALF_NAME = re.compile(r"\w[\w.\-]*\s*")
_WORD = r"\w[\w.\-]*"
_KEYWORD = re.compile(_WORD)
_KEY = re.compile(rf"({_WORD})\s*=(?!=)")
_HALF_KEY = re.compile(rf"{_WORD}\s*(?:=)?")
_STRING = re.compile(r"""([rRbBuUfF]{0,2})('''|\"""|'|")""")
_HALF_STRING = re.compile(r"""[rRbBuUfF]{0,2}(?:''?|""?)?""")
_PREFIXES = frozenset(("", "r", "b", "u", "f", "rb", "br", "rf", "fr"))
_SCALAR = re.compile(r"[-+.0-9A-Za-z_]+")
_STOPS = {quote: re.compile(rf"[{quote}\\]") for quote in "'\""}
_STOPS_F = {quote: re.compile(rf"[{quote}\\{{}}]") for quote in "'\""}
_QUOTES = re.compile("['\"]")
_ESCAPES = {
    "\n": "", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_OCTAL = re.compile(r"[0-7]{1,3}")
_HEX = {"x": 2, "u": 4, "U": 8}
_HEX_DIGITS = re.compile(r"[0-9a-fA-F]*")
_LONGEST_CHARACTER_NAME: Final = 100
_DECIMAL = re.compile(r"([-+]?)([0-9](?:_?[0-9])*)")
_FLOAT = re.compile(r"([-+]?)((?:[0-9](?:_?[0-9])*)?)(\.?)((?:[0-9](?:_?[0-9])*)?)((?:[eE][-+]?[0-9](?:_?[0-9])*)?)")
_BASED = re.compile(r"([-+]?)0(?:[xX](?:_?[0-9a-fA-F]){1,1000}|[oO](?:_?[0-7]){1,1000}|[bB](?:_?[01]){1,1000})")
_WORDS = {"True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null"}
_CLOSER = {"list": "]", "tuple": ")", "group": ")", "brace": "}", "set": "}", "dict": "}"}
_OPENER = {"[": "list", "(": "group", "{": "brace"}

Step = Callable[[str, int, bool], int]


@dataclass(frozen=True, slots=True)
class PythonCalls:
    """Calls in Python's syntax.

    `layout`: a `list` of calls, or calls as `lines` (a list is read there too), or one call alone. `loose`: the template writes
    strings between quotes without escaping them, so a quote ends a string only if what must come behind a string follows.
    `method`: a last part of the function's name that belongs to the syntax (`search.call(...)`). `json`: what reads a body
    that is JSON instead.
    """

    layout: Literal["list", "lines", "one"] = "list"
    loose: bool = False
    method: str = ""
    json: Codec | None = None

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return (("[",),) if self.layout == "list" else ()

    def spellings(self) -> Iterable[Spelling]:
        return self.json.spellings() if self.json else ()

    def compile(self, alphabet: Any) -> _Python:
        return _Python(self, self.json.compile(alphabet) if self.json else None)

    @property
    def many(self) -> bool:
        """Whether one body holds all calls."""
        return self.layout != "one"

    @property
    def around(self) -> tuple[str, str, str]:
        """What stands before the calls of a body, between two and behind them."""
        return ("[", ", ", "]") if self.layout == "list" else ("", "\n", "")

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        before, between, behind = self.around
        return (f"{before}{between.join(map(self._written, calls))}{behind}",)

    def _written(self, call: WrittenCall) -> str:
        arguments = call.items()
        for key, _, _ in arguments:
            if not _KEYWORD.fullmatch(key):
                raise Inexpressible(f"the argument {key!r} has a name that can't be a keyword")
        return (
            f"{call.name}{self.method}({', '.join(f'{key}={_python(value, text)}' for key, value, text in arguments)})"
        )

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        unfoldable(schema)
        members = [
            (sequence(exactly(f"{key}="), _literal_grammar(part, part, ())), required)
            for key, part, required in properties(schema)
        ]
        return sequence(exactly(f"{name}{self.method}("), listed(members, exactly(", ")), exactly(")"))


_RULES = (
    "$ref",
    "minLength",
    "maxLength",
    "format",
    "pattern",
    "uniqueItems",
    "contains",
    "patternProperties",
    "allOf",
    "not",
)
_QUOTED = Quoted(quote="'")


def _literal_grammar(schema: Mapping[str, Any], root: Mapping[str, Any], way: tuple[str, ...]) -> Node:
    """A literal that satisfies a schema; where a rule can't be said about Python's, JSON's: the reader takes both."""
    schema = described(schema)
    if (reference := schema.get("$ref")) and reference not in way:
        return _literal_grammar(resolve(reference, root, "/$ref"), root, (*way, reference))
    definitions = definitions_of(root)
    if any(rule in schema for rule in _RULES):
        return Json({**definitions, **schema})
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return choice([_literal_grammar(option, root, way) for option in schema[keyword]])
    if "const" in schema or "enum" in schema:
        return choice([exactly(_nested(value)) for value in schema.get("enum", [schema.get("const")])])
    kinds = schema.get("type", "object" if "properties" in schema else ["string", "integer", "boolean", "null"])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    return choice(
        [_kind_grammar(kind, schema, root, way) or Json({**definitions, **schema, "type": kind}) for kind in kinds]
    )


def _kind_grammar(kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], way: tuple[str, ...]) -> Node | None:
    if kind == "string":
        return _QUOTED
    if kind == "boolean":
        return choice([exactly("True"), exactly("False")])
    if kind == "null":
        return exactly("None")
    if kind == "array" and isinstance(schema.get("items"), Mapping):
        item = _literal_grammar(schema["items"], root, way)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        return sequence(exactly("["), Repeat(item, least, most, exactly(", ")), exactly("]"))
    if kind == "object" and schema.get("properties"):
        required = schema.get("required", [])
        members = [
            (sequence(exactly(f"{_quoted(key)}: "), _literal_grammar(part, root, way)), key in required)
            for key, part in schema["properties"].items()
        ]
        return sequence(exactly("{"), listed(members, exactly(", ")), exactly("}"))
    return None


def _python(value: Any, text: str) -> str:
    """A value as a literal of Python. `text`: the value's JSON; numbers keep their spelling."""
    if isinstance(value, str):
        return _quoted(value) if text.startswith('"') else text
    return _nested(by_spelling(text))


def _quoted(text: str) -> str:
    """A string in single quotes, whatever is in it."""
    return "'" + repr('"' + text)[2:]


def _nested(value: Any) -> str:
    if isinstance(value, Number):
        return value.text
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_quoted(key)}: {_nested(item)}' for key, item in value.items())}}}"
    return _quoted(value) if isinstance(value, str) else repr(value)


@dataclass(frozen=True, slots=True)
class _Python:
    codec: PythonCalls
    json: Compiled | None

    def reader(self, sink: Sink) -> Reader:
        return _PythonReader(sink, self)


@mypyc_attr(serializable=True)
class _Frame:
    """An open bracket inside a value."""

    __slots__ = ("bare", "count", "kind")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.count = 0
        self.bare = True
        """Its last value was no bracket: it may be a key."""


class _PythonReader(Reader):
    """Reads calls and writes their arguments as JSON."""

    __slots__ = (
        "before", "collects", "frames", "given", "holds", "keyed", "listed", "name", "prefix", "quote", "scalar", "spec", "step", "text",
        "type", "unclosed", "writer",
    )  # fmt: skip

    def __init__(self, sink: Sink, spec: _Python) -> None:
        super().__init__(sink)
        self.spec = spec
        self.unsafe = _QUOTES
        self.listed = False
        self.step: Step = self._begin
        self._next_call()

    def _next_call(self) -> None:
        self.name = ""
        self.named = False
        self.keyed = False
        """A keyword was given: no positional argument may follow."""
        self.given: list[str] = []
        self.writer = ObjectWriter()
        self.frames: list[_Frame] = []
        self.holds: list[list[str]] = []
        """JSON that waits until it is clear what a bracket opens."""
        self.scalar: list[str] = []
        self.type: Type = UNKNOWN
        self.prefix = self.quote = ""
        self.collects = False
        self.unclosed = False
        """A string is over but may go on in another one directly behind it."""
        self.text: list[str] = []
        """The text of a string that the schema doesn't allow to be one."""

    @property
    def streams(self) -> bool:
        return self.step == self._in_string and not (self.collects or self.holds or "f" in self.prefix)

    @property
    def verbatim(self) -> bool:
        return self.step in (self._in_string, self._in_scalar)

    def _begin(self, text: str, at: int, final: bool) -> int:
        char = text[at]
        if char == "[" and self.spec.codec.layout != "one":
            next = self.skip_space(text, at + 1)
            if next == len(text):
                self.waits_on_blank = True
                return -1 if not final else self.fail(at, "a list that isn't closed")
            if text[next] != "{" or not self.spec.json:
                self.listed = self.unit = True
                self.step = self._first
                return at + 1
        if char in "[{" and self.spec.json:
            self.successor = self.spec.json.reader(self.sink)
            return at
        marker = self.sink.marker_at(text, at, final)
        if marker:
            self.empty = marker > 0
            return at if marker > 0 else -1
        if self.spec.codec.layout == "list":
            return self.expected(at, '"["')
        self.step = self._function
        return at

    def _first(self, text: str, at: int, final: bool) -> int:
        return self.fail(at, "a list without calls") if text[at] == "]" else self._function(text, at, final)

    def _function(self, text: str, at: int, final: bool) -> int:
        match = _NAME.match(text, at)
        stop = self.skip_space(text, match.end()) if match else at
        if match and text[stop : stop + 1] == "(" and stop - at <= HEADER_LIMIT:
            return self._named(match.group(), at, stop + 1)
        half = _HALF_NAME.match(text, at)
        if not final and half and half.end() == len(text) and len(text) - at <= HEADER_LIMIT:
            return -1
        return self.expected(at, "a call")

    def _named(self, name: str, at: int, stop: int) -> int:
        method = self.spec.codec.method
        if not name.endswith(method) or name == method:
            return self.fail(at, f"{name!r} doesn't end in {method}")
        self._next_call()
        self.name = name[: len(name) - len(method)]
        self.named = True
        self.sink.call_start(stop, self.name)
        self.step = self._argument
        return stop

    def _argument(self, text: str, at: int, final: bool) -> int:
        if text[at] == ")":
            self.sink.call_arguments(at + 1, self.writer.close())
            self.sink.call_end(at + 1)
            self.step = self._between
            self.done = self.spec.codec.layout == "one"
            return at + 1
        half = _HALF_KEY.match(text, at)
        if half and half.end() - at > HEADER_LIMIT:
            return self.fail(at, f"a key of more than {HEADER_LIMIT} characters")
        if not final and half and half.end() == len(text):
            return -1
        match = _KEY.match(text, at)
        if match:
            self.keyed = True
            return self._open_value(match.group(1), at, match.end())
        keys = self.sink.tools.keys(self.name)
        if self.keyed or len(self.given) >= len(keys):
            return self.expected(at, "a keyword or the end of the call")
        return self._open_value(keys[len(self.given)], at, at)

    def _open_value(self, key: str, at: int, stop: int) -> int:
        if key in self.given:
            return self.fail(at, f"the argument {key!r} is given twice")
        self.given.append(key)
        self.type = self.sink.tools.parameter(self.name, key)
        self.step = self._value
        self.before = self.writer.key(key)
        return stop

    def _between(self, text: str, at: int, final: bool) -> int:
        """Behind a call."""
        if self.listed:
            if text[at] == "]":
                self.done = True
                return at + 1
            if text[at] == ",":
                self.step = self._another
                return at + 1
            return self.no_bracket(text, at, final, "list")
        marker = self.sink.marker_at(text, at, final)
        if marker:
            self.done = marker > 0
            return at if marker > 0 else -1
        return self._function(text, at, final)

    def _another(self, text: str, at: int, final: bool) -> int:
        if text[at] == "]":
            self.done = True
            return at + 1
        return self._function(text, at, final)

    # Values

    def _say(self, stop: int, piece: str) -> None:
        """Write a piece of JSON: at once, or once it is clear what it belongs to."""
        if self.holds:
            self.holds[-1].append(piece)
            return
        before, self.before = self.before, ""
        self.sink.call_arguments(stop, before + piece)

    def _value(self, text: str, at: int, final: bool) -> int:
        char = text[at]
        match = _STRING.match(text, at)
        if not final and (half := _HALF_STRING.match(text, at)) and half.end() == len(text):
            return -1
        if match:
            return self._open_string(match, at)
        if char in _OPENER and self.frames and self.frames[-1].kind == "key":
            return self.fail(at, "a key that is no plain value")
        if char in _OPENER:
            return self._open_frame(_OPENER[char], at)
        if not _SCALAR.match(char):
            return self.expected(at, "a value")
        self.step = self._in_scalar
        return at

    def _value_or_end(self, text: str, at: int, final: bool) -> int:
        """In a bracket: its next value, or its end."""
        frame = self.frames[-1]
        if text[at] == _CLOSER[frame.kind]:
            return self._close_frame(at)
        if frame.kind == "dict":
            self._say(at, ", ")
            self._begin_key()
        elif frame.count and frame.kind not in ("group", "brace"):
            self._say(at, ", ")
        self.step = self._value
        return at

    def _begin_key(self) -> None:
        self.frames.append(_Frame("key"))
        self.holds.append([])

    def _open_frame(self, kind: str, at: int) -> int:
        if len(self.frames) >= MAX_DEPTH:
            return self.fail(at, f"nested deeper than {MAX_DEPTH}")
        self.frames.append(_Frame(kind))
        if kind == "list":
            self._say(at + 1, "[")
        else:
            self.holds.append([])
        self.step = self._value_or_end
        return at + 1

    def _decide(self, at: int, kind: str, opening: str) -> None:
        """What the last bracket opens is clear."""
        self.frames[-1].kind = kind
        held = "".join(self.holds.pop())
        self._say(at, opening + held)

    def _close_frame(self, at: int) -> int:
        """The last bracket closes at `at`."""
        frame = self.frames[-1]
        if frame.kind == "group":
            self._decide(at + 1, "group", "" if frame.count else "[]")
        elif frame.kind == "brace":
            self._decide(at + 1, "set", "[" if frame.count else "{}")
            self._say(at + 1, "]" if frame.count else "")
        else:
            self._say(at + 1, "}" if frame.kind == "dict" else "]")
        self.frames.pop()
        self._value_over(bare=False)
        return at + 1

    def _value_over(self, *, bare: bool) -> None:
        if self.frames:
            self.frames[-1].count += 1
            self.frames[-1].bare = bare
        self.step = self._after

    def _after(self, text: str, at: int, final: bool) -> int:
        """Behind a value."""
        if self.unclosed:
            match = _STRING.match(text, at)
            if match and not self.spec.codec.loose:
                return self._open_string(match, at)
            if (
                not final
                and not self.spec.codec.loose
                and (half := _HALF_STRING.match(text, at))
                and half.end() == len(text)
            ):
                return -1
            self._end_string(at)
        char = text[at]
        if not self.frames:
            if char == ",":
                self.step = self._argument
                return at + 1
            if char == ")":
                return self._argument(text, at, final)
            return self.expected(at, '"," or ")"')
        frame = self.frames[-1]
        if char == ":" and frame.kind in ("brace", "key"):
            return self._key_over(at)
        if char == "," and frame.kind != "key":
            if frame.kind in ("group", "brace"):
                self._decide(at + 1, "tuple" if frame.kind == "group" else "set", "[")
            self.step = self._value_or_end
            return at + 1
        if frame.kind != "key" and char == _CLOSER[frame.kind]:
            return self._close_frame(at)
        return self.fail(at, f"{self.sink.expand(text[at])!r} can't follow a value")

    def _key_over(self, at: int) -> int:
        """A dict's key is over: JSON knows only strings."""
        frame = self.frames[-1]
        if not frame.bare:
            return self.fail(at, "a key that is no plain value")
        key = "".join(self.holds[-1])
        self.holds[-1] = [key if key.startswith('"') else json_string(key), ": "]
        if frame.kind == "brace":
            self._decide(at + 1, "dict", "{")
        else:
            self.frames.pop()
            self._say(at + 1, "".join(self.holds.pop()))
        self.step = self._value
        return at + 1

    # Numbers and words

    def _in_scalar(self, text: str, at: int, final: bool) -> int:
        match = _SCALAR.match(text, at)
        if match:
            self.scalar.append(match.group())
            if match.end() == len(text):
                return len(text)
            at = match.end()
        source = "".join(self.scalar)
        self.scalar.clear()
        value = _WORDS.get(source) or _number(source)
        if value is None:
            return self.fail(at, f"{source[:40]!r} is no literal")
        self._say(at, self._fitting(at, source, value, _kind(value)) if not self.frames else value)
        self._value_over(bare=True)
        return at

    def _fitting(self, at: int, source: str, value: str, kind: Kind) -> str:
        """A literal at the top that ends at `at`: if the schema doesn't allow its type, what its text means to the schema."""
        type = self.type
        if not type.known or kind in type.kinds or kind == "null" or (kind == "integer" and "number" in type.kinds):
            return value
        result = coerce(source, type)
        if result.fits:
            return result.json
        self.note_mismatch(at, self.given[-1])
        return value

    # Strings

    def _open_string(self, match: re.Match[str], at: int) -> int:
        prefix, self.quote = match.group(1).lower(), match.group(2)
        if prefix not in _PREFIXES:
            return self.fail(at, f"{prefix!r} is no prefix of a string")
        self.prefix = prefix
        if not self.unclosed:
            kinds = self.type.kinds
            self.collects = not self.frames and self.type.known and "string" not in kinds
            self.text = []
            if not self.collects:
                self._say(match.end(), '"')
        self.unclosed = False
        self.step = self._in_string
        return match.end()

    def _end_string(self, at: int) -> None:
        self.unclosed = False
        if self.collects:
            text = "".join(self.text)
            self.collects = False
            self._say(at, self._fitting(at, text, json_string(text), "string"))
        else:
            self._say(at, '"')

    def _add(self, stop: int, piece: str) -> None:
        """A piece of the open string, decoded."""
        if self.collects:
            self.text.append(piece)
        elif piece:
            self._say(stop, escape(piece))

    def _in_string(self, text: str, at: int, final: bool) -> int:
        begin = start = at
        stops = (_STOPS_F if "f" in self.prefix else _STOPS)[self.quote[0]]
        while match := stops.search(text, at):
            at = match.start()
            char = text[at]
            if char == self.quote[0]:
                stop, piece = self._quote_at(text, at, final), char
            elif char == "\\":
                stop, piece = self._escape_at(text, at)
            else:
                stop, piece = self._brace_at(text, at)
            if stop == at:  # a part of the text after all
                at += 1
                continue
            self._add(at, self.sink.expand(text[start:at]))
            if stop < 0 or self.failed:
                return at if at > begin or self.failed else -1
            if char == self.quote[0]:
                self.unclosed = True
                self._value_over(bare=True)
                return stop
            self._add(stop, piece)
            start = at = stop
        self._add(len(text), self.sink.expand(text[start:]))
        return len(text)

    def _quote_at(self, text: str, at: int, final: bool) -> int:
        """Where a quote ends the string; `at`: it doesn't; -1: more must come."""
        quote = self.quote
        if len(quote) == 3:
            if text.startswith(quote, at):
                return at + 3
            return -1 if not final and text[at:] == quote[: len(text) - at] else at
        if not self.spec.codec.loose:
            return at + 1
        next = self.skip_space(text, at + 1)
        if next == len(text):
            self.waits_on_blank = not final
            return at + 1 if final else -1
        kind = self.frames[-1].kind if self.frames else ""
        followers = {"": ",)", "key": ":", "brace": ",}:"}.get(kind) or "," + _CLOSER[kind]
        return at + 1 if text[next] in followers else at

    def _brace_at(self, text: str, at: int) -> tuple[int, str]:
        """A brace in an f-string: doubled it's one brace, alone it would have to be evaluated."""
        if at + 1 == len(text):
            return -1, ""
        if text[at + 1] != text[at]:
            self.fail(at, "an f-string with a placeholder")
        return at + 2, text[at]

    def _escape_at(self, text: str, at: int) -> tuple[int, str]:
        """What the escape at `at` means and where it ends, -1 if that isn't known yet."""
        rest = text[at + 1 : at + 2]
        if not rest:
            return -1, ""
        if "r" in self.prefix:
            return at + 2, "\\" + self.sink.expand(rest)
        if rest in _ESCAPES:
            return at + 2, _ESCAPES[rest]
        if rest in "01234567":
            match = _OCTAL.match(text, at + 1)
            assert match is not None
            short = match.end() == len(text) and match.end() < at + 4
            return (-1, "") if short else (match.end(), chr(int(match.group(), 8)))
        if rest in _HEX and not ("b" in self.prefix and rest != "x"):
            return self._hexadecimal(text, at, _HEX[rest])
        if rest == "N" and "b" not in self.prefix:
            return self._character(text, at)
        return at + 2, "\\" + self.sink.expand(rest)

    def _hexadecimal(self, text: str, at: int, length: int) -> tuple[int, str]:
        match = _HEX_DIGITS.match(text, at + 2, at + 2 + length)
        digits = match.group() if match else ""
        if len(digits) < length:
            if at + 2 + len(digits) == len(text):
                return -1, ""
            self.fail(at, f"{self.sink.expand(text[at : at + 3 + len(digits)])!r} is no escape")
            return at + 1, ""
        code = int(digits, 16)
        if code > 0x10FFFF:
            self.fail(at, f"{text[at : at + 2 + length]!r} is no character")
            return at + 1, ""
        return at + 2 + length, chr(code)

    def _character(self, text: str, at: int) -> tuple[int, str]:
        """A character by its name."""
        stop = text.find("}", at, at + _LONGEST_CHARACTER_NAME)
        if stop < 0 and len(text) - at < _LONGEST_CHARACTER_NAME:
            return -1, ""
        try:
            if stop < 0 or text[at + 2] != "{":
                raise KeyError
            return stop + 1, unicodedata.lookup(text[at + 3 : stop])
        except (KeyError, UnicodeEncodeError):  # the latter: a special token stands in it
            shown = text[at : stop + 1 if stop >= 0 else at + 20]
            self.fail(at, f"{self.sink.expand(shown)!r} names no character")
            return at + 1, ""

    def finish(self) -> Outcome:
        if self.step == self._begin:
            return "blank"
        return "complete" if self.step == self._between else "malformed"


def _number(source: str) -> str | None:
    """The JSON of a number of Python, by its spelling: an id of twenty thousand digits stays what it is."""
    if match := _DECIMAL.fullmatch(source):
        digits = match.group(2).replace("_", "").lstrip("0") or "0"
        return f"{match.group(1).strip('+')}{digits}"
    if _BASED.fullmatch(source):
        return str(int(source, 0))
    match = _FLOAT.fullmatch(source)
    if not match or not (match.group(2) or match.group(4)) or not (match.group(3) or match.group(5)):
        return None
    sign, whole, _, fraction, exponent = (group.replace("_", "") for group in match.groups())
    point = f".{fraction or '0'}" if match.group(3) else ""
    return f"{sign.strip('+')}{whole.lstrip('0') or '0'}{point}{exponent}"


def _kind(value: str) -> Kind:
    if value in ("true", "false"):
        return "boolean"
    if value == "null":
        return "null"
    return "number" if any(char in ".eE" for char in value) else "integer"
