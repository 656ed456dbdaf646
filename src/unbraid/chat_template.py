"""From messages to a prompt: the model's own Jinja template, as Hugging Face's `transformers` would render it.

The template comes with the model's file, so it is somebody else's program. It runs in Jinja's sandbox (no attribute
that leads out of the data, nothing that changes the data), and within bounds: at most `MAX_OUTPUT` characters in any
text it builds, `MAX_SECONDS` in its loops and blocks, and Jinja's own 100,000 steps of a `range`. The bounds stop
accidents and quadratic templates; somebody who is out to harm may get around them, as around every sandbox in Python.

Templates disagree on what they are given, and don't say. Some write a call's arguments as they get them, some need an
object to write it in their own syntax; some know content as a text, some as a list of parts, some fail on `None`. So a
template is tried on small conversations once, and then gets what it can show (llama.cpp does the same).
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, NoReturn

from unbraid.errors import EngineError, RequestError
from unbraid.partial_json import readable_object

try:
    import jinja2
except ImportError as missing:
    raise EngineError("chat templates need jinja2: pip install 'unbraid[server]'") from missing

import jinja2.meta
from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

Message = dict[str, Any]

MAX_OUTPUT = 16_000_000
MAX_SECONDS = 10.0
MAX_NUMBER = 1_000_000
"""The largest width, count or indent that a template may ask for."""

# What a template raises on data that it wasn't written for, beside Jinja's own errors.
_MISFITS = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class ChatTemplate:
    """One model's template. Safe to use from several threads.

    >>> ChatTemplate("{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}").render(
    ...     [{"role": "user", "content": "Hi"}])
    '[user]Hi'
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        self._special_tokens = dict(special_tokens or {})
        self._environment = _Environment()
        try:
            self._template = self._environment.from_string(source)
            self.variables = frozenset(jinja2.meta.find_undeclared_variables(self._environment.parse(source)))
        except (jinja2.TemplateError, RecursionError) as error:
            raise EngineError(f"the model's chat template can't be compiled: {error}") from error
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
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, more: Mapping[str, Any]
    ) -> str:
        variables = {**self._special_tokens, "documents": None, **more}
        variables |= {"messages": messages, "tools": list(tools) if tools else None}
        try:
            return self._environment.run(self._template, variables)
        except _MISFITS as error:
            said = str(error) or type(error).__name__
            raise RequestError(f"the model's chat template refuses these messages: {said}", param="messages") from error


def _marked(message: Message, mark: str) -> Message:
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


_Run = Callable[[Sequence[Message], Sequence[Mapping[str, Any]] | None, Mapping[str, Any]], str]


def _try_out(run: _Run) -> _Habits:
    def shows(messages: Sequence[Message], *, without: Sequence[str] = ()) -> bool:
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

    def adapt(self, message: Mapping[str, Any], at: int) -> Message:
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


def _conversation(arguments: Any, content: str | None) -> list[Message]:
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
) -> list[Message]:
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
) -> list[Message]:
    """Calls and results as text, results and what the user says after them in one message."""
    told: list[Message] = []
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
) -> Message:
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


# -- the sandbox -------------------------------------------------------------------------------------------------------


class _Generation(Extension):
    """`{% generation %}`, with which templates mark what the model wrote, for training. It changes nothing here."""

    tags = {"generation"}  # noqa: RUF012  (Jinja declares it so)

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _BoundedCode(CodeGenerator):
    """Compiles a look at the clock into every block (so into every turn of a loop), and a bound into every `~`."""

    def blockvisit(self, nodes: Any, frame: Frame) -> None:
        self.writeline("environment.tick()")
        super().blockvisit(nodes, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat_texts((")
        for argument in node.nodes:
            self.visit(argument, frame)
            self.write(", ")
        self.write("))")


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja as `transformers` sets it up, within bounds."""

    code_generator_class = _BoundedCode
    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation])
        self._clock = threading.local()
        self.filters |= {name: _bounded(self.filters[name]) for name in ("batch", "center", "indent", "slice")}
        self.filters["tojson"] = _to_json
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _raise, "strftime_now": lambda format: datetime.now().strftime(format)}

    def run(self, template: jinja2.Template, variables: Mapping[str, Any]) -> str:
        self._clock.end = time.monotonic() + MAX_SECONDS
        pieces, size = [], 0
        for piece in template.generate(variables):
            size += len(piece)
            _check_size(size)
            pieces.append(piece)
        return "".join(pieces)

    def tick(self) -> None:
        if time.monotonic() > self._clock.end:
            raise SecurityError(f"it takes longer than {MAX_SECONDS:g} seconds")

    def concat_texts(self, values: Sequence[Any]) -> str:
        texts = [str(value) for value in values]
        _check_size(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
            _check_size(len(left) + len(right))
        elif operator == "*":
            for one, other in ((left, right), (right, left)):
                if hasattr(one, "__len__") and isinstance(other, int):
                    _check_size(len(one) * other)
        elif operator == "**" and (abs(right) > 64 or abs(left) > MAX_NUMBER):
            raise SecurityError("a power too large")
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(getattr(__obj, "__self__", None), str):  # "x".ljust(10 ** 9)
            _check_numbers(args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)


def _check_size(size: int) -> None:
    if size > MAX_OUTPUT:
        raise SecurityError(f"it writes more than {MAX_OUTPUT:,} characters")


def _check_numbers(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise SecurityError(f"the number {value} is too large here")


def _bounded(filter: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(filter)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        _check_numbers(args[1:], kwargs)  # the first is the value itself
        return filter(*args, **kwargs)

    return bounded


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own escapes `<` and `&` for HTML; models have seen them as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
