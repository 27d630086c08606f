"""Wrapped data keys in memory, for tests and previews."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from idgraph.model.errors import ClosedVersionError, StoreError
from transforms.privacy.keys import WrappedKey


class MemoryDataKeys:
    """A `DataKeyStore` that is gone with its process. Safe for several threads."""

    def __init__(self) -> None:
        self._keys: dict[str, WrappedKey] | None = {}
        self._closed_versions: set[int] = set()
        self._lock = threading.Lock()

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        with self._lock:
            keys = self._open()
            return {fragment: keys[fragment] for fragment in fragment_ids if fragment in keys}

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        with self._lock:
            stored = self._open()
            self._refuse_closed(keys.values())
            return {fragment: stored.setdefault(fragment, key) for fragment, key in keys.items()}

    def replace(self, keys: Mapping[str, tuple[WrappedKey, WrappedKey]]) -> int:
        with self._lock:
            stored = self._open()
            self._refuse_closed(new for _, new in keys.values())
            fitting = {name: new for name, (old, new) in keys.items() if stored.get(name) == old}
            stored.update(fitting)
            return len(fitting)

    def wrapped_by(self, version: int, after: str, limit: int) -> dict[str, WrappedKey]:
        with self._lock:
            keys = self._open()
            found = [name for name, key in keys.items() if key.kek_version == version]
            # By code point, which is the order of UTF-8 bytes, hence SQLite's.
            return {name: keys[name] for name in sorted(name for name in found if name > after)[:limit]}

    def some(self, limit: int) -> dict[str, WrappedKey]:
        with self._lock:
            return dict(islice(self._open().items(), limit))

    def counts(self) -> dict[int, int]:
        with self._lock:
            return dict(Counter(key.kek_version for key in self._open().values()))

    def close_versions(self, versions: Iterable[int]) -> None:
        with self._lock:
            self._open()
            self._closed_versions.update(versions)

    def delete(self, fragment_ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
        with self._lock:
            keys, skipped = self._open(), kept()
            return sum(keys.pop(each, None) is not None for each in fragment_ids if each not in skipped)

    def compact(self) -> None:
        """Nothing is kept."""
        with self._lock:
            self._open()

    @contextmanager
    def hold(self, fragment_ids: Sequence[str]) -> Iterator[dict[str, WrappedKey]]:
        with self._lock:
            keys = self._open()
            yield {fragment: keys[fragment] for fragment in fragment_ids if fragment in keys}

    def close(self) -> None:
        with self._lock:
            self._keys = None

    def _refuse_closed(self, keys: Iterable[WrappedKey]) -> None:
        for key in keys:
            if key.kek_version in self._closed_versions:
                raise ClosedVersionError(f"key version {key.kek_version} was rotated out")

    def _open(self) -> dict[str, WrappedKey]:
        if self._keys is None:
            raise StoreError("the data keys in memory are closed")
        return self._keys
