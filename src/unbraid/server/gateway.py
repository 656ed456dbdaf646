"""From a request to a plan: the prompt's ids, a parser and an assembler for each choice, and the engine's task.

Everything that can be wrong with a request comes to light here, before the first token, and has a real status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import unbraid
from unbraid.chat_template import ChatTemplate, tools_fallback
from unbraid.checkpoint import Checkpoint
from unbraid.detect import detect
from unbraid.engines.base import Engine, Generation, Spent
from unbraid.errors import FormatNotFound, RequestError, SchemaError, UnbraidError
from unbraid.openai import Choice, Options, Wishes, reasoning_wishes
from unbraid.schema import Tools
from unbraid.server.constraints import Constrainer, form_of
from unbraid.server.requests import (
    ChatRequest,
    check_request,
    read_request,
    template_messages,
    tool_choice,
)
from unbraid.server.settings import DEFAULT_SETTINGS, Settings
from unbraid.server.watch import Watch
from unbraid.server.written import example_call, written_calls
from unbraid.table import ENDED, Format

CHATML = "chatml"


def resolve_format(engine: Engine, name: str = "auto") -> Format:
    """The format of the engine's model: by name, by what the model is called, or by its tokens and chat template."""
    if name != "auto":
        return unbraid.get_format(name)
    for hint in engine.names:
        if not (hint.endswith(".json") or Path(hint).is_dir()) and (found := _called(hint)) is not None:
            return found
    special = frozenset(engine.vocabulary.special)
    detection = detect(Checkpoint(Path(engine.model), tuple(engine.names), special, engine.chat_template))
    if detection.format is not None and detection.confidence != "guess":
        return detection.format
    if "<|im_start|>" in (engine.chat_template or ""):
        return unbraid.get_format(CHATML)
    raise UnbraidError(
        f"can't tell the format of {engine.model!r}; say it with --format (`unbraid formats` lists them)"
    )


def _called(name: str) -> Format | None:
    try:
        return unbraid.get_format(name)
    except FormatNotFound:
        return None


@dataclass(slots=True)
class Run:
    """One choice on its way: what reads the engine's tokens, and what is asked of the engine."""

    parser: unbraid.Parser
    choice: Choice
    generation: Generation
    unseen_stops: frozenset[int]
    """The client's own stop tokens: they end the reply and aren't part of it. Those of the format the machine reads."""
    watch: Watch = field(default_factory=Watch)
    spent: Spent | None = None
    """In text mode, once the engine has said it."""


@dataclass(slots=True)
class Plan:
    """A request, ready to run."""

    runs: list[Run]
    options: Options
    model: str
    prompt: list[int]
    stream: bool
    include_usage: bool


class Gateway:
    """One engine with its model's format and chat template. Holds no state of any request."""

    def __init__(self, engine: Engine, format: Format | str = "auto", settings: Settings = DEFAULT_SETTINGS) -> None:
        self.engine = engine
        self.settings = settings
        self.format = resolve_format(engine, format) if isinstance(format, str) else format
        self.bound = self.format.bind(engine.vocabulary)
        self.source = self.bound if engine.abilities.token_ids else self.format
        """What parsers are made of: the bound format reads ids, the format itself text."""
        self.model_names = settings.model_names or (engine.model,)
        self._source = engine.chat_template or ""
        self._template = ChatTemplate(self._source, engine.special_tokens) if self._source else None
        self._stop_ids = _stop_ids(self.format, engine)
        self._end_ids = engine.end_ids | set(self._stop_ids)
        self._constrainer = Constrainer(self.bound, frozenset(self._end_ids), engine.abilities)

    def chat(self, body: bytes) -> Plan:
        """Plan a Chat Completions request. Raises `RequestError`."""
        request, fields = read_request(body)
        self.check_model(request.model)
        check_request(request, fields, self.settings)
        wishes = reasoning_wishes(fields)
        kwargs = self._template_kwargs(request, wishes)
        text = self._prompt(request, kwargs)
        prompt = self._tokenized(text)
        options = self._options(request, wishes)
        generation = self._generation(request, prompt, text)
        hidden = frozenset(request.stop_token_ids or ()) - self._end_ids
        tools = self._tools(request)
        thinking = self._thinking(wishes, kwargs)
        choice = tool_choice(request)
        constraint = self._constrainer.plan(form_of(request, fields), prompt, tools, thinking)
        runs = [
            Run(
                unbraid.Parser(
                    self.source,
                    tools=tools,
                    prompt=prompt if self.source is self.bound else text,
                    thinking=thinking,
                    policy=self.settings.policy,
                    tool_choice=choice,
                ),
                Choice(index, options),
                replace(_varied(generation, index), constraint=constraint() if constraint else None),
                hidden,
            )
            for index in range(request.n or 1)
        ]
        usage = bool(request.stream_options and request.stream_options.include_usage)
        return Plan(runs, options, self.model_names[0], prompt, bool(request.stream), usage)

    def check_model(self, name: str | None) -> None:
        """A request without a model means the one that is served."""
        if name is not None and name not in self.model_names:
            message = f"model: {name!r} is not served here; use {' or '.join(self.model_names)}"
            raise RequestError(message, param="model", status=404, code="model_not_found")

    def _options(self, request: ChatRequest, wishes: Wishes) -> Options:
        return Options(
            reasoning=wishes.shown,
            reasoning_fields=self.settings.reasoning_fields,
            stop=request.stops,
            logprobs=bool(request.logprobs),
            token_ids=bool(request.return_token_ids),
            tokens_as_ids=bool(request.return_tokens_as_token_ids),
            named_tool_choice=tool_choice(request).startswith("function "),
        )

    def _template_kwargs(self, request: ChatRequest, wishes: Wishes) -> dict[str, Any]:
        """What the template is told. What a client says in the template's own words beats every general switch."""
        kwargs: dict[str, Any] = {}
        keywords = self.format.thinking.keywords
        if wishes.thinking is not None and keywords:
            kwargs[keywords[0]] = wishes.thinking
        if wishes.effort is not None:
            kwargs["reasoning_effort"] = wishes.effort
        return kwargs | (request.chat_template_kwargs or {})

    def _thinking(self, wishes: Wishes, kwargs: Mapping[str, Any]) -> bool | None:
        """For the parser, where the prompt leaves it open."""
        said = next(
            (kwargs[name] for name in self.format.thinking.keywords if isinstance(kwargs.get(name), bool)), None
        )
        return wishes.thinking if said is None else said

    def _prompt(self, request: ChatRequest, kwargs: Mapping[str, Any]) -> str:
        messages = template_messages(request.messages, self._source)
        if self._template is None:
            raise RequestError("this model has no chat template, so it can't chat", status=400)
        going_on = bool(request.continue_final_message)
        tools = request.tools if tool_choice(request) != "none" else None
        if tools and not self._template.knows_tools:
            messages, tools = self._tools_as_text(messages, tools), None
        return self._template.render(
            messages,
            tools,
            add_generation_prompt=not going_on
            if request.add_generation_prompt is None
            else request.add_generation_prompt,
            continue_final_message=going_on,
            **kwargs,
        )

    def _tokenized(self, text: str) -> list[int]:
        """The prompt's ids; none in text mode, where the engine counts for itself."""
        if self.source is not self.bound:
            return []
        prompt = self.engine.tokenize(text)
        if len(prompt) >= self.engine.context_length:
            message = (
                f"messages: the prompt has {len(prompt)} tokens and leaves no room for a reply "
                f"(the context is {self.engine.context_length} tokens); shorten it"
            )
            raise RequestError(message, param="messages", code="context_length_exceeded")
        return prompt

    def _tools_as_text(self, messages: list[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """For a template that doesn't know tools: offer, calls and results become ordinary text."""
        example = example_call(self.format, tools)
        if example is None:
            raise RequestError("tools: this model's chat template doesn't know tools; leave them out", param="tools")
        assert self._template is not None
        return tools_fallback(
            messages,
            tools,
            example,
            write_calls=lambda calls: written_calls(self.format, calls) or "",
            keep_history=self._template.writes_calls,
        )

    def _generation(self, request: ChatRequest, prompt: list[int], text: str) -> Generation:
        # A limit beyond the context is cut to what fits: many clients send a fixed, large one. The reply then says
        # `length`.
        room = self.engine.context_length - len(prompt)
        own_stops = () if request.ignore_eos else self._stop_ids
        if request.stop_token_ids and "stop_ids" not in self.engine.abilities.settings:
            raise RequestError("stop_token_ids: this engine knows no ids; use stop", param="stop_token_ids")
        return Generation(
            prompt=prompt,
            text=text,
            max_tokens=min(request.token_limit or room, room),
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            min_p=request.min_p,
            seed=request.seed,
            frequency_penalty=request.frequency_penalty,
            presence_penalty=request.presence_penalty,
            logit_bias=self._logit_bias(request),
            stop_ids=tuple(dict.fromkeys([*own_stops, *(request.stop_token_ids or ())])),
            ignore_eos=bool(request.ignore_eos),
            logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        )

    def _logit_bias(self, request: ChatRequest) -> dict[int, float]:
        bias: dict[int, float] = {}
        for key, value in (request.logit_bias or {}).items():
            if not key.isascii() or not key.isdigit() or self.engine.vocabulary.bytes_of(int(key)) is None:
                raise RequestError(f"logit_bias: {key!r} is no token id of this model", param="logit_bias")
            bias[int(key)] = value
        return bias

    def _tools(self, request: ChatRequest) -> Tools:
        """Resolved once, shared by all choices."""
        try:
            return Tools.resolve(request.tools)
        except SchemaError as error:
            raise RequestError(f"tools: {error}", param="tools") from error


def _stop_ids(format: Format, engine: Engine) -> list[int]:
    """The tokens that end a turn in this format. Those that the model's file calls its end the engine knows itself."""
    ends = {marker.text for marker, target in format.turns.items() if target is ENDED}
    special = engine.vocabulary.special
    return [special[text] for text in sorted(ends) if text in special]


def _varied(generation: Generation, index: int) -> Generation:
    """Several choices of one seeded request must differ, and be the same next time."""
    if not index or generation.seed is None:
        return generation
    return replace(generation, seed=generation.seed + index)
