"""Special tokens that carry a suffix which only the tokenizer knows: `<think:opensource>` for `<think>`.

Some checkpoints of a family put the same opaque suffix into every special token, others of the same family none. A table names the
bare tokens and the suffixes that are known (`Format.suffixes`); joined to a tokenizer it becomes the table of that tokenizer. So
everything behind `bind` sees tokens as they are. Fed text only, each known suffix is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from unbraid.table import Format, Special

_CLOSING = re.compile(r"\W+\Z")


def suffixed(text: str, suffix: str) -> str:
    """The token's text with the suffix before its closing bracket."""
    closing = _CLOSING.search(text)
    at = closing.start() if closing else len(text)
    return text[:at] + suffix + text[at:]


def find_suffix(fmt: Format, special: Iterable[str]) -> str:
    """The suffix that this vocabulary's tokens carry: the one under which it has most tokens of the table."""
    counts: dict[str, int] = {"": 0}
    known = tuple(special)
    for text in fmt.specials:
        head, tail = (re.escape(part) for part in suffixed(text, "\0").split("\0"))
        pattern = re.compile(rf"{head}(:[^\s<>|｜]+)?{tail}")
        for token in known:
            if match := pattern.fullmatch(token):
                counts[match[1] or ""] = counts.get(match[1] or "", 0) + 1
    return max(counts, key=lambda suffix: counts[suffix])


def with_suffix(fmt: Format, suffix: str) -> Format:
    """The table with this suffix in every special token."""
    changed: dict[int, Any] = {}

    def renamed(value: Any) -> Any:
        if id(value) not in changed:
            changed[id(value)] = rename(value)
        return changed[id(value)]

    def rename(value: Any) -> Any:
        if isinstance(value, Special):
            return replace(value, text=suffixed(value.text, suffix))
        if isinstance(value, Mapping):
            return {renamed(key): renamed(item) for key, item in value.items()}
        if isinstance(value, tuple):
            items = tuple(map(renamed, value))
            return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
        if not is_dataclass(value) or isinstance(value, type):
            return value
        parts = {f.name: renamed(getattr(value, f.name)) for f in fields(value) if f.init}
        parts = {name: part for name, part in parts.items() if part is not getattr(value, name)}
        return replace(value, **parts) if parts else value

    states, turns, start = renamed(fmt.states), renamed(fmt.turns), renamed(fmt.start)
    return fmt.replace(states=states, turns=turns, start=start, suffixes=())
