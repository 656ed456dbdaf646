"""What has to be known of a model that somebody else serves: its tokenizer, its chat template, its names, its context.

Engines tell some of it, the model's own files the rest; files win, since whoever names one means it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbraid.checkpoint import Checkpoint, read_checkpoint
from unbraid.errors import EngineError, EngineFileError, VocabularyError
from unbraid.vocabulary import Vocabulary

if TYPE_CHECKING:
    from unbraid.engines.remote import Get

Encode = Callable[[str, bool], list[int]]
"""Text to ids; the flag: spelled special tokens become their ids."""

CONTEXT = 8192
"""Tokens of context where neither engine nor operator says how many there are."""


@dataclass(frozen=True, slots=True)
class Told:
    """What an engine says of its model."""

    model: str
    served: str
    """The name under which the engine wants to be asked for it."""
    names: tuple[str, ...] = ()
    path: str | None = None
    """Where the model's files are, on the engine's machine: which may be this one."""
    context_length: int | None = None
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)

    def with_path(self, path: str) -> Told:
        return replace(self, path=path, names=(*self.names, path))


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of the model."""

    model: str
    served: str
    vocabulary: Vocabulary
    encode: Encode | None
    """How texts are tokenized here; `None`: the engine is asked."""
    context_length: int = CONTEXT
    chat_template: str | None = None
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    end_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Local:
    """What the operator gives: files of the model, and what beats the engine's own words."""

    model: str | None = None
    """The name under which to ask the engine."""
    tokenizer: Path | None = None
    """A `tokenizer.json` (or `tekken.json`, `tiktoken.model`), a GGUF, or the folder that holds one."""
    chat_template: Path | None = None
    context_length: int | None = None


EMPTY = Vocabulary.from_tokens({})
"""In text mode no ids are read."""


def told_by_models(get: Get, wanted: str | None) -> Told:
    """What `/v1/models` says. vLLM, SGLang and many others tell the context's length there."""
    listed = get("/v1/models")
    data = listed.get("data") if isinstance(listed, dict) else None
    cards = [card for card in data or () if isinstance(card, dict) and isinstance(card.get("id"), str)]
    if not cards:
        raise EngineError("the engine lists no model at /v1/models")
    card = next((card for card in cards if card["id"] == wanted), cards[0] if wanted is None else None)
    if card is None:
        raise EngineError(f"the engine serves no {wanted!r}, but {', '.join(card['id'] for card in cards)}")
    root, length = card.get("root"), card.get("max_model_len")
    names = tuple(name for name in (root, card["id"]) if isinstance(name, str) and name)
    return Told(
        card["id"],
        card["id"],
        tuple(dict.fromkeys(names)),
        path=root if isinstance(root, str) else None,
        context_length=length if isinstance(length, int) else None,
    )


def template_in(path: Path) -> str:
    """The chat template in this file: a `.jinja`, or what holds one beside other things. Raises `EngineFileError`."""
    template = read_checkpoint(path).template
    if template is None:
        raise EngineFileError(
            f"{path}: no chat template in it; give a .jinja, a tokenizer_config.json, a folder or a GGUF"
        )
    return template


def profile_of(told: Told, local: Local, *, ids: bool) -> Profile:
    """Engine and files together. `ids`: token ids are read, so there must be a tokenizer."""
    path = local.tokenizer or _here(told.path)
    if ids and path is None:
        raise EngineError(
            f"the tokenizer of {told.model!r} is needed to read its tokens: give its tokenizer.json, its folder or its GGUF "
            "with --tokenizer (or read its text only: --engine-kind completions)"
        )
    files = _files(path) if path is not None else Checkpoint(Path(told.model))
    vocabulary = Vocabulary.from_file(path) if ids and path is not None else EMPTY
    special = {**told.special_tokens, **files.special_tokens}
    template = files.template or told.chat_template
    if local.chat_template is not None:
        template = template_in(local.chat_template)
    return Profile(
        model=told.model,
        served=told.served,
        vocabulary=vocabulary,
        encode=_encoder(path, vocabulary) if ids and path is not None else None,
        context_length=local.context_length or told.context_length or CONTEXT,
        chat_template=template,
        special_tokens=special,
        names=tuple(dict.fromkeys((*told.names, *files.names, told.model))),
        end_ids=_ends(path, vocabulary, special),
    )


def _files(path: Path) -> Checkpoint:
    """What lies beside a tokenizer.json belongs to it."""
    beside = path.name == "tokenizer.json" and (path.parent / "tokenizer_config.json").is_file()
    return read_checkpoint(path.parent if beside else path)


def _here(path: str | None) -> Path | None:
    """The engine's own path, if this machine has a model there."""
    if not path:
        return None
    found = Path(path)
    try:
        usable = found.is_file() or (found.is_dir() and (found / "tokenizer.json").is_file())
    except OSError:
        return None
    return found if usable else None


def _encoder(path: Path, vocabulary: Vocabulary) -> Encode | None:
    """The tokenizer itself, if `tokenizers` is installed and reads its file. Without it, the engine is asked."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.suffix != ".json" or file.name == "tekken.json" or not file.is_file():
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    own = Vocabulary.from_huggingface(Tokenizer.from_file(str(file)))
    return lambda text, special: own.encode(text, special=special)


def _ends(path: Path | None, vocabulary: Vocabulary, special: Mapping[str, str]) -> frozenset[int]:
    """The ids at which the engine stops by itself, as far as the model's files say."""
    found = {vocabulary.special.get(special.get(name, "")) for name in ("eos_token", "eot_token")} - {None}
    settings = None if path is None else (path if path.is_dir() else path.parent) / "generation_config.json"
    if settings is not None and settings.is_file():
        try:
            said: Any = json.loads(settings.read_bytes())
        except ValueError as error:
            raise VocabularyError(f"{settings}: not JSON ({error})") from error
        eos = said.get("eos_token_id") if isinstance(said, dict) else None
        found.update(eos if isinstance(eos, list) else [eos])
    return frozenset(id for id in found if isinstance(id, int))
