"""Sealing attribute values under the data key of their fragment.

Wire format of a sealed value, version 1, written as standard base64 with padding:

    byte  0        format version, 0x01
    bytes 1..4     data-key version: which of a fragment's data keys sealed it (see `SealingKey`)
    bytes 5..20    synthetic IV of AES-SIV (RFC 5297), which is also the authentication tag
    bytes 21..     ciphertext, a multiple of 16 bytes

The plaintext is the value's canonical JSON, so types survive, filled up with spaces to a multiple of 16
bytes, so that `true` and `false` or two first names do not differ in length. The key is 64 bytes
(AES-256-SIV). The one associated-data component is the first five bytes, then the canonical JSON of the
fragment id, then that of [path, source, event id]. JSON ends where it ends, so no two places give the
same bytes. A value is opened only with all of them equal: it cannot be moved.

The same value, place and key give the same bytes (law 1); other events give other bytes.
"""

from __future__ import annotations

import hashlib
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from idgraph.model.canonical import decode, encode
from idgraph.model.errors import KeyProviderError, KeyServiceError, SealError
from transforms.privacy.keys import NotPicklable

DATA_KEY_BYTES = 64
FORMAT_VERSION = b"\x01"

_BLOCK = 16
_HEADER_BYTES = 5
_SHORTEST = _HEADER_BYTES + 16 + _BLOCK


class SealingKey(NotPicklable):
    """The handle of one fragment's data key. Safe for several threads.

    The data-key version is four bytes of a hash of the key: it needs no counter that could start again
    after an erasure, and it reports a value of another key from an altered one.

    The cipher is made when it is first needed and takes 4 KiB, nearly all of it OpenSSL's.
    """

    __slots__ = ("_data_key", "_header", "_place", "_siv")

    def __init__(self, data_key: bytes, fragment_id: str) -> None:
        """Raises KeyProviderError for a key that is not 64 bytes long."""
        if len(data_key) != DATA_KEY_BYTES:
            raise KeyProviderError(f"a data key has {DATA_KEY_BYTES} bytes, this one has {len(data_key)}")
        self._data_key = data_key
        self._siv: AESSIV | None = None
        self._header = FORMAT_VERSION + hashlib.sha256(b"idgraph data-key version\0" + data_key).digest()[:4]
        self._place = self._header + encode(fragment_id)

    def rest(self) -> None:
        """Let go of the cipher, until it is needed again: of thousands of keys each is used once, and what is let go of
        at once is warm when the next cipher takes its place."""
        self._siv = None

    def _cipher(self) -> AESSIV:
        siv = self._siv
        if siv is None:
            siv = self._siv = AESSIV(self._data_key)
        return siv

    def seal(self, value: Any, path: str, source: str, event_id: str) -> str:
        """A JSON value as sealed text. Raises SealError for a value that JSON cannot hold."""
        try:
            plain = encode(value)
            place = self._place + encode((path, source, event_id))
        except (TypeError, ValueError, OverflowError, RecursionError):
            plain = b""
        if not plain:
            # Raised outside the handler: the codec's error quotes the value and would hang on as context.
            raise SealError(f"the value at {path!a} cannot be written as JSON")
        plain = plain.ljust(-(-len(plain) // _BLOCK) * _BLOCK)
        return b2a_base64(self._header + self._cipher().encrypt(plain, [place]), newline=False).decode(
            "ascii"
        )

    def open(self, text: str, path: str, source: str, event_id: str) -> Any:
        """The value that was sealed. Raises SealError when the text was altered or truncated, comes from
        another fragment, path, event or data key, or has a format version that this code does not know."""
        try:
            sealed = a2b_base64(text)
            place = self._place + encode((path, source, event_id))
        except (Base64Error, ValueError):
            sealed, place = b"", b""
        # Base64 has several spellings of the same bytes; only the one that `seal` writes is accepted.
        if len(sealed) < _SHORTEST or b2a_base64(sealed, newline=False).decode("ascii") != text:
            raise SealError(f"the sealed value at {path!a} is truncated or not base64")
        if not sealed.startswith(self._header):
            raise SealError(f"the sealed value at {path!a} {self._why_foreign(sealed)}")
        try:
            plain = self._cipher().decrypt(sealed[_HEADER_BYTES:], [place])
        except InvalidTag:
            raise SealError(
                f"the sealed value at {path!a} was altered, or moved from another fragment, path or event"
            ) from None
        return decode(plain)

    def has_sealed(self, text: str) -> bool:
        """Whether a sealed text says that it is of this key. Opens nothing: it may still have been altered."""
        try:
            return a2b_base64(text[:8]).startswith(self._header)
        except (Base64Error, ValueError):
            return False

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
        """Why, if it is not for this key: what holds all keys is away."""
        kind, reason = self._error
        return KeyServiceError(reason) if issubclass(kind, KeyServiceError) else None

    def rest(self) -> None:
        """There is none."""

    def has_sealed(self, text: str) -> bool:  # noqa: ARG002
        """Raises KeyProviderError."""
        raise self._why()

    def seal(self, value: Any, path: str, source: str, event_id: str) -> str:  # noqa: ARG002
        """Raises KeyProviderError."""
        raise self._why()

    def open(self, text: str, path: str, source: str, event_id: str) -> Any:  # noqa: ARG002
        """Raises KeyProviderError."""
        raise self._why()

    def _why(self) -> KeyProviderError:
        # A new one each time: an error that is raised twice gathers the frames of both.
        kind, reason = self._error
        return kind(reason)
