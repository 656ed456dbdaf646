"""What stands between the network and the APIs: watching, keys, limits. From the outside in:

Observe   every request is counted, logged and traced, also one that is turned away
CORS      a browser that asks first, without a key, is told which pages may ask
Keys      who has no key gets no further
Limits    nor does one too many, or one that takes too long
"""

from __future__ import annotations

import logging

from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unbraid.server.gateway import Gateway
from unbraid.server.keys import Keys
from unbraid.server.limits import Limits
from unbraid.server.logs import AccessLog
from unbraid.server.observe import Observe, Watcher

log = logging.getLogger("unbraid.server")


def operation(gateway: Gateway) -> tuple[list[Middleware], list[Route]]:
    """The middleware of a server, and the routes that it brings."""
    settings = gateway.settings
    watchers: list[Watcher] = [AccessLog(contents=settings.log_contents)]
    routes = []
    if settings.metrics:
        routes += _metrics(gateway, watchers)
    if settings.tracing:
        from unbraid.server.tracing import Tracing

        watchers.append(Tracing(gateway.model_names[0]))
    stack = [Middleware(Observe, watchers=watchers)]
    if settings.cors_origins:
        stack.append(
            Middleware(CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"])
        )
    if settings.api_keys:
        stack.append(Middleware(Keys, keys=settings.api_keys))
    return [*stack, Middleware(Limits, settings=settings)], routes


def _metrics(gateway: Gateway, watchers: list[Watcher]) -> list[Route]:
    try:
        from unbraid.server.metrics import Metrics
    except ImportError:  # the library can be served without it
        log.info("no /metrics: pip install prometheus-client")
        return []
    metrics = Metrics(gateway.format.name)
    watchers.append(metrics)

    async def endpoint(request: Request) -> Response:
        return Response(metrics.text(), media_type=metrics.type)

    return [Route("/metrics", endpoint, methods=["GET"])]
