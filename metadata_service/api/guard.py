"""The gate before every route: who calls, may they, and is the body small enough.

It stands outside the application because FastAPI reads a whole body before it runs a dependency.
"""

from __future__ import annotations

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
    """What a role may do."""
    if role is Role.ADMIN or method in READING:
        return True
    return role is Role.PIPELINE and (method, path) == ("PATCH", "/v1/schema")
