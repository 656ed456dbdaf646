"""Masks of ids: rows of 32-bit words, one bit per id, lowest first. An array of numpy or torch, or plain lists."""

from __future__ import annotations

from typing import Any


def row_of(mask: Any, row: int) -> Any:
    """The words of one row; a mask without rows is its own row."""
    if getattr(mask, "ndim", 0) == 1 or (not hasattr(mask, "ndim") and len(mask) and isinstance(mask[0], int)):
        return mask
    return mask[row]


def paint(words: Any, value: int) -> None:
    """Every word the same: 0 forbids all, -1 allows all."""
    if hasattr(words, "ndim"):
        words[:] = value
    else:
        for at in range(len(words)):
            words[at] = value


def allow(words: Any, id: int) -> None:
    """Set the bit of one id. An id beyond the mask has none."""
    if 0 <= id < len(words) * 32:
        words[id >> 5] = _signed(int(words[id >> 5]) | 1 << (id & 31))


def forbid(words: Any, id: int) -> None:
    """Clear the bit of one id."""
    if 0 <= id < len(words) * 32:
        words[id >> 5] = _signed(int(words[id >> 5]) & ~(1 << (id & 31)))


def has(words: Any, id: int) -> bool:
    """Whether the bit of one id is set."""
    return 0 <= id < len(words) * 32 and bool(int(words[id >> 5]) >> (id & 31) & 1)


def _signed(word: int) -> int:
    """The word as the arrays hold it: int32."""
    word &= 0xFFFF_FFFF
    return word - (1 << 32) if word >> 31 else word
