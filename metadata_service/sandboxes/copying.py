"""Making a sandbox: a new database with a key of its own, in which everything that production has in force is saved again.

People, tokens, requests and the history stay where they are: they are no part of a copy.
"""

from __future__ import annotations

from datetime import UTC, datetime

from idgraph.model.sandboxes import SandboxRecord
from idgraph.web.refusals import ClashError
from metadata_service.kinds import KINDS
from metadata_service.sandboxes.folder import SandboxFolder
from metadata_service.sandboxes.items import digests
from metadata_service.storage.database import Database, revision_in


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
        base = digests(session)
    folder.finish(record, base)
    return record
