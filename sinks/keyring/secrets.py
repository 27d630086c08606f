"""The secrets of a keyring out of their envelopes, kept for as long and as much as those allow."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from idgraph.model.errors import KeyProviderError, KeyServiceError
from sinks.keyring.content import Keyring
from sinks.keyring.envelope import ROOT, SECRET_BYTES, Envelope, SecretName, key_name
from transforms.privacy.keys import NotPicklable, Secret

REFUSED_SECONDS = 5.0
"""After a key service was away for all retries, it is not asked again for so long: thousands of data keys may wait
for the one answer."""


@dataclass(slots=True)
class _Kept:
    opened: AESSIV
    until: float
    uses: float


class OpenedSecrets(NotPicklable):
    """Of one content of a keyring. Safe for several threads. All methods raise what `Envelope.open` raises."""

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
