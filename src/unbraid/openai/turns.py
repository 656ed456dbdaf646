"""A Responses request in the words of Chat Completions.

Items of earlier turns become messages: what the assistant said between two turns of others (its `reasoning`, its
`message`s, its `function_call`s) is one message again, a `function_call_output` is one of the role `tool`.

The gateway keeps nothing. What needs a memory is refused (`previous_response_id`, `conversation`, `background`, a stored
`prompt`); `store` is accepted, and answered with false. `include` may ask for log-probabilities; encrypted reasoning
isn't needed, since items of reasoning carry their text, to be sent back as it came.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unbraid.errors import RequestError
from unbraid.protocol.fields import arguments, flag, listed, mapping, not_run, number, text, unreadable

OWN = frozenset(
    "input instructions max_output_tokens max_tool_calls tools tool_choice text include top_logprobs store background "
    "previous_response_id conversation prompt truncation metadata service_tier stream_options messages".split()
)
"""Fields that mean something else here, or are put into other words. All others are extensions, and go through."""

STATEFUL = {
    "previous_response_id": "send the earlier turns again, as items of `input`",
    "conversation": "send the earlier turns as items of `input`",
    "prompt": "send its text as `instructions`",
}
LOGPROBS = "message.output_text.logprobs"
INCLUDABLE = frozenset({LOGPROBS, "reasoning.encrypted_content"})
"""What `include` may ask for. Results of tools that only OpenAI runs may be named too: there are never any."""

_OTHERS = (
    "web_search_call.",
    "file_search_call.",
    "code_interpreter_call.",
    "computer_call_output.",
    "message.input_image.",
)


def chat_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The request as Chat Completions would say it. Raises `RequestError`."""
    _refuse_memory(fields)
    chat: dict[str, Any] = {name: value for name, value in fields.items() if name not in OWN}
    chat["messages"] = _messages(fields)
    if fields.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = number(fields["max_output_tokens"], "max_output_tokens", 1)
    if fields.get("tools"):
        chat["tools"] = [
            _tool(tool, f"tools[{at}]") for at, tool in enumerate(listed(fields["tools"], "tools", Mapping))
        ]
    return chat | _choice(fields.get("tool_choice")) | _format(fields) | _logprobs(fields)


def _refuse_memory(fields: Mapping[str, Any]) -> None:
    for name, remedy in STATEFUL.items():
        if fields.get(name) is not None:
            raise RequestError(f"{name}: this server keeps no state; {remedy}", param=name)
    if flag(fields.get("background"), "background"):
        message = "background: this server keeps no state; leave it out, and stream if the reply takes long"
        raise RequestError(message, param="background")


def _messages(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = []
    if fields.get("instructions") is not None:
        said.append({"role": "system", "content": text(fields["instructions"], "instructions")})
    given = fields.get("input")
    if isinstance(given, str):
        return [*said, {"role": "user", "content": given}]
    items = listed(given, "input", Mapping, "a text or a list of items")
    if not items:
        raise RequestError("input: the list is empty; give at least one item", param="input")
    for at, item in enumerate(items):
        _add(said, item, f"input[{at}]")
    return said


def _add(said: list[dict[str, Any]], item: Mapping[str, Any], where: str) -> None:
    """One more item of the conversation."""
    kind = item.get("type", "message")
    match kind:
        case "message" if item.get("role") == "assistant":
            _join(_assistant(said), "content", _texts(item.get("content"), f"{where}.content"))
        case "message":
            role = text(item.get("role"), f"{where}.role")
            if role not in ("user", "system", "developer"):
                message = f"{where}.role: {role!r} is not a role here; one of user, assistant, system, developer"
                raise RequestError(message, param=f"{where}.role")
            said.append({"role": role, "content": _texts(item.get("content"), f"{where}.content")})
        case "reasoning":
            _join(_assistant(said), "reasoning_content", _thought(item, where))
        case "function_call":
            function = {
                "name": text(item.get("name"), f"{where}.name"),
                "arguments": arguments(item.get("arguments"), f"{where}.arguments"),
            }
            call = {"id": text(item.get("call_id"), f"{where}.call_id"), "type": "function", "function": function}
            _assistant(said).setdefault("tool_calls", []).append(call)
        case "function_call_output":
            id, result = text(item.get("call_id"), f"{where}.call_id"), _texts(item.get("output"), f"{where}.output")
            said.append({"role": "tool", "tool_call_id": id, "content": result})
        case "item_reference":
            raise RequestError(f"{where}: this server keeps no state; send the item itself", param=where)
        case _:
            raise unreadable(kind, where, "an item", "message, reasoning, function_call or function_call_output")


def _assistant(said: list[dict[str, Any]]) -> dict[str, Any]:
    """The assistant's message that is being put together: the last one, or a new one."""
    if not said or said[-1]["role"] != "assistant":
        said.append({"role": "assistant", "content": None})
    return said[-1]


def _join(message: dict[str, Any], field: str, piece: str) -> None:
    before = message.get(field)
    message[field] = f"{before}\n{piece}" if before and piece else before or piece


def _texts(content: Any, where: str) -> str:
    if isinstance(content, str):
        return content
    pieces = []
    for at, part in enumerate(listed(content, where, Mapping, "a text or a list of parts")):
        path, kind = f"{where}[{at}]", part.get("type")
        if kind not in ("input_text", "output_text", "text", "refusal"):
            raise unreadable(kind, path, "a part", "input_text")
        name = "refusal" if kind == "refusal" else "text"
        pieces.append(text(part.get(name), f"{path}.{name}"))
    return "".join(pieces)


def _thought(item: Mapping[str, Any], where: str) -> str:
    """The text of an item of reasoning; where only a summary came, that."""
    for field in ("content", "summary"):
        parts = listed(item.get(field) or [], f"{where}.{field}", Mapping)
        if parts:
            return "".join([text(part.get("text"), f"{where}.{field}[{at}].text") for at, part in enumerate(parts)])
    return ""


def _tool(tool: Mapping[str, Any], where: str) -> dict[str, Any]:
    kind = tool.get("type")
    if kind != "function":
        raise not_run(kind, where)
    function: dict[str, Any] = {"name": text(tool.get("name"), f"{where}.name")}
    if tool.get("parameters") is not None:
        function["parameters"] = mapping(tool["parameters"], f"{where}.parameters")
    function |= {name: tool[name] for name in ("description", "strict") if tool.get(name) is not None}
    return {"type": "function", "function": function}


def _choice(choice: Any) -> dict[str, Any]:
    if choice is None or isinstance(choice, str):
        return {} if choice is None else {"tool_choice": choice}
    kind = mapping(choice, "tool_choice").get("type")
    if kind == "function":
        name = text(choice.get("name"), "tool_choice.name")
        return {"tool_choice": {"type": "function", "function": {"name": name}}}
    if kind == "allowed_tools":
        tools = listed(choice.get("tools"), "tool_choice.tools", Mapping)
        allowed = [{"type": "function", "function": {"name": tool.get("name")}} for tool in tools]
        return {"tool_choice": {"type": kind, "allowed_tools": {"mode": choice.get("mode"), "tools": allowed}}}
    message = f"tool_choice.type: {kind!r} is not supported; use auto, none, required, a function or allowed_tools"
    raise RequestError(message, param="tool_choice.type")


def _format(fields: Mapping[str, Any]) -> dict[str, Any]:
    wanted = mapping(fields.get("text") or {}, "text").get("format")
    if wanted is None:
        return {}
    kind = mapping(wanted, "text.format").get("type")
    if kind == "json_schema":
        holder = {name: wanted[name] for name in ("name", "schema", "strict") if name in wanted}
        mapping(holder.get("schema"), "text.format.schema")
        return {"response_format": {"type": kind, "json_schema": holder}}
    if kind not in ("text", "json_object"):
        message = f"text.format.type: {kind!r} is none of text, json_object, json_schema"
        raise RequestError(message, param="text.format.type")
    return {"response_format": {"type": kind}}


def _logprobs(fields: Mapping[str, Any]) -> dict[str, Any]:
    include = listed(fields.get("include") or [], "include", str)
    for name in include:
        if name not in INCLUDABLE and not name.startswith(_OTHERS):
            message = f"include: {name!r} is not known; use {' or '.join(sorted(INCLUDABLE))}"
            raise RequestError(message, param="include")
    if LOGPROBS not in include:
        return {}
    return {"logprobs": True, "top_logprobs": number(fields.get("top_logprobs") or 0, "top_logprobs", 0)}
