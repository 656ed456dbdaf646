"""The server: a stateless gateway from OpenAI's protocols to an engine, with the machine between them.

    request -> chat template -> engine (tokens in, tokens out) -> machine -> protocol

`create_app` makes it an ASGI application, `unbraid serve` (`unbraid.server.run`) puts it on a port. Needs the extra
`server`.
"""

try:
    import msgspec as _msgspec
    import starlette as _starlette
except ImportError as error:  # pragma: no cover - the test environment has them
    raise ImportError(f"unbraid.server needs {error.name}: pip install 'unbraid[server]'") from error

from unbraid.server.app import create_app
from unbraid.server.gateway import Gateway, resolve_format
from unbraid.server.settings import Settings

del _msgspec, _starlette

__all__ = ["Gateway", "Settings", "create_app", "resolve_format"]
