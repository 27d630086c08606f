"""Mapping specs: immutable versions by name, at most one of them active."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from metadata_service.cursors import Page, from_cursor, to_cursor
from metadata_service.edits import Edit
from metadata_service.records import SpecRecord, SpecVersionRecord
from metadata_service.refusals import ClashError, RefusedError, UnknownSubjectError
from metadata_service.spec_rules import CompileSpec, check_spec
from metadata_service.tables import SnapshotRow, SpecRow, SpecVersionRow
from model.specs import SpecDefinition, SpecDocument, SpecStatus

Precondition = Callable[[SpecRecord | None], None]
"""Sees the spec as it is and raises to stop the change."""


def get_spec(session: Session, name: str) -> SpecRecord:
    """Raises UnknownSubjectError."""
    record = _find(session, name)
    if record is None:
        raise UnknownSubjectError(f"no spec is named {name}")
    return record


def list_specs(session: Session, cursor: str | None, limit: int) -> Page[SpecRecord]:
    """Specs in the order of their names."""
    query = select(SpecRow).order_by(SpecRow.name).limit(limit + 1)
    if cursor:
        query = query.where(SpecRow.name > from_cursor(cursor, str))
    found = [_record(session, row) for row in session.scalars(query)]
    more = len(found) > limit
    found = found[:limit]
    return Page(items=found, next=to_cursor(found[-1].name) if more else None)


def spec_versions(session: Session, name: str, cursor: str | None, limit: int) -> Page[SpecVersionRecord]:
    """All versions of a spec, the newest first. Raises UnknownSubjectError."""
    get_spec(session, name)
    before = from_cursor(cursor, int) if cursor else None
    found = list(_versions(session, name, before=before, limit=limit + 1))
    more = len(found) > limit
    found = found[:limit]
    return Page(items=found, next=to_cursor(found[-1].document.version) if more else None)


def get_spec_version(session: Session, name: str, version: int) -> SpecVersionRecord:
    """Raises UnknownSubjectError."""
    for record in _versions(session, name, before=version + 1, limit=1):
        if record.document.version == version:
            return record
    raise UnknownSubjectError(f"no spec is named {name}, or it has no version {version}")


def active_specs(session: Session) -> list[SpecDocument]:
    """The active version of every spec that has one, by name."""
    query = (
        select(SpecVersionRow, SnapshotRow)
        .join(
            SpecRow,
            (SpecRow.name == SpecVersionRow.name) & (SpecRow.active_version == SpecVersionRow.version),
        )
        .join(SnapshotRow, SnapshotRow.version == SpecVersionRow.snapshot_version)
        .order_by(SpecVersionRow.name)
    )
    return [_document(row, edit) for row, edit in session.execute(query)]


def put_spec(
    edit: Edit, definition: SpecDefinition, compile_spec: CompileSpec, precondition: Precondition
) -> bool:
    """Store a new version, and activate it if its status says so; whether the name is new.

    The same definition again makes no new version. Raises SpecError, ClashError, RefusedError.
    """
    if definition.status is SpecStatus.RETIRED:
        raise RefusedError("a new version is a draft or active", "/status", "retire it by POST .../status")
    check_spec(definition, compile_spec)
    known = _find(edit.session, definition.name)
    precondition(known)
    stated = definition.model_dump_json(exclude={"status"})
    version = known.latest_version if known else 0
    if known is None or stated != known.document.model_dump_json(exclude={"status", "version", "created"}):
        version += 1
        _store(edit, definition, version, stated)
    if definition.status is SpecStatus.ACTIVE and (known is None or known.active_version != version):
        activate(edit, definition.name, version)
    return known is None


def set_status(
    edit: Edit,
    name: str,
    status: SpecStatus,
    version: int | None,
    compile_spec: CompileSpec,
    precondition: Precondition,
) -> None:
    """Activate a version (the latest, if none is named) or retire one (the active one).

    Raises UnknownSubjectError, ClashError, RefusedError; SpecError if the version no longer compiles.
    """
    known = get_spec(edit.session, name)
    precondition(known)
    if status is SpecStatus.DRAFT:
        raise RefusedError("a version never becomes a draft again", "/status")
    if status is SpecStatus.ACTIVE:
        chosen = known.latest_version if version is None else version
        check_spec(get_spec_version(edit.session, name, chosen).document, compile_spec)
        if known.active_version != chosen:
            activate(edit, name, chosen)
        return
    chosen_or_none = known.active_version if version is None else version
    if chosen_or_none is None:
        raise ClashError(f"{name} has no active version to retire")
    if get_spec_version(edit.session, name, chosen_or_none).document.status is not SpecStatus.RETIRED:
        _retire(edit, name, chosen_or_none)


def activate(edit: Edit, name: str, version: int) -> None:
    """Let this version map events, instead of the one that did. Raises ClashError if another spec maps
    exactly the same source and event type."""
    document = get_spec_version(edit.session, name, version).document
    rival = find_rival(edit.session, document)
    if rival is not None:
        raise ClashError(f"spec {rival} is active for the same source and event type; retire it first")
    row = edit.session.get_one(SpecRow, name)
    if row.active_version is not None:
        _retire(edit, name, row.active_version)
    edit.session.get_one(SpecVersionRow, (name, version)).status = SpecStatus.ACTIVE
    row.active_version = version
    row.active_source = document.source
    row.active_event_type = document.event_type
    edit.record("spec", name, version, "activated")
    edit.session.flush()


def find_rival(session: Session, definition: SpecDefinition) -> str | None:
    """The name of another active spec with exactly these patterns."""
    query = select(SpecRow.name).where(
        SpecRow.active_source == definition.source,
        SpecRow.active_event_type == definition.event_type,
        SpecRow.name != definition.name,
    )
    return session.scalar(query)


def _store(edit: Edit, definition: SpecDefinition, version: int, document: str) -> None:
    name = definition.name
    edit.session.add(
        SpecVersionRow(
            name=name,
            version=version,
            status=SpecStatus.DRAFT,
            snapshot_version=edit.version,
            document=document,
        )
    )
    edit.session.flush()
    row = edit.session.get(SpecRow, name)
    if row is None:
        edit.session.add(SpecRow(name=name, latest_version=version))
    else:
        row.latest_version = version
    edit.record("spec", name, version, "saved")
    edit.session.flush()


def _retire(edit: Edit, name: str, version: int) -> None:
    edit.session.get_one(SpecVersionRow, (name, version)).status = SpecStatus.RETIRED
    row = edit.session.get_one(SpecRow, name)
    if row.active_version == version:
        row.active_version = row.active_source = row.active_event_type = None
    edit.record("spec", name, version, "retired")
    edit.session.flush()


def _find(session: Session, name: str) -> SpecRecord | None:
    row = session.get(SpecRow, name)
    return None if row is None else _record(session, row)


def _record(session: Session, row: SpecRow) -> SpecRecord:
    return SpecRecord(
        name=row.name,
        latest_version=row.latest_version,
        active_version=row.active_version,
        document=get_spec_version(session, row.name, row.latest_version).document,
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
        yield SpecVersionRecord(
            document=_document(row, edit),
            snapshot_version=edit.version,
            at=edit.at,
            actor=edit.actor,
            reason=edit.reason,
        )


def _document(row: SpecVersionRow, edit: SnapshotRow) -> SpecDocument:
    stored = SpecDefinition.model_validate_json(row.document)
    return SpecDocument(
        **dict(stored) | {"status": SpecStatus(row.status), "version": row.version, "created": edit.at}
    )
