"""A reply as its client sees it: one choice's fields, from a one-shot object or joined from chunks.

Joining is what a client does, no more: pieces are concatenated, calls are found by their index. What a client would trip over on
the way is said as `Problem`s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from unbraid.integrity.files import Json
from unbraid.integrity.findings import Level
from unbraid.integrity.shape import REPLY, Misfit, fitted


class Problem(NamedTuple):
    """Something wrong with a reply by itself: what no other layer is needed for."""

    cause: str
    field: str
    message: str
    choice: int = 0
    level: Level = "error"
    got: str | None = None


@dataclass(slots=True)
class Call:
    """A call as it arrived."""

    name: str = ""
    arguments: str = ""
    id: str | None = None
    pieces: int = 0
    """Deltas that brought arguments."""


@dataclass(slots=True)
class Said:
    """What one choice says."""

    reasoning: str | None = None
    content: str | None = None
    calls: list[Call] = field(default_factory=list)
    finish: str | None = None
    token_ids: list[int] | None = None
    logprobs: list[Json] | None = None
    """The entries of `logprobs.content`; `None` if there are none at all."""

    @property
    def texts(self) -> tuple[str, str, list[tuple[str, str]]]:
        """The fields that a client shows or acts on, absent and empty being the same."""
        return self.reasoning or "", self.content or "", [(call.name, call.arguments) for call in self.calls]


@dataclass(slots=True)
class Reply:
    """A whole reply in one form."""

    choices: dict[int, Said] = field(default_factory=dict)
    usage: Json | None = None
    prompt_ids: list[int] | None = None
    prompt_text: str | None = None
    problems: list[Problem] = field(default_factory=list)
    text: str = ""
    """The body as it came over the wire."""


# -- one-shot ----------------------------------------------------------------------------------------------------------


def from_object(body: str) -> Reply:
    """A one-shot reply."""
    reply = Reply(text=body)
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        reply.problems.append(Problem("stream_broken", "body", f"the reply is no JSON ({error})", got=body[:80]))
        return reply
    data = _fitted(data, "", reply.problems)
    if not data.get("choices"):
        reply.problems.append(Problem("stream_broken", "choices", "the reply has no choices", got=body[:80]))
        return reply
    reply.usage = data.get("usage")
    reply.prompt_ids = _ids(data.get("prompt_token_ids"))
    for at, choice in enumerate(data["choices"]):
        index = at if choice.get("index") is None else choice["index"]
        if index in reply.choices:
            reply.problems.append(Problem("choices_mixed", "choices", f"two choices have the index {index}", index))
        reply.choices[index] = _choice(choice, index, reply.problems)
        reply.prompt_ids = reply.prompt_ids or _ids(choice.get("prompt_token_ids"))
    _verbose(data.get("__verbose"), reply)
    return reply


def _fitted(data: Any, where: str, problems: list[Problem]) -> Json:
    """A reply or chunk whose fields have the types that the protocol gives them; what hasn't is a problem, and left out."""
    misfits: list[Misfit] = []
    fit: Json | None = fitted(data, REPLY, misfits, where)
    problems += [Problem("wrong_type", misfit.field, misfit.message, got=misfit.got) for misfit in misfits]
    return fit or {}


def _verbose(told: Any, reply: Reply) -> None:
    """What llama.cpp's server tells beside a reply when it runs with `--verbose`: the tokens and the prompt."""
    if not isinstance(told, Mapping) or len(reply.choices) != 1:
        return
    (said,) = reply.choices.values()
    if ids := _ids(told.get("tokens")):
        said.token_ids = said.token_ids or ids
    if isinstance(told.get("prompt"), str):
        reply.prompt_text = told["prompt"]


def _generated(told: Any) -> list[int] | None:
    """The ids that SGLang tells beside a reply (`return_meta_info`): entries of log-probability, id and text."""
    entries = told.get("output_token_logprobs") if isinstance(told, Mapping) else None
    if not isinstance(entries, list) or not all(isinstance(entry, list) and len(entry) > 1 for entry in entries):
        return None
    return _ids([entry[1] for entry in entries])


def from_choice(choice: Json) -> Said:
    """A choice of a one-shot reply, by itself."""
    return _choice(choice, 0, [])


def _choice(choice: Json, index: int, problems: list[Problem]) -> Said:
    message = choice.get("message") or {}
    said = Said(_reasoning(message, index, problems), message.get("content"), finish=choice.get("finish_reason"))
    said.token_ids = _ids(choice.get("token_ids")) or _generated(choice.get("meta_info"))
    said.logprobs = _entries(choice)
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        said.calls.append(Call(function.get("name") or "", _text(function.get("arguments")), call.get("id"), 1))
    problems += _about_calls(said, index)
    if said.finish is None:
        problems.append(Problem("finish_reason", "finish_reason", "no finish_reason", index))
    return said


def _reasoning(message: Json, index: int, problems: list[Problem]) -> str | None:
    """The thought, under either name."""
    given = {name: message[name] for name in ("reasoning_content", "reasoning") if isinstance(message.get(name), str)}
    if len(set(given.values())) > 1:
        problems.append(
            Problem("reasoning_fields", "reasoning", "reasoning and reasoning_content hold different texts", index)
        )
    return next(iter(given.values()), None)


def _about_calls(said: Said, choice: int) -> Iterator[Problem]:
    """Ids, and arguments that no client can read."""
    seen: set[str] = set()
    for at, call in enumerate(said.calls):
        where = f"tool_calls[{at}]"
        if not call.id:
            yield Problem("call_id", f"{where}.id", "the call has no id", choice)
        elif call.id in seen:
            yield Problem("call_id", f"{where}.id", f"two calls have the id {call.id!r}", choice)
        seen.add(call.id or "")
        if not call.name:
            yield Problem("call_name", f"{where}.function.name", "the call has no name", choice)
        if said.finish != "length" and not _is_object(call.arguments):
            message = "the arguments are empty" if not call.arguments else "the arguments are no JSON object"
            yield Problem("arguments_broken", f"{where}.function.arguments", message, choice, got=call.arguments[-80:])


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _text(value: Any) -> str:
    """Arguments are JSON text. Some servers send the object itself."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _ids(value: Any) -> list[int] | None:
    return list(value) if isinstance(value, list) and all(isinstance(id, int) for id in value) else None


def _entries(choice: Json) -> list[Json] | None:
    logprobs = choice.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, Mapping) else None
    return content if isinstance(content, list) else None


def spelled_by(entries: Iterable[Mapping[str, Any]]) -> str:
    """The text that log-probabilities' tokens spell."""
    return b"".join(map(entry_bytes, entries)).decode("utf-8", "replace")


def entry_bytes(entry: Mapping[str, Any]) -> bytes:
    """The bytes of one entry's token."""
    data = entry.get("bytes")
    if isinstance(data, list) and all(0 <= byte < 256 for byte in data):
        return bytes(data)
    return str(entry.get("token") or "").encode("utf-8", "replace")


# -- streams -----------------------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """One server-sent event."""

    data: str
    name: str | None = None


def read_events(text: str) -> list[Event]:
    """The events of a stream, by the rules of the HTML standard as far as servers of this protocol use them."""
    found: list[Event] = []
    data: list[str] = []
    name: str | None = None
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        if not line:
            if data:
                found.append(Event("\n".join(data), name))
            data, name = [], None
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            name = line[6:].strip()
    if data:
        found.append(Event("\n".join(data), name))  # cut off inside its last event: for the audit to say
    return found


def from_stream(text: str, *, asked_usage: bool = False) -> Reply:
    """A stream as it came over the wire, joined."""
    chunks, problems, done = [], [], False
    for number, event in enumerate(read_events(text)):
        if event.data == "[DONE]":
            done = True
            continue
        if done:
            problems.append(Problem("stream_order", f"event {number}", "an event after [DONE]", got=event.data[:80]))
        try:
            chunk = json.loads(event.data)
        except (ValueError, RecursionError) as error:
            problems.append(Problem("stream_broken", f"event {number}", f"no JSON ({error})", got=event.data[:80]))
            continue
        if isinstance(chunk, dict):
            chunks.append(chunk)
        else:
            problems.append(Problem("stream_broken", f"event {number}", "no JSON object", got=event.data[:80]))
    reply = join(chunks, asked_usage=asked_usage)
    reply.problems = problems + reply.problems
    reply.text = text
    if not done and not any(problem.cause == "stream_error" for problem in reply.problems):
        reply.problems.append(Problem("stream_order", "[DONE]", "the stream ends without [DONE]"))
    return reply


def join(chunks: Sequence[Json], *, asked_usage: bool = False) -> Reply:
    """Chunks, joined as a client joins them."""
    joint = _Joint()
    for number, chunk in enumerate(chunks):
        joint.take(number, chunk)
    joint.finish(asked_usage)
    return joint.reply


class _Joint:
    """A client: what it knows of a stream so far."""

    def __init__(self) -> None:
        self.reply = Reply()
        self.heads: dict[str, Any] = {}
        self.roles: set[int] = set()
        self.open: dict[int, int] = {}
        """Choice -> the call that is being written."""
        self.slots: dict[int, dict[int, Call]] = {}

    def say(
        self, cause: str, field: str, message: str, choice: int = 0, level: Level = "error", got: Any = None
    ) -> None:
        self.reply.problems.append(Problem(cause, field, message, choice, level, None if got is None else str(got)))

    def take(self, number: int, chunk: Json) -> None:
        chunk = _fitted(chunk, f"chunk {number}", self.reply.problems)
        if "error" in chunk and not chunk.get("choices"):
            error = chunk["error"]
            said = error.get("message") if isinstance(error, Mapping) else error
            self.say("stream_error", f"chunk {number}", f"error inside the stream: {said}")
            return
        for name in ("id", "model", "object"):
            first = self.heads.setdefault(name, chunk.get(name))
            if chunk.get(name) != first:
                self.say(
                    "stream_order", f"chunk {number}.{name}", f"{name} changes inside the stream", got=chunk.get(name)
                )
                self.heads[name] = chunk.get(name)
        self.reply.prompt_ids = self.reply.prompt_ids or _ids(chunk.get("prompt_token_ids"))
        if chunk.get("usage"):
            self.reply.usage = chunk["usage"]
        for choice in chunk.get("choices") or ():
            self.take_choice(number, choice, bool(chunk.get("usage")))

    def take_choice(self, number: int, choice: Json, with_usage: bool) -> None:
        index = choice.get("index")
        if not isinstance(index, int):
            self.say("choices_mixed", f"chunk {number}.choices[0].index", "the choice has no index")
            index = 0
        said = self.reply.choices.setdefault(index, Said())
        delta = choice.get("delta") or {}
        entries, ids = _entries(choice), _ids(choice.get("token_ids"))
        self.reply.prompt_ids = self.reply.prompt_ids or _ids(choice.get("prompt_token_ids"))
        if entries is not None:
            said.logprobs = (said.logprobs or []) + entries
        if ids is not None:
            said.token_ids = (said.token_ids or []) + ids
        shows = self.take_delta(number, index, said, delta)
        finish = choice.get("finish_reason")
        if not (shows or finish or entries or ids or with_usage):
            self.say("empty_delta", f"chunk {number}.delta", "a chunk that says nothing", index, "warning", delta)
        if finish is not None:
            if said.finish is not None:
                self.say("stream_order", f"chunk {number}.finish_reason", "a second finish_reason", index, got=finish)
            said.finish = finish

    def take_delta(self, number: int, index: int, said: Said, delta: Json) -> bool:
        """Whether the delta says anything."""
        shows = False
        if "role" in delta and delta["role"] is not None:
            if index in self.roles:
                self.say("stream_order", f"chunk {number}.delta.role", "the role comes twice", index, "warning")
            shows = index not in self.roles
            self.roles.add(index)
        reasoning = _reasoning(delta, index, self.reply.problems)
        content = delta.get("content")
        if (reasoning or content or delta.get("tool_calls")) and said.finish is not None:
            self.say("stream_order", f"chunk {number}.delta", "a delta after finish_reason", index, got=delta)
        if reasoning:
            said.reasoning = (said.reasoning or "") + reasoning
        if content:
            said.content = (said.content or "") + content
        for at, call in enumerate(delta.get("tool_calls") or ()):
            self.take_call(f"chunk {number}.delta.tool_calls[{at}]", index, said, call)
        return bool(shows or reasoning or content or delta.get("tool_calls") or delta.get("refusal"))

    def take_call(self, where: str, choice: int, said: Said, piece: Json) -> None:
        slots = self.slots.setdefault(choice, {})
        function = piece.get("function") or {}
        at = piece.get("index")
        if not isinstance(at, int):
            self.say("call_index", f"{where}.index", "the delta of a call has no index", choice)
            at = len(slots) if piece.get("id") else max(len(slots) - 1, 0)
        if at in slots and piece.get("id") and slots[at].id and piece["id"] != slots[at].id:
            self.say("call_index", f"{where}.index", f"a second call with the index {at}", choice, got=piece)
            at = max(slots) + 1  # where it belongs: what follows can still be looked at
        if at not in slots:
            self.begin_call(where, choice, slots, at, piece)
            said.calls.append(slots[at])
        elif self.open.get(choice, at) > at:
            self.say("call_index", f"{where}.index", f"back to call {at} after a later one", choice)
        elif function.get("name"):
            self.say(
                "call_name",
                f"{where}.function.name",
                "the name comes again, or in pieces",
                choice,
                got=function["name"],
            )
        self.open[choice] = at
        call = slots[at]
        call.name += function.get("name") or ""
        call.id = call.id or piece.get("id")
        if arguments := _text(function.get("arguments")):
            call.arguments += arguments
            call.pieces += 1
        if piece.get("withdrawn") is True and call in said.calls:  # Unbraid's word: it turned out to be no call
            said.calls = [other for other in said.calls if other is not call]

    def begin_call(self, where: str, choice: int, slots: dict[int, Call], at: int, piece: Json) -> None:
        if at != len(slots):
            self.say("call_index", f"{where}.index", f"call {len(slots)} of this choice has the index {at}", choice)
        if not piece.get("id"):
            self.say("call_id", f"{where}.id", "the first delta of a call has no id", choice)
        if not (piece.get("function") or {}).get("name"):
            self.say("call_name", f"{where}.function.name", "the first delta of a call has no name", choice)
        slots[at] = Call()

    def finish(self, asked_usage: bool) -> None:
        for index, said in self.reply.choices.items():
            if index not in self.roles:
                self.say("stream_order", "delta.role", "no delta says the role", index, "warning")
            if said.finish is None:
                self.say("stream_order", "finish_reason", "the stream ends without a finish_reason", index)
            self.reply.problems += _once(_about_calls(said, index), self.reply.problems)
        if not self.reply.choices:
            self.say("stream_broken", "choices", "the stream has no choices")
        if asked_usage and self.reply.choices and self.reply.usage is None:
            self.say("usage", "usage", "stream_options.include_usage was asked for and no usage came")


def _once(found: Iterable[Problem], known: Sequence[Problem]) -> list[Problem]:
    """Without what has been said of the same thing already: a call without id is one fault."""
    said = {(problem.cause, problem.choice) for problem in known}
    return [problem for problem in found if (problem.cause, problem.choice) not in said]
