"""Sealing the raw records of dead letters, and the shuffle blocks between map and commit tasks.

Dead letter, version 1: byte 0 is 0x01, then the output of AES-SIV (RFC 5297, 64-byte key): the synthetic
IV of 16 bytes and a ciphertext as long as the record. The key is the purpose key `dead-letters`; the one
associated-data component is the version byte and the canonical JSON of [dead letter id, position].

A dead letter's id is the first 12 bytes, in hexadecimal, of the synthetic IV of the record under the same key. Its
associated data is 0x01, `id` and the canonical JSON of the record's source position.

Shuffle block, version 1: byte 0 is 0x01, then a random nonce of 12 bytes, then the ciphertext and tag of AES-256-GCM
(NIST SP 800-38D). The key is HKDF-SHA-256 (RFC 5869) of the purpose key `shuffle-blocks`, `info` the run of the micro-batch:
so a key sees thousands of nonces and not 2^32. The associated data is the version byte and the number of the commit
task, 4 bytes. Spark writes blocks to files and sends them over the network.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from idgraph.model.canonical import encode
from idgraph.model.errors import SealError
from transforms.privacy.dead_letter_keys import SHREDDED_VERSION
from transforms.privacy.keys import KeyProvider, NotPicklable

DEAD_LETTER_PURPOSE = "dead-letters"
FORMAT_VERSION = b"\x01"

_SHORTEST = 1 + 16
_ID_BYTES = 12


class DeadLetterSealer(NotPicklable):
    """Seals records so that only a holder of the key provider can read and replay them. Safe for several
    threads; the same record, dead letter id and position give the same bytes, so a replay changes nothing."""

    __slots__ = ("_siv",)

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        self._siv = AESSIV(provider.purpose_key(DEAD_LETTER_PURPOSE))

    def dead_letter_id(self, payload: bytes, place: Sequence[str]) -> str:
        """24 characters. Among n dead letters two share them with probability n²/2^97: 6e-12 for a billion."""
        # A plain hash would have anybody who holds the dead letters test guesses of what is in them.
        associated = FORMAT_VERSION + b"id" + encode(place)
        return self._siv.encrypt(payload, [associated])[:_ID_BYTES].hex()

    def seal(self, payload: bytes, dead_letter_id: str, position: str) -> bytes:
        """The record, sealed."""
        return FORMAT_VERSION + self._siv.encrypt(payload, [_dead_letter_place(dead_letter_id, position)])

    def open(self, sealed: bytes, dead_letter_id: str, position: str) -> bytes:
        """The record as it was read. Raises SealError when it was altered, truncated, moved from another
        dead letter, or sealed under another keyring."""
        if len(sealed) < _SHORTEST:
            raise SealError(f"the payload of dead letter {dead_letter_id} is truncated")
        if sealed.startswith(SHREDDED_VERSION):
            raise SealError(
                f"the key of dead letter {dead_letter_id} was destroyed, as by an erasure, or dead-letters.keys.db "
                "is not the one beside it"
            )
        if not sealed.startswith(FORMAT_VERSION):
            raise SealError(
                f"the payload of dead letter {dead_letter_id} has the unknown version {sealed[0]}"
            )
        try:
            return self._siv.decrypt(sealed[1:], [_dead_letter_place(dead_letter_id, position)])
        except InvalidTag:
            raise SealError(
                f"the payload of dead letter {dead_letter_id} was altered, moved, or sealed under another keyring"
            ) from None


def _dead_letter_place(dead_letter_id: str, position: str) -> bytes:
    return FORMAT_VERSION + encode((dead_letter_id, position))


BLOCK_PURPOSE = "shuffle-blocks"

_KEY_BYTES = 32
_NONCE_BYTES = 12
_HEADER = len(FORMAT_VERSION) + _NONCE_BYTES


class ShuffleBlockKeys(NotPicklable):
    """Keys for the shuffle blocks of micro-batches. Every process that opens the provider has the same."""

    __slots__ = ("_secret",)

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        self._secret = provider.purpose_key(BLOCK_PURPOSE)

    def sealer(self, attempt: str) -> ShuffleBlockSealer:
        """The sealer of the shuffle blocks of one run of a micro-batch, by a name that no other run has."""
        return ShuffleBlockSealer(
            HKDF(SHA256(), _KEY_BYTES, salt=None, info=attempt.encode()).derive(self._secret)
        )


class ShuffleBlockSealer(NotPicklable):
    """Seals the shuffle blocks of one run of a micro-batch."""

    __slots__ = ("_gcm",)

    def __init__(self, key: bytes) -> None:
        self._gcm = AESGCM(key)

    def seal(self, block: bytes, part: int) -> bytes:
        """A shuffle block for a commit task, sealed."""
        nonce = os.urandom(_NONCE_BYTES)
        return b"".join((FORMAT_VERSION, nonce, self._gcm.encrypt(nonce, block, _block_place(part))))

    def open(self, sealed: memoryview, part: int) -> bytes:
        """The shuffle block. Raises SealError when it was altered, interrupted, or is of another run or commit task."""
        nonce, rest = sealed[len(FORMAT_VERSION) : _HEADER], sealed[_HEADER:]
        try:
            if sealed[: len(FORMAT_VERSION)] != FORMAT_VERSION:
                raise ValueError("another version")
            return self._gcm.decrypt(nonce, rest, _block_place(part))
        except (InvalidTag, ValueError):
            raise SealError("a shuffle block was altered or interrupted between two tasks") from None


def _block_place(part: int) -> bytes:
    return FORMAT_VERSION + part.to_bytes(4, "big")
