"""A table made ready to run: for one tokenizer (or for text) and one policy, built once and shared by all parsers.

**The alphabet.** The machine reads text. A special token that counts as a marker is one character of that text, taken from the
surrogates: no decoded text can contain one, so a marker written as its token and the same characters written with ordinary
tokens can't be mistaken for each other, and one scanner serves both. Fed text only, markers are their spelling.

**Rows.** For each state: where a marker could begin, which markers are live, which white space they own, and which tokens are
plain here: a token is plain if nothing in it can begin a marker or be owned by one. For those the machine does next to nothing.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from unbraid.policy import Policy
from unbraid.table import ANY, CONTENT, ENDED, Format, Marker, Special, Spelling, State, spelled

if TYPE_CHECKING:
    from unbraid.vocabulary import Vocabulary

SURROGATES = "\ud800-\udfff"
FIRST, LAST = 0xD800, 0xDFFF


class Alphabet:
    """Special tokens as characters, and back."""

    def __init__(self, fmt: Format, vocabulary: Vocabulary | None, policy: Policy) -> None:
        self.vocabulary = vocabulary
        self.accept = policy.spelled_markers == "accept"
        self.spelling: dict[int, str] = {}
        """Code point -> the token's characters; for `str.translate`."""
        self.pieces: dict[int, str] = {}
        """Token id -> its text, for tokens that are whole characters. Filled as tokens are met."""
        self._chars: dict[str, str] = {}
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
        self._plain = set(fmt.visible) | (policy.keep_special_tokens - declared)
        self._texts = tuple({p for m in fmt.markers for s in m.spellings for p in s if isinstance(p, str)})

    def _add(self, token: int, text: str) -> str:
        code = FIRST + len(self.spelling)
        if code > LAST:  # more special tokens than there are characters for them: the rest is ordinary text
            self.pieces[token] = text
            return text
        self.spelling[code] = text
        self.pieces[token] = chr(code)
        return chr(code)

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

    def _options(self, piece: str | Special, only: str) -> list[str]:
        if isinstance(piece, str):
            return [piece]
        char = self._chars.get(piece.text)
        if char is None or (piece.loose and only == "text"):
            return [piece.text]
        loose = self.accept or (piece.loose and only == "")
        return [char, piece.text] if loose else [char]

    def token_of(self, char: str) -> int:
        """The id of a special token that is a character here."""
        return next(token for token, piece in self.pieces.items() if piece == char)

    def expand(self, text: str) -> str:
        """The raw output's characters."""
        return text.translate(self.spelling)


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


class Row:
    """One state, ready to run."""

    __slots__ = ("any_before", "befores", "first", "live", "longest", "match", "plain", "prefixes", "state", "targets")

    def __init__(self, state: State, entries: list[tuple[str, Marker, State]]) -> None:
        self.state = state
        entries = sorted(entries, key=lambda entry: len(entry[0]), reverse=True)
        self.targets = [(marker, target) for _, marker, target in entries]
        self.live = [text for text, _, _ in entries]
        firsts = "".join(re.escape(c) for c in sorted({text[0] for text in self.live} - {chr(c) for c in range(FIRST, LAST + 1)}))
        self.first = re.compile(f"[{firsts}{SURROGATES}]")
        self.match = re.compile("|".join(f"({re.escape(text)})" for text in self.live) or r"(?!)")
        self.prefixes = frozenset(text[:k] for text in self.live for k in range(1, len(text)))
        self.longest = max(map(len, self.live), default=0)
        befores = {marker.before for marker, _ in self.targets if marker.before}
        self.any_before = ANY in befores
        self.befores = sorted(befores - {ANY}, key=len, reverse=True)
        self.plain: dict[int, str] = {}
        """Tokens that are plain here; filled by the machine as they are met."""

    def held_from(self, text: str, start: int, stop: int) -> int:
        """Where the white space at the end of `text[start:stop]` begins that a live marker could own."""
        if self.any_before:
            return owned_before(text, stop, start, ANY)
        return min((owned_before(text, stop, start, rule) for rule in self.befores), default=stop)

    def is_plain(self, text: str) -> bool:
        """Whether nothing in this text can begin a live marker or be owned by one."""
        return bool(text) and not self.first.search(text) and self.held_from(text, 0, len(text)) == len(text)


class Program:
    """A format compiled for a tokenizer (`None`: for text) and a policy."""

    def __init__(self, fmt: Format, vocabulary: Vocabulary | None, policy: Policy) -> None:
        self.format = fmt
        self.policy = policy
        self.alphabet = alphabet = Alphabet(fmt, vocabulary, policy)
        self.ids = vocabulary is not None
        self.keep = policy.keep_special_tokens
        turns = list(self._entries(fmt.turns))
        self.enders = frozenset(text for text, m, _ in turns if m.inside == "ends" and len(text) == 1 and FIRST <= ord(text) <= LAST)
        literal = policy.call_in_reasoning == "literal"
        self.rows: dict[State, Row] = {}
        for state in [*fmt.states, ENDED]:
            row = fmt.states.get(state, {})
            if literal and state.strand == "reasoning":
                row = {marker: target for marker, target in row.items() if target.strand not in ("tool_call", "markup")}
            self.rows[state] = Row(state, [*self._entries(row), *turns])
        self.rows.setdefault(CONTENT, self.rows[fmt.content])  # where ENDED leads
        self.codecs: dict[State, Any] = {s: s.codec.compile(alphabet) for s in fmt.states if s.codec}
        self.ender = re.compile(f"[{''.join(sorted(self.enders))}]") if self.enders else None
        self.openers = tuple((text, m, target) for text, m, target in turns if target is not ENDED)
        self.reasons = fmt.reasons
        self._whole_openers: dict[int, State] | None = None

    @functools.cached_property
    def shared(self) -> dict[int, Any]:
        """All that is reachable from the table and its compiled codecs, by `id`: what no copy of a machine needs a copy of."""
        found: dict[int, Any] = {id(self): self}
        waiting: list[Any] = [self.format, self.rows, self.codecs, self.alphabet]
        while waiting:
            value = waiting.pop()
            if id(value) in found or isinstance(value, (str, int, bytes, type(None), re.Pattern)):
                continue
            if value is self.alphabet.vocabulary:
                pass
            elif isinstance(value, Mapping):
                waiting += [*value.keys(), *value.values()]
            elif isinstance(value, (list, tuple, set, frozenset)):
                waiting += value
            elif type(value).__module__.startswith("unbraid."):
                names = [name for base in type(value).__mro__ for name in getattr(base, "__slots__", ())]
                waiting += [getattr(value, name) for name in [*names, *getattr(value, "__dict__", ())] if hasattr(value, name)]
            else:
                continue
            found[id(value)] = value
        return found

    def _entries(self, row: Any) -> Iterator[tuple[str, Marker, State]]:
        for marker, target in row.items():
            for text in self.alphabet.spell(marker.spellings):
                yield text, marker, target

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

    def last_opener(self, text: str) -> tuple[int, State] | None:
        """Where the last turn opener of a text ends, and the state to which it leads."""
        best: tuple[int, int, Marker, State] | None = None
        for spelling, marker, target in self.openers:
            at = text.rfind(spelling)
            if at >= 0 and (best is None or at > best[0]):
                best = (at, at + len(spelling), marker, target)
        return best and (best[1], best[3])

    def tail(self, ids: Sequence[int]) -> tuple[int, State | None]:
        """Where the last turn begins in a prompt: the position behind the last marker that opens one, and where it leads.

        Looks from the end and no further than that marker. Without any: the beginning, and no state.
        """
        if self._whole_openers is None:
            self._whole_openers = {}
            for text, _, target in self.openers:
                if len(text) == 1 and FIRST <= ord(text) <= LAST:
                    self._whole_openers[self.alphabet.token_of(text)] = target
        whole = self._whole_openers
        if len(whole) == len(self.openers):
            for at in range(len(ids) - 1, -1, -1):
                if ids[at] in whole:
                    return at + 1, whole[ids[at]]
            return 0, None
        return self._tail_by_text(ids)

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
