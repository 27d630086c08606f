"""Timelines: the entries that events leave where an activity names them, in pages by fragment, activity and day; and the
protocol of a store that keeps them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, overload

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
        return generation_of(self.made_by[0])


_VERSION_BITS = 30


def generation_of(version: int) -> int:
    """The generation of `made_by_version`."""
    return version >> _VERSION_BITS


def made_by_version(generation: int, version: int) -> int:
    """The version of an activity in entries: one of a later generation is greater."""
    return generation << _VERSION_BITS | version


class Block(Protocol):
    """Entries in their order, whose times are known."""

    @property
    def times(self) -> Sequence[int]: ...

    def entries(self) -> Sequence[Entry]:
        """All of them. Raises DamagedStateError."""
        ...

    def values(self, field: str) -> Sequence[Any]:
        """The values of a field, None where an entry has none. Raises DamagedStateError."""
        ...


class Entries(Sequence[Entry]):
    """The entries of an activity in their order. A block of them is decoded when one of it is asked for: so every use may raise
    DamagedStateError."""

    def __init__(self, blocks: Sequence[Block], most: int) -> None:
        """The newest `most` entries of these blocks, which follow one another in time, none of them empty."""
        self._blocks = blocks
        self._begins = list(accumulate((len(each.times) for each in blocks), initial=0))
        self._places = range(self._begins[-1])[-most:]

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> Entry: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Entry]: ...

    def __getitem__(self, place: int | slice) -> Entry | Sequence[Entry]:
        if isinstance(place, int):
            at = self._places[place]
            number = bisect_right(self._begins, at) - 1
            return self._blocks[number].entries()[at - self._begins[number]]
        places = self._places[place]
        if places.step != 1:
            return [self[at] for at in range(len(self))[place]]
        found = Entries.__new__(Entries)
        found._blocks, found._begins, found._places = self._blocks, self._begins, places
        return found

    def __iter__(self) -> Iterator[Entry]:
        for block, part in self._parts():
            yield from block.entries()[part]

    def times(self) -> list[int]:
        """Their times; nothing is decoded."""
        return [each for block, part in self._parts() for each in block.times[part]]

    def values(self, field: str) -> list[Any]:
        """The values of a field, None where an entry has none; no other is decoded."""
        return [each for block, part in self._parts() for each in block.values(field)[part]]

    def before(self, moment: int) -> int:
        """The number of entries whose time is less than a moment in epoch milliseconds."""
        number = max(bisect_left(self._blocks, moment, key=lambda each: each.times[0]) - 1, 0)
        at = self._begins[number] + bisect_left(self._blocks[number].times, moment) if self._blocks else 0
        return min(max(at - self._places.start, 0), len(self))

    def _parts(self) -> Iterator[tuple[Block, slice]]:
        """The blocks that have some of them, and which."""
        first, end = self._places.start, self._places.stop
        number = bisect_right(self._begins, first) - 1
        while number < len(self._blocks) and self._begins[number] < end:
            begin = self._begins[number]
            yield self._blocks[number], slice(max(first - begin, 0), end - begin)
            number += 1


def times_of(entries: Sequence[Entry]) -> list[int]:
    """The times of sorted entries, in their order."""
    return entries.times() if isinstance(entries, Entries) else [each.time for each in entries]


def values_of(entries: Sequence[Entry], field: str) -> list[Any]:
    """The values of a field of entries, None where one has none."""
    return entries.values(field) if isinstance(entries, Entries) else [each[4].get(field) for each in entries]


def count_before(entries: Sequence[Entry], moment: int) -> int:
    """The number of sorted entries whose time is less than a moment in epoch milliseconds."""
    if isinstance(entries, Entries):
        return entries.before(moment)
    return bisect_left(entries, moment, key=itemgetter(0))


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


Since = Mapping[str, int]
"""By activity, the first day whose page is read."""

EVERY_DAY: Since = MappingProxyType({})

BEGINNING = 160
"""Bytes."""


class Timelines(Protocol):
    """Pages beside fragments, opaque bytes here, and due entries. `FragmentStore.write` writes pages with their fragment, under
    its version; with the fragment, an erasure or a withdrawal takes its pages and its due entry.

    Read the pages after the fragment: then a write of what was read of both is refused where either has changed since. Every
    method blocks, and raises `StoreError` as those of `FragmentStore`."""

    def pages(self, keys: Collection[tuple[str, PageKey]]) -> dict[tuple[str, PageKey], bytes]:
        """Those of these pages that exist, by fragment id and key. Reads all earlier writes."""
        ...

    def timelines(
        self, ids: Collection[str], activities: Collection[str] | None = None, since: Since = EVERY_DAY
    ) -> dict[str, dict[PageKey, bytes]]:
        """By id, all pages of these activities, by default of all, of those of these fragments that have any. An activity in
        `since` has its pages from that day on, and of those of earlier days the first `BEGINNING` bytes. Reads all earlier
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
