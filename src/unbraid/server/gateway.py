"""From a request to a plan: the prompt's ids, a parser and an assembler for each choice, and the engine's task.

Everything that can be wrong with a request comes to light here, before the first token, and has a real status. Which
protocol a request came in is `unbraid.server.apis`' business: here it is put in the words of Chat Completions.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

import unbraid
from unbraid.boundary import BoundFormat
from unbraid.chat_template import ChatTemplate, tools_fallback
from unbraid.checkpoint import Checkpoint
from unbraid.detect import detect
from unbraid.engines.base import Engine, Generation, Spent
from unbraid.errors import FormatNotFound, RequestError, SchemaError, UnbraidError
from unbraid.events import Markup
from unbraid.parser import text_program
from unbraid.policy import Policy
from unbraid.protocol import Choice, Options, Wishes, Writer, reasoning_wishes
from unbraid.schema import Tools
from unbraid.server.constraints import Constrainer, Form, form_of
from unbraid.server.literal import Seams, markup
from unbraid.server.reading import Counted, Reader
from unbraid.server.requests import ChatRequest, Sampling, check_request, template_messages, tool_choice
from unbraid.server.settings import DEFAULT_SETTINGS, Settings
from unbraid.server.watch import Watch
from unbraid.server.written import example_call, written_calls
from unbraid.table import ENDED, Format, spelled

CHATML = "chatml"
NO_TEMPLATE = (
    "this model has no chat template (the server takes one: --chat-template, or --tokenizer with the model's folder)"
)
OWN_VARIABLES = frozenset(("messages", "tools", "add_generation_prompt", "continue_final_message"))
"""What a chat template is told anyway."""


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

    parser: Reader
    choice: Choice
    generation: Generation
    unseen_stops: frozenset[int]
    """The client's own stop tokens: they end the reply and aren't part of it. Those of the format the machine reads."""
    watch: Watch = field(default_factory=Watch)
    ended: bool = False
    """It has its finish reason."""
    spent: Spent | None = None
    """In text mode, once the engine has said it."""

    @property
    def counted(self) -> Counted | None:
        """In text mode: the steps so far."""
        return self.parser if isinstance(self.parser, Counted) else None


@dataclass(slots=True)
class Plan:
    """A request, ready to run."""

    runs: list[Run]
    writer: Writer
    stream: bool
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered conversation, and what was said about it."""

    ids: list[int]
    text: str
    thinking: bool | None
    """For the parser, where the prompt leaves it open."""


WriterOf = Callable[[ChatRequest, Options, Prompt], Writer]


class Gateway:
    """One engine with its model's format and chat template. Holds no state of any request."""

    def __init__(self, engine: Engine, format: Format | str = "auto", settings: Settings = DEFAULT_SETTINGS) -> None:
        self.engine = engine
        self.settings = settings
        self.format = resolve_format(engine, format) if isinstance(format, str) else format
        self.bound = self.format.bind(engine.vocabulary)
        self.text_mode = not engine.abilities.token_ids
        """The engine reports no ids: the format reads text, and the engine counts for itself."""
        known = self.format.specials if self.text_mode else engine.vocabulary.special
        if unknown := settings.policy.keep_special_tokens - set(known):
            whose = (
                f"{self.format.name}, which reads text here; it has {', '.join(known)}"
                if self.text_mode
                else repr(engine.model)
            )
            raise UnbraidError(f"keep-special-tokens: {min(unknown)!r} is no special token of {whose}")
        self.model_names = settings.model_names or (engine.model,)
        self._source = engine.chat_template or ""
        self._template = ChatTemplate(self._source, engine.special_tokens) if self._source else None
        sewing = settings.literal_messages and not self.text_mode  # a text has no other way to say "no token"
        self._seams = Seams(markup(engine.vocabulary, self.format, self._source) if sewing else ())
        self._stop_ids = _stop_ids(self.format, engine)
        self.end_ids = engine.end_ids | set(self._stop_ids)
        self._constrainer = Constrainer(self.bound, frozenset(self.end_ids), engine.abilities)
        self._thought_openers, self._thought_closers = delimiters(self.format)
        self._keeping: OrderedDict[frozenset[str], BoundFormat] = OrderedDict()

    def plan(
        self, request: ChatRequest, fields: Mapping[str, Any], writer: WriterOf, *, named_stop: bool = False
    ) -> Plan:
        """Plan a request. `fields` is all that it says, in the words of Chat Completions. `named_stop`: a call that the
        request named ends with `stop`, which only OpenAI's Chat Completions do. Raises `RequestError`."""
        self.check_model(request.model)
        check_request(request, fields, self.settings, self.engine.abilities.passed)
        wishes = reasoning_wishes(fields)
        prompt = self.prompt(request, wishes)
        named = named_stop and tool_choice(request).startswith("function ")
        options = replace(self._options(request, wishes), named_tool_choice=named)
        generation = self.generation(
            request,
            prompt.ids,
            prompt.text,
            fields,
            limit=request.token_limit,
            logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        )
        tools = self._tools(request)
        constraint = self._constrainer.plan(self._form(request, fields), prompt.ids, tools, prompt.thinking)
        source, policy = self.reading(request)
        prefill = self._prefill(request, options, prompt)
        earlier = earlier_ids(request)
        runs = [
            Run(
                self.counting(
                    unbraid.Parser(
                        source,
                        tools=tools,
                        prompt=prompt.text if self.text_mode else prompt.ids,
                        thinking=prompt.thinking,
                        policy=policy,
                        tool_choice=tool_choice(request),
                        choice=index,
                        earlier_ids=earlier,
                    )
                ),
                Choice(index, options, prefill=prefill),
                replace(varied(generation, index), constraint=constraint() if constraint else None),
                self.unseen_stops(request),
            )
            for index in range(request.n or 1)
        ]
        return Plan(runs, writer(request, options, prompt), bool(request.stream), len(prompt.ids))

    def _form(self, request: ChatRequest, fields: Mapping[str, Any]) -> Form:
        """The form that the request wants. That there be one call at most needs no grammar: where the engine knows none,
        the reply ends with the first."""
        form = form_of(request, fields)
        if not form.parallel and not self.engine.abilities.constraints:
            without = form_of(msgspec.structs.replace(request, parallel_tool_calls=None), fields)
            return form if without.grammar else without
        return form

    def check_model(self, name: str | None) -> None:
        """A request without a model means the one that is served."""
        if name is not None and name not in self.model_names:
            message = f"model: {name!r} is not served here; use {' or '.join(self.model_names)}"
            raise RequestError(message, param="model", status=404, code="model_not_found")

    def check_ids(self) -> None:
        """Raises `RequestError` where nobody can tell the tokens of a text."""
        if self.text_mode:
            raise RequestError("this engine reports no token ids, so tokens can't be told or counted here")

    def counting(self, reader: Reader) -> Reader:
        """The reader; in text mode, one that counts what nobody else does."""
        return Counted(reader) if self.text_mode else reader

    def unseen_stops(self, request: Sampling) -> frozenset[int]:
        return frozenset(request.stop_token_ids or ()) - self.end_ids

    def reading(self, request: Sampling) -> tuple[BoundFormat | Format, Policy]:
        """What reads this request's output, ids or text, and by which policy."""
        policy = self.settings.policy
        if isinstance(request, ChatRequest) and request.tool_stream is False:
            policy = replace(policy, calls="atomic")
        kept = policy.keep_special_tokens | self._kept(request)
        if kept == policy.keep_special_tokens:
            return self.format if self.text_mode else self.bound, policy
        if self.text_mode:
            raise RequestError(
                "keep_special_tokens: this engine knows no ids; leave it out", param="keep_special_tokens"
            )
        return self._bound_keeping(kept), replace(policy, keep_special_tokens=kept)

    def _kept(self, request: Sampling) -> frozenset[str]:
        special = self.engine.vocabulary.special
        kept = frozenset(request.keep_special_tokens or ())
        if unknown := sorted(kept - special.keys()):
            message = f"keep_special_tokens: {unknown[0]!r} is no special token of this model"
            raise RequestError(message, param="keep_special_tokens")
        if request.skip_special_tokens is False:
            markup = self.format.specials  # what takes the output apart is no part of its content
            kept |= {text for text, id in special.items() if id not in self.end_ids and text not in markup}
        return kept

    def _bound_keeping(self, kept: frozenset[str]) -> BoundFormat:
        """A policy is compiled once for a format. Clients may ask for any set of tokens, so only a few are remembered."""
        bound = self._keeping.pop(kept, None) or self.format.bind(self.engine.vocabulary)
        self._keeping[kept] = bound
        if len(self._keeping) > _KEEPING:
            self._keeping.popitem(last=False)
        return bound

    def _options(self, request: ChatRequest, wishes: Wishes) -> Options:
        return Options(
            reasoning=wishes.shown,
            stream_reasoning=request.stream_reasoning is not False,
            reasoning_fields=self.settings.reasoning_fields,
            stop=request.stops,
            include_stop=bool(request.include_stop_str_in_output or request.no_stop_trim),
            logprobs=bool(request.logprobs),
            token_ids=bool(request.return_token_ids),
            tokens_as_ids=bool(request.return_tokens_as_token_ids),
            one_call=request.parallel_tool_calls is False,
            repeat_call_ids=self.settings.repeat_call_ids,
            thought_openers=self._thought_openers,
            thought_closers=self._thought_closers,
        )

    def _template_kwargs(self, request: ChatRequest, wishes: Wishes) -> dict[str, Any]:
        """What the template is told. What a client says in the template's own words beats every general switch."""
        kwargs: dict[str, Any] = {}
        keywords = self.format.thinking.keywords
        if wishes.thinking is not None and keywords:
            kwargs[keywords[0]] = wishes.thinking
        if wishes.effort is not None:
            kwargs["reasoning_effort"] = wishes.effort
        own = request.chat_template_kwargs or {}
        for name in OWN_VARIABLES & own.keys():
            where = f"chat_template_kwargs.{name}"
            message = f"{where}: the template is told this anyway; say it as a field of the request"
            raise RequestError(message, param=where)
        return kwargs | own

    def _thinking(self, wishes: Wishes, kwargs: Mapping[str, Any]) -> bool | None:
        said = next(
            (kwargs[name] for name in self.format.thinking.keywords if isinstance(kwargs.get(name), bool)), None
        )
        return wishes.thinking if said is None else said

    def prompt(self, request: ChatRequest, wishes: Wishes) -> Prompt:
        """The conversation as the model's template writes it. Raises `RequestError` if it leaves no room for a reply. In
        text mode there are no ids."""
        kwargs = self._template_kwargs(request, wishes)
        pieces = self.render(request, kwargs)
        ids = [] if self.text_mode else self._tokenized(pieces)
        self.check_room(ids, largest_part(request) if len(ids) >= self.engine.context_length else "messages")
        return Prompt(ids, "".join(pieces), self._thinking(wishes, kwargs))

    def _tokenized(self, pieces: Sequence[str]) -> list[int]:
        """The ids of a prompt in pieces. Of so many that nobody writes them in earnest only the first and the last, where the turns
        are, are worth the tokenizer's own ids; and a prompt of more pieces than the context has tokens is too long whatever they say."""
        if len(pieces) > self.engine.context_length:
            return [0] * len(pieces)
        tokenize = self.engine.tokenize if len(pieces) <= _PIECES else self.engine.vocabulary.encode
        first, *others = pieces
        ids = self.engine.tokenize(first)
        for piece in others[:-1]:
            ids += tokenize(piece)
        return ids + self.engine.tokenize(others[-1]) if others else ids

    def render(self, request: ChatRequest, kwargs: Mapping[str, Any]) -> list[str]:
        """The prompt, in the pieces in which it is to be tokenized."""
        offered = request.tools if tool_choice(request) != "none" else None
        messages, tools, seam = self._seams.sewn(template_messages(request.messages, self._source), offered)
        if self._template is None:
            raise RequestError(f"{NO_TEMPLATE}, so it can't chat; use /v1/completions", status=400)
        going_on = bool(request.continue_final_message)
        if tools and not self._template.knows_tools:
            messages, tools = self._tools_as_text(messages, tools), None
        opening = not going_on if request.add_generation_prompt is None else request.add_generation_prompt
        text = self._template.render(
            messages, tools, add_generation_prompt=opening, continue_final_message=going_on, **kwargs
        )
        return text.split(seam) if seam else [text]

    def check_room(self, ids: Sequence[int], param: str) -> None:
        if len(ids) < self.engine.context_length:
            return
        message = (
            f"{param}: the prompt has {len(ids)} tokens and leaves no room for a reply "
            f"(the context is {self.engine.context_length} tokens); shorten it"
        )
        raise RequestError(message, param=param, code="context_length_exceeded")

    def _prefill(self, request: ChatRequest, options: Options, prompt: Prompt) -> str:
        """What the reader sees of the prompt: what is continued, if `echo` asks for it; a thought's opener, if the
        template wrote it and the thought is shown as the model wrote it."""
        if request.continue_final_message:
            last = template_messages(request.messages[-1:], self._source)[0]["content"]
            return last if request.echo and isinstance(last, str) else ""
        return self._opener(prompt) if options.reasoning == "inline" else ""

    def _opener(self, prompt: Prompt) -> str:
        """The marker in the prompt behind which a thought is open."""
        found = text_program(self.format, self.settings.policy).turns.last_opener(prompt.text)
        at = found[0] if found else 0
        parser = unbraid.Parser(self.format, prompt=prompt.text[:at], thinking=prompt.thinking)
        opener = ""
        for character in prompt.text[at:]:
            heading = parser.state.strand == "markup"  # the turn's own header, "assistant"
            events = parser.feed_text(character)
            opener += "" if heading else "".join([event.raw for event in events if type(event) is Markup])
        return opener.lstrip() if parser.state.strand == "reasoning" else ""

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
            write_calls=lambda calls: written_calls(self.format, calls),
            keep_history=self._template.writes_calls,
        )

    def generation(
        self,
        request: Sampling,
        prompt: Sequence[int],
        text: str,
        fields: Mapping[str, Any],
        *,
        limit: int | None,
        logprobs: int | None,
    ) -> Generation:
        """What to ask of the engine. `limit` is the largest number of tokens, `logprobs` how many alternatives."""
        # A limit beyond the context is cut to what fits: many clients send a fixed, large one. The reply then says
        # `length`.
        # In text mode nobody here counts the prompt: two characters a token is on the safe side.
        room = max(1, self.engine.context_length - (len(text) // 2 if self.text_mode else len(prompt)))
        most = min(room, self.settings.max_tokens or room)
        own_stops = () if request.ignore_eos else self._stop_ids
        if request.stop_token_ids and "stop_ids" not in self.engine.abilities.settings:
            raise RequestError("stop_token_ids: this engine knows no ids; use stop", param="stop_token_ids")
        return Generation(
            prompt=prompt,
            text=text,
            max_tokens=min(limit or most, most),
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
            logprobs=logprobs,
            extra={name: fields[name] for name in self.engine.abilities.passed if fields.get(name) is not None},
        )

    def _logit_bias(self, request: Sampling) -> dict[int, float]:
        bias: dict[int, float] = {}
        for key, value in (request.logit_bias or {}).items():
            # Ten digits hold every id; Python refuses to read numbers of thousands of them.
            known = key.isascii() and key.isdigit() and len(key) <= 10
            if not known or self.engine.vocabulary.bytes_of(int(key)) is None:
                raise RequestError(f"logit_bias: {key!r} is no token id of this model", param="logit_bias")
            bias[int(key)] = value
        return bias

    def _tools(self, request: ChatRequest) -> Tools:
        """Resolved once, shared by all choices."""
        try:
            return Tools.resolve(request.tools)
        except SchemaError as error:
            raise RequestError(f"tools: {error}", param="tools") from error


def earlier_ids(request: ChatRequest) -> tuple[str, ...]:
    """The ids of the conversation's calls, but for those of a message that goes on."""
    messages = request.messages[:-1] if request.continue_final_message else request.messages
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    return tuple([call["id"] for call in calls if call.get("id")])


def largest_part(request: ChatRequest) -> str:
    """Which field most of the prompt comes from: what is to be shortened if it is too long."""
    first, *others = [_length(message.get("content")) for message in request.messages]
    sizes = {"messages": sum(others), "tools": len(json.dumps(request.tools)) if request.tools else 0}
    where = "messages[0].content" if request.messages[0].get("role") in ("system", "developer") else "messages"
    sizes[where] = sizes.get(where, 0) + first
    return max(sizes, key=lambda name: sizes[name])


def _length(content: Any) -> int:
    if isinstance(content, list):
        return sum(_length(part.get("text")) for part in content if isinstance(part, Mapping))
    return len(content) if isinstance(content, str) else 0


_KEEPING = 8
_PIECES = 100


def _stop_ids(format: Format, engine: Engine) -> list[int]:
    """The tokens that end a turn in this format. Those that the model's file calls its end the engine knows itself."""
    ends = {marker.text for marker, target in format.turns.items() if target is ENDED}
    special = engine.vocabulary.special
    return [special[text] for text in sorted(ends) if text in special]


def delimiters(format: Format) -> tuple[frozenset[str], frozenset[str]]:
    """How the format opens and closes a thought. Where messages have headers, a thought begins with the part that tells it from others."""
    openers, closers = set(), set()
    for state, row in format.states.items():
        for marker, target in row.items():
            texts = {text for spelling in marker.spellings if (text := spelled(spelling).strip())}
            if marker.trial or marker.inline:
                continue
            if state.strand != "reasoning" and (target.strand == "reasoning" or target.capture == "channel"):
                openers |= texts
            if state.strand == "reasoning" and target.strand == "content":
                closers |= texts
    return frozenset(openers), frozenset(closers)


def varied(generation: Generation, index: int) -> Generation:
    """Several choices of one seeded request must differ, and be the same next time."""
    if not index or generation.seed is None:
        return generation
    return replace(generation, seed=generation.seed + index)
