"""The metadata service as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from idgraph.web import api_page, problems
from idgraph.web.problems import KeepSlashes
from metadata_service.api.middleware import FREE, Guard, install_metrics
from metadata_service.api.routes import attributes, identity_rules, pipeline, policies, specs
from metadata_service.api.service import MetadataService, RevisionWatch, ServiceSettings
from metadata_service.specs.rules import CompileSpec, packaged_compiler
from metadata_service.storage.database import open_database
from metadata_service.storage.snapshots import SnapshotCache

ROUTERS = (
    attributes.router,
    identity_rules.router,
    policies.requests,
    policies.defaults_router,
    policies.levels_router,
    policies.log,
    pipeline.router,
    pipeline.schema,
    pipeline.health,
    specs.router,
)


def create_app(settings: ServiceSettings, compile_spec: CompileSpec = packaged_compiler) -> FastAPI:
    """Open the database, bringing its tables up to date, and serve it.

    The database is closed when the application shuts down. Raises ConfigError for a database URL that
    cannot be used; SQLAlchemyError when the database is away.
    """
    database = open_database(settings.database_url)
    watch = RevisionWatch(lambda: str(database.revision()), settings.poll_seconds)
    database.listeners.append(watch.poke)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        watch.close()
        database.close()

    app = _Application(
        title="idgraph metadata", version="1", docs_url=None, redoc_url=None, lifespan=lifespan
    )
    app.state.service = MetadataService(settings, database, SnapshotCache(database), watch, compile_spec)
    problems.install(app)
    api_page.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(Guard, database=database, max_body_bytes=settings.max_body_bytes)
    app.add_middleware(KeepSlashes)
    install_metrics(app)
    return app


class _Application(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """The interface description, with the token that the guard asks for."""
        if not self.openapi_schema:
            document = get_openapi(title=self.title, version=self.version, routes=self.routes)
            schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
            schemes["token"] = {"type": "http", "scheme": "bearer"}
            document["security"] = [{"token": []}]
            for path in FREE & document["paths"].keys():
                for operation in document["paths"][path].values():
                    operation["security"] = []
            self.openapi_schema = document
        return self.openapi_schema
