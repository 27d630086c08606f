"""The content of a keyring file, and the envelopes around its secrets.

JSON, mode 0600:

    {"format": "idgraph-keyring", "version": 2,
     "root": BASE64,                      64 bytes that purpose keys are derived from
     "keys": [{"version": 1, "status": "retired", "created": RFC 3339, "retired": RFC 3339},
              {"version": 2, "status": "current", "created": RFC 3339, "key": BASE64}],   64 bytes each
     "checksum": HEX}                     SHA-256 over the canonical JSON of all the rest

"format" names the envelope of its secrets: in this one they are bare. In an "idgraph-kms-keyring" each is the
ciphertext that AWS KMS returned for it, and there is an "id" that they are bound to (`sinks.kms`).

The last key is the only `current` one: it wraps. `previous` and `retiring` ones only unwrap. A `retired` one has no
secret; it stays listed so that its number is never used again. The checksum detects a damaged file before a damaged
key wraps anything.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from binascii import a2b_base64, b2a_base64
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from idgraph.model import canonical
from transforms.privacy.keys import KeyStatus, KeyVersion, NotPicklable, Secret

SECRET_BYTES = 64


ROOT = "root"


def key_name(version: int) -> str:
    """The name of a key-encryption key among the secrets of its keyring."""
    return f"key-{version}"


class SecretName(NamedTuple):
    """The name of a secret: the keyring's id, and `root` or `key-VERSION`."""

    keyring: str
    secret: str


class Envelope(Protocol):
    """Makes and opens secrets of 64 bytes. An envelope around the bytes themselves is none: see `BareSecrets`.

    All methods block and raise KeyServiceError when the service that opens envelopes is away or refuses,
    KeyProviderError for a secret that was altered or stands under another name. Safe for several threads.
    """

    format: str
    """The format of a keyring file whose secrets are in such envelopes."""
    has_id: bool
    """Whether such a keyring has an id that its secrets are bound to."""
    stored_bytes: int | None
    """The length of a stored secret, if that is always the same."""
    keep_seconds: float
    keep_uses: float
    """Seconds, and number of data keys, after which an opened secret is opened again."""

    def new(self, name: SecretName) -> bytes:
        """A new random secret, as it is stored."""
        ...

    def seal(self, secret: Secret, name: SecretName) -> bytes:
        """A secret that there is, as it is stored."""
        ...

    def open(self, stored: bytes, name: SecretName) -> Secret:
        """The secret of `new` or `seal`, under the same name."""
        ...


class BareSecrets:
    """Secrets stored as they are: the file itself must stay secret."""

    format = "idgraph-keyring"
    has_id = False
    stored_bytes: int | None = SECRET_BYTES
    keep_seconds = math.inf
    keep_uses = math.inf

    def new(self, name: SecretName) -> bytes:  # noqa: ARG002
        """A secret of the operating system's generator."""
        return secrets.token_bytes(SECRET_BYTES)

    def seal(self, secret: Secret, name: SecretName) -> bytes:  # noqa: ARG002
        """The bytes themselves."""
        return secret.reveal()

    def open(self, stored: bytes, name: SecretName) -> Secret:  # noqa: ARG002
        """The bytes themselves."""
        return Secret(stored)


BARE = BareSecrets()


FORMAT_VERSION = 2
FORMATS = {"idgraph-keyring": "file", "idgraph-kms-keyring": "kms"}
"""Formats by what `kind` of `[keys]` is called that reads them."""


class KeyEncryptionKey(NotPicklable):
    """One key with its secret as it is stored, which a retired one has no more."""

    __slots__ = ("described", "secret")

    def __init__(self, described: KeyVersion, secret: bytes | None) -> None:
        self.described = described
        self.secret = secret

    def with_status(self, status: KeyStatus) -> KeyEncryptionKey:
        """The same key in another status; retired, it loses its secret."""
        if status is KeyStatus.RETIRED:
            return KeyEncryptionKey(self.described._replace(status=status, retired=_now()), None)
        return KeyEncryptionKey(self.described._replace(status=status), self.secret)


class Keyring(NotPicklable):
    """A keyring file's content. `keys` is sorted by version and its last one is current. Secrets are as stored."""

    __slots__ = ("id", "keys", "root")

    def __init__(self, root: bytes, keys: tuple[KeyEncryptionKey, ...], id: str = "") -> None:  # noqa: A002
        self.root = root
        self.keys = keys
        self.id = id

    @classmethod
    def new(cls, envelope: Envelope) -> Keyring:
        """A keyring with a root secret and one key. Raises what the envelope raises."""
        name = secrets.token_hex(16) if envelope.has_id else ""
        return cls(envelope.new(SecretName(name, ROOT)), (), name).with_new_key(envelope)

    def rewrapped(self, old: Envelope, new: Envelope) -> Keyring:
        """The same secrets in other envelopes, bound to a new id. Raises what the envelopes raise."""
        name = secrets.token_hex(16) if new.has_id else ""

        def resealed(stored: bytes, secret: str) -> bytes:
            return new.seal(old.open(stored, SecretName(self.id, secret)), SecretName(name, secret))

        keys = (
            KeyEncryptionKey(
                key.described, key.secret and resealed(key.secret, key_name(key.described.version))
            )
            for key in self.keys
        )
        return Keyring(resealed(self.root, ROOT), tuple(keys), name)

    @property
    def current(self) -> int:
        """The version that wraps."""
        return self.keys[-1].described.version

    def find(self, version: int) -> KeyVersion | None:
        """The entry of a version."""
        return next((key.described for key in self.keys if key.described.version == version), None)

    def with_new_key(self, envelope: Envelope) -> Keyring:
        """The same keyring with one more version, which is the current one. Raises what the envelope raises."""
        before = self
        if self.keys:
            before = self.with_status(self.current, KeyStatus.PREVIOUS)
        version = self.current + 1 if self.keys else 1
        described = KeyVersion(version, KeyStatus.CURRENT, _now())
        secret = envelope.new(SecretName(self.id, key_name(version)))
        return Keyring(self.root, (*before.keys, KeyEncryptionKey(described, secret)), self.id)

    def with_status(self, version: int, status: KeyStatus) -> Keyring:
        """The same keyring with one version in another status."""
        return Keyring(
            self.root,
            tuple(key.with_status(status) if key.described.version == version else key for key in self.keys),
            self.id,
        )

    def rotated(self, envelope: Envelope) -> Keyring:
        """The same keyring with a new current version, and every older one that is left retiring."""
        after = self.with_new_key(envelope)
        for key in after.keys[:-1]:
            if key.described.status is not KeyStatus.RETIRED:
                after = after.with_status(key.described.version, KeyStatus.RETIRING)
        return after


def render(keyring: Keyring, envelope: Envelope) -> bytes:
    """A keyring as the content of its file."""
    content: dict[str, Any] = {
        **({"id": keyring.id} if envelope.has_id else {}),
        "format": envelope.format,
        "version": FORMAT_VERSION,
        "root": _text(keyring.root),
        "keys": [_entry(key) for key in keyring.keys],
    }
    return canonical.encode({**content, "checksum": _checksum(content)}) + b"\n"


def parse(content: bytes, envelope: Envelope) -> Keyring | str:
    """The keyring, or what is wrong with it."""
    try:
        document = canonical.decode(content)
    except (*canonical.MalformedJSON, ArithmeticError):
        return "it is not JSON"
    if not isinstance(document, dict) or document.get("format") not in FORMATS:
        return "it is no idgraph keyring"
    if document["format"] != envelope.format:
        return f'it is one for `kind = "{FORMATS[document["format"]]}"` in [keys]'
    if document.get("version") != FORMAT_VERSION:
        return f"its format version is not {FORMAT_VERSION}"
    checksum = document.pop("checksum", None)
    if checksum != _checksum(document):
        return "its checksum does not match: restore it from a backup"
    try:
        keys = tuple(_key(entry, envelope) for entry in document["keys"])
        root = _secret(document["root"], envelope)
        name = document["id"] if envelope.has_id else ""
        if type(name) is not str or bool(name) != envelope.has_id:
            raise ValueError("not an id")
    except (KeyError, TypeError, ValueError):
        return "a key has a missing or malformed field"
    versions = [key.described.version for key in keys]
    current = [key.described.version for key in keys if key.described.status is KeyStatus.CURRENT]
    if versions != sorted(set(versions)) or current != versions[-1:] or not keys:
        return "its versions are not in order, or the last one is not the only current one"
    return Keyring(root, keys, name)


def _entry(key: KeyEncryptionKey) -> dict[str, Any]:
    described = key.described
    entry: dict[str, Any] = {
        "version": described.version,
        "status": described.status,
        "created": described.created.isoformat(),
    }
    if described.retired is not None:
        entry["retired"] = described.retired.isoformat()
    if key.secret is not None:
        entry["key"] = _text(key.secret)
    return entry


def _key(entry: dict[str, Any], envelope: Envelope) -> KeyEncryptionKey:
    status, created = KeyStatus(entry["status"]), datetime.fromisoformat(entry["created"])
    if type(entry["version"]) is not int or entry["version"] < 1:
        raise ValueError("not a version")
    if status is KeyStatus.RETIRED:
        retired = datetime.fromisoformat(entry["retired"])
        return KeyEncryptionKey(KeyVersion(entry["version"], status, created, retired), None)
    return KeyEncryptionKey(KeyVersion(entry["version"], status, created), _secret(entry["key"], envelope))


def _secret(text: str, envelope: Envelope) -> bytes:
    secret = a2b_base64(text, strict_mode=True)
    if len(secret) != (envelope.stored_bytes or len(secret)) or not secret:
        raise ValueError("not a secret")
    return secret


def _text(secret: bytes) -> str:
    return b2a_base64(secret, newline=False).decode("ascii")


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical.encode(content)).hexdigest()
