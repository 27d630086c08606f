"""The ledgers of a partition: how far it reaches, and how much lies between two positions."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

from idgraph.model.pulsar import place, position
from idgraph.model.topics import Behind


class StoredLedger(NamedTuple):
    """One segment of a partition: its id, entries (0 to `entries` - 1) and stored bytes."""

    id: int
    entries: int
    stored_bytes: int


COMPACTED = -1
"""Stands for the id of the ledger to which a topic is compacted. It goes first, and is read as a whole."""


class Ledgers(NamedTuple):
    """Those that a partition has now, the last one open, the first perhaps `COMPACTED`. `end` is the position after the last entry that may be read."""

    present: tuple[StoredLedger, ...]
    end: int

    @property
    def first(self) -> int:
        """The position of the first entry that is there."""
        return position(self.present[0].id, 0) if self.present else self.end

    def has_lost(self, since: int) -> bool:
        """Whether entries from `since` on may have been deleted. A ledger that is gone does not say whether it had more."""
        return COMPACTED < place(since)[0] < place(self.first_whole)[0]

    @property
    def first_whole(self) -> int:
        """The position of the first entry that is there as it was published."""
        return next((position(each.id, 0) for each in self.present if each.id > COMPACTED), self.end)

    def entries(self, since: int, until: int) -> int:
        """The number of entries between two positions that are there."""
        return sum(high - low for _, low, high in self._between(since, until))

    def stored_bytes(self, since: int, until: int) -> int:
        """Their stored bytes, by the average of each ledger."""
        return sum(_share(ledger, high - low) for ledger, low, high in self._between(since, until))

    def after(self, since: int, most_bytes: int) -> int:
        """The position after at most so many stored bytes, but at least one entry; at the end of a closed ledger the
        beginning of the next, since a ledger that is deleted does not say any more that it was read to its end."""
        until = since
        for ledger, low, high in self._between(since, self.end):
            each = max(1, _share(ledger, 1))
            count = high - low
            if ledger.id > COMPACTED:
                count = min(count, max(most_bytes // each, 1 if until == since else 0))
            if not count:
                break
            until = position(ledger.id, low + count)
            most_bytes -= count * each
        return self._normal(until)

    def split(self, since: int, until: int, parts: int) -> list[tuple[int, int]]:
        """The same range as ranges within one ledger, of at most the `parts`th of its entries."""
        size = max(1, -(-self.entries(since, until) // parts))
        return [
            (position(ledger.id, begin), position(ledger.id, min(begin + step, high)))
            for ledger, low, high in self._between(since, until)
            for step in (size if ledger.id > COMPACTED else high,)
            for begin in range(low, high, step)
        ]

    def before(self, at: int, entries: int) -> int:
        """The position so many entries before another, or the first that is there."""
        for ledger, low, high in reversed(self._between(self.first, at)):
            if high - low >= entries:
                return position(ledger.id, high - entries)
            entries -= high - low
        return self.first

    def _between(self, since: int, until: int) -> list[tuple[StoredLedger, int, int]]:
        (first, low), (last, high) = place(since), place(until)
        return [
            (each, begin, end)
            for each in self.present
            if first <= each.id <= last
            and (begin := low if each.id == first else 0)
            < (end := min(high, each.entries) if each.id == last else each.entries)
        ]

    def _normal(self, at: int) -> int:
        ledger, entry = place(at)
        for each, following in zip(self.present, self.present[1:], strict=False):
            if each.id == ledger and entry >= each.entries:
                return self._normal(position(following.id, 0))
        return at


def _share(ledger: StoredLedger, entries: int) -> int:
    return ledger.stored_bytes * entries // max(1, ledger.entries)


class StoredEntry(NamedTuple):
    """What one entry is. It may hold no message of its own: as the mark of a transaction's end, taken back, or a chunk, of which
    `is_last` ends its message. `published` is the time in seconds since 1970, `messages` the number in its batch."""

    published: float
    messages: int = 1
    is_chunk: bool = False
    is_last: bool = False
    is_of_transaction: bool = False


class PulsarAdmin(Protocol):
    """What the cluster says of its topics, which are `TENANT/NAMESPACE/TOPIC`. Methods raise SourceUnavailableError while it is
    away, ConfigError for what must be repaired. Safe for several threads."""

    def topics(self, namespace: str) -> set[str]:
        """The persistent topics of a namespace, without those of Pulsar itself."""
        ...

    def ledgers(self, topic: str) -> dict[int, Ledgers] | None:
        """The ledgers of all partitions; None if there is no such topic."""
        ...

    def entry(self, topic: str, partition: int, at: int) -> StoredEntry:
        """What the entry at a position is."""
        ...

    def at(self, topic: str, partition: int, epoch_ms: int) -> int:
        """The position of the first entry that was published at a time or later."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def behind(admin: PulsarAdmin, topic: str, partition: int, since: int, found: Ledgers) -> Behind:
    """The distance of a position. All waiting entries count as many messages as the first. As `PulsarAdmin` raises."""
    entries = found.entries(since, found.end)
    if not entries:
        return Behind(0, 0.0)
    oldest = found.split(since, found.end, 1)[0][0]
    if place(oldest)[0] == COMPACTED:
        return Behind(entries)
    first = admin.entry(topic, partition, oldest)
    return Behind(entries * first.messages, max(0.0, time.time() - first.published))
