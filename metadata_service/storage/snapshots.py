"""The metadata snapshot and the catalogue as the bytes that are served, made once and mostly out of the last ones."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from typing import NamedTuple, Self

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from idgraph.model import canonical, paths
from idgraph.model.attributes import AttributeMetadata, KnownAttribute
from idgraph.model.snapshots import DiscoveryDefaults
from metadata_service.attributes.redaction import last_removal
from metadata_service.attributes.rules import classification_levels, discovery_defaults
from metadata_service.behaviour import ACTIVITIES, DERIVED_ATTRIBUTES
from metadata_service.definitions import SEGMENTS, VIEWS
from metadata_service.identity_rules import RULES
from metadata_service.specs.catalogue import active_specs
from metadata_service.specs.input_places import flow_of
from metadata_service.storage.database import Database, Revision, has_revision, revision_from, revision_in
from metadata_service.storage.history import is_gapless
from metadata_service.storage.tables import AttributeRow, AttributeVersionRow, ChangeRow, DocumentVersionRow
from metadata_service.triggers import TRIGGERS
from transforms.privacy.protected_names import id_copies
from transforms.schema.detection import shaped_key


class Served(NamedTuple):
    """A body as JSON with the revision that last changed it, which is its ETag; and the revision at which it was read."""

    revision: Revision
    body: bytes
    digest: bytes
    read_at: Revision

    @classmethod
    def of(cls, revision: Revision, body: bytes, read_at: Revision) -> Self:
        """With the SHA-256 of the body."""
        return cls(revision, body, hashlib.sha256(body).digest(), read_at)


class _Known(NamedTuple):
    """One attribute: its document where the snapshot has it, else nothing; and its line of the catalogue."""

    document: bytes
    line: bytes


_DISCOVERY = ("discovered", "conflicted", "proposed")
"""Actions that change no snapshot, unless what they made is in it."""


class SnapshotCache:
    """The newest snapshot and catalogue. Safe to share between threads.

    A discovered attribute that follows the discovery defaults is in the catalogue alone, and gives the snapshot no new version.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._read_at: Revision | None = None
        self._defaults = DiscoveryDefaults()
        self._above_value_keys: set[str] = set()
        """Paths below which specs in force make keys of values."""
        self._known: dict[str, _Known] = {}
        self._changed = 0
        """The version that last changed the snapshot."""
        self._snapshot: Served | None = None
        self._catalogue: Served | None = None

    def current(self) -> Served:
        """The newest snapshot. Blocks; raises SQLAlchemyError when the database is away."""
        with self._lock, self._database.read() as session:
            read_at = self._read(session)
            if self._snapshot is None or self._snapshot.read_at != read_at:
                revision = revision_from(session, self._changed)
                if self._snapshot is not None and self._snapshot.revision == revision:
                    self._snapshot = self._snapshot._replace(read_at=read_at)
                else:
                    self._snapshot = Served.of(revision, self._body(session, revision), read_at)
            return self._snapshot

    def revision(self) -> Revision:
        """The revision of the newest snapshot, which is its ETag; cheap unless something was written. Raises as `current`."""
        known = self._snapshot
        if known is not None and self._database.revision() == known.read_at:
            return known.revision
        return self.current().revision

    def catalogue(self) -> Served:
        """The newest `Catalogue`. Blocks; raises SQLAlchemyError when the database is away."""
        with self._lock, self._database.read() as session:
            read_at = self._read(session)
            if self._catalogue is None or self._catalogue.read_at != read_at:
                lines = b",".join([self._known[path].line for path in sorted(self._known)])
                self._catalogue = Served.of(read_at, b'{"attributes":[%b]}' % lines, read_at)
            return self._catalogue

    def knows(self, etag: str) -> bool:
        """Whether an ETag is of this catalogue, with all of its history since: not after a restored backup."""
        known = Revision.of_etag(etag)
        with self._database.read() as session:
            return known is not None and has_revision(session, known) and is_gapless(session, known.version)

    def _read(self, session: Session) -> Revision:
        newest, defaults = revision_in(session), discovery_defaults(session)
        if self._read_at is not None and (
            not has_revision(session, self._read_at)  # the database was restored from a backup
            or last_removal(session) > self._read_at.version
            or defaults != self._defaults
        ):
            self._begin_again()
        self._defaults = defaults
        if self._read_at != newest:
            above = {above for spec in active_specs(session) for _, above in flow_of(spec).value_keys}
            if above != self._above_value_keys:
                self._begin_again()
                self._above_value_keys = above
            self._read_since(session, -1 if self._read_at is None else self._read_at.version)
            self._read_at = newest
        return newest

    def _begin_again(self) -> None:
        self._read_at, self._known, self._changed = None, {}, 0
        self._snapshot = self._catalogue = None

    def _is_key_of_value(self, path: str) -> bool:
        """Whether a spec in force may make a key of this path of a value: such a key is refused, unless the snapshot has it."""
        return any(not above or paths.is_within(path, above) for above in self._above_value_keys)

    def _read_since(self, session: Session, version: int) -> None:
        row = AttributeVersionRow
        query = select(row.path, row.snapshot_version, row.document)
        if version < 0:
            latest = (AttributeRow.path == row.path) & (AttributeRow.version == row.version)
            query = query.join(AttributeRow, latest)
        else:
            # Attributes are deleted by a redaction or a purge only, so these are all, and of those the last of each path counts.
            query = query.where(row.snapshot_version > version).order_by(row.snapshot_version)
        for path, changed, document in session.execute(query):
            attribute = AttributeMetadata.model_validate_json(document)
            # A key that looks sensitive is refused, unless the snapshot has it: it was known before detection was on.
            is_left_out = (
                self._defaults.are_followed_by(attribute)
                and not any(map(shaped_key, paths.split(path)))
                and not self._is_key_of_value(path)
            )
            line = KnownAttribute.of(attribute).model_dump_json(exclude_none=True).encode()
            self._known[path] = _Known(b"" if is_left_out else document.encode(), line)
            if not is_left_out:
                self._changed = max(self._changed, changed)
        decided = select(func.max(ChangeRow.snapshot_version)).where(
            ChangeRow.snapshot_version > version, ChangeRow.action.not_in(_DISCOVERY)
        )
        self._changed = max(self._changed, session.scalar(decided) or 0)

    def _documents(self) -> Iterator[bytes]:
        for path in sorted(self._known):
            if document := self._known[path].document:
                yield document

    def _body(self, session: Session, revision: Revision) -> bytes:
        specs = list(active_specs(session))
        copies = {spec.name: found for spec in specs if (found := id_copies(spec))}
        return b'{"version":%d,"specs":[%b],"id_copies":%b,"attributes":[%b],"defaults":%b,"levels":%b%b}' % (
            revision.version,
            b",".join(spec.model_dump_json(exclude={"cases"}).encode() for spec in specs),
            canonical.encode(copies),
            b",".join(self._documents()),
            self._defaults.model_dump_json().encode(),
            classification_levels(session).model_dump_json().encode(),
            _rules(session) + _definitions(session) + _behaviour_version(session),
        )


def _rules(session: Session) -> bytes:
    """The members of identity rules, of the default ones none."""
    number, rules = RULES.known(session)
    stated = rules.model_dump_json(exclude_unset=True).encode()
    return b',"identity_rules_version":%d,"identity_rules":%b' % (number, stated) if number else b""


def _behaviour_version(session: Session) -> bytes:
    """The member, where a definition was ever saved: the number of their versions."""
    kinds = ACTIVITIES.kind, DERIVED_ATTRIBUTES.kind, SEGMENTS.kind, TRIGGERS.kind
    found = session.scalar(select(func.count()).where(DocumentVersionRow.kind.in_(kinds)))
    return b',"behaviour_version":%d' % found if found else b""


def _definitions(session: Session) -> bytes:
    """The members of views, segments, activities (retired ones too), derived attributes and triggers, where there are any."""
    return b"".join(
        b',"%b":[%b]'
        % (
            kind.path.replace("-", "_").encode(),
            b",".join(each.model_dump_json().encode() for each in found),
        )
        for kind in (VIEWS, SEGMENTS, ACTIVITIES, DERIVED_ATTRIBUTES, TRIGGERS)
        if (found := list(kind.all(session) if kind is ACTIVITIES else kind.active(session)))
    )
