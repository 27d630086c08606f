"""The profile service as an ASGI application."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from anyio import to_thread
from fastapi import APIRouter, FastAPI
from starlette.middleware.cors import CORSMiddleware

from idgraph.model.errors import StoreError
from idgraph.model.jobs import JobKind, JobState
from idgraph.web.application import FREE, Application, PlainCalls
from idgraph.web.guard import Access
from idgraph.web.limits import RateLimit
from idgraph.web.metrics import Gauge
from idgraph.web.refusals import NotReadyError
from profile_service.api.dependencies import Service
from profile_service.api.person_tokens import ActingPerson, charged_name
from profile_service.api.routes import (
    audit,
    changes,
    consents,
    contacts,
    dead_letters,
    flows,
    households,
    jobs,
    links,
    previews,
    privacy,
    profiles,
    search,
    segments,
    waiting,
)
from profile_service.service import ProfileService

MOST_BODY_BYTES = 1 << 20
SWITCH_SECONDS = 0.0005
"""Threads wait for each other at most so long: each read of the store lets the interpreter go."""
THREADS = 8
"""Each has a reader, with a tree of all policies."""


health = APIRouter(prefix="/health", tags=["health"])
"""For probes. Its routes wait for no thread, of which a part that is away may hold all."""


@health.get("/live")
async def live() -> dict[str, str]:
    """Needs no token. The process answers."""
    return {"status": "ok"}


@health.get("/ready")
async def ready(service: Service) -> dict[str, str]:
    """Needs no token. 503 until the metadata service has answered for the first time."""
    if not service.following.is_ready():
        raise NotReadyError("the metadata service has not answered yet")
    return {"status": "ok"}


SENT, READ = ("Authorization", "Content-Type", "If-None-Match", "Last-Event-ID"), ("ETag", "Retry-After")
"""Headers that scripts of other origins send, and read."""
PREFLIGHT_SECONDS = 600


def create_app(
    service: ProfileService, rate: RateLimit | None = None, allowed_origins: Sequence[str] = ()
) -> FastAPI:
    """Serve profiles, also to scripts of these origins in browsers. `service` is not closed with the application."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        sys.setswitchinterval(SWITCH_SECONDS)
        to_thread.current_default_thread_limiter().total_tokens = THREADS
        yield

    def version() -> float | None:
        try:
            return float(service.following.edition().snapshot.version)
        except NotReadyError:
            return None

    access = Access(service.caller, _permits, FREE, MOST_BODY_BYTES, rate, charged=charged_name, blocks=False)
    routers = (
        profiles.router,  # First, as routes are tried in their order.
        audit.router,
        changes.router,
        consents.router,
        contacts.router,
        dead_letters.router,
        flows.router,
        flows.sources_router,
        health,
        households.issuing,
        households.reading,
        households.router,
        previews.router,
        previews.specs,
        previews.derived,
        links.router,
        jobs.router,
        *((jobs.starting(service.rights.jobs.kinds),) if service.rights.jobs else ()),
        privacy.router,
        search.router,
        segments.router,
        segments.views,
        segments.triggers,
        waiting.router,
    )
    gauges = {
        "revision": Gauge("Version of the snapshot in force.", version),
        "jobs": Gauge(
            "Jobs by kind and by the state of their last run, one for each target.",
            partial(_jobs, service),
            ("kind", "state"),
        ),
        "feed_lag_seconds": Gauge(
            "Since when a webhook or topic has not taken its oldest change; 0 while it has all.",
            lambda: {(each.name,): lag for each in service.feeds if (lag := each.lag_seconds()) is not None},
            ("feed",),
        ),
        "feed_failing": Gauge(
            "1 while a webhook or topic refuses deliveries or does not answer.",
            lambda: {
                (each.name,): each.is_failing() for each in service.feeds if each.lag_seconds() is not None
            },
            ("feed",),
        ),
    }

    def stop() -> None:
        service.is_stopping = True

    app = Application("profiles", access, routers, lifespan, gauges, before_shutdown=stop)
    app.state.service = service
    varying = ((b"vary", b"Origin"),) if allowed_origins else ()
    if allowed_origins:
        # Outside of the guard: a browser asks first without a token.
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(allowed_origins),
            allow_methods=["GET", "HEAD", "POST", "PUT", "DELETE"],
            allow_headers=SENT,
            expose_headers=READ,
            max_age=PREFLIGHT_SECONDS,
        )
    app.entrance = PlainCalls(
        app,
        f"{profiles.router.prefix}/",
        f"{profiles.router.prefix}/{{identifier}}",
        profiles.plain_look(service),
        varying,
    )
    return app


def _jobs(service: ProfileService) -> Mapping[tuple[str, ...], float] | None:
    if service.rights.jobs is None:
        return None
    try:
        records = service.rights.jobs.records()
    except StoreError:
        return None
    last = {(each.kind, each.target): each.state for each in reversed(records)}
    counted = Counter((kind, state) for (kind, _), state in last.items())
    return {(kind, state): counted[kind, state] for kind in JobKind for state in JobState}


def _permits(caller: Any, _method: str, path: str) -> bool:
    """A person may call what is below `/v1/me`, all others the rest; what they see is decided by clearance."""
    return isinstance(caller, ActingPerson) == f"{path}/".startswith("/v1/me/")
