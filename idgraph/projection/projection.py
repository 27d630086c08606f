"""The projection: the one way from committed fragments to documents of the index, and the only writer of the index.

A commit leaves an entry in the outbox in its own transaction; so does an erasure. The projection reads these fragments,
puts their documents, erases the documents of fragments that are gone, and then settles the entries. Whatever stops it in
between leaves the entries, and projecting again changes nothing.

It reads the store within `index.writing()`: nobody can erase or replace a fragment's document between the read and the
commit of the put. Where an index lets several write at once, versions decide. One commit has many slices, since a commit
costs as much for ten documents as for a thousand; entries are settled behind it.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, starmap

from idgraph.model.batch_size import BatchSize
from idgraph.model.index import IndexRules, ProfileIndex
from idgraph.model.store import OutboxEntry, ProfileStore
from idgraph.projection.documents import documents_of, put

log = logging.getLogger(__name__)

AT_ONCE = 5_000
"""Light fragments that are in memory at once; of heavy ones fewer, see `BatchSize`."""

COMMITTED_AT_ONCE = 100_000
COMMIT_SECONDS = 5.0
"""After so many fragments, or so long, what was put is committed: other writers wait for it."""

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 60.0
"""Until a refused document is put again, doubled each time."""

SHOWN = 5
"""How many refused documents are named where more are meant."""

MOST_REMEMBERED = 10_000
"""Refused documents that wait for their retry. Of more, the others are put again by each sweep."""


@dataclass(slots=True)
class Projected:
    """`projected` fragments are in the index as they are stored, or gone from both; of the latter the index had `erased`
    documents. `refused` has by id why the index has not taken the others, without any value; `postponed` are those that it
    refused before. `is_whole` says whether the time was enough for all."""

    projected: int = 0
    erased: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    postponed: int = 0
    is_whole: bool = True

    def left(self) -> int:
        """How many the index has not taken."""
        return len(self.refused) + self.postponed

    def add(self, other: Projected) -> None:
        """Add what became of other fragments."""
        self.projected += other.projected
        self.erased += other.erased
        self.refused |= other.refused


class Projection:
    """Projects fragments of one store into one index. One per thread; any number may run at once."""

    def __init__(
        self,
        store: ProfileStore,
        index: ProfileIndex,
        rules: Callable[[], IndexRules],
        at_once: int = AT_ONCE,
    ) -> None:
        """`rules` returns those of the newest snapshot."""
        self._store = store
        self._index = index
        self._rules = rules
        self._size = BatchSize(at_once)
        self._refused: dict[str, int] = {}
        self._pause = FIRST_RETRY_SECONDS
        self._retry_at = math.inf

    def project(self, ids: Iterable[str]) -> Projected:
        """Bring the documents of these fragments up to date, and settle their outbox entries.

        Raises ProfileIndexError when the index is away, StoreError when the store is: safe to repeat.
        """
        total = Projected()
        remaining = iter(dict.fromkeys(ids))
        while some := list(islice(remaining, self._size.present)):
            with self._committed() as settled:
                total.add(self._take(some, settled))
        return total

    def sweep(self, seconds: float = math.inf) -> Projected:
        """Project once all that has an entry in the outbox, or what so many `seconds` are enough for. A document that
        the index refused waits for its retry, unless its fragment was written since.

        Raises as `project` does.
        """
        started = time.monotonic()
        waiting = {} if started >= self._retry_at else self._refused
        total, after = Projected(is_whole=False), ""
        while not total.is_whole and time.monotonic() < started + seconds:
            with self._committed() as settled:
                ends = time.monotonic() + COMMIT_SECONDS
                while not total.is_whole and len(settled) < COMMITTED_AT_ONCE and time.monotonic() < ends:
                    # Read inside: another process has projected what it could.
                    size = self._size.present
                    entries = self._store.outbox(size, after)
                    some = [name for name, version in entries if waiting.get(name) != version]
                    total.postponed += len(entries) - len(some)
                    if some:
                        total.add(self._take(some, settled))
                    total.is_whole = not entries
                    after = entries[-1].fragment_id if entries else after
                    if len(entries) < size:
                        # What is committed meanwhile is of the next pass, else a steady flow would prolong this one.
                        break
        self._plan_retry(waiting is not self._refused)
        return total

    def waiting(self, limit: int) -> int:
        """Entries in the outbox, counted up to a limit. Raises StoreError."""
        return len(self._store.outbox(limit))

    def _plan_retry(self, was_retry: bool) -> None:
        if not self._refused:
            self._retry_at, self._pause = math.inf, FIRST_RETRY_SECONDS
        elif was_retry or self._retry_at == math.inf:
            self._retry_at = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_RETRY_SECONDS)

    @contextmanager
    def _committed(self) -> Iterator[dict[str, int]]:
        """One commit of the index. Versions by id that the block adds are settled behind it: an entry of a later version
        stays."""
        settled: dict[str, int] = {}
        with self._index.writing():
            yield settled
        remaining = starmap(OutboxEntry, settled.items())
        while some := list(islice(remaining, AT_ONCE)):
            self._store.settle(some)
        for name in settled if self._refused else ():
            self._refused.pop(name, None)

    def _take(self, ids: Sequence[str], projected: dict[str, int]) -> Projected:
        """Put the documents of these fragments; adds the versions that were projected to `projected`."""
        stored = self._store.read(ids)
        self._size.weighed(len(ids), sum(len(each.state) for each in stored.values()))
        done = Projected()
        if stored:
            documents, done.refused = documents_of(stored.values(), self._rules())
            done.refused |= put(self._index, documents)
        self._remember({name: stored[name].version for name in done.refused}, done.refused)
        settled = {name: each.version for name, each in stored.items() if name not in done.refused}
        if len(stored) < len(ids):
            gone = self._gone([each for each in ids if each not in stored])
            # By version: one that comes back is of a later one.
            done.erased = self._index.erase(gone)
            settled |= gone
        projected |= settled
        done.projected = len(settled)
        return done

    def _remember(self, refused: Mapping[str, int], reasons: Mapping[str, str]) -> None:
        """Log refused documents once, and let them wait."""
        new = [name for name, version in refused.items() if self._refused.get(name) != version]
        if new:
            named = "; ".join(f"{name}: {reasons[name]}" for name in new[:SHOWN])
            log.warning("the index refused %d profile(s), which stay in the outbox (%s)", len(new), named)
        self._refused.update(islice(refused.items(), max(0, MOST_REMEMBERED - len(self._refused))))

    def _gone(self, ids: Sequence[str]) -> dict[str, int]:
        """Up to which version the documents of fragments that are gone must go: that of the tombstone, else, as after the
        loss of the store, what the index has."""
        versions = {name: each.version for name, each in self._store.tombstones(ids).items()}
        if without := [each for each in ids if each not in versions]:
            versions |= self._index.versions(without)
        return versions
