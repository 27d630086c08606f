"""What differs between a sandbox and production, of what was edited in either since the copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from idgraph.model.attributes import AttributeDefinition
from idgraph.model.errors import IdgraphError
from idgraph.model.sandboxes import SandboxComparison, SandboxDifference, SandboxItem
from idgraph.model.specs import SpecDefinition, SpecStatus
from metadata_service.attributes.catalogue import plan_attribute
from metadata_service.attributes.policy_changes import opened_by_attribute
from metadata_service.kinds import DOCUMENTS
from metadata_service.sandboxes.folder import SandboxFolder
from metadata_service.sandboxes.items import KINDS, content, digest, edited, key
from metadata_service.specs.approval import opened_by_definition
from metadata_service.storage.database import Database, revision_in
from metadata_service.storage.edits import Edit
from metadata_service.storage.versions import VersionedDocuments


def compare(database: Database, folder: SandboxFolder, name: str) -> SandboxComparison:
    """Raises UnknownSubjectError, StoreError."""
    record, base = folder.get(name), folder.base(name)
    with folder.opened(name) as sandbox, sandbox.read() as copy, database.read() as production:
        wanted = edited(copy, record.copied_version) | edited(production, record.snapshot_version)
        items = sorted(wanted, key=lambda each: (KINDS.index(each.kind), each.name))
        found = (_difference(production, copy, each, base.get(key(each), "")) for each in items)
        return SandboxComparison(
            sandbox=record,
            production_version=revision_in(production).version,
            sandbox_version=revision_in(copy).version,
            items=[each for each in found if each is not None],
        )


def _difference(production: Session, copy: Session, item: SandboxItem, base: str) -> SandboxDifference | None:
    there, here = content(production, item), content(copy, item)
    if there == here:
        return None
    is_edited = digest(here) != base and here is not None
    has_moved = digest(there) != base
    state = ("conflict" if has_moved else "changed" if there else "added") if is_edited else "behind"
    weakens = _weakens(production, item, here) if is_edited and here is not None else []
    return SandboxDifference(
        kind=item.kind, name=item.name, state=state, weakens=weakens, production=there, sandbox=here
    )


def _weakens(session: Session, item: SandboxItem, document: dict[str, Any]) -> list[str]:
    try:
        return _OPENED[item.kind](session, document)
    except IdgraphError:
        # The promotion says why it is refused.
        return []


def _opened_by_attribute(session: Session, document: dict[str, Any]) -> list[str]:
    definition = AttributeDefinition.model_validate(document)
    planned = plan_attribute(Edit(session, "", "", b""), definition, lambda _: None)
    return opened_by_attribute(session, planned)


def _opened_by_spec(session: Session, document: dict[str, Any]) -> list[str]:
    definition = SpecDefinition.model_validate(document)
    return opened_by_definition(session, definition) if definition.status is SpecStatus.ACTIVE else []


def _opened_by_document(kind: VersionedDocuments[Any, Any]) -> Callable[[Session, dict[str, Any]], list[str]]:
    return lambda session, document: kind.opens(
        session, kind.check(session, kind.stated.model_validate(document))
    )


_OPENED: dict[str, Callable[[Session, dict[str, Any]], list[str]]] = {
    "attribute": _opened_by_attribute,
    "spec": _opened_by_spec,
    **{each.kind: _opened_by_document(each) for each in DOCUMENTS.values()},
}
