"""Key protocols: where key-encryption keys live, and where wrapped data keys stay.

Hierarchy: a key provider holds versioned key-encryption keys (KEK) and never gives them out; each fragment
has one data key (DEK), stored wrapped by a KEK, apart from the fragments. Deleting a wrapped data key
makes everything it protected unreadable wherever copies are (crypto-shredding).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class WrappedKey(NamedTuple):
    """A data key, encrypted. `kek_version` says by which key-encryption key."""

    kek_version: int
    wrapped: bytes


class KeyProvider(Protocol):
    """Every method raises `KeyProviderError`; key bytes never stand in a message, repr or pickle."""

    def wrap(self, data_key: bytes, context: bytes) -> WrappedKey:
        """Encrypt a data key under the current KEK; `context` (the fragment id) must be given to unwrap."""
        ...

    def unwrap(self, key: WrappedKey, context: bytes) -> bytes: ...

    def purpose_key(self, purpose: str) -> bytes:
        """A 64-byte secret of its own for one purpose (`blind-index`, `dead-letters`), the same at every
        call and in every process that opens this provider."""
        ...


class DataKeyStore(Protocol):
    """Wrapped data keys by fragment id. Safe for several processes at once. Raises `StoreError`."""

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        """Those that exist."""
        ...

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        """Store each key unless its fragment has one; gives the stored key of every fragment asked for, so
        that of two writers who create at once both go on with the same."""
        ...

    def delete(self, fragment_ids: Sequence[str]) -> int:
        """Crypto-shred; gives how many there were."""
        ...

    def close(self) -> None: ...
