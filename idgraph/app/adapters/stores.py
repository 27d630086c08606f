"""The stores behind the protocols: SQLite files in the directory, or tables in DynamoDB.

Opened from the worker's configuration (`worker_config`): places, never credentials, which each process finds
for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from idgraph.app.adapters.extras import needing
from idgraph.model.counts import BatchCounts
from idgraph.model.errors import ConfigError, StoreError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.dead_letters import DeadLetters
    from idgraph.model.store import ProfileStore
    from idgraph.model.tombstones import TombstoneNames
    from sinks.dynamodb.connection import TablesLocation
    from transforms.privacy.keys import DataKeyStore, KeyProvider

PROFILES, DATA_KEYS = "profiles.db", "data-keys.db"
DEAD_LETTERS, DEAD_LETTER_KEYS = "dead-letters.db", "dead-letters.keys.db"


def worker_config(settings: Settings, retry_seconds: float | None = None) -> dict[str, Any]:
    """The configuration of the stores and the index. A store that is away is asked again for `retry_seconds`, by default as
    long as a flow waits."""
    return {
        "retry_seconds": retry_seconds,
        "directory": str(settings.directory),
        "store": settings.store.model_dump(mode="json"),
        "index": settings.index.model_dump(mode="json"),
    }


def open_profiles(config: dict[str, Any], names: TombstoneNames | None) -> ProfileStore:
    """Without `names` an SQLite store can only be read; those of DynamoDB need them."""
    if config["store"]["kind"] == "dynamodb":
        from sinks.dynamodb.profiles import DynamoProfileStore

        if names is None:
            raise ConfigError("the profiles in DynamoDB cannot be read without the keyring")
        return DynamoProfileStore(place(config), names)
    from sinks.sqlite.profiles import SqliteProfileStore

    return SqliteProfileStore(Path(config["directory"]) / PROFILES, names)


def open_data_keys(config: dict[str, Any]) -> DataKeyStore:
    """The wrapped data keys beside the profiles."""
    if config["store"]["kind"] == "dynamodb":
        place_of_tables = place(config)
        from sinks.dynamodb.data_keys import DynamoDataKeys

        return DynamoDataKeys(place_of_tables)
    from sinks.sqlite.data_keys import SqliteDataKeys

    return SqliteDataKeys(Path(config["directory"]) / DATA_KEYS)


def open_dead_letters(config: dict[str, Any], provider: KeyProvider) -> DeadLetters:
    """The dead letters, with their keys."""
    from transforms.privacy.dead_letter_keys import DeadLetterKeys

    if config["store"]["kind"] == "dynamodb":
        tables = place(config)
        from sinks.dynamodb.dead_letters import DynamoDeadLetterKeys, DynamoDeadLetters

        return DynamoDeadLetters(tables, DeadLetterKeys(provider, DynamoDeadLetterKeys(tables)))
    from sinks.sqlite.data_keys import SqliteDataKeys
    from sinks.sqlite.dead_letters import SqliteDeadLetters

    folder = Path(config["directory"])
    keys = DeadLetterKeys(provider, SqliteDataKeys(folder / DEAD_LETTER_KEYS))
    return SqliteDeadLetters(folder / DEAD_LETTERS, keys)


def charged(*stores: ProfileStore | DataKeyStore) -> Callable[[], BatchCounts]:
    """A function that returns the read and write units which the stores have consumed since its last call."""
    budgeted = [store.consumed for store in stores if isinstance(store, Budgeted)]
    config = [(0.0, 0.0)]

    def consumed() -> BatchCounts:
        now = [each() for each in budgeted]
        total = sum(each[0] for each in now), sum(each[1] for each in now)
        (last,), config[:] = config, [total]
        return BatchCounts(read_units=total[0] - last[0], write_units=total[1] - last[1])

    return consumed


@runtime_checkable
class Budgeted(Protocol):
    """A store that charges for its requests."""

    def consumed(self) -> tuple[float, float]:
        """Read and write units so far."""
        ...


def require_whole(config: dict[str, Any], store: ProfileStore, key_store: DataKeyStore) -> None:
    """Raises StoreError when the file of profiles, or that of data keys, is missing though something shows that it was there.
    DynamoDB says so itself of a missing table."""
    if config["store"]["kind"] == "sqlite":
        from idgraph.app.adapters.lost_keys import require_data_keys

        directory = Path(config["directory"])
        require_profiles(directory)
        require_data_keys(directory / PROFILES, directory / DATA_KEYS, store, key_store)


def holds_data_keys(directory: Path) -> bool:
    """Whether data keys lie in this folder, which nothing but their keyring opens. Raises StoreError."""
    file = directory / DATA_KEYS
    # Nothing is made here. An empty file says that the keys were given up.
    if not file.exists() or not file.stat().st_size:
        return False
    from sinks.sqlite.data_keys import SqliteDataKeys

    with closing(SqliteDataKeys(file)) as store:
        return bool(store.some(1))


def require_profiles(directory: Path) -> None:
    """Raises StoreError when there is no file of profiles beside traces that only an earlier one can have
    left. A new file in its place would be empty, and everybody unknown."""
    profiles = directory / PROFILES
    if profiles.exists():
        return
    from sinks.tantivy.folder import holds_documents

    if next(directory.glob("flows/*/checkpoint/commits/[0-9]*"), None) is not None:
        trace = "a flow has taken input"
    elif holds_data_keys(directory):
        trace = f"{DATA_KEYS} holds data keys"
    elif holds_documents(directory / "index"):
        trace = "the search index holds profiles"
    else:
        return
    # Another process may have made it meanwhile.
    if not profiles.exists():
        raise StoreError(
            f"{profiles} is missing, and {trace}: it was lost, or its volume is not mounted. Restore it from a backup "
            "(docs/operate.md, Backups). To build all profiles again from the source files instead, make an empty file of "
            "this name and remove the checkpoints of the flows"
        )


def place(config: dict[str, Any]) -> TablesLocation:
    """The location of the tables. Raises ConfigError when the client for DynamoDB is not installed."""
    with needing("dynamodb", "[store] kind: DynamoDB needs boto3"):
        from sinks.dynamodb.connection import TablesLocation
    store = config["store"]
    return TablesLocation(store["table_prefix"], store["region"], store["endpoint"], config["retry_seconds"])


def create(settings: Settings) -> list[str]:
    """Make the tables that are missing; returns the names of new ones. Raises StoreError, ConfigError."""
    if settings.store.kind == "sqlite":
        raise ConfigError("[store] kind is sqlite, whose files are made when first used")
    tables = place(worker_config(settings))
    from sinks.dynamodb.client import DynamoClient
    from sinks.dynamodb.schema import create_tables

    with closing(DynamoClient(tables)) as client:
        return create_tables(client)


def missing_tables(settings: Settings) -> list[str]:
    """The tables that are not there. Raises StoreError, ConfigError."""
    tables = place(worker_config(settings, 0.0))
    from sinks.dynamodb.client import DynamoClient
    from sinks.dynamodb.schema import missing_tables as missing

    with closing(DynamoClient(tables)) as client:
        return missing(client)
