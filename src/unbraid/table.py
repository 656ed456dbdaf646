"""The words in which a format is described.

A format is data: one `Format` with its markers, its states and, for every state, a row `marker -> next state`. Nothing here
runs; the machine (`unbraid.machine`) reads a table and so does every projection. A format that needs code needs a new word here
instead.

**States and strands.** A state says what the text in it *is*: its strand. Events aren't listed, they follow: leaving a
reasoning state ends reasoning, whichever marker did it.

**White space.** A marker owns the white space that the format puts around it (`before`, `after`): `"\\n"` is at most one
newline, `"\\n\\n"` at most two, `ANY` a whole run. What is left is exactly the value. Fewer than the marker owns may be
present; more stay part of the value.

**Calls.** A state with a codec is a call: the codec reads the body and knows its end by itself; the row lists the markers that
may follow a body (the closer, the next call). Markers inside a body are data.

**Headers.** A message may begin with a header whose words choose what follows (`analysis`, `to=functions.move`). A state with
`capture` holds its text until a marker comes: one that leads to a further part of the header, or the one that ends it, whose row
entry leads to a state or to a `junction`: the first of its routes that the header fits. Text that never meets its marker was
no header: it is content. In a header a word `to=NAME` is the recipient.

**Calls without a marker.** `UNMARKED` in a row stands for the call that may begin right where the state does, with nothing before it
but white space; `unmarked(";")` for one that begins with a separator. Such text is read on trial: if it proves to be no call, it is
text of the state as if nobody had tried.

**Turns.** `turns` lists the markers that bound a turn and where each leads. They count in every state. A scan of the prompt goes
back to the last one that opens a turn and no further; `ENDED` is where a turn's end leads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from unbraid.errors import TableError
from unbraid.events import Strand

if TYPE_CHECKING:
    from unbraid.boundary import BoundFormat
    from unbraid.codecs.base import Codec
    from unbraid.vocabulary import Vocabulary

ANY = "*"
"""White space owned by a marker: the whole run, however long."""


@dataclass(frozen=True, slots=True)
class Special:
    """A piece of a marker that is one token of the tokenizer. Where a tokenizer lacks it, it is spelled by ordinary tokens."""

    text: str
    loose: bool = False
    """Spelled with ordinary tokens it counts as well. A call opened that way is closed that way."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A piece of a marker that isn't fixed. `word`: a run of characters without white space and `<`."""

    kind: Literal["word"] = "word"

    @property
    def text(self) -> str:
        """Nothing of it is known."""
        return ""


WORD = Gap("word")
Piece = str | Special | Gap
Spelling = tuple[Piece, ...]


def spelled(spelling: Spelling) -> str:
    """The characters of a spelling, whatever its tokens."""
    return "".join(piece if isinstance(piece, str) else piece.text for piece in spelling)


@dataclass(frozen=True, slots=True)
class Marker:
    """A delimiter of the format, with the white space that belongs to it."""

    spellings: tuple[Spelling, ...]
    before: str = ""
    after: str = ""
    peek: bool = False
    """The marker announces what the next state reads by itself: it isn't consumed (`<function=` of a call without wrapper)."""
    inside: Literal["data", "ends"] = "data"
    """What the marker's token does inside a string or value of a call's body: it is data there, or it ends the body."""
    shown: bool = False
    """The marker is part of the text: it changes the state and stays visible."""
    lead: str | None = None
    """The white space that the template writes before it, where `before` doesn't say it exactly."""
    trail: str | None = None
    """The same behind it."""
    first: bool = False
    """It counts only as the very first thing of its state, not even white space before it: a label."""
    whole: bool = False
    """It counts only if nothing but its own white space, another marker or the end follows: `thought` is one, `thoughtful` isn't."""
    inline: bool = False
    """It says something about the text around it (a citation): the text goes on as if the marker weren't there."""
    body: str = ""
    """Characters of which any number may follow the spelling, up to `end`: `</co: 0:[1,2]>`."""
    end: str = ""
    """The character that ends such a marker."""
    control: bool = False
    """It opens a call but is a control token: if what follows is no call, it's nobody's text."""
    note: str = ""
    """A diagnostic's kind, where the marker isn't what the format wants."""
    quoted: Literal["anywhere", "closing", "outside"] = "anywhere"
    """Where the marker counts if only its spelling tells it from text (text mode), so that a body may quote it. `closing`: only
    where a marker that opens a turn, or the end of the output, follows directly. `outside`: only in headers and between messages."""
    trial: Literal["", "proven", "closed", "alone"] = ""
    """No marker, but the place where a call may begin without one, behind one of the spellings if there are any. The text is read on
    trial; it's a call once its syntax has proven it, once its closing marker has come, or once the turn has ended and held
    nothing else."""
    order: int = 0
    """Trials at the same place are made in this order."""

    @property
    def text(self) -> str:
        """The first spelling, for people."""
        return spelled(self.spellings[0]) if self.spellings else ""

    @property
    def written(self) -> Spelling:
        """The marker as the template writes it, white space included; nothing but that if it's only announced."""
        before = self.lead if self.lead is not None else "" if self.before == ANY else self.before
        after = self.trail if self.trail is not None else "" if self.after == ANY else self.after
        return (before,) if self.peek else (before, *(self.spellings[0] if self.spellings else ()), after)

    def __str__(self) -> str:
        return self.text or "(no marker)"

    def __hash__(self) -> int:
        """Of all that a marker is made of, these are enough, and cheap: each one that is met is looked up."""
        return hash((self.spellings[:1], self.before, self.after))


def special(*texts: str, **words: Any) -> Marker:
    """A marker that is one special token. More than one text: other spellings of the same marker."""
    return Marker(tuple((Special(text),) for text in texts), **words)


def text(*texts: str, **words: Any) -> Marker:
    """A marker spelled with ordinary tokens."""
    return Marker(tuple((text,) for text in texts), **words)


def label(text: str, **words: Any) -> Marker:
    """A word that counts only at the very beginning of its state."""
    return Marker(((text,),), first=True, **words)


def inline(text: str, *, body: str = "", end: str = "") -> Marker:
    """Markup within a text, spelled with ordinary tokens: it is taken out and the text goes on."""
    return Marker(((text,),), inline=True, body=body, end=end)


def sequence(*spellings: Spelling, **words: Any) -> Marker:
    """A marker made of several pieces, some of them special tokens."""
    return Marker(spellings, **words)


def turn(*texts: str, **words: Any) -> Marker:
    """A special token that bounds a turn: it ends whatever is open, inside a string or value of a call too."""
    return Marker(tuple((Special(text),) for text in texts), inside="ends", **words)


def unmarked(*separators: str, trial: Literal["proven", "closed", "alone"] = "proven", order: int = 0) -> Marker:
    """The call that may begin where the state begins, behind one of these separators."""
    return Marker(tuple((text,) for text in separators), trial=trial, order=order)


UNMARKED = unmarked()


OFFERED = "?"
"""As a route's recipient: any that equals the name of an offered tool."""


@dataclass(frozen=True, slots=True)
class Route:
    """One way out of a header: it leads to `state` if all that is said here fits. What isn't said fits anything.

    A pattern is the text itself, or ends in `*`, which stands for any more characters (at least one). Where `to` has one (or is
    `OFFERED`), what it stands for is the name of the call.
    """

    state: State
    to: str = ""
    channel: str = ""
    words: str = ""
    """The header's first part, without its recipient."""


Part = Literal["role", "head", "channel", "type"]
"""A part of a header. `role`: the first part, its first word is the turn's role; `head`: the first part where the role stands
already in the prompt or the format writes none; `channel`: its first word is the channel; `type`: of the body that follows."""


@dataclass(frozen=True, slots=True)
class State:
    """Where in the turn the machine stands."""

    name: str
    strand: Strand
    blank: Literal["keep", "segment", "message"] = "keep"
    """White space that stands alone: `keep` it as text; `segment`: it is markup if nothing else stands between two markers;
    `message`: it is markup as long as the message has no other content."""
    otherwise: State | None = None
    """Where the first text leads that isn't white space and no marker: for states that only wait for a marker."""
    undecided: bool = False
    """Reasoning may still begin or go on here although the strand isn't reasoning."""
    codec: Codec | None = None
    """How the body of a call is written. Only for the strand `tool_call`."""
    header: bool = False
    """Text here is the head of a turn (a role name): markup."""
    then: State | None = None
    """Of a call: where the end of its body leads, in formats that write nothing behind it."""
    unfinished: Literal["malformed", "incomplete"] = "malformed"
    """Of a call: what it is if the turn ends normally inside its body. Some models stop before they close it, as if cut off."""
    refused: State | None = None
    """Of a call, read as text: where the machine stands if it turns out that the opener was only mentioned."""
    spaced: bool = False
    """The tokenizer is SentencePiece's and a control token came before: the first blank of the text is its, and shows only by ids."""
    prepend: str = ""
    """Said before the first text of an answer that starts here: what the prompt wrote and the reader should see."""
    capture: Part | None = None
    """Text here is held: it is this part of a header. `otherwise` says where text leads that is too long for a header."""
    cut: Literal["markup", "name"] = "markup"
    """What an unfinished header is if the output is cut off: `markup`; `name`: markup if it begins an offered tool's name, else content."""
    routes: tuple[Route, ...] = ()
    """Not a state but a junction: the header chooses."""
    odd: str = ""
    """Coming here is worth a diagnostic of this kind, and text that is nobody's needs no other."""

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        """Of all that a state is made of, these two are enough, and cheap: rows are looked up by state all the time."""
        return hash((self.name, self.strand))


REASONING = State("reasoning", "reasoning")
CONTENT = State("content", "content", blank="segment")
VERBATIM = State("content", "content")
"""Content of a format in which white space alone is content too."""
SECTION = State("section", "markup")
"""Between the calls of a section: text here is noise."""
WAITING = State("waiting", "content", otherwise=CONTENT, undecided=True)
"""Thinking is on but nothing has said so yet: the first thing that isn't white space decides."""
START = State("start", "markup")
"""Stands in a row for the state in which an answer starts: the format's `start` decides."""
ROLE = State("role", "markup", header=True)
"""After a turn's opener: its role name."""
ENDED = State("ended", "control", otherwise=CONTENT)
"""After the turn's end. Text here has no home: it is content."""


def calling(codec: Codec, name: str = "calling", **words: Any) -> State:
    """The state of a call whose body `codec` reads."""
    return State(name, "tool_call", codec=codec, **words)


def usual(
    think: tuple[Marker, Marker] | None,
    call: tuple[Marker, Marker],
    body: State,
    *,
    announced: Marker | None = None,
    waits: bool = False,
) -> dict[State, dict[Marker, State]]:
    """The rows of the plainest and most frequent kind of format: thoughts (`None`: there are none) and calls stand between two markers each.

    A call may begin inside a thought, which it ends: models do that. `body`: the state of a call. `announced`: with what a body begins that
    lacks its opener. `waits`: the model opens its thought itself, so that there is a place in which that isn't decided yet.
    """
    opens = {**({think[0]: REASONING, think[1]: CONTENT} if think else {}), call[0]: body}
    bare = {} if announced is None else {announced: body}
    return {
        **({REASONING: opens} if think else {}),
        CONTENT: {**opens, **bare, call[1]: CONTENT},
        **({WAITING: {**opens, **bare}} if waits else {}),
        body: {call[1]: CONTENT, call[0]: body, **bare},
        ROLE: {},
        ENDED: {},
    }


def junction(*routes: Route) -> State:
    """Stands in a row for the state that the header chooses: the first route that fits."""
    return State("junction", "markup", routes=routes)


@dataclass(frozen=True, slots=True)
class Start:
    """The state in which an answer starts when no marker in the prompt says so."""

    on: State = CONTENT
    """Thinking is on and the prompt's tail is unmarked."""
    off: State = CONTENT
    """Thinking is off."""
    unknown: State | None = None
    """Thinking is on and no prompt is known; `None`: as `on`."""


@dataclass(frozen=True, slots=True)
class Thinking:
    """The thinking switch of the family's chat template."""

    keywords: tuple[str, ...] = ("enable_thinking",)
    """Names under which the template knows it; the first is its own. Empty: there is no switch."""
    default: bool = True


@dataclass(frozen=True, slots=True)
class CallIds:
    """A format's convention for call ids, as a pattern: `{name}` and `{index}` are filled in, a run of `?` is that many random
    letters and digits. `written`: the model writes the id itself, the pattern only serves where it didn't."""

    pattern: str = "call_" + "?" * 24
    written: bool = False


@dataclass(frozen=True, slots=True)
class Frame:
    """How a whole message with a header is written: what stands before its body and behind it. `{name}` in the opening is the call's
    name."""

    state: State
    """Where its header leads."""
    opening: Spelling
    closing: Spelling

    def opened(self, name: str = "") -> Spelling:
        """The opening with the name filled in."""
        return tuple(piece.replace("{name}", name) if isinstance(piece, str) else piece for piece in self.opening)


NO_THINKING = Thinking((), False)
Transitions = Mapping[Marker, State]
"""One state's row: the markers that count in it, and where each leads."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Format:
    """How one model family writes a turn. Compared by identity: derive variants with `replace()`."""

    name: str
    about: str
    """One line for people: which models, what they write."""
    states: Mapping[State, Transitions]
    turns: Transitions
    start: Start = Start()
    thinking: Thinking = NO_THINKING
    ids: CallIds = CallIds()
    aliases: tuple[str, ...] = ()
    """Names under which vLLM and SGLang know it."""
    models: tuple[str, ...] = ()
    """Globs over model ids (`Qwen/Qwen3-*`), matched without regard to case; the most specific glob of all formats wins."""
    suffixes: tuple[str, ...] = ()
    """What the tokenizer may put into every special token before its closing bracket (`:opensource`; `""`: nothing): known examples,
    by which text is read. In a vocabulary any suffix of that kind is found."""
    visible: tuple[str, ...] = ()
    """Special tokens that are part of the text: neither markup nor hidden. An end of turn listed here ends the turn and is shown."""
    frames: tuple[Frame, ...] = ()
    """For formats whose messages have headers: how a message of each kind is written."""
    next_message: Spelling = ()
    """What stands between two such messages."""
    join: str = ""
    """Put between two messages of the same strand when they're folded into one field; it stands in no span."""
    answer: str = ""
    """What leads from reasoning to the answer where that takes more than one marker. For a thinking budget."""
    _cache: dict[Any, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check(self)

    def replace(self, **changes: Any) -> Format:
        """A variant: this table with some entries changed."""
        return replace(self, _cache={}, **changes)

    def __copy__(self) -> Format:
        return self

    def __deepcopy__(self, memo: object) -> Format:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """By name, or as JSON: a state that stands for another (`START`) is one by identity, and what is compiled isn't sent along."""
        from unbraid.formats import FORMATS, get_format  # both stand on this module
        from unbraid.serialize import from_json, to_json

        return (get_format, (self.name,)) if FORMATS.get(self.name) is self else (from_json, (to_json(self),))

    def bind(self, vocabulary: Vocabulary) -> BoundFormat:
        """Join the format to a tokenizer: its markers become ids."""
        from unbraid.boundary import BoundFormat
        from unbraid.suffix import find_suffix, with_suffix

        fmt = with_suffix(self, find_suffix(self, vocabulary.special)) if self.suffixes else self
        return BoundFormat(fmt, vocabulary)

    @property
    def markers(self) -> tuple[Marker, ...]:
        """Every marker of the table, turn boundaries included, each once."""
        rows = [*self.states.values(), self.turns]
        return tuple(dict.fromkeys(marker for row in rows for marker in row if not marker.trial))

    @property
    def specials(self) -> tuple[str, ...]:
        """Spellings of all special tokens that the table names, those inside call bodies included."""
        found = [p.text for m in self.markers for s in m.spellings for p in s if isinstance(p, Special)]
        for state in self.states:
            if state.codec:
                found += [p.text for s in state.codec.spellings() for p in s if isinstance(p, Special)]
        return tuple(dict.fromkeys(found))

    @property
    def content(self) -> State:
        """The state in which plain content stands: where text goes that has no other home."""
        return next(s for s in self.states if s.strand == "content" and not (s.otherwise or s.undecided))

    @property
    def reasons(self) -> bool:
        """Whether the format knows reasoning at all."""
        return any(thinks(state) for state in self.states)

    @property
    def calls(self) -> bool:
        """Whether the format knows tool calls."""
        return any(state.codec for state in self.states)

    def starts(self, thinking: bool | None, *, prompted: bool) -> State:
        """The state in which an answer starts if no marker decides."""
        if not (self.thinking.default if thinking is None else thinking):
            return self.start.off
        return self.start.on if prompted else self.start.unknown or self.start.on

    def __repr__(self) -> str:
        return f"<Format {self.name}>"


def ends_of(target: State) -> tuple[State, ...]:
    """The states to which an entry of a row may lead: more than one where a header chooses."""
    return tuple(route.state for route in target.routes) or (target,)


def thinks(state: State) -> bool:
    """Whether reasoning isn't over in this state."""
    return state.strand == "reasoning" or state.undecided


def check(fmt: Format) -> None:
    """Refuse a table that contradicts itself: the place and the remedy are in the error."""
    if not fmt.turns or not any(target is ENDED for target in fmt.turns.values()):
        raise TableError(fmt.name, "no marker of `turns` leads to ENDED: say how a turn ends")
    if not any(s.strand == "content" and not (s.otherwise or s.undecided) for s in fmt.states):
        raise TableError(fmt.name, "no state has the strand content: text without a home has nowhere to go")
    for state, row in fmt.states.items():
        _check_row(fmt, state, row)
        _check_state(fmt, state)
    _check_row(fmt, State("turns", "control"), fmt.turns)
    for name, start in (("on", fmt.start.on), ("off", fmt.start.off), ("unknown", fmt.start.unknown)):
        if start is not None and start not in fmt.states:
            raise TableError(fmt.name, f"start.{name} is {start}, which has no row in `states`")
    _check_reached(fmt)


def _check_row(fmt: Format, state: State, row: Transitions) -> None:
    for marker, target in row.items():
        for end in ends_of(target):
            if end not in fmt.states and end not in (START, ENDED):
                raise TableError(fmt.name, f"{marker} leads to {end}, which has no row in `states`", state=state.name)
        if not all(spelled(s) for s in marker.spellings) or not (marker.spellings or marker.trial):
            raise TableError(fmt.name, "a marker without characters", state=state.name)
        if marker.inline and target is not state:
            raise TableError(fmt.name, f"{marker} is inline but leads elsewhere, to {target}", state=state.name)
        if marker.trial and (state.strand != "content" or target.codec is None):
            raise TableError(fmt.name, "a trial leads from content to a call", state=state.name)


def _check_state(fmt: Format, state: State) -> None:
    if state.otherwise and state.otherwise not in fmt.states and state is not ENDED:
        raise TableError(fmt.name, f"`otherwise` leads to {state.otherwise}, which has no row", state=state.name)
    if state.then and state.then not in fmt.states:
        raise TableError(fmt.name, f"`then` leads to {state.then}, which has no row", state=state.name)
    if (state.codec is not None) != (state.strand == "tool_call"):
        raise TableError(fmt.name, "a state is a call if and only if it has a codec", state=state.name)
    if state.capture and (state.strand != "markup" or not state.otherwise):
        said = "a header is markup and needs `otherwise`: where text leads that is no header"
        raise TableError(fmt.name, said, state=state.name)


def _check_reached(fmt: Format) -> None:
    """Something must lead to every state. (Whether an answer can come that far is for the lint to doubt.)"""
    reached = {fmt.start.on, fmt.start.off, fmt.start.unknown, ENDED, CONTENT}
    reached |= {end for row in [*fmt.states.values(), fmt.turns] for target in row.values() for end in ends_of(target)}
    reached |= {state.otherwise for state in fmt.states} | {state.then for state in fmt.states}
    for state in fmt.states:
        if state not in reached:
            raise TableError(fmt.name, "nothing leads here", state=state.name)
