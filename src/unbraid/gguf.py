"""The header of a GGUF file: what it says about its model. Pure Python, and no more of the file than the header.

A GGUF begins with its keys and values (`general.name`, `tokenizer.ggml.tokens`, `tokenizer.chat_template`); the weights
come after them and are never read.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

from unbraid.errors import VocabularyError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST = 1 << 28
"""No sane header has a text of this many bytes or a list of this many entries: a damaged one may claim it."""


def read_header(path: str | Path) -> dict[str, Any]:
    """Every key with its value. Raises `VocabularyError` if the file is no GGUF or ends inside its header."""
    try:
        with Path(path).open("rb") as file:
            return _Header(file, str(path)).read()
    except OSError as error:
        raise VocabularyError(f"{path}: can't be read ({error.strerror or error})") from error


class _Header:
    def __init__(self, file: BinaryIO, path: str) -> None:
        self.file = file
        self.path = path
        self.order = "<"

    def read(self) -> dict[str, Any]:
        if self.bytes(4) != b"GGUF":
            raise VocabularyError(f"{self.path}: not a GGUF file")
        version = struct.unpack("<I", self.bytes(4))[0]
        if version > 0xFFFF:  # written on a machine of the other byte order
            self.order, version = ">", int.from_bytes(version.to_bytes(4, "little"), "big")
        if version not in (2, 3):
            raise VocabularyError(f"{self.path}: GGUF version {version} isn't known here (2 and 3 are)")
        self.number("Q")  # how many tensors
        return {self.string(): self.value(self.number("I")) for _ in range(self.count())}

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY and depth < 4:
            inner, count = self.number("I"), self.count()
            if code := _SCALARS.get(inner):
                return list(
                    struct.unpack(f"{self.order}{count}{code}", self.bytes(count * struct.calcsize(f"<{code}")))
                )
            return [self.value(inner, depth + 1) for _ in range(count)]
        if kind not in _SCALARS:
            raise VocabularyError(f"{self.path}: damaged header (a value of type {kind})")
        return self.number(_SCALARS[kind])

    def string(self) -> str:
        return self.bytes(self.count()).decode("utf-8", "replace")

    def count(self) -> int:
        found: int = self.number("Q")
        if found > _MOST:
            raise VocabularyError(f"{self.path}: damaged header (a length of {found})")
        return found

    def number(self, code: str) -> Any:
        return struct.unpack(self.order + code, self.bytes(struct.calcsize("<" + code)))[0]

    def bytes(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            raise VocabularyError(f"{self.path}: the file ends inside its header")
        return data
