"""OpenTelemetry: a span per request, in the caller's trace, with the attributes that the GenAI conventions name.

Needs the extra `telemetry`. Where spans go, OpenTelemetry's own environment says (`OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_SERVICE_NAME`, ...). Texts aren't among the attributes.
"""

from __future__ import annotations

from typing import Any

try:
    from opentelemetry import propagate, trace
    from opentelemetry.trace import SpanKind, Status, StatusCode
except ImportError as missing:
    from unbraid.errors import EngineError

    raise EngineError("tracing needs OpenTelemetry: pip install 'unbraid[telemetry]'") from missing

from unbraid.server.observe import Exchange


class Tracing:
    """Makes a span of every request that is over. `provider`: whose spans they are; `None`: the global one."""

    def __init__(self, model: str, provider: Any = None) -> None:
        self._model = model
        self._tracer = trace.get_tracer("unbraid.server", tracer_provider=provider)

    def began(self, exchange: Exchange) -> None:
        """A span is written once all is known of it, with the times that it had."""

    def ended(self, exchange: Exchange) -> None:
        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in exchange.headers}
        span = self._tracer.start_span(
            f"{exchange.method} {exchange.place}",
            context=propagate.extract(carrier),
            kind=SpanKind.SERVER,
            start_time=exchange.began_ns,
            attributes=self._attributes(exchange),
        )
        if exchange.status >= 500 or exchange.status == 0:
            span.set_status(Status(StatusCode.ERROR))
        span.end(exchange.began_ns + int(exchange.seconds * 1e9))

    def _attributes(self, exchange: Exchange) -> dict[str, Any]:
        found: dict[str, Any] = {
            "http.request.method": exchange.method,
            "http.route": exchange.place,
            "http.response.status_code": exchange.status,
            "unbraid.request.id": exchange.id,
        }
        plan = exchange.plan
        if plan is None:
            return found
        tokens = exchange.tokens
        found |= {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self._model,
            "gen_ai.usage.input_tokens": plan.prompt_tokens,
            "gen_ai.usage.output_tokens": sum(tokens.values()),
            "gen_ai.response.finish_reasons": [run.watch.finish for run in plan.runs],
        }
        if (first := exchange.first_token) is not None:
            found["gen_ai.server.time_to_first_token"] = first
        return found | {f"unbraid.tokens.{strand}": count for strand, count in tokens.items()}


def export() -> None:
    """Send spans where the environment says, in the background."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
