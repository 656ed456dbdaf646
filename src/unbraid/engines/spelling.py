"""Bytes as ordinary tokens, where an engine has told what was written but not with which tokens."""

from __future__ import annotations

from functools import lru_cache

from unbraid.vocabulary import Vocabulary

_LONGEST = 64
"""Bytes of what may have to be spelled: parts of one character, or of a few."""


def spell(vocabulary: Vocabulary, data: bytes, count: int) -> tuple[int, ...]:
    """Ids of ordinary tokens that spell `data`: exactly `count` of them if that can be, else as few as possible.

    Where several spellings have as many tokens, the one with the longest first token is taken: how the byte-pair tokenizers that
    split characters do it. Nothing if no tokens spell it.
    """
    data = data[-_LONGEST:]
    ids = _ordinary(vocabulary)
    best: dict[int, dict[int, tuple[int, ...]]] = {len(data): {0: ()}}
    for start in range(len(data) - 1, -1, -1):
        found = best.setdefault(start, {})
        for stop in range(len(data), start, -1):
            id = ids.get(data[start:stop])
            if id is not None:
                for used, rest in best[stop].items():
                    found.setdefault(used + 1, (id, *rest))
    spellings = best.get(0, {})
    if count in spellings:
        return spellings[count]
    return spellings[min(spellings)] if spellings else ()


@lru_cache(maxsize=4)
def _ordinary(vocabulary: Vocabulary) -> dict[bytes, int]:
    """Short ordinary tokens by their bytes."""
    named = set(vocabulary.special.values())
    return {data: id for id, data in vocabulary.tokens.items() if 0 < len(data) <= _LONGEST and id not in named}
