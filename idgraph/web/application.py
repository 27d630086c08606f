"""The application of every service of ours: FastAPI with problem details, a page of its interface, a guard, metrics,
and a true description."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from email.message import Message
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.exceptions import HTTPException
from fastapi.openapi.utils import get_openapi
from fastapi.params import Form
from fastapi.routing import APIRoute, request_response
from pydantic import BaseModel
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from idgraph.model import json_text
from idgraph.web import api_page, metrics, problems
from idgraph.web.codings import Compressing, Decompressing, Heads
from idgraph.web.guard import Access, Guard
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
        self._heads = Heads(super().__call__)
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
        await self._heads(scope, receive, send)

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


def reading_app(route: APIRoute) -> ASGIApp:
    """The app of a route. If it has a JSON body, what the reader refuses is refused (422, with the place), and a body of
    another content type too (415)."""
    if route.body_field is None or isinstance(route.body_field.field_info, Form):
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
