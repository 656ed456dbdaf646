"""What a request wants of the output's form, as a constraint on decoding: the gate with a grammar of the format.

    tool_choice      required, a named function, allowed_tools; auto where a tool is strict or parallel calls are off
    response_format  json_object, json_schema; and the same in the words of vLLM, SGLang, llama.cpp and Ollama (`SPELLINGS`)
    thinking budget  thinking_token_budget (vLLM), thinking_budget_tokens (llama.cpp), thinking_budget
    reasoning        where the switch or an effort asks for it, there is some: what would end a thought before a word of it is masked

Before reasoning has ended nothing else rules. A request that can't be honoured is refused before anything is decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from unbraid.boundary import BoundFormat
from unbraid.engines.base import Abilities, Constraint, Grammar
from unbraid.errors import RequestError, SchemaError
from unbraid.gate import Gate, Matcher, Mode
from unbraid.grammar import lark
from unbraid.grammar.build import GrammarError, Structured, build
from unbraid.grammar.tree import Node
from unbraid.schema import Tools
from unbraid.server.backends import write
from unbraid.server.requests import ChatRequest
from unbraid.table import State

BUDGETS = ("thinking_token_budget", "thinking_budget_tokens", "thinking_budget")
"""A limit on reasoning, under the names of vLLM, llama.cpp and Qwen."""


@dataclass(frozen=True, slots=True)
class Form:
    """The form that a request wants."""

    tool_choice: Any
    parallel: bool
    structured: Structured | None
    place: str
    """The field whose schemas are enforced."""
    budget: int | None
    grammar: bool
    """Whether a grammar is needed at all."""


def form_of(request: ChatRequest, fields: Mapping[str, Any]) -> Form:
    """What the request wants. Raises `RequestError` for a wish that is malformed."""
    place, structured = _structured(request, fields) or ("tools", None)
    tools = request.tools or []
    choice = request.tool_choice if tools else "none"
    strict = any(isinstance(tool.get("function"), Mapping) and tool["function"].get("strict") for tool in tools)
    parallel = request.parallel_tool_calls is not False
    forced = choice not in (None, "auto", "none")
    auto = bool(tools) and choice != "none" and (strict or not parallel)
    return Form(choice, parallel, structured, place, _budget(fields), forced or auto or structured is not None)


def _structured(request: ChatRequest, fields: Mapping[str, Any]) -> tuple[str, Structured] | None:
    """The wish for the answer's form, and the field that has it."""
    wanted = request.response_format or {"type": "text"}
    match wanted.get("type"):
        case "text":
            return _guided(fields)
        case "json_object":
            schema = wanted.get("schema")  # llama.cpp
            where = "response_format" if schema is None else "response_format.schema"
            return where, Structured(json_schema={"type": "object"} if schema is None else schema)
        case "json_schema":
            holder = wanted.get("json_schema")
            schema = holder.get("schema") if isinstance(holder, Mapping) else None
            if not isinstance(schema, Mapping):
                raise RequestError(
                    "response_format.json_schema.schema: expected a JSON schema", param="response_format"
                )
            return "response_format.json_schema.schema", Structured(json_schema=schema)
    kind = wanted.get("type")
    raise RequestError(
        f"response_format: {kind!r} is not supported; use one of text, json_object, json_schema",
        param="response_format",
    )


SPELLINGS: dict[str, str] = {
    "guided_json": "json",  # vLLM, as it was
    "guided_regex": "regex",
    "guided_choice": "choice",
    "json_schema": "json",  # SGLang (a text), llama.cpp (an object)
    "regex": "regex",  # SGLang
    "format": "json",  # Ollama: a schema, or "json"
}
"""A field's name -> what it is called in vLLM's `structured_outputs`, where the same wishes stand today."""


def _guided(fields: Mapping[str, Any]) -> tuple[str, Structured] | None:
    """The same wish in the words of vLLM, SGLang, llama.cpp and Ollama. The first that is found rules."""
    outputs = fields.get("structured_outputs")
    named = outputs.items() if isinstance(outputs, Mapping) else ()
    wishes = [(f"structured_outputs.{kind}", kind, value) for kind, value in named]
    wishes += [(name, kind, fields.get(name)) for name, kind in SPELLINGS.items()]
    return next(
        ((where, _wish(where, kind, value)) for where, kind, value in wishes if value not in (None, False)), None
    )


def _wish(where: str, kind: str, value: Any) -> Structured:
    match kind:
        case "json_object":
            return Structured(json_schema={"type": "object"})
        case "json":
            return Structured(json_schema=_schema(value, where))
        case "regex":
            if isinstance(value, str):
                return Structured(regex=value)
            raise RequestError(f"{where}: expected a regular expression", param=where)
        case "choice":
            if isinstance(value, list) and value and all(isinstance(option, str) and option for option in value):
                return Structured(choice=tuple(value))
            raise RequestError(f"{where}: expected a list of texts", param=where)
    raise RequestError(f"{where}: not supported; use json, regex or choice", param=where)


def _schema(value: Any, where: str) -> Any:
    """A schema, or the JSON text of one."""
    if where == "format" and value == "json":
        return {"type": "object"}
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where}: no JSON: {error}", param=where) from error


def _budget(fields: Mapping[str, Any]) -> int | None:
    for name in BUDGETS:
        value = fields.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise RequestError(f"{name}: expected a number of tokens, got {value!r}", param=name)
        return None if value < 0 else value
    return None


class Constrainer:
    """Makes constraints for one engine. The tokenizer's index for llguidance is built at the first need."""

    def __init__(self, bound: BoundFormat, end_ids: frozenset[int], abilities: Abilities) -> None:
        self._bound = bound
        self._abilities = abilities
        self._end_ids = end_ids
        self._tokenizer: Any = None

    def plan(
        self, form: Form, prompt: list[int], tools: Tools, thinking: bool | None
    ) -> Callable[[], Constraint | Grammar] | None:
        """What makes one constraint for each choice of a request; `None`: nothing has to be enforced."""
        mask = "mask" in self._abilities.constraints
        must_think = thinking is True and form.budget != 0  # asked for, not only the format's default
        if not form.grammar and form.budget is None and not (mask and must_think and self._bound.format.reasons):
            return None
        if not mask:
            grammar = self._written(form, prompt, tools, thinking, must_think)
            return lambda: grammar
        from unbraid.engines.gated import GateConstraint  # numpy and llguidance come with the extra `local`

        state = self._bound.state_at(prompt, thinking)
        matcher = self._matcher(form, tools, state, must_think) if form.grammar else None
        size = self._bound.vocabulary.size
        mode: Mode = "free"
        if form.grammar:  # a model that ended its turn in the thought would owe the answer
            mode = "framed" if self._bound.format.frames else "strict"

        def make() -> Constraint:
            gate = Gate(
                self._bound, prompt, matcher.fork() if matcher else None, reasoning=thinking, mode=mode,
                budget=form.budget, must_think=must_think, tools=tools, stop_ids=self._end_ids,
            )  # fmt: skip
            return GateConstraint(gate, size)

        return make

    def _written(self, form: Form, prompt: list[int], tools: Tools, thinking: bool | None, must_think: bool) -> Grammar:
        """The whole of what the model may write from here on, reasoning included: nobody asks us again per token."""
        if form.budget is not None:
            where = BUDGETS[0]
            message = f"{where}: this engine can't be made to keep to one; leave it out, or limit the whole reply"
            raise RequestError(message, param=where)
        with _refusing(form):
            state = self._bound.state_at(prompt, thinking)
            tree = self._tree(form, tools, state=state, reasoning=True, must_think=must_think)
            return write(tree, self._bound, self._abilities.constraints)

    def _matcher(self, form: Form, tools: Tools, state: State, must_think: bool) -> Matcher:
        from unbraid.matchers import LlguidanceMatcher

        with _refusing(form):
            tree = self._tree(form, tools, state=state, must_think=must_think)
            return LlguidanceMatcher(self._index(), lark.write(tree, self._bound.vocabulary))

    def _tree(self, form: Form, tools: Tools, **more: Any) -> Node:
        choice = form.tool_choice or "auto"
        return build(
            self._bound.format,
            tools=tools,
            tool_choice=choice,
            parallel=form.parallel,
            structured=form.structured,
            **more,
        )

    def _index(self) -> Any:
        if self._tokenizer is None:
            from unbraid.matchers import llguidance_tokenizer

            self._tokenizer = llguidance_tokenizer(self._bound.vocabulary, self._end_ids)
        return self._tokenizer


@contextmanager
def _refusing(form: Form) -> Iterator[None]:
    """What can't be written as a grammar is the request's fault."""
    try:
        yield
    except SchemaError as error:
        place = "tools" if error.path.startswith("/tools/") else form.place  # beside a form of the answer
        raise RequestError(f"{place}: can't be enforced: {error}", param=place) from error
    except GrammarError as error:
        forced = form.structured is None and form.tool_choice not in (None, "auto", "none")
        place = "tool_choice" if forced else form.place
        raise RequestError(f"{place}: {error}", param=place) from error
