"""The database of the metadata service, for commands that work on it without the service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from idgraph.app.settings.document import Settings
from idgraph.signatures import ServiceKey

if TYPE_CHECKING:
    from metadata_service.storage.database import Database


def service_key(settings: Settings) -> ServiceKey:
    """The key of the metadata service that runs here."""
    return ServiceKey(settings.metadata.signing_key_file or settings.directory / "metadata.key")


@contextmanager
def opened_metadata_database(settings: Settings) -> Iterator[Database]:
    """The database while the block runs. Raises ConfigError, StoreError."""
    from metadata_service.storage.database import opened_database

    with opened_database(settings.database_url(), service_key(settings).history) as database:
        yield database
