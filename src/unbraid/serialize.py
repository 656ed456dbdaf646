"""A table as JSON and back, so that a team can ship one beside its model, and a schema by which editors check it.

    {"unbraid_table": 1, "name": "acme", "about": "Acme 1: calls as JSON",
     "markers": {"<call>": {"spellings": [[{"special": "<call>"}]], "after": "\\n"}, ...},
     "states": {"content": {"strand": "content", "row": {"<call>": "calling"}},
                "calling": {"strand": "tool_call", "codec": {"codec": "JsonObject"}, "row": {"</call>": "content"}}},
     "turns": {"<|end|>": "ended"}}

Nothing here knows the words of a table: fields, types and defaults are read off the dataclasses of `unbraid.table` and
`unbraid.codecs`, so a new word or codec is covered the moment it exists. What equals its default isn't written. Markers
and states are named once and referred to by name; `start` and `ended` are the states of those names in `unbraid.table`.

    python -m unbraid.serialize        prints the schema: this is how table.schema.json is made
"""

from __future__ import annotations

import ast
import functools
import json
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

import unbraid.codecs
from unbraid.codecs.base import Codec
from unbraid.errors import TableError
from unbraid.table import ENDED, START, Format, Marker, Piece, State

VERSION = 1
VERSION_KEY = "unbraid_table"
_SCALARS: Mapping[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_FIXED = {"start": START, "ended": ENDED}
"""States that every table shares: the machine knows them by identity."""
_OWN = ("states", "turns")
"""Fields of a format that are written by names."""


def codecs() -> dict[str, type]:
    """Every codec that there is, by its name in a table: the dataclasses that `unbraid.codecs` shows."""
    found = vars(unbraid.codecs).values()
    return {c.__name__: c for c in found if isinstance(c, type) and is_dataclass(c) and hasattr(c, "compile")}


class _Field:
    """One field of a dataclass: its type and what it is if nothing is said."""

    __slots__ = ("default", "hint", "name")

    def __init__(self, name: str, hint: Any, default: Any) -> None:
        self.name = name
        self.hint = hint
        self.default = default


_known: dict[type, dict[str, _Field]] = {}


def _fields(cls: Any) -> dict[str, _Field]:
    if cls not in _known:
        _known[cls] = _look_up(cls)
    return _known[cls]


def _look_up(cls: Any) -> dict[str, _Field]:
    hints = _hints(cls)
    found = {}
    for f in fields(cls):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        if not f.name.startswith("_"):
            found[f.name] = _Field(f.name, hints[f.name], default)
    return found


def _hints(cls: type) -> dict[str, Any]:
    """The types of its fields. A class that mypyc has compiled keeps the outlines of them only; its source has them all."""
    said: dict[str, Any] = vars(cls).get("__annotations__", {})
    if not all(isinstance(hint, str) for hint in said.values()):
        nodes = [node for node in _definition(cls).body if isinstance(node, ast.AnnAssign)]
        said = {ast.unparse(node.target): ast.unparse(node.annotation) for node in nodes}
    names = {**vars(sys.modules[cls.__module__]), "Codec": Codec}
    return get_type_hints(types.SimpleNamespace(__annotations__=said), names)


def _definition(cls: type) -> ast.ClassDef:
    """The class in its source, which lies beside what was compiled from it."""
    home = cls.__module__
    tree = _tree(Path(str(sys.modules[home].__file__)).with_name(f"{home.rpartition('.')[2]}.py"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)


@functools.cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _pieces() -> dict[str, type]:
    """The kinds of piece that are more than text, by the key that tells them: `{"special": "<think>"}`."""
    return {cls.__name__.lower(): cls for cls in get_args(Piece) if cls is not str}


# -- out ---------------------------------------------------------------------------------------------------------------


def to_json(fmt: Format) -> dict[str, Any]:
    """The table as JSON: dicts, lists, strings and numbers only."""
    return _Writer(fmt).format()


class _Writer:
    def __init__(self, fmt: Format) -> None:
        self.fmt = fmt
        self.states: dict[State, str] = {}
        for name, state in _FIXED.items():
            self.states[state] = name
        for state in fmt.states:
            _name(self.states, state, state.name)
        self.markers: dict[Marker, str] = {}
        for row in [*fmt.states.values(), fmt.turns]:
            for marker in row:
                _name(self.markers, marker, str(marker))

    def format(self) -> dict[str, Any]:
        fmt = self.fmt
        out: dict[str, Any] = {VERSION_KEY: VERSION}
        out |= {key: value for key, value in self.fields(fmt).items() if key not in _OWN}
        out["markers"] = {name: self.fields(marker) for marker, name in self.markers.items()}
        out["states"] = {self.states[state]: self.state(state) for state in fmt.states}
        out["turns"] = self.row(fmt.turns)
        return out

    def state(self, state: State) -> dict[str, Any]:
        said = {} if state in _FIXED.values() else self.fields(state)
        if said.get("name") == self.states[state]:
            del said["name"]
        return {**said, "row": self.row(self.fmt.states[state])}

    def row(self, row: Mapping[Marker, State]) -> dict[str, Any]:
        return {self.markers[marker]: self.value(target) for marker, target in row.items()}

    def fields(self, thing: Any) -> dict[str, Any]:
        """The fields of a dataclass that aren't what they are by default."""
        out = {}
        for name, f in _fields(type(thing)).items():
            value = getattr(thing, name)
            if name not in _OWN and (f.default is MISSING or value != f.default):
                out[name] = self.value(value)
        return out

    def value(self, value: Any) -> Any:
        if isinstance(value, State):
            return self.states.get(value) or self.fields(value)
        if isinstance(value, tuple | list):
            return [self.value(item) for item in value]
        if isinstance(value, Mapping):
            return {key: self.value(item) for key, item in value.items()}
        if not is_dataclass(value):
            return value
        cls = type(value)
        if codecs().get(cls.__name__) is cls:
            return {"codec": cls.__name__, **self.fields(value)}
        if _pieces().get(cls.__name__.lower()) is cls:
            first, *_ = _fields(cls)
            rest = {name: said for name, said in self.fields(value).items() if name != first}
            return {cls.__name__.lower(): getattr(value, first), **rest}
        return self.fields(value)


def _name(names: dict[Any, str], thing: Any, name: str) -> None:
    """Give `thing` this name, or the next free one like it."""
    if thing not in names:
        taken, number = set(names.values()), 1
        while (free := name if number == 1 else f"{name} {number}") in taken:
            number += 1
        names[thing] = free


# -- in ----------------------------------------------------------------------------------------------------------------


def from_json(data: Any, source: str = "") -> Format:
    """The table that this JSON says. `source`: what an error calls it if it has no name.

    Raises `TableError`, naming the place (`states/calling/codec/ends: expected "first" or "followed", found "last"`).
    """
    return _Reader(data, source or "table").format()


def load(path: str | Path) -> Format:
    """The table in this file, or of the response template in it (a `tokenizer_config.json`, or one by itself)."""
    file = str(path)
    try:
        data = json.loads(Path(path).read_bytes(), object_pairs_hook=_without_twins)
    except OSError as error:
        raise TableError(file, f"can't be read ({error.strerror or error})") from error
    except RecursionError as error:
        raise TableError(file, "nested too deeply to be a table") from error
    except ValueError as error:
        raise TableError(file, f"not JSON ({error})") from error
    if isinstance(data, dict) and is_response(data):
        from unbraid.response_template import read

        if (found := read(path)) is not None:
            return found
    return from_json(data, file)


def is_response(data: Mapping[str, Any]) -> bool:
    """Whether this JSON is no table but a response template or schema, or a configuration that holds one."""
    keys = {"fields", "properties", "response_template", "response_schema"}
    return VERSION_KEY not in data and not keys.isdisjoint(data)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {twin!r} is there twice in one object")
    return found


class _Reader:
    def __init__(self, data: Any, source: str) -> None:
        self.source = source
        self.data = self.object(data, "(top)")
        self.markers: dict[str, Marker] = {}
        self.states: dict[str, State] = dict(_FIXED)
        self.said: dict[str, Any] = {}
        self.open: list[str] = []

    def format(self) -> Format:
        data = self.data
        if data.get(VERSION_KEY) != VERSION or isinstance(data[VERSION_KEY], bool):
            self.fail(VERSION_KEY, f"expected {VERSION}, found {_shown(data.get(VERSION_KEY))}")
        for key in ("name", "markers", "states", "turns"):
            if key not in data:
                self.fail(key, "is missing")
        for key, marker in self.object(data["markers"], "markers").items():
            self.markers[key] = Marker(**self.build(Marker, marker, f"markers/{key}"))
        self.said = self.object(data["states"], "states")
        states = {self.state(key, f"states/{key}"): self.row_of(key) for key in self.said}
        if len(states) < len(self.said):
            self.fail("states", "two entries say the same state: give one another `name`")
        turns = self.row(data["turns"], "turns")
        own = {VERSION_KEY, "$schema", "markers", *_OWN}
        said = self.build(Format, {key: value for key, value in data.items() if key not in own}, "", _OWN)
        return Format(**said, states=states, turns=turns)

    def row_of(self, key: str) -> dict[Marker, State]:
        place = f"states/{key}"
        said = self.object(self.said[key], place)
        if "row" not in said:
            self.fail(f"{place}/row", "is missing: markers that count here, and where each leads")
        return self.row(said["row"], f"{place}/row")

    def row(self, data: Any, place: str) -> dict[Marker, State]:
        row = {}
        for key, target in self.object(data, place).items():
            if key not in self.markers:
                self.fail(f"{place}/{key}", f"no marker is called {key!r}")
            row[self.markers[key]] = self.state(target, f"{place}/{key}")
        return row

    def state(self, data: Any, place: str) -> State:
        """A state by its name; or said in place, if it is a junction and no state of its own."""
        if isinstance(data, dict):
            return State(**self.build(State, data, place))
        if not isinstance(data, str):
            self.fail(place, f"expected a state's name, found {_shown(data)}")
        if data not in self.said and data not in self.states:
            self.fail(place, f"no state is called {data!r}")
        if data in _FIXED:
            if unknown := self.object(self.said.get(data, {}), place).keys() - {"row"}:
                self.fail(place, f"`{data}` is the same in every table and only has a row, not {sorted(unknown)}")
            return _FIXED[data]
        if data not in self.states:
            if data in self.open:
                self.fail(place, f"{' -> '.join([*self.open, data])} goes in a circle")
            self.open.append(data)
            said = self.object(self.said[data], f"states/{data}")
            own = {"name": data, **{key: value for key, value in said.items() if key != "row"}}
            self.states[data] = State(**self.build(State, own, f"states/{data}"))
            self.open.pop()
        return self.states[data]

    def build(self, cls: type, data: Any, place: str, elsewhere: Iterable[str] = ()) -> dict[str, Any]:
        """The arguments with which `cls` is made."""
        known = _fields(cls)
        data = self.object(data, place or "(top)")
        inside = f"{place}/" if place else ""
        for key in data:
            if key not in known or key in elsewhere:
                self.fail(f"{inside}{key}", f"unknown; known are {', '.join(k for k in known if k not in elsewhere)}")
        for name, f in known.items():
            if f.default is MISSING and name not in data and name not in elsewhere:
                self.fail(f"{inside}{name}", "is missing")
        return {key: self.value(known[key].hint, value, f"{inside}{key}") for key, value in data.items()}

    def value(self, hint: Any, data: Any, place: str) -> Any:
        if hint is State:
            return self.state(data, place)
        if hint is Codec:
            return self.codec(codecs(), data, place)
        if hint in _SCALARS:
            if type(data) is hint or (hint is float and type(data) is int):
                return data
            self.fail(place, f"expected a {_SCALARS[hint]}, found {_shown(data)}")
        if is_dataclass(hint) and isinstance(hint, type):
            if (name := hint.__name__) in codecs():
                return self.codec({name: codecs()[name]}, data, place)
            return hint(**self.build(hint, data, place))
        return self.compound(hint, data, place)

    def compound(self, hint: Any, data: Any, place: str) -> Any:
        origin, inner = get_origin(hint), get_args(hint)
        if origin is Literal:
            if data not in inner or isinstance(data, bool):
                self.fail(place, f"expected {' or '.join(map(_shown, inner))}, found {_shown(data)}")
            return data
        if origin is tuple:
            if not isinstance(data, list):
                self.fail(place, f"expected a list, found {_shown(data)}")
            return tuple(self.value(inner[0], item, f"{place}/{at}") for at, item in enumerate(data))
        if origin in (Union, types.UnionType):
            return self.union(inner, data, place)
        raise TypeError(f"{place}: no way is known to read {hint} from JSON")

    def union(self, options: tuple[Any, ...], data: Any, place: str) -> Any:
        if data is None and type(None) in options:
            return None
        if str in options and isinstance(data, str):
            return data
        rest = [option for option in options if option not in (str, type(None))]
        if len(rest) == 1 and rest[0] not in _pieces().values():
            return self.value(rest[0], data, place)
        kinds = {key: cls for key, cls in _pieces().items() if cls in rest}
        for key, cls in kinds.items():
            if isinstance(data, dict) and key in data:
                first, *_ = _fields(cls)
                said = {first if name == key else name: value for name, value in data.items()}
                return cls(**self.build(cls, said, place))
        self.fail(place, f"expected a string or an object with {' or '.join(kinds)}, found {_shown(data)}")

    def codec(self, known: Mapping[str, type], data: Any, place: str) -> Any:
        said = dict(self.object(data, place))
        name = said.pop("codec", None)
        if name not in known:
            self.fail(f"{place}/codec", f"expected {' or '.join(known)}, found {_shown(name)}")
        return known[name](**self.build(known[name], said, place))

    def object(self, data: Any, place: str) -> dict[str, Any]:
        if not isinstance(data, dict):
            self.fail(place, f"expected an object, found {_shown(data)}")
        return data

    def fail(self, place: str, message: str) -> NoReturn:
        name = self.data.get("name") if hasattr(self, "data") else None
        who = f"{self.source} ({name})" if isinstance(name, str) and name != self.source else self.source
        raise TableError(who, f"{place}: {message}")


def _shown(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


# -- the schema --------------------------------------------------------------------------------------------------------


def schema() -> dict[str, Any]:
    """The JSON Schema of a table, with every field's description as it stands in the source."""
    known = {cls.__name__: cls for cls in _reachable(Format)}
    row = {"type": "object", "additionalProperties": _schema_of(State)}
    defs = {name: _object_schema(cls) for name, cls in sorted(known.items()) if cls is not Format}
    state = defs["State"]
    own = {key: said for key, said in state["properties"].items() if key != "strand"}
    strand = state["properties"]["strand"]
    entry = {
        "type": "object",
        "description": "A state; named by its key. `ended` has only a row: it is the same in every table.",
        "properties": {"strand": strand, **own, "row": row},
        "required": ["row"],
        "additionalProperties": False,
    }
    top = _object_schema(Format)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$comment": "Made by `python -m unbraid.serialize` from the dataclasses of unbraid.table and unbraid.codecs.",
        "title": "Unbraid table",
        "description": "How one model family writes a turn. " + _first_line(Format),
        "type": "object",
        "properties": {
            "$schema": {"type": "string"},
            VERSION_KEY: {"const": VERSION},
            **{key: said for key, said in top["properties"].items() if key not in _OWN},
            "markers": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Marker"}},
            "states": {"type": "object", "additionalProperties": entry},
            "turns": row,
        },
        "required": [VERSION_KEY, "name", "about", "markers", "states", "turns"],
        "additionalProperties": False,
        "$defs": {**defs, "Codec": {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in sorted(codecs())]}},
    }


def _reachable(cls: type) -> set[type]:
    """All dataclasses of which a table may be made."""
    found: set[type] = {cls, Marker, State, *codecs().values(), *_pieces().values()}
    todo = list(found)
    for each in todo:
        for f in _fields(each).values():
            for inner in _inner(f.hint):
                if isinstance(inner, type) and is_dataclass(inner) and inner not in found:
                    found.add(inner)
                    todo.append(inner)
    return found


def _inner(hint: Any) -> Iterable[Any]:
    yield hint
    for part in get_args(hint):
        yield from _inner(part)


def _object_schema(cls: type) -> dict[str, Any]:
    notes = _notes(cls)
    known = {name: f for name, f in _fields(cls).items() if cls is not Format or name not in _OWN}
    properties: dict[str, Any] = {}
    for name, f in known.items():
        said = _schema_of(f.hint)
        if note := notes.get(name):
            said = {**said, "description": note}
        if f.default is None or isinstance(f.default, str | bool | int | float):
            said = {**said, "default": f.default}
        properties[name] = said
    required = [name for name, f in known.items() if f.default is MISSING]
    if codecs().get(cls.__name__) is cls:
        properties = {"codec": {"const": cls.__name__}, **properties}
        required = ["codec", *required]
    elif _pieces().get(key := cls.__name__.lower()) is cls:
        first, *_ = known
        properties = {key if name == first else name: said for name, said in properties.items()}
        required = [key]
    return {
        "type": "object",
        "description": _said_of(cls),
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def _schema_of(hint: Any) -> dict[str, Any]:
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if hint is type(None):
        return {"type": "null"}
    if hint is State:
        return {"anyOf": [{"type": "string", "description": "A state's name."}, {"$ref": "#/$defs/State"}]}
    if origin is Literal:
        return {"enum": list(inner)}
    if origin is tuple:
        return {"type": "array", "items": _schema_of(inner[0])}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema_of(option) for option in inner]}
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _first_line(cls: type) -> str:
    return _said_of(cls).partition("\n")[0]


def _said_of(cls: type) -> str:
    return ast.get_docstring(_definition(cls)) or ""


def _notes(cls: type) -> dict[str, str]:
    """What stands under each field in the source."""
    notes, name = {}, ""
    for node in _definition(cls).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            notes[name] = " ".join(str(node.value.value).split())
        else:
            name = ""
    return notes


def schema_text() -> str:
    """The schema as it stands in table.schema.json."""
    return json.dumps(schema(), ensure_ascii=False, indent=2) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
