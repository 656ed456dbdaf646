"""Raw text: Completions, and what goes with it: tokens of a text, the text of tokens, a conversation as a prompt.

Nothing is taken apart here, unless reasoning is to be hidden: that is a filter on spans in this API as in every other,
so the output is then read with the model's format, and what is shown is its content.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import unbraid
from unbraid.engines.base import Engine
from unbraid.errors import RequestError
from unbraid.openai import CompletionsWriter, Detokenizer
from unbraid.protocol import Choice, Options, reasoning_wishes
from unbraid.server.apis import new_id
from unbraid.server.constraints import SPELLINGS
from unbraid.server.gateway import Gateway, Plan, Run, varied
from unbraid.server.reading import Reader
from unbraid.server.requests import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TemplateRequest,
    TokenizeRequest,
    check_common,
    check_tools,
    convert,
    read_fields,
    refuse_constraints,
)

COMPLETION = '{"model": ..., "prompt": "Once upon a time"}'
MAX_TOKENS = 16
"""Without a limit, as at OpenAI: raw text rarely ends by itself."""
MAX_RUNS = 128
"""Prompts times choices of one request."""

STRUCTURED = ("response_format", "structured_outputs", *SPELLINGS)


def completions(gateway: Gateway, body: bytes) -> Plan:
    """`/v1/completions`."""
    fields = read_fields(body, COMPLETION)
    request = convert(fields, CompletionRequest)
    gateway.check_model(request.model)
    _check(request, fields, gateway)
    prompts = _prompts(request, gateway)
    n = request.n or 1
    if len(prompts) * n > MAX_RUNS:
        raise RequestError(f"prompt: at most {MAX_RUNS} replies a request, got {len(prompts)} x {n}", param="prompt")
    shown = reasoning_wishes(fields).shown
    options = _options(request, "hidden" if shown == "hidden" else "separate")
    runs: list[Run] = []
    logprobs = int(request.logprobs or 0) if options.logprobs else None
    for ids, text in prompts:
        limit = request.max_tokens or MAX_TOKENS
        generation = gateway.generation(request, ids, text, fields, limit=limit, logprobs=logprobs)
        for index in range(n):
            choice = Choice(len(runs), options, prefill=text if request.echo else "")
            reader = _reader(request, options, gateway, text if gateway.text_mode else ids)
            runs.append(Run(gateway.counting(reader), choice, varied(generation, index), gateway.unseen_stops(request)))
    usage = request.stream_options
    include = bool(usage and usage.include_usage)
    writer = CompletionsWriter(
        new_id("cmpl-"),
        int(time.time()),
        gateway.model_names[0],
        options,
        include_usage=include,
        continuous_usage=bool(include and usage and usage.continuous_usage_stats),
        prompt_ids=[ids for ids, _ in prompts for _ in range(n)] if options.reasoning != "hidden" else (),
    )
    return Plan(runs, writer, bool(request.stream), sum(len(ids) for ids, _ in prompts))


def _check(request: CompletionRequest, fields: Mapping[str, Any], gateway: Gateway) -> None:
    check_common(request, fields, gateway.settings, gateway.engine.abilities.passed)
    refuse_constraints(fields)
    for name in STRUCTURED:
        if fields.get(name) not in (None, {"type": "text"}):
            raise RequestError(f"{name}: not supported for raw text; use /v1/chat/completions", param=name)
    if request.suffix:
        raise RequestError("suffix: not supported; this server doesn't fill in the middle", param="suffix")
    if request.best_of not in (None, request.n or 1):
        raise RequestError("best_of: not supported; leave it out and choose among n replies", param="best_of")
    if request.echo and request.logprobs not in (None, False):
        raise RequestError("echo: can't be combined with logprobs; the prompt's are not known", param="echo")


def _options(request: CompletionRequest, shown: Any) -> Options:
    return Options(
        reasoning=shown,
        stop=request.stops,
        include_stop=bool(request.include_stop_str_in_output or request.no_stop_trim),
        logprobs=request.logprobs is not None and request.logprobs is not False,
        token_ids=bool(request.return_token_ids),
        tokens_as_ids=bool(request.return_tokens_as_token_ids),
    )


def _reader(request: CompletionRequest, options: Options, gateway: Gateway, prompt: list[int] | str) -> Reader:
    if options.reasoning == "hidden":
        source, policy = gateway.reading(request)
        return unbraid.Parser(source, prompt=prompt, policy=policy, tool_choice="none")
    vocabulary = gateway.engine.vocabulary
    kept = {vocabulary.special[text] for text in gateway.reading(request)[1].keep_special_tokens}
    hidden = frozenset(vocabulary.special.values()) if request.skip_special_tokens is not False else gateway.end_ids
    return Detokenizer(
        vocabulary, frozenset() if options.include_stop and request.skip_special_tokens is False else hidden - kept
    )


def _prompts(request: CompletionRequest, gateway: Gateway) -> list[tuple[list[int], str]]:
    """Ids and text of each prompt. A list of numbers is one prompt, any other list several."""
    given = request.prompt
    if isinstance(given, str) or (given and all(isinstance(item, int) for item in given)):
        return [_prompt(given, request, gateway, "prompt")]
    if not given:
        raise RequestError("prompt: the list is empty; give at least one prompt", param="prompt")
    return [_prompt(item, request, gateway, f"prompt[{at}]") for at, item in enumerate(given)]


def _prompt(given: Any, request: CompletionRequest, gateway: Gateway, where: str) -> tuple[list[int], str]:
    if not isinstance(given, str | list):
        raise RequestError(
            f"{where}: numbers and texts can't be mixed; a prompt is a text or a list of ids", param=where
        )
    if not given:
        raise RequestError(f"{where}: empty; there must be something to go on from", param=where)
    if gateway.text_mode:
        if isinstance(given, list):
            raise RequestError(f"{where}: this engine knows no ids; give a text", param=where)
        return [], given
    engine = gateway.engine
    if isinstance(given, list):
        ids = _known(given, gateway, where)
        text = engine.vocabulary.decode(ids)
    else:
        ids, text = engine.tokenize(given), given
        if request.add_special_tokens:
            ids = _begun(ids, engine)
    gateway.check_room(ids, where)
    return ids, text


def _begun(ids: list[int], engine: Engine) -> list[int]:
    """With the token in front that begins a text, if the model has one."""
    begin = engine.vocabulary.special.get(engine.special_tokens.get("bos_token", ""))
    return ids if begin is None or ids[:1] == [begin] else [begin, *ids]


def _known(ids: Sequence[int], gateway: Gateway, where: str) -> list[int]:
    for at, id in enumerate(ids):
        if gateway.engine.vocabulary.bytes_of(id) is None:
            raise RequestError(f"{where}[{at}]: {id} is no token id of this model", param=f"{where}[{at}]")
    return list(ids)


# -- tokens ------------------------------------------------------------------------------------------------------------


def tokenize(gateway: Gateway, body: bytes) -> dict[str, Any]:
    """`/tokenize`, as vLLM, SGLang and llama.cpp know it."""
    fields = read_fields(body, '{"prompt": "Hi"}')
    request = convert(fields, TokenizeRequest)
    gateway.check_model(request.model)
    gateway.check_ids()
    text = request.prompt if request.prompt is not None else request.content
    if request.messages is not None:
        ids = _conversation(gateway, fields)[1]
    elif text is not None:
        ids = gateway.engine.tokenize(text, special=request.parse_special is not False)
        if request.add_special_tokens:
            ids = _begun(ids, gateway.engine)
    else:
        raise RequestError("prompt: missing; give a `prompt` or `messages`", param="prompt")
    reply: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": gateway.engine.context_length}
    if request.return_token_strs:
        vocabulary = gateway.engine.vocabulary
        reply["token_strs"] = [(vocabulary.bytes_of(id) or b"").decode("utf-8", "replace") for id in ids]
    return reply


def detokenize(gateway: Gateway, body: bytes) -> dict[str, Any]:
    """`/detokenize`; the text under the names of vLLM, SGLang and llama.cpp."""
    request = convert(read_fields(body, '{"tokens": [1, 2, 3]}'), DetokenizeRequest)
    gateway.check_model(request.model)
    gateway.check_ids()
    text = gateway.engine.vocabulary.decode(_known(request.tokens, gateway, "tokens"))
    return {"prompt": text, "text": text, "content": text}


def apply_template(gateway: Gateway, body: bytes) -> dict[str, Any]:
    """`/apply-template`: a conversation as the model would read it."""
    fields = read_fields(body, '{"messages": [{"role": "user", "content": "Hi"}]}')
    convert(fields, TemplateRequest)
    return {"prompt": _conversation(gateway, fields)[0]}


def _conversation(gateway: Gateway, fields: dict[str, Any]) -> tuple[str, list[int]]:
    request = convert(fields, ChatRequest)
    gateway.check_model(request.model)
    check_tools(request.tools or [], gateway.settings)
    prompt = gateway.prompt(request, reasoning_wishes(fields))
    return prompt.text, prompt.ids
