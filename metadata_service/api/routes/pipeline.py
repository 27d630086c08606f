"""Routes for pipelines and probes: the metadata snapshot, schema changes found in events, health."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from idgraph.model.attributes import Catalogue
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError
from idgraph.model.records import SchemaRecord
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.spec_use import MOST_USES, SpecUse
from idgraph.signatures import HISTORY_HEADER, NONCE_HEADER
from idgraph.web.conditional import IfNoneMatch, is_listed
from idgraph.web.problems import unavailable
from metadata_service.api.service import Actor, ChangeWatch, Service
from metadata_service.attributes.discovery import MAX_CHANGES, apply_schema_changes
from metadata_service.specs.health import take_uses
from metadata_service.storage.snapshots import Served

router = APIRouter(prefix="/v1/snapshot", tags=["snapshot"])


Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for a change.")]

Nonce = Annotated[
    str | None,
    Header(alias=NONCE_HEADER, max_length=64, pattern="^[0-9a-zA-Z]+$", description="To sign with."),
]
_NOTHING = hashlib.sha256(b"").digest()

_UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing changed."}}


@router.get("", response_model=MetadataSnapshot, responses=_UNCHANGED)
async def get(
    service: Service, wait: Wait = 0, if_none_match: IfNoneMatch = None, nonce: Nonce = None
) -> Response:
    """All active specs and all attributes but those that follow the discovery defaults, signed for a nonce. With
    `If-None-Match` and `wait`, the answer comes as soon as something changed."""
    served = await _newest(service.snapshots.current, service.snapshot_watch, wait, if_none_match)
    is_known = is_listed(served.revision.etag, if_none_match)
    digest = _NOTHING if is_known else served.digest
    key = service.settings.key
    headers = {} if key is None or nonce is None else key.headers(nonce, served.revision.etag, digest)
    if not is_known and if_none_match and not await run_in_threadpool(service.snapshots.knows, if_none_match):
        headers[HISTORY_HEADER] = "unknown"
    return _answer(served, is_known, headers)


catalogue = APIRouter(prefix="/v1/catalogue", tags=["attributes"])


@catalogue.get("", response_model=Catalogue, responses=_UNCHANGED)
async def get_catalogue(service: Service, wait: Wait = 0, if_none_match: IfNoneMatch = None) -> Response:
    """Path and types of every attribute, for searches and tables. `If-None-Match` and `wait` as for the snapshot."""
    served = await _newest(service.snapshots.catalogue, service.watch, wait, if_none_match)
    return _answer(served, is_listed(served.revision.etag, if_none_match), {})


async def _newest(
    read: Callable[[], Served], watch: ChangeWatch, wait: float, if_none_match: str | None
) -> Served:
    ends = time.monotonic() + wait
    while True:
        served = await run_in_threadpool(read)
        left = ends - time.monotonic()
        if left <= 0 or not is_listed(served.revision.etag, if_none_match) or watch.is_closed:
            return served
        await watch.wait(str(served.revision), left)


def _answer(served: Served, is_known: bool, headers: dict[str, str]) -> Response:
    headers |= {"ETag": served.revision.etag, "Cache-Control": "private, no-cache"}
    if is_known:
        return Response(status_code=304, headers=headers)
    return Response(served.body, headers=headers, media_type="application/json")


schema = APIRouter(prefix="/v1/schema", tags=["schema"])


class SchemaPatch(StrictDocument):
    """Entries are read one by one, so that a bad one does not stop the others."""

    changes: list[Any] = Field(
        max_length=MAX_CHANGES, json_schema_extra={"items": SchemaChange.model_json_schema()}
    )
    uses: list[SpecUse] = Field(default=[], max_length=MOST_USES)


@schema.patch("")
def patch(body: SchemaPatch, service: Service, actor: Actor) -> SchemaRecord:
    """Make unknown paths known and record types that contradict. Sending a change again has no effect. `uses` are what flows
    made of specs, and are added up; those of unknown specs are left out."""
    if body.uses:
        with service.database.write() as edit:
            take_uses(edit.session, body.uses)
    with service.database.write(actor, "found in events") as edit:
        return apply_schema_changes(edit, body.changes)


health = APIRouter(tags=["health"])


@health.get("/health/live")
def live() -> dict[str, str]:
    """Needs no token. The process answers."""
    return {"status": "ok"}


@health.get("/health/ready", response_model=dict[str, str])
@health.get("/healthz", response_model=dict[str, str])
def ready(service: Service) -> Any:
    """Needs no token. 503 while the database cannot be read, or written since a write failed, and when a newer idgraph has
    changed its tables."""
    try:
        service.database.require_ready()
    except ConfigError as error:
        return unavailable("database", str(error))
    return {"status": "ok"}
