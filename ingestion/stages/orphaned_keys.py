"""Orphaned data keys: keys that seal nothing any more, neither a fragment nor a dead letter.

A key is orphaned when an erasure refuses the events that it was made for before their commit, or when the last dead
letter of a fragment goes that is not stored, or is stored under another name. A flow notes the fragments of which a
tombstone refused something. It erases their orphaned keys once the whole micro-batch is committed or set aside: before,
a later event of the batch may have just been sealed by the same key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from idgraph.model.dead_letters import COMMIT_REASONS, FRAGMENT, DeadLetters
from idgraph.model.errors import ConflictError, KeyProviderError
from idgraph.model.fragments import Kind
from idgraph.model.store import FragmentStore, ProfileStore
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from transforms.privacy.sealing import DataKeys, SealingKey


class KeyGuard:
    """Guards the writes of one store against erased data keys. Safe for several threads and processes; raises StoreError."""

    def __init__(self, store: FragmentStore, data_keys: DataKeys) -> None:
        self._store = store
        self._data_keys = data_keys

    @contextmanager
    def hold(self, changes: Mapping[str, FragmentState]) -> Iterator[set[str]]:
        """The fragments whose changes must not be written: an erased key sealed a value of theirs, which could never be
        read. No key of the others is erased within the context."""
        with self._data_keys.hold(list(changes)) as keys:
            stale = {name for name, change in changes.items() if not _is_openable(change, keys.get(name))}
            yield stale
        # A retry seals them by present keys.
        self._data_keys.forget(stale)

    @contextmanager
    def setting_aside(self, failures: Sequence[CommitFailure]) -> Iterator[None]:
        """The dead letters of these failures are put within the context: from then on they keep their keys
        (`OrphanedKeys`). Raises ConflictError at its begin when a key that sealed one is erased: a retry seals it again."""
        if not failures:
            yield
            return
        with self._data_keys.hold(sorted({each.fragment_id for each in failures})) as keys:
            stale = {each.fragment_id for each in failures if _is_lost(each, keys.get(each.fragment_id))}
            if not stale:
                yield
                return
        self._data_keys.forget(stale)
        raise ConflictError(
            f"{len(stale)} fragment(s) that are to be set aside were sealed by a key that is erased; nothing is "
            "lost, retry them"
        )

    def erase_unused(self, fragment_ids: Sequence[str]) -> int:
        """Erase the data keys of those of these fragments that are not stored; returns how many keys that were. Each
        fragment must have a tombstone, so that `hold` finds the values that such a key sealed."""
        return self._data_keys.erase(fragment_ids, lambda: self._store.read(fragment_ids).keys())


def _is_lost(failure: CommitFailure, key: SealingKey | None) -> bool:
    try:
        return not _is_openable(failure.change, key)
    except MemoryError:
        raise
    except Exception:
        # Changes that cannot be read become a dead letter for that reason.
        return False


def _is_openable(change: FragmentState, key: SealingKey | None) -> bool:
    sealed = (each.value for _, each in change.stored() if each.kind is Kind.SEALED)
    try:
        return all(key is not None and key.has_sealed(value) for value in sealed)
    except KeyProviderError:
        # It cannot be known now, and the keyring may be repaired.
        return True


AT_ONCE = 1000


class OrphanedKeys:
    """Erases the orphaned keys of one store with its dead letters. Every method raises StoreError."""

    def __init__(self, store: ProfileStore, data_keys: DataKeys, dead_letters: DeadLetters) -> None:
        self._store = store
        self._data_keys = data_keys
        self._dead_letters = dead_letters

    def erase(self, fragment_ids: Iterable[str], dropped: Collection[str] = ()) -> int:
        """Erase the keys of those of these fragments that are neither stored nor in a dead letter beside `dropped`; returns
        how many keys that were. Each fragment must have a tombstone, so that `KeyGuard` finds changes that such a key
        sealed."""
        ids = sorted(set(fragment_ids))
        return sum(
            self._erase(ids[start : start + AT_ONCE], dropped) for start in range(0, len(ids), AT_ONCE)
        )

    def erase_of_dead_letters(self, positions: Mapping[str, str]) -> int:
        """`erase` for the fragments whose changes these dead letters held, which are dropped; `positions` by dead letter. A
        fragment without a tombstone keeps its key: `KeyGuard` does not guard its writes."""
        named = {each.removeprefix(FRAGMENT) for each in positions.values() if each.startswith(FRAGMENT)}
        return self.erase(self._store.tombstones(named), positions) if named else 0

    def drop_dead_letters(self, ids: Sequence[str]) -> int:
        """Drop dead letters for good, with the keys that only they needed; returns how many there were."""
        wanted, counts = set(ids), self._dead_letters.counts()
        changes = (
            each
            for kind in COMMIT_REASONS
            if counts.get(kind)
            for each in self._dead_letters.scan(reason=kind)
        )
        positions = {each.id: each.position for each in changes if each.id in wanted}
        dropped = self._dead_letters.drop(ids)
        if self.erase_of_dead_letters(positions):
            self.compact()
        return dropped

    def compact(self) -> None:
        """Leave no byte of the ids of erased keys in a file, as `DataKeyStore.compact`."""
        self._data_keys.compact()

    def _erase(self, fragment_ids: Collection[str], dropped: Collection[str]) -> int:
        made = self._data_keys.existing(fragment_ids)
        # Mostly somebody came back, and old events are replayed: this case takes no lock.
        unused = sorted(made - self._needed(made, dropped)) if made else []
        return self._data_keys.erase(unused, lambda: self._needed(unused, dropped)) if unused else 0

    def _needed(self, fragment_ids: Collection[str], dropped: Collection[str]) -> set[str]:
        # Dead letters first: changes go from a dead letter to the store, and never back.
        held = self._named_by_dead_letters(fragment_ids, dropped)
        return held | self._store.read(sorted(fragment_ids)).keys()

    def _named_by_dead_letters(
        self, fragment_ids: Collection[str], dropped: Collection[str] = ()
    ) -> set[str]:
        """The fragments whose changes a dead letter beside `dropped` holds."""
        named = self._dead_letters.at([FRAGMENT + each for each in fragment_ids])
        return {where.removeprefix(FRAGMENT) for each, where in named.items() if each not in dropped}
