"""Bounds on attributes that nobody decided on: how many events may add, and the purge of those that are there.

A source that is hostile or broken must not fill the catalogue. A path over a cap only stays out of the catalogue: its
values are stored, sealed by the same policy, and an event that shows the path again reports it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime

from pydantic import AwareDatetime, Field
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from idgraph.model.attributes import AttributeMetadata, AttributeStatus
from idgraph.model.documents import StrictDocument
from idgraph.model.records import DiscoveryCount, DiscoveryCounts, PurgeRecord
from idgraph.model.snapshots import DiscoveryDefaults
from metadata_service.attributes.catalogue import PATHS_A_QUERY, AttributeFilter, latest_documents
from metadata_service.attributes.rules import discovery_defaults
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import AttributeRow, DiscoveryCountRow

log = logging.getLogger(__name__)

MOST_SOURCES = 1000
"""Sources that are counted by themselves on one day; the rest is counted, and bounded, as one."""
OTHERS = "*"
MOST_PURGED = 20_000
MOST_NAMED = 100


class Room:
    """The attributes that one edit may add by discovery."""

    def __init__(self, edit: Edit, defaults: DiscoveryDefaults) -> None:
        self._session = edit.session
        self._day = _day(edit.at)
        self._left = max(0, defaults.most_attributes - _count(edit.session))
        self._most = defaults.most_new_per_source_and_day
        self._rows: dict[str, DiscoveryCountRow] = {}

    def take(self, source: str) -> bool:
        """Whether a source may add an attribute; counted either way."""
        row = self._rows.get(source) or self._row(source)
        is_room = self._left > 0 and row.created < self._most
        if is_room:
            self._left -= 1
            row.created += 1
        else:
            if not row.waiting:
                cap = f"{self._most} new ones per source and day" if self._left else "attributes in all"
                # Without the source's name, which an event may bring.
                log.warning(
                    "the cap of %s is reached: new attributes of a source wait (discovery-counts)", cap
                )
            row.waiting += 1
        return is_room

    def _row(self, source: str) -> DiscoveryCountRow:
        known = self._session.get(DiscoveryCountRow, (self._day, source))
        if known is None:
            if source != OTHERS and _sources(self._session, self._day) + len(self._rows) >= MOST_SOURCES:
                return self._rows.get(OTHERS) or self._row(OTHERS)
            known = DiscoveryCountRow(day=self._day, source=source, created=0, waiting=0)
            self._session.add(known)
        self._rows[source] = known
        return known


def discovery_counts(session: Session, now: datetime) -> DiscoveryCounts:
    """Counts of today, and of the newest days before."""
    defaults = discovery_defaults(session)
    query = select(DiscoveryCountRow).order_by(
        DiscoveryCountRow.day.desc(), DiscoveryCountRow.waiting.desc(), DiscoveryCountRow.created.desc()
    )
    rows = session.scalars(query.where(DiscoveryCountRow.day <= _day(now)).limit(MOST_NAMED))
    return DiscoveryCounts(
        attributes=_count(session),
        most_attributes=defaults.most_attributes,
        most_new_per_source_and_day=defaults.most_new_per_source_and_day,
        days=[
            DiscoveryCount(day=row.day, source=row.source, created=row.created, waiting=row.waiting)
            for row in rows
        ],
    )


def waiting_on(session: Session, now: datetime) -> int:
    """The number of reports over a cap on this day."""
    query = select(func.sum(DiscoveryCountRow.waiting)).where(DiscoveryCountRow.day == _day(now))
    return int(session.scalar(query) or 0)


class Purge(StrictDocument):
    """The undecided attributes to purge. At least one part is given."""

    source: str | None = Field(default=None, max_length=200)
    prefix: str = Field(default="", max_length=1024, description="Beginning of the path.")
    created_before: AwareDatetime | None = None
    dry_run: bool = Field(default=True, description="Only say what would go.")


def purge(edit: Edit, wanted: Purge) -> PurgeRecord:
    """Take undecided attributes out of the catalogue; their history stays."""
    gone, kept, is_all = [], 0, True
    for number, attribute in enumerate(_undecided(edit.session, wanted)):
        if number == MOST_PURGED:
            is_all = False
            break
        if _may_go(attribute, discovery_defaults(edit.session)):
            gone.append(attribute.path)
        else:
            kept += 1
    if gone and not wanted.dry_run:
        for start in range(0, len(gone), PATHS_A_QUERY):
            some = gone[start : start + PATHS_A_QUERY]
            edit.session.execute(delete(AttributeRow).where(AttributeRow.path.in_(some)))
        edit.record("attribute", f"{len(gone)} undecided", None, "purged")
    return PurgeRecord(purged=len(gone), kept=kept, paths=gone[:MOST_NAMED], is_all=is_all)


def _undecided(session: Session, wanted: Purge) -> Iterator[AttributeMetadata]:
    sources = () if wanted.source is None else (wanted.source,)
    chosen = AttributeFilter(prefix=wanted.prefix, source=sources, status=(AttributeStatus.DISCOVERED,))
    query = latest_documents().where(*chosen.conditions())
    for document in session.scalars(query.order_by(AttributeRow.path).limit(2 * MOST_PURGED)):
        attribute = AttributeMetadata.model_validate_json(document)
        if wanted.created_before is None or attribute.created < wanted.created_before:
            yield attribute


def _may_go(attribute: AttributeMetadata, defaults: DiscoveryDefaults) -> bool:
    """Nothing may be less protected without it, but what only a detector sealed: it seals such a value again."""
    if attribute.name or attribute.description:
        return False
    return attribute.sealed_for_review or (
        attribute.encryption.strictness <= defaults.encryption.strictness
        and attribute.authorization_level <= defaults.authorization_level
    )


def _day(moment: datetime) -> str:
    return moment.date().isoformat()


def _count(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(AttributeRow)) or 0


def _sources(session: Session, day: str) -> int:
    return session.scalar(select(func.count()).where(DiscoveryCountRow.day == day)) or 0
