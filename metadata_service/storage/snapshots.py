"""The metadata snapshot as the bytes that are served, made once a revision and mostly out of the last."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from typing import NamedTuple, Self

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from idgraph.web.refusals import GoneError, UnknownHistoryError
from metadata_service.attributes.redaction import last_removal
from metadata_service.attributes.rules import classification_levels, discovery_defaults
from metadata_service.definitions import SEGMENTS, VIEWS
from metadata_service.identity_rules import RULES
from metadata_service.specs.catalogue import active_specs, count_active_specs
from metadata_service.storage.database import Database, Revision, has_revision, revision_in
from metadata_service.storage.history import is_gapless
from metadata_service.storage.tables import AttributeRow, AttributeVersionRow, ChangeRow


class ServedSnapshot(NamedTuple):
    """`body` is a `MetadataSnapshot` as JSON, or the `SnapshotChanges` that lead to it."""

    revision: Revision
    body: bytes
    digest: bytes

    @classmethod
    def of(cls, revision: Revision, body: bytes) -> Self:
        """With the SHA-256 of the body."""
        return cls(revision, body, hashlib.sha256(body).digest())


KEPT = 32
"""Answers to flows. Most have the same snapshot and ask at once."""


class SnapshotCache:
    """The newest snapshot, and what leads to it. Safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._documents: dict[str, bytes] = {}
        self._served: ServedSnapshot | None = None
        self._following = threading.Lock()
        self._changes: dict[str, tuple[float, ServedSnapshot]] = {}

    def changes(self, since: str, newest: Revision, age: float = 0) -> ServedSnapshot:
        """`changes_since`, made once for all flows that follow; as it was `age` seconds ago, unless paths were removed since."""
        with self._following, self._database.read() as session:
            made, found = self._changes.get(since, (0.0, None))
            is_old = time.monotonic() - made >= age
            is_old = is_old or not found or last_removal(session) > found.revision.version
            if found is None or (is_old and found.revision != newest):
                made, found = time.monotonic(), changes_since(self._database, since)
                if len(self._changes) >= KEPT:
                    self._changes.clear()
                self._changes[since] = made, found
            return found

    def current(self) -> ServedSnapshot:
        """The snapshot at the newest revision. Blocks; raises SQLAlchemyError when the database is away."""
        with self._lock, self._database.read() as session:
            revision = revision_in(session)
            if self._served is not None and (
                not has_revision(session, self._served.revision)  # the database was restored from a backup
                or last_removal(session) > self._served.revision.version
            ):
                self._documents, self._served = {}, None
            if self._served is None or self._served.revision != revision:
                self._read_changed(session)
                self._served = ServedSnapshot.of(revision, self._body(session, revision))
            return self._served

    def _read_changed(self, session: Session) -> None:
        # Attributes are deleted by a redaction or a purge only, so the versions made since the last snapshot are all there is to
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
            self._documents[path] = document.encode()

    def _body(self, session: Session, revision: Revision) -> bytes:
        return b'{"version":%d,"specs":[%b],"attributes":[%b],"defaults":%b,"levels":%b%b}' % (
            revision.version,
            b",".join(spec.model_dump_json(exclude={"cases"}).encode() for spec in active_specs(session)),
            b",".join([self._documents[path] for path in sorted(self._documents)]),
            discovery_defaults(session).model_dump_json().encode(),
            classification_levels(session).model_dump_json().encode(),
            _rules(session, since=0) + _definitions(session, since=0),
        )


MOST_CHANGES = 20_000
"""Changed attributes, and changed specs; more than that are read as fast with all others."""


def changes_since(database: Database, since: str) -> ServedSnapshot:
    """From the revision of an ETag to the newest, as JSON of `SnapshotChanges`. Blocks.

    Raises GoneError for one that this database never had, as after a restored backup, or lost what led to it, or has left too far
    behind; SQLAlchemyError when the database is away.
    """
    known = Revision.of_etag(since)
    with database.read() as session:
        newest = revision_in(session)
        if known is None or not has_revision(session, known):
            raise UnknownHistoryError("no snapshot of this catalogue has that ETag; read the whole")
        if not is_gapless(session, known.version):
            raise UnknownHistoryError("versions before this snapshot are missing; read the whole")
        if last_removal(session) > known.version:
            raise GoneError("paths were redacted or purged since then; read the whole")
        return ServedSnapshot.of(newest, _body(session, known, newest))


def _body(session: Session, known: Revision, newest: Revision) -> bytes:
    attributes = _attributes(session, known.version)
    changed = select(ChangeRow.subject).where(
        ChangeRow.snapshot_version > known.version, ChangeRow.kind == "spec"
    )
    specs = set(session.scalars(changed.distinct().limit(MOST_CHANGES + 1)))
    if len(specs) > MOST_CHANGES:
        raise GoneError("too much has changed since then; read the whole")
    active = active_specs(session, specs) if specs else []
    retired = sorted(specs.difference(spec.name for spec in active))
    return (
        b'{"since":%b,"etag":%b,"version":%d,"specs":[%b],"retired":%b,"attributes":[%b],'
        b'"defaults":%b,"levels":%b,"active_specs":%d,"known_attributes":%d%b}'
        % (
            json.dumps(known.etag).encode(),
            json.dumps(newest.etag).encode(),
            newest.version,
            b",".join(spec.model_dump_json(exclude={"cases"}).encode() for spec in active),
            json.dumps(retired).encode(),
            b",".join(attributes),
            discovery_defaults(session).model_dump_json().encode(),
            classification_levels(session).model_dump_json().encode(),
            count_active_specs(session),
            session.scalar(select(func.count()).select_from(AttributeRow)) or 0,
            _rules(session, known.version) + _definitions(session, known.version),
        )
    )


def _rules(session: Session, since: int) -> bytes:
    """The members of identity rules, of the default ones none."""
    held, stated = RULES.known(session), b""
    if RULES.changed(session, since):
        stated = b',"identity_rules":%b' % held.document.model_dump_json(exclude_unset=True).encode()
    return b',"identity_rules_version":%d%b' % (held.number, stated) if held.number else b""


def _definitions(session: Session, since: int) -> bytes:
    """The members of views and of segments, whole where any changed."""
    return b"".join(
        b',"%bs":[%b]'
        % (kind.kind.encode(), b",".join(each.model_dump_json().encode() for each in kind.active(session)))
        for kind in (VIEWS, SEGMENTS)
        if kind.changed(session, since)
    )


def _attributes(session: Session, since: int) -> list[bytes]:
    """Those that changed, as they are now, by path."""
    row = AttributeVersionRow
    query = select(row.path, row.version, row.document).where(row.snapshot_version > since)
    found = {
        (path, version): document
        for path, version, document in session.execute(query.limit(MOST_CHANGES + 1))
    }
    if len(found) > MOST_CHANGES:
        raise GoneError("too much has changed since then; read the whole")
    # Sorted here: to have them in this order the database would go through all attributes.
    latest = dict(sorted(found))
    return [found[place].encode() for place in latest.items()]
