"""What a keyring file holds, and how it is written.

JSON, mode 0600:

    {"format": "idgraph-keyring", "version": 1,
     "root": BASE64,                      64 bytes that purpose keys are derived from
     "keys": [{"version": 1, "status": "current", "created": RFC 3339, "key": BASE64}],   64 bytes each
     "checksum": HEX}                     SHA-256 over the canonical JSON of all the rest

Exactly one key is `current`: it wraps. The `previous` ones only unwrap. The checksum finds a damaged file
before anything is wrapped under a damaged key.
"""

from __future__ import annotations

import hashlib
import secrets
from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from model import canonical
from transforms.key_holder import KeyHolder

FORMAT = "idgraph-keyring"
FORMAT_VERSION = 1
SECRET_BYTES = 64


class KeyStatus(StrEnum):
    """The current key wraps and unwraps, a previous one only unwraps."""

    CURRENT = "current"
    PREVIOUS = "previous"


class KeyVersion(NamedTuple):
    """What may be told of a key-encryption key."""

    version: int
    status: KeyStatus
    created: datetime


class KeyEncryptionKey(KeyHolder):
    """One key with its secret bytes."""

    __slots__ = ("described", "secret")

    def __init__(self, described: KeyVersion, secret: bytes) -> None:
        self.described = described
        self.secret = secret


class Keyring(KeyHolder):
    """A keyring file's content. `keys` is sorted by version and its last one is current."""

    __slots__ = ("keys", "root")

    def __init__(self, root: bytes, keys: tuple[KeyEncryptionKey, ...]) -> None:
        self.root = root
        self.keys = keys

    @classmethod
    def new(cls) -> Keyring:
        """A keyring with a root secret and no key."""
        return cls(secrets.token_bytes(SECRET_BYTES), ())

    def with_new_key(self) -> Keyring:
        """The same keyring with one more version, which is the current one."""
        previous = tuple(
            KeyEncryptionKey(key.described._replace(status=KeyStatus.PREVIOUS), key.secret)
            for key in self.keys
        )
        version = previous[-1].described.version + 1 if previous else 1
        created = datetime.now(UTC).replace(microsecond=0)
        described = KeyVersion(version, KeyStatus.CURRENT, created)
        return Keyring(self.root, (*previous, KeyEncryptionKey(described, secrets.token_bytes(SECRET_BYTES))))


def render(keyring: Keyring) -> bytes:
    """A keyring as the content of its file."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "root": _text(keyring.root),
        "keys": [
            {
                "version": key.described.version,
                "status": key.described.status,
                "created": key.described.created.isoformat(),
                "key": _text(key.secret),
            }
            for key in keyring.keys
        ],
    }
    return canonical.encode({**content, "checksum": _checksum(content)}) + b"\n"


def parse(content: bytes) -> Keyring | str:
    """The keyring, or what is wrong with it."""
    try:
        document = canonical.decode(content)
    except (*canonical.MalformedJSON, ArithmeticError):
        return "it is not JSON"
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        return "it is no idgraph keyring"
    if document.get("version") != FORMAT_VERSION:
        return f"its format version is not {FORMAT_VERSION}"
    checksum = document.pop("checksum", None)
    if checksum != _checksum(document):
        return "its checksum does not match: restore it from a backup"
    try:
        keys = tuple(_key(entry) for entry in document["keys"])
        root = _secret(document["root"])
    except (KeyError, TypeError, ValueError):
        return "a key has a missing or malformed field"
    versions = [key.described.version for key in keys]
    current = [key.described.version for key in keys if key.described.status is KeyStatus.CURRENT]
    if versions != sorted(set(versions)) or current != versions[-1:] or not keys:
        return "its versions are not in order, or the last one is not the only current one"
    return Keyring(root, keys)


def _key(entry: dict[str, Any]) -> KeyEncryptionKey:
    created = datetime.fromisoformat(entry["created"])
    if type(entry["version"]) is not int or entry["version"] < 1:
        raise ValueError("not a version")
    return KeyEncryptionKey(
        KeyVersion(entry["version"], KeyStatus(entry["status"]), created), _secret(entry["key"])
    )


def _secret(text: str) -> bytes:
    secret = a2b_base64(text, strict_mode=True)
    if len(secret) != SECRET_BYTES:
        raise ValueError("not a secret")
    return secret


def _text(secret: bytes) -> str:
    return b2a_base64(secret, newline=False).decode("ascii")


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical.encode(content)).hexdigest()
