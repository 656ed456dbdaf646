"""The offered tools, resolved once a request into one decision per parameter: which JSON types its value may have.

Formats that write arguments as tags or bare text leave types open: `<parameter=days>3</parameter>` is a number or a
string depending on the tool's JSON schema. Codecs, decode-time grammars and protocols must give the same answer, so it
is given here and nowhere else. Two rules hold throughout:

- Text is sacred. Where the schema says string, or says nothing, the text is the value, character for character.
- A schema is a client's, and clients write anything. No JSON value offered as a schema raises here: what can't be
  understood (a broken or endless `$ref`, an unheard-of type) is unknown, and unknown means text.

What is resolved is deliberately less than JSON Schema: the types that a value may have. `not`, `if` and `pattern` never
change how text is read, only whether the result is valid.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from json.encoder import encode_basestring
from typing import Any, Final, Literal, NamedTuple, get_args
from urllib.parse import unquote

Kind = Literal["null", "integer", "number", "boolean", "object", "array", "string"]

MAX_DEPTH: Final = 200
"""Arguments may nest this deep, however a format writes them; beyond, a value that may be text is text, and any other body is malformed.
Real ones stay below 20; parsers of clients fail near 1000."""

_MAX_LITERAL = 100_000  # characters of a Python literal; the compiler's memory grows by some hundred bytes for each
_MAX_INDIRECTION = 64  # `$ref`s and combinators on the way to a type; the deepest real schemas need about ten

_NOTHING: frozenset[Kind] = frozenset()
_TEXT: frozenset[Kind] = frozenset(("string",))


# -- types -------------------------------------------------------------------------------------------------------------


@dataclass(slots=True, unsafe_hash=True)
class Type:
    """What a schema says of a value's type. Made for every parameter of a call, so it isn't frozen, which would cost: treat it as fixed."""

    kinds: frozenset[Kind] = _NOTHING
    """The JSON types that the value may have, e.g. `{"integer", "null"}`. Empty if nothing is known."""
    known: bool = False
    """False: no schema says anything."""
    _schema: Any = field(default=None, repr=False, compare=False)
    _resolver: _Resolver | None = field(default=None, repr=False, compare=False)

    @property
    def is_text(self) -> bool:
        """Whether text is the value as it stands, so that it may stream before its end is known."""
        return not self.known or self.kinds == _TEXT

    def property(self, key: str) -> Type:
        """The type of a property of an object of this type."""
        return self._resolver.property(self._schema, key) if self._resolver else UNKNOWN

    def item(self, index: int | None = None) -> Type:
        """The type of an array's item: the one at `index`, or any."""
        return self._resolver.item(self._schema, index) if self._resolver else UNKNOWN

    def varied(self) -> bool:
        """Whether an array's items are described one by one."""
        return self._resolver is not None and self._resolver.varied(self._schema)

    def container(self) -> Literal["object", "array"] | None:
        """The container that the schema names first, for a value that shows none."""
        first = self._resolver.container(self._schema) if self._resolver else None
        return first if first in self.kinds else None


UNKNOWN = Type()


class _Resolver:
    """Reads one tool's schema, on demand: a schema of a thousand parameters costs what the used ones cost."""

    __slots__ = ("_branches", "_types", "_unions", "root")

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        # Keyed by identity, which is sound while the schemas live: `root` and `_unions` hold them.
        self._types: dict[int, Type] = {}
        self._branches: dict[int, list[Mapping[str, Any]]] = {}
        self._unions: dict[tuple[int, ...], Mapping[str, Any]] = {}

    def type(self, schema: Any) -> Type:
        if type(schema) is not dict and not isinstance(schema, Mapping):  # an abstract class is slow to ask
            return UNKNOWN
        found = self._types.get(id(schema))
        if found is None:
            kinds = _plain_kinds(schema) or self._kinds(schema, {}, 0)
            # Without kinds there may still be something below: an object whose type is only implied by a cycle.
            found = self._types[id(schema)] = Type(kinds or _NOTHING, bool(kinds), schema, self)
        return found

    def property(self, schema: Any, key: str) -> Type:
        if type(schema) is dict and _LEADS.isdisjoint(schema):  # as nearly all schemas of tools are
            properties = schema.get("properties")
            if type(properties) is dict and key in properties:
                return self.type(properties[key])
        branches = self._applying(schema)
        named = [found[key] for branch in branches if key in (found := _mapping(branch.get("properties")))]
        return self._any(
            named or [rest for branch in branches if isinstance(rest := branch.get("additionalProperties"), Mapping)]
        )

    def item(self, schema: Any, index: int | None) -> Type:
        return self._any([each for branch in self._applying(schema) for each in _item_schemas(branch, index)])

    def varied(self, schema: Any) -> bool:
        return any(_listed(branch, "prefixItems", "items") for branch in self._applying(schema))

    def keys(self) -> tuple[str, ...]:
        names = (_mapping(branch.get("properties")) for branch in self._applying(self.root))
        return tuple(dict.fromkeys(name for found in names for name in found))

    def required(self) -> frozenset[str]:
        """What every branch that applies for sure requires: through references and `allOf`, not one of several."""
        found: set[str] = set()
        seen: set[int] = set()
        waiting: list[Any] = [self.root]
        while waiting:
            branch = waiting.pop()
            if isinstance(branch, Mapping) and id(branch) not in seen:
                seen.add(id(branch))
                found.update(key for key in _listed(branch, "required") if isinstance(key, str))
                waiting += [*self._target(branch), *_listed(branch, "allOf")]
        return frozenset(found)

    def container(self, schema: Any) -> Literal["object", "array"] | None:
        for branch in self._applying(schema):
            names = branch.get("type")
            kinds = [_kind_named(name) for name in (names if isinstance(names, list) else [names])]
            for kind in kinds:
                if kind == "object" or kind == "array":
                    return kind
            if implied := _implied_kinds(branch):
                return "object" if "object" in implied else "array"
        return None

    def _any(self, schemas: list[Any]) -> Type:
        """The type of a value described by several branches: the union, for we don't know which branch was taken."""
        if len(schemas) < 2:
            return self.type(schemas[0]) if schemas else UNKNOWN
        return self.type(self._unions.setdefault(tuple(map(id, schemas)), {"anyOf": schemas}))

    def _applying(self, schema: Any) -> list[Mapping[str, Any]]:
        """The schema and all that it leads to without going into a value: through references and combinators."""
        found = self._branches.get(id(schema))
        if found is None:
            found = self._branches[id(schema)] = []
            seen: set[int] = set()
            waiting = [schema]
            while waiting:
                branch = waiting.pop()
                if isinstance(branch, Mapping) and id(branch) not in seen:
                    seen.add(id(branch))
                    found.append(branch)
                    waiting += reversed([*self._target(branch), *_listed(branch, "anyOf", "oneOf", "allOf")])
        return found

    def _kinds(self, schema: Any, memo: dict[int, frozenset[Kind] | None], depth: int) -> frozenset[Kind] | None:
        """The kinds that a schema allows; None if it doesn't say. The memo makes each schema cost once a question."""
        if schema is False:
            return _NOTHING
        if not isinstance(schema, Mapping) or depth > _MAX_INDIRECTION:
            return None
        if id(schema) not in memo:
            memo[id(schema)] = _NOTHING  # what a cycle sees when it comes back: it adds nothing
            memo[id(schema)] = self._resolve(schema, memo, depth + 1)
        return memo[id(schema)]

    def _resolve(
        self, schema: Mapping[str, Any], memo: dict[int, frozenset[Kind] | None], depth: int
    ) -> frozenset[Kind] | None:
        parts = [_own_kinds(schema)]
        parts += [self._kinds(each, memo, depth) for each in (*self._target(schema), *_listed(schema, "allOf"))]
        for word in ("anyOf", "oneOf"):
            if options := _listed(schema, word):
                parts.append(_join([self._kinds(each, memo, depth) for each in options]))
        found = _meet(parts)
        return found | {"null"} if found and schema.get("nullable") is True else found

    def _target(self, schema: Mapping[str, Any]) -> tuple[Any, ...]:
        """What `$ref` points to, as a sequence of none or one."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#"):
            return ()
        at: Any = self.root
        for token in unquote(reference[1:]).split("/")[1:]:
            token = token.replace("~1", "/").replace("~0", "~")
            if isinstance(at, Mapping) and token in at:
                at = at[token]
            elif isinstance(at, list) and token.isdecimal() and len(token) < 9 and int(token) < len(at):
                at = at[int(token)]
            else:
                return ()
        # "#name" is an anchor, not a pointer: rare in tools, and unknown here.
        return (at,) if reference == "#" or reference.startswith("#/") else ()


def _join(options: list[frozenset[Kind] | None]) -> frozenset[Kind] | None:
    """Any of them: the union. An option that says nothing takes text as it stands, like a whole schema that does."""
    known = frozenset[Kind]().union(*filter(None, options))
    if None not in options:
        return known
    return known | {"string"} if known else None


def _meet(parts: list[frozenset[Kind] | None]) -> frozenset[Kind] | None:
    """All of them: what they have in common, as far as they say something.

    Parts with nothing in common are a mistake (`{"type": "string", "enum": [1, 2]}`): then any of them will do.
    """
    found: frozenset[Kind] | None = None
    for part in parts:
        if not found or not part:
            found = found or part
        else:
            found = _with_integers(found) & _with_integers(part) or found | part
    return found


def _with_integers(kinds: frozenset[Kind]) -> frozenset[Kind]:
    """An integer is a number, so `number` and `integer` have `integer` in common."""
    return kinds | {"integer"} if "number" in kinds else kinds


def _own_kinds(schema: Mapping[str, Any]) -> frozenset[Kind] | None:
    """What a schema says itself: by its types, by the values that it lists, or by what only one type can have."""
    names = schema.get("type")
    named: frozenset[Kind] = frozenset(filter(None, map(_kind_named, names if isinstance(names, list) else [names])))
    values = [*_listed(schema, "enum"), *([schema["const"]] if "const" in schema else [])]
    valued: frozenset[Kind] = frozenset(filter(None, map(_kind_of, values)))
    return _meet([named or None, valued or None]) or _implied_kinds(schema)


_LEADS = frozenset(("$ref", "allOf", "anyOf", "oneOf"))
"""Words by which a schema leads to others."""
_MORE = _LEADS | {"const", "enum", "nullable"}
"""Words that have a say in a schema's kinds besides its `type`."""


def _plain_kinds(schema: Mapping[str, Any]) -> frozenset[Kind] | None:
    """The kinds of a schema that gives one type by its right name and nothing else that counts, as most do."""
    name = schema.get("type")
    return _ONLY.get(name) if isinstance(name, str) and _MORE.isdisjoint(schema) else None


def _implied_kinds(schema: Mapping[str, Any]) -> frozenset[Kind] | None:
    # `required` only as a list: clients also mark a single parameter `"required": true`, which isn't about its type.
    if "properties" in schema or "additionalProperties" in schema or isinstance(schema.get("required"), list):
        return frozenset(("object",))
    return frozenset(("array",)) if "items" in schema or "prefixItems" in schema else None


def _item_schemas(schema: Mapping[str, Any], index: int | None) -> list[Any]:
    rest = schema.get("items")
    first = [*_listed(schema, "prefixItems"), *_listed(schema, "items")]  # `items` as a list is the older spelling
    if index is not None and 0 <= index < len(first):
        return [first[index]]
    tail = [rest] if isinstance(rest, Mapping) else []
    return [*first, *tail] if index is None else tail


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(schema: Mapping[str, Any], *words: str) -> list[Any]:
    return [each for word in words if isinstance(found := schema.get(word), list) for each in found]


_KINDS: frozenset[str] = frozenset(get_args(Kind))
_ONLY: Mapping[str, frozenset[Kind]] = {kind: frozenset((kind,)) for kind in get_args(Kind)}

# Names that real tools use for types: Python's, C's and Gemini's (upper case). vLLM takes most of them, too.
_LOOSE: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile(r"u?int(eger)?(8|16|32|64|128)?|u?long|u?short|byte|unsigned"), "integer"),
    (re.compile(r"num|numeric|float(16|32|64)?|double|decimal"), "number"),
    (re.compile(r"bool|binary"), "boolean"),
    (re.compile(r"dict(ionary)?|map(ping)?|struct"), "object"),
    (re.compile(r"arr|list|tuple|set|seq(uence)?"), "array"),
    (re.compile(r"str|text|varchar|char|enum|uuid|ur[il]|date([-_]?time)?|time|path|file"), "string"),
    (re.compile(r"none(type)?|nil"), "null"),
)


def _kind_named(name: Any) -> Kind | None:
    """A type's name, loosely spelled: `STRING`, `int64`, `List[str]`."""
    if not isinstance(name, str):
        return None
    plain = re.split(r"[\[<(]", name.strip().lower(), maxsplit=1)[0]
    if plain in _KINDS:
        return plain  # type: ignore[return-value]  # membership narrows it
    return next((kind for pattern, kind in _LOOSE if pattern.fullmatch(plain)), None)


def _kind_of(value: Any) -> Kind | None:
    """The type of a value that a schema lists. A bool is asked for first: Python takes it for an int."""
    return next((kind for python, kind in _PYTHON_KINDS if isinstance(value, python)), None)


_PYTHON_KINDS: tuple[tuple[type, Kind], ...] = (
    (type(None), "null"),
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (Mapping, "object"),
    (list, "array"),
)


# -- tools -------------------------------------------------------------------------------------------------------------


class Tools:
    """The tools of one request, by name."""

    __slots__ = ("_given", "_known", "_resolvers")

    def __init__(
        self, schemas: Mapping[str, Mapping[str, Any] | None] | None, given: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """`schemas`: name -> parameters schema, or None if the tool has none. `None`: they are in `given`, as for `resolve`."""
        self._given = given
        self._known = None if schemas is None else dict(schemas)
        self._resolvers: dict[str, _Resolver] = {}

    @classmethod
    def resolve(cls, tools: Sequence[Mapping[str, Any]] | None) -> Tools:
        """From Chat Completions tools, flat Responses tools or bare functions. What has no name is passed over.

        >>> Tools.resolve([{"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}]).parameter("f", "n")
        Type(kinds=frozenset({'integer'}), known=True)
        """
        return cls(None, tools) if tools else NO_TOOLS

    @property
    def _schemas(self) -> dict[str, Mapping[str, Any] | None]:
        """Read when the first call needs them: most answers call nothing."""
        if self._known is None:
            self._known = dict(_functions(self._given))
        return self._known

    def lack(self, name: str) -> bool:
        """Whether tools were offered, and none of this name."""
        known = self._schemas if self._known is None else self._known
        return bool(known) and name not in known

    @property
    def names(self) -> tuple[str, ...]:
        """In the order in which they were offered."""
        return tuple(self._schemas)

    def __contains__(self, name: object) -> bool:
        return name in self._schemas

    def __len__(self) -> int:
        return len(self._schemas)

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The tool's parameters schema as the client sent it; None if it has none, or isn't offered."""
        return self._schemas.get(name)

    def arguments(self, name: str) -> Type:
        """The type of the tool's arguments as a whole."""
        resolver = self._resolver(name)
        return resolver.type(self._schemas[name]) if resolver else UNKNOWN

    def parameter(self, name: str, key: str) -> Type:
        """The type of one parameter; unknown for an unknown tool or parameter."""
        resolver = self._resolvers.get(name) or self._resolver(name)
        return resolver.property(resolver.root, key) if resolver else UNKNOWN

    def keys(self, name: str) -> tuple[str, ...]:
        """The names of the tool's parameters, as far as its schema lists them."""
        resolver = self._resolver(name)
        return resolver.keys() if resolver else ()

    def required(self, name: str) -> frozenset[str]:
        """The names of the parameters without which no call of the tool is valid."""
        resolver = self._resolver(name)
        return resolver.required() if resolver else frozenset()

    def _resolver(self, name: str) -> _Resolver | None:
        schema = self._schemas.get(name)
        if schema is None:
            return None
        if name not in self._resolvers:
            self._resolvers[name] = _Resolver(schema)
        return self._resolvers[name]

    def __repr__(self) -> str:
        return f"<Tools: {', '.join(self._schemas) or 'none'}>"


NO_TOOLS = Tools({})


def _functions(tools: Iterable[Any]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
    for tool in tools:
        inner = tool.get("function") if type(tool) is dict else None
        if type(inner) is not dict:  # nearly all are dictionaries, and an abstract class is slow to ask
            outer = _mapping(tool)
            words = ("function", "custom")
            inner = next((outer[word] for word in words if isinstance(outer.get(word), Mapping)), outer)
        name = inner.get("name")
        # Anthropic's word for it is `input_schema`.
        schema = inner.get("parameters", inner.get("input_schema"))
        if isinstance(name, str) and name:
            yield name, schema if type(schema) is dict or isinstance(schema, Mapping) else None


# -- text to JSON ------------------------------------------------------------------------------------------------------


class Coerced(NamedTuple):
    """A value read from text."""

    json: str
    """JSON text of the value."""
    fits: bool = True
    """False: no type that the schema allows fits the text, which therefore stayed a string."""


_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_LOOSE_INTEGER = re.compile(r"([+-]?)([0-9]+)")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LOOSE_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BOOLEANS = {"true": "true", "false": "false", "1": "true", "0": "false"}


def coerce(text: str, type: Type, *, python_literals: bool = True) -> Coerced:
    """`text`, written where the format leaves its type open, as JSON.

    The first kind that fits wins: null, integer, number, boolean, object, array, and string last. The model's own
    spelling is kept wherever it is JSON already; containers are passed on byte for byte.

    >>> coerce("3", Type(frozenset({"integer"}), known=True)).json
    '3'
    >>> coerce("3", UNKNOWN).json
    '"3"'
    """
    if type.is_text:
        return Coerced(json_string(text))
    found = _not_a_string(text.strip(), type.kinds, python_literals)
    if found is not None:
        return Coerced(found)
    return Coerced(json_string(text), "string" in type.kinds)


def _not_a_string(text: str, kinds: frozenset[Kind], python_literals: bool) -> str | None:
    if "null" in kinds and text.lower() in ("null", "none"):
        return "null"
    if "integer" in kinds and (found := _integer(text)):
        return found
    if "number" in kinds and (found := _number(text)):
        return found
    if "boolean" in kinds and (found := _BOOLEANS.get(text.lower())):
        return found
    return _container(text, kinds, python_literals) if kinds & {"object", "array"} else None


def _integer(text: str) -> str | None:
    """Read by spelling, not through `int`: an id of twenty thousand digits stays what it is."""
    if _INTEGER.fullmatch(text):
        return text
    loose = _LOOSE_INTEGER.fullmatch(text)  # +5, 007
    return f"{loose[1].strip('+')}{loose[2].lstrip('0') or '0'}" if loose else None


def _number(text: str) -> str | None:
    if found := _integer(text):
        return found
    if not _LOOSE_NUMBER.fullmatch(text) or not math.isfinite(value := float(text)):
        return None
    strict = _NUMBER.fullmatch(text)
    if strict:
        # 5.0 becomes 5, as in vLLM: many tools ask for a "number" and index with it. 1e20 stays as it is.
        integral = strict[2] and not strict[3] and not strict[2].strip(".0")
        return strict[1] if integral else text
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)  # +1.5, .5, 5.


def _container(text: str, kinds: frozenset[Kind], python_literals: bool) -> str | None:
    """`text` if it is JSON of an allowed container, else the JSON of a Python literal of one."""
    if text[:1] not in ("{", "[", "("):
        return None
    try:
        value = parse_json(text) if "string" in kinds else _parse_json(text, _BY_SPELLING)
    except ValueError:
        return _python_container(text, kinds) if python_literals else None
    return _escape_surrogates(text) if _kind_of(value) in kinds & {"object", "array"} else None


def _python_container(text: str, kinds: frozenset[Kind]) -> str | None:
    """Models trained on Python write {'a': True} where JSON is meant. Tuples and sets are arrays.

    But not where a string is allowed as well: there `{1,2}` is more likely to be a text.
    """
    if len(text) > _MAX_LITERAL or _depth(text) > MAX_DEPTH:
        return None
    if any(word[1] for word in _NUMBER_THEN_WORD.finditer(text)):
        return None  # `[5in, 3in]`
    try:
        value = ast.literal_eval(_double_odd_backslashes(text))
        allowed = isinstance(value, (dict, list)) or "string" not in kinds
        plain = _plain(value)
        if not allowed or _kind_of(plain) not in kinds & {"object", "array"}:
            return None
        return _escape_surrogates(json.dumps(plain, ensure_ascii=False, allow_nan=False))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        # All of them are ways in which Python says that this isn't a literal; TypeError: {[]: 1} can't be hashed.
        return None


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_NUMBER_THEN_WORD = re.compile(
    r"""'(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|((?<![\w.])\d[\w.]*(?:and|else|for|if|in|is|not|or))""", re.DOTALL
)
"""No literal, but Python's parser writes a warning to standard error before it says so. Strings are passed over."""
_RAW_PREFIX = re.compile(r"\b(?:[rR][bB]?|[bB][rR])['\"]")


def _double_odd_backslashes(text: str) -> str:
    r"""`'\d'` is a deprecated spelling of `'\\d'`. Said properly, so that the compiler doesn't warn about the model."""
    if "\\" not in text or _RAW_PREFIX.search(text):
        return text
    return _ESCAPE.sub(lambda found: found[0] if found[1] in "\\'\"\nabfnrtvxuUN01234567" else "\\" + found[0], text)


def _plain(value: Any) -> Any:
    """A Python literal as JSON values. ValueError for what JSON can't say: bytes, complex numbers, `...`."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {_plain_key(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)  # a set forgets its order, and strings hash differently in every process
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    raise ValueError(f"{type(value).__name__} has no JSON")


def _plain_key(key: Any) -> str:
    if isinstance(key, str):
        return key
    return json.dumps(key) if key is None or isinstance(key, (bool, int, float)) else str(key)


# -- JSON --------------------------------------------------------------------------------------------------------------

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def json_string(text: str) -> str:
    r"""A JSON string literal, always encodable as UTF-8: a lone surrogate is written as its escape.

    >>> print(json_string('Ærø "x"\n\ud800'))
    "Ærø \"x\"\n\ud800"
    """
    return _escape_surrogates(encode_basestring(text))


def escape(text: str) -> str:
    """The same without its quotes: a piece of a string that streams."""
    inside = encode_basestring(text)[1:-1]
    return inside if text.isascii() else _escape_surrogates(inside)


def is_json_object(text: str) -> bool:
    """Whether `text` is the JSON of an object, by the rules of `parse_json`."""
    try:
        return isinstance(parse_json(text), dict)
    except ValueError:
        return False


def is_json(text: str) -> bool:
    """Whether `text` is JSON, by the rules of `parse_json`."""
    try:
        parse_json(text)
    except ValueError:
        return False
    return True


def parse_json(text: str) -> Any:
    """Strict JSON: no NaN, at most `MAX_DEPTH` deep; anything else is a ValueError, and nothing else is raised.

    A number beyond Python's limits (an int of thousands of digits, 1e999) comes as a Decimal, which is exact.
    """
    return _parse_json(text, _DECODER)


def _parse_json(text: str, decoder: json.JSONDecoder) -> Any:
    if _depth(text) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    return decoder.decode(text)


def has_surrogate(text: str) -> bool:
    """Whether a lone surrogate stands in the text: nothing is quicker to find one than an attempt to encode it."""
    if text.isascii():
        return False
    try:
        text.encode("utf-16-le")
    except UnicodeEncodeError:
        return True
    return False


def _escape_surrogates(json_text: str) -> str:
    if not has_surrogate(json_text):
        return json_text
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def _parse_int(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 4000 else Decimal(digits)  # CPython refuses to read more than 4300


def _parse_float(digits: str) -> float | Decimal:
    value = float(digits)
    if math.isfinite(value):
        return value
    try:
        return Decimal(digits)
    except InvalidOperation as error:
        raise ValueError(f"{digits[:40]} is beyond any number") from error


def no_constant(name: str) -> None:
    """`NaN` and the infinities, which the standard library's decoder would take: for its `parse_constant`."""
    raise ValueError(f"{name} isn't JSON")


_DECODER = json.JSONDecoder(parse_int=_parse_int, parse_float=_parse_float, parse_constant=no_constant)
_BY_SPELLING = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=no_constant)
"""Takes any number that JSON can write, however large, where it can be nothing else."""

# A string (either quote: Python literals are measured, too; an unclosed one runs to the end) or a bracket.
_BRACKETS = re.compile(r""" "(?:[^"\\]|\\.)*+"? | '(?:[^'\\]|\\.)*+'? | [\[{(] | [\]})] """, re.DOTALL | re.VERBOSE)


def _depth(text: str) -> int:
    """How deep brackets are nested, outside of strings; measured before parsing, which would use the stack."""
    opening = text.count("[") + text.count("{") + text.count("(")
    if opening <= MAX_DEPTH:
        return opening
    depth = deepest = 0
    for found in _BRACKETS.finditer(text):
        if found[0] in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif found[0] in "]})":
            depth -= 1
    return deepest
