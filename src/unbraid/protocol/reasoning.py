"""The many names under which clients say two things: how reasoning is shown, and whether the model should think at all.

Each ecosystem has its own spelling; here they are rows of two tables. How reasoning is shown never changes what is
generated: it is a filter on spans.

`separate`  in its own field, the default
`inline`    as the model wrote it, delimiters included, at its place in the content
`hidden`    not at all: no text, no log-probabilities, no token ids, no empty chunks; usage still counts it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from unbraid.errors import RequestError

Shown = Literal["separate", "inline", "hidden"]

SHOWN: dict[str, dict[Any, Shown]] = {
    "include_reasoning": {True: "separate", False: "hidden"},  # vLLM, OpenRouter
    "separate_reasoning": {True: "separate", False: "inline"},  # SGLang
    "reasoning_format": {
        "auto": "separate",  # llama.cpp
        "deepseek": "separate",
        "deepseek-legacy": "separate",  # llama.cpp repeats the thought in content as well; nobody wants it twice
        "none": "inline",
        "parsed": "separate",  # Groq
        "raw": "inline",
        "hidden": "hidden",
    },
}
"""field -> value -> how it is shown. If several are given, the one that shows least wins."""

LEAST_FIRST: tuple[Shown, ...] = ("hidden", "inline", "separate")

EFFORTS_OFF = frozenset({"none", "off", "disabled"})
"""Values of an effort that mean: don't think. Every other effort is a word for the template."""


class Wishes(NamedTuple):
    """What a request says about reasoning. `None`: it says nothing, the format's default holds."""

    shown: Shown
    thinking: bool | None
    effort: str | None


def reasoning_wishes(fields: Mapping[str, Any]) -> Wishes:
    """Read every known spelling out of a request's fields."""
    shown = [_shown(name, fields[name]) for name in SHOWN if fields.get(name) is not None]
    nested = fields.get("reasoning")  # OpenRouter's and Responses' object
    if isinstance(nested, Mapping) and nested.get("exclude") is True:
        shown.append("hidden")
    thinking, effort = _thinking(fields)
    return Wishes(min(shown, key=LEAST_FIRST.index, default="separate"), thinking, effort)


def _shown(name: str, value: Any) -> Shown:
    choices = SHOWN[name]
    wanted = bool if True in choices else str
    if type(value) is not wanted or value not in choices:
        raise RequestError(f"{name}: {value!r} is not one of {_listed(choices)}", param=name)
    return choices[value]


def _thinking(fields: Mapping[str, Any]) -> tuple[bool | None, str | None]:
    """The switch and the effort. The first spelling given, in this order, decides."""
    nested = fields.get("reasoning")
    spellings = [
        ("enable_thinking", fields.get("enable_thinking")),  # DashScope, SiliconFlow
        ("think", fields.get("think")),  # Ollama: a switch or a level
        ("thinking", fields.get("thinking")),  # DeepSeek, GLM, Anthropic: {"type": "enabled"}
        ("reasoning_effort", fields.get("reasoning_effort")),
    ]
    if isinstance(nested, Mapping):
        spellings += [("reasoning.enabled", nested.get("enabled")), ("reasoning.effort", nested.get("effort"))]
    switches = [_switch(name, value) for name, value in spellings if value is not None]
    thinking = next((switch for switch, _ in switches if switch is not None), None)
    effort = next((word for _, word in switches if word is not None), None)
    return thinking, effort


def _switch(name: str, value: Any) -> tuple[bool | None, str | None]:
    if isinstance(value, bool):
        return value, None
    if isinstance(value, Mapping) and value.get("type") in ("enabled", "disabled", "adaptive"):
        return {"enabled": True, "disabled": False, "adaptive": None}[value["type"]], None
    if isinstance(value, str) and value:
        return (False, None) if value in EFFORTS_OFF else (True, value)
    raise RequestError(f'{name}: expected true, false, a level such as "low", or {{"type": "enabled"}}', param=name)


def _listed(choices: Mapping[Any, Any]) -> str:
    return ", ".join("true" if choice is True else "false" if choice is False else repr(choice) for choice in choices)
