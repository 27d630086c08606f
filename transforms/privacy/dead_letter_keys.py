"""Keys of dead letters, which can be destroyed: each dead letter is sealed once more by a random key of its own.

Stored payload, version 2: byte 0 is 0x02, then the output of AES-SIV (RFC 5297) under the dead letter's key of 64 bytes:
the synthetic IV and a ciphertext as long as the sealed record (`record_sealing`). The associated data is 0x02 and the id. The
key is stored apart, by id, wrapped: AES-SIV under the purpose key `dead-letter-keys`, with 0x01 and the id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from idgraph.model.dead_letters import DeadLetter
from transforms.privacy.keys import KeyProvider, NotPicklable, Secret, WrappedKey

PURPOSE = "dead-letter-keys"
SHREDDED_VERSION = b"\x02"

_KEY_BYTES = 64
_WRAPPED_VERSION = b"\x01"


class DeadLetterKeyStore(Protocol):
    """The part of `DataKeyStore` that keys of dead letters need, by dead letter's id."""

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]: ...
    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]: ...
    def delete(self, fragment_ids: Sequence[str]) -> int: ...
    def compact(self) -> None: ...
    def close(self) -> None: ...


class DeadLetterKeys(NotPicklable):
    """Seals and opens what a store of dead letters has. Safe for several threads and processes. Raises StoreError."""

    def __init__(self, provider: KeyProvider, store: DeadLetterKeyStore) -> None:
        """Raises KeyProviderError."""
        self._siv = AESSIV(provider.purpose_key(PURPOSE))
        self._store = store

    def seal(self, dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """As they are stored. Their keys are durable when it returns; one that has a key keeps it, so that the same dead
        letter gives the same bytes."""
        made = Secret.several(len(dead_letters), _KEY_BYTES)
        keys = self._store.put_absent(
            {each.id: self._wrapped(key, each.id) for each, key in zip(dead_letters, made, strict=True)}
        )
        return [self._sealed(each, keys[each.id]) for each in dead_letters]

    def open(self, dead_letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """As they were put. One whose key was destroyed, or was altered, is as it is: nobody opens its record."""
        keys = self._store.get([each.id for each in dead_letters])
        return [self._opened(each, keys[each.id]) if each.id in keys else each for each in dead_letters]

    def destroy(self, ids: Sequence[str]) -> None:
        """No copy of these dead letters can be opened any more, but where there is one of their keys too."""
        self._store.delete(ids)

    def compact(self) -> None:
        """As `DataKeyStore.compact`."""
        self._store.compact()

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _wrapped(self, key: Secret, dead_letter_id: str) -> WrappedKey:
        return WrappedKey(0, self._siv.encrypt(key.reveal(), [_WRAPPED_VERSION + dead_letter_id.encode()]))

    def _cipher(self, key: WrappedKey, dead_letter_id: str) -> AESSIV:
        return AESSIV(self._siv.decrypt(key.wrapped, [_WRAPPED_VERSION + dead_letter_id.encode()]))

    def _sealed(self, dead_letter: DeadLetter, key: WrappedKey) -> DeadLetter:
        place = [SHREDDED_VERSION + dead_letter.id.encode()]
        sealed = self._cipher(key, dead_letter.id).encrypt(dead_letter.payload, place)
        return dead_letter._replace(payload=SHREDDED_VERSION + sealed)

    def _opened(self, dead_letter: DeadLetter, key: WrappedKey) -> DeadLetter:
        place = [SHREDDED_VERSION + dead_letter.id.encode()]
        try:
            payload = self._cipher(key, dead_letter.id).decrypt(dead_letter.payload[1:], place)
        except InvalidTag:
            return dead_letter
        return dead_letter._replace(payload=payload)
