"""The likely cause of a difference, from its shape: what is missing, what is there instead, and what stands there in the raw layer.

`Comparison` holds what a client sees against what it should see. First the shape of the whole (a strand in another's field, a call
that isn't there), since that explains every field at once; then the first character that differs.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from unbraid.events import Strand
from unbraid.integrity.align import ARGUMENTS, Story
from unbraid.integrity.findings import Finding, Layer, Level, Token, excerpt, first_difference
from unbraid.integrity.layers import Call, Said
from unbraid.table import Format, spelled


@dataclass(frozen=True, slots=True)
class Markers:
    """Spellings by which markup is known in a text."""

    texts: tuple[str, ...]
    """The longest first."""
    special: frozenset[str]

    @classmethod
    def of(cls, fmt: Format, more: Sequence[str] = ()) -> Markers:
        """Those of a format, and tokens that are special here."""
        special = {*fmt.specials, *more}
        texts = {spelled(spelling) for marker in fmt.markers for spelling in marker.spellings} | special
        plain = {text.strip() for text in texts}
        return cls(
            tuple(sorted((text for text in plain if len(text) > 2 and not text.isalnum()), key=len, reverse=True)),
            frozenset(special),
        )

    def near(self, text: str, at: int) -> Iterator[tuple[int, str]]:
        """Every marker that covers the place, or begins at it, with where it begins."""
        for marker in self.texts:
            start = text.find(marker, max(0, at - len(marker) + 1), at + len(marker))
            if 0 <= start <= at:
                yield start, marker


class Difference(NamedTuple):
    """A field that isn't as it should be."""

    field: str
    expected: str
    got: str
    at: int
    """The first character that differs."""


def differences(expected: Said, got: Said) -> list[Difference]:
    """Every field that differs, in the order of a message."""
    found = [(name, getattr(expected, name) or "", getattr(got, name) or "") for name in ("reasoning", "content")]
    for at in range(max(len(expected.calls), len(got.calls))):
        one = expected.calls[at] if at < len(expected.calls) else Call()
        other = got.calls[at] if at < len(got.calls) else Call()
        found.append((f"tool_calls[{at}].function.name", one.name, other.name))
        found.append((ARGUMENTS.format(at), one.arguments, other.arguments))
    return [Difference(name, a, b, first_difference(a, b)) for name, a, b in found if a != b]


def levelled(right: Said, seen: Said) -> Said:
    """A reply with the white space at the ends of its texts as it should be: a difference there is common, and would hide every
    other."""
    reasoning = _with_ends_of(right.reasoning or "", seen.reasoning or "") or None
    content = _with_ends_of(right.content or "", seen.content or "") or None
    return replace(seen, reasoning=reasoning, content=content)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One choice of one layer against what it should be."""

    case: str
    layer: Layer
    expected: Said
    got: Said
    markers: Markers
    choice: int = 0
    story: Story | None = None
    """Of `expected`, if it comes from the raw layer."""
    request: Mapping[str, Any] = field(default_factory=dict)
    """What was asked for: its stop strings, the beginning that it continues."""

    @property
    def stops(self) -> tuple[str, ...]:
        stop = self.request.get("stop") or ()
        return (stop,) if isinstance(stop, str) else tuple(stop)

    @property
    def named(self) -> bool:
        """The request names the function: the finish reason is `stop` with OpenAI and `tool_calls` with others."""
        return isinstance(self.request.get("tool_choice"), Mapping)

    @property
    def prefill(self) -> str:
        """The beginning of the message that the request continues."""
        messages = self.request.get("messages") or [{}]
        text = messages[-1].get("content") if self.request.get("continue_final_message") else ""
        return text if isinstance(text, str) else ""

    def findings(self) -> list[Finding]:
        """The first difference with its cause, and what is wrong besides."""
        found = []
        level = replace(self, got=levelled(self.expected, self.got))
        if differing := differences(self.expected, level.got):
            found.append(level._explained(differing))
        message = "the white space at its beginning or end is other than the format's markers leave it"
        found += [self._finding("edge_space", edge, message, ()) for edge in differences(level.got, self.got)]
        if (reason := self._finish()) is not None:
            found.append(reason)
        return found

    def _explained(self, differing: list[Difference]) -> Finding:
        whole = self._shape(differing)
        if whole is not None:
            cause, difference, message = whole
        else:
            difference = min(differing, key=self._order)
            cause, message = self._detail(difference)
        also = tuple(other.field for other in differing if other is not difference)
        finding = self._finding(cause, difference, message, also)
        if cause == "marker_leaked" and self._spelled_out(difference):
            either = "the model spelled it with ordinary tokens: by characters alone it may be text or markup"
            return replace(finding, level="warning", message=f"{message} ({either})")
        return finding

    def _spelled_out(self, difference: Difference) -> bool:
        """Whether a marker that the text shows stands in the raw layer, and is no token of its own there."""
        tokens = self.story.tokens if self.story else []
        shown = [marker for _, marker in self.markers.near(difference.got, difference.at)]
        ids = {token.text.strip() for token in tokens if token.special}
        raw = self.story.raw if self.story else ""
        return bool(tokens) and any(marker in raw and marker not in ids for marker in shown)

    def _order(self, difference: Difference) -> int:
        place = self.story.locate(difference.field, difference.at) if self.story else None
        return place[0] if place else 0

    def _finding(self, cause: str, difference: Difference, message: str, also: tuple[str, ...]) -> Finding:
        field, expected, got, at = difference
        raw: tuple[int | None, Token | None, Strand | None] = (None, None, None)
        if self.story is not None:
            moved = ("content", 0) if cause == "content_in_reasoning" else (field, at)
            raw = self.story.locate(field, at) or self.story.locate(*moved) or raw
        level: Level = "error"
        if (odd := self._odd_before(raw[0])) is not None:
            level, message = "warning", f"{message} (but the output leaves its format: {odd})"
        return Finding(
            self.case, self.layer, field, cause, message, level, self.choice, at, excerpt(expected, at), excerpt(got, at),
            *raw, also,
        )  # fmt: skip

    def _odd_before(self, at: int | None) -> str | None:
        """Where an output breaks its format, parsers may go on in different ways: what follows is no certain fault."""
        diagnostics = self.story.diagnostics if self.story else []
        return next((each.text for each in diagnostics if at is not None and each.offset <= at), None)

    # The whole

    def _shape(self, differing: list[Difference]) -> tuple[str, Difference, str] | None:
        """A cause that explains several fields at once."""
        by_field = {difference.field: difference for difference in differing}
        lost = next((at for at, call in enumerate(self.expected.calls) if not self._arrived(call, at)), None)
        if lost is not None:
            return self._lost(lost, by_field)
        if len(self.got.calls) > len(self.expected.calls):
            name = f"tool_calls[{len(self.expected.calls)}].function.name"
            extra = self.got.calls[len(self.expected.calls)]
            message = f"a call of {extra.name!r} that the model didn't make"
            return "call_invented", by_field.get(name, differing[-1]), message
        return self._moved(by_field)

    def _arrived(self, call: Call, at: int) -> bool:
        return at < len(self.got.calls) and (
            len(self.got.calls) >= len(self.expected.calls) or self.got.calls[at].name == call.name
        )

    def _lost(self, at: int, by_field: dict[str, Difference]) -> tuple[str, Difference, str]:
        call = self.expected.calls[at]
        name = f"tool_calls[{at}].function.name"
        difference = by_field.get(name) or by_field.get(ARGUMENTS.format(at)) or next(iter(by_field.values()))
        where = next((f for f in ("content", "reasoning") if self._holds(f, call)), None)
        if where is None:
            return "call_lost", difference, f"the call of {call.name!r} is nowhere in the reply"
        opener = self.story.markup_before(name).strip() if self.story else ""
        shown = getattr(self.got, where) or ""
        special = [marker for marker in self.markers.texts if marker in opener and marker in self.markers.special]
        if special and not any(marker in shown for marker in special):
            return (
                "special_stripped",
                difference,
                f"the call of {call.name!r} stands in {where} without its marker {special[0]!r}: no parser could see it",
            )
        return "call_lost", difference, f"the call of {call.name!r} was left in {where} as text"

    def _holds(self, field: str, call: Call) -> bool:
        """Whether the text of a call stands in a field in which it shouldn't."""
        got, right = getattr(self.got, field) or "", getattr(self.expected, field) or ""
        return call.name in got and got.count(call.name) > right.count(call.name)

    def _moved(self, by_field: dict[str, Difference]) -> tuple[str, Difference, str] | None:
        """Reasoning and content on the wrong side of their boundary."""
        right, seen = self.expected, self.got
        reasoning, content = right.reasoning or "", right.content or ""
        shown, answer = seen.reasoning or "", seen.content or ""
        if "reasoning" not in by_field:
            return None
        if len(shown) < len(reasoning) and "content" in by_field:
            moved = _bare(_without(reasoning, shown))
            if moved and moved in _bare(answer):
                return (
                    "reasoning_in_content",
                    by_field["content"],
                    "the thought, or a part of it, stands in the content",
                )
        if len(answer) < len(content) and len(shown) > len(reasoning):
            moved = _bare(_without(content, answer))
            if moved and moved in _bare(shown):
                return (
                    "content_in_reasoning",
                    by_field["reasoning"],
                    "the answer, or a part of it, stands in the reasoning",
                )
        return None

    # One field

    def _detail(self, difference: Difference) -> tuple[str, str]:
        field, expected, got, at = difference
        if field.endswith(".name"):
            return "call_name", f"the name is {got!r} and should be {expected!r}"
        if (found := self._by_marker(expected, got, at)) is not None:
            return found
        if "�" in got and got.count("�") > expected.count("�"):
            return "character_broken", "a character arrived as U+FFFD"
        if field.endswith(".arguments") and (found := _arguments(expected, got)) is not None:
            return found
        if html.unescape(expected) == html.unescape(got):
            return "entities", "the texts differ by HTML entities only"
        if "".join(expected.split()) == "".join(got.split()):
            return "white_space", "the texts differ in white space only"
        return self._by_shape(field, expected, got, at)

    def _by_marker(self, expected: str, got: str, at: int) -> tuple[str, str] | None:
        for _, marker in self.markers.near(got, at):
            if got.count(marker) > expected.count(marker):
                return "marker_leaked", f"{marker!r} stands in the text"
        for start, marker in self.markers.near(expected, at):
            if expected.count(marker) <= got.count(marker):
                continue
            rest = expected[start + len(marker) :]
            if marker in self.markers.special and self._is_token(expected, start, marker):
                if not got[start:].startswith(rest[:12]):
                    return None  # more is missing than the token
                return "special_stripped", f"{marker!r}, which belongs to the text, is missing"
            if rest.startswith(got[start : start + 12]) and got[start:]:
                return "marker_eaten", f"{marker!r} is text here, and was taken for markup"
            return "marker_eaten", f"the text ends (or jumps) at {marker!r}, which is text here"
        return None

    def _is_token(self, expected: str, start: int, marker: str) -> bool:
        """Whether this marker is one special token in the raw layer, rather than spelled."""
        if self.story is None:
            return True
        field = "content" if expected == (self.expected.content or "") else "reasoning"
        place = self.story.locate(field, start)
        token = place[1] if place else None
        return token is None or (token.special and token.text.strip() == marker)

    def _by_shape(self, field: str, expected: str, got: str, at: int) -> tuple[str, str]:
        if self.prefill and got == self.prefill + expected:
            return "prefill", "the beginning, which the client has, is repeated"
        for stop in self.stops:
            if got.startswith(expected) and got[len(expected) :].startswith(stop[:1]):
                return "stop_string", f"the stop string {stop!r}, or what follows it, is shown"
        if expected.startswith(got) and field != "content":
            for stop in self.stops:
                if expected[len(got) :].lstrip().startswith(stop):
                    return "stop_string", f"the stop string {stop!r} ended the reply inside {field}"
        if expected.startswith(got):
            return "text_cut", f"missing at the end: {len(expected) - len(got)} of {len(expected)} characters"
        tail = len(expected) - at
        if len(got) > len(expected) and (not tail or got.endswith(expected[at:])):
            added = got[at : len(got) - tail]
            kind = "text_doubled" if added and added in expected else "text_added"
            return kind, f"{len(added)} characters too many: {added[:40]!r}"
        if len(got) < len(expected) and expected.endswith(got[at:]):
            missing = expected[at : len(expected) - len(got) + at]
            return "text_lost", f"{len(missing)} characters are missing: {missing[:40]!r}"
        if got.strip() and (start := expected.find(got)) >= 0:
            return "text_lost", f"{start} characters before and {len(expected) - start - len(got)} behind are missing"
        return "text_changed", "the text is another from here on"

    # The end

    def _finish(self) -> Finding | None:
        expected, got = self.expected.finish, self.got.finish
        if expected == got or got is None or expected is None:  # its absence is the reply's own problem
            return None
        if self.named and {expected, got} == {"stop", "tool_calls"}:
            return None
        if {expected, got} == {"stop", "tool_calls"} and len(self.got.calls) != len(self.expected.calls):
            return None  # follows from the lost (or invented) call
        message = f"{got!r}, and it should be {expected!r}"
        return Finding(
            self.case,
            self.layer,
            "finish_reason",
            "finish_reason",
            message,
            choice=self.choice,
            expected=expected,
            got=got,
        )


def _with_ends_of(right: str, seen: str) -> str:
    """A text with the white space around it replaced by another's, at the ends at which the two are alike."""
    inner, core = seen.strip(), right.strip()
    if not inner or not core:
        return seen if inner or core else right
    before, after = seen[: len(seen) - len(seen.lstrip())], seen[len(seen.rstrip()) :]
    if core.startswith(inner[:8]):
        before = right[: len(right) - len(right.lstrip())]
    if core.endswith(inner[-8:]):
        after = right[len(right.rstrip()) :]
    return before + inner + after


def _without(whole: str, part: str) -> str:
    """What is left of a text without its beginning or end; all of it, if the part is neither."""
    if whole.startswith(part):
        return whole[len(part) :]
    return whole[: len(whole) - len(part)] if whole.endswith(part) else whole


def _bare(text: str) -> str:
    return "".join(text.split())


def _arguments(expected: str, got: str) -> tuple[str, str] | None:
    """What happened to a call's arguments, judged by their JSON."""
    right, wrong = _json(expected), _json(got)
    if right is _BROKEN:
        return None
    if wrong is _BROKEN:
        if got and expected.startswith(got):
            return "text_cut", f"missing at the end: {len(expected) - len(got)} of {len(expected)} characters"
        if got.endswith(expected):
            return "text_added", f"{got[: len(got) - len(expected)]!r} stands before the arguments"
        return "arguments_broken", "the arguments are empty" if not got else "the arguments are no JSON any more"
    if right == wrong and json.dumps(right) == json.dumps(wrong):
        return "arguments_rewritten", "the same values, written differently"
    path, one, other = next(_paths(right, wrong, ""), ("", right, wrong))
    if type(one) is not type(other):
        return "argument_type", f"{path or 'the arguments'}: {_named(one)} became {_named(other)}"
    if isinstance(one, str) and isinstance(other, str):
        if html.unescape(one) == html.unescape(other):
            return "entities", f"{path}: entities were decoded or encoded"
        if one.split() == other.split() or _bare(one) == _bare(other):
            return "white_space", f"{path}: white space was changed"
        if one.startswith(other):
            return "text_cut", f"{path}: missing at the end: {len(one) - len(other)} of {len(one)} characters"
    return None


_BROKEN = object()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _BROKEN


def _paths(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Every place at which two values differ."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for key in one:
            yield from _paths(one[key], other[key], f"{path}.{key}" if path else str(key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for at, pair in enumerate(zip(one, other, strict=True)):
            yield from _paths(*pair, f"{path}[{at}]")
    elif one != other or type(one) is not type(other):
        yield path, one, other


_NAMES = {str: "a text", bool: "true/false", int: "a number", float: "a number", dict: "an object", list: "a list"}


def _named(value: Any) -> str:
    return f"{_NAMES.get(type(value), 'null')} ({json.dumps(value, ensure_ascii=False)[:40]})"
