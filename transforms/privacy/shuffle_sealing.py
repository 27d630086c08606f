"""Sealing what map tasks hand to commit tasks: Spark writes it to files, and on a cluster sends it over the network.

Wire format, version 1: byte 0 is 0x01, then a random nonce of 12 bytes, then the ciphertext and tag of AES-256-GCM
(NIST SP 800-38D). The key is HKDF-SHA-256 (RFC 5869) of the purpose key `blocks`, `info` the run of the micro-batch:
so a key sees thousands of nonces and not 2^32. The associated data is the version byte and the number of the commit
task, 4 bytes.
"""

from __future__ import annotations

import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from idgraph.model.errors import SealError
from transforms.privacy.keys import KeyProvider
from transforms.privacy.secret import NotPicklable

PURPOSE = "parcels"
FORMAT_VERSION = b"\x01"

_KEY_BYTES = 32
_NONCE_BYTES = 12
_HEADER = len(FORMAT_VERSION) + _NONCE_BYTES


class ShuffleBlockKeys(NotPicklable):
    """Keys for the shuffle blocks of micro-batches. Every process that opens the provider has the same."""

    __slots__ = ("_secret",)

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        self._secret = provider.purpose_key(PURPOSE)

    def sealer(self, attempt: str) -> ShuffleBlockSealer:
        """What seals and opens the shuffle blocks of one run of a micro-batch, which no other run has the name of."""
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
        return b"".join((FORMAT_VERSION, nonce, self._gcm.encrypt(nonce, block, _place(part))))

    def open(self, sealed: memoryview, part: int) -> bytes:
        """The shuffle block. Raises SealError when it was altered, interrupted, or is of another run or commit task."""
        nonce, rest = sealed[len(FORMAT_VERSION) : _HEADER], sealed[_HEADER:]
        try:
            if sealed[: len(FORMAT_VERSION)] != FORMAT_VERSION:
                raise ValueError("another version")
            return self._gcm.decrypt(nonce, rest, _place(part))
        except (InvalidTag, ValueError):
            raise SealError("a shuffle block was altered or interrupted between two tasks") from None


def _place(part: int) -> bytes:
    return FORMAT_VERSION + part.to_bytes(4, "big")
