"""A Hugging Face response template read into a table.

Tokenizers of transformers 5 may bring a description of what their model writes: `response_template` in `tokenizer_config.json`
(since 5.13, fields with delimiters), or the older `response_schema` (a JSON schema with patterns). Either becomes a table like any
other: whatever runs on a table runs on it.

    {"start_anchor": "<|im_start|>assistant\\n",
     "fields": {"thinking": {"open": "<think>", "close": "</think>"},
                "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "repeats": true, "content": "json",
                               "transform": {"type": "function", "function": "{content}"}},
                "content": {"close": "<|im_end|>"}}}

anchor           what opens a turn
field            a state with one way out: only its own `close` counts in it
implicit field   the state to which every field returns; without one, `content`, or noise if that has delimiters of its own
`json`, ...      a codec
eos, and what closes the implicit field      what ends a turn

Where the reference loses text or calls, the table doesn't: all stretches of content are kept, not the last; what no field claims is
content; a cut call is a cut call, not an error. docs/response-templates.md lists what differs. What a marker can't say is refused
(`TableError`, with the place in the template), never half understood.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from unbraid.checkpoint import Checkpoint, read_checkpoint
from unbraid.codecs import Dsl, JsonArray, JsonObject, KeyValueTags, NameThenJson, WordThenJson, XmlParameters
from unbraid.codecs.base import Codec
from unbraid.errors import TableError
from unbraid.formats import FORMATS
from unbraid.pattern import Ahead, Begin, Group, Item, Maybe, NoMarker, Space, Text, Wildcard, alternatives
from unbraid.response_schema import to_template
from unbraid.serialize import is_response
from unbraid.table import (
    ANY,
    CONTENT,
    ENDED,
    REASONING,
    START,
    WAITING,
    CallIds,
    Format,
    Frame,
    Marker,
    Piece,
    Special,
    Spelling,
    Start,
    State,
    Thinking,
    calling,
)  # fmt: skip

FIELDS = {"thinking": "reasoning", "reasoning": "reasoning", "reasoning_content": "reasoning", "content": "content", "tool_calls": "tool_call"}  # fmt: skip
"""The names that a field may have, and the strand that each is."""
_TOP = {"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"}
_KEYS: Mapping[str, tuple[type, ...]] = {
    "open": (str, list), "open_pattern": (str,), "close": (str, list), "close_pattern": (str,), "content": (str,), "content_args": (dict,),
    "repeats": (bool,), "join": (str,), "optional": (bool,), "transform": (str, dict, list), "transform_each": (bool,),
}  # fmt: skip
"""The keys of a field, and what each may be. What is null isn't said."""
_NAMES = {str: "a text", list: "a list", dict: "an object", bool: "true or false"}
_BRACKETED = re.compile(r"<[^<>\s]+>|\[[A-Z_/]+\]")
"""What looks like a special token, where no tokenizer says what is one."""

LOOSE = State("loose", "content", blank="segment")
"""Text that no field claims, in an answer that has begun with none."""
FIRST = State("first", "markup", capture="head", otherwise=LOOSE)
"""Where an answer begins if no field takes what is left over: text before a field is its header, text without one is the answer."""
WAITING_FIRST = State("waiting", "markup", capture="head", otherwise=LOOSE, undecided=True)
BETWEEN = State("between", "markup")
"""Behind a field, if no field takes what is left over: text here is noise."""
FIELD = State("field", "content")
"""Content between delimiters of its own."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """What the tokenizer's own files say beside the template."""

    tokens: Collection[str] = ()
    """Spellings of its special tokens; empty: unknown, and what is in brackets counts as one."""
    ends: Sequence[str] = ()
    """Tokens that end a turn."""
    keywords: tuple[str, ...] = ()
    """Thinking switches of its chat template."""
    anchor: str = ""
    """What the chat template writes before an answer, for a template that doesn't say."""


def read(path: str | Path) -> Format | None:
    """The table of the response template or schema in a model's folder, in its `tokenizer_config.json`, or in a file of its own (with
    what the folder says beside it); `None` if there is none.

    Raises `TableError` if it is there and no table can say it.
    """
    path = Path(path)
    own = path.is_file() and path.name != "tokenizer_config.json"
    checkpoint = read_checkpoint(path.parent if path.is_file() else path)
    data = _own(path) if own else checkpoint.response
    return None if data is None else from_checkpoint(data, checkpoint, str(path))


def _own(path: Path) -> Any:
    """A template or schema that is a file by itself, or stands in one under its key."""
    data = json.loads(path.read_text("utf-8"))
    if not isinstance(data, dict):
        return None
    return data.get("response_template") or data.get("response_schema") or (data if is_response(data) else None)


def from_checkpoint(data: Any, checkpoint: Checkpoint, source: str) -> Format:
    """The table of a template or schema, with what the model's other files say."""
    anchor = ""
    if isinstance(data, dict) and "fields" not in data:
        data = to_template(data, source)
        anchor = _anchor(checkpoint)
    template = checkpoint.template or ""
    known = dict.fromkeys(keyword for fmt in FORMATS.values() for keyword in fmt.thinking.keywords)
    return from_template(
        data,
        Tokenizer(
            tokens=checkpoint.tokens,
            ends=tuple(text for name, text in checkpoint.special_tokens.items() if name == "eos_token"),
            keywords=tuple(keyword for keyword in known if re.search(rf"\b{keyword}\b", template)),
            anchor=anchor,
        ),
        source,
    )


def _anchor(checkpoint: Checkpoint) -> str:
    """What the chat template writes before an answer. Needs jinja2 (the extra `server`)."""
    if checkpoint.template is None:
        return ""
    from unbraid.chat_template import ChatTemplate

    template = ChatTemplate(checkpoint.template, {"bos_token": "", "eos_token": "", **checkpoint.special_tokens})
    messages = ({"role": "user", "content": "Which way?"},)
    closed, open = (template.render(messages, add_generation_prompt=written) for written in (False, True))
    return open.removeprefix(closed) if open.startswith(closed) else ""


def from_template(data: Any, tokenizer: Tokenizer | None = None, source: str = "response_template") -> Format:
    """The table that a response template says. `source` is what errors, and the table, are called.

    Raises `TableError`: the template isn't sound, or says what no table can.
    """
    return _Reader(data, tokenizer or Tokenizer(), source).format()


@dataclass(slots=True)
class _Field:
    """One field: how it is entered and left, and what it is."""

    name: str
    strand: str
    said: Mapping[str, Any]
    place: str
    openers: list[list[Item]] = field(default_factory=list)
    closers: list[list[Item]] = field(default_factory=list)

    @property
    def begins(self) -> bool:
        """Whether the answer may simply begin with the field."""
        return any(isinstance(item, Begin) for option in self.openers for item in option[:1])

    @property
    def stripped(self) -> bool:
        """Whether white space at its ends isn't part of it."""
        return self.strand == "tool_call" or (self.said.get("content_args") or {}).get("strip", True) is not False


class _Reader:
    def __init__(self, data: Any, tokenizer: Tokenizer, source: str) -> None:
        self.source = source
        self.tokenizer = tokenizer
        tokens = sorted(filter(None, tokenizer.tokens), key=len, reverse=True)
        self.special = re.compile("|".join(map(re.escape, tokens))) if tokens else _BRACKETED
        self.data = self.object(data, "(top)")
        self.known_keys(self.data, _TOP, "(top)")
        if self.data.get("version", 1) != 1:
            self.fail("version", f"only 1 is known, found {self.data['version']!r}")
        said = self.object(self.data.get("fields"), "fields")
        if not said:
            self.fail("fields", "is empty")
        self.fields = [self.field(name, entry) for name, entry in said.items()]
        implicit = [f for f in self.fields if not f.openers]
        if len(implicit) > 1 or (implicit and implicit[0].strand == "tool_call"):
            self.fail("fields", "only one field may be without `open`, and no `tool_calls`")
        self.implicit = implicit[0] if implicit else None

    # What is said

    def field(self, name: str, data: Any) -> _Field:
        place = f"fields/{name}"
        if name not in FIELDS:
            self.fail(place, f"a message has no place for it, only for {', '.join(FIELDS)}")
        said = {key: value for key, value in self.object(data, place).items() if value is not None}
        self.known_keys(said, _KEYS, place)
        for key, value in said.items():
            if not isinstance(value, _KEYS[key]):
                self.fail(
                    f"{place}/{key}",
                    f"expected {' or '.join(_NAMES[kind] for kind in _KEYS[key])}, found {str(value)[:40]!r}",
                )
        found = _Field(name, FIELDS[name], said, place)
        found.openers = self.delimiter(said, "open", place)
        found.closers = self.delimiter(said, "close", place)
        if found.strand != "tool_call" and (said.get("content", "text") != "text" or "transform" in said):
            self.fail(place, "reasoning and content are plain text: no other `content` and no `transform`")
        if "join" in said and not said.get("repeats"):
            self.fail(f"{place}/join", "needs `repeats`")
        return found

    def delimiter(self, said: Mapping[str, Any], key: str, place: str) -> list[list[Item]]:
        """The alternatives of an opener or closer; none if it has none."""
        literal, pattern = said.get(key), said.get(f"{key}_pattern")
        if literal is not None and pattern is not None:
            self.fail(place, f"`{key}` and `{key}_pattern` exclude each other")
        if pattern is not None:
            return self.pattern(pattern, f"{place}/{key}_pattern")
        if literal is None:
            return []
        texts = literal if isinstance(literal, list) else [literal]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            self.fail(f"{place}/{key}", "expected a text or a list of texts, none of them empty")
        return [[Text(text)] for text in dict.fromkeys(texts) if not (key == "close" and text == "eos")]

    def pattern(self, pattern: Any, place: str) -> list[list[Item]]:
        if not isinstance(pattern, str) or not pattern:
            self.fail(place, "expected a regular expression")
        try:
            re.compile(pattern)
        except re.error as error:
            self.fail(place, f"no regular expression of Python's: {error}")
        try:
            return alternatives(pattern)
        except NoMarker as error:
            self.fail(place, f"{str(error)!r} is more than a marker can say; {_ELSE}")

    # The table

    def format(self) -> Format:
        calls = next((f for f in self.fields if f.strand == "tool_call"), None)
        reasoning = next((f for f in self.fields if f.strand == "reasoning"), None)
        content = next((f for f in self.fields if f.strand == "content"), None)
        if len(self.fields) > len([f for f in (calls, reasoning, content) if f]):
            self.fail("fields", "two of them are reasoning")
        base = self.base(content)
        ends = self.ends()
        call = self.call(calls, base) if calls else None
        states = {f.name: self.state(f, base, call) for f in self.fields}
        openers = self.openers(states)
        rows: dict[State, dict[Marker, State]] = {base: dict(openers)}
        start = self.start(reasoning, base, states)
        for state in (start.on, start.off):
            if state not in states.values():
                rows.setdefault(state, dict(openers))
        if base is BETWEEN:
            rows = {LOOSE: dict(openers), **rows}
        for f in self.fields:
            row = rows.setdefault(states[f.name], {})
            if f.begins:  # the answer begins in it, and may still say so
                row |= {marker: target for marker, target in openers.items() if target is states[f.name]}
            row |= self.closers(f, base, states, ends)
        return Format(
            name=self.source,
            about="as the response template of its tokenizer says",
            states={**rows, ENDED: {}},
            turns={self.anchor(base): START, **{self.end(text): ENDED for text in ends}},
            start=start,
            thinking=Thinking(self.tokenizer.keywords, default=reasoning is not None),
            ids=CallIds(written=calls is not None and self.id_of(calls) != ()),
            frames=self.frames(states, openers, rows) if base is BETWEEN else (),
            join=self.join(),
        )

    def base(self, content: _Field | None) -> State:
        """The state to which every field returns."""
        if self.implicit is not None:
            return REASONING if self.implicit.strand == "reasoning" else CONTENT
        return CONTENT if content is None else BETWEEN

    def state(self, f: _Field, base: State, call: State | None) -> State:
        if f.strand == "tool_call":
            assert call is not None
            return call
        if f is self.implicit:
            return base
        return REASONING if f.strand == "reasoning" else FIELD

    def start(self, reasoning: _Field | None, base: State, states: Mapping[str, State]) -> Start:
        """Where an answer begins."""
        off = FIRST if base is BETWEEN else base
        if reasoning is None:
            return Start(off, off)
        if reasoning is self.implicit or reasoning.begins:
            return Start(states[reasoning.name], off)
        return Start(WAITING_FIRST if base is BETWEEN else WAITING, off)

    def frames(
        self, states: Mapping[str, State], openers: Mapping[Marker, State], rows: Mapping[State, Mapping[Marker, State]]
    ) -> tuple[Frame, ...]:
        """How a field is written, where nothing but fields is."""
        found = []
        for state in states.values():
            opener = next((marker.written for marker, target in openers.items() if target is state), ())
            closer = next((marker.written for marker, target in rows[state].items() if target is not state), ())
            found.append(Frame(state, opener, closer))
        return tuple(found)

    def openers(self, states: Mapping[str, State]) -> dict[Marker, State]:
        row: dict[Marker, State] = {}
        for f in self.fields:
            for option in f.openers:
                items = [item for item in option if not isinstance(item, Begin)]
                if marker := self.opener(f, items):
                    row[marker] = states[f.name]
        return row

    def opener(self, f: _Field, items: Sequence[Item]) -> Marker | None:
        """The marker that leads into a field: up to where its codec begins, if it is a call."""
        while items and isinstance(items[0], Wildcard | Maybe | Space):
            items = items[1:]
        place = f"{f.place}/open_pattern"
        if any(isinstance(item, Group) for item in items):
            if f.strand != "tool_call":
                self.fail(place, f"captures a text where only calls have names; {_ELSE}")
            items, begins = self.lead(items, place)
            if not items:
                return Marker((self.spelling(begins),), before=ANY, peek=f.said.get("content") == "xml-inline")
        if not items:
            return None
        after = ANY if f.stripped else ""
        while items and isinstance(items[-1], Space):
            after, items = ANY, items[:-1]
        if len(items) != 1 or not isinstance(items[0], Text):
            self.fail(place, f"more than fixed text and a name; {_ELSE}")
        return Marker((self.spelling(items[0].text),), before=ANY, after=after, lead="", trail="")

    def closers(self, f: _Field, base: State, states: Mapping[str, State], ends: Sequence[str]) -> dict[Marker, State]:
        """What leads out of a field. What ends the turn does so everywhere and isn't said again."""
        row: dict[Marker, State] = {}
        if f is self.implicit:
            return row
        codec = states[f.name].codec
        for option in f.closers:
            items = list(option)
            before = ANY if f.stripped else ""
            while items and isinstance(items[0], Space):
                before, items = before or ("\n" if items[0].newline else ANY), items[1:]
            after = ANY if self.strips(base) else ""
            while items and isinstance(items[-1], Space):
                after, items = ANY, items[:-1]
            if not items:
                continue  # an alternative that is only the end of the output
            (item, *rest) = items
            if rest or not isinstance(item, Text | Ahead):
                self.fail(f"{f.place}/close_pattern", f"more than fixed text; {_ELSE}")
            if isinstance(item, Ahead):
                row |= self.ahead(f, item.text, states)
            elif item.text not in ends and not (isinstance(codec, XmlParameters) and (item.text,) == codec.uncall):
                row[Marker((self.spelling(item.text),), before=before, after=after, lead="", trail="")] = base
        return row

    def strips(self, base: State) -> bool:
        """Whether white space at the beginning of what stands in the base state isn't part of it."""
        return base is BETWEEN or self.implicit is None or self.implicit.stripped

    def ahead(self, f: _Field, text: str, states: Mapping[str, State]) -> dict[Marker, State]:
        """A closer that only looks ahead: where the field is left directly by another one's opener."""
        row = {m: s for m, s in self.openers(states).items() if m.text.startswith(text) or text.startswith(m.text)}
        if not row:
            self.fail(f"{f.place}/close_pattern", f"looks ahead to {text!r}, which opens no field")
        return row

    def ends(self) -> list[str]:
        """What ends a turn: the tokenizer's own end, and what closes the implicit field."""
        found = list(self.tokenizer.ends)
        for option in self.implicit.closers if self.implicit else ():
            texts = [item for item in option if not isinstance(item, Space)]
            if len(texts) == 1 and isinstance(texts[0], Text):
                found.append(texts[0].text)
            elif texts:
                self.fail("fields, the one without `open`: close_pattern", f"more than fixed text; {_ELSE}")
        if not found:
            self.fail(
                "(top)", "doesn't say how a turn ends: put `eos_token` beside it, as tokenizer_config.json has it"
            )
        return list(dict.fromkeys(found))

    def end(self, text: str) -> Marker:
        return Marker((self.spelling(text),), before=ANY, inside="ends", lead="")

    def anchor(self, base: State) -> Marker:
        """What opens an answer's turn."""
        literal = self.data.get("start_anchor")
        if "start_anchor" in self.data and "start_anchor_pattern" in self.data:
            self.fail("start_anchor", "and `start_anchor_pattern` exclude each other")
        if "start_anchor_pattern" in self.data:
            options = self.pattern(self.data["start_anchor_pattern"], "start_anchor_pattern")
        elif literal is None and self.tokenizer.anchor:
            options = [[Text(self.tokenizer.anchor)]]
        else:
            options = self.delimiter({"open": literal}, "open", "start_anchor")
        texts: list[str] = []
        for option in options:
            kept = [item for item in option if not isinstance(item, Space | Maybe)]
            if len(kept) != 1 or not isinstance(kept[0], Text):
                self.fail("start_anchor_pattern", f"more than fixed text; {_ELSE}")
            texts.append(kept[0].text)
        if not texts:
            self.fail("start_anchor", "is missing: what stands before the answer in the prompt")
        return Marker(tuple(map(self.spelling, texts)), after=ANY if self.strips(base) else "", inside="ends")

    def join(self) -> str:
        found = {f.said.get("join", "") for f in self.fields if f.strand != "tool_call"}
        if len(found) > 1 and len(found := found - {""}) > 1:
            self.fail("fields", "reasoning and content are joined differently: a table has one `join`")
        return str(next(iter(found), ""))

    # Calls

    def call(self, f: _Field, base: State) -> State:
        """The state of this field's calls. Where nothing closes a body that knows its own end, it leads back by itself."""
        codec = self.codec(f)
        own = codec.uncall if isinstance(codec, XmlParameters) else ()
        closed = [items for items in f.closers if items and items != [Text(str(own[0]))]] if own else f.closers
        return calling(codec, then=None if closed else base)

    def codec(self, f: _Field) -> Codec:
        """How they are written."""
        kind, args = f.said.get("content", "text"), f.said.get("content_args") or {}
        args = self.object(args, f"{f.place}/content_args")
        options = [[item for item in option if not isinstance(item, Begin)] for option in f.openers]
        named = [items for items in options if any(isinstance(item, Group) for item in items)]
        if named and len(options) > 1:
            self.fail(f.place, f"more than one opener, and a name in it; {_ELSE}")
        if kind == "json":
            return self.named_json(f, named[0], args) if named else self.json(f, args)
        if kind == "xml-inline" and named:
            return self.tags(f, named[0], args)
        self.fail(f"{f.place}/content", f"no call is written as {kind!r} here; {_ELSE}")

    def json(self, f: _Field, args: Mapping[str, Any]) -> Codec:
        """A JSON object or array whose keys the transform names."""
        if args.get("string_delims") or args.get("unquoted_keys"):
            self.fail(f"{f.place}/content_args", f"JSON in another dialect, and no name in the opener; {_ELSE}")
        each = bool(f.said.get("transform_each"))
        function = self.function(f)
        if not isinstance(function, Mapping):
            shape = JsonObject()
        else:
            paths = {key: self.path(f, function.get(key), each) for key in ("name", "arguments")}
            wraps = {path[:-1] for path in paths.values()}
            if len(wraps) > 1 or len(wrap := wraps.pop()) > 1:
                self.fail(f"{f.place}/transform", "name and arguments stand in different objects, or too deep")
            shape = JsonObject(
                name=paths["name"][-1:], arguments=paths["arguments"][-1:], id=self.id_of(f), wrap=wrap or ("function",)
            )
        many = each or not f.said.get("repeats")
        return JsonArray(shape) if many else shape

    def function(self, f: _Field) -> Any:
        """The part of the transform that holds name and arguments."""
        transform = f.said.get("transform")
        if isinstance(transform, Mapping) and "function" in transform:
            transform = transform["function"]
        return None if transform in (None, "{content}") else transform

    def id_of(self, f: _Field) -> tuple[str, ...]:
        """The key of a call's id, if the model writes one."""
        transform = f.said.get("transform")
        said = transform.get("id") if isinstance(transform, Mapping) else None
        return self.path(f, said, bool(f.said.get("transform_each")))[-1:] if said is not None else ()

    def path(self, f: _Field, said: Any, each: bool) -> tuple[str, ...]:
        """The keys that `{content.a.b}` names; of an element, `{a.b}`."""
        keys = said[1:-1].split(".") if isinstance(said, str) and re.fullmatch(r"\{[\w.]+\}", said) else []
        if not each and keys[:1] == ["content"]:
            keys = keys[1:]
        elif not each:
            keys = []
        if not keys:
            self.fail(f"{f.place}/transform", f"expected a key of the call's JSON as `{{content.key}}`, found {said!r}")
        return tuple(keys)

    def named_json(self, f: _Field, items: Sequence[Item], args: Mapping[str, Any]) -> Codec:
        """The name stands in the opener, the body is its arguments."""
        self.named_transform(f)
        at = next(n for n, item in enumerate(items) if isinstance(item, Group))
        rest = [item for item in items[at + 1 :] if not isinstance(item, Space)]
        behind = rest[0].text if len(rest) == 1 and isinstance(rest[0], Text) else ""
        if rest and not behind:
            self.fail(f"{f.place}/open_pattern", f"more than fixed text behind the name; {_ELSE}")
        if delims := args.get("string_delims"):
            (first, *more) = delims if isinstance(delims, list) else [None]
            quote = first[0] if isinstance(first, list) and len(first) == 2 and first[0] == first[1] else None
            if behind or more or not isinstance(quote, str) or not quote:
                self.fail(f"{f.place}/content_args/string_delims", f"more than one pair of the same delimiter; {_ELSE}")
            _, begins = self.lead(items, f"{f.place}/open_pattern")
            return Dsl(quote=self.spelling(quote), prefix=begins)
        if not behind:
            return WordThenJson(between=())
        head, begins = self.lead(items, f"{f.place}/open_pattern")
        lead = (self.spelling(begins),) if head and begins else ()
        return NameThenJson(separator=(self.spelling(behind),), lead=lead)

    def named_transform(self, f: _Field) -> None:
        function = self.function(f)
        fits = isinstance(function, Mapping) and function.get("arguments") == "{content}"
        if not fits or not re.fullmatch(r"\{\w+\}", str(function.get("name"))):
            self.fail(f"{f.place}/transform", "expected the opener's name as `name` and `{content}` as `arguments`")

    def lead(self, items: Sequence[Item], place: str) -> tuple[list[Item], str]:
        """An opener with a name in it: what the marker is, and the text between that and the name, which the codec reads."""
        at = next(n for n, item in enumerate(items) if isinstance(item, Group))
        before = list(items[:at])
        while before and isinstance(before[-1], Space):
            before.pop()
        if not before or not isinstance(before[-1], Text):
            self.fail(place, f"no fixed text before the name; {_ELSE}")
        text = "".join(item.text if isinstance(item, Text) else " " for item in _since_bracket(before))
        lead = list(before[: len(before) - len(_since_bracket(before))])
        if lead and not text.startswith("<"):
            self.fail(place, f"more than fixed text before the name; {_ELSE}")
        if text.startswith("<") and ">" not in text:  # a tag that is still open: it belongs to the codec
            return lead, re.sub(r"\s+", " ", text)
        pieces = self.spelling(text)
        last = next((n for n in range(len(pieces), 0, -1) if isinstance(pieces[n - 1], Special)), 0)
        marker = "".join(p if isinstance(p, str) else p.text for p in pieces[:last])
        rest = "".join(p for p in pieces[last:] if isinstance(p, str))
        return ([*lead, Text(marker)], rest) if marker else ([*lead, Text(text)], "")

    def tags(self, f: _Field, items: Sequence[Item], args: Mapping[str, Any]) -> Codec:
        """Parameters as elements: `<parameter=KEY>VALUE</parameter>`, or an element for each key and each value."""
        self.named_transform(f)
        place = f"{f.place}/content_args/tag_pattern"
        tag, *more = self.pattern(args.get("tag_pattern"), place) or [[]]
        names = [item.name for item in tag if isinstance(item, Group)]
        if more or names != ["key", "value"] or not isinstance(tag[-1], Text):
            self.fail(place, f"expected `key`, then `value`, then what ends it; {_ELSE}")
        key, value = (n for n, item in enumerate(tag) if isinstance(item, Group))
        before, between = _tag(tag[:key]), "".join(i.text for i in tag[key + 1 : value] if isinstance(i, Text))
        blank = any(isinstance(item, Space) for item in tag[key + 1 :])
        known = self.object(args.get("value_parser") or {}, f"{f.place}/content_args/value_parser").get("name", "text")
        _, begins = self.lead(items, f"{f.place}/open_pattern")
        if begins.startswith("<"):
            quoted = before.endswith('"')
            name = re.match(r"<[^\s=>]+", begins)
            assert name is not None
            return XmlParameters(
                call=(begins.rstrip('"'),), uncall=(f"</{name.group()[1:]}>",), parameter=(before.rstrip('"'),),
                unparameter=(tag[-1].text,), quoted=quoted, frame=ANY if blank else "",
                untyped="json" if known == "json" else "string",
            )  # fmt: skip
        unkey, _, opened = between.partition(">")
        if not opened.startswith("<"):
            self.fail(place, f"expected an element for the key and one for the value; {_ELSE}")
        return KeyValueTags(
            key=self.spelling(before), unkey=self.spelling(f"{unkey}>"), value=self.spelling(opened),
            unvalue=self.spelling(tag[-1].text), untyped="json" if known == "json" else "string",
        )  # fmt: skip

    # Words

    def spelling(self, text: str) -> Spelling:
        """The text, its special tokens told from the rest."""
        pieces: list[Piece] = []
        at = 0
        for match in self.special.finditer(text):
            pieces += [text[at : match.start()], Special(match.group())]
            at = match.end()
        return tuple(piece for piece in (*pieces, text[at:]) if piece != "")

    def known_keys(self, said: Mapping[str, Any], known: Iterable[str], place: str) -> None:
        if unknown := sorted(said.keys() - set(known)):
            self.fail(place, f"unknown keys {', '.join(unknown)}")

    def object(self, data: Any, place: str) -> Mapping[str, Any]:
        if not isinstance(data, dict):
            self.fail(place, f"expected an object, found {str(data)[:40]!r}")
        return data

    def fail(self, place: str, message: str) -> NoReturn:
        raise TableError(self.source, f"response_template, {place}: {message}")


_ELSE = "take the format's own table instead (`unbraid detect` names it)"


def _since_bracket(items: Sequence[Item]) -> Sequence[Item]:
    """The last items, from the last one on that begins with `<` and is text; all, if none does."""
    for at in range(len(items) - 1, -1, -1):
        item = items[at]
        if isinstance(item, Text) and item.text.startswith("<"):
            return items[at:]
    return items


def _tag(items: Sequence[Item]) -> str:
    """An open tag as it is written, one blank for whatever may stand in it."""
    return re.sub(r"\s+", " ", "".join(item.text if isinstance(item, Text) else " " for item in items))


__all__ = ["Tokenizer", "from_checkpoint", "from_template", "read"]
