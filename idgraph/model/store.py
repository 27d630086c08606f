"""The profile store protocol: fragments by id, conditional writes, and the outbox beside them.

One contract suite (`tests/contracts/test_profile_store.py`) runs over every implementation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple, Protocol

from idgraph.model.batch_size import BatchSize
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary, Tombstone

NEW = 0
"""The version of a fragment that does not exist yet; the first write makes version 1."""


class StoredFragment(NamedTuple):
    """A fragment as the store keeps it. `state` is opaque here (see `merge.codec`)."""

    id: str
    version: int
    state: bytes


class FragmentWrite(NamedTuple):
    """A conditional write: takes effect only if the stored version is still `expected_version`.

    `identifiers` (text forms, `type:value`) are added to those the fragment can be found by, and `dropped` are
    taken away: those that are stored under another name now. `erasure_epoch` is the `until` of the tombstone that the
    events were judged by.
    """

    id: str
    expected_version: int
    state: bytes
    identifiers: frozenset[str]
    erasure_epoch: int = NO_EPOCH
    dropped: frozenset[str] = frozenset()


class OutboxEntry(NamedTuple):
    """A fragment whose version `version` has not been confirmed by the index."""

    fragment_id: str
    version: int


class ProfileStore(Protocol):
    """Safe for several processes and threads at once. Every method blocks.

    Every method raises `StoreError` when the store is away or refuses; that is always safe to retry. `read` and `write`
    raise `UnstorableError` when it can never take something of what it was given; then nothing of it is written, or all
    the rest, which the error says.
    """

    def read(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        """The fragments of these ids that exist, each read as one whole version."""
        ...

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        """What `read` and `tombstones` give, of one fragment at one moment, for the price of `read`."""
        ...

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        """Write each fragment whose version is still the expected one, as version `expected + 1`, and put
        it into the outbox, each fragment whole or not at all whatever becomes of the writer. Gives the ids that
        were NOT written: their version had moved on, a tombstone forbids more than they were judged by, or what is
        there is what was erased, brought back by a backup: joined to it, a later event would go when it is erased
        again. At most one write an id. Durable when it returns. The version of a fragment that was erased is that
        of its tombstone."""
        ...

    def find(self, identifier: str) -> list[str]:
        """Ids of all fragments that carry an identifier (`type:value`), sorted."""
        ...

    def identifiers(self, fragment_id: str) -> frozenset[str]:
        """All identifiers that a fragment can be found by."""
        ...

    def scan(self, after: str = "", limit: int = 1000) -> list[StoredFragment]:
        """Up to `limit` fragments behind the one of id `after`, whether that is still there or not, in an order
        of the store's own that does not change. Reads what was written before."""
        ...

    def ids(self) -> Iterator[str]:
        """The ids of all fragments, sorted in UTF-8 byte order."""
        ...

    def count(self) -> int:
        """How many fragments there are."""
        ...

    def outbox(self, limit: int = 1000) -> list[OutboxEntry]:
        """One entry a fragment. Those come first that wait longest; one that is written again may go behind. May
        lag behind `write` by a second or so, and give a version that is no longer the newest."""
        ...

    def settle(self, entries: Sequence[OutboxEntry]) -> None:
        """Remove entries that the index has confirmed. An entry whose fragment was written again since
        (its version is newer) stays."""
        ...

    def tombstones(self, ids: Iterable[str]) -> dict[str, Tombstone]:
        """The tombstones of these ids. `ids` is not looked at while there is none at all."""
        ...

    def summaries(self, ids: Sequence[str]) -> list[FragmentSummary]:
        """What there is of each of these fragments, in the order asked for."""
        ...

    def erase(self, ids: Sequence[str], until: int) -> list[FragmentSummary]:
        """Remove fragments with their identifiers and outbox entries, put a tombstone in place of each (of
        two the later `until` and the higher version stay), and note them as `unfinished`: each fragment
        whole or not at all. Gives what there was, with the version of the tombstone and with the identifiers that an
        erasure before this one, which is not finished, had noted: also when this erasure is retried since its
        answer was lost, they are not forgotten. Durable when it returns."""
        ...

    def unfinished(self) -> list[FragmentSummary]:
        """The fragments whose erasure is not finished everywhere; these are named in the clear."""
        ...

    def finish(self, ids: Sequence[str]) -> None:
        """Forget the unfinished ones, and leave nothing of what was erased, in a file or elsewhere in the
        store."""
        ...

    def withdraw(self, versions: Mapping[str, int]) -> set[str]:
        """Remove fragments, whose content is stored under another id, where their version is still this one; gives
        the ids of those that were written since, which stay. Each that is gone is noted as `withdrawn`, and leaves
        a tombstone that refuses nothing, from whose version, one behind its own, a new one goes on: a writer that
        read it before is refused. Durable when it returns."""
        ...

    def withdrawn(self) -> dict[str, int]:
        """Fragments that were withdrawn, with their last version, and whose traces elsewhere may not be gone;
        these are named in the clear."""
        ...

    def forget_withdrawn(self, ids: Sequence[str]) -> None: ...

    def all_tombstones(self) -> dict[bytes, Tombstone]:
        """By name."""
        ...

    def reinstate(self, tombstones: Mapping[bytes, Tombstone]) -> int:
        """Take tombstones by name that a restored store has lost; gives how many it had not."""
        ...

    def cancel(self, ids: Sequence[str]) -> int:
        """Let events of any ordinal bring these fragments back; gives how many tombstones forbade it. Those that are
        `unfinished` go on forbidding: who finishes them would take dead letters that come from now on."""
        ...

    def remember(self, mark: str, instead_of: str = "") -> None:
        """Keep a mark with the fragments, in place of another one. Whoever keeps elsewhere how far he is with them knows
        by it whether they are still the same: a store that was restored from before has not got it. Durable when it
        returns."""
        ...

    def remembers(self, mark: str) -> bool: ...

    def close(self) -> None: ...


def scan_pages(store: ProfileStore, size: int = 1000, after: str = "") -> Iterator[list[StoredFragment]]:
    """All fragments behind the one of id `after` in the store's own order, a page at a time, of at most `size` and of
    what memory has room for."""
    bounded = BatchSize(size)
    while page := store.scan(after, bounded.present):
        bounded.weighed(len(page), _bytes(page))
        yield page
        after = page[-1].id


def read_pages(
    store: ProfileStore, ids: Iterable[str], size: BatchSize
) -> Iterator[tuple[list[str], dict[str, StoredFragment]]]:
    """What there is of these fragments, as many at a time as `size` says, which learns what they weigh: the ids that
    were asked for, and what `read` gave of them."""
    remaining = iter(ids)
    while some := list(islice(remaining, size.present)):
        found = store.read(some)
        size.weighed(len(some), _bytes(found.values()))
        yield some, found


def _bytes(fragments: Iterable[StoredFragment]) -> int:
    return sum(len(each.state) for each in fragments)


def scan_all(store: ProfileStore, page: int = 1000) -> Iterator[StoredFragment]:
    """All fragments in the store's own order, a page in memory at a time."""
    return chain.from_iterable(scan_pages(store, page))


def sorted_all(store: ProfileStore, page: int = 1000) -> Iterator[StoredFragment]:
    """All fragments in the order of their ids, a page in memory at a time."""
    for some, found in read_pages(store, store.ids(), BatchSize(page)):
        yield from (found[each] for each in some if each in found)


class Shard(NamedTuple):
    """A part of a stream. A fragment is in one shard at a time: when a shard ends, its children go on with it."""

    parent: str | None
    """The shard that must be read to its end before; it may have been dropped."""


class ShardPage(NamedTuple):
    """The next that a shard reports: fragments as they were written, those only that wait for the index."""

    fragments: list[StoredFragment]
    place: str | None
    """Of the last that was reported; None where nothing was."""
    is_ended: bool
    """Whether nothing comes behind it any more."""


class ChangeStream(Protocol):
    """Every method blocks, and raises `StoreError` when the stream is away, after which it may be called again."""

    @property
    def name(self) -> str:
        """What reports this stream from one that the store had before; places are of no use in another."""
        ...

    def shards(self) -> Mapping[str, Shard]:
        """All shards that there are, by their ids."""
        ...

    def read(self, shard: str, after: str | None) -> ShardPage:
        """What a shard reports behind a place, from its oldest where that is None. Raises `TrimmedStreamError` when
        what stood behind it was dropped."""
        ...

    def close(self) -> None: ...
