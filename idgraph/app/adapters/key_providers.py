"""The key provider behind the protocol: a keyring file whose keys are bare, or wrapped by AWS KMS.

Opened from the worker's configuration: places, never keys or credentials, which each process finds for
itself.
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.app.adapters.extras import needing
from idgraph.app.adapters.stores import DATA_KEYS, holds_data_keys
from idgraph.model.errors import ConfigError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from sinks.keyring.content import Envelope
    from sinks.keyring.provider import KeyringFile


def keys_config(settings: Settings) -> dict[str, Any]:
    """The configuration of the key provider."""
    return {"keyring": str(settings.keyring_file()), "keys": settings.keys.model_dump(mode="json")}


def open_provider(config: dict[str, Any]) -> KeyringFile:
    """Raises KeyProviderError for a keyring that is missing or damaged, ConfigError when the client for KMS
    is not installed. KMS is asked when a key is first needed. From here on the process leaves no core file,
    which would hold keys."""
    from sinks.keyring.provider import KeyringFile

    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    return KeyringFile(Path(config["keyring"]), envelope=_envelope(config))


def provider_of(settings: Settings) -> KeyringFile:
    """The same, for a command."""
    return open_provider(keys_config(settings))


def create_keyring(settings: Settings, bare: Path | None = None) -> None:
    """Make the keyring, of new keys or of those of a `bare` one. Raises KeyProviderError, ConfigError, and StoreError; new keys
    are refused beside data keys that another keyring has wrapped."""
    from sinks.keyring.provider import KeyringFile

    envelope = _envelope(keys_config(settings))
    if bare is None:
        if not settings.keyring_file().exists():
            _require_no_data_keys(settings, "give them up first, as described")
        KeyringFile.create(settings.keyring_file(), envelope)
    elif settings.keys.kind == "file":
        raise ConfigError('[keys] kind is "file": to use another keyring file, name it as `keyring`')
    else:
        KeyringFile.take_over(settings.keyring_file(), envelope, bare)


def ensure_keyring(settings: Settings) -> None:
    """A clear error before Spark starts when the keyring is missing or its keys cannot be used."""
    file = settings.keyring_file()
    if not file.exists():
        settings.require_folder()
        _require_no_data_keys(settings, "go on without it as described")
        raise ConfigError(
            f"there is no keyring at {file}; make one with `idgraph keys init`, or restore its copy if the store holds data"
        )
    provider_of(settings).purpose_key("")


def _require_no_data_keys(settings: Settings, otherwise: str) -> None:
    """Raises ConfigError where the keyring of data keys is missing: one that is new opens none of them."""
    if settings.store.kind == "sqlite" and holds_data_keys(settings.directory):
        raise ConfigError(
            f"there is no keyring at {settings.keyring_file()}, and {settings.directory / DATA_KEYS} holds data keys that nothing "
            f'else opens: restore the keyring from its copy. If it is lost for good, {otherwise} in docs/operate.md, "A lost '
            'keyring"'
        )


def _envelope(config: dict[str, Any]) -> Envelope:
    keys = config["keys"]
    if keys["kind"] == "file":
        from sinks.keyring.content import BARE

        return BARE
    with needing("kms", "[keys] kind: KMS needs boto3"):
        from sinks.kms import KmsEnvelope, KmsKey
    key = KmsKey(keys["kms_key"], keys["region"], keys["endpoint"])
    return KmsEnvelope(key, keys["cache_seconds"], keys["cache_uses"], keys["retry_seconds"])
