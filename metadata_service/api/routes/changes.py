"""The change log."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from idgraph.web.cursors import Page
from metadata_service.api.records import ChangeRecord
from metadata_service.api.service import Paging, Service
from metadata_service.storage.edits import Kind, list_changes

router = APIRouter(prefix="/v1/changes", tags=["changes"])


@router.get("")
def list_(
    service: Service,
    paging: Paging,
    kind: Kind | None = None,
    subject: Annotated[str | None, Query(max_length=1024, description="Spec name or attribute path.")] = None,
) -> Page[ChangeRecord]:
    """Who changed what, when and why; the newest first."""
    with service.database.read() as session:
        return list_changes(session, paging, kind, subject)
