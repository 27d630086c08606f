"""The metadata snapshot as the bytes that are served, made once a revision and mostly out of the last."""

from __future__ import annotations

import threading
from bisect import insort
from typing import NamedTuple

from sqlalchemy import select

from metadata_service.database import Database, Revision, revision_in
from metadata_service.defaults import discovery_defaults
from metadata_service.specs import active_specs
from metadata_service.tables import AttributeRow, AttributeVersionRow


class ServedSnapshot(NamedTuple):
    """`body` is a `MetadataSnapshot` as JSON."""

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
            if self._served is None or self._served.revision != revision:
                # Attributes are never deleted, so what changed since is all there is to read.
                query = (
                    select(AttributeRow.path, AttributeVersionRow.document)
                    .join(
                        AttributeVersionRow,
                        (AttributeRow.path == AttributeVersionRow.path)
                        & (AttributeRow.version == AttributeVersionRow.version),
                    )
                    .order_by(AttributeRow.path)
                )
                if self._served is not None:
                    since = self._served.revision.version
                    query = query.where(AttributeVersionRow.snapshot_version > since)
                for path, document in session.execute(query):
                    if path not in self._documents:
                        insort(self._paths, path)
                    self._documents[path] = document.encode()
                body = b'{"version":%d,"specs":[%b],"attributes":[%b],"defaults":%b}' % (
                    revision.version,
                    b",".join(spec.model_dump_json().encode() for spec in active_specs(session)),
                    b",".join([self._documents[path] for path in self._paths]),
                    discovery_defaults(session).model_dump_json().encode(),
                )
                self._served = ServedSnapshot(revision, body)
            return self._served
