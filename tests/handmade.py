"""Events made by hand, and the deltas that an assembler makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from hypothesis import strategies as st

from unbraid.events import CallArguments, CallEnd, CallOutcome, CallStart, Control, Event, Markup, Text
from unbraid.protocol import Choice, Delta, Options

PLAIN = Options()


class Logprob(NamedTuple):
    id: int
    logprob: float
    token: str
    bytes: bytes
    top: tuple[Logprob, ...] = ()


class Script:
    """A stream of events, one token each unless said otherwise, whose spans tile it."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.tokens: list[Logprob] = []
        self._at = 0

    def think(self, *pieces: str) -> Script:
        return self._texts("reasoning", pieces)

    def say(self, *pieces: str) -> Script:
        return self._texts("content", pieces)

    def split(self, text: str, *tokens: bytes) -> Script:
        """One content event that several tokens make up (a split character, or text that was held back)."""
        self.events.append(Text.make("content", *self._span(text, tokens), text=text))
        return self

    def markup(self, raw: str) -> Script:
        self.events.append(Markup.make("markup", *self._span(raw)))
        return self

    def end_of_turn(self) -> Script:
        self.events.append(Control.make("control", *self._span("<|im_end|>")))
        return self

    def call(
        self,
        name: str,
        *arguments: str,
        outcome: Literal["complete", "incomplete", "withdrawn"] = "complete",
        index: int = 0,
    ) -> Script:
        self.events.append(CallStart.make("tool_call", *self._span(name), index=index, id=f"call_{name}", name=name))
        for delta in arguments:
            self.events.append(CallArguments.make("tool_call", *self._span(delta), index=index, delta=delta))
        self.events.append(CallEnd.make("tool_call", *self._span("", ()), index=index, outcome=outcome))
        return self

    def calls(self, *calls: tuple[str, ...], outcome: CallOutcome = "complete") -> Script:
        """Several in one list: they end when it ends."""
        for index, (name, *arguments) in enumerate(calls):
            self.events.append(
                CallStart.make("tool_call", *self._span(name), index=index, id=f"call_{name}", name=name)
            )
            for delta in arguments:
                self.events.append(CallArguments.make("tool_call", *self._span(delta), index=index, delta=delta))
        for index in range(len(calls)):
            self.events.append(CallEnd.make("tool_call", *self._span("", ()), index=index, outcome=outcome))
        return self

    def _texts(self, strand: Literal["reasoning", "content"], pieces: Sequence[str]) -> Script:
        for piece in pieces:
            self.events.append(Text.make(strand, *self._span(piece), text=piece))
        return self

    def _span(self, raw: str, tokens: Sequence[bytes] | None = None) -> tuple[str, int, int, int, int]:
        made = [raw.encode()] if tokens is None else tokens
        first = len(self.tokens)
        self.tokens += [
            Logprob(100 + first + i, -0.5, data.decode("utf-8", "replace"), data) for i, data in enumerate(made)
        ]
        start, self._at = self._at, self._at + len(raw)
        return raw, start, self._at, first, len(self.tokens)


def deltas_of(
    script: Script,
    options: Options = PLAIN,
    reason: Literal["stop", "length"] = "stop",
    *,
    choice: Choice | None = None,
) -> list[Delta]:
    """An event at a time, as the most patient engine would bring them."""
    choice = choice or Choice(0, options)
    out = choice.open()
    for event in script.events:
        part = script.tokens[event.token_start : event.token_stop]
        out += choice.feed([event], [token.id for token in part], part)
        if choice.stopped:
            break
    return out + choice.finish(reason)


FULL = (
    Script()
    .markup("<think>\n")
    .think("They want", " Oslo.")
    .markup("\n</think>\n\n")
    .say("Let me ", "look.")
    .markup("<tool_call>")
    .call("weather", '{"city": ', '"Oslo"}')
    .markup("</tool_call>")
    .end_of_turn()
)

PARTS = st.lists(
    st.one_of(
        st.tuples(st.just("think"), st.text(min_size=1, max_size=5)),
        st.tuples(st.just("say"), st.text("abEND \U0001f642", min_size=1, max_size=5)),
        st.tuples(st.just("markup"), st.just("<x>")),
        st.tuples(st.just("call"), st.sampled_from(["f", "g"])),
        st.tuples(st.just("list of calls"), st.sampled_from(["complete", "incomplete", "withdrawn"])),
        st.tuples(st.just("broken call"), st.just("f{")),
    ),
    max_size=8,
)


def script_of(parts: Sequence[tuple[str, str]]) -> Script:
    script = Script()
    for kind, text in parts:
        if kind == "list of calls":
            script.calls(("f", "{", "}"), ("g",), outcome=text)  # type: ignore[arg-type]
        elif kind == "broken call":
            script.call("f", "{", outcome="withdrawn").say(text)
        else:
            getattr(script, kind)(text)
    return script
