"""`/metrics` of the service, in Prometheus' text format: requests by route, how long they took, and its revision.

A route is reported by its pattern: what stands in a path may be a name that somebody gave.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idgraph.web.problems import problem
from metadata_service.storage.database import Database

METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Up to a minute: a flow waits in `/v1/snapshot` for the next one."""


def install(app: FastAPI) -> None:
    """Count the requests of an application and serve the counts. Without prometheus_client it says what is missing."""
    try:
        import prometheus_client
    except ModuleNotFoundError:
        app.add_api_route("/metrics", _missing, include_in_schema=False)
        return
    registry = prometheus_client.CollectorRegistry()
    seconds = prometheus_client.Histogram(
        "idgraph_metadata_request_seconds",
        "From a request to its answer.",
        ["method", "route", "status"],
        buckets=SECONDS,
        registry=registry,
    )
    revision = prometheus_client.Gauge(
        "idgraph_metadata_revision", "Version of the newest snapshot.", registry=registry
    )
    up = prometheus_client.Gauge(
        "idgraph_metadata_database_up", "1 while the database answers.", registry=registry
    )

    async def metrics(request: Request) -> Response:
        database: Database = request.app.state.service.database
        try:
            revision.set((await run_in_threadpool(database.revision)).version)
            up.set(1)
        except SQLAlchemyError:
            up.set(0)
        return Response(
            prometheus_client.generate_latest(registry), media_type=prometheus_client.CONTENT_TYPE_LATEST
        )

    app.add_api_route("/metrics", metrics, include_in_schema=False)
    app.add_middleware(_Observing, seconds=seconds)


async def _missing() -> Response:
    return problem(501, "metrics", "metrics need prometheus_client; install idgraph[metrics]")


class _Observing:
    """ASGI middleware that measures requests."""

    def __init__(self, app: ASGIApp, seconds: Any) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        started, status = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "-")
            # A client may make names of methods up, each of which would be a series.
            method = scope["method"] if scope["method"] in METHODS else "-"
            self._seconds.labels(method, route, status).observe(time.perf_counter() - started)
