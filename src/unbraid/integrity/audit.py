"""Captures, read afterwards: what is wrong with a reply by itself, against its format, and against its raw layer where that is known.

Without a raw layer nobody can say what is missing. What can be said: that the stream contradicts itself, that markup stands in a text,
that strands come in an order which the format doesn't know, that arguments don't fit their tool.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from unbraid.events import Strand
from unbraid.formats import FORMATS
from unbraid.integrity.align import ARGUMENTS, Raw, Story, tell, thinking_of
from unbraid.integrity.captures import Capture
from unbraid.integrity.causes import Comparison, Markers
from unbraid.integrity.files import Json
from unbraid.integrity.findings import Finding, Layer, excerpt
from unbraid.integrity.layers import Said, read_events
from unbraid.lint import besides
from unbraid.table import ENDED, START, Format, State, ends_of
from unbraid.vocabulary import Vocabulary

SHOWN: tuple[Strand, ...] = ("reasoning", "content", "tool_call")


def audit(capture: Capture, fmt: Format | None = None, vocabulary: Vocabulary | None = None) -> list[Finding]:
    """Everything that is wrong with one captured reply. With a format its markers and strands count, with the raw text (or ids and a
    vocabulary) every character does."""
    found = list(_problems(capture))
    for index, said in capture.reply.choices.items():
        story = None if fmt is None else _story(capture, said, fmt, vocabulary)
        if story is not None and fmt is not None:
            found += _against(capture, index, said, story, fmt)
        else:
            found += _leaks(capture, index, said, _markers(fmt))
        found += _form(capture, index, said)
        if fmt is not None:
            found += _strands(capture, index, said, fmt)
    return list(dict.fromkeys(found))


def _layer(capture: Capture) -> Layer:
    return "stream" if capture.stream else "one-shot"


def _say(capture: Capture, field: str, cause: str, message: str, **words: Any) -> Finding:
    return Finding(capture.name, _layer(capture), field, cause, message, **words)


def _problems(capture: Capture) -> Iterator[Finding]:
    """What the reply says of itself. The first of each kind, and how many there are."""
    problems = capture.reply.problems
    for problem in problems:
        same = [other for other in problems if (other.cause, other.choice) == (problem.cause, problem.choice)]
        if same[0] is problem:
            message = problem.message + (f" ({len(same)} times)" if len(same) > 1 else "")
            yield _say(
                capture, problem.field, problem.cause, message,
                choice=problem.choice, level=problem.level, got=problem.got,
            )  # fmt: skip


# -- the raw layer -----------------------------------------------------------------------------------------------------


def _story(capture: Capture, said: Said, fmt: Format, vocabulary: Vocabulary | None) -> Story | None:
    ids = capture.ids if capture.ids is not None else said.token_ids
    prompt = capture.prompt if capture.prompt is not None else capture.reply.prompt_ids
    if ids is not None and vocabulary is not None:
        raw = Raw(ids, fmt.bind(vocabulary), prompt=prompt)
    elif capture.raw is not None:
        raw = Raw(text=capture.raw, prompt=prompt if isinstance(prompt, str) else None)
    else:
        return None
    request = capture.request or {}
    return tell(raw, fmt, request, thinking=thinking_of(request, fmt), said_length=said.finish == "length")


def _against(capture: Capture, index: int, said: Said, story: Story, fmt: Format) -> list[Finding]:
    markers, request = _markers(fmt), capture.request or {}
    comparison = Comparison(capture.name, _layer(capture), story.said, said, markers, index, story, request)
    # Whether white space beside markers is a convention only both forms together could tell.
    return [replace(f, level="warning") if f.cause == "edge_space" else f for f in comparison.findings()]


# -- markup in the text ------------------------------------------------------------------------------------------------


@functools.cache
def _markers(fmt: Format | None) -> Markers:
    """Those of the format; of every format, where it isn't known. By text only special tokens are telling enough."""
    formats = [fmt] if fmt else list(FORMATS.values())
    texts = {text for each in formats for text in each.specials if len(text) > 3}
    return Markers(tuple(sorted(texts, key=len, reverse=True)), frozenset(texts))


def _leaks(capture: Capture, index: int, said: Said, markers: Markers) -> Iterator[Finding]:
    wish = (capture.request or {}).get("keep_special_tokens")
    kept = wish if isinstance(wish, list) else ()
    fields = [("reasoning", said.reasoning or ""), ("content", said.content or "")]
    fields += [(ARGUMENTS.format(at), call.arguments) for at, call in enumerate(said.calls)]
    asked = json.dumps((capture.request or {}).get("messages") or "", ensure_ascii=False)
    for field, text in fields:
        places = [(at, marker) for marker in markers.texts if marker not in kept and (at := text.find(marker)) >= 0]
        if places:
            at, marker = min(places)
            quoted = marker in asked
            message = f"{marker!r} stands in the text" + (
                " (the prompt has it, too: it may be quoted)" if quoted else ""
            )
            level: Any = "note" if quoted else "warning" if field.endswith("arguments") else "error"
            yield _say(
                capture, field, "marker_leaked", message, level=level, choice=index, offset=at, got=excerpt(text, at)
            )


# -- order of strands --------------------------------------------------------------------------------------------------


def follows(fmt: Format) -> frozenset[tuple[str, str]]:
    """Which strand may follow which in one turn of this format, markup between them left out."""
    return frozenset(
        (state.strand, after) for state in fmt.states if state.strand in SHOWN for after in _shown_after(fmt, state)
    )


def _shown_after(fmt: Format, state: State) -> set[str]:
    seen: set[State] = set()
    todo: list[State] = [state]
    found: set[str] = set()
    while todo:
        here = todo.pop()
        row = fmt.states.get(here, {})
        for there in [end for target in row.values() for end in ends_of(target)] + besides(here):
            if there in seen or there in (ENDED, START):
                continue
            seen.add(there)
            if there.strand in SHOWN:
                found.add(there.strand)
            if there.strand not in SHOWN or there.strand == here.strand or there.undecided:
                todo.append(there)
    return found


def _strands(capture: Capture, index: int, said: Said, fmt: Format) -> Iterator[Finding]:
    if said.reasoning and not fmt.reasons:
        yield _say(
            capture, "reasoning", "content_in_reasoning", f"there is reasoning, and {fmt.name} knows none",
            choice=index, got=excerpt(said.reasoning, 0), strand="reasoning",
        )  # fmt: skip
    if said.calls and not fmt.calls:
        message = f"there is a call of {said.calls[0].name!r}, and {fmt.name} knows none"
        yield _say(capture, "tool_calls", "call_invented", message, choice=index, strand="tool_call")
    allowed = follows(fmt)
    order = list(_order(capture, index))
    for (before, _), (after, number) in pairwise(order):
        known = fmt.reasons or after != "reasoning"
        if before != after and (before, after) not in allowed and known and (fmt.calls or after != "tool_call"):
            message = f"{after} comes after {before}, which {fmt.name} doesn't write"
            yield _say(capture, f"chunk {number}.delta", "stream_order", message, choice=index, strand=after)
            return


def _order(capture: Capture, index: int) -> Iterator[tuple[Strand, int]]:
    """The strands of a stream as they came, white space left out, with the chunk that began each."""
    last: Strand | None = None
    chunks = [_object(event.data) for event in read_events(capture.reply.text)] if capture.stream else []
    for number, chunk in enumerate(chunks):
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) != index:
                continue
            for strand in _said_by(choice.get("delta") or {}):
                if strand != last:
                    last = strand
                    yield strand, number


def _said_by(delta: Json) -> Iterator[Strand]:
    if str(delta.get("reasoning_content") or delta.get("reasoning") or "").strip():
        yield "reasoning"
    if str(delta.get("content") or "").strip():
        yield "content"
    if delta.get("tool_calls"):
        yield "tool_call"


def _object(text: str) -> Json:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


# -- what the request asked for ----------------------------------------------------------------------------------------


def _form(capture: Capture, index: int, said: Said) -> Iterator[Finding]:
    request = capture.request or {}
    if said.finish == "tool_calls" and not said.calls:
        yield _say(
            capture, "tool_calls", "call_lost", "finish_reason is tool_calls, and there is no call", choice=index
        )
    if said.finish == "stop" and said.calls and not isinstance(request.get("tool_choice"), Mapping):
        message = "finish_reason is stop, and there are calls"
        yield _say(capture, "finish_reason", "finish_reason", message, choice=index, level="warning")
    wanted = (request.get("response_format") or {}).get("type")
    if wanted in ("json_object", "json_schema") and said.finish == "stop" and not said.calls:
        try:
            json.loads(said.content or "")
        except ValueError as error:
            message = f"JSON was asked for, and the content is none ({error})"
            yield _say(capture, "content", "constraint_off", message, choice=index, got=excerpt(said.content or "", 0))
    if said.finish != "length":
        yield from _arguments(capture, index, said, request.get("tools") or ())


def _arguments(capture: Capture, index: int, said: Said, tools: Sequence[Any]) -> Iterator[Finding]:
    """Arguments against the plain types of their tool's schema: enough to see a converter that guesses."""
    schemas = {
        tool["function"].get("name"): tool["function"].get("parameters") or {}
        for tool in tools
        if isinstance(tool, dict) and isinstance(tool.get("function"), dict)
    }
    for at, call in enumerate(said.calls):
        if schemas and call.name not in schemas:
            message = f"{call.name!r} isn't among the tools of the request"
            yield _say(capture, f"tool_calls[{at}].function.name", "call_name", message, choice=index, level="warning")
        properties = schemas.get(call.name, {}).get("properties") or {}
        for name, value in _object(call.arguments).items():
            kinds = (properties.get(name) or {}).get("type")
            allowed = [kinds] if isinstance(kinds, str) else kinds or ()
            if allowed and not any(_is(value, kind) for kind in allowed):
                message = f"{name}: {json.dumps(value, ensure_ascii=False)[:40]} is no {' or '.join(allowed)}"
                yield _say(
                    capture, ARGUMENTS.format(at), "argument_type", message, choice=index, strand="tool_call",
                    got=excerpt(call.arguments, 0),
                )  # fmt: skip


_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "null": (type(None),), "object": (dict,), "array": (list,),
    "integer": (int, float), "number": (int, float),
}  # fmt: skip


def _is(value: Any, kind: str) -> bool:
    if kind not in _TYPES:
        return True
    if isinstance(value, bool):
        return kind == "boolean"
    whole = not isinstance(value, float) or value.is_integer()
    return isinstance(value, _TYPES[kind]) and (kind != "integer" or whole)


@dataclass(frozen=True, slots=True)
class Audited:
    """A capture and what is wrong with it."""

    capture: Capture
    findings: list[Finding]


def audit_all(
    captures: Iterable[Capture], fmt: Format | None = None, vocabulary: Vocabulary | None = None
) -> list[Audited]:
    """Every capture, in order."""
    return [Audited(capture, audit(capture, fmt, vocabulary)) for capture in captures]
