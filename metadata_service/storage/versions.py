"""Rows in pages, such as the log of changes, and documents of which every edit makes a version: the newest holds."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, TypeVar, TypeVarTuple

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from idgraph.model.records import ChangeRecord
from idgraph.web.cursors import ListPage, PageRequest
from metadata_service.storage.edits import Edit, Kind
from metadata_service.storage.tables import (
    AttributeVersionRow,
    ChangeRow,
    DocumentVersionRow,
    SnapshotRow,
    SpecVersionRow,
)

Columns = TypeVarTuple("Columns")
Version = TypeVar("Version", AttributeVersionRow, DocumentVersionRow, SpecVersionRow)


def paged(
    query: Select[*Columns], key: InstrumentedAttribute[Any], wanted: PageRequest, is_reversed: bool = False
) -> Select[*Columns]:
    """A page of a list in the order of a key, and one row beyond it. Raises BadQueryError."""
    after = wanted.after(key.type.python_type)
    if after is not None:
        query = query.where(key < after if is_reversed else key > after)
    return query.order_by(key.desc() if is_reversed else key).limit(wanted.one_more)


def versions_of(
    session: Session, row: type[Version], wanted: PageRequest, *of: ColumnElement[bool]
) -> Iterator[tuple[Version, SnapshotRow]]:
    """Versions with the edits that made them, the newest first."""
    query = select(row, SnapshotRow).join(SnapshotRow, SnapshotRow.version == row.snapshot_version)
    found = session.execute(paged(query.where(*of), row.version, wanted, is_reversed=True))
    return ((each[0], each[1]) for each in found)


def newest_document(session: Session, kind: Kind, name: str = "") -> DocumentVersionRow | None:
    """The version of a document that holds."""
    row = DocumentVersionRow
    query = select(row).where(row.kind == kind, row.name == name)
    return session.scalar(query.order_by(row.version.desc()).limit(1))


def add_document(edit: Edit, kind: Kind, name: str, version: int, document: str) -> DocumentVersionRow:
    """A version that holds from now on."""
    row = DocumentVersionRow(
        kind=kind, name=name, version=version, snapshot_version=edit.version, document=document
    )
    edit.session.add(row)
    edit.record(kind, name, version, "saved")
    return row


def list_changes(
    session: Session,
    wanted: PageRequest,
    kind: str | None = None,
    subject: str | None = None,
    actor: str | None = None,
    actions: Collection[str] = (),
) -> ListPage[ChangeRecord]:
    """Changes, the newest first; of one kind, to one subject, by one actor, or of some actions, if asked."""
    query = select(ChangeRow, SnapshotRow).join(
        SnapshotRow, SnapshotRow.version == ChangeRow.snapshot_version
    )
    query = paged(query, ChangeRow.id, wanted, is_reversed=True)
    if kind is not None:
        query = query.where(ChangeRow.kind == kind)
    if subject is not None:
        query = query.where(ChangeRow.subject == subject)
    if actions:
        query = query.where(ChangeRow.action.in_(actions))
    if actor is not None:
        query = query.where(SnapshotRow.actor == actor)
    found = (
        ChangeRecord(
            id=row.id,
            kind=row.kind,
            subject=row.subject,
            subject_version=row.subject_version,
            action=row.action,
            **edit.provenance(),
        )
        for row, edit in session.execute(query)
    )
    return wanted.page(found, lambda change: change.id)
