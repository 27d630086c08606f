"""Routes for pipelines and probes: the metadata snapshot, schema changes found in events, health."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError
from idgraph.model.records import SchemaRecord
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshot_changes import SnapshotChanges
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.spec_use import MOST_USES, SpecUse
from idgraph.signatures import NONCE_HEADER
from idgraph.web.conditional import IfNoneMatch, is_listed
from idgraph.web.problems import unavailable
from metadata_service.api.service import TURN_SECONDS, Actor, MetadataService, Service
from metadata_service.attributes.discovery import MAX_CHANGES, apply_schema_changes
from metadata_service.specs.health import take_uses
from metadata_service.storage.database import Revision
from metadata_service.storage.snapshots import ServedSnapshot

router = APIRouter(prefix="/v1/snapshot", tags=["snapshot"])


Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for a change.")]

Nonce = Annotated[
    str | None,
    Header(alias=NONCE_HEADER, max_length=64, pattern="^[0-9a-zA-Z]+$", description="To sign with."),
]
_NOTHING = hashlib.sha256(b"").digest()

_UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing changed."}}
_GONE: dict[int | str, dict[str, Any]] = {410: {"description": "Read the whole snapshot."}}


@router.get("", response_model=MetadataSnapshot, responses=_UNCHANGED)
async def get(
    service: Service, wait: Wait = 0, if_none_match: IfNoneMatch = None, nonce: Nonce = None
) -> Response:
    """All active specs and all attributes, signed for a nonce. With `If-None-Match` and `wait`, the answer comes as soon as
    something changed."""
    snapshot = await run_in_threadpool(service.snapshots.current)
    if wait and is_listed(snapshot.revision.etag, if_none_match):
        await service.watch.wait(str(snapshot.revision), wait)
        snapshot = await run_in_threadpool(service.snapshots.current)
    if is_listed(snapshot.revision.etag, if_none_match):
        return _unchanged(service, snapshot.revision, nonce)
    return _answer(service, snapshot, nonce)


@router.get("/changes", response_model=SnapshotChanges, responses=_UNCHANGED | _GONE)
async def get_changes(
    service: Service,
    since: Annotated[str, Query(max_length=100, description="The ETag of the snapshot that is known.")],
    wait: Wait = 0,
    nonce: Nonce = None,
) -> Response:
    """The changes since a snapshot. With `wait`, the answer comes as soon as something did. The whole snapshot has
    the same ETag."""
    newest = await run_in_threadpool(service.database.revision)
    if wait:
        await (service.watch.wait(str(newest), wait) if _is(newest, since) else service.watch.turn())
        newest = await run_in_threadpool(service.database.revision)
    if _is(newest, since):
        return _unchanged(service, newest, nonce)
    age = TURN_SECONDS if wait else 0
    return _answer(service, await run_in_threadpool(service.snapshots.changes, since, newest, age), nonce)


def _is(revision: Revision, etag: str) -> bool:
    return Revision.of_etag(etag) == revision


def _answer(service: MetadataService, served: ServedSnapshot, nonce: str | None) -> Response:
    headers = _headers(service, served.revision, nonce, served.digest)
    return Response(served.body, headers=headers, media_type="application/json")


def _unchanged(service: MetadataService, revision: Revision, nonce: str | None) -> Response:
    return Response(status_code=304, headers=_headers(service, revision, nonce, _NOTHING))


def _headers(
    service: MetadataService, revision: Revision, nonce: str | None, digest: bytes
) -> dict[str, str]:
    headers = {"ETag": revision.etag, "Cache-Control": "private, no-cache"}
    key = service.settings.key
    return headers if key is None or nonce is None else headers | key.headers(nonce, revision.etag, digest)


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
