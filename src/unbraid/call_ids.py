"""Ids for calls to which the model gave none.

They are made from the prompt, the ids of the calls before it, the choice, the call's name and its number: the same stream has the same
ids wherever it is parsed, another turn or choice has others. One hash serves many calls of a name: it gives all letters but the last, which counts.
"""

from __future__ import annotations

import re
import string
import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

_LETTERS: Final = string.ascii_letters + string.digits
_COUNT: Final = len(_LETTERS)
_LETTER_OF: Final = bytes([ord(_LETTERS[byte % _COUNT]) for byte in range(256)])


class NewIds:
    """Those of one message."""

    __slots__ = ("_first", "_pattern", "_seed", "_stems", "counted")

    def __init__(
        self, pattern: str, length: int, end: Sequence[int] | str, choice: int = 0, earlier: Sequence[str] = ()
    ) -> None:
        """`pattern`: see `unbraid.table.CallIds`. `length`, `end`: of the prompt. `earlier`: ids of the conversation's calls so far."""
        self._pattern = pattern
        self.counted = "{index}" in pattern and "?" not in pattern
        """Only a number tells these ids apart: the next one may be taken."""
        self._first = _next(pattern, earlier) if self.counted else 0
        self._seed = b"%d " % length + _spelled(end)
        if choice or earlier:
            self._seed += "\n".join([f" {choice}", *earlier]).encode("utf-8", "replace")
        self._stems: dict[tuple[str, int], tuple[str, str]] = {}
        """By name, and how often the last letter has gone through all letters: what stands before that letter and behind it."""

    def of(self, name: str, index: int) -> str:
        """An id for call number `index`, whose name is `name`."""
        id = self._pattern
        if "?" in id:
            key = name, index // _COUNT
            stem = self._stems.get(key)
            if stem is None:
                stem = self._stems[key] = self._stem(*key)
            id = stem[0] + _LETTERS[index % _COUNT] + stem[1]
        if "{" in id:
            id = id.replace("{index}", str(self._first + index)).replace("{name}", name)
        return id

    def _stem(self, name: str, turn: int) -> tuple[str, str]:
        before, _, behind = self._pattern.rpartition("?")
        count = before.count("?")
        hashed = blake2b(self._seed + f" {turn} {name}".encode("utf-8", "replace")).digest()
        text = hashed.translate(_LETTER_OF).decode()[:count].ljust(count, "0")  # nobody wants longer ones
        if "?" * count in before:
            return before.replace("?" * count, text), behind
        letters = iter(text)
        return "".join([next(letters) if char == "?" else char for char in before]), behind


def _next(pattern: str, earlier: Sequence[str]) -> int:
    """The number that follows: models count the calls of a conversation, and a client may have dropped the first ones."""
    form = re.compile(re.escape(pattern).replace(r"\{name\}", ".*").replace(r"\{index\}", "([0-9]{1,9})", 1))
    numbers = [int(found[1]) + 1 for id in earlier if (found := form.fullmatch(id))]
    return max([len(earlier), *numbers])


def _spelled(end: Sequence[int] | str) -> bytes:
    if isinstance(end, str):
        return end.encode("utf-8", "replace")
    try:
        return struct.pack(f"<{len(end)}I", *end)
    except struct.error:  # no vocabulary has such ids; that is said elsewhere
        return repr(list(end)).encode()


__all__ = ["NewIds"]
