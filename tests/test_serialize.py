"""Tables as JSON: there and back without loss, a schema that fits, and errors that name the place."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from fixtures import FIXTURES
from tokens import tokens

import unbraid
from unbraid.formats import FORMATS
from unbraid.serialize import codecs, from_json, load, schema, schema_text, to_json

PUBLISHED = Path(unbraid.__file__).with_name("table.schema.json")
every_format = pytest.mark.parametrize("name", FORMATS)


def again(fmt: unbraid.Format) -> unbraid.Format:
    """The table, having been text."""
    return from_json(json.loads(json.dumps(to_json(fmt))))


@every_format
def test_there_and_back(name: str) -> None:
    fmt = again(FORMATS[name])
    assert to_json(fmt) == to_json(FORMATS[name])
    assert list(fmt.states.items()) == list(FORMATS[name].states.items())
    assert list(fmt.turns.items()) == list(FORMATS[name].turns.items())


@every_format
def test_the_copy_parses_every_fixture_the_same(name: str) -> None:
    bound = again(FORMATS[name]).bind(tokens(name).vocabulary)
    for case in FIXTURES[name]:
        prompt = None if case.prompt is None else tokens(name).encode(case.prompt)
        ids = tokens(name).encode(case.raw)
        for_copy = unbraid.parse(bound, ids, prompt=prompt, finish_reason=case.finish, **case.options)
        own = unbraid.parse(tokens(name).bound, ids, prompt=prompt, finish_reason=case.finish, **case.options)
        assert for_copy == own, case.name


@every_format
def test_tables_fit_the_schema(name: str) -> None:
    jsonschema.validate(to_json(FORMATS[name]), json.loads(PUBLISHED.read_text("utf-8")))


def test_the_published_schema_is_current() -> None:
    assert PUBLISHED.read_text("utf-8") == schema_text(), (
        "run: python -m unbraid.serialize > src/unbraid/table.schema.json"
    )
    jsonschema.Draft202012Validator.check_schema(schema())


def test_every_codec_in_use_is_known() -> None:
    used = {type(state.codec) for fmt in FORMATS.values() for state in fmt.states if state.codec}
    assert used <= set(codecs().values())


def drop(*path: str) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


def put(value: Any, *path: str | int) -> Callable[[Any], None]:
    def change(data: Any) -> None:
        for key in path[:-1]:
            data = data[key]
        data[path[-1]] = value

    return change


CODEC = ("states", "calling", "codec")
THINK = ("markers", "<think>")
DAMAGE = {
    "unbraid_table: expected 1, found 2": put(2, "unbraid_table"),
    "name: is missing": drop("name"),
    "about: is missing": drop("about"),
    "turns: is missing": drop("turns"),
    "stats: unknown": put({}, "stats"),
    "markers/<think>/spellings: is missing": drop(*THINK, "spellings"),
    "markers/<think>/spellings: expected a list, found 3": put(3, *THINK, "spellings"),
    "markers/<think>/spellings/0/0: expected a string or an object": put({"x": 1}, *THINK, "spellings", 0, 0),
    "markers/<think>/peek: expected a boolean, found 1": put(1, *THINK, "peek"),
    'markers/<think>/inside: expected "data" or "ends", found "out"': put("out", *THINK, "inside"),
    "states/content/row: is missing": drop("states", "content", "row"),
    "states/content/row/<call>: no marker is called": put("content", "states", "content", "row", "<call>"),
    "states/content/row/<think>: no state is called 'x'": put("x", "states", "content", "row", "<think>"),
    "states/waiting/otherwise: waiting -> waiting goes in a circle": put("waiting", "states", "waiting", "otherwise"),
    "states/calling/codec/codec: expected": put("Yaml", *CODEC, "codec"),
    "states/calling/codec/codecs/0/name: expected a list": put("n", *CODEC, "codecs", 0, "name"),
    "turns: expected an object, found []": put([], "turns"),
    "start/on: no state is called 'nowhere'": put("nowhere", "start", "on"),
    "`ended` is the same in every table": put("content", "states", "ended", "strand"),
}  # fmt: skip


@pytest.mark.parametrize("said", DAMAGE)
def test_a_damaged_table_says_where(said: str) -> None:
    data = copy.deepcopy(to_json(FORMATS["qwen3"]))
    DAMAGE[said](data)
    with pytest.raises(unbraid.TableError) as caught:
        from_json(data, "my.json")
    assert said in str(caught.value)
    assert str(caught.value).startswith("my.json")


@pytest.mark.parametrize("data", [None, 3, [], "x", {}, {"unbraid_table": 1}])
def test_what_is_no_table_is_refused(data: Any) -> None:
    with pytest.raises(unbraid.TableError):
        from_json(data)


def test_a_file_is_accepted_where_a_name_is(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(to_json(FORMATS["glm47"].replace(name="mine"))), "utf-8")
    fmt = unbraid.get_format(str(file))
    assert fmt.name == "mine"
    assert unbraid.parse(fmt, "Hm.</think>Hi").reasoning == "Hm."


def test_a_file_that_is_no_table_says_so(tmp_path: Path) -> None:
    with pytest.raises(unbraid.TableError, match="can't be read"):
        load(tmp_path / "none.json")
    for text, said in (
        ("{", "not JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        ("\udcff", "not JSON"),
    ):
        (tmp_path / "bad.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(unbraid.TableError, match=said):
            load(tmp_path / "bad.json")
