"""The parser: a machine that starts where the prompt ends.

The start state is read from the prompt, never guessed from switches: the machine runs over the prompt's tail after the last marker
that opens a turn, without saying anything, and goes on with the output from there. Whatever the prompt leaves open (reasoning, a
call's arguments, half a marker) is continued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from unbraid.errors import UnbraidError
from unbraid.events import CallArguments, CallStart
from unbraid.machine import FinishReason, Machine
from unbraid.message import Message
from unbraid.native import mypyc_attr
from unbraid.policy import DEFAULT_POLICY, Policy
from unbraid.program import Program
from unbraid.schema import Tools
from unbraid.table import Format, State

if TYPE_CHECKING:
    from unbraid.boundary import BoundFormat

SHORT_TAIL: Final = 16
SHORT_TEXT: Final = 64
"""Where a prompt leads is remembered by its end, if the last turn has begun among so many last ids, or characters."""

END: Final = 32
END_TEXT: Final = 128
"""So many last ids, or characters, of the prompt the ids of calls are made from."""


def text_program(fmt: Format, policy: Policy) -> Program:
    """The format compiled for text."""
    key = None if policy is DEFAULT_POLICY else policy  # hashing a policy isn't free
    program = fmt._cache.get(key)
    if program is None:
        program = fmt._cache[key] = fmt._cache[policy] = fmt._cache.get(policy) or Program(fmt, None, policy)
    return program


@mypyc_attr(allow_interpreted_subclasses=True, serializable=True)
class Parser(Machine):
    """Takes one output apart while it streams.

    `source`: a bound format to parse token ids, a `Format` to parse text. `tools`: the offered tools, in OpenAI's shape (or a
    `Tools` resolved before). `prompt`: ids or text, as far as known; all of it, or any tail that holds the last turn. The ids of calls
    are made from it, too: without one, the first call of a name has the same id in every turn. `thinking`: whether thinking is on,
    `None` for the format's default; it decides only where the prompt doesn't. `tool_choice`: only `"none"` matters: calls are then
    treated by `policy.tool_choice_none`. `choice`: which of several answers to one prompt this is: ids that the model doesn't write
    itself differ between them. `earlier_ids`: those of the conversation's calls so far: none of them is given again.

        >>> import unbraid
        >>> p = unbraid.Parser(unbraid.get_format("qwen3"))
        >>> for piece in ("<think>\\nHm.", "\\n</think>\\n\\nHi"):
        ...     for event in p.feed_text(piece):
        ...         print(event.strand, repr(event.raw))
        markup '<think>\\n'
        reasoning 'Hm.'
        markup '\\n</think>\\n\\n'
        content 'Hi'
    """

    __slots__ = ()

    def __init__(
        self,
        source: BoundFormat | Format,
        *,
        tools: Sequence[Mapping[str, Any]] | Tools | None = None,
        prompt: Sequence[int] | str | None = None,
        thinking: bool | None = None,
        policy: Policy = DEFAULT_POLICY,
        tool_choice: Any = "auto",
        choice: int = 0,
        earlier_ids: Sequence[str] = (),
    ) -> None:
        program = text_program(source, policy) if isinstance(source, Format) else source.program(policy)
        silent = tool_choice == "none"
        super().__init__(program, tools, thinking, silent)
        earlier = tuple(earlier_ids)
        if earlier:
            self._ids = set(earlier)
        if prompt is None or not len(prompt):
            self._seed = 0, "", choice, earlier
            prompt = ()
            place = program.memo.place_without(thinking, silent)
        else:
            if isinstance(prompt, str):
                self._seed = len(prompt), prompt[-END_TEXT:], choice, earlier
                if program.ids:
                    assert program.alphabet.vocabulary is not None
                    prompt = program.alphabet.vocabulary.encode(prompt)
            else:
                self._seed = len(prompt), prompt[-END:], choice, earlier
            place = program.memo.place_behind(prompt, thinking, silent)
        if place is not None:
            self._stand(place)
        else:
            self._read_prompt(prompt)

    def _read_prompt(self, prompt: Sequence[int] | str) -> None:
        """Go to where the prompt leads."""
        program = self._program
        self._begin(program.format.starts(self._thinking, prompted=False))
        if not len(prompt):
            if not self.diagnostics:
                self._settle()
                self._learn_tail(prompt)
            return
        if not isinstance(prompt, str) and not program.ids:
            raise UnbraidError(
                "a prompt of ids needs a bound format: pass `fmt.bind(vocabulary)`, or the prompt as text"
            )
        at, target = program.turns.last_of(prompt)
        if target is None and program.tried_at(self.state):
            return  # turns of another format: where its text would stand, a call may begin
        self._read_tail(prompt, at, target)
        if target is not None:
            most = SHORT_TEXT if isinstance(prompt, str) else SHORT_TAIL
            self._learn_tail(program.turns.deciding(prompt, at, target, most))

    def _learn_tail(self, tail: Sequence[int] | str | None) -> None:
        """Another prompt that ends in this leads to the same place."""
        place = self._place
        if tail is None or place is None or self._call or self._reader or self.called or self._consulted:
            return
        if not (any(self._last) or self._before):  # a reader may ask what the prompt's calls were
            self._program.memo.learn_tail(tail, place)

    def _read_tail(self, prompt: Sequence[int] | str, at: int, target: State | None) -> None:
        """Run over what follows the last opener of a turn, which ends at `at` and leads to `target`."""
        if target is not None:
            self._enter_turn(target)
        rest = prompt[at:]
        if isinstance(rest, str):
            self._push(rest)
        elif len(rest):
            self._feed(rest)
        self._forget()

    def _enter_turn(self, target: State) -> None:
        self._resume()
        marker = next((m for m, t in self._program.format.turns.items() if t is target), None)
        self._absorb = marker.after if marker else ""
        self._enter(target)
        self._settle()

    def _forget(self) -> None:
        """What was said about the prompt isn't output; what it left open goes on."""
        self._resume()
        self._buffer = self._take_queue()
        self._resume_head()
        self._rewind()
        self._skip = len(self._buffer)
        self._starts.clear()
        self._at = self._token = 0
        self._said = self._thought = False
        self._prepend = self.state.prepend
        self._forget_notes()
        self._parts.clear()
        self._calls.clear()
        if self._reader is not None:
            self._before = self._open_body() + self._program.alphabet.expand(self._buffer)
        self._open.clear()
        call, held = self._call, self._held
        self._held = None if held is None else []
        self._preface = []
        self._out = self._preface
        if call is not None:
            arguments = call.arguments
            if held is not None:  # atomic delivery: they are among what is kept back
                arguments = "".join(e.delta for e in held if isinstance(e, CallArguments))
                self._held = None
            call.index = self._index = 0
            start = CallStart.make("tool_call", "", 0, 0, 0, 0, 0, call.id, call.name)
            self._deliver(start)
            if arguments:
                self._deliver(CallArguments.make("tool_call", "", 0, 0, 0, 0, 0, arguments))
            if held is not None:
                self._held, self._call = [*self._preface], call
                call.opening, call.pieces = (), []  # they count as what the prompt wrote
                self._parts.clear()
                self._calls.clear()
                self._preface = []
        self._out = []
        self._settle()


def parse(
    source: BoundFormat | Format,
    output: Sequence[int] | str,
    *,
    tools: Sequence[Mapping[str, Any]] | Tools | None = None,
    prompt: Sequence[int] | str | None = None,
    thinking: bool | None = None,
    policy: Policy = DEFAULT_POLICY,
    finish_reason: FinishReason = "stop",
    tool_choice: Any = "auto",
) -> Message:
    """Parse a whole output: the same machine, fed once. Text given to a bound format is parsed as text."""
    if isinstance(output, str) and not isinstance(source, Format):
        source = source.format
        if prompt is not None and not isinstance(prompt, str):
            raise UnbraidError("the output is text but the prompt is ids: give both in the same form")
    parser = Parser(source, tools=tools, prompt=prompt, thinking=thinking, policy=policy, tool_choice=tool_choice)
    parser._quiet = True
    if isinstance(output, str):
        parser._feed_pieces(output, 0, -1, [])  # a whole output isn't looked up
    else:
        parser.feed(output)
    parser.finish(finish_reason)
    return parser.message
