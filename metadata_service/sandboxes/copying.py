"""Making a sandbox: a new database with a key of its own, in which everything that production has in force is saved again.

People, tokens, requests and the history stay where they are: they are no part of a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy.orm import Session

from idgraph.model.records import SpecRecord
from idgraph.model.sandboxes import SandboxRecord
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import ClashError
from metadata_service.attributes.catalogue import AttributeFilter, search_attributes, write_versions
from metadata_service.kinds import DOCUMENTS
from metadata_service.sandboxes.folder import SandboxFolder
from metadata_service.sandboxes.items import digests
from metadata_service.specs.catalogue import copy_spec, get_spec_version, list_specs
from metadata_service.storage.database import Database, revision_in
from metadata_service.storage.edits import Edit

PAGE = 1000
Copied = TypeVar("Copied")


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
        _copy(session, edit)
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


def _copy(session: Session, edit: Edit) -> None:
    for attributes in _pages(lambda page: search_attributes(session, AttributeFilter(), page)):
        if attributes:
            write_versions(edit, attributes, ())
    for specs in _pages(lambda page: list_specs(session, page)):
        for record in specs:
            _copy_spec(session, edit, record)
    for kind in DOCUMENTS.values():
        for document in kind.all(session):
            kind.save(edit, document)


def _copy_spec(session: Session, edit: Edit, record: SpecRecord) -> None:
    active = record.active_version
    if active is not None and active != record.latest_version:
        copy_spec(edit, get_spec_version(session, record.name, active).document)
    copy_spec(edit, record.document)


def _pages(listed: Callable[[PageRequest], ListPage[Copied]]) -> Iterator[list[Copied]]:
    cursor: str | None = ""
    while cursor is not None:
        page = listed(PageRequest(cursor, PAGE))
        yield page.items
        cursor = page.next
