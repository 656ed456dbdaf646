"""A format joined to a tokenizer, and what can be said about ids alone.

These are projections of the table: each runs the same machine over the ids from the last turn on, so none can disagree with
the parser. They are pure functions of the ids given (the prompt, or the prompt and the output so far).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unbraid.machine import Machine
from unbraid.parser import Parser
from unbraid.policy import DEFAULT_POLICY, Policy
from unbraid.program import Program
from unbraid.table import Format, State, spelled, thinks
from unbraid.vocabulary import Vocabulary


class BoundFormat:
    """A format whose markers are ids. Made by `Format.bind`; make it once and share it: parsers on it are cheap."""

    __slots__ = ("_default", "_programs", "format", "vocabulary")

    def __init__(self, format: Format, vocabulary: Vocabulary) -> None:
        self.format = format
        self.vocabulary = vocabulary
        self._programs: dict[Policy, Program] = {}
        self._default: Program | None = None
        self._default = self.program(DEFAULT_POLICY)

    def program(self, policy: Policy) -> Program:
        """The table compiled for this tokenizer and policy."""
        if policy is DEFAULT_POLICY and self._default is not None:  # hashing a policy isn't free
            return self._default
        program = self._programs.get(policy)
        if program is None:
            program = self._programs[policy] = Program(self.format, self.vocabulary, policy)
        return program

    def _run(self, ids: Sequence[int], thinking: bool | None) -> Machine:
        parser = Parser(self, thinking=thinking)
        parser._read_tail(ids, *parser._program.turns.last_of(ids))
        return parser

    def state_at(self, ids: Sequence[int], thinking: bool | None = None) -> State:
        """The state in which the machine stands behind these ids."""
        return self._run(ids, thinking).state

    def is_reasoning_end(self, ids: Sequence[int], thinking: bool | None = None) -> bool:
        """Whether reasoning is over behind these ids: from here on a grammar may rule.

        A format that doesn't know reasoning has always ended it. While nothing has said whether the model will think (thinking
        is on, the prompt doesn't open it), it hasn't.
        """
        return self._run(ids, thinking).reasoning_ended

    def content_ids(self, ids: Sequence[int], thinking: bool | None = None) -> list[int]:
        """The ids of the last turn behind the end of its reasoning, the marker that ended it left out unless it belongs to the answer
        (as a call's or section's opener does). Empty while reasoning goes on; where it came again, what is behind the last of it."""
        from unbraid.gate import Gate  # it stands on this module

        at, _ = self.program(DEFAULT_POLICY).turns.last_of(ids)
        gate = Gate(self, ids[:at], reasoning=thinking)
        gate.advance(ids[at:])
        return [] if gate.answer_start is None else list(ids[at + gate.answer_start :])

    @property
    def reasoning_end_ids(self) -> tuple[int, ...]:
        """The ids that end reasoning by the format's own marker, in order; empty if it doesn't know reasoning.

        Several where the tokenizer has no single token for it. For a thinking budget, which writes them.
        """
        if self.format.answer:
            return tuple(self.vocabulary.encode(self.format.answer))
        for state, row in self.format.states.items():
            if not thinks(state) or state.undecided:
                continue
            for marker, target in row.items():
                if not thinks(target) and target.strand == "content":
                    return tuple(self.vocabulary.encode(spelled(marker.spellings[0])))
        return ()

    def __deepcopy__(self, memo: object) -> BoundFormat:
        return self  # shared by all parsers on it, and by their copies

    def __reduce__(self) -> tuple[Any, ...]:
        return BoundFormat, (self.format, self.vocabulary)  # compiled anew: what has been isn't sent along

    def __repr__(self) -> str:
        return f"<BoundFormat {self.format.name} on {len(self.vocabulary)} tokens>"
