"""The application of every service of ours: FastAPI with problem details, a page of its interface, a guard, metrics,
and a true description."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager
from email.message import Message
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import HTTPException
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute, request_response
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from idgraph.model import json_text
from idgraph.web import api_page, metrics, problems
from idgraph.web.codings import SMALLEST_BYTES, Compressing, Decompressing, Heads
from idgraph.web.guard import MARKS, Access, Guard, at_once
from idgraph.web.metrics import Gauge
from idgraph.web.refusals import RefusedRequestError

FREE = frozenset({"/health/live", "/health/ready", "/healthz", metrics.PATH, "/openapi.json", api_page.PATH})
"""Paths that need no token."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]

_DEFINITIONS = "#/$defs/"
_SCHEMAS = "#/components/schemas/"


class Application(FastAPI):
    """A service. `state.before_shutdown` is called when it is asked to stop, before it waits for its requests."""

    def __init__(
        self,
        title: str,
        access: Access,
        routers: Iterable[APIRouter],
        lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
        gauges: Mapping[str, Gauge],
        before_shutdown: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(
            title=f"idgraph {title}", version="1", docs_url=None, redoc_url=None, lifespan=lifespan
        )
        self.entrance: ASGIApp = Heads(super().__call__)
        """The whole application; may be replaced by one that answers some calls itself."""
        self.access = access
        self.state.before_shutdown = before_shutdown
        self._free = access.free
        problems.install(self)
        api_page.install(self)
        for router in routers:
            # They are ready: `include_router` would make each of them again, which takes longer than a request.
            self.router.routes.extend(router.routes)
        for route in self.router.routes:
            # Routes are shared by all applications of a process.
            if isinstance(route, APIRoute) and route.path.startswith("/v1/"):
                app = getattr(route.app, "strict_app", None) or reading_app(route)
                route.app = StrictParameters(app, query_names(route.dependant))
        self.add_middleware(Compressing)
        self.add_middleware(Decompressing, most_bytes=access.max_body_bytes)
        self.add_middleware(Guard, access=access, title=title)
        metrics.install(self, f"idgraph_{title}", gauges)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Before all that is added, pages too."""
        await self.entrance(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """The interface description, with the token that the guard asks for and the problems that any call can get."""
        if not self.openapi_schema:
            document = get_openapi(title=self.title, version=self.version, routes=self.routes)
            components = document.setdefault("components", {})
            components.setdefault("securitySchemes", {})["token"] = {"type": "http", "scheme": "bearer"}
            document["security"] = [{"token": []}]
            _lift_definitions(document, components.setdefault("schemas", {}))
            problems.describe(document, self._free)
            self.openapi_schema = document
        return self.openapi_schema


class StrictParameters:
    """A route that refuses query parameters of other names: what is misspelt would count as left out."""

    def __init__(self, app: ASGIApp, known: Iterable[str]) -> None:
        self.strict_app, self.known = app, frozenset(known)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = QueryParams(scope["query_string"]) if scope["query_string"] else ()
        unknown = [each for each in asked if each not in self.known]
        app = problems.unknown_parameter(unknown[0], self.known) if unknown else self.strict_app
        await app(scope, receive, send)


_JSON = "application/json"


def reading_app(route: APIRoute) -> ASGIApp:
    """The app of a route. If it has a JSON body, what the reader refuses is refused (422, with the place), and a body of
    another content type too (415)."""
    field = route.body_field
    if field is None or getattr(field.field_info, "media_type", _JSON) != _JSON:
        return route.app
    handle: Handler = route.get_route_handler()

    async def read(request: Request) -> Response:
        if body := await request.body():
            _check_type(request)
            try:
                # FastAPI looks here first.
                request._json = json_text.read(body.decode("utf-8-sig"), has_doubles=True)
            except json_text.JsonTextError as error:
                if error.is_json:
                    first = error.problems[0]
                    raise RefusedRequestError(first.message, first.pointer) from None
            except UnicodeDecodeError:
                raise HTTPException(400, "the body is not UTF-8") from None
        return await handle(request)

    return request_response(read)


def _check_type(request: Request) -> None:
    header = Message()
    header["Content-Type"] = request.headers.get("content-type", "")
    kind, _, form = header.get_content_type().partition("/")
    if not (kind == "application" and (form == "json" or form.endswith("+json"))):
        raise HTTPException(415, "the body is no JSON by its header; send Content-Type: application/json")


def query_names(dependant: Dependant) -> Iterator[str]:
    """The names of all query parameters of a route."""
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from (each.alias or name for name, each in model.model_fields.items())
        else:
            yield field.alias
    for each in dependant.dependencies:
        yield from query_names(each)


_ELSEWHERE = frozenset((b"origin", b"content-length", b"transfer-encoding", b"content-encoding"))
"""Headers of calls that go the long way, as do those that have one twice."""
_UNCHANGED = 304

Look = Callable[[Any, bytes, str | None], tuple[str, bytes | None] | None]
"""Gets the caller, the rest of the path as it was sent, and `If-None-Match`; gives the ETag, and the body unless the caller has
it. None for what goes the long way. Does not block."""

RawHeaders = Sequence[tuple[bytes, bytes]]


class PlainCalls:
    """ASGI middleware for `GET` of one segment behind `prefix`, without parameters: answered before the framework sees it, as it would
    answer it, byte for byte. Only what is granted and found is answered here. Any other call goes the long way, also one that was
    tried: its answer, an error, is made there."""

    def __init__(
        self, app: Application, prefix: str, route: str, look: Look, headers: RawHeaders = ()
    ) -> None:
        """`route` is its name in the metrics; `headers` are added to each answer."""
        self._headers = headers
        self.app: ASGIApp = app.entrance
        """The long way."""
        self._access = app.access
        self._prefix, self._look = prefix.encode(), look
        self._route = route
        seconds = app.state.request_seconds
        self._seconds = {status: seconds.labels("GET", route, status) for status in (200, _UNCHANGED)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "GET"
            or scope["query_string"]
            or not scope["raw_path"].startswith(self._prefix)
            or b"/" in (rest := scope["raw_path"][len(self._prefix) :])
        ):
            return await self.app(scope, receive, send)
        started = time.perf_counter()
        try:
            found = self._answered(scope, rest)
        except Exception:
            found = None  # The long way reports it.
        if found is None:
            return await self.app(scope, receive, send)
        caller, request, status, headers, body = found
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        seconds = time.perf_counter() - started
        self._seconds[status].observe(seconds)
        metrics.log_request(request, "GET", self._route, status, seconds, caller)
        return None

    def _answered(
        self, scope: Scope, rest: bytes
    ) -> tuple[str, bytes | None, int, list[tuple[bytes, bytes]], bytes] | None:
        """Name of the caller, id of the request, status, headers and body."""
        headers = dict(scope["headers"])
        if len(headers) < len(scope["headers"]) or not _ELSEWHERE.isdisjoint(headers):
            return None
        scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            return None
        admitted = at_once(self._access, token.strip(), "GET", scope["path"])
        if admitted is None:
            return None
        caller, turn = admitted
        known = headers.get(b"if-none-match")
        etag, body = self._look(caller, rest, known and known.decode("latin-1")) or ("", None)
        is_compressed = len(body or b"") >= SMALLEST_BYTES and b"gzip" in headers.get(b"accept-encoding", b"")
        if not etag or is_compressed:
            if turn is not None and self._access.rate is not None:
                self._access.rate.give_back(self._access.charged(caller))
            return None
        answered = [(b"etag", etag.encode()), (b"cache-control", b"no-store")]
        if body is not None:
            answered += [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        answered += [each for each in MARKS if each[0] != b"cache-control"]
        answered += turn.headers() if turn is not None else ()
        request = metrics.request_id(scope)
        answered += () if request is None else (metrics.id_header(request),)
        answered += self._headers
        return str(caller.name), request, (_UNCHANGED if body is None else 200), answered, body or b""


def _lift_definitions(node: Any, schemas: MutableMapping[str, Any]) -> None:
    """Schemas that are embedded with definitions of their own: these become schemas of the document, where references lead."""
    if isinstance(node, dict):
        for name, definition in node.pop("$defs", {}).items():
            schemas.setdefault(name, definition)
            _lift_definitions(definition, schemas)
        reference = node.get("$ref")
        if isinstance(reference, str) and reference.startswith(_DEFINITIONS):
            node["$ref"] = _SCHEMAS + reference.removeprefix(_DEFINITIONS)
        for each in list(node.values()):
            _lift_definitions(each, schemas)
    elif isinstance(node, list):
        for each in node:
            _lift_definitions(each, schemas)
