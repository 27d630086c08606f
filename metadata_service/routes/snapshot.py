"""The metadata snapshot that pipelines follow."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.concurrency import run_in_threadpool

from metadata_service.conditional import IfNoneMatch, is_listed
from metadata_service.service import Service
from metadata_service.snapshots import ServedSnapshot
from model.snapshots import MetadataSnapshot

router = APIRouter(prefix="/v1/snapshot", tags=["snapshot"])


@router.get("", response_model=MetadataSnapshot, responses={304: {"description": "Nothing changed."}})
async def get(
    service: Service,
    wait: Annotated[float, Query(ge=0, le=60, description="Seconds to wait for a change.")] = 0,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """All active specs and all attributes. With `If-None-Match` and `wait`, the answer comes as soon as
    something changed."""
    snapshot = await run_in_threadpool(service.snapshots.current)
    if wait and is_listed(_etag(snapshot), if_none_match):
        await service.watch.wait(str(snapshot.revision), wait)
        snapshot = await run_in_threadpool(service.snapshots.current)
    headers = {"ETag": _etag(snapshot), "Cache-Control": "private, no-cache"}
    if is_listed(_etag(snapshot), if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(snapshot.body, headers=headers, media_type="application/json")


def _etag(snapshot: ServedSnapshot) -> str:
    return f'"{snapshot.revision}"'
