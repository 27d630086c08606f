"""Data keys of which nothing is left, and no others: what is set aside of a fragment is sealed by its key, too.

Nothing is left of those that were made for events which an erasure, that came before their commit, refused. Whoever
makes keys notes the fragments that a tombstone refused something of, and has them looked at once all that it had to
write is written or set aside. Not sooner: a key is one for all events of a fragment, and later ones of the same
micro-batch may have just been sealed by it. And nothing is left where the last dead letter of a fragment goes that is not
stored, or is so under another name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from idgraph.model.dead_letters import FRAGMENT, DeadLetters
from idgraph.model.store import ProfileStore
from transforms.privacy.sealing import DataKeys

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
