"""Timelines: the entries that events leave, joined by page.

A page has the entries of one fragment, activity and day in UTC. It is a join-semilattice: a union by (source, event id), in
which the entry with the greater `made_by` holds. `keep` and `most` bound a timeline by functions of its set of entries:
they drop days that lie further than `keep` behind the newest day, and all but the newest `most` entries. Both commute with
the union, so that it does not matter who drops an entry, and when:

    bounded(a + b) = bounded(bounded(a) + bounded(b))

Entries of earlier generations of the activity do not count. So a page keeps the newest `most` entries of each generation and
the later ones: what the present one shows is there, whatever earlier ones left.

An event that is taken back keeps its entry, which counts for the bounds and does not show: the bounds would give back what
they dropped, otherwise. (`most` does not commute for a day with more entries than that, in which two versions of a spec
give one event different times.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from idgraph.model import canonical
from idgraph.model.errors import DamagedStateError
from idgraph.model.timelines import DAY_MS, ActivityEntries, Entries, Entry, PageKey, TimelineChange
from merge.page_codec import (
    OLDEST,
    EntryPage,
    encode,
    entries_of_rows,
    inserted,
    newest_version,
    read_page,
    rows_of,
    union,
)

CHANGE = b"T"
"""First byte of a fragment's change that has entries: then four bytes with the length of these, the entries, and the state
(`merge.codec`)."""

_LENGTH = 4
_FEW = 64
"""Entries that are decoded at once: a list of them is read faster."""


def joined_changes(changes: Iterable[TimelineChange]) -> TimelineChange:
    """The entries of all, by the widest bounds of each activity."""
    by_activity: dict[str, list[ActivityEntries]] = {}
    for change in changes:
        for activity, entries in change.items():
            by_activity.setdefault(activity, []).append(entries)
    return {
        activity: ActivityEntries(
            max(each.keep_days for each in some),
            max(each.most for each in some),
            tuple(chain.from_iterable(each.entries for each in some)),
        )
        for activity, some in by_activity.items()
    }


def with_change(change: TimelineChange, state: bytes) -> bytes:
    """A fragment's state with the entries that are to be joined as well; the state alone where there are none."""
    if not change:
        return state
    encoded = canonical.encode(
        [
            # As they are: two entries of one event may be of different days, and both count for `keep`.
            [activity, keep_days, most, rows_of(entries)]
            for activity, (keep_days, most, entries) in sorted(change.items())
        ]
    )
    return b"".join((CHANGE, len(encoded).to_bytes(_LENGTH, "big"), encoded, state))


def split_change(data: bytes) -> tuple[TimelineChange, bytes]:
    """The entries and the state of `with_change`. Raises DamagedStateError."""
    begin = 1 + _LENGTH
    end = begin + int.from_bytes(data[1:begin], "big")
    try:
        change = {
            activity: ActivityEntries(keep_days, most, tuple(entries_of_rows(body)))
            for activity, keep_days, most, body in canonical.decode(data[begin:end])
        }
    except (*canonical.MalformedJSON, TypeError, ValueError) as error:
        raise DamagedStateError(f"the entries of a change are damaged: {type(error).__name__}") from None
    return change, data[end:]


class PageChanges(NamedTuple):
    """Pages of one fragment to write, by key; and by activity the day before which pages have expired."""

    pages: Mapping[PageKey, bytes]
    expired: Mapping[str, int]


NOTHING_WRITTEN = PageChanges({}, {})


def pages_of(change: TimelineChange) -> dict[PageKey, list[Entry]]:
    """The entries of a change by the page that they belong to."""
    found: dict[PageKey, list[Entry]] = {}
    for activity, (_, _, entries) in change.items():
        days: dict[int, list[Entry]] = {}
        for each in entries:
            days.setdefault(each[0] // DAY_MS, []).append(each)
        for day, some in days.items():
            found[PageKey(activity, day)] = some
    return found


def joined_pages(change: TimelineChange, stored: Mapping[PageKey, bytes]) -> PageChanges:
    """The pages that a change alters, given the stored ones of `pages_of`. Raises DamagedStateError."""
    written: dict[PageKey, bytes] = {}
    expired: dict[str, int] = {}
    for key, entries in pages_of(change).items():
        known = stored.get(key, b"")
        keep_days, most, _ = change[key.activity]
        page = inserted(known, entries[0], most) if len(entries) == 1 else None
        if page is None:
            page = encode(_newest(union([*read_page(known).entries(), *entries] if known else entries), most))
        if page != known:
            written[key] = page
        if not known:
            # Where it exists, those before it expired with its first entry.
            first = key.day - keep_days
            expired[key.activity] = max(first, expired.get(key.activity, first))
    return PageChanges(written, expired)


class Timeline(NamedTuple):
    """The entries of one activity that show, in their order. Before `whole_from` (epoch milliseconds) the bounds may have dropped
    some; None: there was none. Those before `read_from` were not read; None: all were."""

    entries: Sequence[Entry]
    whole_from: int | None
    read_from: int | None = None


UNREAD = 1 << 62
"""The `read_from` of entries which one that was not read may replace: an event can have one on an earlier day, made later."""


def timeline(
    pages: Iterable[tuple[int, bytes]],
    keep_days: int,
    most: int,
    taken_back: Collection[tuple[str, str]] = (),
    generation: int = 0,
    names: Collection[str] | None = None,
    since: int | None = None,
) -> Timeline:
    """The timeline in the pages of all fragments of a person, each with its day, without events that are taken back (source, event id)
    and entries of earlier generations; with the fields of these names, or with all. Of the pages of days before `since` the
    beginnings are known. Raises DamagedStateError."""
    found: list[tuple[int, EntryPage]] = []
    unread: list[tuple[int, bytes]] = []
    for day, data in pages:
        if since is not None and day < since:
            unread.append((day, data))
        elif (page := read_page(data, names).since(generation)).times:
            found.append((day, page))
    oldest = max((day for day, _ in found), default=0) - keep_days
    days: dict[int, list[EntryPage]] = {}
    for day, page in found:
        if day >= oldest:
            days.setdefault(day, []).append(page)
    ids = [each for some in days.values() for page in some for each in page.ids]
    entries = _joined([days[day] for day in sorted(days)], len(set(ids)) == len(ids), most)
    # Commits remove what `keep` drops, so that nobody knows whether there was any.
    whole_from = entries[0].time + 1 if len(entries) == most else oldest * DAY_MS if found else None
    if not {each for _, each in taken_back}.isdisjoint(ids):
        entries = [each for each in entries if each[1:3] not in taken_back]
    unread = [each for each in unread if each[0] >= oldest]
    read_from = since * DAY_MS if since is not None and unread else None
    newest = max((newest_version(beginning) for _, beginning in unread), default=OLDEST)
    if any(version < newest for _, page in found for version in page.versions):
        read_from = UNREAD
    return Timeline(entries, whole_from, read_from)


def _newest(entries: list[Entry], most: int) -> list[Entry]:
    """The newest `most` entries of each generation and the later ones; `entries` are in their order."""
    if len(entries) <= most:
        return entries
    newer = Counter[int]()
    kept = []
    for each in reversed(entries):
        if sum(number for generation, number in newer.items() if generation >= each.generation) < most:
            kept.append(each)
        newer[each.generation] += 1
    return kept[::-1]


def _joined(days: Sequence[Sequence[EntryPage]], is_union: bool, most: int) -> Sequence[Entry]:
    """The newest `most` entries of pages by day, one for each event; `is_union` says that no event has two."""
    if not is_union:
        return union(each for some in days for page in some for each in page.entries())[-most:]
    blocks = [_one_page(some) for some in days]
    if sum(len(each.times) for each in blocks) > _FEW:
        return Entries(blocks, most)
    return [each for block in blocks for each in block.entries()][-most:]


def _one_page(pages: Sequence[EntryPage]) -> EntryPage:
    return (
        pages[0] if len(pages) == 1 else EntryPage(union(each for page in pages for each in page.entries()))
    )
