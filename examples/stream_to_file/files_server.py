"""An MCP tool server that writes text files piece by piece, inside one directory.

    python files_server.py DIRECTORY        (an MCP client starts it, and talks to it over its standard input and output)

A file that is being written is called `NAME.part`; it gets its name when it is finished, so that whoever sees the name sees a whole file. Every
piece says where it belongs: one that comes twice isn't written twice, one that would leave a gap is refused.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("files")
root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()


def _part(name: str) -> Path:
    """Where the unfinished file lies. Models choose names: they can't choose a place."""
    if not name or Path(name).name != name or name.startswith("."):
        raise ToolError(f"{name!r} is no plain file name")
    return root / f"{name}.part"


@server.tool()
def append(name: str, offset: int, text: str) -> int:
    """Write a piece of a file: `offset` is how many bytes stand before it. Returns how many there are now."""
    data, part = text.encode("utf-8"), _part(name)
    with part.open("ab") as file:
        size = file.seek(0, os.SEEK_END)
        if offset > size:
            raise ToolError(f"{name} has {size} bytes, and the piece belongs at {offset}: something is missing")
        file.write(data[size - offset :])
        file.flush()
        os.fsync(file.fileno())  # what has been acknowledged survives whatever happens next
        return file.tell()


@server.tool()
def finish(name: str, size: int, complete: bool) -> str:
    """Say that no more comes. A complete file gets its name; one that was cut off keeps `.part`. Returns the file's path."""
    part = _part(name)
    part.touch()
    if (there := part.stat().st_size) != size:
        raise ToolError(f"{name} has {there} bytes, and {size} were sent")
    if not complete:
        return str(part)
    part.replace(root / name)
    return str(root / name)


if __name__ == "__main__":
    server.run()
