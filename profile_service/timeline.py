"""A person's timeline as callers see it: the entries of her activities, the newest first, in pages."""

from __future__ import annotations

from collections.abc import Collection
from heapq import nlargest
from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.model import canonical
from idgraph.model.callers import Caller
from idgraph.model.identifiers import Identifier
from idgraph.model.timelines import Entry
from idgraph.web.cursors import ListPage, from_cursor, to_cursor
from idgraph.web.refusals import BadQueryError, ClashError, UnknownSubjectError
from merge.identity.components import Person
from profile_service.reader import ProfileReader

if TYPE_CHECKING:
    from profile_service.service import ProfileService

_Key = tuple[int, str, str, str]


class TimelineRequest(NamedTuple):
    """Which entries: of these activities (all, if none is named), at or after `since` and before `until` in epoch
    milliseconds."""

    activities: Collection[str] = ()
    since: int | None = None
    until: int | None = None
    limit: int = 100
    cursor: str | None = None


def timeline(
    service: ProfileService, caller: Caller, identifier: Identifier, wanted: TimelineRequest
) -> ListPage[dict[str, Any]]:
    """A page of the entries of the person that an identifier belongs to. Raises UnknownSubjectError, ClashError where several
    share it, and as `timeline_of`."""
    reader = service.reader(caller)
    return timeline_of(reader, _person(service, reader, identifier), wanted)


def spans_of(
    service: ProfileService, caller: Caller, identifier: Identifier, wanted: TimelineRequest
) -> list[dict[str, Any]]:
    """The sessions and matches of the person that reach into the wanted time, the newest first; those of derived attributes that
    the caller sees. A pattern that takes too many steps has none. Raises as `timeline`."""
    reader = service.reader(caller)
    person = _person(service, reader, identifier)
    _check_activities(reader, wanted)
    found = [
        {"derived": each.name, "kind": "session" if each.sessions else "match", **span._asdict()}
        for each, spans in reader.spans(person, wanted.activities)
        for span in spans
        if (wanted.since is None or span.end >= wanted.since)
        and (wanted.until is None or span.begin < wanted.until)
    ]
    return nlargest(wanted.limit, found, key=lambda each: (each["begin"], each["end"], each["derived"]))


def _person(service: ProfileService, reader: ProfileReader, identifier: Identifier) -> Person:
    owners = reader.owners(identifier)
    if owners.sharing:
        raise ClashError("several profiles share this identifier, and it belongs to none of them")
    service.require_found(bool(owners.persons))
    if not owners.persons:
        raise UnknownSubjectError("no profile has this identifier")
    return owners.persons[0]


def _check_activities(reader: ProfileReader, wanted: TimelineRequest) -> None:
    known = reader.activities()
    if unknown := sorted(set(wanted.activities) - known.keys()):
        raise BadQueryError(
            f"there is no activity {unknown[0]}; there are: {', '.join(sorted(known)) or 'none'}"
        )


def timeline_of(reader: ProfileReader, person: Person, wanted: TimelineRequest) -> ListPage[dict[str, Any]]:
    """A page of entries. Raises BadQueryError for an activity that the caller does not know, or a foreign cursor; StoreError,
    DamagedStateError."""
    _check_activities(reader, wanted)
    before = _read(wanted.cursor)
    until = [each for each in (wanted.until, None if before is None else before[0] + 1) if each is not None]
    found: list[tuple[_Key, Entry]] = []
    asked = wanted.activities or reader.activities()
    for timelines in reader.timelines(person, asked, wanted.since, min(until, default=None)):
        found = [
            (key, each)
            for name, entries in timelines.items()
            for each in entries
            for key in [_key(name, each)]
            if before is None or key < before
        ]
        if len(found) > wanted.limit:
            break
    newest = nlargest(wanted.limit + 1, found, key=lambda each: each[0])
    shown = newest[: wanted.limit]
    is_last = len(newest) <= wanted.limit
    return ListPage(
        items=[entry_document(key[3], entry) for key, entry in shown],
        next=None if is_last else to_cursor(canonical.encode(shown[-1][0]).decode()),
    )


def _key(activity: str, entry: Entry) -> _Key:
    return (*entry.order, activity)


def entry_document(activity: str, entry: Entry) -> dict[str, Any]:
    """An entry as JSON data."""
    _, spec, version = entry.made_by
    return {
        "activity": activity,
        "time": entry.time,
        "source": entry.source,
        "event": entry.event_id,
        "spec": spec,
        "spec_version": version,
        "fields": dict(entry.fields),
    }


def _read(cursor: str | None) -> _Key | None:
    if cursor is None:
        return None
    try:
        time, source, event_id, activity = canonical.decode(from_cursor(cursor, str))
    except (*canonical.MalformedJSON, TypeError, ValueError) as error:
        raise BadQueryError("the cursor belongs to another list; start again without one") from error
    return time, source, event_id, activity
