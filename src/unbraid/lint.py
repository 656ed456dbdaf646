"""Doubts about a table: what `check` lets pass because it isn't contradictory, but is probably not meant.

Each finding says where, why it matters and what to do about it. The table alone is looked at here, and how a tokenizer
fits it; `unbraid.probes` holds it against a chat template.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal

from unbraid.table import ENDED, START, Format, Marker, Special, State, ends_of, spelled, thinks
from unbraid.vocabulary import Vocabulary

Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One doubt."""

    kind: str
    """Short and stable, for counting: `unreachable`, `prefix`, `split`, ..."""
    level: Level
    """`error`: output will be read wrongly. `warning`: it may be. `note`: worth knowing."""
    place: str
    """The state, marker or template line."""
    message: str
    why: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.level}: {self.place}: {self.message}\n  why: {self.why}\n  do:  {self.remedy}"


def lint(fmt: Format, vocabulary: Vocabulary | None = None) -> list[Finding]:
    """What can be said about a table by itself and, if there is one, with a tokenizer. Errors come first."""
    found = [*_unreachable(fmt), *_dead_ends(fmt), *_boundaries(fmt), *_ambiguous(fmt), *_prefixes(fmt)]
    if vocabulary is not None:
        found += _tokens(fmt, vocabulary)
    return ordered(found)


def ordered(found: Iterable[Finding]) -> list[Finding]:
    """Errors first, in the order in which they were found, each once."""
    levels = ("error", "warning", "note")
    return sorted(dict.fromkeys(found), key=lambda finding: levels.index(finding.level))


def besides(state: State) -> list[State]:
    """Where a state leads without a marker: whichever of its fields hold a state."""
    return [to for f in fields(State) if isinstance(to := getattr(state, f.name), State)]


# -- the table ---------------------------------------------------------------------------------------------------------


def reachable(fmt: Format) -> set[State]:
    """Every state in which an answer can come to be: from where it starts and from what opens or ends a turn."""
    starts = {fmt.start.on, fmt.start.off, fmt.start.unknown or fmt.start.on}
    seen: set[State] = set()
    todo = [*starts, ENDED, fmt.content, *(end for target in fmt.turns.values() for end in ends_of(target))]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        if state == START:
            continue
        todo += [end for target in fmt.states.get(state, {}).values() for end in ends_of(target)]
        todo += besides(state)
    return seen


def _unreachable(fmt: Format) -> Iterator[Finding]:
    seen = reachable(fmt)
    for state in fmt.states:
        if state not in seen:
            yield Finding(
                "unreachable", "warning", f"state {state}", "no way leads here from where an answer starts",
                "its row and its markers never count, so what they should catch is text",
                "add the marker that leads here to a row that is reached, or take the state out",
            )  # fmt: skip
    if fmt.reasons and not any(thinks(state) for state in seen):
        yield Finding(
            "unreachable", "error", "start", "the format knows reasoning, but no answer can come to it",
            "reasoning would be content", "let `start.on` or a marker lead to the reasoning state",
        )  # fmt: skip


def _dead_ends(fmt: Format) -> Iterator[Finding]:
    for state, row in fmt.states.items():
        ways = {end for target in row.values() for end in ends_of(target)} - {state}
        if ways or besides(state) or state.header or state is ENDED:
            continue
        if state.strand == "reasoning":
            kind, remedy = "reasoning never ends but with the turn", "add the marker that ends reasoning"
        elif state.strand == "markup":
            kind, remedy = "what comes after this is nobody's text until the turn ends", "say what leads out of it"
        elif state.codec and not row:
            kind, remedy = "nothing may follow a call's body", "add the marker that closes a call"
        else:
            continue
        yield Finding(
            "dead_end", "warning", f"state {state}", "only a turn's end leads out of it",
            kind, remedy,
        )  # fmt: skip


def _boundaries(fmt: Format) -> Iterator[Finding]:
    openers = [marker for marker, target in fmt.turns.items() if target is not ENDED]
    if not openers:
        yield Finding(
            "no_turn_opener", "error", "turns", "no marker opens a turn",
            "the scan of a prompt has nowhere to stop: an earlier turn, or an example of the format in the system "
            "prompt, decides where the answer starts",
            "add the marker behind which the answer is written (and those that open the other turns)",
        )  # fmt: skip
    for marker in fmt.turns:
        if not any(isinstance(piece, Special) for spelling in marker.spellings for piece in spelling):
            yield Finding(
                "text_boundary", "warning", f"turns, {marker}", "the boundary is spelled with ordinary tokens",
                "whoever writes these characters ends or opens a turn",
                "use the special token if the tokenizer has one",
            )  # fmt: skip


def _rows(fmt: Format) -> Iterator[tuple[str, list[tuple[str, Marker, State]]]]:
    """Every row as it counts, turns included: spelling, marker, target."""
    for state, row in fmt.states.items():
        own = {spelled(s) for marker in row for s in marker.spellings}
        entries = [(spelled(s), m, t) for m, t in row.items() for s in m.spellings]
        turns = [(spelled(s), m, t) for m, t in fmt.turns.items() for s in m.spellings if spelled(s) not in own]
        yield f"state {state}", [*entries, *turns]


def _ambiguous(fmt: Format) -> Iterator[Finding]:
    for place, entries in _rows(fmt):
        seen: dict[str, tuple[Marker, State]] = {}
        for spelling, marker, target in entries:
            other = seen.setdefault(spelling, (marker, target))
            if other[0] is not marker and other[1] != target:
                yield Finding(
                    "ambiguous", "error", f"{place}, {spelling}", f"leads to {other[1]} and to {target}",
                    "only one of the two can happen, and which is an accident of the order",
                    "keep one of them; if what follows decides, let one state read it",
                )  # fmt: skip


def _prefixes(fmt: Format) -> Iterator[Finding]:
    for place, entries in _rows(fmt):
        texts = sorted({(spelling, target) for spelling, _, target in entries if spelling}, key=lambda e: e[0])
        for at, (short, target) in enumerate(texts):
            for long, other in texts[at + 1 :]:
                if not long.startswith(short):
                    break
                if long != short and other != target:
                    yield Finding(
                        "prefix", "note", f"{place}, {short}", f"is the beginning of {long}, which leads to {other}",
                        f"in text the longer one wins, so {short} has to wait for what comes next",
                        "make sure that what follows the shorter one can't spell the longer one",
                    )  # fmt: skip


# -- the tokenizer -----------------------------------------------------------------------------------------------------


def _tokens(fmt: Format, vocabulary: Vocabulary) -> Iterator[Finding]:
    missing = [text for text in fmt.specials if text not in vocabulary.special]
    for text in missing:
        count = len(vocabulary.encode(text))
        single = count == 1
        yield Finding(
            "plain_token" if single else "split", "warning", text,
            "is one ordinary token of this tokenizer" if single else f"isn't a token here: it is spelled by {count}",
            "by ids the marker can't be told from the same characters in a text"
            + ("" if single else ", and it is held back until it is whole"),
            "use the tokenizer of the models that this format is for; if it is that one, say `text(...)` instead of "
            "`special(...)`, or add the spelling that the tokenizer has",
        )  # fmt: skip
    for text in fmt.specials:
        id = vocabulary.special.get(text)
        if id is not None and id not in vocabulary.control:
            yield Finding(
                "not_special", "note", text, "is a token of its own, but not flagged special",
                "engines that skip special tokens keep it in their text, and a tokenizer finds it in what users write",
                "nothing, if the models' tokenizer is like this",
            )  # fmt: skip
    yield from _boundary_tokens(fmt, vocabulary.special)


def _boundary_tokens(fmt: Format, special: Mapping[str, int]) -> Iterator[Finding]:
    for name, wanted in (("opens", False), ("ends", True)):
        spellings = [s for m, t in fmt.turns.items() if (t is ENDED) == wanted for s in m.spellings]
        texts = [spelled(s) for s in spellings]
        tokens = [piece.text for s in spellings for piece in s if isinstance(piece, Special)]
        if tokens and not any(text in special for text in (*texts, *tokens)):
            yield Finding(
                "no_boundary_token", "error", "turns",
                f"no marker that {name} a turn holds a token here: {', '.join(texts)}",
                "prompts of this tokenizer hold no turn boundary, so start and end of an answer can't be found by ids",
                "this is another family's tokenizer, or the table lacks its boundary",
            )  # fmt: skip
