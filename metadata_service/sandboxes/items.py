"""People's decisions, item by item: the unit that is copied, compared and promoted."""

from __future__ import annotations

import json
from typing import Any, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.model import canonical
from idgraph.model.sandboxes import ItemKind, SandboxItem
from idgraph.web.conditional import etag_of
from metadata_service.kinds import KINDS
from metadata_service.storage.tables import ChangeRow

_BY_EVENTS = ("discovered", "conflicted", "proposed")


def digests(session: Session) -> dict[str, str]:
    """The digest of everything that people decided on, by `key`."""
    return {
        key(SandboxItem(kind=cast(ItemKind, kind.kind), name=name)): digest(document)
        for kind in KINDS.values()
        for name, document in kind.contents(session)
    }


def edited(session: Session, since: int) -> set[SandboxItem]:
    """The items that were edited after a snapshot."""
    row = ChangeRow
    query = select(row.kind, row.subject).where(row.snapshot_version > since, row.kind.in_(list(KINDS)))
    found = session.execute(query.where(row.action.not_in(_BY_EVENTS)).distinct())
    return {SandboxItem(kind=kind, name=subject) for kind, subject in found}


def digest(document: dict[str, Any] | None) -> str:
    """Equal contents have equal digests; that of nothing is empty."""
    return "" if document is None else etag_of(canonical.encode(document))


def key(item: SandboxItem) -> str:
    """The item as one text."""
    return json.dumps([item.kind, item.name])
