"""The registry: every format by its name, by the names that vLLM and SGLang use, and by the ids of the models that write it."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from unbraid.errors import FormatNotFound, TableError
from unbraid.table import Format


def _tables() -> Iterator[Format]:
    """Every table of this folder, in the order of files and lines."""
    for module in pkgutil.iter_modules(__path__):
        found = vars(importlib.import_module(f"{__name__}.{module.name}")).values()
        yield from (table for table in found if isinstance(table, Format))


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _index() -> tuple[dict[str, Format], dict[str, Format]]:
    formats: dict[str, Format] = {}
    names: dict[str, Format] = {}
    for table in _tables():
        formats.setdefault(table.name, table)
    for table in formats.values():
        for name in (table.name, *table.aliases):
            other = names.setdefault(_key(name), table)
            if other is not table:
                raise TableError(table.name, f"the name {name!r} is taken by {other.name}")
    return formats, names


_formats, _names = _index()

FORMATS: Mapping[str, Format] = MappingProxyType(_formats)
"""Every registered format by its own name."""


def get_format(name: str) -> Format:
    """The format with this name, alias (`hermes`, `qwen3_coder`, `kimi_k2`: the parser names of vLLM and SGLang), or the format that
    the model with this id writes (`Qwen/Qwen3-8B`). Case and the difference of `-` and `_` don't matter. A path that ends in
    `.json` is the table, or the response template of a Hugging Face tokenizer, in that file; a folder is a model's, and its
    tokenizer's response template counts if it has one.

    Raises `FormatNotFound`, with near names; `TableError` if the file holds no sound table.
    """
    if name.endswith(".json"):
        from unbraid.serialize import load  # reads types and sources: not needed by who asks for a name

        return load(name)
    if _is_model(name):
        from unbraid.response_template import read

        if (found := read(name)) is not None:
            return found
    if found := _names.get(_key(name)):
        return found
    if found := format_of_model(name):
        return found
    raise FormatNotFound(name, difflib.get_close_matches(_key(name), _names, n=3))


def _is_model(name: str) -> bool:
    """Whether it is a model's folder. What can't be a path (it is too long, say) is none."""
    try:
        return (Path(name) / "tokenizer_config.json").is_file()
    except (OSError, ValueError):
        return False


def format_of_model(model: str) -> Format | None:
    """The format whose glob fits this model id best: the glob with most literal characters wins."""
    best: tuple[int, Format] | None = None
    for table in _formats.values():
        for glob in table.models:
            weight = sum(c not in "*?[]" for c in glob)
            if (best is None or weight > best[0]) and fnmatch.fnmatchcase(model.lower(), glob.lower()):
                best = (weight, table)
    return best and best[1]


__all__ = ["FORMATS", "format_of_model", "get_format"]
