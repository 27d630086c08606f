"""A profile store in memory, for tests and previews: the plainest thing that keeps the protocol."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from merge.store import NEW, FragmentWrite, OutboxEntry, StoredFragment
from model.errors import StoreError


class MemoryProfileStore:
    """A `ProfileStore` that is gone with its process. Safe for several threads."""

    def __init__(self) -> None:
        self._fragments: dict[str, StoredFragment] = {}
        self._identifiers: dict[str, set[str]] = {}
        self._carriers: dict[str, set[str]] = {}
        self._outbox: dict[str, None] = {}
        self._closed = False
        self._guard = threading.Lock()

    def read(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        with self._lock():
            return {each: self._fragments[each] for each in ids if each in self._fragments}

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        with self._lock():
            return {write.id for write in writes if not self._written(write)}

    def _written(self, write: FragmentWrite) -> bool:
        present = self._fragments.get(write.id)
        if (present.version if present else NEW) != write.expected_version:
            return False
        self._fragments[write.id] = StoredFragment(write.id, write.expected_version + 1, write.state)
        self._identifiers.setdefault(write.id, set()).update(write.identifiers)
        for identifier in write.identifiers:
            self._carriers.setdefault(identifier, set()).add(write.id)
        self._outbox.setdefault(write.id)
        return True

    def find(self, identifier: str) -> list[str]:
        with self._lock():
            return sorted(self._carriers.get(identifier, ()))

    def identifiers(self, fragment_id: str) -> frozenset[str]:
        with self._lock():
            return frozenset(self._identifiers.get(fragment_id, ()))

    def scan(self, after: str = "", limit: int = 1000) -> list[StoredFragment]:
        # The order of code points is the order of UTF-8 bytes.
        with self._lock():
            later = sorted(each for each in self._fragments if each > after)
            return [self._fragments[each] for each in later[:limit]]

    def count(self) -> int:
        with self._lock():
            return len(self._fragments)

    def outbox(self, limit: int = 1000) -> list[OutboxEntry]:
        with self._lock():
            return [OutboxEntry(each, self._fragments[each].version) for each in list(self._outbox)[:limit]]

    def settle(self, entries: Sequence[OutboxEntry]) -> None:
        with self._lock():
            for fragment_id, version in entries:
                if fragment_id in self._outbox and self._fragments[fragment_id].version <= version:
                    del self._outbox[fragment_id]

    def close(self) -> None:
        with self._guard:
            self._closed = True

    def _lock(self) -> threading.Lock:
        if self._closed:
            raise StoreError("the profile store in memory is closed")
        return self._guard
