"""What these commands are given: text files, with a clear word for what can't be read, and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unbraid.errors import UnbraidError

Json = dict[str, Any]
"""An object of JSON."""


def read_file(path: str | Path) -> str:
    """A small text file in UTF-8, with or without a byte order mark. Raises `UnbraidError` that names the place."""
    try:
        return Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise UnbraidError(f"{path}: can't be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise UnbraidError(f"{path}: no UTF-8 (byte {error.start}); save it as UTF-8") from error
