"""Sealing the raw records of dead letters.

Wire format, version 1: byte 0 is 0x01, then the output of AES-SIV (RFC 5297, 64-byte key): the synthetic
IV of 16 bytes and a ciphertext as long as the record. The key is the purpose key `dead-letters`; the one
associated-data component is the version byte and the canonical JSON of [dead letter id, position].

A dead letter's id is the first 12 bytes, in hexadecimal, of the synthetic IV of the record under the same key; there the
associated data is 0x01, `id` and the canonical JSON of what the record's place is.
"""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from idgraph.model.canonical import encode
from idgraph.model.errors import SealError
from transforms.privacy.keys import KeyProvider
from transforms.privacy.secret import NotPicklable

PURPOSE = "dead-letters"
FORMAT_VERSION = b"\x01"

_SHORTEST = 1 + 16
_ID_BYTES = 12


class DeadLetterSealer(NotPicklable):
    """Seals records so that only a holder of the key provider can read and replay them. Safe for several
    threads; the same record, dead letter id and position give the same bytes, so a replay changes nothing."""

    __slots__ = ("_siv",)

    def __init__(self, provider: KeyProvider) -> None:
        """Raises KeyProviderError."""
        self._siv = AESSIV(provider.purpose_key(PURPOSE))

    def dead_letter_id(self, payload: bytes, place: Sequence[str]) -> str:
        """24 characters. Among n dead letters two share them with probability n²/2^97: 6e-12 for a billion."""
        # A plain hash would have anybody who holds the dead letters test guesses of what is in them.
        associated = FORMAT_VERSION + b"id" + encode(place)
        return self._siv.encrypt(payload, [associated])[:_ID_BYTES].hex()

    def seal(self, payload: bytes, dead_letter_id: str, position: str) -> bytes:
        """The record, sealed."""
        return FORMAT_VERSION + self._siv.encrypt(payload, [_place(dead_letter_id, position)])

    def open(self, sealed: bytes, dead_letter_id: str, position: str) -> bytes:
        """The record as it was read. Raises SealError when it was altered, truncated, moved from another
        dead letter, or sealed under another keyring."""
        if len(sealed) < _SHORTEST:
            raise SealError(f"the payload of dead letter {dead_letter_id} is truncated")
        if not sealed.startswith(FORMAT_VERSION):
            raise SealError(
                f"the payload of dead letter {dead_letter_id} has the unknown version {sealed[0]}"
            )
        try:
            return self._siv.decrypt(sealed[1:], [_place(dead_letter_id, position)])
        except InvalidTag:
            raise SealError(
                f"the payload of dead letter {dead_letter_id} was altered, moved, or sealed under another keyring"
            ) from None


def _place(dead_letter_id: str, position: str) -> bytes:
    return FORMAT_VERSION + encode((dead_letter_id, position))
