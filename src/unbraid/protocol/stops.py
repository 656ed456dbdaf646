"""Stop strings, scoped to content.

A client's `stop` ends the *answer*. Fired inside reasoning or a call it would cut the thought or break the JSON (vLLM
issues 53066 and 38499: benchmark scores ruined), so only the text of the strand `content` is ever shown to this
scanner. Text is withheld only while it is a proper prefix of a stop string; what is withheld is always shorter than
the longest one, so a feed costs what its own text costs.
"""

from __future__ import annotations

from collections.abc import Iterable


class StopStrings:
    """Looks for the first of several strings in a text that arrives in pieces; what it releases is safe to show."""

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(dict.fromkeys(stop for stop in stops if stop))
        self._held = ""
        self.match: str | None = None
        """The string that was found. It, and everything after it, is never released."""

    def feed(self, text: str) -> str:
        """Take a piece, give what can be shown. The earliest match wins; of two at one place, the one named first."""
        if self.match is not None:
            return ""
        text = self._held + text
        found = [(at, order) for order, stop in enumerate(self._stops) if (at := text.find(stop)) >= 0]
        if found:
            at, order = min(found)
            self.match = self._stops[order]
            self._held = ""
            return text[:at]
        keep = min((self._partial(text, stop) for stop in self._stops), default=len(text))
        self._held = text[keep:]
        return text[:keep]

    def flush(self) -> str:
        """No match can follow from here (another strand begins, or the stream ends): release what is held."""
        held, self._held = self._held, ""
        return held

    @staticmethod
    def _partial(text: str, stop: str) -> int:
        """Where the longest end of `text` begins that is a proper prefix of `stop`; its length if there is none."""
        at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
        while at >= 0:
            if stop.startswith(text[at:]):
                return at
            at = text.find(stop[0], at + 1)
        return len(text)
