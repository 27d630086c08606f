"""What changed since a snapshot that a reader has, as the bytes that are served: about as large as what changed."""

from __future__ import annotations

import json

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from idgraph.web.refusals import GoneError
from metadata_service.attributes.defaults import discovery_defaults
from metadata_service.attributes.levels import classification_levels
from metadata_service.specs.catalogue import active_specs, count_active_specs
from metadata_service.storage.database import Database, Revision, has_revision, revision_in
from metadata_service.storage.snapshots import ServedSnapshot
from metadata_service.storage.tables import AttributeRow, AttributeVersionRow, ChangeRow

MOST_CHANGES = 20_000
"""Of attributes, and of specs; more than that are read as fast with all others."""
_TOO_MUCH = "too much has changed since then; read the whole"


def changes_since(database: Database, since: str) -> ServedSnapshot:
    """From the revision of an ETag to the newest, as JSON of `SnapshotChanges`. Blocks.

    Raises GoneError for one that this database never had, as after a restored backup, or has left too far behind;
    SQLAlchemyError when the database is away.
    """
    known = Revision.of_etag(since)
    with database.read() as session:
        newest = revision_in(session)
        if known is None or not has_revision(session, known):
            raise GoneError("no snapshot of this catalogue has that ETag; read the whole")
        return ServedSnapshot(newest, _body(session, known, newest))


def _body(session: Session, known: Revision, newest: Revision) -> bytes:
    attributes = _attributes(session, known.version)
    specs = _changed_specs(session, known.version)
    if len(specs) > MOST_CHANGES:
        raise GoneError(_TOO_MUCH)
    active = active_specs(session, specs) if specs else []
    retired = sorted(specs.difference(spec.name for spec in active))
    return (
        b'{"since":%b,"etag":%b,"version":%d,"specs":[%b],"retired":%b,"attributes":[%b],'
        b'"defaults":%b,"levels":%b,"active_specs":%d,"known_attributes":%d}'
        % (
            json.dumps(known.etag).encode(),
            json.dumps(newest.etag).encode(),
            newest.version,
            b",".join(spec.model_dump_json().encode() for spec in active),
            json.dumps(retired).encode(),
            b",".join(attributes),
            discovery_defaults(session).model_dump_json().encode(),
            classification_levels(session).model_dump_json().encode(),
            count_active_specs(session),
            session.scalar(select(func.count()).select_from(AttributeRow)) or 0,
        )
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
        raise GoneError(_TOO_MUCH)
    # Sorted here: to have them in this order the database would go through all attributes.
    latest = dict(sorted(found))
    return [found[place].encode() for place in latest.items()]


def _changed_specs(session: Session, since: int) -> set[str]:
    query = select(ChangeRow.subject).where(ChangeRow.snapshot_version > since, ChangeRow.kind == "spec")
    return set(session.scalars(query.distinct().limit(MOST_CHANGES + 1)))
