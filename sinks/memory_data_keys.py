"""Wrapped data keys in memory, for tests and previews."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from model.errors import StoreError
from transforms.keys import WrappedKey


class MemoryDataKeys:
    """A `DataKeyStore` that is gone with its process. Safe for several threads."""

    def __init__(self) -> None:
        self._keys: dict[str, WrappedKey] | None = {}
        self._lock = threading.Lock()

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        with self._lock:
            keys = self._open()
            return {fragment: keys[fragment] for fragment in fragment_ids if fragment in keys}

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        with self._lock:
            stored = self._open()
            return {fragment: stored.setdefault(fragment, key) for fragment, key in keys.items()}

    def delete(self, fragment_ids: Sequence[str]) -> int:
        with self._lock:
            keys = self._open()
            return sum(keys.pop(fragment, None) is not None for fragment in fragment_ids)

    def close(self) -> None:
        with self._lock:
            self._keys = None

    def _open(self) -> dict[str, WrappedKey]:
        if self._keys is None:
            raise StoreError("the data keys in memory are closed")
        return self._keys
