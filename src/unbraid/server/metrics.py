"""Prometheus metrics, served at `/metrics`. Several workers share them if `PROMETHEUS_MULTIPROC_DIR` names a directory.

unbraid_requests_total{path, status, stream}      requests that are over; status 0: the client left before there was one
unbraid_requests_in_flight                        requests being served now
unbraid_request_seconds{path}                     from the request to the end of its reply
unbraid_first_token_seconds                       from the request to the engine's first step
unbraid_prompt_tokens_total, unbraid_tokens_total{strand}
unbraid_choices_total{finish}                     aborted: the client left, or the engine failed
unbraid_calls_total{outcome}                      complete; incomplete: cut off; withdrawn: malformed
unbraid_diagnostics_total{format, kind}           where an output left its format
"""

from __future__ import annotations

import os
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from unbraid.server.observe import Exchange

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The metrics of one application, of the format that it serves."""

    type = CONTENT_TYPE_LATEST

    def __init__(self, format: str) -> None:
        self._format = format
        self._registry = CollectorRegistry()
        own: Any = {"namespace": "unbraid", "registry": self._registry}
        self._requests = Counter("requests_total", "Requests that are over.", ["path", "status", "stream"], **own)
        self._running = Gauge("requests_in_flight", "Requests being served now.", multiprocess_mode="livesum", **own)
        self._seconds = Histogram("request_seconds", "To the end of the reply.", ["path"], buckets=_SECONDS, **own)
        self._first = Histogram("first_token_seconds", "To the engine's first step.", buckets=_SECONDS, **own)
        self._prompt = Counter("prompt_tokens_total", "Tokens of prompts.", **own)
        self._tokens = Counter("tokens_total", "Tokens written.", ["strand"], **own)
        self._choices = Counter("choices_total", "Choices that are over.", ["finish"], **own)
        self._calls = Counter("calls_total", "Tool calls.", ["outcome"], **own)
        self._diagnostics = Counter("diagnostics_total", "Output that left its format.", ["format", "kind"], **own)

    def began(self, exchange: Exchange) -> None:
        self._running.inc()

    def ended(self, exchange: Exchange) -> None:
        self._running.dec()
        plan = exchange.plan
        stream = "true" if plan is not None and plan.stream else "false"
        self._requests.labels(exchange.place, str(exchange.status), stream).inc()
        self._seconds.labels(exchange.place).observe(exchange.seconds)
        if plan is None:
            return
        if (first := exchange.first_token) is not None:
            self._first.observe(first)
        self._prompt.inc(plan.prompt_tokens)
        for strand, count in exchange.tokens.items():
            self._tokens.labels(strand).inc(count)
        for run in plan.runs:
            watch = run.watch
            self._choices.labels(watch.finish).inc()
            for outcome, count in watch.calls.items():
                self._calls.labels(outcome).inc(count)
            for kind, count in watch.diagnostics.items():
                self._diagnostics.labels(self._format, kind).inc(count)

    def text(self) -> bytes:
        """All of it, as Prometheus reads it."""
        if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
            return generate_latest(self._registry)
        shared = CollectorRegistry()
        MultiProcessCollector(shared)  # type: ignore[no-untyped-call]
        return generate_latest(shared)
