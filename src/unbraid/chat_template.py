"""From messages to a prompt: the model's own Jinja template, as Hugging Face's `transformers` would render it.

The template comes with the model's file, so it is somebody else's program: it runs in a sandbox (`unbraid.template_sandbox`).

Templates disagree on what they are given, and don't say. Some write a call's arguments as they get them, some need an
object to write it in their own syntax; some know content as a text, some as a list of parts, some fail on `None`. So a
template is tried on small conversations once, and then gets what it can show (llama.cpp does the same).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unbraid.errors import RequestError
from unbraid.partial_json import readable_object
from unbraid.template_sandbox import MISFITS, Sandbox

ChatMessage = dict[str, Any]


class ChatTemplate:
    """One model's template. Safe to use from several threads. Raises `EngineError` for one that can't be compiled.

    >>> ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}").render(
    ...     [{"role": "user", "content": "Hi"}])
    '[user]Hi'
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        self._special_tokens = dict(special_tokens or {})
        self._sandbox = Sandbox()
        self._template, self.variables = self._sandbox.compiled(source)
        self._habits = _try_out(self._run)

    variables: frozenset[str]
    """The names that the template reads: `tools`, `enable_thinking`, ..."""

    @property
    def knows_tools(self) -> bool:
        """Whether the template looks at tools at all. Where it doesn't, see `tools_fallback`."""
        return "tools" in self.variables

    @property
    def writes_calls(self) -> bool:
        """Whether it shows the calls in a conversation's history (some do that without knowing tools)."""
        return self._habits.writes_calls

    def render(
        self,
        /,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        **kwargs: Any,
    ) -> str:
        """The prompt. `kwargs` are further variables of the template (`enable_thinking=False`).

        With `continue_final_message` no turn is opened, and all that follows the last message's own text is cut off, so
        that the model goes on with it: with its content or, if it has none, its reasoning. Raises RequestError with the
        template's own words if the template refuses the messages.
        """
        if not messages:
            raise RequestError("messages: a conversation has at least one message", param="messages")
        shown = [self._habits.adapt(message, at) for at, message in enumerate(messages)]
        mark = ""
        if continue_final_message:
            add_generation_prompt, mark = False, f"{secrets.token_hex(16)} "
            shown[-1] = _marked(shown[-1], mark)
        text = self._run(shown, tools, {**kwargs, "add_generation_prompt": add_generation_prompt})
        return _cut_at(text, mark) if mark else text

    def _run(
        self, messages: Sequence[ChatMessage], tools: Sequence[Mapping[str, Any]] | None, more: Mapping[str, Any]
    ) -> str:
        variables = {**self._special_tokens, "documents": None, **more}
        variables |= {"messages": messages, "tools": list(tools) if tools else None}
        try:
            return self._sandbox.run(self._template, variables)
        except MISFITS as error:
            said = str(error) or type(error).__name__
            raise RequestError(f"the model's chat template refuses these messages: {said}", param="messages") from error


def _marked(message: ChatMessage, mark: str) -> ChatMessage:
    """The last message with `mark` behind its text."""
    if message.get("tool_calls"):
        said = "messages: the last one has tool calls, so it can't be continued; send their results behind it"
        raise RequestError(said, param="messages")
    content = message.get("content")
    if isinstance(content, list) and content and isinstance(content[-1], dict) and "text" in content[-1]:
        return message | {"content": [*content[:-1], content[-1] | {"text": content[-1]["text"] + mark}]}
    if content or not message.get("reasoning_content"):
        return message | {"content": (content or "") + mark}
    return message | dict.fromkeys(("reasoning_content", "reasoning"), message["reasoning_content"] + mark)


def _cut_at(text: str, mark: str) -> str:
    at = text.rfind(mark.strip())
    if at < 0:
        raise RequestError(
            "the final message can't be continued: the model's chat template doesn't write its text", param="messages"
        )
    # Without the blank at its end, the mark stands where the template trims: it would have trimmed our text, too.
    return text[:at] if text.startswith(mark, at) else text[:at].rstrip()


# -- what a template can be given --------------------------------------------------------------------------------------

_PROBE = "xyzzy"


_Run = Callable[[Sequence[ChatMessage], Sequence[Mapping[str, Any]] | None, Mapping[str, Any]], str]


def _try_out(run: _Run) -> _Habits:
    def shows(messages: Sequence[ChatMessage], *, without: Sequence[str] = ()) -> bool:
        try:
            text = run(messages, [_TOOL], {"add_generation_prompt": False})
        except RequestError:
            return False
        return _PROBE in text and not any(sign in text for sign in without)

    def shows_call(arguments: Any, content: str | None) -> bool:
        # A Python dict, or JSON within JSON, is not how any model writes arguments; nor does any answer "None".
        return shows(_conversation(arguments, content), without=("{'plugh'", '\\"plugh', "None"))

    parts = [{"type": "text", "text": _PROBE}]
    takes_parts = shows([{"role": "user", "content": parts}], without=("'text'", '"text"'))
    takes_text = not takes_parts or shows([{"role": "user", "content": _PROBE}])
    # Objects before texts: a template that takes either writes objects as the model knows them.
    written = json.dumps({"plugh": _PROBE})
    for arguments in ({"plugh": _PROBE}, written):
        for content in (None, ""):
            if shows_call(arguments, content):
                objects, texts = isinstance(arguments, dict), shows_call(written, content)
                return _Habits(takes_parts, takes_text, objects, texts, content, writes_calls=True)
    return _Habits(takes_parts, takes_text)


@dataclass(frozen=True, slots=True)
class _Habits:
    """What one template can show."""

    takes_parts: bool
    """Content as a list of parts."""
    takes_text: bool
    """Content as a text."""
    takes_objects: bool = True
    """A call's arguments as an object."""
    takes_texts: bool = True
    """A call's arguments as a text."""
    empty: str | None = ""
    """What stands for no content beside calls. DeepSeek's drop the calls unless it is None, others fail on None."""
    writes_calls: bool = False

    def adapt(self, message: Mapping[str, Any], at: int) -> ChatMessage:
        """A message as this template can show it. The one that was given isn't changed."""
        adapted = dict(message)
        content = adapted.get("content")
        if not content:
            adapted["content"] = self.empty if adapted.get("tool_calls") else ""
        elif isinstance(content, list) and not self.takes_parts:
            adapted["content"] = _joined(content, at)
        elif isinstance(content, str) and not self.takes_text:
            adapted["content"] = [{"type": "text", "text": content}]
        reasoning = adapted.get("reasoning_content") or adapted.get("reasoning")
        if isinstance(reasoning, str):
            adapted |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if adapted.get("tool_calls"):
            adapted["tool_calls"] = [self._call(call, at) for call in adapted["tool_calls"]]
        return adapted

    def _call(self, call: Any, at: int) -> dict[str, Any]:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            raise RequestError(f"messages[{at}]: a tool call has no function", param="messages")
        arguments = function.get("arguments")
        if self.takes_objects:
            arguments = written_object(arguments)
            if isinstance(arguments, str) and not self.takes_texts:
                arguments = readable_object(arguments)
        elif isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        return {**call, "function": {**function, "arguments": arguments}}


_TOOL = {
    "type": "function",
    "function": {
        "name": "plugh",
        "description": "Says a word.",
        "parameters": {"type": "object", "properties": {"plugh": {"type": "string"}}, "required": []},
    },
}


def _conversation(arguments: Any, content: str | None) -> list[ChatMessage]:
    # Mistral's templates want ids of nine letters and digits.
    call = {"id": "abcdef123", "type": "function", "function": {"name": "plugh", "arguments": arguments}}
    return [
        {"role": "user", "content": "plover"},
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdef123", "name": "plugh", "content": "plover"},
    ]


def written_object(arguments: Any) -> Any:
    """The object that a JSON text spells. What isn't one (a call that was cut off) stays the text that it is."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _joined(parts: list[Any], at: int) -> str:
    for part in parts:
        if not (isinstance(part, Mapping) and isinstance(part.get("text"), str)):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise RequestError(f"messages[{at}].content: a part of type {kind!r} can't be shown", param="messages")
    return "".join(part["text"] for part in parts)


# -- a template that doesn't know tools --------------------------------------------------------------------------------


def tools_fallback(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    example: str,
    *,
    write_calls: Callable[[Sequence[Mapping[str, Any]]], str] | None = None,
    keep_history: bool = False,
) -> list[ChatMessage]:
    """The same conversation for a template that doesn't know tools: everything about them becomes ordinary text.

    The system message (a new one, if there is none) ends with the tools, one JSON schema a line, and with `example`, a
    call in the syntax of the model's format. Calls in the history become text, in that syntax if `write_calls` writes
    it; tool results become user messages, joined with what the user says next, since many templates insist that user
    and assistant take turns. With `keep_history` they stay as they are: for a template that `writes_calls`.
    """
    told = [dict(message) for message in messages] if keep_history else _told(messages, write_calls)
    listed = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    taught = _TAUGHT.format(tools=listed, example=example)
    if told and told[0].get("role") in ("system", "developer"):
        told[0] |= {"content": f"{_text(told[0], 0)}\n\n{taught}"}
    else:
        told.insert(0, {"role": "system", "content": taught})
    return told


_TAUGHT = """\
You can call these functions, one JSON schema a line:
{tools}

To call a function, write exactly like this, with the function's name and its arguments:
{example}"""


def _told(
    messages: Sequence[Mapping[str, Any]], write_calls: Callable[[Sequence[Mapping[str, Any]]], str] | None
) -> list[ChatMessage]:
    """Calls and results as text, results and what the user says after them in one message."""
    told: list[ChatMessage] = []
    after_result = False
    for at, message in enumerate(messages):
        plain = _without_tools(message, at, write_calls)
        if after_result and plain.get("role") == "user":
            told[-1]["content"] += "\n\n" + _text(plain, at)
        else:
            told.append(plain)
        after_result = message.get("role") == "tool" or (after_result and plain.get("role") == "user")
    return told


def _without_tools(
    message: Mapping[str, Any], at: int, write_calls: Callable[[Sequence[Mapping[str, Any]]], str] | None
) -> ChatMessage:
    plain = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id")}
    if message.get("role") == "tool":
        name = plain.pop("name", None)
        return {"role": "user", "content": f"Result of {name or 'the call'}:\n{_text(plain, at)}"}
    calls = message.get("tool_calls")
    if calls:
        written = write_calls(calls) if write_calls else "\n".join(map(_as_json, calls))
        plain["content"] = "\n".join(filter(None, (_text(plain, at), written)))
    return plain


def _text(message: Mapping[str, Any], at: int) -> str:
    content = message.get("content") or ""
    return _joined(content, at) if isinstance(content, list) else str(content)


def _as_json(call: Mapping[str, Any]) -> str:
    function = call["function"]
    return json.dumps(
        {"name": function["name"], "arguments": written_object(function.get("arguments") or {})}, ensure_ascii=False
    )
