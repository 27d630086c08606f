"""The key provider: key-encryption keys in a file of their own, bare or each in an envelope.

Opened secrets are cached as long and as often used as their envelope allows.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from idgraph.model.errors import KeyInUseError, KeyProviderError, KeyServiceError, UnknownKeyVersionError
from sinks.keyring import file as keyring_file
from sinks.keyring.content import BARE, ROOT, SECRET_BYTES, Envelope, Keyring, SecretName, key_name
from sinks.keyring.file import FileStamp
from transforms.privacy.keys import KeyStatus, KeyVersion, NotPicklable, Secret, WrappedKey

REFUSED_SECONDS = 5.0
"""After a key service was away for all retries, it is not asked again for so long: thousands of data keys may wait
for the one answer."""


@dataclass(slots=True)
class _Kept:
    opened: AESSIV
    until: float
    uses: float


class OpenedSecrets(NotPicklable):
    """The opened secrets of one content of a keyring. Safe for several threads. All methods raise what
    `Envelope.open` raises."""

    __slots__ = ("_ciphers", "_envelope", "_keyring", "_lock", "_now", "_refused", "_stored", "_unlimited")

    def __init__(self, keyring: Keyring, envelope: Envelope, now: Callable[[], float]) -> None:
        self._keyring = keyring
        self._envelope = envelope
        self._now = now
        self._stored = {key.described.version: key.secret for key in keyring.keys if key.secret is not None}
        self._ciphers: dict[int, _Kept] = {}
        self._unlimited: dict[int, AESSIV] = {}
        self._refused: tuple[float, str] | None = None
        self._lock = threading.Lock()

    def root(self) -> Secret:
        """The secret that purpose keys are derived from. It is not kept: whoever derives from it keeps what it got."""
        return self._open(self._keyring.root, ROOT)

    def has(self, version: int) -> bool:
        """Whether there is a key-encryption key of this version, with its secret."""
        return version in self._stored

    def cipher(self, version: int) -> AESSIV:
        """The cipher of a key-encryption key that there is, for one data key."""
        unlimited = self._unlimited.get(version)
        if unlimited is not None:
            return unlimited
        with self._lock:
            kept = self._kept(version)
            kept.uses -= 1
            return kept.opened

    def prepare(self, version: int) -> None:
        """Open the key-encryption key unless it is open."""
        with self._lock:
            self._kept(version)

    def held(self) -> list[int]:
        """The versions whose secrets are in memory."""
        with self._lock:
            return sorted(self._ciphers)

    def _kept(self, version: int) -> _Kept:
        kept = self._ciphers.get(version)
        if kept is None or kept.uses < 1 or kept.until <= self._now():
            self._forget_old(version)
            cipher = AESSIV(self._open(self._stored[version], key_name(version)).reveal())
            kept = _Kept(cipher, self._now() + self._envelope.keep_seconds, self._envelope.keep_uses)
            self._ciphers[version] = kept
            if math.isinf(kept.until) and math.isinf(kept.uses):
                self._unlimited[version] = cipher
        return kept

    def _forget_old(self, version: int) -> None:
        # Before it is asked for: a key that may not be used any more must leave memory.
        now = self._now()
        self._ciphers = {
            each: kept for each, kept in self._ciphers.items() if each != version and kept.until > now
        }

    def _open(self, stored: bytes, name: str) -> Secret:
        if self._refused and self._now() < self._refused[0]:
            raise KeyServiceError(self._refused[1])
        try:
            secret = self._envelope.open(stored, SecretName(self._keyring.id, name))
        except KeyServiceError as error:
            self._refused = (self._now() + REFUSED_SECONDS, str(error))
            raise
        self._refused = None
        if len(secret.reveal()) != SECRET_BYTES:
            raise KeyProviderError(f"the keyring's secret {name} has not {SECRET_BYTES} bytes")
        return secret


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
            f"key version {version} was retired on {found.retired:%Y-%m-%d}: the keys that it wraps are readable only "
            f"with a copy of {path} from before"
        )


def _binding(version: int, context: bytes) -> bytes:
    return FORMAT_VERSION + version.to_bytes(8, "big", signed=True) + context
