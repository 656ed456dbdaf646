"""What a model's folder (or GGUF file) says about the model: its names, its tokens, its chat template.

A folder as Hugging Face lays it out. Whatever is missing is simply not known; what is there but damaged is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbraid.errors import VocabularyError
from unbraid.gguf import read_header

_CONTROL, _USER_DEFINED = 3, 4
"""Token types of a GGUF."""
_NAMES = ("general.name", "general.basename", "general.base_model.0.name")
_RESPONSE = ("response_template", "response_schema")
_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """All that is known of a model without loading it."""

    path: Path
    names: tuple[str, ...] = ()
    """What it calls itself, and its folder's or file's name: any may be a model id."""
    tokens: frozenset[str] = frozenset()
    """Spellings of the tokens that are matched as a whole in text."""
    template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """`bos_token`, `eos_token`, ...: names under which a template knows them."""
    response: Mapping[str, Any] | None = None
    """The tokenizer's own description of what the model writes: `response_template`, or the older `response_schema`."""


def read_checkpoint(path: str | Path) -> Checkpoint:
    """What this folder, GGUF file, `tokenizer_config.json`, `tokenizer.json` or `.jinja` says."""
    path = Path(path)
    if path.suffix == ".gguf":
        return _from_gguf(path)
    if path.is_dir():
        return _from_folder(path)
    if not path.exists():
        raise VocabularyError(f"{path}: there is no such file or folder")
    if path.suffix in (".jinja", ".j2", ".txt"):
        return Checkpoint(path, (path.stem,), template=_text(path))
    return _from_files(path, {path.name: path})


def _from_folder(folder: Path) -> Checkpoint:
    return _from_files(folder, {file.name: file for file in folder.iterdir() if file.is_file()})


def _from_files(path: Path, files: Mapping[str, Path]) -> Checkpoint:
    config = _object(files.get("tokenizer_config.json"))
    tokenizer = _object(files.get("tokenizer.json"))
    model = _object(files.get("config.json"))
    added = [entry.get("content") for entry in tokenizer.get("added_tokens") or () if isinstance(entry, dict)]
    decoder = config.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        added += [entry.get("content") for entry in decoder.values() if isinstance(entry, dict)]
    names = [config.get("name_or_path"), model.get("_name_or_path"), path.resolve().name, *_cached(path.resolve())]
    return Checkpoint(
        path,
        tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name)),
        frozenset(text for text in added if isinstance(text, str)),
        _template(files, config),
        {name: text for name in _SPECIAL if (text := _spelling(config.get(name))) is not None},
        next((said for key in _RESPONSE if isinstance(said := config.get(key), dict)), None),
    )


def _cached(path: Path) -> list[str]:
    """The model id in a path of Hugging Face's cache (`models--Qwen--Qwen3-8B/...`), or else the last two parts."""
    for part in path.parts:
        if part.startswith("models--"):
            return [part.removeprefix("models--").replace("--", "/")]
    return ["/".join(path.parts[-2:])] if len(path.parts) > 2 else []


def _template(files: Mapping[str, Path], config: Mapping[str, Any]) -> str | None:
    if "chat_template.jinja" in files:
        return _text(files["chat_template.jinja"])
    found = _object(files.get("chat_template.json")).get("chat_template") or config.get("chat_template")
    if isinstance(found, list):  # several by name: tools are what ours are about
        named = {entry.get("name"): entry.get("template") for entry in found if isinstance(entry, dict)}
        found = named.get("tool_use") or named.get("default")
    return found if isinstance(found, str) else None


def _spelling(token: Any) -> str | None:
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _from_gguf(path: Path) -> Checkpoint:
    header = read_header(path)
    pieces = header.get("tokenizer.ggml.tokens") or []
    kinds = header.get("tokenizer.ggml.token_type") or []
    special = {f"{kind}_token": header.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("bos", "eos")}
    names = [header.get(key) for key in _NAMES]
    return Checkpoint(
        path,
        tuple(dict.fromkeys(name for name in [*names, path.stem] if isinstance(name, str) and name)),
        frozenset(text for text, kind in zip(pieces, kinds, strict=False) if kind in (_CONTROL, _USER_DEFINED)),
        header.get("tokenizer.chat_template"),
        {name: pieces[id] for name, id in special.items() if isinstance(id, int) and id < len(pieces)},
    )


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError as error:
        raise VocabularyError(f"{path}: can't be read ({error.strerror or error})") from error


def _object(path: Path | None) -> dict[str, Any]:
    """A JSON file that holds an object; nothing if there is no such file."""
    if path is None:
        return {}
    try:
        data = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise VocabularyError(f"{path}: not JSON ({error})") from error
    return data if isinstance(data, dict) else {}
