"""What the secrets of a keyring are wrapped in where the keyring is stored."""

from __future__ import annotations

import math
import secrets
from typing import NamedTuple, Protocol

from transforms.privacy.keys import Secret

SECRET_BYTES = 64


ROOT = "root"


def key_name(version: int) -> str:
    """What a key-encryption key is called among the secrets of its keyring."""
    return f"key-{version}"


class SecretName(NamedTuple):
    """Which secret of which keyring: the keyring's id, and `root` or `key-VERSION`."""

    keyring: str
    secret: str


class Envelope(Protocol):
    """Makes and opens secrets of 64 bytes. An envelope around the bytes themselves is none: see `BareSecrets`.

    All methods block and raise KeyServiceError when what opens envelopes is away or refuses, KeyProviderError for
    a secret that was altered or stands under another name. Safe for several threads.
    """

    format: str
    """What a keyring file says it is whose secrets are in such envelopes."""
    has_id: bool
    """Whether such a keyring has an id that its secrets are bound to."""
    stored_bytes: int | None
    """How long a stored secret is, where that is always the same."""
    keep_seconds: float
    keep_uses: float
    """How long, and for how many data keys, an opened secret may be used before it is opened again."""

    def new(self, name: SecretName) -> bytes:
        """A new random secret, as it is stored."""
        ...

    def seal(self, secret: Secret, name: SecretName) -> bytes:
        """A secret that there is, as it is stored."""
        ...

    def open(self, stored: bytes, name: SecretName) -> Secret:
        """What `new` made or `seal` was given, under the same name."""
        ...


class BareSecrets:
    """Secrets stored as they are: the file itself must stay secret."""

    format = "idgraph-keyring"
    has_id = False
    stored_bytes: int | None = SECRET_BYTES
    keep_seconds = math.inf
    keep_uses = math.inf

    def new(self, name: SecretName) -> bytes:  # noqa: ARG002
        """Of the operating system's generator."""
        return secrets.token_bytes(SECRET_BYTES)

    def seal(self, secret: Secret, name: SecretName) -> bytes:  # noqa: ARG002
        """The bytes themselves."""
        return secret.reveal()

    def open(self, stored: bytes, name: SecretName) -> Secret:  # noqa: ARG002
        """The bytes themselves."""
        return Secret(stored)


BARE = BareSecrets()
