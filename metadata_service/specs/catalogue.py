"""Mapping specs as they are stored, and their edits: a new version, activation, retirement.

Versions are immutable; at most one version of a name is active. Compiling a spec may take seconds, and there
is one writer at a time: specs are checked before an edit begins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from idgraph.model.records import SpecRecord
from idgraph.model.specs import SpecDefinition, SpecDocument, SpecStatus
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import ClashError, RefusedRequestError, UnknownSubjectError
from metadata_service.specs.rules import CompileSpec, check_spec
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import SnapshotRow, SpecRow, SpecVersionRow
from metadata_service.storage.versions import Differs, Held, VersionedDocuments, paged


def find_spec(session: Session, name: str) -> SpecRecord | None:
    """The spec of this name, if there is one."""
    return next(_records(session, _latest().where(SpecRow.name == name)), None)


def get_spec(session: Session, name: str) -> SpecRecord:
    """Raises UnknownSubjectError."""
    record = find_spec(session, name)
    if record is None:
        raise UnknownSubjectError(f"no spec is named {name}")
    return record


def list_specs(
    session: Session, wanted: PageRequest, words: str = "", is_reversed: bool = False
) -> ListPage[SpecRecord]:
    """Specs in the order of their names, or reversed. `words` stand in the name or in the source of the
    active version."""
    query = paged(_latest(), SpecRow.name, wanted, is_reversed)
    for word in words.split():
        text = SpecRow.name + " " + func.coalesce(SpecRow.active_source, "")
        query = query.where(text.icontains(word.replace("\x00", " "), autoescape=True))
    return wanted.page(_records(session, query), lambda spec: spec.name)


def get_spec_version(session: Session, name: str, version: int) -> SpecDocument:
    """Raises UnknownSubjectError."""
    return SPECS.at(session, version, name).document


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


def once_active_specs(session: Session) -> list[SpecDocument]:
    """Every version that maps events or did: the active ones and those that were retired."""
    query = (
        select(SpecVersionRow, SnapshotRow)
        .join(SnapshotRow, SnapshotRow.version == SpecVersionRow.snapshot_version)
        .where(SpecVersionRow.status != SpecStatus.DRAFT)
        .order_by(SpecVersionRow.name, SpecVersionRow.version)
    )
    return [_document(row, edit) for row, edit in session.execute(query)]


def count_active_specs(session: Session) -> int:
    """The number of specs that have an active version."""
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


def _document(row: SpecVersionRow, edit: SnapshotRow) -> SpecDocument:
    return _read(row.document, row.version, SpecStatus(row.status), edit.at)


@lru_cache(maxsize=4096)
def _read(document: str, version: int, status: SpecStatus, created: datetime) -> SpecDocument:
    stored = dict(SpecDefinition.model_validate_json(document))
    return SpecDocument(**stored | {"status": status, "version": version, "created": created})


Precondition = Callable[[SpecRecord | None], None]
"""Sees the spec as it is and raises to stop the change."""


def check_new(definition: SpecDefinition, compile_spec: CompileSpec) -> None:
    """To be called before the edit that puts it. Raises SpecError, RefusedError."""
    if definition.status is SpecStatus.RETIRED:
        raise RefusedRequestError(
            "a new version is a draft or active", "/status", "retire it by POST .../status"
        )
    check_spec(definition, compile_spec)


def put_spec(edit: Edit, definition: SpecDefinition, precondition: Precondition) -> tuple[int, bool]:
    """Store a new version of what `check_new` let pass; gives its number, and whether the name is new.

    The same definition again makes no new version.
    """
    known = find_spec(edit.session, definition.name)
    precondition(known)
    stated = definition.model_dump_json(exclude={"status"})
    version = known.latest_version if known else 0
    if known is None or stated != known.document.model_dump_json(exclude={"status", "version", "created"}):
        version += 1
        _store(edit, definition.name, version, stated)
    return version, known is None


def stored_version(session: Session, name: str, version: int | None) -> SpecDocument:
    """The version (the latest, if none is named) that is to be checked before it is activated.

    Raises UnknownSubjectError.
    """
    chosen = get_spec(session, name).latest_version if version is None else version
    return get_spec_version(session, name, chosen)


def check_activation(
    session: Session, name: str, version: int | None, checked: int, precondition: Precondition
) -> None:
    """Whether a version (the latest, if none is named) can be activated. `checked` is the one that compiled:
    a stored version never changes. Raises UnknownSubjectError; ClashError if a later version was saved
    meanwhile."""
    known = get_spec(session, name)
    precondition(known)
    if version is None and known.latest_version != checked:
        raise ClashError(f"a new version of {name} was saved meanwhile; activate again")


def retire_spec(edit: Edit, name: str, version: int | None, precondition: Precondition) -> None:
    """Retire a version (the active one, if none is named). Raises UnknownSubjectError, ClashError."""
    known = get_spec(edit.session, name)
    precondition(known)
    chosen = known.active_version if version is None else version
    if chosen is None:
        raise ClashError(f"{name} has no active version to retire")
    if get_spec_version(edit.session, name, chosen).status is not SpecStatus.RETIRED:
        _retire(edit, name, chosen)


def _store(edit: Edit, name: str, version: int, document: str) -> None:
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


def put_in_force(edit: Edit, name: str, version: int) -> None:
    """Let a stored version that compiles map events, instead of the one that did. Raises UnknownSubjectError;
    ClashError if another spec maps exactly the same source and event type."""
    if get_spec(edit.session, name).active_version == version:
        return
    document = get_spec_version(edit.session, name, version)
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


def _copy_spec(edit: Edit, document: SpecDocument) -> None:
    """Store a version of another catalogue with its number and status, after the older ones of its name."""
    stated = document.model_dump_json(include=set(SpecDefinition.model_fields) - {"status"})
    _store(edit, document.name, document.version, stated)
    if document.status is SpecStatus.ACTIVE:
        put_in_force(edit, document.name, document.version)
    else:
        edit.session.get_one(SpecVersionRow, (document.name, document.version)).status = document.status


def _retire(edit: Edit, name: str, version: int) -> None:
    edit.session.get_one(SpecVersionRow, (name, version)).status = SpecStatus.RETIRED
    row = edit.session.get_one(SpecRow, name)
    if row.active_version == version:
        row.active_version = row.active_source = row.active_event_type = None
    edit.record("spec", name, version, "retired")
    edit.session.flush()


def _draft(_session: Session, definition: SpecDefinition) -> SpecDocument:
    return SpecDocument(**dict(definition), version=1, created=datetime.now(UTC))


def _opened(session: Session, spec: SpecDefinition) -> list[str]:
    from metadata_service.specs.approval import opened_by_definition  # it reads this module

    return opened_by_definition(session, spec) if spec.status is SpecStatus.ACTIVE else []


class _Specs(VersionedDocuments[SpecDefinition, SpecDocument]):
    """The version of a name that maps events holds, else the latest. Versions and names have tables of their
    own."""

    row = SpecVersionRow

    def held(self, session: Session, name: str = "") -> Held[SpecDocument] | None:
        record = find_spec(session, name)
        if record is None:
            return None
        active = record.active_version
        is_latest = active in (None, record.latest_version)
        document = record.document if is_latest else get_spec_version(session, name, active or 0)
        return Held(document.version, document)

    def all(self, session: Session) -> Iterator[SpecDocument]:
        for name in session.scalars(select(SpecRow.name).order_by(SpecRow.name)).all():
            yield self.get(session, name)

    def copy(self, session: Session, edit: Edit) -> None:
        for held in self.all(session):
            latest = get_spec(session, held.name).document
            for document in (held, latest) if latest.version != held.version else (held,):
                _copy_spec(edit, document)

    def carry_out(self, edit: Edit, document: str, differs: Differs) -> None:
        from metadata_service.specs.approval import SpecActivation, in_force, opened_by_spec

        wanted = SpecActivation.model_validate_json(document)
        differs(
            in_force(edit.session, wanted.name), opened_by_spec(edit.session, wanted.name, wanted.version)
        )
        put_in_force(edit, wanted.name, wanted.version)

    def _content(self, document: SpecDocument) -> dict[str, Any]:
        return document.model_dump(mode="json", include=set(SpecDefinition.model_fields))

    def _of(self, name: str) -> tuple[ColumnElement[bool], ...]:
        return (SpecVersionRow.name == name,)

    def _stored(self, row: SpecVersionRow, edit: SnapshotRow) -> SpecDocument:
        return _document(row, edit)


SPECS = _Specs("spec", SpecDefinition, SpecDocument, _draft, opens=_opened)
