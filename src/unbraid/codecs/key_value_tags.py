"""Calls written as the function's name, then an element for each key and each value.

    get_weather
    <arg_key>city</arg_key>
    <arg_value>Oslo</arg_value>

Nothing in a value is escaped: the first closing tag ends it.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from unbraid.codecs.base import HEADER_LIMIT, SPACE, Reach, Reader, Sink, WrittenCall, literal, partial
from unbraid.codecs.tagged_values import TagReader, first_reach, value_reach
from unbraid.grammar.raw_values import raw_value, text_and_rest, typed_value
from unbraid.grammar.schemas import properties
from unbraid.grammar.tree import Node, choice, optional, sequence
from unbraid.grammar.tree import literal as exactly
from unbraid.search import SURROGATES, Search
from unbraid.table import Piece, Spelling, spelled


@dataclass(frozen=True, slots=True)
class KeyValueTags:
    """The function's name, then pairs of a key's and a value's element. The marker behind the call closes it.

    `separator`: what ends the name, if anything but the first key does (`<tool_sep>`). `kind`, `unkind`: an element between key
    and value that may name the value's type (`array[string]`). `untyped`: what a value is that no schema knows: `string`;
    `json` if all of it is JSON of another type than string; `quoted` if all of it is JSON, strings included.
    """

    key: Spelling
    unkey: Spelling
    value: Spelling
    unvalue: Spelling
    separator: tuple[Spelling, ...] = ()
    kind: Spelling = ()
    unkind: Spelling = ()
    newline: str = ""
    """What the template writes after the name and between the elements."""
    untyped: Literal["string", "json", "quoted"] = "json"

    @property
    def begins(self) -> tuple[Spelling, ...]:
        return ()

    def spellings(self) -> Iterable[Spelling]:
        kind = (self.kind, self.unkind) if self.kind else ()
        return (self.key, self.unkey, *kind, self.value, self.unvalue, *self.separator)

    def compile(self, alphabet: Any) -> _Pairs:
        return _Pairs(self, alphabet)

    def write(self, calls: Sequence[WrittenCall]) -> tuple[Piece, ...]:
        call, gap = calls[0], self.newline
        out: list[Piece] = [call.name, *(self.separator[0] if self.separator else ()), gap]
        for key, value, json_text in call.items():
            text = value if json_text.startswith('"') else json_text
            out += [*self.key, key, *self.unkey, gap, *self.value, text, *self.unvalue, gap]
        return tuple(out)

    def grammar(self, name: str, schema: Mapping[str, Any]) -> Node:
        parts: list[Node] = [exactly(name, *(self.separator[0] if self.separator else ()), self.newline)]
        close = (*self.unvalue, self.newline)
        for key, part, required in properties(schema):
            opening = exactly(*self.key, key, *self.unkey, self.newline, *self.value)
            text, other = text_and_rest(part)
            options: list[Node] = []
            if text is not None:
                options.append(sequence(opening, raw_value(text, close, ())))
            if other is not None:
                options.append(sequence(opening, typed_value(other), exactly(*close)))
            parts.append(choice(options) if required else optional(choice(options)))
        return sequence(*parts)


class _Pairs:
    """`KeyValueTags` for an alphabet."""

    def __init__(self, codec: KeyValueTags, alphabet: Any) -> None:
        self.codec = codec
        spell = alphabet.spell
        self.keys, unkeys = spell([codec.key]), spell([codec.unkey])
        self.values, self.unvalues = spell([codec.value]), spell([codec.unvalue])
        self.kinds = spell([codec.kind]) if codec.kind else []
        unkinds = spell([codec.unkind]) if codec.kind else []
        self.unkey, self.unkind = re.compile(literal(unkeys)), re.compile(literal(unkinds))
        self.separators = spell(codec.separator)
        self.unkeys = unkeys
        self.foreign = [*unkeys, *self.values, *self.kinds, *unkinds]
        """What can't stand in a name."""
        self.ends = Search(self.unvalues)
        self._ends_and: dict[Search, Search] = {}
        self.name_ends = [*self.separators, *self.keys]
        key, unkey, value, unvalue = (literal(tags) for tags in (self.keys, unkeys, self.values, self.unvalues))
        name = r"[^<>\ud800-\udfff]{1,64}"
        self.heads = {
            "name": re.compile(rf"(?:{name})?(?:{literal([*self.separators, *self.keys])})"),
            "pair": re.compile(rf"\s{{0,8}}(?:{key})"),
            "key": re.compile(rf"(?:{name})?(?:{unkey})(?:\s{{0,8}}(?:{value}))?"),
            "gap": re.compile(rf"\s{{0,8}}(?:{value})"),
            "value": re.compile(rf"(?:{unvalue})(?:\s{{0,8}}(?:{key}))?"),
            "text": re.compile(rf"(?:{unvalue})(?:\s{{0,8}}(?:{key})(?:{name}(?:{unkey})\s{{0,8}}(?:{value}))?)?"),
        }
        """The same as in `_Xml`."""
        self.opening = re.compile(rf"{name}(?:{literal([*self.separators, *self.keys])})")
        """How a body mostly begins."""
        tags = [*self.keys, *unkeys, *self.kinds, *unkinds, *self.values, *self.unvalues, *self.separators]
        firsts = "".join(sorted({re.escape(tag[0]) for tag in tags} | {"<"}))
        self.tag = re.compile(f"[{firsts}{SURROGATES}]")

    def reader(self, sink: Sink) -> Reader:
        return _PairReader(sink, self)

    def ends_and(self, markers: Search) -> Search:
        """For what may end a value, or the call in it."""
        found = self._ends_and.get(markers)
        if found is None:
            texts = sorted({*self.unvalues, *markers.texts}, key=len, reverse=True)
            found = self._ends_and[markers] = Search(texts)
        return found


class _PairReader(TagReader):
    """Reads `NAME <arg_key>K</arg_key><arg_value>V</arg_value> ...` up to the marker behind it."""

    __slots__ = ("declared", "key", "spec")

    first: ClassVar[str] = "name"
    between: ClassVar[frozenset[str]] = frozenset(("name", "pair", "gap"))
    closable: ClassVar[frozenset[str]] = frozenset(("pair",))

    def __init__(self, sink: Sink, spec: _Pairs) -> None:
        super().__init__(sink)
        self.spec = spec
        self.unquotes = spec.codec.untyped == "quoted"
        self.declared = ""
        self.key = ""

    @property
    def streams(self) -> bool:
        return self.step == "value" and self.value is not None and self.value.verbatim

    def plain_until(self) -> Callable[[str, int], int] | None:
        return self.spec.ends_and(self.sink.markers).find if self.streams else None

    def reach(self) -> Callable[[str, int], Reach] | None:
        value = self.value
        if value is None or self.step != "value" or self.private:
            return None
        until = self.spec.ends_and(self.sink.markers).find
        reach = functools.partial(value_reach, until, self.spec.heads["text" if value.verbatim else "value"])
        return functools.partial(first_reach, value.begins, None, reach) if value.begins else reach

    @property
    def moves_on(self) -> bool:
        return self.step == "value" and self.value is not None and bool(self.value.begins)

    @property
    def head(self) -> re.Pattern[str] | None:
        return self.spec.heads.get("text" if self.streams else self.step)

    def take_step(self, text: str, at: int, final: bool) -> int:
        return _PAIR_STEPS[self.step](self, text, at, final)

    def _name(self, text: str, at: int, final: bool) -> int:
        stop = at
        limit = at + HEADER_LIMIT
        while match := self.spec.tag.search(text, stop, limit):
            stop = match.start()
            end = next((stop + len(tag) for tag in self.spec.name_ends if text.startswith(tag, stop)), 0)
            marker = self.sink.marker_at(text, stop, final)
            odd = next((stop + len(tag) for tag in self.spec.unvalues if text.startswith(tag, stop)), 0)
            known = [*self.spec.name_ends, *self.spec.unvalues, *self.spec.foreign]
            if not end and (marker < 0 or (not final and partial(text, stop, known))):
                break
            if end or marker > 0 or odd:
                return self._named(text, at, stop, end, odd)
            if any(text.startswith(tag, stop) for tag in self.spec.foreign):
                return self._named_with_key(text, at, stop)
            if text[stop] == "<":
                return self.expected(stop, "the end of a name")
            stop += 1
        if final and text[at:].strip() in self.sink.tools:
            return self._named(text, at, len(text), 0, 0)
        if len(text) - at >= HEADER_LIMIT:
            return self.fail(at, f"a name of more than {HEADER_LIMIT} characters")
        return -1

    def _named(self, text: str, at: int, stop: int, end: int, odd: int) -> int:
        name = self.sink.expand(text[at:stop]).strip()
        if not name:
            if end:
                return self.fail(at, "a call without a name")
            self.empty = True
            return at
        if re.search(r"[\s<]", name):
            return self.fail(at, f"{name[:40]!r} is no name")
        self.name = name
        self.named = True
        self.sink.call_start(stop, name)
        self.step = "pair"
        if odd and not end:  # quantised models close a call without arguments by a value's closer
            self.sink.note("odd_closer", stop, "a value's closer where the call's was expected")
            self.close_pairs(odd)
            return odd
        return end if end and any(text.startswith(tag, stop) for tag in self.spec.separators) else stop

    def _named_with_key(self, text: str, at: int, stop: int) -> int:
        """`NAMEKEY</arg_key>`: the key's opener is missing, and only the offered tools tell where the name ends."""
        said = self.sink.expand(text[at:stop]).strip()
        end = next((stop + len(tag) for tag in self.spec.unkeys if text.startswith(tag, stop)), 0)
        name = max(
            (tool for tool in self.sink.tools.names if said != tool and said.startswith(tool)), key=len, default=""
        )
        if not end or not name:
            return self.expected(at, "the end of a name")
        self.sink.note("missing_opener", stop, f"{spelled(self.spec.codec.key)} is missing")
        self.name, self.key = name, said.removeprefix(name).strip()
        self.named = True
        self.sink.call_start(stop, name)
        self.step = "gap"
        return end

    def close_pairs(self, stop: int) -> None:
        self.add(stop, self.wrapped or self.writer.close())
        self.done = True

    def _pair(self, text: str, at: int, final: bool) -> int:
        for tag in self.spec.keys:
            if text.startswith(tag, at):
                self.step = "key"
                return at + len(tag)
        if not final and partial(text, at, self.spec.keys):
            return -1
        marker = self.sink.marker_at(text, at, final)
        if marker < 0:
            return -1
        if marker:
            self.close_pairs(at)
            return at
        return self.expected(at, "a key or the end of the call")

    def _key(self, text: str, at: int, final: bool) -> int:
        if match := self.spec.unkey.search(text, at, at + HEADER_LIMIT):
            self.key = self.sink.expand(text[at : match.start()]).strip()
            self.step = "gap"
            return match.end()
        if len(text) - at >= HEADER_LIMIT:
            return self.fail(at, f"a key of more than {HEADER_LIMIT} characters")
        return -1

    def _kind(self, text: str, at: int, final: bool) -> int:
        if match := self.spec.unkind.search(text, at, at + HEADER_LIMIT):
            self.declared = self.sink.expand(text[at : match.start()]).strip().partition("[")[0]
            self.step = "gap"
            return match.end()
        if len(text) - at >= HEADER_LIMIT:
            return self.fail(at, f"a type of more than {HEADER_LIMIT} characters")
        return -1

    def _gap(self, text: str, at: int, final: bool) -> int:
        for tag in self.spec.values:
            if text.startswith(tag, at):
                return self._opened(at + len(tag))
        for tag in self.spec.kinds:
            if text.startswith(tag, at):
                self.step = "kind"
                return at + len(tag)
        if text.startswith("\\n", at):  # seen in the wild: the two characters in place of a newline
            return at + 2
        if not final and (partial(text, at, [*self.spec.values, *self.spec.kinds]) or text[at:] == "\\"):
            return -1
        known = [*self.spec.foreign, *self.spec.keys, *self.spec.unvalues]
        marker = self.sink.marker_at(text, at, final)
        if marker < 0 or (not final and partial(text, at, known)):
            return -1
        if not marker and not any(text.startswith(tag, at) for tag in known):
            self.sink.note("missing_opener", at, f"{spelled(self.spec.codec.value)} is missing")
            return self._opened(at)
        return self.expected(at, spelled(self.spec.codec.value))

    def _opened(self, at: int) -> int:
        """The value begins at `at`."""
        untyped, declared = self.spec.codec.untyped, self.declared
        self.open_value(at, self.key, verbatim=None, untyped=untyped, declared=declared)
        self.step, self.key, self.declared = "value", "", ""
        return at

    def _value(self, text: str, at: int, final: bool) -> int:
        start, end = at, self.spec.ends.find(text, at)
        while (at := self.sink.markers.find(text, at, end)) < end:
            verdict = self._closes_call(text, at, final)
            if verdict == "wait":
                self.take(text, start, at)
                return at if at > start else -1
            if verdict == "ends":
                self.sink.note("missing_closer", at, f"{spelled(self.spec.codec.unvalue)} is missing")
                self.take(text, start, at)
                self.close_value(at, at)
                self.close_pairs(at)
                return at
            if verdict == "tag":
                self.sink.note("ambiguous_value", at, "the call's end is taken for text of the value around it")
            at += 1
        stop = next((end + len(tag) for tag in self.spec.unvalues if text.startswith(tag, end)), 0)
        if final and not stop:
            end = len(text)
        self.take(text, start, end)
        if stop:
            self.close_value(end, stop)
            self.step = "pair"
            return stop
        return end if end > start else -1

    def _closes_call(self, text: str, at: int, final: bool) -> str:
        """Whether the call's closer in a value means that the value's own is missing: only if the next call, a turn boundary or
        the end follows it."""
        marker = self.sink.marker_at(text, at, final)
        if marker <= 0:
            return "wait" if marker < 0 else "data"
        space = SPACE.match(text, marker)
        next = space.end() if space else marker
        if next == len(text):
            self.waits_on_blank = not final
            return "ends" if final else "wait"
        after = self.sink.marker_at(text, next, final)
        return "wait" if after < 0 else "ends" if after else "tag"

    def place(self) -> Hashable | None:
        if self.done or self.private:
            return None
        stage = None if self.value is None else self.value.stage
        return self.spec, self.step, self.key, self.declared, self.named, stage, bool(self.given)

    def resume(self, place: Any) -> None:
        _, self.step, self.key, self.declared, self.named, stage, _ = place
        self.catch_up(stage, opens=False)


_PAIR_STEPS: dict[str, Callable[[_PairReader, str, int, bool], int]] = {
    "name": _PairReader._name,
    "pair": _PairReader._pair,
    "key": _PairReader._key,
    "kind": _PairReader._kind,
    "gap": _PairReader._gap,
    "value": _PairReader._value,
}
