"""Signed answers of the metadata service: Ed25519 over a nonce of the client, the ETag and the body. So a snapshot is that of
the service whose key was pinned, whole, and of now."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from idgraph.files import file_lock, write_atomically
from idgraph.model.errors import ConfigError, SnapshotSignatureError

log = logging.getLogger(__name__)

NONCE_HEADER = "Idgraph-Nonce"
HISTORY_HEADER = "Idgraph-History"
"""`unknown`: the snapshot that was known is not in the service's history."""
KEY_HEADER = "Idgraph-Key"
SIGNATURE_HEADER = "Idgraph-Signature"


class ServiceKey:
    """The key of a metadata service, in a file that it makes. Never pickled."""

    def __init__(self, file: Path) -> None:
        """Raises ConfigError for a file that cannot be used."""
        try:
            with file_lock(file.with_name(f".{file.name}.lock")):
                if not file.exists():
                    write_atomically(file, base64.b64encode(Ed25519PrivateKey.generate().private_bytes_raw()))
            secret = base64.b64decode(file.read_bytes())
            self._key = Ed25519PrivateKey.from_private_bytes(secret)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{file}: no key to sign with ({type(error).__name__})") from None
        self._history = HKDF(SHA256(), 32, None, b"history").derive(secret)

    @property
    def public(self) -> str:
        """The public key, in base64: what `[metadata] public_key` takes."""
        return base64.b64encode(self._key.public_key().public_bytes_raw()).decode()

    @property
    def history(self) -> bytes:
        """The key of the history's chain."""
        return self._history

    def headers(self, nonce: str, etag: str, digest: bytes) -> dict[str, str]:
        """The headers of a signed answer; `digest` is the SHA-256 of its body."""
        signature = self._key.sign(_signed(nonce, etag, digest))
        return {KEY_HEADER: self.public, SIGNATURE_HEADER: base64.b64encode(signature).decode()}

    def __reduce__(self) -> str:
        raise TypeError("a key is not pickled")


class PinnedKey:
    """The public key of the metadata service, as its client knows it: configured, or that of the first signed answer, which a
    file keeps."""

    def __init__(self, file: Path, configured: str | None = None) -> None:
        self._file = file
        self._configured = configured

    def check(self, nonce: str, headers: Mapping[str, str], body: bytes) -> None:
        """Raises SnapshotSignatureError for an answer that is not of the pinned service, or to another request."""
        pinned, offered = self._pinned(), headers.get(KEY_HEADER)
        if pinned is None and offered is None:
            return  # nothing was ever signed here
        try:
            key = Ed25519PublicKey.from_public_bytes(
                base64.b64decode((offered if pinned is None else pinned) or "")
            )
            signed = _signed(nonce, headers.get("ETag", ""), hashlib.sha256(body).digest())
            key.verify(base64.b64decode(headers.get(SIGNATURE_HEADER, "")), signed)
        except (InvalidSignature, ValueError):
            raise SnapshotSignatureError(
                "the metadata service's answer is not signed by the key that was pinned: somebody else may have answered. "
                f"If the service has a new key on purpose, remove {self._file} or set `[metadata] public_key`"
            ) from None
        if pinned is None and offered:
            try:
                # A service or a command may be the first here to write anything.
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                write_atomically(self._file, offered.encode())
            except OSError as error:
                raise ConfigError(f"{self._file}: {error.strerror}") from None
            log.warning("the key of the metadata service is pinned in %s", self._file)

    def _pinned(self) -> str | None:
        if self._configured:
            return self._configured
        try:
            return self._file.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._file}: {type(error).__name__}") from None


def _signed(nonce: str, etag: str, digest: bytes) -> bytes:
    return b"\n".join((b"idgraph snapshot", nonce.encode(), etag.encode(), digest))
