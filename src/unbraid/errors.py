"""What can go wrong, and whose fault it is.

    UnbraidError
    ├── TableError      a format's table is wrong (its author's fault); names format, state and row
    ├── FormatNotFound  no format has this name (the caller's fault); suggests near names
    ├── VocabularyError a tokenizer can't be read or lacks what is asked of it
    ├── RenderError     a message that the format can't express
    ├── SchemaError     a tool's JSON schema that can't be used
    ├── RequestError    a request that can't be served (a 4xx of the server)
    └── EngineError     the engine behind the server failed (a 5xx of the server)
        └── EngineFileError  what it is made of can't be read: a model's file, a recording

What a *model* writes never raises: it becomes events and diagnostics (`unbraid.events.Diagnostic`).
"""

from __future__ import annotations

from collections.abc import Sequence


class UnbraidError(Exception):
    """Base of every error that this package raises on purpose."""


class TableError(UnbraidError):
    """A format's table contradicts itself. Raised when the table is made, not when it is used."""

    def __init__(self, format: str, message: str, *, state: str | None = None) -> None:
        self.format = format
        self.state = state
        where = f"{format}: state {state}" if state else format
        super().__init__(f"{where}: {message}")


class FormatNotFound(UnbraidError):
    """No registered format, alias or model id matches `name`."""

    def __init__(self, name: str, near: Sequence[str] = ()) -> None:
        self.name = name
        self.near = tuple(near)
        hint = f"; did you mean {' or '.join(self.near)}?" if self.near else ""
        super().__init__(f"no format is called {name!r}{hint} (`unbraid formats` lists them)")


class VocabularyError(UnbraidError):
    """A tokenizer that can't be read, or a text that it can't spell."""


class RenderError(UnbraidError):
    """The format has no way to write this message; `part` says which part of it."""

    def __init__(self, format: str, part: str, message: str) -> None:
        self.format = format
        self.part = part
        super().__init__(f"{format} can't express {part}: {message}")


class SchemaError(UnbraidError):
    """A tool or schema of a request that can't be used; `path` is a JSON pointer into it."""

    def __init__(self, path: str, message: str) -> None:
        self.path = path
        super().__init__(f"{path or '/'}: {message}")


class RequestError(UnbraidError):
    """A request that can't be served as it stands. `param` names the field, `status` is the HTTP status to answer with."""

    def __init__(self, message: str, *, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        self.param = param
        self.status = status
        self.code = code
        super().__init__(message)


class EngineError(UnbraidError):
    """The engine failed or went away while it generated. `status` is the HTTP status to answer with."""

    def __init__(self, message: str, *, status: int = 500) -> None:
        self.status = status
        super().__init__(message)


class EngineFileError(EngineError):
    """A file that an engine is made of, or writes to, can't be used: a model, a recording. Comes when it is made."""
