"""The tree of what an answer may be: from the table, the offered tools and the request.

    auto        text or calls, or text and then calls: not nothing at all
    required    calls, at least one
    named       calls of that tool
    none        text
    structured  a JSON value, a regular expression, or one of several texts

The grammar begins where reasoning has ended, or (`reasoning=True`) at the start of a turn, with an optional thought in front. Calls
are written as the renderer writes them: section, wrapper, separators and white space are the table's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from unbraid.errors import RenderError, SchemaError
from unbraid.grammar import schemas
from unbraid.grammar.tree import (
    BLANK,
    GrammarError,
    Json,
    Node,
    Regex,
    Repeat,
    Text,
    Until,
    choice,
    literal,
    optional,
    sequence,
)
from unbraid.message import Message, ToolCall
from unbraid.render import render, routes_of
from unbraid.schema import Tools
from unbraid.table import Format, Frame, Marker, Spelling, State, spelled, thinks

MOST_CALLS = 16
"""Calls in one turn, as long as a grammar rules: a weak model that must call goes on calling until its tokens are used up."""
THOUGHTS = 4
"""Messages of reasoning before the answer, where messages have headers: without a bound a weak model never comes to the answer."""

_USUAL: Final = re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII)
"""Names that every syntax without headers can write."""


@dataclass(frozen=True, slots=True)
class Structured:
    """A wish for the answer's text: exactly one of the fields is given."""

    json_schema: Any = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None


def build(
    fmt: Format,
    *,
    tools: Sequence[Mapping[str, Any]] | Tools | None = None,
    tool_choice: Any = "auto",
    parallel: bool = True,
    structured: Structured | None = None,
    reasoning: bool = False,
    must_think: bool = False,
    state: State | None = None,
) -> Node:
    """The grammar's tree.

    `tool_choice`: `"auto"`, `"required"`, `"none"`, OpenAI's object naming a function, or `allowed_tools`. A named function is called
    once, whatever `parallel` says. `must_think`: where the grammar holds the thought (with `reasoning`, and for formats with
    headers) there must be one, and it begins with something that isn't white space; elsewhere the gate sees to that. `state`: where
    the prompt leaves the machine (`bound.state_at`); `None`: not known, then a format that reasons is taken to have done so. Raises
    `SchemaError`, `GrammarError`.
    """
    resolved = tools if isinstance(tools, Tools) else Tools.resolve(tools)
    parallel = parallel and not names_one(tool_choice)
    if fmt.frames:
        return _framed(fmt, resolved, tool_choice, parallel, structured, state, must_think)
    over = state is not None and not thinks(state)
    answer = _answer(fmt, resolved, tool_choice, parallel, structured, behind=fmt.reasons and not over)
    return _thought(fmt, state or fmt.content, answer, must_think) if reasoning and not over else answer


def _answer(
    fmt: Format, tools: Tools, tool_choice: Any, parallel: bool, structured: Structured | None, behind: bool
) -> Node:
    mode, names = chosen(tool_choice, tools)
    if structured is not None:
        text = sequence(_space(fmt, "", behind), _structured(structured))
        return choice([text, _section(fmt, tools, names, parallel, behind)]) if mode == "auto" and names else text
    if mode == "none" or not names:
        return Text(_markers(fmt))
    if mode == "required":
        return _section(fmt, tools, names, parallel, behind)
    entry, body = calls(fmt, tools, names, parallel)
    if not entry:
        return choice([_prose(fmt), body])
    return choice([Text(_markers(fmt), said=True), sequence(Until(entry, _markers(fmt)), body)])


def _prose(fmt: Format) -> Node:
    """Text where a call needs no marker: it isn't empty and begins with no character with which a call could."""
    begins = (spelled(spelling)[0] for state in fmt.states if state.codec for spelling in state.codec.begins)
    return Text(_markers(fmt), not_first="".join(sorted({*begins, *BLANK, "`"})))


def _section(fmt: Format, tools: Tools, names: Sequence[str], parallel: bool, behind: bool) -> Node:
    """Calls with nothing in front of them but white space of the format's own."""
    routes = routes_of(fmt)
    entry, body = calls(fmt, tools, names, parallel)
    before = "".join(piece if isinstance(piece, str) else piece.text for piece in routes.entry) if routes else ""
    return sequence(_space(fmt, before[: len(before) - len(before.lstrip())], behind), literal(*entry), body)


def names_one(tool_choice: Any) -> bool:
    """Whether one function is named: then it is called once."""
    return isinstance(tool_choice, Mapping) and tool_choice.get("type") != "allowed_tools"


def chosen(tool_choice: Any, tools: Tools) -> tuple[Literal["auto", "required", "none"], tuple[str, ...]]:
    """What a `tool_choice` means, and the tools that it leaves."""
    if tool_choice in (None, "auto"):
        return "auto", tools.names
    if tool_choice in ("required", "any"):
        if not tools.names:
            raise GrammarError("tool_choice is 'required' but no tools are offered")
        return "required", tools.names
    if tool_choice == "none":
        return "none", ()
    if isinstance(tool_choice, Mapping) and tool_choice.get("type") == "allowed_tools":
        allowed = tool_choice.get("allowed_tools", tool_choice)
        names = tuple(dict.fromkeys(_name(tool) for tool in allowed.get("tools", ())))
        mode: Literal["auto", "required"] = "required" if allowed.get("mode") == "required" else "auto"
        return mode, _offered(names, tools)
    return "required", _offered((_name(tool_choice),), tools)


def _name(tool: Any) -> str:
    if isinstance(tool, Mapping):
        inner = tool.get("function", tool)
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if isinstance(name, str):
            return name
    raise GrammarError(f"no tool is named by {tool!r}")


def _offered(names: tuple[str, ...], tools: Tools) -> tuple[str, ...]:
    for name in names:
        if name not in tools:
            raise GrammarError(
                f"tool_choice names {name!r}, which isn't among the tools: {', '.join(tools.names) or 'none are offered'}"
            )
    return names


def _framed(
    fmt: Format,
    tools: Tools,
    tool_choice: Any,
    parallel: bool,
    structured: Structured | None,
    state: State | None,
    must_think: bool,
) -> Node:
    """A whole turn of messages with headers: here the header of each message decides what it is, so the grammar owns the turn.

    Thoughts as the format has them, then calls or the answer. A message that the prompt has begun goes on first.
    """
    mode, names = chosen(tool_choice, tools)
    frames = {frame.state.strand: frame for frame in reversed(fmt.frames)}
    body = _structured(structured) if structured is not None else Text(said=mode == "auto" and bool(names))
    answer = _message(frames["content"], body)
    begun = next((frame for frame in fmt.frames if frame.state is state), None)
    thought = _message(frames["reasoning"], Text()) if "reasoning" in frames else None
    owed = must_think and thought is not None and (state is None or thinks(state))
    open = begun is not None and begun.state.strand == "reasoning"
    if mode != "none" and names and "tool_call" in frames:
        call = choice(
            _message(frames["tool_call"], _body(fmt, frames["tool_call"].state, tools, name), name) for name in names
        )
        section = Repeat(call, 1, MOST_CALLS if parallel else 1, literal(*fmt.next_message))
        answer = section if mode == "required" else choice([answer, section])
    elif mode == "required":
        raise GrammarError(f"{fmt.name} has no calls: tools can't be forced")
    if begun is not None and begun.state.strand == "content" and not owed and mode != "required":
        return sequence(body, literal(*begun.closing))
    if thought is not None:
        more = Repeat(sequence(thought, literal(*fmt.next_message)), 0, THOUGHTS - owed)
        first = _message(frames["reasoning"], Text(not_first=BLANK)) if owed and not open else None
        answer = sequence(*(first, literal(*fmt.next_message)) if first else (), more, answer)
    if begun is None or begun.state.strand == "tool_call":
        return answer
    said = Text(not_first=BLANK) if owed and open else Text()
    return sequence(said, literal(*begun.closing, *fmt.next_message), answer)


def _message(frame: Frame, body: Node, name: str = "") -> Node:
    return sequence(literal(*frame.opened(name)), body, literal(*frame.closing))


def _body(fmt: Format, state: State, tools: Tools, name: str) -> Node:
    """A call's body, with an error that names the tool."""
    assert state.codec is not None
    try:
        checked = schemas.arguments(tools.schema(name), "")
        _can_say(fmt, name, checked)
        return state.codec.grammar(name, checked)
    except SchemaError as error:
        raise SchemaError(f"/tools/{name}{error.path}", str(error).partition(": ")[2]) from None


def _can_say(fmt: Format, name: str, schema: Mapping[str, Any]) -> None:
    """Raises `GrammarError` for a tool whose call couldn't be read back, because of its own name or a parameter's."""
    keys = [key for key, _, _ in schemas.properties(schema)]
    if not fmt.frames and all(map(_USUAL.fullmatch, (name, *keys))):
        return
    text = {"type": "object", "properties": {key: {"type": "string"} for key in keys}}
    call = ToolCall("", name, json.dumps(dict.fromkeys(keys, "x")))
    try:
        render(
            fmt,
            Message(None, None, [call]),
            tools=[{"type": "function", "function": {"name": name, "parameters": text}}],
        )
    except RenderError as error:
        raise GrammarError(f"/tools/{name}: {fmt.name} has no way to write a call of it: {error}") from None


def _structured(wanted: Structured) -> Node:
    if wanted.json_schema is not None:
        return Json(schemas.check(wanted.json_schema))
    if wanted.regex is not None:
        return Regex(wanted.regex)
    if wanted.choice:
        return choice(literal(text) for text in wanted.choice)
    raise GrammarError("nothing is wanted: give a schema, a regular expression or a list of texts")


def calls(fmt: Format, tools: Tools, names: Sequence[str], parallel: bool) -> tuple[Spelling, Node]:
    """One or more calls in the format's own syntax: what opens them, its white space left to the text before, and the rest."""
    routes = routes_of(fmt)
    if routes is None:
        raise GrammarError(f"{fmt.name} has no calls: tools can't be forced")
    body = choice([_body(fmt, routes.state, tools, name) for name in names])
    most = MOST_CALLS if parallel else 1
    entry = literal(*routes.entry).pieces
    if entry and isinstance(entry[0], str):
        entry = literal(entry[0].lstrip(), *entry[1:]).pieces
    if routes.many:
        before, between, behind = getattr(routes.state.codec, "around", ("[", ", ", "]"))
        return entry, sequence(literal(before), Repeat(body, 1, most, literal(between)), literal(behind, *routes.exit))
    return entry, sequence(Repeat(body, 1, most, literal(*routes.between)), literal(*routes.exit))


def _markers(fmt: Format) -> tuple[str, ...]:
    """Spellings of the markers that free text must not contain: those that tokens can spell."""
    rows = [row for state, row in fmt.states.items() if state.strand in ("content", "reasoning")]
    found = (spelled(s) for row in rows for marker in row for s in marker.spellings)
    return tuple(dict.fromkeys(text for text in found if text.strip()))


def _space(fmt: Format, before: str, behind: bool) -> Node:
    """White space that may stand in front: what the template writes behind the end of reasoning, if that comes first, and before the
    next marker. The parser takes exactly this for markup wherever it stands; more of it could be content."""
    after = next((str(marker.written[-1]) for marker in _ends(fmt)), "") if behind else ""
    space = after + before
    assert not space.strip("\n"), f"{fmt.name}: white space of the format that isn't newlines: {space!r}"
    return Regex(f"[\\n]{{0,{len(space)}}}") if space else literal()


def _ends(fmt: Format) -> list[Marker]:
    return [
        marker
        for state, row in fmt.states.items()
        if state.strand == "reasoning"
        for marker, target in row.items()
        if target.strand == "content" and not thinks(target)
    ]


def _thought(fmt: Format, start: State, answer: Node, must_think: bool) -> Node:
    """An optional (or already open, or owed) thought, then the answer."""
    ends = _ends(fmt)
    if not ends:
        return answer
    # White space before the end may be written as the thought's: the end owns it.
    close = literal(*ends[0].spellings[0], ends[0].written[-1]).pieces
    block = Until(close, _markers(fmt), not_first=BLANK if must_think else "")
    opening = _opening(fmt, start)
    if start.strand == "reasoning":
        trail = str(opening[-1]) if must_think and opening and isinstance(opening[-1], str) else ""
        # What stands behind the opener the prompt may have left to the model.
        return sequence(*(optional(literal(trail)) for _ in trail[:1] if not trail.strip()), block, answer)
    if not opening:
        return answer
    thought = sequence(literal(*opening), block, answer)
    return thought if must_think else choice([thought, answer])


def _opening(fmt: Format, start: State) -> Spelling:
    """What opens a thought, its label included; nothing if no marker does."""
    rows = [fmt.states.get(start, {}), *(row for state, row in fmt.states.items() if state.strand != "reasoning")]
    found = next(
        (
            (marker, target)
            for row in rows
            for marker, target in row.items()
            if target.strand == "reasoning" and not (marker.first or marker.inline or marker.note)
        ),
        None,
    )
    if found is None:
        return ()
    labels = (marker.written for marker, target in fmt.states[found[1]].items() if marker.first)
    return literal(*found[0].written, *next(labels, ())).pieces


__all__ = ["GrammarError", "Structured", "build", "calls", "chosen"]
