"""Requests: read, checked, and put into the words of the rest of the server.

Unknown fields are accepted and ignored, as every server of this protocol does, since clients send each other's
extensions. Known ones are checked: an error names the field and says what would have been right. What would change the
reply and can't be done is refused, never dropped in silence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from unbraid.errors import RequestError
from unbraid.protocol.fields import arguments, not_run, unreadable
from unbraid.server.limits import check_schemas
from unbraid.server.settings import Settings

Positive = Annotated[int, Meta(ge=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]
TokenId = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    """vLLM, SGLang: every chunk carries the usage until there."""


class Sampling(Struct, kw_only=True):
    """What a request may say of how tokens are chosen and shown, in any API. What it says of reasoning is read by
    `unbraid.protocol.reasoning`, what it says of the output's form by `unbraid.server.constraints`."""

    model: str | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Share | None = None
    seed: Seed | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    stop_token_ids: list[TokenId] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    """vLLM, SGLang: false keeps every special token visible in the content, but the one that ends the turn."""
    keep_special_tokens: list[str] | None = None
    """Special tokens that stay visible in the content, by spelling."""


class Openai(Sampling, kw_only=True):
    """What Chat Completions and Completions have in common."""

    stream_options: StreamOptions | None = None
    n: Positive | None = None
    max_tokens: Positive | None = None
    stop: str | list[str] | None = None
    echo: bool | None = None
    include_stop_str_in_output: bool | None = None
    no_stop_trim: bool | None = None
    """SGLang's word for the same."""
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class ChatRequest(Openai, kw_only=True):
    """Chat Completions. The other APIs are put into its words."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    tool_stream: bool | None = None
    """GLM: false sends a call in one piece, once it is complete."""
    stream_reasoning: bool | None = None
    """SGLang: false sends a thought in one piece, once it is over."""
    response_format: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    functions: Any = None
    function_call: Any = None

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens


class CompletionRequest(Openai, kw_only=True):
    """Completions: raw text goes on."""

    prompt: str | list[str | TokenId | list[TokenId]]
    logprobs: Annotated[int, Meta(ge=0, le=20)] | bool | None = None
    best_of: int | None = None
    suffix: str | None = None
    add_special_tokens: bool | None = None


class MessagesRequest(Sampling, kw_only=True):
    """Anthropic's Messages. Blocks are read by `unbraid.anthropic.request`."""

    messages: list[dict[str, Any]]
    max_tokens: Positive
    system: str | list[dict[str, Any]] | None = None
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: bool | str | dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None


class CountRequest(Struct, kw_only=True):
    """What a Messages request would take: the same without its limits."""

    messages: list[dict[str, Any]]
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: bool | str | dict[str, Any] | None = None


class ResponsesRequest(Sampling, kw_only=True):
    """The Responses API. Items are read by `unbraid.openai.turns`."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: Positive | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    text: dict[str, Any] | None = None
    include: list[str] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    truncation: str | None = None
    metadata: dict[str, Any] | None = None


class TokenizeRequest(Struct, kw_only=True):
    """vLLM's `prompt` or `messages`, llama.cpp's `content`."""

    model: str | None = None
    prompt: str | None = None
    content: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    parse_special: bool | None = None
    """llama.cpp: false reads spelled special tokens as plain text."""
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(Struct, kw_only=True):
    tokens: list[TokenId]
    model: str | None = None


class TemplateRequest(Struct, kw_only=True):
    """llama.cpp's `/apply-template`."""

    messages: list[dict[str, Any]]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Part(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    thinking: Any = None


class CallFunction(Struct):
    name: str
    arguments: str | dict[str, Any] = ""


class Call(Struct):
    function: CallFunction
    id: str | None = None
    type: str = "function"


class IncomingMessage(Struct):
    role: str
    content: str | list[Part] | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    thinking: Any = None


class Function(Struct):
    name: Annotated[str, Meta(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct):
    function: Function
    type: str = "function"


ROLES = ("system", "developer", "user", "assistant", "tool")

CONSTRAINTS = ("guided_grammar", "structural_tag", "ebnf", "grammar")
"""Under these names vLLM, SGLang and llama.cpp take a grammar in a backend's own language."""

SCHEMAS = ("response_format", "structured_outputs", "guided_json", "guided_choice", "json_schema", "format")
"""Fields that may hold a JSON schema, or as many values as one, beside the tools."""

NEUTRAL: dict[str, Any] = {
    "repetition_penalty": 1,
    "repeat_penalty": 1,
    "min_tokens": 0,
    "bad_words": [],
    "stop_regex": [],
    "use_beam_search": False,
    "allowed_token_ids": None,
    "prompt_logprobs": None,
    "logprob_token_ids": None,
    "modalities": ["text"],
    "web_search_options": None,
}
"""Fields that would change the output and that no engine of ours can do yet, with the value that asks for nothing."""

_T = TypeVar("_T")
_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?:key in )?\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(.+)`$")


def read_fields(body: bytes, example: str) -> dict[str, Any]:
    """The fields of a request's body. `example` is what one looks like."""
    fields = read_json(body) if body.strip() else None
    if not isinstance(fields, dict):
        raise RequestError(f"the body must be a JSON object, such as {example}")
    return fields


def read_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        said = "half of a surrogate pair: a text was cut inside a character; send it whole" if _halved(body) else error
        raise RequestError(f"the body is not JSON: {said}") from None
    except RecursionError:
        raise RequestError("the body is nested too deeply") from None


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def _halved(body: bytes) -> bool:
    """Whether all that keeps a body from being JSON may be a character that was cut in two, as JavaScript cuts texts."""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return False
    return _SURROGATE.search(body) is not None


def convert(value: Any, type: type[_T], where: str = "") -> _T:
    """A JSON value as one of our types; an error names the field, `where` being the path to the value."""
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        match = _PATH.match(str(error))
        assert match is not None
        path = (where + (match["path"] or "")).lstrip(".")
        if missing := _MISSING.match(match["what"]):
            path, what = f"{path}.{missing[1]}".lstrip("."), "missing"
        else:
            what = match["what"]
        raise RequestError(f"{path or 'body'}: {what}", param=path or None) from None
    except RecursionError:
        raise RequestError(f"{where or 'body'}: nested too deeply", param=where or None) from None


def check_request(
    request: ChatRequest, fields: Mapping[str, Any], settings: Settings, passed: frozenset[str] = frozenset()
) -> None:
    """Everything that can be said of a request without knowing the model. `passed`: fields that the engine knows itself."""
    check_tools(request.tools or [], settings)
    if not request.messages:
        raise RequestError("messages: the list is empty; give at least one message", param="messages")
    check_common(request, fields, settings, passed)
    check_schemas(((name, fields.get(name)) for name in SCHEMAS), settings)
    if request.top_logprobs is not None and not request.logprobs:
        raise RequestError("top_logprobs: set logprobs: true as well", param="top_logprobs")
    if fields.get("best_of") not in (None, request.n or 1):
        raise RequestError("best_of: not supported; leave it out and choose among n replies", param="best_of")
    if request.functions is not None or request.function_call is not None:
        name = "functions" if request.functions is not None else "function_call"
        raise RequestError(f"{name}: no longer supported; use tools and tool_choice", param=name)
    if request.continue_final_message and request.add_generation_prompt:
        message = "continue_final_message: can't be combined with add_generation_prompt: true; leave one of them out"
        raise RequestError(message, param="continue_final_message")
    if request.continue_final_message and request.messages[-1].get("role") != "assistant":
        message = "continue_final_message: the last message must have the role assistant"
        raise RequestError(message, param="continue_final_message")
    refuse_constraints(fields)


def check_common(
    request: Openai, fields: Mapping[str, Any], settings: Settings, passed: frozenset[str] = frozenset()
) -> None:
    """What can be said of any API's request. `passed`: fields that the engine knows itself."""
    if (request.n or 1) > settings.max_choices:
        raise RequestError(f"n: at most {settings.max_choices} choices here, got {request.n}", param="n")
    if request.stream_options is not None and not request.stream:
        raise RequestError("stream_options: only allowed together with stream: true", param="stream_options")
    for name, neutral in NEUTRAL.items():
        if fields.get(name) not in (None, neutral) and name not in passed:
            remedy = "leave it out" if neutral is None else f"leave it out or give {json.dumps(neutral)}"
            raise RequestError(f"{name}: not supported by this engine; {remedy}", param=name)
    _check_stops(request.stops, settings)


def _check_stops(stops: Sequence[str], settings: Settings) -> None:
    if len(stops) > settings.max_stops:
        raise RequestError(f"stop: at most {settings.max_stops} strings, got {len(stops)}", param="stop")
    for stop in stops:
        if not stop:
            raise RequestError("stop: an empty string would stop at once; leave it out", param="stop")
        if len(stop) > settings.max_stop_length:
            raise RequestError(f"stop: at most {settings.max_stop_length} characters a string", param="stop")


def refuse_constraints(fields: Mapping[str, Any]) -> None:
    """Constraints written in a backend's own language: they can't be joined with a format's grammar."""
    for name in CONSTRAINTS:
        if fields.get(name) is not None:
            raise RequestError(f"{name}: not supported by this engine; use response_format or guided_json", param=name)


def tool_choice(request: ChatRequest) -> str:
    """`auto`, `none`, `required`, or `function NAME`; what it names must be among the tools."""
    choice = request.tool_choice
    if choice is None:
        return "auto" if request.tools else "none"
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            raise RequestError(
                f"tool_choice: {choice!r} is none of auto, none, required or a function", param="tool_choice"
            )
        if choice == "required" and not request.tools:
            raise RequestError(
                "tool_choice: required, but tools is empty; offer at least one tool", param="tool_choice"
            )
        return choice if request.tools else "none"
    offered = tool_names(request.tools or [])
    if choice.get("type") == "allowed_tools":
        return f"allowed_tools {_allowed_mode(choice, offered)}"
    function = choice.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if choice.get("type") != "function" or not isinstance(name, str):
        remedy = '{"type": "function", "function": {"name": ...}}'
        raise RequestError(f"tool_choice: expected auto, none, required or {remedy}", param="tool_choice")
    if name not in offered:
        names = ", ".join(offered[:8]) or "none at all"
        raise RequestError(
            f"tool_choice: the function {name!r} is not among the tools (offered: {names})", param="tool_choice"
        )
    return f"function {name}"


def _allowed_mode(choice: Mapping[str, Any], offered: Sequence[str]) -> str:
    """The mode of an `allowed_tools`, whose names must be among the tools. Responses have flat what Chat Completions nest."""
    nested = "allowed_tools" in choice
    where = "tool_choice.allowed_tools" if nested else "tool_choice"
    allowed: Any = choice["allowed_tools"] if nested else choice
    if not isinstance(allowed, Mapping) or not isinstance(allowed.get("tools"), list):
        raise RequestError(f'{where}: expected {{"mode": "auto", "tools": [...]}}', param=where)
    mode = allowed.get("mode") or "auto"
    if mode not in ("auto", "required"):
        raise RequestError(f"{where}.mode: {mode!r} is neither auto nor required", param=f"{where}.mode")
    if mode == "required" and not allowed["tools"]:
        raise RequestError(f"{where}.tools: empty, but a call is required; name at least one", param=f"{where}.tools")
    for at, tool in enumerate(allowed["tools"]):
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if name not in offered:
            names = ", ".join(offered[:8]) or "none at all"
            message = f"{where}.tools[{at}]: names {name!r}, which is not among the tools (offered: {names})"
            raise RequestError(message, param=f"{where}.tools[{at}]")
    return str(mode)


def tool_names(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def check_tools(tools: Sequence[dict[str, Any]], settings: Settings) -> None:
    if len(tools) > settings.max_tools:
        raise RequestError(f"tools: at most {settings.max_tools} tools here, got {len(tools)}", param="tools")
    check_schemas(((f"tools[{at}]", tool) for at, tool in enumerate(tools)), settings)
    seen: set[str] = set()
    for at, raw in enumerate(tools):
        kind = raw.get("type", "function")
        if kind != "function":
            raise not_run(kind, f"tools[{at}]")
        name = convert(raw, Tool, f"tools[{at}]").function.name
        if name in seen:
            where = f"tools[{at}].function.name"
            raise RequestError(f"{where}: {name!r} is offered twice; give every tool its own name", param=where)
        seen.add(name)


def template_messages(messages: Sequence[dict[str, Any]], template: str) -> list[dict[str, Any]]:
    """The conversation, checked, in the words of chat templates: one text per message, the thought under one name.

    What a template can't show is `ChatTemplate`'s business, save one point that its source tells: where it doesn't know
    the role `developer`, it is `system`.
    """
    developer = "developer" if "developer" in template else "system"
    shown: list[dict[str, Any]] = []
    open_calls: list[dict[str, Any]] = []
    for at, raw in enumerate(messages):
        message = _template_message(raw, at, developer)
        if message["role"] == "tool":
            _answer(message, open_calls, f"messages[{at}]")
        else:
            _sort_results(shown)
            open_calls = list(message.get("tool_calls", ()))
        shown.append(message)
    _sort_results(shown)
    return shown


def _sort_results(said: list[dict[str, Any]]) -> None:
    """The results at the end, in the order of their calls. Clients send them as they come, and most templates write no ids: the model
    would take one for the other."""
    first = next((at + 1 for at in reversed(range(len(said))) if said[at]["role"] != "tool"), 0)
    calls = said[first - 1].get("tool_calls", ()) if first else ()
    place = {call["id"]: at for at, call in enumerate(calls)}
    if all(result.get("tool_call_id") in place for result in said[first:]):
        said[first:] = sorted(said[first:], key=lambda result: place[result["tool_call_id"]])


def _answer(message: dict[str, Any], open_calls: list[dict[str, Any]], where: str) -> None:
    """A result takes its call off the list of those that wait for one. Clients of Ollama's API send none of the ids, but
    results in order, or with the function's name; an id that isn't known may be one of a history that was cut."""
    id, name = message.get("tool_call_id"), message.get("name", message.get("tool_name"))
    if id is not None:
        open_calls[:] = [call for call in open_calls if call["id"] != id]
        return
    call = next((call for call in open_calls if name in (None, call["function"]["name"])), None)
    if call is None:
        what = f"call of {name!r}" if name else "call"
        missing = f"{where}.tool_call_id: missing, and no {what} before it waits for a result; say which it answers"
        raise RequestError(missing, param=f"{where}.tool_call_id")
    open_calls.remove(call)
    message["tool_call_id"] = call["id"]


def _template_message(raw: dict[str, Any], at: int, developer: str) -> dict[str, Any]:
    where = f"messages[{at}]"
    message = convert(raw, IncomingMessage, where)
    if message.role not in ROLES:
        remedy = "use tool" if message.role == "function" else f"one of {', '.join(ROLES)}"
        raise RequestError(f"{where}.role: {message.role!r} is not a role here; {remedy}", param=f"{where}.role")
    if message.content is None and message.role != "assistant":
        raise RequestError(f"{where}.content: missing; a {message.role} message needs a text", param=f"{where}.content")
    if message.tool_calls and message.role != "assistant":
        raise RequestError(f"{where}.tool_calls: only an assistant message has calls", param=f"{where}.tool_calls")
    for name in ("function_call", "audio"):
        if message.role == "assistant" and raw.get(name) is not None:
            remedy = "put the call into tool_calls" if name == "function_call" else "put its transcript into content"
            raise RequestError(f"{where}.{name}: can't be read here; {remedy}", param=f"{where}.{name}")
    content, thought = _texts(message.content, where)
    # Unknown keys stay: a template may know more of its messages than the protocol does.
    shown = {key: value for key, value in raw.items() if value is not None}
    shown["role"] = developer if message.role == "developer" else message.role
    if message.role == "assistant":
        content = content or message.refusal or content
    shown["content"] = content if content is not None or message.tool_calls else ""
    if message.role == "assistant":
        shown.pop("refusal", None)
        for name in ("reasoning_content", "reasoning", "thinking"):
            value = raw.get(name)
            thought = thought or (value if isinstance(value, str) else "")
            shown.pop(name, None)
        details = _detailed(shown.pop("reasoning_details", None))
        thought = thought or details
        if thought:
            shown["reasoning_content"] = thought
        if message.tool_calls:
            shown["tool_calls"] = [
                _template_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(message.tool_calls)
            ]
        else:
            shown.pop("tool_calls", None)
    return shown


def _detailed(details: Any) -> str:
    """The thought in OpenRouter's `reasoning_details`; what is encrypted there only its maker can read."""
    parts = [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []
    texts = [part.get("text") or part.get("summary") for part in parts]
    return "".join([text for text in texts if isinstance(text, str)])


def _texts(content: str | list[Part] | None, where: str) -> tuple[str | None, str]:
    """The text of a message, and the thoughts among its parts (Mistral's type `thinking`)."""
    if content is None or isinstance(content, str):
        return content, ""
    texts, thoughts = [], []
    for at, part in enumerate(content):
        if part.type in ("text", "input_text", "output_text") and part.text is not None:
            texts.append(part.text)
        elif part.type == "refusal" and part.refusal is not None:
            texts.append(part.refusal)
        elif part.type == "thinking":
            inner = part.thinking if isinstance(part.thinking, list) else [{"text": part.thinking}]
            thoughts += [
                piece["text"] for piece in inner if isinstance(piece, dict) and isinstance(piece.get("text"), str)
            ]
        else:
            raise unreadable(part.type, f"{where}.content[{at}]", "a part", "text")
    return "".join(texts), "".join(thoughts)


def _template_call(call: Call, where: str) -> dict[str, Any]:
    if call.type != "function":
        raise RequestError(
            f"{where}.type: {call.type!r} is not supported; only function calls are", param=f"{where}.type"
        )
    given = call.function.arguments
    if isinstance(given, str):
        arguments(given, f"{where}.function.arguments")
    function = {"name": call.function.name, "arguments": given}
    return {"id": call.id, "type": "function", "function": function}
