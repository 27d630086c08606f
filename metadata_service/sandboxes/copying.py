"""The copy in a sandbox: a new database with a key of its own, in which everything that production has in force is saved
again, and what differs between both, of what was edited in either since.

People, tokens, requests and the history stay where they are: they are no part of a copy."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.model import canonical
from idgraph.model.errors import IdgraphError
from idgraph.model.sandboxes import ItemKind, SandboxComparison, SandboxDifference, SandboxItem, SandboxRecord
from idgraph.web.conditional import etag_of
from idgraph.web.refusals import ClashError
from metadata_service.behaviour import DERIVED_ATTRIBUTES
from metadata_service.kinds import KINDS
from metadata_service.models import copy_models
from metadata_service.sandboxes.folder import SandboxFolder
from metadata_service.storage.database import Database, revision_in
from metadata_service.storage.tables import ChangeRow


def create_sandbox(
    database: Database, folder: SandboxFolder, name: str, actor: str, reason: str
) -> SandboxRecord:
    """Copy what is in force now. Raises ClashError for a name that is taken, StoreError."""
    with folder.lock():
        return _created(database, folder, name, actor, reason)


def _created(database: Database, folder: SandboxFolder, name: str, actor: str, reason: str) -> SandboxRecord:
    others = folder.list()
    if any(each.name == name for each in others):
        raise ClashError(f"there is a sandbox {name} already")
    folder.begin(name)
    with (
        folder.opened(name) as copy,
        database.read() as session,
        copy.write(actor, f"copied for {name}: {reason}") as edit,
    ):
        used = {each.model.digest for each in DERIVED_ATTRIBUTES.all(session) if each.model is not None}
        copy_models(session, edit, used)
        for kind in KINDS.values():
            kind.copy(session, edit)
        record = SandboxRecord(
            name=name,
            reason=reason,
            actor=actor,
            at=datetime.now(UTC),
            snapshot_version=revision_in(session).version,
            copied_version=edit.version,
            number=min(set(range(1, len(others) + 2)) - {each.number for each in others}),
        )
        base = _digests(session)
    folder.finish(record, base)
    return record


def compare(database: Database, folder: SandboxFolder, name: str) -> SandboxComparison:
    """Raises UnknownSubjectError, StoreError."""
    record, base = folder.get(name), folder.base(name)
    with folder.opened(name) as sandbox, sandbox.read() as copy, database.read() as production:
        wanted = _edited(copy, record.copied_version) | _edited(production, record.snapshot_version)
        found = (_difference(production, copy, each, base.get(_key(each), "")) for each in wanted)
        return SandboxComparison(
            sandbox=record,
            production_version=revision_in(production).version,
            sandbox_version=revision_in(copy).version,
            items=sorted((each for each in found if each is not None), key=_place),
        )


def _place(each: SandboxDifference) -> tuple[bool, int, str]:
    """In the order of publication; what retires goes the other way round, behind all else."""
    number, retires = list(KINDS).index(each.kind), (each.sandbox or {}).get("status") == "retired"
    return retires, -number if retires else number, each.name


def _difference(production: Session, copy: Session, item: SandboxItem, base: str) -> SandboxDifference | None:
    kind = KINDS[item.kind]
    there, here = kind.content(production, item.name), kind.content(copy, item.name)
    if there == here:
        return None
    is_edited = _digest(here) != base and here is not None
    has_moved = _digest(there) != base
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


_BY_EVENTS = ("discovered", "conflicted", "proposed")


def _digests(session: Session) -> dict[str, str]:
    """The digest of everything that people decided on, by `key`."""
    return {
        _key(SandboxItem(kind=cast(ItemKind, kind.kind), name=name)): _digest(document)
        for kind in KINDS.values()
        for name, document in kind.contents(session)
    }


def _edited(session: Session, since: int) -> set[SandboxItem]:
    """The items that were edited after a snapshot."""
    row = ChangeRow
    query = select(row.kind, row.subject).where(row.snapshot_version > since, row.kind.in_(list(KINDS)))
    found = session.execute(query.where(row.action.not_in(_BY_EVENTS)).distinct())
    return {SandboxItem(kind=kind, name=subject) for kind, subject in found}


def _digest(document: dict[str, Any] | None) -> str:
    """Equal contents have equal digests; that of nothing is empty."""
    return "" if document is None else etag_of(canonical.encode(document))


def _key(item: SandboxItem) -> str:
    """The item as one text."""
    return json.dumps([item.kind, item.name])
