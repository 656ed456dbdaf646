"""The fixtures: what each model writes and what it means, as data (`data/<format>.jsonl`, one claim a line).

name          what the line shows
why           the reason, where the name doesn't tell
raw           the model's output; `⟦...⟧` around what is spelled with ordinary tokens though a special token exists
prompt        how the prompt ends, in the same notation; absent: no prompt is known
tools         {"tool": {"parameter": type or JSON schema}}; absent: no tools
thinking      true, false; absent: the format's default
policy        fields of `Policy` that aren't the default
finish        "length"; absent: "stop"
text          false: only by ids, text can't tell it from something else (always so with spelled markers)
reasoning     the message's reasoning; absent: None
content       the message's content; absent: None
calls         [[name, arguments, complete?], ...]; arguments as a string are compared as text, as an object by value
ids           the calls' ids, for formats that write them
diagnostics   kinds that must be among the message's diagnostics
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import unbraid
from unbraid.machine import FinishReason
from unbraid.table import spelled

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Fixture:
    """One line."""

    format: str
    name: str
    raw: str
    prompt: str | None
    tools: list[dict[str, Any]] | None
    thinking: bool | None
    policy: unbraid.Policy
    finish: FinishReason
    text: bool
    reasoning: str | None
    content: str | None
    calls: list[list[Any]]
    ids: list[str] | None
    diagnostics: list[str]

    def __str__(self) -> str:
        return f"{self.format}/{self.name}"

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `Parser` and `parse`, but for the prompt."""
        return {"tools": self.tools, "thinking": self.thinking, "policy": self.policy}


def expand(tools: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The short form of tools as OpenAI writes them."""
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "parameters": {
                    "type": "object",
                    "properties": {
                        key: {"type": schema} if isinstance(schema, str) else schema
                        for key, schema in parameters.items()
                    },
                },
            },
        }
        for name, parameters in tools.items()
    ]


KEYS = set("name why raw prompt tools thinking policy finish text reasoning content calls ids diagnostics".split())


def read(file: Path) -> Iterator[Fixture]:
    """The fixtures of one file."""
    for number, line in enumerate(file.read_text(encoding="utf-8").rstrip("\n").split("\n"), 1):
        row = json.loads(line)
        assert row.keys() <= KEYS, f"{file.name}:{number}: unknown keys {row.keys() - KEYS}"
        spelled = "⟦" in row["raw"] + row.get("prompt", "")
        yield Fixture(
            format=file.stem,
            name=row["name"],
            raw=row["raw"],
            prompt=row.get("prompt"),
            tools=expand(row["tools"]) if "tools" in row else None,
            thinking=row.get("thinking"),
            policy=unbraid.Policy(**row.get("policy", {})),
            finish=row.get("finish", "stop"),
            text=row.get("text", True) and not spelled,
            reasoning=row.get("reasoning"),
            content=row.get("content"),
            calls=row.get("calls", []),
            ids=row.get("ids"),
            diagnostics=row.get("diagnostics", []),
        )


FIXTURES: dict[str, list[Fixture]] = {file.stem: list(read(file)) for file in sorted(DATA.glob("*.jsonl"))}
ALL = [case for cases in FIXTURES.values() for case in cases]


def own_texts(fmt: unbraid.Format) -> set[str]:
    """What the format writes of its own around texts and values."""
    spellings = [spelling for marker in fmt.markers for spelling in marker.spellings]
    spellings += [spelling for state in fmt.states if state.codec for spelling in state.codec.spellings()]
    return {text for spelling in spellings if len(text := spelled(spelling).strip()) > 2}


def value(arguments: str, complete: bool) -> Any:
    """What the JSON text of a call's arguments says; of a cut one, what is said so far."""
    return json.loads(arguments) if complete else json.loads(completed(arguments))


def completed(prefix: str) -> str:
    """A prefix of an object's JSON text, closed: open strings and brackets end, a key without a value is dropped."""
    brackets: list[str] = []
    in_string = escaped = False
    sound = 0  # up to here the text is sound once its brackets are closed
    closers = ""
    for position, char in enumerate(prefix):
        if in_string:
            in_string = escaped or char != '"'
            escaped = not escaped and char == "\\"
        elif char == '"':
            in_string = True
        elif char in "{[":
            brackets.append("}" if char == "{" else "]")
            sound, closers = position + 1, "".join(reversed(brackets))
        elif char in "}]":
            brackets.pop()
            sound, closers = position + 1, "".join(reversed(brackets))
        elif char == ",":
            sound, closers = position, "".join(reversed(brackets))
    if not brackets:
        return prefix if prefix.strip() else "{}"
    tail = prefix + ('"' if in_string else "") + "".join(reversed(brackets))
    try:
        json.loads(tail)
    except ValueError:
        return prefix[:sound] + closers
    return tail
