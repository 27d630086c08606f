"""Key bytes that do not leak, and the key protocols: a provider of key-encryption keys, a store of wrapped data keys.

Hierarchy: a key provider holds versioned key-encryption keys (KEK) and never returns them; each fragment
has one data key (DEK), stored wrapped by a KEK, apart from the fragments. Deleting a wrapped data key
makes everything it protected unreadable wherever copies are (crypto-shredding).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, NoReturn, Protocol, Self


class NotPicklable:
    """Shows nothing of itself and stays in its process.

    `repr` and `str` give the class name alone; equality and hash are by identity, so that no comparison
    touches key bytes. Pickling and copying raise TypeError: a worker opens its own provider (law 3).
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} holds keys and is neither pickled nor copied: "
            "each process opens its own key provider"
        )


class Secret(NotPicklable):
    """Key bytes that no log, comparison, pickle or traceback with local variables shows by accident.

    Code that needs the bytes says so: `reveal` is called where they go into a cipher, and nowhere else.
    """

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def several(cls, count: int, size: int) -> list[Self]:
        """As many, each of `size` bytes of the operating system's generator, of which they are asked at once."""
        content = secrets.token_bytes(count * size)
        return [cls(content[start : start + size]) for start in range(0, count * size, size)]

    def reveal(self) -> bytes:
        """The bytes themselves."""
        return self._content


class WrappedKey(NamedTuple):
    """A data key, encrypted. `kek_version` says by which key-encryption key."""

    kek_version: int
    wrapped: bytes


class KeyStatus(StrEnum):
    """The current version wraps and unwraps; `previous` and `retiring` ones only unwrap.

    A `retiring` one was rotated out: its last keys are being wrapped by the current one. A `retired` one has only its
    place in the list.
    """

    CURRENT = "current"
    PREVIOUS = "previous"
    RETIRING = "retiring"
    RETIRED = "retired"


class KeyVersion(NamedTuple):
    """The public facts of a key-encryption key."""

    version: int
    status: KeyStatus
    created: datetime
    retired: datetime | None = None


class KeyProvider(Protocol):
    """Every method raises `KeyProviderError`; key bytes never stand in a message, repr or pickle."""

    def wrap(self, data_key: Secret, context: bytes) -> WrappedKey:
        """Encrypt a data key under the current KEK; `context` (the fragment id) must be given to unwrap."""
        ...

    def unwrap(self, key: WrappedKey, context: bytes) -> Secret: ...

    def purpose_key(self, purpose: str) -> bytes:
        """A 64-byte secret of its own for one purpose (`blind-index`, `dead-letters`), the same at every
        call and in every process that opens this provider."""
        ...

    def refresh(self) -> None:
        """Learn now which version is current; else a provider may take a minute to notice."""
        ...

    def prepare(self) -> None:
        """Have at hand what wrapping and unwrapping by the current version needs, as far as a provider may wait for
        somebody else: who holds a lock calls this before."""
        ...


class RotatingKeyProvider(KeyProvider, Protocol):
    """A key provider whose versions idgraph itself makes and retires. It promises all that `KeyProvider` does."""

    def rewrap(self, key: WrappedKey, context: bytes) -> WrappedKey:
        """The same data key wrapped by the current version; it does not leave the provider."""
        ...

    def versions(self) -> Sequence[KeyVersion]:
        """All there ever were, oldest first, as of now. The last one is current."""
        ...

    def add(self) -> int:
        """Make a new version current, and give it: from now on it wraps, and all older ones unwrap."""
        ...

    def begin_rotation(self, after: int) -> int:
        """Make a new version current, unless another than `after` is so already, and mark all older ones
        retiring, both in one step. Gives the current version."""
        ...

    def mark_retiring(self, version: int) -> None:
        """Refuses the current version; a retired one stays as it is."""
        ...

    def retire(self, version: int) -> None:
        """Destroy a retiring version for good."""
        ...


class DataKeyStore(Protocol):
    """Wrapped data keys by fragment id. Safe for several processes at once. Raises `StoreError`."""

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        """Those that exist."""
        ...

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        """Store each key unless its fragment has one; gives the stored key of every fragment asked for, so
        that of two writers who create at once both go on with the same.

        Raises ClosedVersionError, and stores none, when a key is wrapped by a closed version.
        """
        ...

    def replace(self, keys: Mapping[str, tuple[WrappedKey, WrappedKey]]) -> int:
        """Give fragments the second key where they still have the first; gives how many had it. One that
        changed or is gone is left as it is. Raises ClosedVersionError as `put_absent` does."""
        ...

    def wrapped_by(self, version: int, after: str, limit: int) -> dict[str, WrappedKey]:
        """At most `limit` keys of this KEK version by fragment id, in an order of the store's own, from behind the
        fragment `after` on; `""` is the start."""
        ...

    def some(self, limit: int) -> dict[str, WrappedKey]:
        """At most `limit` keys by fragment id, whichever are had soonest; none only if there are none."""
        ...

    def counts(self) -> dict[int, int]:
        """The number of keys that each KEK version wraps. Walks all of them."""
        ...

    def close_versions(self, versions: Iterable[int]) -> None:
        """Take no key that these KEK versions wrap, from now on and for good, whoever brings it: what was
        counted afterwards cannot grow any more. Keys that are there stay."""
        ...

    def delete(self, fragment_ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
        """Crypto-shred, but for what `kept` names; gives how many there were. `kept` is asked while nobody else
        can change or `hold` a key. It must not use this store, and may be asked again."""
        ...

    def compact(self) -> None:
        """Leave no byte in a file of what was deleted or replaced. May take seconds a gigabyte, in which nobody
        else writes: for the end of an erasure, not for each key."""
        ...

    def hold(self, fragment_ids: Sequence[str]) -> AbstractContextManager[dict[str, WrappedKey]]:
        """The keys that exist, none of which changes within the context. This store must not be used there."""
        ...

    def close(self) -> None: ...
