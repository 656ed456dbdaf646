"""A table made ready to run: for one tokenizer (or for text) and one policy, built once and shared by all parsers.

**The alphabet.** The machine reads text. A special token that counts as a marker is one character of that text, taken from the
surrogates: no decoded text can contain one, so a marker written as its token and the same characters written with ordinary
tokens can't be mistaken for each other, and one scanner serves both. Fed text only, markers are their spelling.

**Rows.** For each state: where a marker could begin, which markers are live, which white space they own, and which tokens are
plain here: a token is plain if nothing in it can begin a marker or be owned by one. For those the machine does next to nothing.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from unbraid.memo import Memo, Reach
from unbraid.native import fields
from unbraid.policy import Policy
from unbraid.search import FEW, FIRST, GAPS, LAST, SURROGATES, Search, either, pattern
from unbraid.suffix import suffixed
from unbraid.table import (
    ANY,
    CONTENT,
    ENDED,
    Format,
    Gap,
    Marker,
    Piece,
    Special,
    Spelling,
    State,
    Transitions,
    spelled,
    thinks,
    unmarked,
)

if TYPE_CHECKING:
    from unbraid.vocabulary import Vocabulary

_ANY_SPECIAL = re.compile(f"[{SURROGATES}]")


class Alphabet:
    """Special tokens as characters, and back."""

    def __init__(self, fmt: Format, vocabulary: Vocabulary | None, policy: Policy) -> None:
        self.vocabulary = vocabulary
        self.accept = policy.spelled_markers == "accept"
        self.spelling: dict[int, str] = {}
        """Code point -> the token's characters; for `str.translate`."""
        self.pieces: dict[int, str] = {}
        """Token id -> its text, for tokens that are whole characters. Filled as tokens are met."""
        self.tokens: set[int] = set()
        """Ids of the special tokens that are characters."""
        self._ids: dict[str, int] = {}
        self._codes = itertools.count(FIRST)
        self._chars: dict[str, str] = {}
        self._owns: re.Pattern[str] | None = None
        self.suffixes = fmt.suffixes or ("",)
        self.own: frozenset[str] = frozenset()
        """Characters of the tokens that the format knows; others that stand for a token are control tokens."""
        if vocabulary is None:
            return
        declared = set(fmt.specials)
        declared |= {spelled(s) for m in fmt.markers for s in m.spellings if any(isinstance(p, Special) for p in s)}
        for state in fmt.states:
            if state.codec:
                declared |= {spelled(s) for s in state.codec.spellings() if any(isinstance(p, Special) for p in s)}
        for text in sorted(declared):
            if (token := vocabulary.special.get(text)) is not None:
                self._chars[text] = self._add(token, text)
        self.own = frozenset(self._chars.values())
        self._owns = re.compile(f"[{''.join(self._chars.values())}]") if self._chars else None
        self._plain = set(fmt.visible) | (policy.keep_special_tokens - declared)
        self._texts = tuple({p for m in fmt.markers for s in m.spellings for p in s if isinstance(p, str)})

    def _add(self, token: int, text: str) -> str:
        code = next(self._codes)
        if code > LAST:  # more special tokens than there are characters for them: the rest is ordinary text
            self.pieces[token] = text
            return text
        self.spelling[code] = text
        self._ids[chr(code)] = token
        self.tokens.add(token)
        return self.pieces.setdefault(token, chr(code))  # a stream in another thread may have met it at the same time

    def piece(self, token: int) -> str | bytes | None:
        """The token's text, or its bytes if they aren't whole characters, or `None` if the vocabulary doesn't know it."""
        known = self.pieces.get(token)
        if known is not None:
            return known
        assert self.vocabulary is not None
        data = self.vocabulary.bytes_of(token)
        if data is None:
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return data
        if token in self.vocabulary.control and not self._shown(text):
            return self._add(token, text)
        self.pieces[token] = text
        return text

    def _shown(self, text: str) -> bool:
        return text in self._plain or any(text in marker for marker in self._texts)

    def own_in(self, text: str) -> list[int]:
        """Where in the text special tokens stand that the format knows."""
        return [found.start() for found in self._owns.finditer(text)] if self._owns else []

    def spell(self, spellings: Iterable[Spelling], *, only: Literal["", "tokens", "text"] = "") -> list[str]:
        """How the given spellings look in the text that the machine reads, longest first. `only`: with loose pieces as their
        token, or as their characters, if they may be either."""
        found: dict[str, None] = {}
        for spelling in spellings:
            options = [self._options(piece, only) for piece in spelling]
            for choice in itertools.product(*options):
                found["".join(choice)] = None
            if char := self._chars.get(spelled(spelling)):
                found[char] = None
        return sorted(found, key=len, reverse=True)

    def _options(self, piece: Piece, only: str) -> list[str]:
        if isinstance(piece, str):
            return [piece]
        if isinstance(piece, Gap):
            return [GAPS[piece.kind]]
        char = self._chars.get(piece.text)
        if char is None or (piece.loose and only == "text"):
            return [suffixed(piece.text, suffix) for suffix in self.suffixes]
        loose = self.accept or (piece.loose and only == "")
        return [char, piece.text] if loose else [char]

    def token_of(self, char: str) -> int:
        """The id of a special token that is a character here."""
        return self._ids[char]

    def expand(self, text: str) -> str:
        """The raw output's characters."""
        if not self.spelling or text.isascii() or not _ANY_SPECIAL.search(text):
            return text
        return _ANY_SPECIAL.sub(self._spelled, text)

    def _spelled(self, match: re.Match[str]) -> str:
        return self.spelling.get(ord(match[0]), match[0])


_NO_TEXT = "".join(GAPS.values())
_APART = re.compile(f"[{SURROGATES}{_NO_TEXT}]")


def token_bytes(piece: str | bytes) -> bytes | None:
    """The bytes of a token, given as `Alphabet.piece`; `None`: it is a special token, whose text isn't made of bytes."""
    if isinstance(piece, bytes):
        return piece
    return None if len(piece) == 1 and FIRST <= ord(piece) <= LAST else piece.encode()


def plain_bytes(text: str) -> bytes | None:
    """A text of the alphabet as bytes, for comparison; `None` if part of it isn't fixed."""
    return None if any(char in _NO_TEXT for char in text) else text.encode("utf-8", "surrogatepass")


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
        literal = policy.call_in_reasoning == "literal"
        self.codecs: dict[State, Any] = {s: s.codec.compile(alphabet) for s in fmt.states if s.codec}
        found = {s: getattr(codec, "opening", None) for s, codec in self.codecs.items() if not self.ids}
        openings = {s: opening.pattern for s, opening in found.items() if opening is not None}
        self.rows: dict[State, Row] = {}
        for state in [*fmt.states, ENDED]:
            row = fmt.states.get(state, {})
            if literal and state.strand == "reasoning":
                row = {
                    m: target
                    for m, target in row.items()
                    if thinks(target) or target.strand not in ("tool_call", "markup")
                }
            entries = [*self._entries(row), *turns]
            if not self.ids and not (state.capture or state.otherwise):
                entries = [entry for entry in entries if entry[1].quoted != "outside"]
            self.rows[state] = Row(
                state, entries, self._trials(state, row), [text for text, _, _ in turns], openings, ids=self.ids
            )
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
        self.openers = tuple((text, m, target) for text, m, target in turns if target is not ENDED)
        self.opener_length = max((len(text) for text, _, _ in self.openers), default=0)
        self.reasons = fmt.reasons
        self._fences: set[int] = set()
        self._firsts: dict[int, list[tuple[str, State]]] | None = None
        self._completing: dict[str, tuple[int, ...]] = {}
        self._shared: dict[int, Any] | None = None
        self._opening: re.Pattern[str] | None = None
        self._beginnings = frozenset(
            (fmt.start.on, fmt.start.off, fmt.start.unknown, *(s.then for s in fmt.states if s.then))
        )
        self.fences = self._fences_of(turns)
        """Spellings that surely end a turn, in formats whose openers may stand in a call's string, where they're data."""

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

    def alphabet_ids(self, text: str) -> list[int]:
        """Ids that spell a text of the alphabet: its special tokens as themselves, the rest with ordinary ones."""
        alphabet = self.alphabet
        assert alphabet.vocabulary is not None
        ids: list[int] = []
        for run in re.split(f"([{SURROGATES}])", text):
            if len(run) == 1 and FIRST <= ord(run) <= LAST:
                ids.append(alphabet.token_of(run))
            elif run:
                ids += alphabet.vocabulary.encode(run, special=False)
        return ids

    def completing(self, text: str) -> tuple[int, ...]:
        """Ids of tokens that may complete this text of the alphabet: they begin with a last part of it, or hold it whole."""
        assert self.alphabet.vocabulary is not None
        found = self._completing.get(text)
        if found is None:
            last = _APART.split(text)[-1]
            if not last and FIRST <= ord(text[-1]) <= LAST:
                found = (self.alphabet.token_of(text[-1]),)
            else:
                data = last.encode()
                ends, whole = tuple(data[at:] for at in range(len(data))), last == text
                found = tuple(
                    id
                    for id, token in self.alphabet.vocabulary.tokens.items()
                    if token.startswith(ends) or (whole and data in token)
                )
            self._completing[text] = found
        return found

    def _fences_of(self, turns: list[tuple[str, Marker, State]]) -> tuple[str, ...]:
        ends = [(m, text) for text, m, target in turns if target is ENDED]
        soft = any(m.inside == "data" for _, m, _ in self.openers)
        return tuple(text for _, text in ends) if soft and all(m.inside == "ends" for m, _ in ends) else ()

    def last_opener(self, text: str) -> tuple[int, State] | None:
        """Where the last turn opener of a text ends, and the state to which it leads.

        Where openers may be data: the first one behind the last end of a turn.
        """
        last = max((text.rfind(spelling) for spelling, _, _ in self.openers), default=-1)
        if last < 0:
            return None
        fence = max((text.rfind(end, 0, last) for end in self.fences), default=last)
        found = [
            (at, at + len(s), target)
            for s, _, target in self.openers
            if (at := text.find(s, max(fence, 0), last + len(s))) >= 0
        ]
        at = min((at for at, _, _ in found), default=last)
        return next((stop, target) for start, stop, target in found if start == at)

    def tail(self, ids: Sequence[int] | str) -> tuple[int, State | None]:
        """Where the last turn begins in a prompt: the position behind the last marker that opens one, and where it leads.

        Looks from the end and no further than that marker (or than the end of the turn before it, where openers may be data).
        Without any: the beginning, and no state.
        """
        if isinstance(ids, str):
            return self.last_opener(ids) or (0, None)
        if self._firsts is None:
            self._firsts = {}
            for text, _, target in self.openers:
                if FIRST <= ord(text[0]) <= LAST:
                    self._firsts.setdefault(self.alphabet.token_of(text[0]), []).append((text, target))
            self._fences = {self.alphabet.token_of(text) for text in self.fences if FIRST <= ord(text[0]) <= LAST}
        firsts, fences = self._firsts, self._fences
        if sum(map(len, firsts.values())) < len(self.openers):
            return self._tail_by_text(ids)
        found: tuple[int, State | None] = (0, None)
        for at in range(len(ids) - 1, -1, -1):
            if ids[at] in firsts:
                for text, target in firsts[ids[at]]:
                    if stop := self._spelled_at(ids, at, text):
                        found = stop, target
                        break
            elif ids[at] not in fences:
                continue
            if found[1] is not None and (not fences or ids[at] in fences):
                break
        return found

    def deciding(self, prompt: Sequence[int] | str, at: int, target: State, most: int) -> Sequence[int] | str | None:
        """The end of a prompt that says alone where it leads, whatever stands before it: no more than `most` ids or characters.

        `at`, `target`: what `tail` said of the prompt. It begins with the last opener of a turn, or with the end of the turn before
        where openers may be data.
        """
        behind = len(prompt) - at
        for length in range(behind, min(most, len(prompt)) + 1):
            end = prompt[-length:] if length else prompt[:0]
            if self.tail(end) == (length - behind, target) and (not self.fences or self._begins_with_fence(end)):
                return end
        return None

    def _begins_with_fence(self, prompt: Sequence[int] | str) -> bool:
        text = prompt if isinstance(prompt, str) else self.alphabet.piece(prompt[0])
        return isinstance(text, str) and text.startswith(self.fences)

    def _spelled_at(self, ids: Sequence[int], at: int, text: str) -> int:
        """Behind which token the spelling ends that begins with the token at `at`; 0: it doesn't stand there."""
        found = ""
        for stop in range(at, min(len(ids), at + len(text))):
            piece = self.alphabet.piece(ids[stop])
            found += piece if isinstance(piece, str) else "\ufffd"
            if len(found) >= len(text):
                return stop + 1 if found.startswith(text) else 0
        return 0

    def _tail_by_text(self, ids: Sequence[int]) -> tuple[int, State | None]:
        """The same where an opener is spelled by several tokens."""
        pieces = [self.alphabet.piece(token) for token in ids]
        texts = [p if isinstance(p, str) else (p or b"").decode("utf-8", "replace") for p in pieces]
        found = self.last_opener("".join(texts))
        if not found:
            return 0, None
        length = 0
        for at, text in enumerate(texts):
            length += len(text)
            if length >= found[0]:
                return at + 1, found[1]
        return len(ids), found[1]
