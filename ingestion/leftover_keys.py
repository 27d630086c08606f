"""Data keys of which nothing is left: made for events that an erasure, which came before their commit, refused.

Whoever makes keys notes the fragments that a tombstone refused something of, and has them looked at once all that
it had to write is written or set aside. Not sooner: a key is one for all events of a fragment, and later ones of
the same micro-batch may have just been sealed by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ingestion.key_guard import KeyGuard
from ingestion.set_aside import FRAGMENT
from merge.store import ProfileStore
from model.dead_letters import DeadLetters
from transforms.sealing import DataKeys

AT_ONCE = 1000


class LeftoverKeys:
    """Of one store with its data keys and dead letters. Every method raises StoreError."""

    def __init__(self, store: ProfileStore, data_keys: DataKeys, dead_letters: DeadLetters) -> None:
        self._store = store
        self._data_keys = data_keys
        self._dead_letters = dead_letters
        self._guard = KeyGuard(store, data_keys)

    def erase(self, refused: Iterable[str], replayed: Collection[str] = ()) -> int:
        """Erase the keys of those fragments that are neither stored nor set aside; gives how many there were.
        `refused` are ids of fragments that have a tombstone. The letters `replayed` are about to be dropped."""
        ids = sorted(set(refused))
        return sum(
            self._erase(ids[start : start + AT_ONCE], replayed) for start in range(0, len(ids), AT_ONCE)
        )

    def _erase(self, refused: Collection[str], replayed: Collection[str]) -> int:
        made = self._data_keys.existing(refused)
        # Most are of somebody who came back, whose old events are given again: these need not have others wait.
        unused = made and made - self._store.read(sorted(made)).keys() - self._set_aside(made, replayed)
        return self._guard.erase_unused(sorted(unused)) if unused else 0

    def _set_aside(self, fragment_ids: Collection[str], replayed: Collection[str]) -> set[str]:
        letters = self._dead_letters.at([FRAGMENT + each for each in fragment_ids])
        return {where.removeprefix(FRAGMENT) for each, where in letters.items() if each not in replayed}
