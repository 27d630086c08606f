"""Timelines: the entries that events leave where an activity names them, in pages by fragment, activity and day; and the
protocol of a store that keeps them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

DAY_MS = 86_400_000


class Entry(NamedTuple):
    """One event in a timeline, ordered by `time` (epoch milliseconds), source and event id.

    `made_by` is the version of the activity (`made_by_version`), then name and version of the spec that mapped the event: of two
    entries of one event the greater one holds. `fields` are JSON values by the names that the activity gives them.
    """

    time: int
    source: str
    event_id: str
    made_by: tuple[int, str, int]
    fields: Mapping[str, Any]

    @property
    def order(self) -> tuple[int, str, str]:
        """The key by which entries of an activity are sorted; no two entries of a timeline share it."""
        return self[:3]

    @property
    def generation(self) -> int:
        """The generation of the activity that made it."""
        return self.made_by[0] >> _VERSION_BITS


_VERSION_BITS = 30


def made_by_version(generation: int, version: int) -> int:
    """The version of an activity in entries: one of a later generation is greater."""
    return generation << _VERSION_BITS | version


class PageKey(NamedTuple):
    """One page of a fragment's timelines. `day` counts days in UTC since the epoch."""

    activity: str
    day: int


class DueEntry(NamedTuple):
    """The profile of the fragment that names it changes at `at_ms` (epoch milliseconds) without any event. `version` is that
    of the profile's document from which it was computed (`idgraph.model.store.document_version`)."""

    fragment_id: str
    at_ms: int
    version: int = 0


Pages = Mapping[PageKey, bytes]
"""Encoded pages of one fragment by their keys."""


class Timelines(Protocol):
    """Pages beside fragments, opaque bytes here, and due entries. `FragmentStore.write` writes pages with their fragment, under
    its version; with the fragment, an erasure or a withdrawal takes its pages and its due entry.

    Read the pages after the fragment: then a write of what was read of both is refused where either has changed since. Every
    method blocks, and raises `StoreError` as those of `FragmentStore`."""

    def pages(self, keys: Collection[tuple[str, PageKey]]) -> dict[tuple[str, PageKey], bytes]:
        """Those of these pages that exist, by fragment id and key. Reads all earlier writes."""
        ...

    def timelines(
        self, ids: Collection[str], activities: Collection[str] | None = None
    ) -> dict[str, dict[PageKey, bytes]]:
        """By id, all pages of these activities, by default of all, of those of these fragments that have any. Reads all earlier
        writes."""
        ...

    def plan(self, due: Collection[DueEntry]) -> None:
        """Replace the due entry of each of these fragments that exists, at most one per fragment; `at_ms` 0 removes it. An entry
        that was computed from a later version of the document stays. Durable when it returns."""
        ...

    def take_due(self, now_ms: int, limit: int) -> int:
        """Move up to `limit` entries that are due at `now_ms`, the earliest first, into the outbox, each in a version of its own as
        `Outbox.enqueue` does. Returns their number; one that two callers take at once may be counted by both."""
        ...


class ActivityEntries(NamedTuple):
    """Entries of one activity, and the bounds that it had when events left them: days, and entries per person."""

    keep_days: int
    most: int
    entries: tuple[Entry, ...]


TimelineChange = Mapping[str, ActivityEntries]
"""The entries that events leave in the timelines of one fragment, by activity."""

NO_CHANGE: TimelineChange = MappingProxyType({})

LARGEST_ENTRY = 8 << 10
"""Bytes of an entry's fields."""
