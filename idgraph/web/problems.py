"""Every error as problem details (RFC 9457). A caller's input is never repeated."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from idgraph.model.errors import (
    AlreadyRunningError,
    DamagedStateError,
    IdgraphError,
    KeyProviderError,
    MetadataError,
    ProfileIndexError,
    PublishError,
    QueryError,
    SpecError,
    StoreError,
)
from idgraph.model.paths import located, pointer
from idgraph.model.text import nearest
from idgraph.web.refusals import (
    BadQueryError,
    ClashError,
    ForbiddenError,
    NotReadyError,
    NotYetError,
    PreconditionError,
    RateError,
    RefusedRequestError,
    SamePersonError,
    UnknownSubjectError,
)

log = logging.getLogger(__name__)

STATUS: dict[type[IdgraphError], int] = {
    BadQueryError: 400,
    QueryError: 400,
    ForbiddenError: 403,
    UnknownSubjectError: 404,
    AlreadyRunningError: 409,
    ClashError: 409,
    SamePersonError: 409,
    PreconditionError: 412,
    RateError: 429,
}
"""By the class of an error, else that of its nearest base; all others are 500."""

KINDS: dict[type[IdgraphError], str] = {UnknownSubjectError: "unknown-subject"}
"""By the class of an error; all others are named as it, without hyphens."""

AWAY: dict[type[IdgraphError], str] = {
    StoreError: "the profile store does not answer",
    ProfileIndexError: "the search index does not answer",
    KeyProviderError: "the keys cannot be used",
    PublishError: "the event cannot be published",
    NotReadyError: "the metadata service has not answered yet",
    NotYetError: "the position is not committed and searchable yet",
}
"""Errors of a part that comes back: 503. Their messages are for the log alone."""


def problem(
    status: int, kind: str, detail: str, headers: Mapping[str, str] | None = None, **members: Any
) -> Response:
    """One problem; members that are None are left out."""
    document = {
        "type": f"urn:idgraph:problem:{kind}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    } | {name: value for name, value in members.items() if value is not None}
    return Response(json.dumps(document), status, headers, media_type="application/problem+json")


def unavailable(kind: str, detail: str) -> Response:
    """503: ask again in a second."""
    return problem(503, kind, detail, {"Retry-After": "1"})


def too_many(error: RateError) -> Response:
    """429: ask again later."""
    return problem(429, "rate", str(error), {"Retry-After": str(error.reset_seconds)})


def unknown_parameter(name: str, known: Collection[str]) -> Response:
    """400: a query parameter that the route has not."""
    detail = "the query has a parameter that this call has not"
    near = nearest(name, known)
    hint = f"did you mean {near}?" if near else f"it has {', '.join(sorted(known)) or 'none'}"
    errors = [{"detail": detail, "parameter": f"query.{name}"}]
    return problem(400, "unknown-parameter", detail, hint=hint, errors=errors)


PROBLEM: dict[str, Any] = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "`urn:idgraph:problem:` and the kind."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "The failure and its place."},
        "pointer": {"type": "string", "description": "JSON pointer of the wrong place in the body."},
        "hint": {"type": "string"},
        "errors": {"type": "array", "items": {"type": "object"}},
    },
}


def describe(document: dict[str, Any], free: Collection[str]) -> None:
    """Say in an OpenAPI document that every operation answers errors as problems, and which need no token."""
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"] = PROBLEM
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)
            operation["responses"]["default"] = {"description": "A problem.", "content": content}
            if path in free:
                operation["security"] = []


def _allowed(app: FastAPI, scope: Scope) -> set[str]:
    """The methods of a path: those of its own routes, not of one that takes any text in its place."""
    found: dict[str, set[str]] = {}
    for route in app.routes:
        if isinstance(route, Route) and route.matches(scope)[0] is not Match.NONE:
            found.setdefault(route.path, set()).update(route.methods or ())
    return found.get(scope["path"]) or next(iter(found.values()), set())


def install(app: FastAPI) -> None:
    """Let the application answer every error this way."""

    @app.exception_handler(SpecError)
    @app.exception_handler(RefusedRequestError)
    def refused(_request: Request, error: SpecError | RefusedRequestError) -> Response:
        kind = "spec-refused" if isinstance(error, SpecError) else "refused"
        return problem(422, kind, error.message, pointer=error.pointer, hint=error.hint)

    @app.exception_handler(RequestValidationError)
    def invalid(_request: Request, error: RequestValidationError) -> Response:
        return _invalid(error)

    @app.exception_handler(RateError)
    def over_the_rate(_request: Request, error: RateError) -> Response:
        return too_many(error)

    @app.exception_handler(IdgraphError)
    def other(_request: Request, error: IdgraphError) -> Response:
        bases = type(error).__mro__
        if not isinstance(error, DamagedStateError):
            for base in bases:
                if base in AWAY:
                    # The code that waits for the other service says once that it is away.
                    if not isinstance(error, NotYetError | NotReadyError):
                        log.error("%s: %s", type(error).__name__, error)
                    return unavailable("unavailable", AWAY[base])
        kind = KINDS.get(type(error)) or type(error).__name__.removesuffix("Error").lower()
        status = next((STATUS[base] for base in bases if base in STATUS), 500)
        if status == 500 and not isinstance(error, MetadataError):
            log.error("%s: %s", type(error).__name__, error)
            return problem(500, "crash", "an error of the service; its log has more")
        return problem(status, kind, str(error))

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        if error.status_code == 405:
            # Each method of a path is a route of its own, and the one that answers names only its own.
            allowed = _allowed(app, request.scope)
            headers["Allow"] = ", ".join(sorted(allowed | ({"HEAD"} if "GET" in allowed else set())))
        return problem(error.status_code, "http", str(error.detail), headers)

    @app.exception_handler(Exception)
    def crashed(_request: Request, _error: Exception) -> Response:
        return problem(500, "crash", "an error of the service; its log has more")


def _invalid(error: RequestValidationError) -> Response:
    errors = [
        {"detail": wrong["msg"].removeprefix("Value error, "), **_place(wrong, error.body)}
        for wrong in error.errors()
    ]
    first = errors[0]
    if error.errors()[0]["type"] == "json_invalid":
        return problem(400, "not-json", "the body is not JSON")
    return problem(422, "invalid", first["detail"], pointer=first.get("pointer"), errors=errors)


def _place(wrong: Mapping[str, Any], body: Any) -> dict[str, str]:
    where, *keys = wrong["loc"]
    if where != "body":
        return {"parameter": ".".join(map(str, (where, *keys)))}
    found = located(keys, body)
    if wrong["type"] == "missing":
        found += keys[-1:]
    return {"pointer": pointer(*found)}
