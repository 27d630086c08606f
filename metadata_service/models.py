"""Models of derived attributes as they are stored: by the digest of their bytes, and for ever, as versions of definitions are."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from idgraph.model.behaviour import DerivedDocument
from idgraph.model.records import ModelInterface, ModelRecord
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import ClashError, UnknownSubjectError
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import ModelContentRow, ModelRow, SnapshotRow
from metadata_service.storage.versions import paged


def save_model(edit: Edit, digest: str, content: bytes, interface: ModelInterface, name: str = "") -> bool:
    """Keep a model that `check_model` accepted, with its digest; whether it is new. Raises ClashError for another name of one
    that is there."""
    known = edit.session.get(ModelRow, digest)
    if known is not None:
        if name not in ("", known.name):
            raise ClashError(f"the model is there already, {known.name or 'without a name'}: {digest}")
        return False
    edit.session.add(
        ModelRow(
            digest=digest, snapshot_version=edit.version, name=name, document=interface.model_dump_json()
        )
    )
    edit.session.flush()
    edit.session.add(ModelContentRow(digest=digest, content=content))
    edit.record("model", digest, None, "saved")
    edit.session.flush()
    return True


def model_content(session: Session, digest: str) -> bytes:
    """The bytes of a model. Raises KeyError."""
    found = session.scalar(select(ModelContentRow.content).where(ModelContentRow.digest == digest))
    if found is None:
        raise KeyError(digest)
    return found


def list_models(
    session: Session, wanted: PageRequest, derived: Iterable[DerivedDocument]
) -> ListPage[ModelRecord]:
    """Models by digest; `derived` are the derived attributes in force."""
    return wanted.page(
        _records(session, paged(_models(), ModelRow.digest, wanted), derived), lambda each: each.digest
    )


def get_model(session: Session, digest: str, derived: Iterable[DerivedDocument]) -> ModelRecord:
    """Raises UnknownSubjectError."""
    for found in _records(session, _models().where(ModelRow.digest == digest), derived):
        return found
    raise UnknownSubjectError(f"there is no model {digest}")


def copy_models(session: Session, edit: Edit, digests: Collection[str]) -> None:
    """Save models of another database."""
    for row in session.scalars(select(ModelRow).where(ModelRow.digest.in_(digests))):
        interface = ModelInterface.model_validate_json(row.document)
        save_model(edit, row.digest, model_content(session, row.digest), interface, row.name)


def _models() -> Select[ModelRow, SnapshotRow]:
    return select(ModelRow, SnapshotRow).join(SnapshotRow, SnapshotRow.version == ModelRow.snapshot_version)


def _records(
    session: Session, query: Select[ModelRow, SnapshotRow], derived: Iterable[DerivedDocument]
) -> Iterator[ModelRecord]:
    users: dict[str, list[str]] = {}
    for each in derived:
        if each.model is not None:
            users.setdefault(each.model.digest, []).append(each.name)
    for row, edit in session.execute(query):
        interface = ModelInterface.model_validate_json(row.document)
        yield ModelRecord(
            digest=row.digest,
            name=row.name,
            used_by=users.get(row.digest, []),
            **dict(interface),
            **edit.provenance(),
        )
