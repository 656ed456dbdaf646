"""A table made ready to run: for one tokenizer (or for text) and one policy, built once and shared by all parsers.

**The alphabet** is the text that the machine reads, in which special tokens are single characters: see `unbraid.alphabet`.

**Rows.** For each state: where a marker could begin, which markers are live, which white space they own, and which tokens are
plain here: a token is plain if nothing in it can begin a marker or be owned by one. For those the machine does next to nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from unbraid.alphabet import Alphabet
from unbraid.memo import Memo, Reach
from unbraid.native import fields
from unbraid.policy import Policy
from unbraid.search import FEW, FIRST, LAST, Search, either, pattern
from unbraid.table import (
    ANY,
    CONTENT,
    ENDED,
    Format,
    Marker,
    State,
    Transitions,
    thinks,
    unmarked,
)
from unbraid.turns import Turns

if TYPE_CHECKING:
    from unbraid.vocabulary import Vocabulary


def owned_before(text: str, stop: int, start: int, rule: str) -> int:
    """Where the white space before position `stop` begins that a marker with this rule owns, not before `start`."""
    if rule == ANY:
        at = stop
        while at > start and text[at - 1].isspace():
            at -= 1
        return at
    for length in range(min(len(rule), stop - start), 0, -1):
        if text.startswith(rule[-length:], stop - length):
            return stop - length
    return stop


Trials = tuple[tuple[tuple[str, ...], Marker, State], ...]
"""Calls without a marker: the separators before them, how sure one must be, the call's state."""

_WORDS = (r" ?\w{1,12}", r"[^\w\s]{1,2}", r"\s{1,8}")
ORPHAN = unmarked(trial="closed", order=9)
"""Where a call may begin whose opening wrapper is missing."""


class Row:
    """One state, ready to run."""

    __slots__ = (
        "ahead", "any_before", "bound", "closing", "cuts", "ender", "live", "match", "opens", "owned", "pieces", "prefixes", "search", "special", "state",
        "targets", "trials",
    )  # fmt: skip

    def __init__(
        self,
        state: State,
        entries: list[tuple[str, Marker, State]],
        trials: Trials,
        turns: list[str],
        openings: Mapping[State, str],
        *,
        ids: bool,
    ) -> None:
        """`turns`: markers of turns, the live ones and others; `openings`: of a call's state, the pattern of how a body begins there;
        `ids`: what is read are ids."""
        self.state = state
        self.trials = trials
        """Calls that may begin here without a marker."""
        entries = sorted(entries, key=lambda entry: len(entry[0]), reverse=True)
        self.targets = [(marker, target) for _, marker, target in entries]
        self.live = [text for text, _, _ in entries]
        self.match = re.compile("|".join(f"({pattern(text)})" for text in self.live) or r"(?!)")
        self.search = Search(self.live)
        """For live markers in text without special tokens."""
        self.special = Search(self.live, special=True) if ids else self.search
        """For live markers and any special token."""
        bound = either(
            (text, rf"\n{{0,2}}(?:{openings[target]})?" if target in openings else r"\n{0,2}")
            for text, _, target in entries
        )
        self.bound = re.compile(bound)
        """A live marker with the white space that it mostly owns and, if it opens a call, how that begins."""
        self.ahead = re.compile(f"{bound}|{self.search.halves}")
        """For either, or what may become a marker at a text's end: in a long text that is tried too often."""
        marker = rf"(?:{'|'.join(map(pattern, [*self.live, *turns])) or '(?!)'})\n{{0,2}}" if not ids else "(?!)"
        before = r".{0,48}?" if state.capture else r"\s{0,8}"
        self.pieces = re.compile("|".join([rf"{before}{marker}", *_WORDS]))
        """How text is cut that is likely to come again: a marker with the white space that it may own (in a header: with all that stands
        before it), or a word."""
        self.closing = re.compile(rf"[\s)\]}}]{{0,8}}(?:{marker}(?:{bound})?|{bound})|[\s)\]}}]{{1,8}}")
        """The same behind a call's arguments: what closes the call, and what may open the next one."""
        self.opens = self.search.opens
        """Whether all that is left of a text, from a position on, could still become a live marker."""
        self.prefixes = self.search.prefixes
        self.cuts = frozenset(text for text in self.prefixes if not (text[0].isalnum() or text[0].isspace()))
        """Beginnings of markers that can't be the beginning of a word: left over at the end of a cut output they're no text."""
        enders = {
            text
            for text, marker, _ in entries
            if marker.inside == "ends" and len(text) == 1 and FIRST <= ord(text) <= LAST
        }
        self.ender = re.compile(f"[{''.join(sorted(enders))}]") if enders else None
        """Tokens that end a call's body wherever they stand in it."""
        befores = {marker.before for marker, _ in self.targets if marker.before}
        self.any_before = ANY in befores
        ends = {rule[at:] for rule in befores - {ANY} for at in range(len(rule))}
        self.owned = sorted(ends, key=len, reverse=True)
        """White space that a live marker with a rule of its own could own, the longest first."""

    def held_from(self, text: str, start: int, stop: int) -> int:
        """Where the white space at the end of `text[start:stop]` begins that a live marker could own."""
        if self.any_before:
            return owned_before(text, stop, start, ANY)
        for owned in self.owned:
            if text.endswith(owned, start, stop):
                return stop - len(owned)
        return stop

    def marker_at(self, text: str, at: int, final: bool) -> int:
        """Where a live marker ends that begins at `at`; 0: there is none; -1: it can't be said yet."""
        if not final and self.opens(text, at):
            return -1
        match = self.match.match(text, at)
        return match.end() if match else 0

    def find_marker(self, text: str, at: int, stop: int) -> int:
        """Where the first live marker begins in `text[at:stop]`; -1: there is none."""
        while (at := self.search.find(text, at, stop)) < stop:
            if self.match.match(text, at):
                return at
            at += 1
        return -1

    def opens_at(self, text: str, at: int) -> bool:
        """Whether a marker that opens another call begins at `at`."""
        match = self.match.match(text, at)
        return match is not None and self.targets[match.lastindex - 1][1].codec is not None  # type: ignore[operator]

    def reach(self, text: str, at: int) -> Reach:
        """How far a text, from a position on, holds nothing that can begin a live marker or be owned by one, and where that marker ends."""
        stop = end = len(text)
        if stop - at < FEW:
            found = self.ahead.search(text, at)
            if found is not None:
                stop, end = found.span()
        else:
            stop, end = self._far(text, at)
        if stop > at and text[stop - 1].isspace():
            return self.held_from(text, at, stop), end, 0
        return stop, end, 0

    def _far(self, text: str, at: int) -> tuple[int, int]:
        """Where, in a long text from a position on, a live marker begins and ends; or begins, at the text's end."""
        search, stop = self.search, len(text)
        first = text.find(search.only, at) if search.only else search.first(text, at)
        if first < 0:
            return stop, stop
        found = self.bound.match(text, first)
        if found is None:
            found = self.bound.search(text, search.leap(text, first) if search.only and not search.nested else first)
        stop, end = found.span() if found else (stop, stop)
        return stop if found and not search.nested else search.half(text, first, stop), end

    def reach_behind(self, held: str, text: str, at: int) -> Reach:
        """The same where `held` was held back, if what comes shows that it begins no marker and none owns it."""
        if held.isspace() and text[at : at + 1].isspace():
            return at, at, 0
        found = self.ahead.search(held + text[at : at + self.search.longest])
        return (at, at, 0) if found and found.start() < len(held) else self.reach(text, at)


class Program:
    """A format compiled for a tokenizer (`None`: for text) and a policy."""

    def __init__(self, fmt: Format, vocabulary: Vocabulary | None, policy: Policy) -> None:
        self.format = fmt
        self.policy = policy
        self.alphabet = alphabet = Alphabet(fmt, vocabulary, policy)
        self.memo = Memo()
        self.ids = vocabulary is not None
        self.keep = policy.keep_special_tokens.union(fmt.visible)
        turns = list(self._entries(fmt.turns))
        self.codecs: dict[State, Any] = {s: s.codec.compile(alphabet) for s in fmt.states if s.codec}
        found = {s: getattr(codec, "opening", None) for s, codec in self.codecs.items() if not self.ids}
        openings = {s: opening.pattern for s, opening in found.items() if opening is not None}
        self.rows: dict[State, Row] = {}
        for state in [*fmt.states, ENDED]:
            self.rows[state] = self._row_of(state, turns, openings)
        self.ended = self.rows[ENDED]
        self.sections = frozenset(
            s
            for s in fmt.states
            if s.strand == "markup" and not (s.otherwise or s.capture or s.header or s.odd or s.codec)
        )
        """States that hold nothing but calls."""
        self.announcing = frozenset(
            marker
            for state, row in fmt.states.items()
            if state.strand in ("content", "reasoning")
            for marker, target in row.items()
            if target in self.sections
        )
        """Markers that open one: behind a call too they close nothing, and what was no call ends before them."""
        self.rows.setdefault(CONTENT, self.rows[fmt.content])  # where ENDED leads
        self.turns = Turns(alphabet, turns)
        self.reasons = fmt.reasons
        self._shared: dict[int, Any] | None = None
        self._opening: re.Pattern[str] | None = None
        self._beginnings = frozenset(
            (fmt.start.on, fmt.start.off, fmt.start.unknown, *(s.then for s in fmt.states if s.then))
        )

    def _row_of(self, state: State, turns: Sequence[tuple[str, Marker, State]], openings: Mapping[State, str]) -> Row:
        """The row of a state, by policy. `turns`: the markers that count everywhere; `openings`: how the bodies of calls begin."""
        row = self.format.states.get(state, {})
        if self.policy.call_in_reasoning == "literal" and state.strand == "reasoning":
            row = {
                marker: target
                for marker, target in row.items()
                if thinks(target) or target.strand not in ("tool_call", "markup")
            }
        entries = [*self._entries(row), *turns]
        if not self.ids and not (state.capture or state.otherwise):
            entries = [entry for entry in entries if entry[1].quoted != "outside"]
        enders = [text for text, _, _ in turns]
        return Row(state, entries, self._trials(state, row), enders, openings, ids=self.ids)

    @property
    def shared(self) -> dict[int, Any]:
        """All that is reachable from the table and its compiled codecs, by `id`: what no copy of a machine needs a copy of."""
        if self._shared is None:
            self._shared = self._reachable()
        return self._shared

    def _reachable(self) -> dict[int, Any]:
        found: dict[int, Any] = {id(self): self}
        waiting: list[Any] = [self.format, self.rows, self.codecs, self.alphabet]
        while waiting:
            value: Any = waiting.pop()
            kind = type(value)
            if id(value) in found or isinstance(value, (str, int, bytes, type(None), re.Pattern)):
                continue
            if value is self.alphabet.vocabulary:
                pass
            elif isinstance(value, Mapping):
                waiting += [*value.keys(), *value.values()]
            elif isinstance(value, (list, tuple, set, frozenset)):
                waiting += value
            elif kind.__module__.startswith("unbraid."):
                names = (*fields(kind), *getattr(value, "__dict__", ()))
                waiting += [getattr(value, name) for name in names if hasattr(value, name)]
            else:
                continue
            found[id(value)] = value
        return found

    def begins_in(self, state: State) -> bool:
        """Whether an answer may start in this state, or go on behind a call."""
        return state in self._beginnings

    def behind_opener(self, body: str) -> str:
        """The raw text of a call without the marker that opened it, if that is there (a control token's isn't)."""
        if self._opening is None:
            texts = {
                self.alphabet.expand(text)
                for row in self.rows.values()
                for text, (marker, target) in zip(row.live, row.targets, strict=True)
                if target.codec is not None and not marker.peek
            }
            longest_first = sorted(texts, key=len, reverse=True)
            self._opening = re.compile(rf"\s*(?:{'|'.join(map(pattern, longest_first)) or '(?!)'})")
        found = self._opening.match(body)
        return body[found.end() :] if found else body

    def opens_call(self, text: str) -> bool:
        """Whether a piece of the raw output is, or begins with, a marker that opens a call."""
        return self.behind_opener(text) != text

    def tried_at(self, state: State) -> bool:
        """Whether the table says that a call may begin here without a marker."""
        return any(marker.trial for marker in self.format.states.get(state, ()))

    def _entries(self, row: Transitions) -> Iterator[tuple[str, Marker, State]]:
        for marker, target in row.items():
            if not marker.trial:
                for text in self.alphabet.spell(marker.spellings):
                    yield text, marker, target

    def _trials(self, state: State, row: Transitions) -> Trials:
        """What may be a call here although no marker says so: what the table lists, and by policy every call that has a closer."""
        found = [(tuple(self.alphabet.spell(m.spellings)), m, target) for m, target in row.items() if m.trial]
        if self.policy.orphan_call == "recover" and state.strand == "content":
            opened = {
                target for row in self.format.states.values() for marker, target in row.items() if not marker.trial
            }
            found += [
                ((), ORPHAN, call)
                for call in self.format.states
                if call.codec and call in opened and self._closers(call)
            ]
        return tuple(sorted(found, key=lambda trial: trial[1].order))

    def _closers(self, call: State) -> list[Marker]:
        row = self.format.states[call]
        return [m for m, target in row.items() if not m.trial and target.strand != "tool_call"]
