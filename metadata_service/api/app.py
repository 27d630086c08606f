"""The metadata service as an ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from fastapi import FastAPI
from sqlalchemy.exc import SQLAlchemyError

from idgraph.web.application import Application
from idgraph.web.metrics import Gauge
from idgraph.web.openid import OpenId
from metadata_service.api import database_problems
from metadata_service.api.access import access
from metadata_service.api.routes import (
    attributes,
    documents,
    keys,
    many_attributes,
    models,
    pipeline,
    requests,
    sandboxes,
    specs,
    users,
)
from metadata_service.api.service import ChangeWatch, MetadataService, ServiceSettings
from metadata_service.attributes.undecided import waiting_on
from metadata_service.specs.rules import CompileSpec, packaged_compiler
from metadata_service.storage.database import Database, open_database
from metadata_service.storage.snapshots import SnapshotCache
from metadata_service.ui.app import BesidePages, create_pages
from metadata_service.ui.page import ProfileSource

ROUTERS = (
    attributes.router,
    attributes.facets_router,
    many_attributes.edits,
    many_attributes.events,
    many_attributes.counts_router,
    many_attributes.purges,
    users.callers,
    pipeline.router,
    pipeline.catalogue,
    pipeline.schema,
    pipeline.health,
    specs.router,
    specs.health_router,
    specs.completions_router,
    keys.router,
    requests.router,
    requests.policy_changes,
    requests.redactions,
    sandboxes.router,
    models.router,
    users.router,
    users.own,
    *documents.ROUTERS,
)


def create_app(
    settings: ServiceSettings,
    compile_spec: CompileSpec = packaged_compiler,
    profile_source: ProfileSource | None = None,
    openid: OpenId | None = None,
) -> FastAPI:
    """Open the database, bringing its tables up to date, and serve it, with the pages that people use. Their page of a
    profile asks `profile_source`; `openid` has single sign-on.

    The database is closed when the application shuts down. Raises ConfigError for a database URL that
    cannot be used; SQLAlchemyError when the database is away.
    """
    database = open_database(settings.database_url, settings.key.history if settings.key else b"")
    watch = ChangeWatch(lambda: str(database.revision()), settings.poll_seconds)
    snapshots = SnapshotCache(database)
    snapshot_watch = ChangeWatch(lambda: str(snapshots.revision()), settings.poll_seconds)
    callers_watch = ChangeWatch(lambda: users.trace_of_callers(database), settings.poll_seconds)
    watches = watch, snapshot_watch, callers_watch
    database.listeners += [each.poke for each in watches]

    def let_go() -> None:
        for each in watches:
            each.close()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        let_go()
        database.close()

    app = Application(
        "metadata",
        access(database, settings.max_body_bytes, openid),
        ROUTERS,
        lifespan,
        {
            "revision": Gauge("Version of the newest snapshot.", lambda: _version(database)),
            "attributes_over_cap": Gauge(
                "Reports of new attributes today that a cap kept out of the catalogue.",
                lambda: _over_cap(database),
            ),
            "database_up": Gauge(
                "1 while the database answers.", lambda: float(_version(database) is not None)
            ),
        },
        # Waiting readers are let go, so that stopping does not wait for them.
        before_shutdown=let_go,
    )
    database_problems.install(app)
    app.state.service = MetadataService(
        settings, database, snapshots, watch, snapshot_watch, callers_watch, compile_spec
    )
    app.state.pages = create_pages(app.state.service, profile_source, openid)
    app.add_middleware(BesidePages, pages=app.state.pages)
    return app


def _over_cap(database: Database) -> int | None:
    try:
        with database.read() as session:
            return waiting_on(session, datetime.now(UTC))
    except SQLAlchemyError:
        return None


def _version(database: Database) -> int | None:
    try:
        return database.revision().version
    except SQLAlchemyError:
        return None
