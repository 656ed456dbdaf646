"""A Messages request in the words of Chat Completions.

What can't be said there, or can't be shown to a chat template (images, the provider's own tools), is refused: an error
names the field and the remedy. Blocks of the history become messages:

- `thinking` is the assistant's `reasoning_content`, whatever its signature; `redacted_thinking` holds nothing readable.
- `tool_use` is a call, `tool_result` a message of the role `tool`, at its place among the user's texts. Where it says `is_error`, its
  text begins with `Error: ` (unless it begins with that word anyway), and the message has `is_error` for templates that know it.
- A last message of the assistant is continued.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from unbraid.errors import RequestError
from unbraid.protocol.fields import flag, listed, mapping, not_run, number, text, unreadable

OWN = frozenset(
    "system messages stop_sequences tools tool_choice thinking output_config output_format mcp_servers container "
    "metadata service_tier context_management betas stream_options stop".split()
)
"""Fields that mean something else here, or are put into other words. All others are extensions, and go through."""

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The request as Chat Completions would say it. Raises `RequestError`."""
    chat: dict[str, Any] = {name: value for name, value in fields.items() if name not in OWN}
    chat["messages"] = _messages(fields)
    if chat["messages"][-1]["role"] == "assistant":
        chat["continue_final_message"] = True
    if fields.get("stop_sequences") is not None:
        chat["stop"] = listed(fields["stop_sequences"], "stop_sequences", str)
    if fields.get("stop") is not None:
        raise RequestError("stop: is called stop_sequences here", param="stop")
    if fields.get("tools"):
        chat["tools"] = [
            _tool(tool, f"tools[{at}]") for at, tool in enumerate(listed(fields["tools"], "tools", Mapping))
        ]
    if fields.get("mcp_servers"):
        raise RequestError("mcp_servers: not supported; offer their tools in `tools`", param="mcp_servers")
    return chat | _choice(fields) | _thinking(fields) | _output(fields)


def _messages(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    messages = listed(fields.get("messages"), "messages", Mapping)
    if not messages:
        raise RequestError("messages: the list is empty; give at least one message", param="messages")
    said = [{"role": "system", "content": system}] if (system := _system(fields.get("system"))) else []
    for at, message in enumerate(messages):
        where = f"messages[{at}]"
        role = message.get("role")
        if role == "user":
            said += _user(message.get("content"), f"{where}.content")
        elif role == "assistant":
            said.append(_assistant(message.get("content"), f"{where}.content"))
        elif role == "system":
            said.append({"role": "system", "content": _texts(message.get("content"), f"{where}.content")})
        else:
            remedy = "use user or assistant, and `system` beside `messages`"
            raise RequestError(f"{where}.role: {role!r} is not a role here; {remedy}", param=f"{where}.role")
    return said


def _system(system: Any) -> str:
    return _texts(system, "system") if system is not None else ""


def _blocks(content: Any, where: str) -> Iterable[tuple[str, Mapping[str, Any], str]]:
    """`(type, block, path)` of each block; a text is one block."""
    if isinstance(content, str):
        yield "text", {"text": content}, where
        return
    for at, block in enumerate(listed(content, where, Mapping, "a text or a list of blocks")):
        yield text(block.get("type"), f"{where}[{at}].type"), block, f"{where}[{at}]"


def _texts(content: Any, where: str) -> str:
    pieces = []
    for kind, block, path in _blocks(content, where):
        if kind != "text":
            raise unreadable(kind, path, "a block", "text")
        pieces.append(text(block.get("text"), f"{path}.text"))
    return "".join(pieces)


def _user(content: Any, where: str) -> list[dict[str, Any]]:
    """A turn of the user: results and texts, each at its place."""
    said: list[dict[str, Any]] = []
    for kind, block, path in _blocks(content, where):
        if kind == "tool_result":
            said.append(_result(block, path))
        elif kind == "text":
            piece = text(block.get("text"), f"{path}.text")
            if said and said[-1]["role"] == "user":
                said[-1]["content"] += piece
            else:
                said.append({"role": "user", "content": piece})
        else:
            raise unreadable(kind, path, "a block", "text or tool_result")
    if not said:
        raise RequestError(f"{where}: empty; a user message needs a block", param=where)
    return said


def _result(block: Mapping[str, Any], path: str) -> dict[str, Any]:
    """What a tool said. That it failed is part of the text, since no chat template has another place for it."""
    id = text(block.get("tool_use_id"), f"{path}.tool_use_id")
    result = block.get("content")
    found = "" if result is None else _texts(result, f"{path}.content")
    message = {"role": "tool", "tool_call_id": id, "content": found}
    if not flag(block.get("is_error"), f"{path}.is_error"):
        return message
    told = found.lower().startswith("error")
    return message | {"content": found if told else f"Error: {found}" if found else "Error", "is_error": True}


def _assistant(content: Any, where: str) -> dict[str, Any]:
    """A turn of the assistant. Templates have one place each for thought, text and calls: interleaved ones are joined."""
    said: dict[str, list[str]] = {"text": [], "thinking": []}
    calls: list[dict[str, Any]] = []
    for kind, block, path in _blocks(content, where):
        if kind in said:
            said[kind].append(text(block.get(kind), f"{path}.{kind}"))
        elif kind == "tool_use":
            calls.append(_call(block, path))
        elif kind != "redacted_thinking":
            raise unreadable(kind, path, "a block", "text, thinking or tool_use")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(said["text"]) or None}
    if thought := "\n".join(filter(None, said["thinking"])):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: Mapping[str, Any], path: str) -> dict[str, Any]:
    given = block.get("input")
    arguments = json.dumps({} if given is None else mapping(given, f"{path}.input"), ensure_ascii=False)
    function = {"name": text(block.get("name"), f"{path}.name"), "arguments": arguments}
    return {"id": text(block.get("id"), f"{path}.id"), "type": "function", "function": function}


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind not in (None, "custom"):
        raise not_run(kind, where)
    function: dict[str, Any] = {"name": text(tool.get("name"), f"{where}.name")}
    schema = tool.get("input_schema")
    function["parameters"] = {} if schema is None else mapping(schema, f"{where}.input_schema")
    function |= {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _choice(fields: Mapping[str, Any]) -> dict[str, Any]:
    choice = fields.get("tool_choice")
    if choice is None:
        return {}
    kind = text(mapping(choice, "tool_choice").get("type"), "tool_choice.type")
    chat: dict[str, Any] = {}
    if flag(choice.get("disable_parallel_tool_use"), "tool_choice.disable_parallel_tool_use"):
        chat["parallel_tool_calls"] = False
    if kind == "tool":
        name = text(choice.get("name"), "tool_choice.name")
        return chat | {"tool_choice": {"type": "function", "function": {"name": name}}}
    if kind not in _CHOICES:
        raise RequestError(f"tool_choice.type: {kind!r} is none of auto, any, tool, none", param="tool_choice.type")
    return chat | {"tool_choice": _CHOICES[kind]}


def _thinking(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The switch, the budget, and whether the thought is to be shown."""
    thinking = fields.get("thinking")
    if not isinstance(thinking, Mapping):
        return {} if thinking is None else {"thinking": thinking}  # an extension's switch, checked like every other
    kind = thinking.get("type")
    if kind not in ("enabled", "disabled", "adaptive"):
        raise RequestError(f"thinking.type: {kind!r} is none of enabled, disabled, adaptive", param="thinking.type")
    chat: dict[str, Any] = {"thinking": {"type": kind}}
    if kind == "enabled" and thinking.get("budget_tokens") is not None:
        budget = number(thinking["budget_tokens"], "thinking.budget_tokens", 1)
        most = fields.get("max_tokens")
        if isinstance(most, int) and budget >= most:
            message = f"thinking.budget_tokens: {budget} of max_tokens {most} leave nothing for the answer; think less"
            raise RequestError(message, param="thinking.budget_tokens")
        chat["thinking_token_budget"] = budget
    if thinking.get("display") == "omitted":
        chat["include_reasoning"] = False
    return chat


def _output(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The form of the answer: `output_config`, and `output_format` as it was called first."""
    config = mapping(fields.get("output_config") or {}, "output_config")
    chat: dict[str, Any] = {}
    if config.get("effort") is not None:
        chat["reasoning_effort"] = text(config["effort"], "output_config.effort")
    wanted = config.get("format") or fields.get("output_format")
    if wanted is None:
        return chat
    where = "output_config.format" if config.get("format") else "output_format"
    kind = mapping(wanted, where).get("type")
    if kind != "json_schema":
        raise RequestError(f"{where}.type: {kind!r} is not supported; use json_schema", param=f"{where}.type")
    schema = mapping(wanted.get("schema"), f"{where}.schema")
    return chat | {"response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": schema}}}
