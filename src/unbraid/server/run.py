"""`unbraid serve`: the embedded engine and the server, on a port.

Once it accepts connections it says where, and how to try it. SIGTERM or Ctrl-C: it takes no new requests, lets the
running ones end (for as long as `--drain` says), closes the engine and leaves with 0. A second Ctrl-C ends it at once.
"""

from __future__ import annotations

import argparse
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from unbraid.errors import EngineError

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from unbraid.engines.base import Engine

LOOPBACK = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `unbraid serve`."""
    add = parser.add_argument
    add("--host", default=LOOPBACK, help="address to listen on (default: %(default)s, this machine only)")
    add("--port", type=int, default=8000, help="port to listen on; 0 takes a free one (default: %(default)s)")
    add("--model", type=Path, metavar="PATH.gguf", help="any GGUF file (default: SmolLM2-135M-Instruct, fetched once)")
    add(
        "--format",
        default="auto",
        metavar="NAME",
        help="how the model writes a turn: a name, or a table's file (default: found by the model's name, tokens, template)",
    )
    add(
        "--served-model-name",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names for clients (default: the model's own)",
    )
    add("--threads", type=int, default=1, help="threads of the engine (default: %(default)s)")
    add("--ctx", type=int, default=4096, help="tokens that prompt and reply may have together (default: %(default)s)")
    add("--parallel", type=int, default=4, help="generations at the same time; more wait (default: %(default)s)")
    add(
        "--max-body-bytes",
        type=int,
        default=8 * 1024 * 1024,
        metavar="N",
        help="largest request (default: %(default)s)",
    )
    add("--drain", type=int, default=30, metavar="SECONDS", help="how long replies may take to end after SIGTERM")


def main(args: argparse.Namespace) -> int:
    """Serve until told to stop; 0 after a clean end. What keeps it from starting is raised."""
    from unbraid.server import Settings, create_app

    settings = Settings(model_names=tuple(args.served_model_name), max_body_bytes=args.max_body_bytes)
    with listen(args.host, args.port) as listening:
        app = create_app(load_engine(args), args.format, settings)
        serve(app, listening, drain=args.drain)
    return 0


def load_engine(args: argparse.Namespace) -> Engine:
    from unbraid.engines.llama import LlamaEngine
    from unbraid.engines.model import default_model

    path = args.model or default_model()
    return LlamaEngine(path, threads=args.threads, context=args.ctx, parallel=args.parallel)


def listen(host: str, port: int) -> socket.socket:
    """The socket is taken before the model is loaded: an occupied port is told at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EngineError(
            f"can't listen on {host}:{port} ({reason}); give another --port, or 0 for a free one"
        ) from error


def serve(app: Starlette, listening: socket.socket, *, drain: int) -> None:
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                print(greeting(app, listening), flush=True)

    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=drain, server_header=False)
    # Once drained, uvicorn raises the signal again for whoever had a handler before it; that a drained server dies of
    # the signal it obeyed would look like a crash.
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        Server(config).run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def greeting(app: Starlette, listening: socket.socket) -> str:
    """Where it listens, and a line to paste."""
    gateway = app.state.gateway
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": LOOPBACK, "::": LOOPBACK}.get(host, host)
    url = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
    return (
        f"unbraid serves {gateway.model_names[0]} (format {gateway.format.name}) at {url}/v1\n"
        f"try it:\n"
        f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        f'    -d \'{{"messages": [{{"role": "user", "content": "What is the capital of France?"}}], "stream": true}}\''
    )
