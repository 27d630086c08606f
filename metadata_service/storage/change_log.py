"""The change log: every change with who, when and why."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.web.cursors import Page, PageRequest
from metadata_service.api.records import ChangeRecord, provenance
from metadata_service.storage.tables import ChangeRow, SnapshotRow


def list_changes(
    session: Session, wanted: PageRequest, kind: str | None = None, subject: str | None = None
) -> Page[ChangeRecord]:
    """Changes, the newest first; of one kind, or to one subject, if asked."""
    query = (
        select(ChangeRow, SnapshotRow)
        .join(SnapshotRow, SnapshotRow.version == ChangeRow.snapshot_version)
        .order_by(ChangeRow.id.desc())
        .limit(wanted.one_more)
    )
    if kind is not None:
        query = query.where(ChangeRow.kind == kind)
    if subject is not None:
        query = query.where(ChangeRow.subject == subject)
    before = wanted.after(int)
    if before is not None:
        query = query.where(ChangeRow.id < before)
    found = (
        ChangeRecord(
            id=row.id,
            kind=row.kind,
            subject=row.subject,
            subject_version=row.subject_version,
            action=row.action,
            **provenance(edit),
        )
        for row, edit in session.execute(query)
    )
    return wanted.page(found, lambda change: change.id)
