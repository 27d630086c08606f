"""The layers before every route: the guard (caller, role, size of the body), and the metrics of requests.

The guard stands outside the application because FastAPI reads a whole body before it runs a dependency.

`/metrics` has Prometheus' text format: requests by route, their durations, and the revision. A route is named by its
pattern: a path may hold a person's name.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import FastAPI, Request, Response
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idgraph.web import api_page
from idgraph.web.problems import problem
from metadata_service.storage.database import Database
from metadata_service.storage.tokens import Role, authenticate

FREE = frozenset({"/health/live", "/health/ready", "/healthz", "/metrics", "/openapi.json", api_page.PATH})
READING = frozenset({"GET", "HEAD", "OPTIONS"})
CHALLENGE = 'Bearer realm="idgraph metadata"'


class Guard:
    """ASGI middleware. Every path needs a token unless it is in `FREE`."""

    def __init__(self, app: ASGIApp, database: Database, max_body_bytes: int) -> None:
        self._app = app
        self._database = database
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in FREE:
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            answer = problem(401, "no-token", "a bearer token is needed", {"WWW-Authenticate": CHALLENGE})
            return await answer(scope, receive, send)
        try:
            caller = await run_in_threadpool(authenticate, self._database, token.strip())
        except SQLAlchemyError:
            answer = problem(503, "database", "the database does not answer", {"Retry-After": "1"})
            return await answer(scope, receive, send)
        if caller is None:
            challenge = {"WWW-Authenticate": f'{CHALLENGE}, error="invalid_token"'}
            answer = problem(401, "bad-token", "the token is unknown, revoked or expired", challenge)
        elif not is_allowed(caller.role, scope["method"], scope["path"]):
            answer = problem(403, "role", f"the role {caller.role} may not do this")
        elif int(headers.get("content-length") or 0) > self._max_body_bytes:
            answer = problem(413, "too-large", f"a body has at most {self._max_body_bytes} bytes")
        else:
            scope.setdefault("state", {})["caller"] = caller
            return await self._app(scope, self._bounded(receive), send)
        return await answer(scope, receive, send)

    def _bounded(self, receive: Receive) -> Receive:
        left = self._max_body_bytes

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:  # chunked: no length was announced. FastAPI makes it a 400.
                raise ValueError("the body is too large")
            return message

        return bounded


def is_allowed(role: Role, method: str, path: str) -> bool:
    """The rights of a role."""
    if role is Role.ADMIN or method in READING:
        return True
    return role is Role.PIPELINE and (method, path) == ("PATCH", "/v1/schema")


METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Up to a minute: a flow waits in `/v1/snapshot` for the next one."""


def install_metrics(app: FastAPI) -> None:
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
