"""Gemma's argument language: an object with bare keys, bare literals, and strings between quote tokens.

    call:find{text:<|"|>a "b", {c}<|"|>,limit:3,opts:{log:true,ticks:[1,2.5]}}

A string has no escapes of any kind: only the quote ends it, whatever stands inside. So strings stream, but for those whose
schema wants no string (models quote numbers); a bare literal waits for what follows it, because `12` may still become `12.5`.
What is quoted is a string; what is bare is the JSON literal that it spells, if it spells one, else a string without its quotes.

Models write the quote where they mean `"`, too: `code:<|"|>f(<|"|>a<|"|>)<|"|>` is `f("a")` (vLLM issue 44715). So a quote ends a string if what
follows it can follow a value; behind one that didn't, a comma must be followed by a key. And they forget the quote before a string, not the
one behind it (SGLang pull request 39240), or a comma (yzma pull request 243).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from unbraid.codecs.base import (
    HEADER_LIMIT,
    Number,
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
from unbraid.errors import SchemaError
from unbraid.grammar.schemas import described, resolve, unfoldable
from unbraid.grammar.tree import Json, Node, Repeat, Until, choice, listed, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.schema import MAX_DEPTH, UNKNOWN, Coerced, Type, coerce
from unbraid.search import FIRST, LAST, SURROGATES
from unbraid.table import Piece, Spelling

_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_NULLS: Final = ("null", "None")
_NAME = re.compile(r"[\w.\-]+")
_PLAIN: Final = r"""(["'])((?:(?!\1)[^\\\n\ud800-\udfff]|\\.)*+)"""
_PLAIN_KEY = re.compile(rf"{_PLAIN}\1\s*:", re.DOTALL)
_HALF_PLAIN_KEY = re.compile(rf"{_PLAIN}(?:\\|\1\s*)?", re.DOTALL)
_PLAIN_STRING = re.compile(r"""(["'])((?:(?!\1)[^\\]|\\.)*+)\1""", re.DOTALL)
_LONE_QUOTE = re.compile(r"""\\(.)|(")""", re.DOTALL)
_NEXT_KEY = re.compile(r"""\s*(?:[^:<{}\[\](),\"\n\ud800-\udfff]|\([^:<{}\[\](),\"\n\ud800-\udfff]*\))++:""")
_HALF_KEY = re.compile(r"""\s*(?:[^:<{}\[\](),\"\n\ud800-\udfff]|\([^:<{}\[\](),\"\n\ud800-\udfff]*(?:\)|\Z))*+""")
"""A bare key and its colon, and what may become one: brackets in it come in pairs."""
_WORD_KEY = re.compile(r"([\w.\-]+)\s*(:?)")
_BARE_KEY = re.compile(r"[^\s:<{}\[\](),\"'](?:[^:<{}\[\](),\"'\n]*[^\s:<{}\[\](),\"'])?")


@dataclass(frozen=True, slots=True)
class Dsl:
    """A name and its arguments in Gemma's language. `prefix`: what stands before the name. `quote`: both ends of a string."""

    quote: Spelling
    prefix: str = "call:"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return ((self.prefix,),)

    def spellings(self) -> Iterable[Spelling]:
        return (self.quote,)

    def compile(self, alphabet: Any) -> _Dsl:
        return _Dsl(self, alphabet)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call = calls[0]
        out: list[Piece] = [f"{self.prefix}{call.name}{{"]
        for index, (key, _, json_text) in enumerate(call.items()):
            out += ["," if index else "", *self._key(key), ":", *self._written(by_spelling(json_text))]
        return (*out, "}")

    def _written(self, value: Any) -> list[Piece]:
        if isinstance(value, Mapping):
            members = [[*self._key(key), ":", *self._written(each)] for key, each in value.items()]
            return ["{", *_separated(members), "}"]
        if isinstance(value, list):
            return ["[", *_separated([self._written(each) for each in value]), "]"]
        if isinstance(value, Number):
            return [value.text]
        return [*self.quote, value, *self.quote] if isinstance(value, str) else [json.dumps(value)]

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        unfoldable(schema)
        return sequence(exactly(f"{self.prefix}{name}"), self._value(schema, schema, ()))

    def _value(self, schema: Mapping[str, Any], root: Mapping[str, Any], on_the_way: tuple[str, ...]) -> Node:
        """A value of the language that satisfies a schema."""
        schema = described(schema)
        if reference := schema.get("$ref"):
            if reference in on_the_way:
                raise SchemaError("/$ref", "a recursive schema can't be enforced in this format's argument language")
            return self._value(resolve(reference, root, "/$ref"), root, (*on_the_way, reference))
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return choice([self._value(option, root, on_the_way) for option in schema[keyword]])
        if "const" in schema or "enum" in schema:
            return choice([self._constant(value) for value in schema.get("enum", [schema.get("const")])])
        kinds = schema.get("type", "object" if "properties" in schema else ["string", "integer", "boolean", "null"])
        return choice(
            [self._kind(kind, schema, root, on_the_way) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
        )

    def _kind(self, kind: str, schema: Mapping[str, Any], root: Mapping[str, Any], on_the_way: tuple[str, ...]) -> Node:
        if kind == "string":
            return self._string(schema)
        if kind == "array":
            item = self._value(schema.get("items", {}), root, on_the_way)
            least, most = schema.get("minItems", 0), schema.get("maxItems")
            return sequence(exactly("["), Repeat(item, least, most, exactly(",")), exactly("]"))
        if kind == "object":
            required = schema.get("required", [])
            members = [
                (sequence(exactly(*self._key(key), ":"), self._value(part, root, on_the_way)), key in required)
                for key, part in schema.get("properties", {}).items()
            ]
            return sequence(exactly("{"), listed(members, exactly(",")), exactly("}"))
        limits = {key: value for key, value in schema.items() if key in ("minimum", "maximum", "multipleOf")}
        return Json({"type": kind, **limits})

    def _string(self, schema: Mapping[str, Any]) -> Node:
        for keyword in ("minLength", "maxLength", "format", "pattern"):
            if keyword in schema:
                raise SchemaError(
                    f"/{keyword}", f"{keyword!r} of a string can't be enforced where strings are written raw"
                )
        return sequence(exactly(*self.quote), Until(self.quote))

    def _constant(self, value: Any) -> Node:
        return exactly(*self._written(by_spelling(json.dumps(value))))

    def _key(self, key: str) -> list[Piece]:
        return [key] if _BARE_KEY.fullmatch(key) else [*self.quote, key, *self.quote]


def _plain_text(text: str) -> str | None:
    """What a string says that stands between JSON's quotes or Python's; `None`: it's no such string, or not alone."""
    match = _PLAIN_STRING.fullmatch(text)
    if match is None:
        return None
    inside = match[2]
    inside = _LONE_QUOTE.sub(lambda found: '\\"' if found[2] else "'" if found[1] == "'" else found[0], inside)
    try:
        return str(json.loads(f'"{inside}"', strict=False))
    except ValueError:
        return match[2]


def _is_whole(text: str) -> bool:
    """Whether what is bare up to here isn't a string that has lost its quotes: a literal, nothing, or one between other quotes."""
    value = text.strip()
    return not value or value[0] in "\"'" or value in _NULLS or _LITERAL.fullmatch(value) is not None


def _separated(groups: list[list[Piece]]) -> list[Piece]:
    return [piece for index, group in enumerate(groups) for piece in ([",", *group] if index else group)]


class _Dsl:
    """`Dsl` for an alphabet."""

    def __init__(self, codec: Dsl, alphabet: Any) -> None:
        self.codec = codec
        self.quotes = alphabet.spell([codec.quote])
        self.quote = re.compile(literal(self.quotes))
        self.spelled = tuple(map(alphabet.expand, self.quotes))
        firsts = "".join(sorted({re.escape(text[0]) for text in self.quotes}))
        self.unsafe = re.compile(f"[{firsts}{SURROGATES}]")
        # Where a string in JSON's or Python's quotes may end, and what must not be in it.
        self.in_plain = {quote: re.compile(rf"[{quote}\\<{firsts}{SURROGATES}]") for quote in "\"'"}
        # Where a key or a bare value may end; `<` and special tokens: where a marker may stand.
        self.after_key = re.compile(f"[:<{firsts}{SURROGATES}]")
        self.after_comma = re.compile(rf"[:{{}}\[\]<{firsts}{SURROGATES}]")
        self.after_bare = re.compile(rf"[,\]}})<{firsts}{SURROGATES}]")

    def reader(self, sink: Sink) -> Reader:
        return _DslReader(sink, self)


@dataclass(slots=True)
class _Level:
    """An open object or array."""

    bracket: str
    type: Type
    filled: bool = False
    """It holds something."""
    count: int = 0
    """How many items, if each has a type of its own."""


class _DslReader(Reader):
    """Reads `call:NAME{key:value,...}`."""

    __slots__ = ("begun", "held", "inner", "key", "levels", "name", "plain", "round", "spec", "step", "type")

    def __init__(self, sink: Sink, spec: _Dsl) -> None:
        super().__init__(sink)
        self.spec = spec
        self.unsafe = spec.unsafe
        self.step: Callable[[str, int, bool], int] = self._head
        self.levels: list[_Level] = []
        self.type = UNKNOWN
        """What the schema says of the value that is due."""
        self.held: list[str] | None = None
        """A string's text while its schema wants another type, or a bare value's, or a quoted key's."""
        self.name = ""
        self.key = ""
        self.round = False
        """The arguments stand in `(...)`, as some models write."""
        self.plain = False
        """Some stand in JSON's or Python's quotes, as models write as well."""
        self.begun = False
        self.inner = False
        """The string that is open holds a quote, so that what follows the next one is looked at closely; or, without its first quote, a comma."""

    @property
    def streams(self) -> bool:
        return self.step == self._string and self.held is None

    @property
    def verbatim(self) -> bool:
        return self.step in (self._string, self._quoted_key, self._bare, self._double, self._single)

    # The head: `call:NAME{`

    def _head(self, text: str, at: int, final: bool) -> int:
        marker = self.sink.marker_at(text, at, final)
        if marker > 0:
            self.empty = True
            return at
        self.begun = True
        prefix = self.spec.codec.prefix
        if marker < 0 or (not final and partial(text, at, [prefix])):
            return -1
        start = next((at + len(p) for p in (prefix, ":") if text.startswith(p, at)), at)
        start = self.skip_space(text, start)
        name = _NAME.match(text, start)
        stop = self.skip_space(text, name.end() if name else start)
        if name and len(name[0]) > HEADER_LIMIT:
            return self.fail(at, f"a name of more than {HEADER_LIMIT} characters")
        if stop == len(text):
            self.waits_on_blank = text[stop - 1].isspace()
            return -1
        if not name:
            return self.expected(start, "a name")
        if text[stop] not in "{(":
            return self._name_only(text, at, stop, final, name[0])
        if not text.startswith(prefix, at):
            self.sink.note("odd_header", at, f"{prefix!r} is missing before the name")
        self.named = True
        self.name = name[0]
        self.round = text[stop] == "("
        self.sink.call_start(stop, name[0])
        self.sink.call_arguments(stop + 1, "{")
        self.levels.append(_Level("{", UNKNOWN))
        self.step = self._first_key
        return stop + 1

    def _name_only(self, text: str, at: int, stop: int, final: bool, name: str) -> int:
        marker = self.sink.marker_at(text, stop, final)
        if marker < 0:
            return -1
        if not marker or name not in self.sink.tools:
            return self.expected(stop, '"{"')
        self.sink.note("missing_arguments", stop, f"{name} is called without arguments")
        self.named = True
        self.sink.call_start(stop, name)
        self.sink.call_arguments(stop, "{}")
        return self._end(stop)

    # Objects and arrays

    def _closes(self, text: str, at: int, level: int = -1) -> bool:
        """Whether the innermost open bracket (or another) is closed at `at`."""
        char = text[at]
        if self.levels[level].bracket == "[":
            return char == "]"
        outermost = self.levels[level] is self.levels[0]
        return char == "}" or (char == ")" and self.round and outermost)

    def _close(self, at: int) -> int:
        level = self.levels.pop()
        self.sink.call_arguments(at + 1, "]" if level.bracket == "[" else "}")
        if not self.levels:
            return self._end(at + 1)
        self.step = self._after
        return at + 1

    def _end(self, stop: int) -> int:
        self.sink.call_end(stop)
        self.done = True
        return stop

    def _first_key(self, text: str, at: int, final: bool) -> int:
        """A key, or the object's end: also behind a comma, where it is one comma too many."""
        if self._closes(text, at):
            return self._close(at)
        if quote := self.spec.quote.match(text, at):
            self.held = []
            self.step = self._quoted_key
            return quote.end()
        if not final and partial(text, at, self.spec.quotes):
            return -1
        if text[at] in "\"'" and (stop := self._plain_key(text, at, final)):
            return stop
        found, stop = self._bare_end(text, at, final, self.spec.after_key)
        if (stop if found else len(text)) - at > HEADER_LIMIT:
            return self.fail(at, f"a key of more than {HEADER_LIMIT} characters")
        if not found:
            return -1
        if text[stop] != ":" or '"' in text[at:stop]:
            return self.expected(stop, '":"')
        return self._key(stop + 1, text[at:stop].rstrip())

    def _plain_key(self, text: str, at: int, final: bool) -> int:
        """A key in JSON's or Python's quotes; 0: it is none."""
        if match := _PLAIN_KEY.match(text, at, at + HEADER_LIMIT):
            self._note_plain(at)
            return self._key(match.end(), self.sink.expand(_plain_text(match[0][:-1].rstrip()) or ""))
        half = not final and len(text) - at < HEADER_LIMIT and _HALF_PLAIN_KEY.fullmatch(text, at)
        return -1 if half else 0

    def _note_plain(self, at: int) -> None:
        """Once a call: where one is, all are."""
        if not self.plain:
            self.plain = True
            self.sink.note("plain_quotes", at, "a string between the quotes of another language")

    def _quoted_key(self, text: str, at: int, final: bool) -> int:
        assert self.held is not None
        quote = self.spec.quote.search(text, at)
        if (quote.start() if quote else len(text)) - at > HEADER_LIMIT:
            return self.fail(at, f"a key of more than {HEADER_LIMIT} characters")
        if not quote:
            return -1
        self.key = self.sink.expand(text[at : quote.start()])
        self.held = None
        self.step = self._colon
        return quote.end()

    def _colon(self, text: str, at: int, final: bool) -> int:
        return self._key(at + 1, self.key) if text[at] == ":" else self.expected(at, '":"')

    def _key(self, stop: int, key: str) -> int:
        level = self.levels[-1]
        self.sink.call_arguments(stop, f"{', ' if level.filled else ''}{json_string(key)}: ")
        outermost = len(self.levels) == 1
        self.type = self.sink.parameter(stop, self.name, key) if outermost else level.type.property(key)
        self.key = key
        level.filled = True
        self.step = self._value
        return stop

    def _first_item(self, text: str, at: int, final: bool) -> int:
        """An array's item, or its end."""
        if self._closes(text, at):
            return self._close(at)
        level = self.levels[-1]
        if level.filled:
            self.sink.call_arguments(at, ", ")
        self.type = level.type.item(level.count)
        level.filled = True
        level.count += level.type.varied()
        self.step = self._value
        return at

    def _after(self, text: str, at: int, final: bool) -> int:
        if self._closes(text, at):
            return self._close(at)
        if text[at] != ",":
            known = self._known_key(text, at, final)
            if known < 0:
                return -1
            if not known:
                return self.expected(at, '"," or a closing bracket')
            self.sink.note("missing_comma", at, "a key right behind a value")
            self.step = self._first_key
            return at
        self.step = self._first_item if self.levels[-1].bracket == "[" else self._first_key
        return at + 1

    # Values

    def _value(self, text: str, at: int, final: bool) -> int:
        if quote := self.spec.quote.match(text, at):
            self.held = [] if self.type.known and "string" not in self.type.kinds else None
            self.sink.call_arguments(quote.end(), '"' if self.held is None else "")
            if self.held is None:
                self.type = UNKNOWN
            self.step = self._string
            return quote.end()
        if not final and partial(text, at, self.spec.quotes):
            return -1
        if text[at] in "{[":
            if len(self.levels) >= MAX_DEPTH:
                return self.fail(at, f"nested deeper than {MAX_DEPTH}")
            self.levels.append(_Level(text[at], self.type))
            self.type = UNKNOWN
            _ = self.sink.tools  # what it says of what is inside is the request's own
            self.sink.call_arguments(at + 1, text[at])
            self.step = self._first_key if text[at] == "{" else self._first_item
            return at + 1
        self.held = []
        self.step = {'"': self._double, "'": self._single}.get(text[at], self._bare)
        if self.step == self._bare:
            return at
        self._note_plain(at)
        self.held.append(text[at])
        self.sink.call_arguments(at + 1, "")
        return at + 1

    # Models write JSON's and Python's strings all the same, above all in arrays and objects. They are read whole: what they say, if
    # nothing but they stands there, else their characters.

    def _double(self, text: str, at: int, final: bool) -> int:
        return self._plain(text, at, final, '"')

    def _single(self, text: str, at: int, final: bool) -> int:
        return self._plain(text, at, final, "'")

    def _plain(self, text: str, at: int, final: bool, quote: str) -> int:
        assert self.held is not None
        stop = at
        while match := self.spec.in_plain[quote].search(text, stop):
            stop = match.start()
            if text[stop] == quote:
                stop += 1
                self.step = self._bare
                break
            if text[stop] == "\\":
                if stop + 1 == len(text):
                    break
                stop += 2 if text[stop + 1] in f"\\{quote}" else 1
                continue
            marker = self.sink.marker_at(text, stop, final)
            if marker > 0 or self.spec.quote.match(text, stop) or FIRST <= ord(text[stop]) <= LAST:
                return self.expected(stop, f"the string's end, {quote}")
            if marker < 0 or (not final and partial(text, stop, self.spec.quotes)):
                break
            stop += 1
        else:
            stop = len(text)
        if stop > at:
            self.held.append(text[at:stop])
            self.sink.call_arguments(stop, "")
        return stop if stop > at else -1

    def _string(self, text: str, at: int, final: bool) -> int:
        quote = self.spec.quote.search(text, at)
        stop = quote.start() if quote else len(text) if final else self._held_from(text, at)
        verdict = self._ends_string(text, quote.end(), final) if quote else 0
        if quote and not verdict:
            self.sink.note("ambiguous_value", stop, "a quote is taken for text of the string around it")
            self.inner = True
        if stop > at or (quote and not verdict):
            piece = self.sink.expand(text[at:stop])
            if quote and not verdict:
                piece, stop = f'{piece}"', quote.end()
            if self.held is None:
                self.sink.call_arguments(stop, escape(piece))
            else:
                self.held.append(piece)
                self.sink.call_arguments(stop, "")
        if not quote or verdict <= 0:
            return stop if stop > at else -1
        if self.held is None:
            self.sink.call_arguments(quote.end(), '"')
        else:
            self._whole(stop, quote.end(), "".join(self.held))
        self.step, self.inner = self._after, False
        return quote.end()

    def _ends_string(self, text: str, at: int, final: bool) -> int:
        """Whether the quote that ends at `at` ends the string that is open, by what follows: 1; 0: it is text; -1: it can't be said yet."""
        at = self.skip_space(text, at)
        left = len(self.levels)
        while left and at < len(text) and self._closes(text, at, left - 1):
            left -= 1
            at = self.skip_space(text, at + 1)
        if at == len(text):
            self.waits_on_blank = not final
            return 1 if final else -1
        if not final and partial(text, at, self.spec.quotes):
            return -1
        if not left:  # the call is over, but for a string that quotes an object
            return int(not (text[at] in ",:" or self.spec.quote.match(text, at)))
        if text[at] == ",":
            close = not self.inner or self.step == self._bare or self.levels[left - 1].bracket == "["
            return 1 if close else self._key_follows(text, self.skip_space(text, at + 1), final)
        if FIRST <= ord(text[at]) <= LAST:
            return int(not self.spec.quote.match(text, at))
        marker = self.sink.marker_at(text, at, final)
        if marker:
            return 1 if marker > 0 else -1
        return self._known_key(text, at, final)

    def _key_follows(self, text: str, at: int, final: bool) -> int:
        """Whether a key stands at `at`, or the object's end: as `_ends_string`."""
        if quote := self.spec.quote.match(text, at):
            end = self.spec.quote.search(text, quote.end(), quote.end() + HEADER_LIMIT)
            at = self.skip_space(text, end.end()) if end else len(text)
            if at < len(text):
                return int(text[at] == ":")
            return -1 if not final and len(text) - quote.end() < HEADER_LIMIT else 0
        if at == len(text):
            self.waits_on_blank = not final
            return 0 if final else -1
        if text[at] in "}]" or _PLAIN_KEY.match(text, at, at + HEADER_LIMIT):
            return 1
        if _NEXT_KEY.match(text, at, at + HEADER_LIMIT):
            return 1
        half = len(text) - at < HEADER_LIMIT and (
            _HALF_KEY.fullmatch(text, at) or _HALF_PLAIN_KEY.fullmatch(text, at) or partial(text, at, self.spec.quotes)
        )
        return -1 if half and not final else 0

    def _known_key(self, text: str, at: int, final: bool) -> int:
        """Whether a parameter of the tool and its colon stand at `at`, where a comma should: as `_ends_string`."""
        if len(self.levels) > 1:
            return 0
        word = _WORD_KEY.match(text, at, at + HEADER_LIMIT)
        if word is None:
            return 0
        if word.end() == len(text) and not word[2]:
            return 0 if final else -1
        return int(bool(word[2]) and word[1] in self.sink.tools.keys(self.name))

    def _held_from(self, text: str, at: int) -> int:
        """Where the end of the text begins that could become a quote."""
        longest = max(map(len, self.spec.quotes))
        for start in range(max(at, len(text) - longest + 1), len(text)):
            if partial(text, start, self.spec.quotes):
                return start
        return len(text)

    def _bare(self, text: str, at: int, final: bool) -> int:
        assert self.held is not None
        found, stop = self._bare_end(text, at, final, self.spec.after_bare)
        if not found:
            return self._held_bare(text, at, stop)
        char = text[stop]
        if char == "," and (goes_on := self._goes_on(text, at, stop, final)):
            if goes_on < 0:
                return self._held_bare(text, at, stop)
            self.inner = True
            self.held.append(text[at : stop + 1])
            self.sink.call_arguments(stop + 1, "")
            return stop + 1
        quote = self.spec.quote.match(text, stop)
        if quote and (self.held or stop > at) and not "".join(self.held[:1]).startswith(("'", '"')):
            verdict = self._ends_string(text, quote.end(), final)
            if verdict < 0:
                return self._held_bare(text, at, stop)
            if verdict:
                self.sink.note("missing_quote", stop, "the quote before a string is missing")
                self.held.append(text[at:stop])
                self.step = self._string
                self._whole(stop, quote.end(), self.sink.expand("".join(self.held).lstrip()))
                self.step = self._after
                return quote.end()
        if char in ",]}" or (char == ")" and self.round):
            self.held.append(text[at:stop])
            self._whole(stop, stop, "".join(self.held))
            self.step = self._after
            return stop
        return self.expected(stop, '"," or a closing bracket')

    def _held_bare(self, text: str, at: int, stop: int) -> int:
        """Text of the value is certain up to here."""
        assert self.held is not None
        if stop > at:
            self.held.append(text[at:stop])
            self.sink.call_arguments(stop, "")
        return stop if stop > at else -1

    def _goes_on(self, text: str, at: int, comma: int, final: bool) -> int:
        """Whether a bare value goes on behind this comma, because it is a string whose quotes are missing: as `_ends_string`."""
        assert self.held is not None
        bracket = self.levels[-1].bracket
        if self.inner and bracket == "[":
            return 1
        if not self.inner and _is_whole("".join([*self.held, text[at:comma]])):
            return 0
        _ = self.sink.tools  # nothing is remembered: of another value other things come
        start = self.skip_space(text, comma + 1)
        if bracket == "{":
            key = self._key_follows(text, start, final)
            return key if key < 0 else 1 - key
        found = self.spec.after_comma.search(text, start, start + HEADER_LIMIT)
        if found is None:
            return -1 if not final and len(text) - start < HEADER_LIMIT else 0
        quote = self.spec.quote.match(text, found.start())
        if quote is None:
            return -1 if not final and partial(text, found.start(), self.spec.quotes) else 0
        return self._ends_string(text, quote.end(), final) if found.start() > start else 0

    def _bare_end(self, text: str, at: int, final: bool, ends: re.Pattern[str]) -> tuple[bool, int]:
        """Whether bare text ends in what is there (at one of `ends`, a quote or a marker), and up to where it is certain."""
        while match := ends.search(text, at):
            at = match.start()
            if text[at] == ")" and not self.round:
                at += 1
                continue
            if text[at] in ",:]})" or self.spec.quote.match(text, at) or FIRST <= ord(text[at]) <= LAST:
                return True, at
            marker = self.sink.marker_at(text, at, final)
            if marker:
                return marker > 0, at
            if not final and partial(text, at, self.spec.quotes):
                return False, at
            if ends is self.spec.after_key and text[at] == "<":
                return True, at  # no key holds one
            at += 1
        return False, len(text)

    def _json(self, text: str) -> Coerced:
        """What a value comes to that is read whole."""
        if self.step != self._bare:
            return coerce(text, self.type)
        text, kinds = text.strip(), self.type.kinds
        if (said := _plain_text(text)) is not None:
            return coerce(said, UNKNOWN if "string" in kinds else self.type)
        if text in _NULLS:
            return Coerced("null")
        if not _LITERAL.fullmatch(text):
            return coerce(text, self.type)
        if "string" in kinds and not kinds & {"number", "integer", "boolean"}:
            return Coerced(json_string(text))  # an article number 7710 is no number where 0771 isn't
        return Coerced(text)

    def _whole(self, end: int, stop: int, text: str) -> None:
        """A value has been read whole: its text ends at `end`, and what closes it at `stop`."""
        result = self._json(text)
        if not result.fits:
            self.note_mismatch(stop, self.key)
        self.sink.value_end(end, result.json)
        self.sink.call_arguments(stop, result.json)
        self.held, self.type, self.inner = None, UNKNOWN, False

    # What is remembered

    exact: ClassVar[bool] = True
    forgets: ClassVar[bool] = True

    @property
    def gathers(self) -> bool:
        return self.held is not None and self.step in (self._string, self._bare)

    def whole_value(self, tail: str) -> str | None:
        if self.held is None or not self.gathers:
            return None  # all of it came at once
        text = "".join([*self.held, tail])
        if self.step == self._bare and not _is_whole(text):
            return None  # it may go on behind what would end it
        result = self._json(text)
        return result.json if result.fits else None

    def place(self) -> Hashable | None:
        """Only of what stands in the outermost object, or in an array there whose items are alike."""
        inside = len(self.levels) == 2
        within = self.step in (self._double, self._single) or (self.inner and self.held is not None)
        if self.done or within or len(self.levels) > 2 or (inside and (self.gathers or self._item_kinds() is None)):
            return None
        key = self.key if self.step == self._colon else ""
        return (
            self.spec, self.step.__name__, tuple([level.filled for level in self.levels]), self._item_kinds() if inside else None,
            self.type.kinds, self.held is not None, key, self.named, self.round, self.plain, self.begun, self.inner,
        )  # fmt: skip

    def _item_kinds(self) -> Hashable | None:
        """The types that the items of an array may have which stands in the outermost object; `None`: they differ."""
        level = self.levels[1]
        return None if level.bracket == "{" or level.type.varied() else level.type.item().kinds

    def resume(self, place: Any) -> None:
        before = self.step
        _, step, filled, _, kinds, held, key, self.named, self.round, self.plain, self.begun, self.inner = place
        self.step = getattr(self, step)
        gathers = held and step in ("_string", "_bare")
        name, begun, text = self.sink.missed(gathers)
        self.name = name or self.name
        if begun:
            self.key, self.type = begun[-1]
        if step == "_colon":
            self.key = key
        del self.levels[len(filled) :]
        if filled and not self.levels:
            self.levels.append(_Level("{", UNKNOWN))
        for level, some in zip(self.levels, filled, strict=True):
            level.filled = some
        if len(filled) == 2 and kinds:
            self.type = self.levels[1].type.item()
        elif not kinds:
            self.type = UNKNOWN
        if not held:
            self.held = None
        elif begun or self.held is None or before == self._value or not gathers:
            self.held = []
            if step == "_string":
                text = self._unquoted(text)
        if text and self.held is not None:
            self.held.append(text)

    def _unquoted(self, text: str) -> str:
        """A string's text behind its quote."""
        text = text.lstrip()
        return next(text[len(quote) :] for quote in self.spec.spelled if text.startswith(quote))

    def finish(self) -> Outcome:
        return "malformed" if self.begun else "blank"
