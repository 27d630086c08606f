"""The metadata snapshot as the bytes that are served, made once a revision and mostly out of the last."""

from __future__ import annotations

import threading
from bisect import insort
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from metadata_service.attributes.defaults import discovery_defaults
from metadata_service.attributes.levels import classification_levels
from metadata_service.specs.catalogue import active_specs
from metadata_service.storage.database import Database, Revision, has_revision, revision_in
from metadata_service.storage.tables import AttributeRow, AttributeVersionRow


class ServedSnapshot(NamedTuple):
    """`body` is a `MetadataSnapshot` as JSON, or the `SnapshotChanges` that lead to it."""

    revision: Revision
    body: bytes


class SnapshotCache:
    """The newest snapshot. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._paths: list[str] = []
        self._documents: dict[str, bytes] = {}
        self._served: ServedSnapshot | None = None

    def current(self) -> ServedSnapshot:
        """The snapshot at the newest revision. Blocks; raises SQLAlchemyError when the database is away."""
        with self._lock, self._database.read() as session:
            revision = revision_in(session)
            if self._served is not None and not has_revision(session, self._served.revision):
                self._forget()  # the database was restored from a backup
            if self._served is None or self._served.revision != revision:
                self._read_changed(session)
                self._served = ServedSnapshot(revision, self._body(session, revision))
            return self._served

    def _read_changed(self, session: Session) -> None:
        # Attributes are never deleted, so the versions made since the last snapshot are all there is to
        # read, and of those the last of each path counts.
        query = select(AttributeVersionRow.path, AttributeVersionRow.document)
        if self._served is None:
            latest = (AttributeRow.path == AttributeVersionRow.path) & (
                AttributeRow.version == AttributeVersionRow.version
            )
            query = query.join(AttributeRow, latest).order_by(AttributeRow.path)
        else:
            since = self._served.revision.version
            query = query.where(AttributeVersionRow.snapshot_version > since).order_by(
                AttributeVersionRow.snapshot_version
            )
        for path, document in session.execute(query):
            if path not in self._documents:
                insort(self._paths, path)
            self._documents[path] = document.encode()

    def _body(self, session: Session, revision: Revision) -> bytes:
        return b'{"version":%d,"specs":[%b],"attributes":[%b],"defaults":%b,"levels":%b}' % (
            revision.version,
            b",".join(spec.model_dump_json().encode() for spec in active_specs(session)),
            b",".join([self._documents[path] for path in self._paths]),
            discovery_defaults(session).model_dump_json().encode(),
            classification_levels(session).model_dump_json().encode(),
        )

    def _forget(self) -> None:
        self._paths.clear()
        self._documents.clear()
        self._served = None
