"""Data keys of which nothing is left, and no others: what is set aside of a fragment is sealed by its key, too.

Nothing is left of those that were made for events which an erasure, that came before their commit, refused. Whoever
makes keys notes the fragments that a tombstone refused something of, and has them looked at once all that it had to
write is written or set aside. Not sooner: a key is one for all events of a fragment, and later ones of the same
micro-batch may have just been sealed by it. And nothing is left where the last dead letter of a fragment goes that is not
stored, or is so under another name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from idgraph.model.classification import SealedValue
from idgraph.model.dead_letters import FRAGMENT, DeadLetters
from idgraph.model.errors import ConflictError, KeyProviderError
from idgraph.model.fragments import Kind
from idgraph.model.store import FragmentStore, ProfileStore
from merge.fragments import FragmentState
from merge.isolation import CommitFailure
from transforms.privacy.sealing import DataKeys, SealingKey


class KeyGuard:
    """Of one store and its data keys. Safe for several threads and processes; raises StoreError."""

    def __init__(self, store: FragmentStore, data_keys: DataKeys) -> None:
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


AT_ONCE = 1000


class OrphanedKeys:
    """Of one store with its data keys and dead letters. Every method raises StoreError."""

    def __init__(self, store: ProfileStore, data_keys: DataKeys, dead_letters: DeadLetters) -> None:
        self._store = store
        self._data_keys = data_keys
        self._dead_letters = dead_letters

    def erase(self, fragment_ids: Iterable[str], dropped: Collection[str] = ()) -> int:
        """Erase the keys of those fragments that are neither stored nor set aside, but for the dead letters `dropped`; gives
        how many there were. Each must have a tombstone: who still has something to write or to set aside that such a
        key sealed is reported by `KeyGuard`."""
        ids = sorted(set(fragment_ids))
        return sum(
            self._erase(ids[start : start + AT_ONCE], dropped) for start in range(0, len(ids), AT_ONCE)
        )

    def erase_of_dead_letters(self, positions: Mapping[str, str]) -> int:
        """The same of those fragments of which these dead letters, that were dropped or are so next, held changes; `positions`
        by dead letter. One that has no tombstone keeps its key: who writes it would not be determined."""
        named = {each.removeprefix(FRAGMENT) for each in positions.values() if each.startswith(FRAGMENT)}
        return self.erase(self._store.tombstones(named), positions) if named else 0

    def compact(self) -> None:
        """Leave no byte in a file of the ids whose keys were erased, as `DataKeyStore.compact`."""
        self._data_keys.compact()

    def _erase(self, fragment_ids: Collection[str], dropped: Collection[str]) -> int:
        made = self._data_keys.existing(fragment_ids)
        # Most are of somebody who came back, whose old events are retried: these need not have others wait.
        unused = sorted(made - self._needed(made, dropped)) if made else []
        return self._data_keys.erase(unused, lambda: self._needed(unused, dropped)) if unused else 0

    def _needed(self, fragment_ids: Collection[str], dropped: Collection[str]) -> set[str]:
        # Dead letters first: from a dead letter changes go to the store, and never back.
        held = self._named_by_dead_letters(fragment_ids, dropped)
        return held | self._store.read(sorted(fragment_ids)).keys()

    def _named_by_dead_letters(
        self, fragment_ids: Collection[str], dropped: Collection[str] = ()
    ) -> set[str]:
        """Those of which a dead letter holds changes, but for the dead letters `dropped`."""
        named = self._dead_letters.at([FRAGMENT + each for each in fragment_ids])
        return {where.removeprefix(FRAGMENT) for each, where in named.items() if each not in dropped}
