"""`unbraid serve`: an engine and the server, on a port.

Once it accepts connections it says where, and how to try it. SIGTERM or Ctrl-C: it takes no new requests, lets the
running ones end (for as long as `--drain` says), closes the engine and leaves with 0. A second Ctrl-C ends it at once.

With several workers, this process only holds the socket and looks after the others: they accept from it, one that dies is
replaced, and a signal is handed on to all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from unbraid.server.options import LOOPBACK, OptionError, add_arguments, resolved, settings_of

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette

    from unbraid.engines.base import Engine
    from unbraid.server.gateway import Gateway

log = logging.getLogger("unbraid.server")

__all__ = ["add_arguments", "listen", "main"]

_SOCKET = "UNBRAID_WORKER_SOCKET"
"""In a worker's environment: the number of the socket that it has inherited, and of the pipe on which it says that it is up."""


def main(args: argparse.Namespace) -> int:
    """Serve until told to stop; 0 after a clean end. What keeps it from starting is raised."""
    from unbraid.server import create_app, logs

    options = resolved(args)
    settings = settings_of(options)
    logs.set_up(options.log_level, options.log_format)
    if (inherited := os.environ.pop(_SOCKET, None)) is not None:
        return _work(options, *map(int, inherited.split(",")))
    with listen(options.host, options.port) as listening:
        if options.workers > 1:
            return _supervise(options, listening)
        app = create_app(load_engine(options), options.format, settings)
        warn(app.state.gateway)
        serve(app, listening, options, ready=lambda: print(greeting(app, listening), flush=True))
    return 0


def load_engine(options: argparse.Namespace) -> Engine:
    """The engine that the options name, with a recorder around it if they want one."""
    engine = _elsewhere(options) if options.engine else _embedded(options)
    if options.record is None:
        return engine
    from unbraid.engines.recording import Recorder

    return Recorder(engine, options.record)


def _embedded(options: argparse.Namespace) -> Engine:
    from unbraid.engines.llama import LlamaEngine
    from unbraid.engines.model import SAMPLING, default_model
    from unbraid.engines.profile import template_in

    template = template_in(options.chat_template) if options.chat_template else None  # before a model is fetched
    path, sampling = (options.model, None) if options.model else (default_model(), SAMPLING)
    context = options.ctx or 4096
    return LlamaEngine(
        path,
        threads=options.threads,
        context=context,
        parallel=options.parallel,
        sampling=sampling,
        chat_template=template,
    )


def _elsewhere(options: argparse.Namespace) -> Engine:
    from unbraid.engines.connect import connect
    from unbraid.engines.profile import Local
    from unbraid.engines.remote import Timing

    local = Local(options.engine_model, options.tokenizer, options.chat_template, options.ctx)
    timing = Timing(options.connect_timeout, options.first_token_timeout, options.stall_timeout, options.retries)
    return connect(
        options.engine,
        options.engine_kind,
        local=local,
        key=options.engine_key,
        timing=timing,
        pace=options.pace,
        burst=options.burst,
    )


def warn(gateway: Gateway) -> None:
    """Log why the format can't be this model's, or nobody can chat with it. It is served all the same, for a lint knows less than
    whoever chose it, and raw text needs no template."""
    from unbraid.lint import lint, ordered
    from unbraid.probes import lint_template
    from unbraid.server.gateway import NO_TEMPLATE

    engine, format = gateway.engine, gateway.format
    bound = None if gateway.text_mode else gateway.bound
    found = lint(format, None if bound is None else engine.vocabulary)
    if not engine.chat_template:
        log.warning("%s: only /v1/completions will be answered", NO_TEMPLATE)
    else:
        found = ordered([*found, *lint_template(format, engine.chat_template, engine.special_tokens, bound)])
    for finding in found:
        if finding.level == "error":
            log.warning(
                "format %s doesn't fit %s: %s: %s; %s (`unbraid lint` says more, --format names another)",
                format.name, gateway.model_names[0], finding.place.partition(", ")[0], finding.message, finding.why,
            )  # fmt: skip


def listen(host: str, port: int) -> socket.socket:
    """The socket is taken before the model is loaded: an occupied port is told at once."""
    try:
        host.encode("idna")  # as it is looked up
    except UnicodeError:
        raise OptionError(f"{host!r} is no host: give --host a name or an address") from None
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (while attempting")[0]  # Python names the address once more
        message = f"can't listen on {host}:{port} ({why}); give another --port, or 0 for a free one"
        raise OptionError(message) from None


_LAST_WORDS = 2
"""Seconds for requests that are cut to be told so. Whoever hasn't taken it by then is hung up on: that counts as if the client had left."""
_LAST_RESORT = 3
"""Seconds until uvicorn cancels what is left, and logs each as if the application had failed."""


def serve(app: Starlette, listening: socket.socket, options: argparse.Namespace, *, ready: Any) -> None:
    """Until a signal comes. `ready` is called once connections are accepted."""
    import uvicorn

    # What is here now (tables, a vocabulary of 150,000 tokens) stays: the collector needn't look at it again and again. And
    # requests make few cycles, so it needn't look often.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    early: list[int] = []

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready()
            if early:
                self.should_exit = True

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            later = asyncio.get_running_loop().call_later
            timers = later(options.drain, app.state.drain.end), later(options.drain + _LAST_WORDS, self._hang_up)
            await super().shutdown(sockets)
            for timer in timers:
                timer.cancel()

        def _hang_up(self) -> None:
            for connection in list(self.server_state.connections):
                connection.transport.abort()

    if options.tracing:
        from unbraid.server.tracing import export

        export()
    config = configuration(app, drain=options.drain + _LAST_RESORT, header_seconds=options.header_seconds)
    # Once drained, uvicorn raises the signal again for whoever had a handler before it; that a drained server dies of
    # the signal it obeyed would look like a crash. A signal that comes before uvicorn listens for it isn't lost either.
    before = {n: signal.signal(n, lambda number, _: early.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        Server(config).run(sockets=[listening])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def configuration(app: Starlette, *, drain: int, header_seconds: float) -> uvicorn.Config:
    """How uvicorn serves the application."""
    import uvicorn

    from unbraid.server.connection import http_protocol

    return uvicorn.Config(
        app,
        http=http_protocol(header_seconds),
        ws="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=drain,
        server_header=False,
        date_header=False,
    )


def greeting(app: Starlette, listening: socket.socket) -> str:
    """Where it listens, and a line to paste."""
    gateway = app.state.gateway
    what = f"{gateway.model_names[0]} (format {gateway.format.name})"
    return _greeting(what, listening, locked=bool(gateway.settings.api_keys))


def _greeting(what: str, listening: socket.socket, *, locked: bool) -> str:
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": LOOPBACK, "::": LOOPBACK}.get(host, host)
    url = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
    key = " -H 'Authorization: Bearer KEY'" if locked else ""
    return (
        f"unbraid serves {what} at {url}/v1\n"
        f"try it:\n"
        f"  curl -N {url}/v1/chat/completions -H 'Content-Type: application/json'{key} \\\n"
        f'    -d \'{{"messages": [{{"role": "user", "content": "What is the capital of France?"}}], "stream": true}}\''
    )


# -- several workers ---------------------------------------------------------------------------------------------------


def _work(options: argparse.Namespace, number: int, pipe: int) -> int:
    """One worker, on the socket that it has inherited."""
    from unbraid.server import create_app

    app = create_app(load_engine(options), options.format, settings_of(options))
    gateway = app.state.gateway
    warn(gateway)

    def ready() -> None:
        with os.fdopen(pipe, "w") as said:
            said.write(f"{gateway.model_names[0]} (format {gateway.format.name})")

    with socket.socket(fileno=number) as listening:
        serve(app, listening, options, ready=ready)
    return 0


def _supervise(options: argparse.Namespace, listening: socket.socket) -> int:
    """Start the workers, replace those that die, and end with them."""
    if not options.engine:
        raise OptionError("--workers: the embedded engine lives in one process; several need --engine")
    with _shared_metrics(options):
        workers: list[subprocess.Popen[bytes]] = []
        stopping = False

        def stop(number: int, _: Any) -> None:
            nonlocal stopping
            stopping = True
            for worker in workers:
                worker.send_signal(number)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            first, what = _start(listening)
            workers.append(first)
            if not what:
                return first.wait()  # it has said on standard error why it can't
            workers += [_start(listening)[0] for _ in range(options.workers - 1)] if not stopping else []
            print(_greeting(what, listening, locked=bool(settings_of(options).api_keys)), flush=True)
            while not stopping:
                time.sleep(0.2)
                for at, worker in enumerate(workers):
                    if worker.poll() is not None and not stopping:
                        workers[at] = _start(listening)[0]
            for worker in workers:
                worker.terminate()  # the last one may have come up after the signal
                worker.wait()
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.kill()
            for number, handler in before.items():
                signal.signal(number, handler)
        return 0


def _start(listening: socket.socket) -> tuple[subprocess.Popen[bytes], str]:
    """One worker with the arguments of this process, and what it says that it serves; nothing if it doesn't come up."""
    reading, writing = os.pipe()
    environment = {**os.environ, _SOCKET: f"{listening.fileno()},{writing}"}
    command = [sys.executable, "-m", "unbraid", *sys.argv[1:]]
    worker = subprocess.Popen(command, env=environment, pass_fds=(listening.fileno(), writing))
    os.close(writing)
    with os.fdopen(reading) as said:
        return worker, said.read()


@contextmanager
def _shared_metrics(options: argparse.Namespace) -> Iterator[None]:
    """A directory in which the workers add up their metrics."""
    if not options.metrics or "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="unbraid-metrics-") as directory:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = directory
        yield
        del os.environ["PROMETHEUS_MULTIPROC_DIR"]
