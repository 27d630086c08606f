"""Metrics in Prometheus' text format at `/metrics`: the counts and durations of a service's requests, by route.

A route is named by its pattern: a path may hold a person's name.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idgraph.repeating import FIELDS

if TYPE_CHECKING:
    from fastapi import FastAPI
    from prometheus_client import CollectorRegistry

PATH = "/metrics"
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Up to a minute: a flow waits in `/v1/snapshot` for the next one."""


_FOLDER = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def metrics_of_processes() -> Iterator[None]:
    """The processes that are started in the block count together: each answers with what all have counted."""
    with TemporaryDirectory(prefix="idgraph-metrics-") as folder:
        os.environ[_FOLDER] = folder
        yield
        del os.environ[_FOLDER]


def _of_all_processes() -> CollectorRegistry:
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


class Gauge(NamedTuple):
    """A figure of the service beside its requests; `read` may block, and returns None to leave the last value. With `labels`,
    one for each combination of their values."""

    meaning: str
    read: Callable[[], float | Mapping[tuple[str, ...], float] | None]
    labels: tuple[str, ...] = ()


def install(app: FastAPI, prefix: str, gauges: Mapping[str, Gauge]) -> None:
    """Count the requests of an application and serve the counts, named `PREFIX_request_seconds`."""
    import prometheus_client

    registry = prometheus_client.CollectorRegistry()
    prometheus_client.ProcessCollector(registry=registry)
    seconds = prometheus_client.Histogram(
        f"{prefix}_request_seconds",
        "From a request to its answer.",
        ["method", "route", "status"],
        buckets=SECONDS,
        registry=registry,
    )
    shown = {
        name: prometheus_client.Gauge(
            f"{prefix}_{name}",
            gauge.meaning,
            gauge.labels,
            registry=registry,
            multiprocess_mode="mostrecent",
        )
        for name, gauge in gauges.items()
    }

    async def metrics() -> Response:
        for name, gauge in gauges.items():
            value = await run_in_threadpool(gauge.read)
            if isinstance(value, Mapping):
                for labels, each in value.items():
                    shown[name].labels(*labels).set(each)
            elif value is not None:
                shown[name].set(value)
        return _exposition(registry if _FOLDER not in os.environ else _of_all_processes())

    app.add_api_route(PATH, metrics, include_in_schema=False)
    app.add_middleware(_Observing, seconds=seconds)
    app.state.request_seconds = seconds


def observation(
    registry: CollectorRegistry, is_ready: Callable[[], bool], detail: Callable[[], Mapping[str, Any]]
) -> Starlette:
    """The metrics and the health of a process that serves nothing else; `detail` is of its readiness."""

    def health(is_good: bool, **more: Any) -> Response:
        return _json({"status": "ok" if is_good else "unavailable", **more}, 200 if is_good else 503)

    return Starlette(
        routes=[
            Route(PATH, lambda _: _exposition(registry)),
            Route("/health/live", lambda _: health(True)),
            Route("/health/ready", lambda _: health(is_ready(), **detail())),
        ],
        exception_handlers={404: lambda *_: _json({"status": "not found"}, 404)},
    )


def _json(content: Mapping[str, Any], status: int) -> Response:
    return Response(json.dumps(content), status, media_type="application/json")


def _exposition(registry: CollectorRegistry) -> Response:
    from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


ACCESS = "idgraph.access"
"""The logger of requests."""

_access = logging.getLogger(ACCESS)
_access.setLevel(logging.CRITICAL)
_GIVEN = b"x-request-id"
_TRACE = b"traceparent"
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


def log_requests() -> None:
    """Log each request of this process from now on, with an id."""
    _access.setLevel(logging.INFO)


def request_id(scope: Scope) -> bytes | None:
    """The id that the caller has given to a request, or to its trace (W3C); else a new one where requests are logged."""
    for name, value in scope["headers"]:
        if name == _GIVEN and _ID.fullmatch(value):
            return bytes(value)
        if name == _TRACE and value.count(b"-") == 3:
            return bytes(value.split(b"-")[1])
    return os.urandom(8).hex().encode() if _access.isEnabledFor(logging.INFO) else None


def id_header(request: bytes) -> tuple[bytes, bytes]:
    """The header of the answer."""
    return _GIVEN, request


def log_request(
    request: bytes | None, method: str, route: str, status: int, seconds: float, caller: str
) -> None:
    """One line, if requests are logged. A path is named by its pattern: it may hold a person's name."""
    if _access.isEnabledFor(logging.INFO):
        found = (request or b"").decode()
        fields = {"request": found, "method": method, "route": route, "status": status, "caller": caller}
        fields["seconds"] = round(seconds, 6)
        text = "%s %s: %d after %.1f ms, by %s, request %s"
        _access.info(text, method, route, status, 1000 * seconds, caller, found, extra={FIELDS: fields})


class _Observing:
    """ASGI middleware that measures requests, and logs them where that is wanted."""

    def __init__(self, app: ASGIApp, seconds: Any) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started, status = time.perf_counter(), 500
        request = request_id(scope)

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if request is not None:
                    message["headers"] = [*message["headers"], id_header(request)]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "-")
            # A client may make names of methods up, each of which would be a series.
            method = scope["method"] if scope["method"] in METHODS else "-"
            seconds = time.perf_counter() - started
            self._seconds.labels(method, route, status).observe(seconds)
            caller = getattr(scope.get("state", {}).get("caller"), "name", "-")
            log_request(request, method, route, status, seconds, caller)
