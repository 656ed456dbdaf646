"""`unbraid render`: a message as JSON, written back as the raw text of a format."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import unbraid
from unbraid.cli.problems import FILE, Problem, label, near, read_json, read_tools
from unbraid.message import Message, Part, TextPart, ToolCall

SHAPE = """\
FILE.json is what `unbraid parse --json` prints, or an assistant's message in OpenAI's shape:
{"reasoning": "Hm.", "content": "Hi", "tool_calls": [{"id": "c1", "name": "f", "arguments": {"a": 1}}]}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `unbraid render`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = SHAPE
    add = parser.add_argument
    add("format", metavar="F", help="name, alias, model id, or a table's file (.json)")
    add("file", metavar="FILE.json", help="the message; - reads standard input")
    add(
        "--tools",
        metavar="FILE",
        help="the offered tools, as OpenAI writes them: with them the values' types are checked",
    )
    add("--thinking", choices=("on", "off"), help="whether thinking is on (default: the format's own)")


def main(args: argparse.Namespace) -> int:
    """Print the raw text, without a newline of our own."""
    fmt = unbraid.get_format(args.format)
    data = read_json(args.file)
    try:
        message = message_from(data)
    except Problem as problem:
        raise Problem(f"{label(args.file)}: {problem}", problem.code) from problem
    tools = read_tools(args.tools) if args.tools else None
    thinking = None if args.thinking is None else args.thinking == "on"
    sys.stdout.write(unbraid.render(fmt, message, tools=tools, thinking=thinking))
    return 0


_MESSAGE = ("role", "reasoning", "reasoning_content", "content", "tool_calls", "parts", "diagnostics")
_CALL = ("id", "type", "index", "function", "name", "arguments", "complete")


def _all_known(data: dict[str, Any], known: Sequence[str], place: str) -> None:
    """Nothing that was said may be left out without a word."""
    for key, value in data.items():
        if key not in known and value:
            raise Problem(f"{place}{key}: unknown; known are {', '.join(known)}{near(key, known)}", FILE)


def message_from(data: Any) -> Message:
    """The message that this JSON says."""
    if not isinstance(data, dict):
        raise Problem(f"expected an object with reasoning, content, tool_calls, found {type(data).__name__}", FILE)
    _all_known(data, _MESSAGE, "")
    reasoning = _text(data, "reasoning") or _text(data, "reasoning_content")
    calls = [] if data.get("tool_calls") is None else data["tool_calls"]
    if not isinstance(calls, list):
        raise Problem("tool_calls: expected a list", FILE)
    message = Message(reasoning, _text(data, "content"), [_call(call, at) for at, call in enumerate(calls)])
    message.parts[:] = _parts(data, message)
    return message


def _parts(data: dict[str, Any], message: Message) -> list[Part]:
    """The order, where it is said; only if it says the same as the fields."""
    parts: list[Part] = []
    calls = iter(message.tool_calls)
    for part in data.get("parts") or []:
        if not isinstance(part, dict):
            raise Problem("parts: expected objects", FILE)
        if part.get("strand") == "tool_call":
            call = next(calls, None)
            parts += [call] if call else []
        elif part.get("strand") in ("reasoning", "content"):
            parts.append(TextPart(part["strand"], _text(part, "text") or ""))
    return parts


def _text(data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is not None and not isinstance(value, str):
        raise Problem(f"{key}: expected a text or null", FILE)
    return value or None


def _call(call: Any, at: int) -> ToolCall:
    place = f"tool_calls/{at}"
    if not isinstance(call, dict):
        raise Problem(f"{place}: expected an object", FILE)
    _all_known(call, _CALL, f"{place}/")
    said = call["function"] if isinstance(call.get("function"), dict) else call
    arguments = said.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = _text(said, "name")
    if name is None:
        raise Problem(f"{place}/name: is missing", FILE)
    return ToolCall(_text(call, "id") or "", name, arguments)
