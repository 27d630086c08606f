"""The change log: every change with who, when and why."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from metadata_service.cursors import Page, from_cursor, to_cursor
from metadata_service.records import ChangeRecord
from metadata_service.tables import ChangeRow, SnapshotRow


def list_changes(
    session: Session,
    kind: str | None = None,
    subject: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[ChangeRecord]:
    """Changes, the newest first; of one kind, or to one subject, if asked."""
    query = (
        select(ChangeRow, SnapshotRow)
        .join(SnapshotRow, SnapshotRow.version == ChangeRow.snapshot_version)
        .order_by(ChangeRow.id.desc())
        .limit(limit + 1)
    )
    if kind is not None:
        query = query.where(ChangeRow.kind == kind)
    if subject is not None:
        query = query.where(ChangeRow.subject == subject)
    if cursor:
        query = query.where(ChangeRow.id < from_cursor(cursor, int))
    found = [
        ChangeRecord(
            id=row.id,
            kind=row.kind,
            subject=row.subject,
            subject_version=row.subject_version,
            action=row.action,
            snapshot_version=edit.version,
            at=edit.at,
            actor=edit.actor,
            reason=edit.reason,
        )
        for row, edit in session.execute(query)
    ]
    more = len(found) > limit
    found = found[:limit]
    return Page(items=found, next=to_cursor(found[-1].id) if more else None)
