"""Tools at random: what a client may offer, as far as every format can enforce it."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("city", "days", "unit", "on", "path", "options", "limit", "x1", "note", "tags")


def tools(seed: int) -> list[dict[str, Any]]:
    """One to three tools with up to four parameters each."""
    rng = random.Random(f"tools {seed}")
    names = rng.sample(("get_weather", "plot", "ping", "move", "read_file"), rng.randint(1, 3))
    return [{"type": "function", "function": {"name": name, "parameters": _parameters(rng)}} for name in names]


def _parameters(rng: random.Random) -> dict[str, Any]:
    keys = rng.sample(NAMES, rng.randint(0, 4))
    schema: dict[str, Any] = {"type": "object", "properties": {key: _schema(rng, 0) for key in keys}}
    if required := [key for key in keys if rng.random() < 0.5]:
        schema["required"] = required
    if rng.random() < 0.3:
        schema["additionalProperties"] = False
    return schema


def _schema(rng: random.Random, depth: int) -> dict[str, Any]:
    kinds = [_text, _text, _enum, _integer, _number, _boolean, _nullable]
    if depth < 2:
        kinds += [_array, _object]
    return rng.choice(kinds)(rng, depth)


def _text(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "string"}


def _enum(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "string", "enum": rng.sample(["C", "F", "north east", "ü", "</x>", "a\nb"], rng.randint(1, 3))}


def _integer(rng: random.Random, depth: int) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {"type": "integer"}
    low = rng.randint(-20, 20)
    return {"type": "integer", "minimum": low, "maximum": low + rng.randint(0, 200)}


def _number(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "number"}


def _boolean(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": "boolean"}


def _nullable(rng: random.Random, depth: int) -> dict[str, Any]:
    return {"type": [rng.choice(["string", "integer"]), "null"]}


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    least = rng.randint(0, 2)
    return {"type": "array", "items": _schema(rng, depth + 1), "minItems": least, "maxItems": least + rng.randint(0, 2)}


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    keys = rng.sample(NAMES, rng.randint(1, 3))
    return {
        "type": "object",
        "properties": {key: _schema(rng, depth + 1) for key in keys},
        "required": [key for key in keys if rng.random() < 0.5],
        "additionalProperties": False,
    }
