"""Reasoning shown amid the content, its delimiters as the model wrote them: for clients that take a reply apart themselves."""

from __future__ import annotations

from collections.abc import Iterable

from unbraid.events import Event, Markup, Text


class InlineThought:
    """Turns the delimiters of reasoning into text, for clients that want the thought as the model wrote it.

    The events don't say whose delimiter a markup is, its neighbours do: what stands beside a call is the call's, but for what is known
    to close the thought before it or to open the one behind it; all else is shown. So markup waits for the next event that is
    something else. Only its characters count: how many events they come in depends on the engine's steps.
    """

    def __init__(self, openers: frozenset[str], closers: frozenset[str]) -> None:
        self._openers = openers
        self._closers = tuple(sorted(closers, key=len, reverse=True))
        self._last: str | None = None
        self._waiting: list[Markup] = []

    def feed(self, events: Iterable[Event]) -> list[Event]:
        out: list[Event] = []
        for event in events:
            if type(event) is Markup and event.strand == "markup":
                self._waiting.append(event)
                continue
            out += self._decided(event.strand)
            out.append(event)
            if event.strand != "control":
                self._last = event.strand
        return out

    def finish(self) -> list[Event]:
        return self._decided(None)

    def _decided(self, following: str | None) -> list[Event]:
        waiting, self._waiting = self._waiting, []
        out: list[Event] = []
        start, stop = self._shown("".join([event.raw for event in waiting]), following)
        for event in waiting:
            text = event.raw[max(start, 0) : max(stop, 0)]
            out.append(Text.make(*event, text=text) if text else event)
            start, stop = start - len(event.raw), stop - len(event.raw)
        return out

    def _shown(self, raw: str, following: str | None) -> tuple[int, int]:
        """From where to where the markup is a thought's."""
        if following == "tool_call":
            at = len(raw) - len(raw.lstrip())
            closer = next((text for text in self._closers if raw.startswith(text, at)), "")
            return (0, at + len(closer)) if closer and self._last in ("reasoning", None) else (0, 0)
        if self._last == "tool_call":
            found = [at for opener in self._openers if (at := raw.find(opener)) >= 0]
            return (min(found), len(raw)) if found and following == "reasoning" else (0, 0)
        return 0, len(raw)
