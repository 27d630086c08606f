"""Mapping specs as they are stored: immutable versions by name, at most one of them active."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from idgraph.model.specs import SpecDefinition, SpecDocument, SpecStatus
from idgraph.web.cursors import Page, PageRequest
from idgraph.web.refusals import UnknownSubjectError
from metadata_service.api.records import SpecRecord, SpecVersionRecord, provenance
from metadata_service.storage.tables import SnapshotRow, SpecRow, SpecVersionRow


def find_spec(session: Session, name: str) -> SpecRecord | None:
    """The spec of this name, if there is one."""
    return next(_records(session, _latest().where(SpecRow.name == name)), None)


def get_spec(session: Session, name: str) -> SpecRecord:
    """Raises UnknownSubjectError."""
    record = find_spec(session, name)
    if record is None:
        raise UnknownSubjectError(f"no spec is named {name}")
    return record


def list_specs(session: Session, wanted: PageRequest) -> Page[SpecRecord]:
    """Specs in the order of their names."""
    query = _latest().order_by(SpecRow.name).limit(wanted.one_more)
    after = wanted.after(str)
    if after is not None:
        query = query.where(SpecRow.name > after)
    return wanted.page(_records(session, query), lambda spec: spec.name)


def spec_versions(session: Session, name: str, wanted: PageRequest) -> Page[SpecVersionRecord]:
    """All versions of a spec, the newest first. Raises UnknownSubjectError."""
    get_spec(session, name)
    found = _versions(session, name, before=wanted.after(int), limit=wanted.one_more)
    return wanted.page(found, lambda record: record.document.version)


def get_spec_version(session: Session, name: str, version: int) -> SpecVersionRecord:
    """Raises UnknownSubjectError."""
    for record in _versions(session, name, before=version + 1, limit=1):
        if record.document.version == version:
            return record
    raise UnknownSubjectError(f"no spec is named {name}, or it has no version {version}")


def active_specs(session: Session, names: Collection[str] | None = None) -> list[SpecDocument]:
    """The active version of every spec that has one, or of those of these names, by name."""
    active = (SpecRow.name == SpecVersionRow.name) & (SpecRow.active_version == SpecVersionRow.version)
    query = (
        select(SpecVersionRow, SnapshotRow)
        .join(SpecRow, active)
        .join(SnapshotRow, SnapshotRow.version == SpecVersionRow.snapshot_version)
        .order_by(SpecVersionRow.name)
    )
    if names is not None:
        query = query.where(SpecVersionRow.name.in_(names))
    return [_document(row, edit) for row, edit in session.execute(query)]


def count_active_specs(session: Session) -> int:
    """How many specs have an active version."""
    query = select(func.count()).select_from(SpecRow).where(SpecRow.active_version.is_not(None))
    return session.scalar(query) or 0


def find_rival(session: Session, definition: SpecDefinition) -> str | None:
    """The name of another active spec with exactly these patterns."""
    query = select(SpecRow.name).where(
        SpecRow.active_source == definition.source,
        SpecRow.active_event_type == definition.event_type,
        SpecRow.name != definition.name,
    )
    return session.scalar(query)


def _latest() -> Select[SpecRow, SpecVersionRow, SnapshotRow]:
    latest = (SpecRow.name == SpecVersionRow.name) & (SpecRow.latest_version == SpecVersionRow.version)
    return (
        select(SpecRow, SpecVersionRow, SnapshotRow)
        .join(SpecVersionRow, latest)
        .join(SnapshotRow, SnapshotRow.version == SpecVersionRow.snapshot_version)
    )


def _records(session: Session, query: Select[SpecRow, SpecVersionRow, SnapshotRow]) -> Iterator[SpecRecord]:
    for row, version, edit in session.execute(query):
        yield SpecRecord(
            name=row.name,
            latest_version=row.latest_version,
            active_version=row.active_version,
            document=_document(version, edit),
        )


def _versions(session: Session, name: str, before: int | None, limit: int) -> Iterator[SpecVersionRecord]:
    query = (
        select(SpecVersionRow, SnapshotRow)
        .join(SnapshotRow, SnapshotRow.version == SpecVersionRow.snapshot_version)
        .where(SpecVersionRow.name == name)
        .order_by(SpecVersionRow.version.desc())
        .limit(limit)
    )
    if before is not None:
        query = query.where(SpecVersionRow.version < before)
    for row, edit in session.execute(query):
        yield SpecVersionRecord(document=_document(row, edit), **provenance(edit))


def _document(row: SpecVersionRow, edit: SnapshotRow) -> SpecDocument:
    stored = SpecDefinition.model_validate_json(row.document)
    return SpecDocument(
        **dict(stored) | {"status": SpecStatus(row.status), "version": row.version, "created": edit.at}
    )
