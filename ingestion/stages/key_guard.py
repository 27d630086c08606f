"""Data keys beside fragments: no value is written whose key is gone, and no key stays of a fragment that is gone.

Keys and fragments are in two files, so no transaction holds both. What writes sealed values of a fragment that
was erased, and what erases keys after the rows are gone, therefore take turns: each does all it does while it
holds the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from idgraph.model.errors import ConflictError, KeyProviderError
from idgraph.model.fragments import Kind
from idgraph.model.sealed import SealedValue
from idgraph.model.store import ProfileStore
from merge.failures import CommitFailure
from merge.fragments import FragmentState
from transforms.privacy.sealing import DataKeys, SealingKey


class KeyGuard:
    """Of one store and its data keys. Safe for several threads and processes; raises StoreError."""

    def __init__(self, store: ProfileStore, data_keys: DataKeys) -> None:
        self._store = store
        self._data_keys = data_keys

    def write(self, changes: Mapping[str, FragmentState], write: Callable[[set[str]], set[str]]) -> set[str]:
        """Have `write` write changes, but for those it is given: a value of these was sealed by a key that is
        no more, and would be unreadable for ever. Gives these and what `write` gave."""

        stale: set[str] = set()

        def work(keys: dict[str, SealingKey]) -> set[str]:
            # It may be run again.
            stale.clear()
            stale.update(name for name, change in changes.items() if not _is_openable(change, keys.get(name)))
            return stale | write(stale)

        left = self._data_keys.hold(list(changes), work)
        # Mapped or renamed again, they are sealed by keys that are there.
        self._data_keys.forget(stale)
        return left

    def set_aside(self, failures: Sequence[CommitFailure], put: Callable[[], object]) -> None:
        """Have `put` put the dead letters of these failures: from then on they keep their keys (see `OrphanedKeys`).

        Raises ConflictError, and puts none, where a key that sealed is no more: mapped or sealed again they are whole.
        """
        if not failures:
            put()
            return
        stale: set[str] = set()

        def work(keys: dict[str, SealingKey]) -> None:
            stale.clear()
            stale.update(each.fragment_id for each in failures if _is_lost(each, keys.get(each.fragment_id)))
            if not stale:
                put()

        self._data_keys.hold(sorted({each.fragment_id for each in failures}), work)
        if stale:
            self._data_keys.forget(stale)
            raise ConflictError(
                f"{len(stale)} fragment(s) that are to be set aside were sealed by a key that is erased; nothing is "
                "lost, give them again"
            )

    def erase_unused(self, fragment_ids: Sequence[str]) -> int:
        """Erase the data keys of those fragments that are not there; gives how many there were. Each must have
        a tombstone: who still has a value to write that such a key sealed is then reported by `write`."""
        return self._data_keys.erase(fragment_ids, lambda: self._store.read(fragment_ids).keys())


def _is_lost(failure: CommitFailure, key: SealingKey | None) -> bool:
    try:
        return not _is_openable(failure.change, key)
    except MemoryError:
        raise
    except Exception:
        # Changes that cannot be read are set aside for that.
        return False


def _is_openable(change: FragmentState, key: SealingKey | None) -> bool:
    sealed = (each.value for _, each in change.stored() if each.kind is Kind.SEALED)
    try:
        return all(
            key is not None and key.has_sealed(SealedValue.parse(value).ciphertext) for value in sealed
        )
    except KeyProviderError:
        # It cannot be determined, and the keyring may be repaired.
        return True
