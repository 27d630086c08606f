"""The local key provider: key-encryption keys in a file of their own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from model.errors import KeyProviderError
from sinks import keyring_file
from sinks.keyring_content import Keyring, KeyVersion
from sinks.keyring_file import FileStamp
from transforms.key_holder import KeyHolder
from transforms.keys import WrappedKey

FORMAT_VERSION = b"\x01"
PURPOSE_KEY_BYTES = 64


class KeyringFile(KeyHolder):
    """A `KeyProvider` over a keyring file (its format is told in `sinks.keyring_content`).

    A wrapped data key is the version byte 0x01 and the output of AES-SIV (RFC 5297) under the
    key-encryption key. Its one associated-data component is that byte, the key-encryption key's version in
    8 bytes, and the context. Purpose keys come from the root secret by HKDF-SHA-256 (RFC 5869) with the
    info `idgraph purpose key: PURPOSE`. Safe for several threads and processes.

    The file is read when this is opened, and read again when a data key turns up that was wrapped by a
    version which is not known yet. All methods raise KeyProviderError.
    """

    def __init__(self, path: Path) -> None:
        """Refuses a file that is missing, damaged, or that others may use; the message says the remedy."""
        self._path = path
        self._opened = _open(*keyring_file.read(path))

    @classmethod
    def create(cls, path: Path) -> Self:
        """A new keyring with one key version, readable by its owner only. Never replaces a file."""
        keyring_file.create(path)
        return cls(path)

    def add(self) -> int:
        """Make a new key version current, and give it: from now on it wraps, and all versions unwrap."""
        self._opened = _open(*keyring_file.add_version(self._path))
        return self._opened.current

    def versions(self) -> tuple[KeyVersion, ...]:
        """The key versions as they were last read, oldest first, without key bytes."""
        return tuple(key.described for key in self._opened.keyring.keys)

    def wrap(self, data_key: bytes, context: bytes) -> WrappedKey:
        opened = self._opened
        sealed = opened.ciphers[opened.current].encrypt(data_key, [_binding(opened.current, context)])
        return WrappedKey(opened.current, FORMAT_VERSION + sealed)

    def unwrap(self, key: WrappedKey, context: bytes) -> bytes:
        cipher = self._opened.ciphers.get(key.kek_version) or self._look_again(key.kek_version)
        if not key.wrapped.startswith(FORMAT_VERSION):
            raise KeyProviderError("a wrapped data key is empty or has an unknown format version")
        try:
            return cipher.decrypt(key.wrapped[1:], [_binding(key.kek_version, context)])
        except InvalidTag:
            raise KeyProviderError(
                "a wrapped data key was altered, or belongs to another fragment or another keyring "
                f"than {self._path}"
            ) from None

    def purpose_key(self, purpose: str) -> bytes:
        info = b"idgraph purpose key: " + purpose.encode()
        return HKDF(SHA256(), PURPOSE_KEY_BYTES, salt=None, info=info).derive(self._opened.keyring.root)

    def _look_again(self, version: int) -> AESSIV:
        if keyring_file.stamp(self._path) != self._opened.stamp:
            self._opened = _open(*keyring_file.read(self._path))
        cipher = self._opened.ciphers.get(version)
        if cipher is None:
            raise KeyProviderError(f"{self._path} has no key-encryption key of version {version}")
        return cipher


class _Opened(NamedTuple):
    """All that was read at one time; replaced whole, so that no thread sees half a change."""

    keyring: Keyring
    stamp: FileStamp
    current: int
    ciphers: dict[int, AESSIV]


def _open(keyring: Keyring, stamp: FileStamp) -> _Opened:
    ciphers = {key.described.version: AESSIV(key.secret) for key in keyring.keys}
    return _Opened(keyring, stamp, keyring.keys[-1].described.version, ciphers)


def _binding(version: int, context: bytes) -> bytes:
    return FORMAT_VERSION + version.to_bytes(8, "big", signed=True) + context
