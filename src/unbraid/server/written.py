"""Calls as text, for models whose chat template doesn't know tools: shown to them as an example, and in their history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from unbraid.errors import RenderError
from unbraid.message import Message, ToolCall
from unbraid.render import render
from unbraid.table import Format


def written_calls(format: Format, calls: Sequence[Mapping[str, Any]]) -> str:
    """Calls in the format's own syntax; what that can't express (arguments that were cut off, say) as plain text."""
    made = [_call(call) for call in calls]
    return _rendered(format, made) or "\n".join(f"{call.name} {call.arguments}" for call in made)


def example_call(format: Format, tools: Sequence[Mapping[str, Any]]) -> str | None:
    """How a call looks, made up from the first tool: its required parameters, with a word for what belongs there. `None`
    if the format has no calls."""
    function = tools[0]["function"]
    parameters = function.get("parameters") or {}
    required, properties = parameters.get("required"), parameters.get("properties")
    if not (isinstance(required, list) and required):
        required = list(properties)[:1] if isinstance(properties, Mapping) else []
    arguments = {name: "..." for name in required if isinstance(name, str)}
    return _rendered(format, [ToolCall("call_1", function["name"], json.dumps(arguments, ensure_ascii=False))])


def _rendered(format: Format, calls: list[ToolCall]) -> str | None:
    try:
        return render(format, Message(tool_calls=calls), thinking=False).strip()
    except RenderError:
        return None


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    arguments = function["arguments"] or "{}"
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(call.get("id") or "", function["name"], arguments)
