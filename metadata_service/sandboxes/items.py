"""What people decide, item by item: the unit that is copied, compared and promoted."""

from __future__ import annotations

import json
from typing import Any, cast, get_args

from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.model import canonical
from idgraph.model.attributes import AttributeDefinition, AttributeMetadata, AttributeStatus
from idgraph.model.sandboxes import ItemKind, SandboxItem
from idgraph.model.specs import SpecDefinition
from idgraph.web.conditional import etag_of
from metadata_service.attributes.catalogue import find_attributes
from metadata_service.kinds import DOCUMENTS
from metadata_service.specs.catalogue import find_spec, get_spec_version
from metadata_service.storage.tables import AttributeRow, ChangeRow, SpecRow

KINDS: tuple[ItemKind, ...] = get_args(ItemKind)
"""In the order in which they are published: a spec after the attributes that protect what it maps."""


_BY_EVENTS = ("discovered", "conflicted", "proposed")


def digests(session: Session) -> dict[str, str]:
    """The digest of everything that people decided on, by `key`."""
    decided = select(AttributeRow.path).where(AttributeRow.status != str(AttributeStatus.DISCOVERED))
    found = {
        key(SandboxItem(kind="attribute", name=each.path)): digest(_attribute(each))
        for each in find_attributes(session, session.scalars(decided))
    }
    named = [("spec", name) for name in session.scalars(select(SpecRow.name))]
    for kind, name in named:
        item = SandboxItem(kind=cast(ItemKind, kind), name=name)
        found[key(item)] = digest(content(session, item))
    for documents in DOCUMENTS.values():
        for name, document in documents.contents(session):
            found[key(SandboxItem(kind=cast(ItemKind, documents.kind), name=name))] = digest(document)
    return found


def edited(session: Session, since: int) -> set[SandboxItem]:
    """The items that were edited after a snapshot."""
    row = ChangeRow
    query = select(row.kind, row.subject).where(row.snapshot_version > since, row.kind.in_(KINDS))
    found = session.execute(query.where(row.action.not_in(_BY_EVENTS)).distinct())
    return {SandboxItem(kind=kind, name=subject) for kind, subject in found}


def content(session: Session, item: SandboxItem) -> dict[str, Any] | None:
    """What somebody decided, without version and time; of a spec the version in force, else the latest."""
    match item.kind:
        case "attribute":
            known = next(find_attributes(session, [item.name]), None)
            is_decided = known is not None and known.status is not AttributeStatus.DISCOVERED
            return _attribute(known) if known and is_decided else None
        case "spec":
            return _spec(session, item.name)
        case _:
            return DOCUMENTS[item.kind].content(session, item.name)


def digest(document: dict[str, Any] | None) -> str:
    """Equal contents have equal digests; that of nothing is empty."""
    return "" if document is None else etag_of(canonical.encode(document))


def key(item: SandboxItem) -> str:
    """The item as one text."""
    return json.dumps([item.kind, item.name])


def _attribute(known: AttributeMetadata) -> dict[str, Any]:
    return known.model_dump(mode="json", include=set(AttributeDefinition.model_fields))


def _spec(session: Session, name: str) -> dict[str, Any] | None:
    record = find_spec(session, name)
    if record is None:
        return None
    document = record.document
    if record.active_version is not None and record.active_version != record.latest_version:
        document = get_spec_version(session, name, record.active_version).document
    return document.model_dump(mode="json", include=set(SpecDefinition.model_fields))
