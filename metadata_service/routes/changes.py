"""The change log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from metadata_service.change_log import list_changes
from metadata_service.cursors import Page
from metadata_service.edits import Kind
from metadata_service.records import ChangeRecord
from metadata_service.service import Cursor, Limit, Service

router = APIRouter(prefix="/v1/changes", tags=["changes"])


@router.get("")
def list_(
    service: Service,
    kind: Kind | None = None,
    subject: Annotated[str | None, Query(max_length=1024, description="Spec name or attribute path.")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[ChangeRecord]:
    """Who changed what, when and why; the newest first."""
    with service.database.read() as session:
        return list_changes(session, kind, subject, cursor, limit)
