"""Tokenizers reduced to what parsing needs: the bytes of every id, and the ids that stand for a whole spelling.

The machine reads token ids, so it must know two things that no text can tell it: which characters an id adds to the
output (bytes, because a character may be split over ids), and which ids are markers by themselves. A tokenizer's
merges, scores and pre-tokenizer don't matter for that, so a vocabulary can be made from anything that lists its
tokens: a `tokenizer.json`, a `tekken.json`, a `tiktoken.model`, a tokenizer object, or an engine's own table.

Going the other way, `encode` spells a text with the tokens that there are. Its ids always decode to exactly that text,
but unless the vocabulary was made from a tokenizer object they need not be the ids that the tokenizer would choose.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from unbraid.errors import VocabularyError
from unbraid.gguf import read_header

Encode = Callable[[str], list[int]]

_SPACE = "\u2581"  # the lower one eighth block with which SentencePiece writes a space
_SURROGATE = re.compile("[\ud800-\udfff]")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Vocabulary:
    """What the ids of a tokenizer mean. Treat it as immutable: bound formats keep what they have read from it."""

    __slots__ = ("_index", "_own", "_pattern", "_withheld", "control", "special", "tokens")

    tokens: Mapping[int, bytes]
    """Id -> the bytes that it adds to the output. Of an added token: the UTF-8 of its spelling."""
    special: Mapping[str, int]
    """Every spelling that the tokenizer matches as a whole in text, whether it calls it special or merely added."""
    control: frozenset[int]
    """Those of them flagged special: an engine that skips special tokens hides them from its text."""

    def __init__(
        self, tokens: Mapping[int, bytes], special: Mapping[str, int], control: Iterable[int], own: Encode | None = None
    ) -> None:
        self.tokens = tokens
        self.special = special
        self.control = frozenset(control)
        self._own = own
        self._index: _Index | None = None
        self._pattern: re.Pattern[str] | None = None
        self._withheld: frozenset[int] | None = None

    @classmethod
    def from_tokens(cls, tokens: Mapping[int, bytes], special: Mapping[str, int] | None = None) -> Vocabulary:
        """From an engine's own table. All of `special` count as control tokens, and their spelling is their bytes.

        >>> Vocabulary.from_tokens({0: b"a"}, special={"<think>": 1}).decode([1, 0])
        '<think>a'
        """
        spellings = dict(special or {})
        snapshot = dict(tokens)
        # Engines tend to give special tokens no bytes (llama.cpp: an empty piece); their spelling is what they mean.
        snapshot.update((id, spelling.encode()) for spelling, id in spellings.items())
        return cls(snapshot, spellings, spellings.values())

    @classmethod
    def from_file(cls, path: str | Path) -> Vocabulary:
        """From a `tokenizer.json`, `tekken.json`, `tiktoken.model` or GGUF, or from the directory that holds one of the first three."""
        file = _find(Path(path))
        if file.suffix == ".gguf":
            return cls(*_read_gguf(file))
        try:
            if file.suffix == ".model":
                return cls(*_read_tiktoken(file))
            data = json.loads(file.read_bytes())
        except OSError as error:
            raise VocabularyError(f"{file}: can't be read ({error.strerror or error})") from error
        except (ValueError, RecursionError) as error:
            raise VocabularyError(f"{file}: not a tokenizer file ({error})") from error
        return cls(*_read(data, str(file)))

    @classmethod
    def from_huggingface(cls, tokenizer: Any) -> Vocabulary:
        """From a `transformers` fast tokenizer or a `tokenizers.Tokenizer`; `encode` then gives its own ids."""
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        to_str, encode = getattr(backend, "to_str", None), getattr(backend, "encode", None)
        if not callable(to_str) or not callable(encode):
            raise VocabularyError(
                f"{type(tokenizer).__name__} isn't a fast tokenizer: load it with use_fast=True, or use "
                "Vocabulary.from_file on its tokenizer.json (tekken.json, tiktoken.model) or Vocabulary.from_tokens"
            )

        def own(text: str) -> list[int]:
            return list(encode(text, add_special_tokens=False).ids)

        return cls(*_read(json.loads(to_str()), type(tokenizer).__name__), own)

    @property
    def size(self) -> int:
        """One more than the highest id: how many columns a mask needs."""
        return max(max(self.tokens, default=-1), max(self.special.values(), default=-1)) + 1

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`, special tokens included. Unknown ids add nothing; a broken character reads as U+FFFD."""
        get = self.tokens.get
        return b"".join(get(id, b"") for id in ids).decode("utf-8", "replace")

    def bytes_of(self, id: int) -> bytes | None:
        """The bytes of one id, or None if there is no such token."""
        return self.tokens.get(id)

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids that spell exactly `text`; with `special`, special spellings in it become their one id.

        The tokenizer's own ids if the vocabulary was made from an object that can encode (and encodes without
        changing the text: no normalisation, no added space). Otherwise a greedy longest match over the tokens: a
        valid spelling, not necessarily the canonical one.
        """
        own = self._own_spelling(text, special=special)
        if own is not None:
            return own
        ids: list[int] = []
        for piece, whole in self._split(text):
            if whole and special:
                ids.append(self.special[piece])
            else:
                ids += self._own_spelling(piece, special=False) or self._greedy(piece)
        return ids

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"<Vocabulary: {len(self.tokens)} tokens, {len(self.special)} special>"

    def _own_spelling(self, text: str, *, special: bool) -> list[int] | None:
        """The tokenizer's own ids if they are what was asked for, else None."""
        if self._own is None or _SURROGATE.search(text):
            return None
        ids = self._own(text)
        if not special and not self._withheld_ids().isdisjoint(ids):
            return None
        # Normalisers (NFC), dummy prefix spaces and `rstrip` markers make a tokenizer spell some other text.
        return ids if b"".join(self.tokens.get(id, b"") for id in ids) == text.encode() else None

    def _split(self, text: str) -> Iterator[tuple[str, bool]]:
        """The pieces of `text` and whether each is a special spelling; the longest wins where two begin together."""
        if self._pattern is None:
            spellings = sorted(filter(None, self.special), key=len, reverse=True)
            self._pattern = re.compile(f"({'|'.join(map(re.escape, spellings))})" if spellings else "(?!)()")
        for position, piece in enumerate(self._pattern.split(text)):
            if piece:
                yield piece, position % 2 == 1

    def _greedy(self, text: str) -> list[int]:
        if self._index is None:
            withheld = self._withheld_ids()
            self._index = _Index((id, data) for id, data in self.tokens.items() if data and id not in withheld)
        if _SURROGATE.search(text):
            raise VocabularyError("the text holds a lone surrogate, which has no bytes")
        return self._index.spell(text.encode())

    def _withheld_ids(self) -> frozenset[int]:
        """Ids that may not be used to spell ordinary text, since they'd say "marker" to whoever reads ids.

        An added token whose bytes aren't its spelling is not matched in the text of its bytes (Gemma's added runs of
        U+2581 decode to spaces and come from ordinary merging), so it remains an ordinary token.
        """
        if self._withheld is None:
            tokens = self.tokens
            spelled = (id for spelling, id in self.special.items() if tokens.get(id) == spelling.encode())
            self._withheld = self.control.union(spelled)
        return self._withheld


class _Index:
    """Longest match over token bytes. Lengths are kept by the first two bytes: few are tried at any position."""

    __slots__ = ("_ids", "_lengths")

    def __init__(self, tokens: Iterable[tuple[int, bytes]]) -> None:
        # A later id wins: SentencePiece lists its byte tokens before the piece that spells the same byte.
        self._ids = {data: id for id, data in tokens}
        lengths: dict[bytes, set[int]] = {}
        for data in self._ids:
            lengths.setdefault(data[:2], set()).add(len(data))
        self._lengths = {prefix: tuple(sorted(found, reverse=True)) for prefix, found in lengths.items()}

    def spell(self, data: bytes) -> list[int]:
        ids: list[int] = []
        at = 0
        while at < len(data):
            id, length = self._longest(data, at)
            ids.append(id)
            at += length
        return ids

    def _longest(self, data: bytes, at: int) -> tuple[int, int]:
        for length in self._lengths.get(data[at : at + 2], ()):
            id = self._ids.get(data[at : at + length])
            # A slice at the end of the data may be shorter than asked, and still be a token: of another length.
            if id is not None and at + length <= len(data):
                return id, length
        id = self._ids.get(data[at : at + 1])
        if id is None:
            raise VocabularyError(f"no token spells the byte 0x{data[at]:02X} (byte {at} of {data[at : at + 16]!r}...)")
        return id, 1


# -- files -------------------------------------------------------------------------------------------------------------

_Parts = tuple[dict[int, bytes], dict[str, int], frozenset[int]]
"""tokens, special, control"""


def _find(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in ("tokenizer.json", "tekken.json", "tiktoken.model"):
        if (path / name).is_file():
            return path / name
    raise VocabularyError(f"{path}: holds no tokenizer.json, tekken.json or tiktoken.model")


def _read(data: Any, source: str) -> _Parts:
    """The one place where the shape of a file is trusted: whatever is missing in it ends as a VocabularyError."""
    if not isinstance(data, dict):
        raise VocabularyError(f"{source}: not a tokenizer file (no JSON object)")
    try:
        if "model" in data:
            return _read_huggingface(data, source)
        if "config" in data and "vocab" in data:
            return _read_tekken(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VocabularyError(f"{source}: damaged tokenizer file ({type(error).__name__}: {error})") from error
    raise VocabularyError(f"{source}: neither a tokenizer.json (no `model`) nor a tekken.json (no `config`, `vocab`)")


def _read_huggingface(data: dict[str, Any], source: str) -> _Parts:
    model = data["model"]
    vocab = model["vocab"]
    # Unigram lists [piece, score] in order of id; BPE maps piece -> id.
    pieces = {piece: id for id, (piece, _) in enumerate(vocab)} if isinstance(vocab, list) else vocab
    decode = _piece_decoder(data, source)
    tokens = {id: decode(piece) for piece, id in pieces.items()}
    special: dict[str, int] = {}
    control: set[int] = set()
    for added in data.get("added_tokens") or ():
        spelling, id = added["content"], added["id"]
        special[spelling] = id
        if added.get("special"):
            control.add(id)
        # Gemma's runs of U+2581 are added tokens and pieces at once, and read as spaces all the same.
        if added.get("special") or decode is not _sentencepiece_bytes or spelling not in pieces:
            tokens[id] = spelling.encode()
    return tokens, special, frozenset(control)


def _piece_decoder(data: dict[str, Any], source: str) -> Callable[[str], bytes]:
    """How this tokenizer's pieces spell bytes. The decoder says so; old files leave only the pre-tokenizer to tell."""
    model = data["model"]
    steps = [step for field in ("decoder", "pre_tokenizer", "normalizer") for step in _steps(data.get(field))]
    kinds = {step.get("type") for step in steps}
    if model.get("type") in ("WordPiece", "WordLevel") or "WordPiece" in kinds:
        raise VocabularyError(f"{source}: {model.get('type')} tokenizers lose white space, so their ids have no bytes")
    if "ByteLevel" in kinds:
        return _byte_level_bytes
    spaces = any(_SPACE in (step.get("replacement"), step.get("content"), _pattern_of(step)) for step in steps)
    if spaces or kinds & {"Metaspace", "ByteFallback"} or model.get("byte_fallback"):
        return _sentencepiece_bytes
    found = ", ".join(sorted(map(str, kinds))) or "nothing"
    raise VocabularyError(f"{source}: neither byte-level nor SentencePiece: its decoding steps are {found}")


def _steps(field: Any) -> Iterator[dict[str, Any]]:
    """A decoder, pre-tokenizer or normalizer and what it is a sequence of."""
    if not isinstance(field, dict):
        return
    yield field
    for key in ("decoders", "pretokenizers", "normalizers"):
        for step in field.get(key) or ():
            yield from _steps(step)


def _pattern_of(step: dict[str, Any]) -> Any:
    pattern = step.get("pattern")
    return pattern.get("String") if isinstance(pattern, dict) else pattern


def _byte_alphabet() -> dict[int, int]:
    """GPT-2's alphabet, character -> byte: printable Latin-1 stands for itself, the rest is moved up from U+0100.

    Latin-1 characters outside the alphabet are sent out of Latin-1, so that a piece which holds one fails to encode.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = [byte for byte in range(256) if byte not in printable]
    outside = {byte: 0x2603 for byte in rest if byte >= 0x80}
    return {**outside, **{0x100 + n: byte for n, byte in enumerate(rest)}}


_ALPHABET = _byte_alphabet()


def _byte_level_bytes(piece: str) -> bytes:
    try:
        return piece.translate(_ALPHABET).encode("latin-1")
    except UnicodeEncodeError:  # not written in the alphabet: Hugging Face's decoder takes the piece as it stands
        return piece.encode()


def _sentencepiece_bytes(piece: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace(_SPACE, " ").encode()


# Before version 7 a tekken.json doesn't list its special tokens: mistral-common, `DEPRECATED_SPECIAL_TOKENS`.
_TEKKEN_SPECIAL = (
    "<unk> <s> </s> [INST] [/INST] [AVAILABLE_TOOLS] [/AVAILABLE_TOOLS] [TOOL_RESULTS] [/TOOL_RESULTS] [TOOL_CALLS] "
    "[IMG] <pad> [IMG_BREAK] [IMG_END] [PREFIX] [MIDDLE] [SUFFIX] [SYSTEM_PROMPT] [/SYSTEM_PROMPT] [TOOL_CONTENT]"
).split()


def _read_tekken(data: dict[str, Any]) -> _Parts:
    """Mistral's file. Ordinary ids start after the special ones; the list holds more tokens than the model has."""
    config = data["config"]
    shift = config["default_num_special_tokens"]
    named = data.get("special_tokens") or [{"rank": n, "token_str": name} for n, name in enumerate(_TEKKEN_SPECIAL)]
    special = {f"<SPECIAL_{n}>": n for n in range(shift)}
    for entry in named:
        special.pop(f"<SPECIAL_{entry['rank']}>", None)
        special[entry["token_str"]] = entry["rank"]
    control = set(special.values()).difference(entry["rank"] for entry in named if not entry.get("is_control", True))
    tokens = {id: spelling.encode() for spelling, id in special.items()}
    for entry in data["vocab"][: config["default_vocab_size"] - shift]:
        tokens[entry["rank"] + shift] = base64.b64decode(entry["token_bytes"])
    return tokens, special, frozenset(control)


_GGUF_UNKNOWN, _GGUF_CONTROL, _GGUF_ADDED = 2, 3, 4
"""Token types in a GGUF; 1 is ordinary, 6 a SentencePiece byte."""
_GGUF_PIECES: Mapping[str, Callable[[str], bytes]] = {"gpt2": _byte_level_bytes, "llama": _sentencepiece_bytes}


def _read_gguf(file: Path) -> _Parts:
    """llama.cpp's file: pieces and their types by id. How the pieces spell bytes, the tokenizer's kind says."""
    header = read_header(file)
    kind = header.get("tokenizer.ggml.model")
    decode = _GGUF_PIECES.get(kind) if isinstance(kind, str) else None
    pieces, types = header.get("tokenizer.ggml.tokens"), header.get("tokenizer.ggml.token_type")
    if decode is None or not isinstance(pieces, list) or not isinstance(types, list):
        raise VocabularyError(
            f"{file}: its tokenizer ({kind!r}) can't be read here; use from_tokens with the engine's own tokens"
        )
    tokens, special, control = {}, {}, set()
    for id, (piece, type) in enumerate(zip(pieces, types, strict=False)):
        whole = type in (_GGUF_UNKNOWN, _GGUF_CONTROL, _GGUF_ADDED)
        tokens[id] = piece.encode() if whole else decode(piece)
        if whole and piece:
            special[piece] = id
            if type != _GGUF_ADDED:
                control.add(id)
    return tokens, special, frozenset(control)


def _read_tiktoken(file: Path) -> _Parts:
    """`<base64> <rank>` a line; the special tokens are in the tokenizer_config.json beside it (Kimi K2 ships this)."""
    tokens: dict[int, bytes] = {}
    for line in file.read_bytes().splitlines():
        if line:
            data, rank = line.split()
            tokens[int(rank)] = base64.b64decode(data)
    config = file.with_name("tokenizer_config.json")
    decoder = json.loads(config.read_bytes()).get("added_tokens_decoder", {}) if config.is_file() else {}
    special = {entry["content"]: int(id) for id, entry in decoder.items()}
    tokens.update((id, spelling.encode()) for spelling, id in special.items())
    return tokens, special, frozenset(int(id) for id, entry in decoder.items() if entry.get("special"))
