"""The APIs: each reads its request, puts it into the words of Chat Completions, and names the writer of the reply.

Raw text (Completions, tokenize and the like) is in `unbraid.server.rawtext`.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from unbraid import anthropic, openai
from unbraid.errors import RequestError
from unbraid.protocol import Options, reasoning_wishes
from unbraid.server.gateway import Gateway, Plan, Prompt
from unbraid.server.requests import (
    ChatRequest,
    CountRequest,
    MessagesRequest,
    ResponsesRequest,
    check_tools,
    convert,
    read_fields,
)

CHAT = '{"model": ..., "messages": [{"role": "user", "content": "Hi"}]}'
MESSAGES = '{"model": ..., "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}'
RESPONSES = '{"model": ..., "input": "Hi"}'


def chat(gateway: Gateway, body: bytes) -> Plan:
    """`/v1/chat/completions`."""
    fields = read_fields(body, CHAT)
    if "messages" not in fields:
        raise RequestError(f"messages: missing; the body looks like {CHAT}", param="messages")

    def writer(request: ChatRequest, options: Options, prompt: Prompt) -> openai.ChatWriter:
        usage = request.stream_options
        return openai.ChatWriter(
            new_id("chatcmpl-"),
            int(time.time()),
            gateway.model_names[0],
            options,
            include_usage=bool(usage and usage.include_usage),
            continuous_usage=bool(usage and usage.include_usage and usage.continuous_usage_stats),
            extra=_extra(gateway, options, prompt),
        )

    return gateway.plan(convert(fields, ChatRequest), fields, writer, named_stop=True)


def _extra(gateway: Gateway, options: Options, prompt: Prompt) -> dict[str, Any] | None:
    """What a reply says beyond OpenAI's protocol: the prompt's ids if asked for, and that nothing but text was to go by."""
    if gateway.text_mode:
        return {"evidence": "text"}
    return {"prompt_token_ids": prompt.ids} if options.token_ids and options.reasoning != "hidden" else None


def responses(gateway: Gateway, body: bytes) -> Plan:
    """`/v1/responses`."""
    fields = read_fields(body, RESPONSES)
    request, chat_fields = _responses(fields)

    def writer(_: ChatRequest, options: Options, prompt: Prompt) -> openai.ResponsesWriter:
        id = new_id("resp_")
        return openai.ResponsesWriter(id, int(time.time()), gateway.model_names[0], options, request=fields)

    with renamed(_responses_names(fields)):
        return gateway.plan(request, chat_fields, writer)


def count_responses(gateway: Gateway, body: bytes) -> dict[str, Any]:
    """`/v1/responses/input_tokens`."""
    fields = read_fields(body, RESPONSES)
    request, chat_fields = _responses(fields)
    count = _count(gateway, request, chat_fields, _responses_names(fields))
    return {"object": "response.input_tokens", "input_tokens": count}


def messages(gateway: Gateway, body: bytes) -> Plan:
    """`/v1/messages`."""
    fields = read_fields(body, MESSAGES)
    convert(fields, MessagesRequest)
    request, chat_fields = _translated(fields, anthropic.chat_fields, _messages_names(fields), _HOMELESS)

    def writer(_: ChatRequest, options: Options, prompt: Prompt) -> anthropic.MessagesWriter:
        return anthropic.MessagesWriter(new_id("msg_"), gateway.model_names[0], options, prompt_tokens=len(prompt.ids))

    with renamed(_messages_names(fields)):
        return gateway.plan(request, chat_fields, writer)


def count_messages(gateway: Gateway, body: bytes) -> dict[str, Any]:
    """`/v1/messages/count_tokens`."""
    fields = read_fields(body, MESSAGES)
    convert(fields, CountRequest)
    names = _messages_names(fields)
    request, chat_fields = _translated(fields, anthropic.chat_fields, names, ())
    return {"input_tokens": _count(gateway, request, chat_fields, names)}


def _responses(fields: dict[str, Any]) -> tuple[ChatRequest, dict[str, Any]]:
    convert(fields, ResponsesRequest)
    return _translated(fields, openai.responses_as_chat, _responses_names(fields), ("return_token_ids",))


def _translated(
    fields: Mapping[str, Any],
    translate: Callable[[Mapping[str, Any]], dict[str, Any]],
    names: Names,
    homeless: Collection[str],
) -> tuple[ChatRequest, dict[str, Any]]:
    """The request in the words of Chat Completions. `homeless`: what its own API's replies can't hold."""
    if fields.get("n") not in (None, 1):
        raise RequestError("n: this API gives one reply; leave it out, or use /v1/chat/completions", param="n")
    for name in homeless:
        if fields.get(name) not in (None, False):
            message = f"{name}: this API has no place for them; leave it out, or use /v1/chat/completions"
            raise RequestError(message, param=name)
    chat = translate(fields)
    with renamed(names):
        return convert(chat, ChatRequest), chat


def _count(gateway: Gateway, request: ChatRequest, fields: Mapping[str, Any], names: Names) -> int:
    with renamed(names):
        gateway.check_model(request.model)
        check_tools(request.tools or [], gateway.settings)
        gateway.check_ids()
        return len(gateway.prompt(request, reasoning_wishes(fields)).ids)


_HOMELESS = ("return_token_ids", "logprobs", "top_logprobs")
"""What a Messages reply can't hold."""

Names = tuple[tuple[re.Pattern[str], str], ...]
"""What a field of Chat Completions is called elsewhere."""

_MESSAGES_NAMES: Names = (
    (re.compile(r"^stop(?=\W|$)"), "stop_sequences"),
    (re.compile(r"^response_format(\.json_schema)?(?=\W|$)"), "output_config.format"),
    (re.compile(r"^(tools\[\d+\])\.function\.parameters"), r"\1.input_schema"),
    (re.compile(r"^(tools\[\d+\])\.function"), r"\1"),
    (re.compile(r"^thinking_token_budget"), "thinking.budget_tokens"),
)
_EFFORT = (re.compile(r"^reasoning_effort(?=:|$)"), "output_config.effort")
_RESPONSES_NAMES: Names = (
    (re.compile(r"^response_format(\.json_schema)?(?=\W|$)"), "text.format"),
    (re.compile(r"^max_completion_tokens"), "max_output_tokens"),
    (re.compile(r"^(tools\[\d+\])\.function"), r"\1"),
    (re.compile(r"^messages(?=:|$)"), "input"),
    (re.compile(r"^tool_choice\.allowed_tools"), "tool_choice"),
)


def _messages_names(fields: Mapping[str, Any]) -> Names:
    names = _MESSAGES_NAMES if "reasoning_effort" in fields else (*_MESSAGES_NAMES, _EFFORT)
    return (_first_message("system"), *names) if fields.get("system") else names


def _responses_names(fields: Mapping[str, Any]) -> Names:
    return (_first_message("instructions"), *_RESPONSES_NAMES) if fields.get("instructions") else _RESPONSES_NAMES


def _first_message(name: str) -> tuple[re.Pattern[str], str]:
    """For a field that became the first message."""
    return re.compile(r"^messages\[0\](\.content)?(?=:|$)"), name


@contextmanager
def renamed(names: Names) -> Iterator[None]:
    """Errors name the client's own fields, not those they were translated to."""
    try:
        yield
    except RequestError as error:
        message, param = str(error), error.param
        for pattern, name in names:
            message = pattern.sub(name, message)
            param = param and pattern.sub(name, param)
        raise RequestError(message, param=param, status=error.status, code=error.code) from error


def new_id(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex}"
