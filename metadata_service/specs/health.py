"""The health of mapping specs: what flows report of their use, added up by version and source."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.model.records import SpecHealthList, SpecHealthRecord, SpecUseRecord, UnmappedRecord
from idgraph.model.spec_use import SpecUse, joined_fields
from idgraph.web.cursors import PageRequest
from metadata_service.attributes.redaction import is_recent
from metadata_service.specs.catalogue import active_specs
from metadata_service.storage.tables import SpecRow, SpecUseRow
from metadata_service.storage.versions import paged

_MOST = 2**53
_SHOWN = {"name", "version", "source", "event_type"}


def take_uses(session: Session, uses: Iterable[SpecUse]) -> None:
    """Add what a flow reports; of specs that are not known, nothing."""
    known = set(session.scalars(select(SpecRow.name))) | {""}
    forgets = is_recent(session)
    for use in uses:
        spec, moment = use.spec or "", datetime.fromtimestamp(use.last_used / 1000, UTC)
        if spec not in known:
            continue
        row = session.get(SpecUseRow, (spec, use.version, use.source))
        if row is None:
            row = SpecUseRow(
                spec=spec, version=use.version, source=use.source, events=0, errors=0, fields="{}"
            )
            row.since = row.last_used = moment
            session.add(row)
        row.events = min(row.events + use.events, _MOST)
        row.errors = min(row.errors + use.errors, _MOST)
        row.last_used = max(row.last_used, moment)
        if not forgets:
            row.fields = json.dumps(joined_fields(json.loads(row.fields), use.fields))
    session.flush()


def spec_health(session: Session, wanted: PageRequest) -> SpecHealthList:
    """A page of the active specs, by name."""
    query = select(SpecRow.name).where(SpecRow.active_version.is_not(None))
    page = wanted.page(session.scalars(paged(query, SpecRow.name, wanted)), lambda name: name)
    specs = active_specs(session, page.items)
    uses = uses_of(session, {each.name: each.version for each in specs})
    items = [SpecHealthRecord(**each.model_dump(include=_SHOWN), uses=uses[each.name]) for each in specs]
    return SpecHealthList(items=items, next=page.next, unmapped=unmapped(session))


def uses_of(session: Session, versions: Mapping[str, int]) -> dict[str, list[SpecUseRecord]]:
    """The uses of these versions of specs, by name, the last used source first."""
    found: dict[str, list[SpecUseRecord]] = defaultdict(list)
    for row in _rows(session, versions.keys()):
        if row.version == versions[row.spec]:
            fields = json.loads(row.fields)
            # If some events have an empty object, its fields in other events count.
            above = {path[:end] for path in fields for end, mark in enumerate(path) if mark == "/"}
            unread = sorted(path for path, is_read in fields.items() if not is_read and path not in above)
            stored = {name: getattr(row, name) for name in SpecUseRecord.model_fields.keys() - {"unread"}}
            found[row.spec].append(SpecUseRecord(**stored, unread=unread))
    return found


def unmapped(session: Session) -> list[UnmappedRecord]:
    """By source, the latest first, events that no active spec mapped."""
    return [
        UnmappedRecord(source=row.source, events=row.errors, last_seen=row.last_used)
        for row in _rows(session, [""])
    ]


def _rows(session: Session, names: Collection[str]) -> Iterable[SpecUseRow]:
    query = select(SpecUseRow).where(SpecUseRow.spec.in_(names))
    return session.scalars(query.order_by(SpecUseRow.last_used.desc(), SpecUseRow.source))
