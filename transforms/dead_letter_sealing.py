"""Sealing the raw records of dead letters.

Wire format, version 1: byte 0 is 0x01, then the output of AES-SIV (RFC 5297, 64-byte key): the synthetic
IV of 16 bytes and a ciphertext as long as the record. The key is the purpose key `dead-letters`; the one
associated-data component is the version byte and the canonical JSON of [letter id, position].
"""

from __future__ import annotations

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from model.canonical import encode
from model.errors import SealError
from transforms.key_holder import KeyHolder
from transforms.keys import KeyProvider

PURPOSE = "dead-letters"
FORMAT_VERSION = b"\x01"

_SHORTEST = 1 + 16


class DeadLetterSealer(KeyHolder):
    """Seals records so that only a holder of the key provider can read and replay them. Safe for several
    threads; the same record, letter id and position give the same bytes, so a replay changes nothing."""

    __slots__ = ("_siv",)

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        self._siv = AESSIV(provider.purpose_key(PURPOSE))

    def seal(self, payload: bytes, letter_id: str, position: str) -> bytes:
        """The record, sealed."""
        return FORMAT_VERSION + self._siv.encrypt(payload, [_place(letter_id, position)])

    def open(self, sealed: bytes, letter_id: str, position: str) -> bytes:
        """The record as it was read. Raises SealError when it was altered, truncated, moved from another
        letter, or sealed under another keyring."""
        if len(sealed) < _SHORTEST:
            raise SealError(f"the payload of dead letter {letter_id} is truncated")
        if not sealed.startswith(FORMAT_VERSION):
            raise SealError(f"the payload of dead letter {letter_id} has the unknown version {sealed[0]}")
        try:
            return self._siv.decrypt(sealed[1:], [_place(letter_id, position)])
        except InvalidTag:
            raise SealError(
                f"the payload of dead letter {letter_id} was altered, moved, or sealed under another keyring"
            ) from None


def _place(letter_id: str, position: str) -> bytes:
    return FORMAT_VERSION + encode((letter_id, position))
