"""The key provider: key-encryption keys in a file of their own, bare or each in an envelope."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from idgraph.model.errors import KeyInUseError, KeyProviderError, UnknownKeyVersionError
from sinks.keyring import file as keyring_file
from sinks.keyring.content import Keyring
from sinks.keyring.envelope import BARE, Envelope
from sinks.keyring.file import FileStamp
from sinks.keyring.secrets import OpenedSecrets
from transforms.privacy.keys import KeyStatus, KeyVersion, NotPicklable, Secret, WrappedKey

FORMAT_VERSION = b"\x01"
PURPOSE_KEY_BYTES = 64
LOOK_SECONDS = 60.0


class KeyringFile(NotPicklable):
    """A `RotatingKeyProvider` over a keyring file (its format is reported in `sinks.keyring.content`).

    A wrapped data key is the version byte 0x01 and the output of AES-SIV (RFC 5297) under the
    key-encryption key. Its one associated-data component is that byte, the key-encryption key's version in
    8 bytes, and the context. Purpose keys come from the root secret by HKDF-SHA-256 (RFC 5869) with the
    info `idgraph purpose key: PURPOSE`. Safe for several threads and processes.

    The file is read when this is opened, and again when it has changed: at once for a data key of a
    version that is not known yet, else looked at every minute, so that a retired key leaves memory. While
    it is away, the keys that were read stay in use. Secrets in an envelope are opened when they are first needed, and
    again when its limits are reached. All methods raise KeyProviderError; those that open or make a secret,
    KeyServiceError as the envelope does.
    """

    def __init__(
        self, path: Path, now: Callable[[], float] = time.monotonic, envelope: Envelope = BARE
    ) -> None:
        """Refuses a file that is missing, damaged, or that others may use; the message says the remedy."""
        self._path = path
        self._now = now
        self._envelope = envelope
        self._next_look = now() + LOOK_SECONDS
        self._opened = self._read()

    @classmethod
    def create(cls, path: Path, envelope: Envelope = BARE) -> Self:
        """A new keyring with one key version, readable by its owner only. Never replaces a file."""
        keyring_file.create(path, envelope)
        return cls(path, envelope=envelope)

    @classmethod
    def take_over(cls, path: Path, envelope: Envelope, bare: Path) -> Self:
        """A new keyring with the keys of another one, whose secrets are bare, in envelopes. It opens and makes what
        that one does. Never replaces a file."""
        keyring_file.create(path, envelope, lambda new: keyring_file.read(bare)[0].rewrapped(BARE, new))
        return cls(path, envelope=envelope)

    def wrap(self, data_key: Secret, context: bytes) -> WrappedKey:
        return self._looked().wrap(data_key, context)

    def unwrap(self, key: WrappedKey, context: bytes) -> Secret:
        opened = self._looked()
        if not opened.secrets.has(key.kek_version):
            self.refresh()
            opened = self._opened
        return opened.unwrap(key, context, self._path)

    def rewrap(self, key: WrappedKey, context: bytes) -> WrappedKey:
        return self.wrap(self.unwrap(key, context), context)

    def purpose_key(self, purpose: str) -> bytes:
        info = b"idgraph purpose key: " + purpose.encode()
        return HKDF(SHA256(), PURPOSE_KEY_BYTES, salt=None, info=info).derive(
            self._opened.secrets.root().reveal()
        )

    def refresh(self) -> None:
        if keyring_file.stamp(self._path) != self._opened.stamp:
            self._opened = self._read()

    def prepare(self) -> None:
        opened = self._looked()
        opened.secrets.prepare(opened.keyring.current)

    def versions(self) -> tuple[KeyVersion, ...]:
        self.refresh()
        return tuple(key.described for key in self._opened.keyring.keys)

    def add(self) -> int:
        """Make a new version current, and give it: from now on it wraps, and all older ones unwrap."""
        return self._change(lambda keyring: keyring.with_new_key(self._envelope))

    def begin_rotation(self, after: int) -> int:
        return self._change(
            lambda keyring: keyring.rotated(self._envelope) if keyring.current == after else keyring
        )

    def mark_retiring(self, version: int) -> None:
        self._change(lambda keyring: self._with_status(keyring, version, KeyStatus.RETIRING))

    def retire(self, version: int) -> None:
        self._change(lambda keyring: self._with_status(keyring, version, KeyStatus.RETIRED))

    def _with_status(self, keyring: Keyring, version: int, status: KeyStatus) -> Keyring:
        """Raises UnknownKeyVersionError and KeyInUseError."""
        found = keyring.find(version)
        if found is None:
            raise UnknownKeyVersionError(f"{self._path} has no key-encryption key of version {version}")
        if found.status is KeyStatus.CURRENT:
            raise KeyInUseError(
                f"key version {version} is the current one; `idgraph keys rotate` makes another one current"
            )
        if found.status in (status, KeyStatus.RETIRED):
            return keyring
        if status is KeyStatus.RETIRED and found.status is not KeyStatus.RETIRING:
            raise KeyInUseError(f"key version {version} is not marked retiring")
        return keyring.with_status(version, status)

    def _change(self, edit: Callable[[Keyring], Keyring]) -> int:
        self._opened = self._open(*keyring_file.change(self._path, edit, self._envelope))
        return self._opened.keyring.current

    def _read(self) -> _Opened:
        return self._open(*keyring_file.read(self._path, self._envelope))

    def _open(self, keyring: Keyring, stamp: FileStamp) -> _Opened:
        return _Opened(keyring, stamp, OpenedSecrets(keyring, self._envelope, self._now))

    def _looked(self) -> _Opened:
        now = self._now()
        if now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            try:
                self.refresh()
            except KeyProviderError:
                # A keyring that is away for a while, or being repaired, stops nobody who has read it.
                return self._opened
        return self._opened


class _Opened(NotPicklable):
    """All that was read at one time; replaced whole, so that no thread sees half a change."""

    __slots__ = ("keyring", "secrets", "stamp")

    def __init__(self, keyring: Keyring, stamp: FileStamp, secrets: OpenedSecrets) -> None:
        self.keyring = keyring
        self.stamp = stamp
        self.secrets = secrets

    def wrap(self, data_key: Secret, context: bytes) -> WrappedKey:
        version = self.keyring.current
        cipher = self.secrets.cipher(version)
        return WrappedKey(
            version, FORMAT_VERSION + cipher.encrypt(data_key.reveal(), [_binding(version, context)])
        )

    def unwrap(self, key: WrappedKey, context: bytes, path: Path) -> Secret:
        if not self.secrets.has(key.kek_version):
            raise UnknownKeyVersionError(self._why_unknown(key.kek_version, path))
        if not key.wrapped.startswith(FORMAT_VERSION):
            raise KeyProviderError("a wrapped data key is empty or has an unknown format version")
        try:
            cipher = self.secrets.cipher(key.kek_version)
            return Secret(cipher.decrypt(key.wrapped[1:], [_binding(key.kek_version, context)]))
        except InvalidTag:
            raise KeyProviderError(
                f"a wrapped data key was altered, or belongs to another fragment or another keyring than {path}"
            ) from None

    def _why_unknown(self, version: int, path: Path) -> str:
        found = self.keyring.find(version)
        if found is None or found.retired is None:
            return f"{path} has no key-encryption key of version {version}"
        return (
            f"key version {version} was retired on {found.retired:%Y-%m-%d}: what it wraps is readable only "
            f"with a copy of {path} from before"
        )


def _binding(version: int, context: bytes) -> bytes:
    return FORMAT_VERSION + version.to_bytes(8, "big", signed=True) + context
