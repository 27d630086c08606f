"""Tombstones, which replace erased fragments, and the protocols of a store that erases.

The name of a tombstone is a keyed hash of the fragment's id (`TombstoneNames`), never the id. A tombstone refuses events
that would restore the fragment, and sets the version from which a new fragment of this id starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from idgraph.model.stamps import ORDINAL_MIN

EPOCH_BITS = 40
"""Versions of documents begin with the generation of their fragment: see `idgraph.model.store.document_version`."""

NO_EPOCH = ORDINAL_MIN
"""The erasure epoch of an event whose fragment had no tombstone; also `until` of a cancelled tombstone."""

TombstoneNames = Callable[[str], bytes]
"""A fragment's id to the keyed hash that names its tombstone."""


def generation(version: int, epoch: int) -> int:
    """The number of times that a fragment was assigned to a profile: `epoch`, and those before its erasure, which its
    version has."""
    return epoch + (version >> EPOCH_BITS)


class Tombstone(NamedTuple):
    """`until`, epoch milliseconds: an event counts only if its source orders by time and its ordinal is
    later. `version` is higher than any that the erased fragment had; a new one starts behind it."""

    until: int
    version: int

    @classmethod
    def behind(cls, version: int, until: int = NO_EPOCH, document: int = 0) -> Tombstone:
        """The tombstone of a fragment whose last version this was, 0 if there was none. A writer that read the fragment
        before the erasure expects this version and is refused, even after a cancellation. `document` is later than any
        version of the fragment's document."""
        return cls(until, max(version + 1 if version else version, document))

    def refuses(self, erasure_epoch: int) -> bool:
        """Whether events were compared with an earlier tombstone than this one, or with none; they are compared again."""
        return self.until > erasure_epoch

    def refuses_event(self, ordinal: int | None) -> bool:
        """Whether an event does not count; `ordinal` is None where it is no time."""
        return self.until != NO_EPOCH and (ordinal is None or ordinal <= self.until)

    def covers(self, version: int) -> bool:
        """Whether a fragment of this version was erased, so that a restored backup brought it back."""
        return self.until > NO_EPOCH and version <= self.version

    def joined(self, other: Tombstone) -> Tombstone:
        """The tombstone that refuses the events of both."""
        return Tombstone(max(self.until, other.until), max(self.version, other.version))


class FragmentSummary(NamedTuple):
    """The stored state of one fragment, now or before its erasure. `version` is 0 if there was none."""

    fragment_id: str
    version: int
    identifiers: frozenset[str]
    in_outbox: bool
    epoch: int = 0

    def tombstone(self, until: int = NO_EPOCH) -> Tombstone:
        """The tombstone in the fragment's place: behind its version, and behind any version of its document."""
        assigned = generation(self.version, self.epoch)
        return Tombstone.behind(self.version, until, (assigned + 1) << EPOCH_BITS if assigned else 0)


class Tombstones(Protocol):
    """Erases fragments for good. Every method blocks, and raises `StoreError` as those of `FragmentStore`."""

    def tombstones(self, ids: Iterable[str]) -> dict[str, Tombstone]:
        """The tombstones of these ids. `ids` is not iterated while the store has no tombstone at all."""
        ...

    def summaries(self, ids: Sequence[str]) -> list[FragmentSummary]:
        """The stored state of each of these fragments, in the order of `ids`."""
        ...

    def erase(self, ids: Sequence[str], until: int) -> list[FragmentSummary]:
        """Replace fragments and their identifiers by a tombstone each, note them as `unfinished`, and put entries
        into the outbox. If there are two tombstones, the later `until` and the higher version stay. Each fragment is
        erased whole or not at all.

        Returns what there was, with the version of the tombstone and the identifiers that an unfinished erasure before
        this one noted: a retry after a lost answer forgets none. Durable when it returns."""
        ...

    def unfinished(self) -> list[FragmentSummary]:
        """The fragments whose erasure is not finished everywhere. Their ids are not hashed."""
        ...

    def finish(self, ids: Sequence[str]) -> None:
        """Forget these unfinished erasures, and leave no byte of erased content in a file or elsewhere in the store."""
        ...

    def all_tombstones(self) -> dict[bytes, Tombstone]:
        """By name."""
        ...

    def reinstate(self, tombstones: Mapping[bytes, Tombstone]) -> int:
        """Add tombstones by name that a restored store has lost; returns how many it lacked."""
        ...

    def cancel(self, ids: Sequence[str]) -> int:
        """Let events of any ordinal bring these fragments back; returns how many tombstones forbade it. An `unfinished`
        erasure stays in force: its end would remove dead letters that arrive from now on."""
        ...


class Withdrawals(Protocol):
    """Removes fragments whose content is stored under another id now."""

    def withdraw(self, versions: Mapping[str, int]) -> set[str]:
        """Remove each fragment whose version is still this one; returns the ids that were written since, which stay.
        A removed fragment is noted as `withdrawn` and leaves a tombstone that forbids no event. Its version is behind
        the fragment's, so a writer that read the fragment before is refused. The outbox gets an entry. Durable when
        it returns."""
        ...

    def withdrawn(self) -> dict[str, int]:
        """Withdrawn fragments with their last version, as long as traces may be elsewhere. The ids are not hashed."""
        ...

    def forget_withdrawn(self, ids: Sequence[str]) -> None: ...
