"""What every service of ours is made of: a FastAPI application with problem details, a page of its interface, a guard,
metrics, and a description that is true."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi

from idgraph.web import api_page, metrics, problems
from idgraph.web.guard import Access, Guard
from idgraph.web.metrics import Gauge

FREE = frozenset({"/health/live", "/health/ready", "/healthz", metrics.PATH, "/openapi.json", api_page.PATH})
"""Paths that need no token."""

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
        self.state.before_shutdown = before_shutdown
        self._free = access.free
        problems.install(self)
        api_page.install(self)
        for router in routers:
            # They are ready: `include_router` would make each of them again, which takes longer than a request.
            self.router.routes.extend(router.routes)
        self.add_middleware(Guard, access=access, title=title)
        metrics.install(self, f"idgraph_{title}", gauges)

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
