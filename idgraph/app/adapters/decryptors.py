"""The services that decrypt records which arrive encrypted."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.decryption import Decryptor
    from ingestion.sources.decryptor import DecryptorConfig
    from ingestion.stages.decrypt import Decryptors


def decryptors_config(settings: Settings) -> dict[str, Any]:
    """What a process needs to know beside the sources' own tables."""
    return {"max_event_bytes": settings.flow.max_event_bytes}


def open_decryptors(config: dict[str, Any]) -> Decryptors:
    """Each is opened when a record needs it."""
    from ingestion.stages.decrypt import Decryptors

    return Decryptors(functools.partial(open_decryptor, config["max_event_bytes"]))


def open_decryptor(max_bytes: int, config: DecryptorConfig) -> Decryptor:
    """The client of one service. Raises ConfigError for files that cannot be read."""
    from sinks.http.decryptor import DecryptionService, HttpDecryptor

    service = DecryptionService(
        config.url,
        config.capacity,
        config.timeout_seconds,
        config.retries,
        max_bytes,
        config.token_file,
        config.ca_file,
    )
    return HttpDecryptor(service)
