"""The data keys of fragments: fetched or made a batch at a time, unwrapped, cached within bounds."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from idgraph.model.errors import ClosedVersionError, KeyProviderError, KeyServiceError, StoreError
from transforms.privacy.keys import DataKeyStore, KeyProvider, NotPicklable, Secret, WrappedKey
from transforms.privacy.sealing_key import DATA_KEY_BYTES, SealingKey, UnusableKey

__all__ = ["DataKeys", "SealingKey"]

T = TypeVar("T")


class DataKeys(NotPicklable):
    """The data keys of fragments, unwrapped and cached. Safe for several threads; one per process.

    At most `cache_size` keys are kept, the least recently used ones go first, and none is used for longer
    than `cache_seconds` after it was read: an erased key is forgotten by then.
    """

    def __init__(
        self,
        provider: KeyProvider,
        store: DataKeyStore,
        cache_size: int = 10_000,
        cache_seconds: float = 300.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._provider = provider
        self._store = store
        self._cache_size = cache_size
        self._cache_seconds = cache_seconds
        self._now = now
        self._lock = threading.Lock()
        self._cache: OrderedDict[str, tuple[float, SealingKey]] = OrderedDict()
        self._next_sweep = now() + cache_seconds

    def fetch(self, fragment_ids: Iterable[str], create: bool) -> dict[str, SealingKey]:
        """The keys of these fragments, in one read of the store, or none if all are cached.

        With `create` missing keys are made, and every fragment is in the answer: of two workers who create
        at once both get the key that was stored first. Without `create` fragments without a key are left
        out. Blocks. Raises StoreError (retryable), and KeyProviderError when no key can be made; a stored
        key that cannot be unwrapped is given as an `UnusableKey`, and so is a new one while the key service is away.
        """
        wanted = dict.fromkeys(fragment_ids)
        found, missing = self._cached(wanted)
        if not missing:
            return found
        stored = self._store.get(missing)
        fetched = self._unwrap_all(stored)
        absent = [name for name in missing if name not in stored]
        if create and absent:
            try:
                fetched |= self._create(absent)
            except KeyServiceError as error:
                # What is there can be used all the same.
                fetched |= dict.fromkeys(absent, UnusableKey(error))
        self._remember(fetched)
        return found | fetched

    def existing(self, fragment_ids: Collection[str]) -> set[str]:
        """Those that the store has a key of now, in one read; none is unwrapped. Raises StoreError."""
        return set(self._store.get(sorted(fragment_ids))) if fragment_ids else set()

    def forget(self, fragment_ids: Iterable[str]) -> None:
        """Drop keys from the cache: the next fetch reads them from the store."""
        with self._lock:
            for name in fragment_ids:
                self._cache.pop(name, None)

    def erase(self, fragment_ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
        """Crypto-shred: delete keys from the store and from this cache, but for what `kept` names (see
        `DataKeyStore.delete`); gives how many there were. Other processes go on with what they have cached,
        for `cache_seconds` at most. Raises StoreError."""
        self.forget(fragment_ids)
        return self._store.delete(fragment_ids, kept)

    def compact(self) -> None:
        """As `DataKeyStore.compact`. Raises StoreError."""
        self._store.compact()

    def hold(self, fragment_ids: Sequence[str], work: Callable[[dict[str, SealingKey]], T]) -> T:
        """Run `work` with the keys that the store has, none of which changes or is erased before it returns,
        in any process. `work` must not use this object, and may run again. Raises StoreError."""
        with suppress(KeyProviderError):
            # Not while others wait for what is held. If the keys are away, each is reported as unusable.
            self._provider.prepare()
        return self._store.hold(fragment_ids, lambda stored: work(self._unwrap_held(stored)))

    def close(self) -> None:
        """Forget all keys and close the store."""
        with self._lock:
            self._cache.clear()
        self._store.close()

    def _cached(self, wanted: Iterable[str]) -> tuple[dict[str, SealingKey], list[str]]:
        found: dict[str, SealingKey] = {}
        missing: list[str] = []
        oldest = self._now() - self._cache_seconds
        with self._lock:
            for name in wanted:
                entry = self._cache.get(name)
                if entry is None or entry[0] <= oldest:
                    missing.append(name)
                else:
                    self._cache.move_to_end(name)
                    found[name] = entry[1]
        return found, missing

    def _remember(self, fetched: dict[str, SealingKey]) -> None:
        now = self._now()
        with self._lock:
            if now >= self._next_sweep:
                # Keys that nobody asks for again must leave memory too.
                self._next_sweep = now + self._cache_seconds
                oldest = now - self._cache_seconds
                for name in [name for name, (read, _) in self._cache.items() if read <= oldest]:
                    del self._cache[name]
            for name, key in fetched.items():
                # A key that could not be unwrapped is tried again: the keyring may be repaired by then.
                if not isinstance(key, UnusableKey):
                    self._cache[name] = (now, key)
                    self._cache.move_to_end(name)
            while len(self._cache) > self._cache_size:
                self._cache.popitem(last=False)

    def _create(self, fragment_ids: Sequence[str]) -> dict[str, SealingKey]:
        made = dict(zip(fragment_ids, Secret.several(len(fragment_ids), DATA_KEY_BYTES), strict=True))
        wrapped = self._wrap(made)
        try:
            stored = self._store.put_absent(wrapped)
        except ClosedVersionError:
            # The version that is current here was rotated out meanwhile.
            self._provider.refresh()
            wrapped = self._wrap(made)
            stored = self._store.put_absent(wrapped)
        keys: dict[str, SealingKey] = {}
        for name, key in made.items():
            kept = stored.get(name)
            if kept is None:
                raise StoreError("the data-key store took a key and did not give it back")
            keys[name] = SealingKey(key.reveal(), name) if kept == wrapped[name] else self._unwrap(name, kept)
        return keys

    def _wrap(self, made: Mapping[str, Secret]) -> dict[str, WrappedKey]:
        return {name: self._provider.wrap(key, context(name)) for name, key in made.items()}

    def _unwrap_all(self, stored: Mapping[str, WrappedKey]) -> dict[str, SealingKey]:
        opened = self._unwrap_held(stored)
        unusable = [name for name, key in opened.items() if isinstance(key, UnusableKey)]
        if unusable:
            # Read again: it may have been rewrapped, and its old version retired, since it was read.
            again = self._store.get(unusable)
            changed = {name: key for name, key in again.items() if key != stored[name]}
            opened |= self._unwrap_held(changed)
        return opened

    def _unwrap_held(self, stored: Mapping[str, WrappedKey]) -> dict[str, SealingKey]:
        return {name: self._unwrap(name, key) for name, key in stored.items()}

    def _unwrap(self, fragment_id: str, key: WrappedKey) -> SealingKey:
        try:
            return SealingKey(self._provider.unwrap(key, context(fragment_id)).reveal(), fragment_id)
        except KeyProviderError as error:
            return UnusableKey(error)


def context(fragment_id: str) -> bytes:
    """The context that wraps a fragment's data key: its id in UTF-8."""
    return fragment_id.encode("utf-8", "surrogatepass")
