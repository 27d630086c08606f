"""The protocols of a profile store: fragments by id with conditional writes, the outbox, and marks.

Contract suites in `tests/contracts/`, `test_profile_store.py`, `test_erasure.py` and `test_timelines.py` among them, run over
every implementation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import NamedTuple, Protocol
from zlib import crc32

from idgraph.model.batch_size import BatchSize
from idgraph.model.ledger import Ledger, LedgerEntry
from idgraph.model.pins import Pins
from idgraph.model.timelines import Pages, Timelines
from idgraph.model.tombstones import (
    EPOCH_BITS,
    NO_EPOCH,
    Tombstone,
    TombstoneNames,
    Tombstones,
    Withdrawals,
    generation,
)

NEW = 0
"""The version of a fragment that does not exist yet; the first write makes version 1."""


class StoredFragment(NamedTuple):
    """A fragment as the store keeps it. `state` is opaque here (see `merge.codec`).

    `profile_id` is the profile that it was last projected into, empty for a profile of its own id. `epoch` counts how
    often that changed, of the fragment that names a profile also how often the profile's other fragments did.
    """

    id: str
    version: int
    state: bytes
    profile_id: str = ""
    epoch: int = 0

    @property
    def projected_into(self) -> str:
        """The profile that it was last projected into; its own id before."""
        return self.profile_id or self.id

    @property
    def generation(self) -> int:
        """The epoch, counted on over erasures."""
        return generation(self.version, self.epoch)


class Assignment(NamedTuple):
    """Records into which profile a fragment was projected, if its epoch is still the expected one. `previous_id` is the
    profile that the fragment has in this epoch, `at_ms` the moment, in epoch milliseconds. Both ids are empty for a profile
    of the fragment's own id."""

    fragment_id: str
    expected_epoch: int
    profile_id: str
    previous_id: str = ""
    at_ms: int = 0

    def entry(self, names: TombstoneNames) -> LedgerEntry | None:
        """The entry that it leaves in the ledger; None where the fragment stays in its profile."""
        if self.previous_id == self.profile_id:
            return None
        name, previous, profile = (
            names(each or self.fragment_id) for each in ("", self.previous_id, self.profile_id)
        )
        return LedgerEntry(self.at_ms, name, self.expected_epoch + 1, previous, profile)


def document_version(generation: int, versions: Iterable[int] = ()) -> int:
    """The version of a profile's document: `generation` of the fragment that names it, then the sum of its fragments'
    versions. So it grows whenever a fragment is written, joins the profile or leaves it."""
    return (generation << EPOCH_BITS) + sum(version % (1 << EPOCH_BITS) for version in versions)


NO_PAGES: Pages = {}
NO_EXPIRED: Mapping[str, int] = {}


class FragmentWrite(NamedTuple):
    """A conditional write: takes effect only if the stored version is still `expected_version`.

    `identifiers` (text forms, `type:value`) are added to those the fragment can be found by. `dropped` are
    removed: they are stored under another name now. `erasure_epoch` is the `until` of the tombstone that the events
    were compared with. `pages` replace those of the same keys, empty bytes remove one; `expired` removes by activity all pages of
    days before this one.
    """

    id: str
    expected_version: int
    state: bytes
    identifiers: frozenset[str]
    erasure_epoch: int = NO_EPOCH
    dropped: frozenset[str] = frozenset()
    pages: Pages = NO_PAGES
    expired: Mapping[str, int] = NO_EXPIRED


class SharedIdentifiers(NamedTuple):
    """What some fragments share: `identifiers`, their own ids among them, that another fragment carries too or that a pin
    names, and the `fragments` that have one of these. `carriers` has, for as many of them as the store knows, all fragments
    that carry them, in no order."""

    fragments: Set[str]
    identifiers: Set[str]
    carriers: Mapping[str, Collection[str]]


class OutboxEntry(NamedTuple):
    """A fragment that was written, erased or withdrawn and is not projected yet. `version` is the one that was written,
    of a fragment that is gone the version of its tombstone."""

    fragment_id: str
    version: int


class OutboxShare(NamedTuple):
    """The share `number` of all fragments, of so many that are disjoint and together all. Always the same fragments."""

    number: int
    of: int

    def has(self, fragment_id: str) -> bool:
        """Whether a fragment is in it, where a store has no order of its own for that."""
        return self.of == 1 or crc32(fragment_id.encode()) % self.of == self.number


WHOLE = OutboxShare(0, 1)
MOST_SHARES = 16


class FragmentStore(Protocol):
    """Fragments by id, with conditional writes. Safe for several processes and threads at once. Every method blocks.

    Every method of this and of the other protocols of a store raises `StoreError` when the store is away or refuses; a
    retry is always safe. `read` and `write` raise `UnstorableError` when the store can never take a part of what it was
    given. The error says whether then nothing was written, or all the rest.
    """

    def read(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        """The fragments of these ids that exist, each read as one whole version."""
        ...

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        """The results of `read` and `Tombstones.tombstones`, each fragment at one moment, for the price of `read`."""
        ...

    def read_with_shared(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], SharedIdentifiers | None]:
        """The result of `read`, and the identifiers that these fragments share. None from a store that cannot say so for about
        the price of `read`."""
        ...

    def consistent_read(self) -> AbstractContextManager[None]:
        """Reads of this thread within the block are faster, and of one moment if the store can do that. Nothing is
        written within it."""
        ...

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        """Write each fragment whose version is still the expected one, as version `expected + 1`, and put it into the
        outbox. At most one write per id. Each fragment is written whole, with its pages, or not at all, even if the writer is
        killed. Durable when it returns.

        Returns the ids that were NOT written, for one of these reasons:
        - another writer changed the version;
        - a tombstone forbids more than the erasure epoch of the write allows;
        - the stored fragment was erased and a backup brought it back: the next erasure would take a later event too.
        The first version after an erasure is the one behind its tombstone's."""
        ...

    def find(self, identifier: str) -> list[str]:
        """Ids of all fragments with an identifier (`type:value`), sorted."""
        ...

    def find_all(self, identifiers: Sequence[str], limit: int) -> dict[str, list[str]]:
        """Ids of the fragments with each of these identifiers, in no order, at most `limit` of each. Identifiers that no
        fragment has can be absent."""
        ...

    def assign(self, assignments: Sequence[Assignment]) -> set[str]:
        """Record each assignment whose fragment exists in the expected epoch, as the next epoch, with its entry in the ledger,
        and put it into the outbox, in a version of its own; at most one per fragment. Returns the ids that were NOT recorded.
        Durable when it returns."""
        ...

    def identifiers(self, fragment_id: str) -> frozenset[str]:
        """All identifiers that a fragment can be found by."""
        ...

    def scan(self, after: str = "", limit: int = 1000) -> list[StoredFragment]:
        """Up to `limit` fragments behind the id `after`, which need not exist any more, in an order of the store's own
        that does not change. Reads all earlier writes."""
        ...

    def ids(self) -> Iterator[str]:
        """The ids of all fragments, sorted in UTF-8 byte order."""
        ...

    def count(self) -> int:
        """Number of fragments."""
        ...

    def close(self) -> None: ...


class Outbox(Protocol):
    """Entries of fragments that were written, erased or withdrawn and are not projected yet."""

    def outbox(self, limit: int = 1000, after: str = "", share: OutboxShare = WHOLE) -> list[OutboxEntry]:
        """Up to `limit` entries of a share of the fragments, at most `MOST_SHARES`, one per fragment, behind the fragment of id `after`, whether that has an entry or not,
        in an order of the store's own that does not change. May lag behind `write` by a second or so, and return a
        version that is no longer the newest."""
        ...

    def enqueue(self, ids: Sequence[str]) -> None:
        """Add an entry for each of these fragments that exists, in a version of its own: what else decides about its profile
        has changed, and a projection that has read the fragment before does not settle it."""
        ...

    def settle(self, entries: Sequence[OutboxEntry]) -> None:
        """Remove entries that were projected. An entry of a later version stays."""
        ...


class ChangeCounter(Protocol):
    """What lets a reader keep answers."""

    def changes(self) -> int | None:
        """A number that is another one after each change of anything in the store, whoever made it. It says nothing in
        another process, nor after a restart. None: the store cannot tell cheaply."""
        ...


class StoreMarks(Protocol):
    """Marks that are kept with the fragments. A restored store lacks the marks that are younger than its backup."""

    def remember(self, mark: str, instead_of: str = "") -> None:
        """Keep a mark, in place of another one. Durable when it returns."""
        ...

    def remembers(self, mark: str) -> bool: ...

    def name(self, text: str) -> bytes:
        """The keyed hash of a text, as in `Tombstones`: a mark that has it shows nobody without the key what it is of."""
        ...


class ProfileStore(
    FragmentStore,
    Outbox,
    Timelines,
    Pins,
    Ledger,
    Tombstones,
    Withdrawals,
    StoreMarks,
    ChangeCounter,
    Protocol,
):
    """All protocols of one store: what an adapter implements and the wiring opens. Users take the part they need."""


def scan_pages(store: FragmentStore, size: int = 1000, after: str = "") -> Iterator[list[StoredFragment]]:
    """All fragments after the id `after` in the store's own order, in pages of at most `size` that fit into memory."""
    bounded = BatchSize(size)
    while page := store.scan(after, bounded.present):
        bounded.weighed(len(page), _bytes(page))
        yield page
        after = page[-1].id


def read_pages(
    store: FragmentStore, ids: Iterable[str], size: BatchSize
) -> Iterator[tuple[list[str], dict[str, StoredFragment]]]:
    """Read these fragments in pages of `size`, which learns their weight. Yields the ids of a page and the result of
    `read`."""
    remaining = iter(ids)
    while some := list(islice(remaining, size.present)):
        found = store.read(some)
        size.weighed(len(some), _bytes(found.values()))
        yield some, found


def _bytes(fragments: Iterable[StoredFragment]) -> int:
    return sum(len(each.state) for each in fragments)


def scan_all(store: FragmentStore, page: int = 1000) -> Iterator[StoredFragment]:
    """All fragments in the store's own order, a page in memory at a time."""
    return chain.from_iterable(scan_pages(store, page))


class ChangeStream(Protocol):
    """Every method blocks, and raises `StoreError` when the stream is away, after which it may be called again."""

    @property
    def name(self) -> str:
        """Its name, for people."""
        ...

    @property
    def shards(self) -> int:
        """The number of parts that are read."""
        ...

    def changed(self) -> list[str]:
        """The ids of fragments that got an entry in the outbox since the last call, each once; the first call begins to
        look. After an error, and `TrimmedStreamError` if entries expired, some may be missing: they are in the outbox."""
        ...

    def close(self) -> None: ...
