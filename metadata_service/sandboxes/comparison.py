"""Differences between a sandbox and production among items that were edited in either since the copy."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

from idgraph.model.errors import IdgraphError
from idgraph.model.sandboxes import SandboxComparison, SandboxDifference, SandboxItem
from metadata_service.kinds import KINDS
from metadata_service.sandboxes.folder import SandboxFolder
from metadata_service.sandboxes.items import digest, edited, key
from metadata_service.storage.database import Database, revision_in


def compare(database: Database, folder: SandboxFolder, name: str) -> SandboxComparison:
    """Raises UnknownSubjectError, StoreError."""
    record, base = folder.get(name), folder.base(name)
    with folder.opened(name) as sandbox, sandbox.read() as copy, database.read() as production:
        wanted = edited(copy, record.copied_version) | edited(production, record.snapshot_version)
        order = list(KINDS)
        items = sorted(wanted, key=lambda each: (order.index(each.kind), each.name))
        found = (_difference(production, copy, each, base.get(key(each), "")) for each in items)
        return SandboxComparison(
            sandbox=record,
            production_version=revision_in(production).version,
            sandbox_version=revision_in(copy).version,
            items=[each for each in found if each is not None],
        )


def _difference(production: Session, copy: Session, item: SandboxItem, base: str) -> SandboxDifference | None:
    kind = KINDS[item.kind]
    there, here = kind.content(production, item.name), kind.content(copy, item.name)
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
        return KINDS[item.kind].opened(session, document)
    except IdgraphError:
        # The promotion says why it is refused.
        return []
