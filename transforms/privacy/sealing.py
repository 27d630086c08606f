"""Sealing attribute values under the data key of their fragment; these keys are made, fetched and cached here.

Wire format of a sealed value, version 2, written as standard base64 with padding; of a searchable value its
blind-index token stands behind it (`SealedValue`):

    byte  0        format version, 0x02
    bytes 1..4     data-key version: which of a fragment's data keys sealed it (see `SealingKey`)
    bytes 5..20    synthetic IV of AES-SIV (RFC 5297), which is also the authentication tag
    bytes 21..     ciphertext, a multiple of 16 bytes

The plaintext is the value's canonical JSON, so types survive, filled up with spaces to a multiple of 16
bytes, so that `true` and `false` or two first names do not differ in length. The key is 64 bytes
(AES-256-SIV). The one associated-data component is the first five bytes, then the canonical JSON of the
fragment id, then that of [path, source, event id, priority, ordinal, token]. JSON ends where it ends, so no two
places give the same bytes. A value is opened only with all of them equal: it cannot be moved, neither to another
place nor in the order of values, and no other token can stand behind it.

The same value, place and key give the same bytes (law 1); other events give other bytes.
"""

from __future__ import annotations

import hashlib
import threading
import time
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from idgraph.model.canonical import decode, encode
from idgraph.model.classification import SealedValue
from idgraph.model.errors import ClosedVersionError, KeyProviderError, KeyServiceError, SealError, StoreError
from idgraph.model.stamps import Stamp
from transforms.privacy.keys import DataKeyStore, KeyProvider, NotPicklable, Secret, WrappedKey

DATA_KEY_BYTES = 64
FORMAT_VERSION = b"\x02"

_BLOCK = 16
_HEADER_BYTES = 5
_SHORTEST = _HEADER_BYTES + 16 + _BLOCK


class SealingKey(NotPicklable):
    """The handle of one fragment's data key. Safe for several threads.

    The data-key version is four bytes of a hash of the key: it needs no counter that could start again
    after an erasure, and it distinguishes a value of another key from an altered one.

    The cipher is made when it is first needed and takes 4 KiB, nearly all of it OpenSSL's.
    """

    __slots__ = ("_data_key", "_fragment", "_siv", "_version")

    def __init__(self, data_key: bytes, fragment_id: str) -> None:
        """Raises KeyProviderError for a key that is not 64 bytes long."""
        if len(data_key) != DATA_KEY_BYTES:
            raise KeyProviderError(f"a data key has {DATA_KEY_BYTES} bytes, this one has {len(data_key)}")
        self._data_key = data_key
        self._siv: AESSIV | None = None
        self._version = hashlib.sha256(b"idgraph data-key version\0" + data_key).digest()[:4]
        self._fragment = encode(fragment_id)

    def rest(self) -> None:
        """Let go of the cipher, until it is needed again: of thousands of keys each is used once, and what is let go of
        at once is warm when the next cipher takes its place."""
        self._siv = None

    def _cipher(self) -> AESSIV:
        siv = self._siv
        if siv is None:
            siv = self._siv = AESSIV(self._data_key)
        return siv

    def _place(self, path: str, stamp: Stamp, token: str | None) -> bytes:
        priority, ordinal, source, event_id = stamp
        bound = encode((path, source, event_id, priority, ordinal, token))
        return b"".join((FORMAT_VERSION, self._version, self._fragment, bound))

    def seal(self, value: Any, path: str, stamp: Stamp, token: str | None = None) -> str:
        """A JSON value as sealed text, with its blind-index token. Raises SealError for a value that JSON cannot hold."""
        try:
            plain = encode(value)
            place = self._place(path, stamp, token)
        except (TypeError, ValueError, OverflowError, RecursionError):
            plain = b""
        if not plain:
            # Raised outside the handler: the codec's error quotes the value and would hang on as context.
            raise SealError(f"the value at {path!a} cannot be written as JSON")
        plain = plain.ljust(-(-len(plain) // _BLOCK) * _BLOCK)
        body = FORMAT_VERSION + self._version + self._cipher().encrypt(plain, [place])
        return str(SealedValue(b2a_base64(body, newline=False).decode("ascii"), token))

    def open(self, text: str, path: str, stamp: Stamp) -> Any:
        """The value that was sealed. Raises SealError when the text was altered or truncated, comes from another
        fragment, path, stamp or data key or has another token, or has a format version that this code does not know."""
        given = SealedValue.parse(text)
        try:
            sealed = a2b_base64(given.ciphertext)
            place = self._place(path, stamp, given.token)
        except (Base64Error, ValueError):
            sealed, place = b"", b""
        # Base64 has several spellings of the same bytes; only the one that `seal` writes is accepted.
        written = SealedValue(b2a_base64(sealed, newline=False).decode("ascii"), given.token)
        if len(sealed) < _SHORTEST or str(written) != text:
            raise SealError(f"the sealed value at {path!a} is truncated or not base64")
        if not self._is_mine(sealed):
            raise SealError(f"the sealed value at {path!a} {self._why_foreign(sealed)}")
        try:
            plain = self._cipher().decrypt(sealed[_HEADER_BYTES:], [place])
        except InvalidTag:
            raise SealError(
                f"the sealed value at {path!a} was altered, or moved from another fragment, path or stamp"
            ) from None
        return decode(plain)

    def has_sealed(self, text: str) -> bool:
        """Whether a sealed text says that it is of this key. Opens nothing: it may still have been altered."""
        try:
            return self._is_mine(a2b_base64(text[:8]))
        except (Base64Error, ValueError):
            return False

    def _is_mine(self, sealed: bytes) -> bool:
        return sealed[:_HEADER_BYTES] == FORMAT_VERSION + self._version

    @staticmethod
    def _why_foreign(sealed: bytes) -> str:
        if not sealed.startswith(FORMAT_VERSION):
            return f"has the unknown format version {sealed[0]}"
        return "belongs to another data key"


class UnusableKey(SealingKey):
    """Stands for a data key that cannot be unwrapped: every use raises KeyProviderError with the reason,
    so that it hurts its own fragment and not the batch it was fetched with (law 5)."""

    __slots__ = ("_error",)

    def __init__(self, error: KeyProviderError) -> None:
        self._error = type(error), str(error)

    def service_error(self) -> KeyServiceError | None:
        """The error of the key provider or store, if not this key alone is unusable."""
        kind, reason = self._error
        return KeyServiceError(reason) if issubclass(kind, KeyServiceError) else None

    def rest(self) -> None:
        """There is none."""

    def has_sealed(self, text: str) -> bool:  # noqa: ARG002
        """Raises KeyProviderError."""
        raise self._why()

    def seal(self, value: Any, path: str, stamp: Stamp, token: str | None = None) -> str:  # noqa: ARG002
        """Raises KeyProviderError."""
        raise self._why()

    def open(self, text: str, path: str, stamp: Stamp) -> Any:  # noqa: ARG002
        """Raises KeyProviderError."""
        raise self._why()

    def _why(self) -> KeyProviderError:
        # A new one each time: an error that is raised twice gathers the frames of both.
        kind, reason = self._error
        return kind(reason)


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
                # Existing keys can be used all the same.
                fetched |= dict.fromkeys(absent, UnusableKey(error))
        self._remember(fetched)
        return found | fetched

    def existing(self, fragment_ids: Collection[str]) -> set[str]:
        """Those that the store has a key of now, in one read; none is unwrapped. Raises StoreError."""
        return set(self._store.get(sorted(fragment_ids))) if fragment_ids else set()

    def fragments(self) -> Iterator[list[str]]:
        """The fragments that have a data key, in pages. Raises StoreError."""
        for version in self._store.counts():
            after = ""
            while page := self._store.wrapped_by(version, after, 1000):
                yield list(page)
                after = next(reversed(page))

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

    @contextmanager
    def hold(self, fragment_ids: Sequence[str]) -> Iterator[dict[str, SealingKey]]:
        """The keys that the store has, none of which changes or is erased within the context, in any process. This
        object must not be used there. Raises StoreError."""
        with suppress(KeyProviderError):
            # Not while others wait for what is held. If the keys are away, each is reported as unusable.
            self._provider.prepare()
        with self._store.hold(fragment_ids) as stored:
            yield self._unwrap_held(stored)

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
        wrapped, stored = self._put_absent(made)
        keys: dict[str, SealingKey] = {}
        for name, key in made.items():
            kept = stored.get(name)
            if kept is None:
                raise StoreError("the data-key store took a key and did not give it back")
            keys[name] = SealingKey(key.reveal(), name) if kept == wrapped[name] else self._unwrap(name, kept)
        return keys

    def _put_absent(self, made: Mapping[str, Secret]) -> tuple[dict[str, WrappedKey], dict[str, WrappedKey]]:
        """The keys as they were wrapped, and those that the store has now."""
        closed: set[int] = set()
        while True:
            wrapped = {name: self._provider.wrap(key, context(name)) for name, key in made.items()}
            try:
                return wrapped, self._store.put_absent(wrapped)
            except ClosedVersionError:
                # The version that is current here was rotated out meanwhile, and so may be the next one by now.
                versions = {each.kek_version for each in wrapped.values()}
                if not versions.isdisjoint(closed):
                    raise
                closed |= versions
                self._provider.refresh()

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
