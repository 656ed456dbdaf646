"""What a terminal needs: strands in fixed colours, columns that line up, a bar that tells how far it is.

Colour never carries meaning alone: whatever is coloured is named too, so that piped output, `NO_COLOR` and a
colour-blind reader lose nothing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from unbraid.events import Strand

STRANDS: Mapping[Strand, str] = {
    "reasoning": "35",  # magenta
    "content": "32",  # green
    "tool_call": "36",  # cyan
    "markup": "90",  # grey: it belongs to nobody
    "control": "33",  # yellow
}
BOLD = "1"
DIM = "2"
RED = "31"

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters by which a model's output could steer the terminal that shows it. Newline and tab may stay."""


class Screen:
    """A stream and what it can do. Everything that this package prints for people goes through one."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str] = os.environ) -> None:
        self.stream = stream
        self.is_terminal = stream.isatty()
        plain = environment.get("NO_COLOR") or environment.get("TERM") == "dumb"
        self.colours = bool(not plain and (self.is_terminal or environment.get("FORCE_COLOR")))

    def paint(self, text: str, style: str) -> str:
        """`text` in a style, if this stream shows styles."""
        return f"\x1b[{style}m{text}\x1b[0m" if self.colours and text else text

    def safe(self, text: str) -> str:
        """`text` as it may be shown: on a terminal, control characters are spelled out; in a pipe they're data."""
        return _UNSAFE.sub(lambda found: f"\\x{ord(found[0]):02x}", text) if self.is_terminal else text

    def line(self, text: str = "") -> None:
        """Write one line."""
        self.stream.write(text + "\n")

    def json(self, value: Any) -> None:
        """Write a JSON value, indented, and a newline."""
        json.dump(value, self.stream, ensure_ascii=False, indent=2)
        self.line()

    def legend(self, strands: Sequence[Strand]) -> None:
        """Say which colour is which, where there are colours."""
        if self.colours:
            self.line("  ".join(self.paint(f"■ {strand}", STRANDS[strand]) for strand in strands) + "\n")

    def block(self, text: str, style: str) -> None:
        """Text that may be large, indented; a line at a time, so that no second copy of it is made."""
        for line in lines(text):
            self.line("  " + self.paint(self.safe(line), style) if line else "")

    def table(self, rows: Sequence[Sequence[str]], *, styles: Sequence[str] = (), indent: str = "") -> None:
        """Columns that line up, two blanks apart; on a terminal a row that is too long is cut."""
        if not rows:
            return
        widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
        room = columns() if self.is_terminal else sys.maxsize
        for row in rows:
            left = room - len(indent)
            cells = []
            for position, (cell, wide) in enumerate(zip(row, widths, strict=True)):
                last = position == len(row) - 1
                shown = cut(cell, left)
                left -= max(width(shown), wide) + 2
                style = styles[position] if position < len(styles) else ""
                cells.append(
                    (self.paint(shown, style) if style else shown) + " " * (0 if last else wide - width(shown))
                )
            self.line((indent + "  ".join(cells)).rstrip())


def width(text: str) -> int:
    """Terminal cells that `text` takes (DeepSeek's full-width bars take two)."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def cut(text: str, room: int) -> str:
    """`text` in at most `room` cells; an ellipsis says that there is more."""
    if width(text) <= room:
        return text
    kept, used = [], 0
    for character in text:
        used += width(character)
        if used >= room:
            break
        kept.append(character)
    return "".join(kept) + "…" if room > 0 else ""


def columns() -> int:
    """How wide the terminal is."""
    return shutil.get_terminal_size().columns


def lines(text: str) -> Iterator[str]:
    """The lines of `text`, split at newlines only, one at a time."""
    start = 0
    while (end := text.find("\n", start)) >= 0:
        yield text[start:end]
        start = end + 1
    if start < len(text):
        yield text[start:]


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


class Progress:
    """A bar on a terminal; nothing anywhere else, and nothing for what is done in a blink.

    >>> with Progress("reading", total=10) as bar:
    ...     bar.advance(5)
    """

    def __init__(
        self,
        label: str,
        total: int | None,
        *,
        stream: TextIO | None = None,
        least: int = 1_000_000,
        unit: str = "bytes",
    ) -> None:
        self.label = label
        self.unit = unit
        self.total = total
        self.stream = stream or sys.stderr
        self.done = 0
        self.shown = self.stream.isatty() and (total is None or total >= least)
        self._started = self._drawn = time.monotonic()
        self._visible = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._visible:
            self.stream.write("\r\x1b[K")
            self.stream.flush()

    def advance(self, count: int) -> None:
        """`count` more are done."""
        self.done += count
        now = time.monotonic()
        if self.shown and now - self._drawn >= 0.1:
            self._drawn, self._visible = now, True
            self.stream.write("\r" + cut(self._text(now), columns() - 1) + "\x1b[K")
            self.stream.flush()

    def _text(self, now: float) -> str:
        rate = self.done / max(now - self._started, 1e-3)
        if not self.total:
            return f"{self.label}  {size(self.done)}  {size(rate)}/s"
        part = min(self.done / self.total, 1.0)
        bar = "━" * round(part * 24) + "─" * (24 - round(part * 24))
        left = max(self.total - self.done, 0) / max(rate, 1e-3)
        if self.unit != "bytes":
            return f"{self.label}  {bar} {part:4.0%}  {self.done} of {self.total} {self.unit}  {left:.0f} s left"
        done = f"{size(self.done)} of {size(self.total)}"
        return f"{self.label}  {bar} {part:4.0%}  {done}  {size(rate)}/s  {left:.0f} s left"
