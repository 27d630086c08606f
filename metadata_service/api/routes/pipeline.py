"""Routes for pipelines and probes: the metadata snapshot, schema changes found in events, health."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from idgraph.model.records import SchemaRecord
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshot_changes import SnapshotChanges
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.web.conditional import IfNoneMatch, is_listed
from metadata_service.api.service import Actor, Service
from metadata_service.attributes.discovery import MAX_CHANGES, apply_schema_changes
from metadata_service.storage.database import Revision
from metadata_service.storage.snapshots import ServedSnapshot, changes_since

router = APIRouter(prefix="/v1/snapshot", tags=["snapshot"])


Wait = Annotated[float, Query(ge=0, le=60, description="Seconds to wait for a change.")]

_UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing changed."}}
_GONE: dict[int | str, dict[str, Any]] = {410: {"description": "Read the whole snapshot."}}


@router.get("", response_model=MetadataSnapshot, responses=_UNCHANGED)
async def get(service: Service, wait: Wait = 0, if_none_match: IfNoneMatch = None) -> Response:
    """All active specs and all attributes. With `If-None-Match` and `wait`, the answer comes as soon as
    something changed."""
    snapshot = await run_in_threadpool(service.snapshots.current)
    if wait and is_listed(snapshot.revision.etag, if_none_match):
        await service.watch.wait(str(snapshot.revision), wait)
        snapshot = await run_in_threadpool(service.snapshots.current)
    if is_listed(snapshot.revision.etag, if_none_match):
        return Response(status_code=304, headers=_headers(snapshot.revision))
    return _answer(snapshot)


@router.get("/changes", response_model=SnapshotChanges, responses=_UNCHANGED | _GONE)
async def get_changes(
    service: Service,
    since: Annotated[str, Query(max_length=100, description="The ETag of the snapshot that is known.")],
    wait: Wait = 0,
) -> Response:
    """The changes since a snapshot. With `wait`, the answer comes as soon as something did. The whole snapshot has
    the same ETag."""
    newest = await run_in_threadpool(service.database.revision)
    if wait and _is(newest, since):
        await service.watch.wait(str(newest), wait)
        newest = await run_in_threadpool(service.database.revision)
    if _is(newest, since):
        return Response(status_code=304, headers=_headers(newest))
    return _answer(await run_in_threadpool(changes_since, service.database, since))


def _is(revision: Revision, etag: str) -> bool:
    return Revision.of_etag(etag) == revision


def _answer(served: ServedSnapshot) -> Response:
    return Response(served.body, headers=_headers(served.revision), media_type="application/json")


def _headers(revision: Revision) -> dict[str, str]:
    return {"ETag": revision.etag, "Cache-Control": "private, no-cache"}


schema = APIRouter(prefix="/v1/schema", tags=["schema"])


class SchemaPatch(BaseModel):
    """Entries are read one by one, so that a bad one does not stop the others."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "properties": {
                "changes": {
                    "type": "array",
                    "maxItems": MAX_CHANGES,
                    "items": SchemaChange.model_json_schema(),
                }
            }
        },
    )

    changes: list[Any] = Field(max_length=MAX_CHANGES)


@schema.patch("")
def patch(body: SchemaPatch, service: Service, actor: Actor) -> SchemaRecord:
    """Make unknown paths known and record types that contradict. Sending a change again has no effect."""
    with service.database.write(actor, "found in events") as edit:
        return apply_schema_changes(edit, body.changes)


health = APIRouter(tags=["health"])


@health.get("/health/live")
def live() -> dict[str, str]:
    """Needs no token. The process answers."""
    return {"status": "ok"}


@health.get("/health/ready")
@health.get("/healthz")
def ready(service: Service) -> dict[str, str]:
    """Needs no token. 503 when the database does not answer."""
    service.database.revision()
    return {"status": "ok"}
