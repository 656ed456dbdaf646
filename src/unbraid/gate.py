"""The gate: while the model reasons no grammar touches it; from the token that ends its reasoning on, the grammar rules.

A grammar matcher (`Matcher`: adapters in `unbraid.matchers`) knows nothing of reasoning. The gate runs the machine over prompt and
output, as the parser does, and feeds the matcher exactly the tokens of the answer. It is bookkeeping on one journal of ids: every
question is answered from the machine behind the journal's last id, so several tokens at a time, drafts, and rollback over the
boundary can't differ from one token at a time.

**What is the answer.** Ended by the format's own marker (`</think>`), reasoning owns that marker: the answer begins behind it. Ended
by what belongs to the answer (a call's or section's opener, the first text where the machine only waited for reasoning), the answer
begins with that, also when it began some tokens earlier. A token that holds the end of a spelled-out marker and the answer's first
characters can't be given to the matcher; what it spells behind the marker is.

**Modes.** `free`: before the end everything is allowed but what would begin an answer that the grammar refuses (an opener, where
the grammar wants no call; text, while reasoning may still begin): let through, it would leave the grammar with nothing to allow.
`strict`: what may not occur in reasoning is masked too: special tokens of the format that lead nowhere from here, turn boundaries,
`stop_ids`. `framed`: the grammar owns the whole turn, reasoning included.

**Reasoning may begin again** where the table allows it, as long as the matcher has seen nothing: then it waits once more. Once it
has seen a token the grammar rules to the end, and whether a `<think>` may come is for the grammar to say. Masks never invite a second thought:
`fill` and `validate` speak for the grammar, `advance` takes what has come.

**The budget** counts tokens of reasoning, over all thoughts of the turn. When it is spent, only the next id of the format's end of reasoning is
allowed, until reasoning is over. It never fires where reasoning is over: not inside a call that ended it.

**A thought that is owed** (`must_think`) is the budget's counterpart: until something that isn't white space has been said of it, what would
end the thought is masked (its marker, also if spelled, what ends it without one, the turn's end), and where none is open yet, all but
what opens one. The prompt comes first (where it has ended reasoning nothing is owed), then the budget (a spent one ends the thought all
the same). Framed, the grammar has to ask for the thought (`build(..., must_think=True)`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self

from unbraid.alphabet import plain_bytes
from unbraid.bitmask import allow, forbid, has, paint, row_of
from unbraid.events import Event
from unbraid.machine import Machine
from unbraid.parser import Parser
from unbraid.policy import DEFAULT_POLICY, Policy
from unbraid.reasoning_end import HeldBack, begins_answer
from unbraid.schema import Tools
from unbraid.search import FIRST, LAST
from unbraid.table import ENDED, State, ends_of, spelled, thinks

if TYPE_CHECKING:
    from unbraid.boundary import BoundFormat

Mode = Literal["free", "strict", "framed"]

CHECKPOINT = 64
"""Tokens between two copies of the machine: a rollback reads again at most so many."""
KEPT = 16
"""Copies kept; beyond, every other one is dropped, and a rollback that far back reads more again."""


class Matcher(Protocol):
    """A grammar's state, in whatever backend. Masks are rows of 32-bit words, one bit per id, lowest first."""

    def accept(self, id: int) -> bool:
        """Take one token. `False`: the grammar doesn't allow it, and the matcher stands where it stood."""

    def fill(self, mask: Any, row: int = 0) -> None:
        """Write which ids may come next."""

    def validate(self, ids: Sequence[int]) -> int:
        """How many of these ids could be taken one after the other. Changes nothing."""

    def rollback(self, n: int) -> None:
        """Take back the last `n` tokens."""

    def fork(self) -> Self:
        """A matcher that stands where this one stands."""

    @property
    def terminated(self) -> bool:
        """The grammar is at its end and an end-of-turn token was taken, or nothing else could be."""


@dataclass(frozen=True, slots=True)
class Advance:
    """What came of the tokens given to `Gate.advance`."""

    accepted: int
    """How many were taken. Fewer than given: the grammar refuses the next one, and neither it nor any after it counts."""
    ended: int | None = None
    """Which of them decided that reasoning is over (the last one that did); `None`: none of these."""
    answer: bool = False
    """Whether the deciding token is part of the answer, so that the matcher has seen it."""


class _Stage(NamedTuple):
    """What holds from a length of the journal on, until the next one."""

    at: int
    start: int | None
    """The matcher holds `head` and the ids from here on. `None`: it holds nothing."""
    head: tuple[int, ...]
    """Spells what the deciding token held of the answer besides the end of a spelled-out marker."""
    decided: bool
    """The answer has begun."""


class Gate:
    """Decides, for one output, which ids may come next.

    `prompt`: its ids. `matcher`: the grammar; `None`: only modes and budget restrict. `reasoning`: whether thinking is on, `None` for
    the format's default; it decides only where the prompt doesn't. `budget`: how many tokens of reasoning there may be.
    `must_think`: there must be some that isn't blank; raises `ValueError` beside a budget that leaves no room for it.
    `stop_ids`: ids besides the format's own at which the engine stops.
    """

    def __init__(
        self,
        bound: BoundFormat,
        prompt: Sequence[int] | None = None,
        matcher: Matcher | None = None,
        *,
        reasoning: bool | None = None,
        mode: Mode = "free",
        budget: int | None = None,
        must_think: bool = False,
        tools: Sequence[Mapping[str, Any]] | Tools | None = None,
        policy: Policy = DEFAULT_POLICY,
        stop_ids: Collection[int] = (),
    ) -> None:
        if must_think and budget is not None and budget < 1:
            raise ValueError(f"must_think: a thought doesn't fit into a budget of {budget}; leave one of them out")
        self.bound = bound
        self.mode: Mode = mode
        self.budget = budget
        self.stop_ids = frozenset(stop_ids)
        self._matcher = matcher
        self._must_think = must_think and not (mode == "framed" and matcher is not None)
        self._thought: int | None = None
        """Length of the journal when the first of a thought had been said that isn't blank."""
        # When a call is delivered is no matter here, and keeping it back costs.
        policy = replace(policy, calls="incremental")
        self._program = bound.program(policy)
        self._end_ids = bound.reasoning_end_ids if budget is not None else ()
        self._ids: list[int] = []
        self._machine: Machine = Parser(bound, tools=tools, prompt=prompt, thinking=reasoning, policy=policy)
        self._read = 0
        """How many ids of the journal the machine has read: once the grammar rules it only reads on when asked."""
        self._run = 0
        """How many of the last ids it read left it as it was, but for its counters."""
        self._spent = 0
        """Tokens of reasoning that it has said."""
        self._copies: list[tuple[int, Machine, int]] = [(0, self._machine.fork(), 0)]
        self._banned: dict[State, tuple[int, ...]] = {}
        self._leaving: dict[State, _Leaving] = {}
        self._invited: dict[tuple[State, bool], tuple[tuple[int, ...], ...]] = {}
        self._held: tuple[int | None, tuple[int, ...]]
        """What the matcher holds: `start` and `head`, as `_Stage` has them."""
        self._held_stop = 0
        start = 0 if mode == "framed" or self._over or self._waits else None
        self._held = (start, ())
        self._stages = [_Stage(0, start, (), self._over)]

    # What comes in

    def advance(self, ids: Iterable[int]) -> Advance:
        """Take tokens that were sampled or accepted, as many as there are."""
        count, ended, answer = 0, None, False
        for id in ids:
            decided = self._stages[-1].decided
            if not self._take(id):
                break
            stage = self._stages[-1]
            if stage.decided and not decided:
                ended = count
                answer = stage.start is not None and (stage.start < stage.at or bool(stage.head))
            count += 1
        return Advance(count, ended, answer)

    def validate(self, draft: Sequence[int]) -> int:
        """How many ids of a draft may come, one after the other, from here on. Changes nothing."""
        stage = self._stages[-1]
        if (
            self._matcher is not None
            and self.budget is None
            and (self.mode == "framed" or (stage.decided and self._begun))
        ):
            return self._matcher.validate(draft)
        length = len(self._ids)
        for id in draft:
            if not self.allows(id) or not self._take(id):
                break
        count = len(self._ids) - length
        self.rollback(count)
        return count

    def rollback(self, n: int) -> None:
        """Take back the last `n` tokens, also over the end of reasoning."""
        if not 0 <= n <= len(self._ids):
            raise ValueError(f"can't take back {n} of {len(self._ids)} tokens")
        if not n:
            return
        length = len(self._ids) - n
        stages = self._stages
        while stages[-1].at > length:
            stages.pop()
        stage = stages[-1]
        self._hold(stage.start, stage.head, length)
        del self._ids[length:]
        self._turn_back(length)

    def fork(self) -> Gate:
        """A gate that stands where this one stands; from here on each goes its own way."""
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._matcher = self._matcher and self._matcher.fork()
        other._machine = self._machine.fork()
        other._ids, other._stages, other._copies = self._ids[:], self._stages[:], self._copies[:]
        return other

    # What may come

    def fill(self, mask: Any, row: int = 0) -> None:
        """Write which ids may come next into a row of a bit mask: 32-bit words, lowest bit first."""
        matcher = self._matcher
        rules = matcher is not None and self._rules(self._stages[-1])
        if rules and self.budget is None:
            matcher.fill(mask, row)  # type: ignore[union-attr]
            return
        words = row_of(mask, row)
        forced = self.forced
        if rules:
            assert matcher is not None
            matcher.fill(mask, row)
            if forced is not None and has(words, forced):  # the grammar has the last word
                paint(words, 0)
                allow(words, forced)
        elif forced is not None:
            paint(words, 0)
            allow(words, forced)
        elif openings := self._openings():
            paint(words, 0)
            for id in openings:
                allow(words, id)
        elif matcher is not None and self._waits:
            if self._stages[-1].start is None:
                paint(words, 0)
            else:
                matcher.fill(mask, row)
            for id in self._invites():
                allow(words, id)
        else:
            paint(words, -1)
            for id in self._bans():
                forbid(words, id)

    def allows(self, id: int) -> bool:
        """Whether this id may come next: its bit of the mask."""
        matcher = self._matcher
        rules = matcher is not None and self._rules(self._stages[-1])
        forced = self.forced
        if rules:
            assert matcher is not None
            if forced is not None and id != forced and matcher.validate((forced,)):
                return False
            return matcher.validate((id,)) == 1
        if forced is not None:
            return id == forced
        if openings := self._openings():
            return id in openings
        if matcher is not None and self._waits:
            return id in self._invites() or (self._stages[-1].start is not None and matcher.validate((id,)) == 1)
        return id not in self._bans()

    @property
    def restricts(self) -> bool:
        """Whether anything is forbidden at all here. If not, no mask is needed."""
        if self._matcher is not None and self._rules(self._stages[-1]):
            return True
        return (
            self.forced is not None
            or self.owes_thought
            or (self._matcher is not None and self._waits)
            or bool(self._bans())
        )

    @property
    def forced(self) -> int | None:
        """The one id that the spent budget still allows, if it is spent."""
        budget, end = self.budget, self._end_ids
        if budget is None or not end:
            return None
        self._catch_up()
        machine = self._machine
        if machine.reasoning_ended or self.spent < budget:
            return None
        ids = self._ids
        for length in range(min(len(end) - 1, len(ids)), 0, -1):
            if tuple(ids[-length:]) == end[:length]:
                return end[length]
        return end[0] if machine.state.strand == "reasoning" else None

    @property
    def owes_thought(self) -> bool:
        """Whether a thought is demanded and nothing of it has been said yet."""
        if not self._must_think:
            return False
        self._catch_up()
        return (
            self._thought is None
            and not self._machine.reasoning_ended
            and (self.budget is None or self.spent < self.budget)
        )

    # Where it stands

    @property
    def ids(self) -> tuple[int, ...]:
        """All tokens taken."""
        return tuple(self._ids)

    @property
    def answer_start(self) -> int | None:
        """The first of them that belongs to the answer; `None` while reasoning goes on."""
        stage = self._stages[-1]
        return stage.start if stage.decided else None

    @property
    def state(self) -> State:
        """The state in which the machine stands."""
        self._catch_up()
        return self._machine.state

    @property
    def reasoning_ended(self) -> bool:
        """Whether reasoning is over: what the parser and `is_reasoning_end` say."""
        self._catch_up()
        return self._machine.reasoning_ended

    @property
    def spent(self) -> int:
        """Tokens of reasoning so far. What is held back counts as long as it may be reasoning."""
        self._catch_up()
        machine = self._machine
        return self._spent + (self._read - machine.tokens if machine.state.strand == "reasoning" else 0)

    @property
    def terminated(self) -> bool:
        """Whether nothing more may come: the grammar is at its end, or the turn is over."""
        if self._matcher is not None and self._rules(self._stages[-1]) and (self._begun or self.mode == "framed"):
            return self._matcher.terminated
        return self.state is ENDED

    # The journal

    @property
    def _over(self) -> bool:
        """Whether the answer has begun, for the machine. A turn's head (a role) belongs to nobody's answer."""
        machine = self._machine
        return machine.reasoning_ended and not machine.state.header

    @property
    def _waits(self) -> bool:
        """Whether the machine only waits for what comes first: reasoning, or the answer."""
        state = self._machine.state
        return (
            state.undecided
            and state.strand == "content"
            and state.otherwise is not None
            and not thinks(state.otherwise)
        )

    @property
    def _begun(self) -> bool:
        """Whether the matcher holds anything."""
        start, head = self._held
        return bool(head) or (start is not None and self._held_stop > start)

    def _rules(self, stage: _Stage) -> bool:
        """Whether the grammar says what may come."""
        return stage.decided or self.mode == "framed"

    def _take(self, id: int) -> bool:
        matcher = self._matcher
        stage = self._stages[-1]
        if matcher is None or self.mode == "framed":
            return self._follow(id, stage)
        if stage.decided and self._begun:
            if not matcher.accept(id):
                return False
            self._ids.append(id)
            self._held_stop += 1
            return True
        if not stage.decided and stage.start is None and self._machine.is_plain(id):
            self._ids.append(id)  # more text of reasoning
            self._next()
            return True
        return self._decide(id, stage)

    def _follow(self, id: int, stage: _Stage) -> bool:
        """The grammar rules from the start, or there is none."""
        if self._matcher is not None:
            if not self._matcher.accept(id):
                return False
            self._held_stop += 1
            self._ids.append(id)
            if stage.decided:
                return True
            self._catch_up()
            if self._over:
                self._stages.append(_Stage(len(self._ids), 0, (), True))
            return True
        if self._machine.is_plain(id):
            self._ids.append(id)
            self._next()
            return True
        return self._decide(id, stage)

    def _decide(self, id: int, stage: _Stage) -> bool:
        """A token that may change where we stand. Refused, it leaves no trace."""
        self._catch_up()
        position = len(self._ids)
        waited, held = self._waits, HeldBack(self._machine)
        self._ids.append(id)
        self._next()
        if stage.decided:
            if self._over:
                sound = self._hold(stage.start, stage.head, position + 1)
            else:  # reasoning again
                sound = self._wait(position + 1)
        elif not self._over:
            if not waited:
                sound = self._wait(position + 1) if self._waits else True
            elif self._waits:
                sound = self._keep_waiting(stage, position)
            else:
                sound = self._begin(None, (), position + 1, decided=False)
        else:
            sound = self._answer(held, stage, position, waited)
        if not sound:
            self._hold(stage.start, stage.head, position)
            self._ids.pop()
            self._machine_at(position)
        return sound

    def _wait(self, position: int) -> bool:
        return self._begin(position if self._waits else None, (), position, decided=False)

    def _keep_waiting(self, stage: _Stage, position: int) -> bool:
        """Undecided still: the matcher sees it on trial, for what is text of the answer if no reasoning comes."""
        if stage.start is None:
            return True
        if self._hold(stage.start, stage.head, position + 1):
            return True
        blank = not self._pending().strip()  # white space that the grammar doesn't want stands before the answer
        return self._begin(position + 1 if blank else None, (), position + 1, decided=False)

    def _answer(self, held: HeldBack, stage: _Stage, position: int, waited: bool) -> bool:
        """Reasoning is over with the token at `position`: where does the answer begin?"""
        after = position + 1
        found = held.deciding(self._ids[position], waited)
        if found is None or found.begins_answer:
            if stage.start is not None and self._begin(stage.start, stage.head, after):
                return True
            column = held.first if found is None else found.start
            return self._begin(max(0, after + held.token_at(column)), (), after)
        if found.state is None:  # by a header's end: the body may be a call
            return self._begin(position if self._machine.state.strand == "tool_call" else after, (), after)
        rest = found.rest if self._machine.state.strand == "content" else ""
        return self._begin(after, tuple(self._program.alphabet.ids_of(rest)) if rest.strip() else (), after)

    def _begin(self, start: int | None, head: tuple[int, ...], at: int, *, decided: bool = True) -> bool:
        if not self._hold(start, head, at):
            return False
        self._stages.append(_Stage(at, start, head, decided))
        return True

    # The matcher

    def _hold(self, start: int | None, head: tuple[int, ...], stop: int) -> bool:
        """Let the matcher hold `head` and the journal's ids `start:stop`. False: it refuses one of them."""
        matcher = self._matcher
        if (start, head) != self._held:
            if not self._hold_only(head):
                return False
            if start is not None:
                self._held, self._held_stop = (start, head), start
        if start is None or matcher is None:
            self._held_stop = stop
            return True
        if stop < self._held_stop:
            matcher.rollback(self._held_stop - stop)
            self._held_stop = stop
        while self._held_stop < stop:
            if not matcher.accept(self._ids[self._held_stop]):
                return False
            self._held_stop += 1
        return True

    def _hold_only(self, head: tuple[int, ...]) -> bool:
        """Let the matcher hold `head` and nothing else. False: it refuses one of them, and holds nothing."""
        (start, before), self._held = self._held, (None, ())
        matcher = self._matcher
        if matcher is None:
            return True
        if count := len(before) + (max(0, self._held_stop - start) if start is not None else 0):
            matcher.rollback(count)
        for done, id in enumerate(head):
            if not matcher.accept(id):
                if done:
                    matcher.rollback(done)
                return False
        return True

    # The machine

    def _catch_up(self) -> None:
        while self._read < len(self._ids):
            self._next()

    def _next(self) -> None:
        """Let the machine read the journal's next id."""
        machine, id = self._machine, self._ids[self._read]
        self._run = self._run + 1 if machine.is_plain(id) else 0
        events = machine.feed((id,))
        self._read += 1
        for event in events:
            if event.strand == "reasoning":
                self._spent += event.token_stop - event.token_start
        if self._must_think and self._thought is None and _says_thought(events):
            self._thought = self._read
        if self._read - self._copies[-1][0] >= CHECKPOINT:
            machine.lighten()
            self._copies.append((self._read, machine.fork(), self._spent))
            if len(self._copies) > KEPT:
                del self._copies[1 : KEPT // 2 : 2]

    def _turn_back(self, length: int) -> None:
        """Bring the machine back to where it was when the journal had this length."""
        self._unthink(length)
        while self._copies[-1][0] > length:
            self._copies.pop()
        back = self._read - length
        if back <= 0:
            return
        if back <= self._run:
            self._machine.take_back(back)
            self._read -= back
            self._run -= back
            if self._machine.state.strand == "reasoning":
                self._spent -= back
            return
        self._machine_at(length)

    def _unthink(self, length: int) -> None:
        if self._thought is not None and self._thought > length:
            self._thought = None

    def _machine_at(self, length: int) -> None:
        self._unthink(length)
        while self._copies[-1][0] > length:
            self._copies.pop()
        self._read, machine, self._spent = self._copies[-1]
        self._machine = machine.fork()
        self._run = 0
        while self._read < length:
            self._next()

    def _pending(self) -> str:
        """Text that the machine holds back."""
        return self._machine.waiting[0]

    # What the table says

    def _bans(self) -> tuple[int, ...]:
        """Ids that may not come although no grammar rules."""
        self._catch_up()
        machine = self._machine
        state = machine.state
        if machine.reasoning_ended and not state.header:
            return ()
        found = self._banned.get(state)
        if found is None:
            found = self._banned[state] = tuple(sorted(self._find_bans(state)))
        return tuple({*found, *self._hasty()}) if self.owes_thought else found

    def _hasty(self) -> Iterator[int]:
        """Ids that would end a thought of which nothing has been said."""
        state = self._machine.state
        if state.strand != "reasoning" and not state.header:
            return  # not where a thought can be ended
        leaving = self._leaving.get(state)
        if leaving is None:
            leaving = self._leaving[state] = self._find_leaving(state)
        yield from leaving.never
        yield from self.stop_ids
        text, begun, _ = self._machine.waiting
        read = text.encode("utf-8", "surrogatepass") + begun
        for spelling, candidates in leaving.spelled:
            for id in candidates:
                piece = self._program.alphabet.piece(id) or b""
                data = piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")
                if (spelling is None or spelling in read + data) and self._leaves(id):
                    yield id

    def _leaves(self, id: int) -> bool:
        machine = self._machine.fork()
        before = machine.state
        events = machine.feed((id,))
        return not (_says_thought(events) or self._goes_on(before, machine.state))

    def _goes_on(self, before: State, after: State) -> bool:
        """Whether the thought (or what may still become one) goes on from one state to the next."""
        after = self._machine.led_to(after)
        return after.strand == "reasoning" or (before.strand != "reasoning" and (thinks(after) or after.header))

    def _find_leaving(self, state: State) -> _Leaving:
        """What leads out of a thought."""
        program = self._program
        row = program.rows[state]
        leads: dict[str, bool] = {}
        for text, (marker, target) in zip(row.live, row.targets, strict=True):
            stays = all(self._goes_on(state, end) for end in ends_of(target))
            leads[text] = stays and marker not in program.format.turns
        on = {char for text, stays in leads.items() if stays for char in text}
        never, spelled = set(), []
        for text in (text for text, stays in leads.items() if not stays):
            own = [char for char in text if FIRST <= ord(char) <= LAST and char not in on]
            if own:  # nothing else begins with it, so it isn't even begun
                never.add(program.alphabet.token_of(own[0]))
            else:
                spelled.append((plain_bytes(text), program.alphabet.completing(text)))
        return _Leaving(frozenset(never), tuple(spelled))

    def _find_bans(self, state: State) -> set[int]:
        program = self._program
        row, turns = program.rows[state], program.format.turns
        entries = [(text, marker, target) for text, (marker, target) in zip(row.live, row.targets, strict=True)]
        own = [(text, marker, target) for text, marker, target in entries if marker not in turns]
        opening = [text for text, marker, target in own if begins_answer(program.format, marker, target)]
        refused = {text for text in opening if self._matcher is not None and not self._lets_in(text)}
        alive = {char for text, _, _ in own if text not in refused for char in text if FIRST <= ord(char) <= LAST}
        dead = {char for text in refused for char in text if FIRST <= ord(char) <= LAST} - alive
        if self.mode == "strict" and not state.header:
            if state.strand == "reasoning":
                dead |= program.alphabet.own - alive
            dead |= {text for text, marker, target in entries if marker in turns and target is ENDED and len(text) == 1}
            return {program.alphabet.token_of(char) for char in dead if FIRST <= ord(char) <= LAST} | self.stop_ids
        return {program.alphabet.token_of(char) for char in dead}

    def _lets_in(self, text: str) -> bool:
        """Whether the grammar takes this opener as the answer's beginning."""
        assert self._matcher is not None
        ids = self._program.alphabet.ids_of(text)
        return self._matcher.validate(ids) == len(ids)

    def _openings(self) -> list[int]:
        """Ids by which the thought that is owed begins; none if it is open or nothing is owed."""
        if not self.owes_thought:
            return []
        state = self._machine.state
        if state.strand == "reasoning" or state.header:
            return []
        return self._invites(thought=True)

    def _invites(self, *, thought: bool = False) -> list[int]:
        """Ids by which reasoning begins (or its marker goes on) where the machine waits. `thought`: a thought itself, or a whole
        header that leads to one, not what may only become one."""
        self._catch_up()
        state = self._machine.state
        if self.budget is not None and self.spent >= self.budget:
            return []
        spellings = self._invited.get((state, thought))
        if spellings is None:
            spellings = self._invited[state, thought] = tuple(self._find_openers(state, thought))
        found = []
        blank = not self._pending().strip()
        # A header may have begun with a role that the prompt says, and what was read of it isn't pending.
        fresh = not self._ids if thought and state.capture else blank
        for ids in spellings:
            for length in range(min(len(ids) - 1, len(self._ids)), -1, -1):
                if length == 0 and not fresh:
                    break
                if length == 0 or ((thought or not blank) and tuple(self._ids[-length:]) == ids[:length]):
                    found.append(ids[length])
                    break
        return found

    def _find_openers(self, state: State, thought: bool) -> Iterator[tuple[int, ...]]:
        program = self._program
        fmt = program.format
        if thought and fmt.frames:
            for frame in fmt.frames:
                if frame.state.strand == "reasoning":
                    between = () if state.capture else fmt.next_message
                    yield tuple(self.bound.vocabulary.encode(spelled((*between, *frame.opened()))))
            return
        row = program.rows[state]
        for text, (marker, target) in zip(row.live, row.targets, strict=True):
            wanted = target.strand == "reasoning" if thought else thinks(target)
            if wanted and marker not in fmt.turns and not marker.note:  # what is only forgiven isn't suggested
                yield tuple(program.alphabet.ids_of(text))


class _Leaving(NamedTuple):
    """What leads out of a state in which a thought is open."""

    never: frozenset[int]
    """Special tokens that lead nowhere else."""
    spelled: tuple[tuple[bytes | None, tuple[int, ...]], ...]
    """Spellings (`None`: not a fixed one) and the ids that may complete each."""


def _says_thought(events: Iterable[Event]) -> bool:
    """Whether something of a thought is said that isn't white space."""
    return any(event.strand == "reasoning" and event.raw.strip() for event in events)


__all__ = ["Advance", "Gate", "Matcher", "Mode"]
