"""The header of one message, while it is captured: its parts, and the events that wait for its end.

    <|start|>assistant<|channel|>commentary to=functions.move <|constrain|>json<|message|>
             role      channel                                 type

A header means something only once it has ended, and what never ends as a header is content. So its events are kept here: markup if
all went well; else what was text becomes content and the markers stay markup.

The grammar is the same for all formats: words separated by white space; `to=NAME` is the recipient; the first other word of the
channel part is the channel. A second channel part starts over: it drops the channel and recipient of the one before, while a
recipient from the first part stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from unbraid.events import Event, Markup, Text
from unbraid.native import mypyc_attr
from unbraid.table import OFFERED, Part, Route, State

LIMIT = 512
"""Characters that a header may have: what is longer is no header, and holding it back would cost."""

RECIPIENT = "to="

Words = tuple[tuple[tuple[Part, str], ...], frozenset[int], tuple[tuple[Any, str, str, int], ...], int]
"""A header as `unbraid.memo` knows it: all but where in the stream it stands."""


@mypyc_attr(serializable=True)
class Head:
    """One header being read."""

    __slots__ = ("_parts", "_texts", "events", "size")

    def __init__(self, part: Part) -> None:
        self._parts: dict[Part, str] = {part: ""}
        self._texts: set[int] = set()
        self.events: list[Event] = []
        self.size = 0

    def begin(self, part: Part) -> None:
        """A marker leads to the next part."""
        self.size += 1
        if part == "channel":
            self._parts.pop("type", None)
        self._parts[part] = ""

    def take(self, part: Part, text: str, *, own: bool = True) -> None:
        """Text of a part; `own`: its event, the last one, becomes content if this is no header."""
        self.size += len(text)
        self._parts[part] = self._parts.get(part, "") + text
        if own:
            self._texts.add(len(self.events) - 1)

    def forget(self) -> None:
        """What was read stands in the prompt: it counts, but is no output."""
        self.events.clear()
        self._texts.clear()

    def place(self) -> Words:
        """What has been read, to go on from it another time."""
        said = [(type(e), e.strand, e.raw, e.token_stop - e.token_start) for e in self.events]
        return tuple(self._parts.items()), frozenset(self._texts), tuple(said), self.size

    def resume(self, place: Words, at: int, token: int) -> tuple[int, int]:
        """Go back to where `place` said this; the header begins at this character and token. Returns where it has got to."""
        parts, texts, said, self.size = place
        self._parts, self._texts = dict(parts), set(texts)
        for kind, strand, raw, tokens in said:
            event = kind.make(strand, raw, at, at + len(raw), token, token + tokens, *((raw,) if kind is Text else ()))
            self.events.append(event)
            at, token = event.stop, event.token_stop
        return at, token

    @property
    def words(self) -> str:
        """The first part without its recipient."""
        text = self._parts.get("role") or self._parts.get("head") or ""
        return " ".join(word for word in text.split() if not word.startswith(RECIPIENT))

    @property
    def has_role(self) -> bool:
        return bool(self._parts.get("role", "").split())

    @property
    def channel(self) -> str:
        return next((word for word in self._parts.get("channel", "").split() if not word.startswith(RECIPIENT)), "")

    @property
    def recipient(self) -> str:
        """The last one given. A word that swallowed a marker's spelling ends before it."""
        named = [word for text in self._parts.values() for word in text.split() if word.startswith(RECIPIENT)]
        return named[-1][len(RECIPIENT) :].partition("<")[0] if named else ""

    def choose(self, routes: Sequence[Route], offers: Callable[[str], bool]) -> tuple[State | None, str]:
        """Where the header leads, and the name of the call if it gives one. `offers`: whether there is a tool of this name."""
        to, channel, words = self.recipient, self.channel, self.words
        for route in routes:
            name = words
            if route.to == OFFERED:
                if not (to and offers(to)):
                    continue
                name = to
            elif route.to:
                if not fits(to, route.to):
                    continue
                name = to[len(route.to) - 1 :] if route.to.endswith("*") else to
            elif route.state.codec and not (route.words or route.channel) and len(words.split()) != 1:
                continue  # the header is the call's name, and this is none
            if fits(channel, route.channel) and fits(words, route.words):
                return route.state, name
        return None, ""

    def blank(self) -> bool:
        """Whether there is no text that could be content."""
        return not any(self.events[at].raw.strip() for at in self._texts)

    def as_text(self) -> Iterator[Event]:
        """The events, if this is no header: its text is content."""
        for at, event in enumerate(self.events):
            if at in self._texts and isinstance(event, Markup) and event.raw:
                yield as_content(event)
            else:
                yield event


def as_content(event: Event) -> Text:
    """Markup that is to be read after all."""
    return Text.make("content", event.raw, event.start, event.stop, event.token_start, event.token_stop, event.raw)


def fits(text: str, pattern: str) -> bool:
    """Whether a word of the header is what a route asks for."""
    if not pattern:
        return True
    if pattern.endswith("*"):
        return text.startswith(pattern[:-1]) and len(text) >= len(pattern)
    return text == pattern


__all__ = ["LIMIT", "Head", "as_content", "fits"]
