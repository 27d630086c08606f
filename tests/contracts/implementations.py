"""Every implementation that a contract suite runs over. To add one: one line in its table.

Each entry makes an implementation whose data, if it has any, lives in the given folder; opening it again
with the same folder must find what was written, if `durable`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from idgraph.jobs.erase.erasure import TombstoneKeeper
from idgraph.model.dead_letters import DeadLetters
from idgraph.model.households import HouseholdLog
from idgraph.model.index import ProfileIndex
from idgraph.model.index_versions import IndexVersions
from idgraph.model.jobs import JobLog
from idgraph.model.shared_documents import SharedDocuments
from idgraph.model.store import ProfileStore
from idgraph.web.audit import AuditFile, AuditLines
from sinks.document_folder import DocumentFolder
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.dead_letters import SqliteDeadLetters
from sinks.sqlite.households import SqliteHouseholdLog
from sinks.sqlite.jobs import SqliteJobLog
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from sinks.tantivy.versions import TantivyIndexVersions
from sinks.tombstone_file import TombstoneFile
from tests.servers.dynamodb import place, require_dynamodb
from tests.servers.elasticsearch import place_of_index, require_elasticsearch
from tests.support.memory.data_keys import MemoryDataKeys
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.key_provider import FixedProvider
from tests.support.memory.profiles import MemoryProfileStore
from transforms.privacy.dead_letter_keys import DeadLetterKeys
from transforms.privacy.keys import DataKeyStore


class Closable(Protocol):
    """What every protocol of these suites has."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)


@dataclass(frozen=True)
class Implementation(Generic[T]):
    """`durable`: outlives its process and is shared between processes. `in_files`: in the given folder, where
    what is erased must be gone. `many`: as many fragments as a test should write of which it only wants many.
    `require` skips a test where what it needs cannot be had.
    """

    name: str
    open: Callable[[Path], T]
    durable: bool
    in_files: bool = True
    many: int = 1000
    require: Callable[[], object] = lambda: None

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def opened(self, folder: Path) -> Iterator[T]:
        """Open until the end of the context; the test is skipped where what it needs cannot be had."""
        self.require()
        with closing(self.open(folder)) as opened:
            yield opened


def reversed_name(fragment_id: str) -> bytes:
    """Stands for the keyed hash that tombstones stand under."""
    return fragment_id[::-1].encode()


def hashed_name(text: str) -> bytes:
    """The same, of as many bytes."""
    return hashlib.sha256(text.encode()).digest()[:16]


def _dynamodb_profiles(folder: Path) -> ProfileStore:
    from sinks.dynamodb.profiles import DynamoProfileStore

    return DynamoProfileStore(place(folder), hashed_name)


def _dynamodb_data_keys(folder: Path) -> DataKeyStore:
    from sinks.dynamodb.data_keys import DynamoDataKeys

    return DynamoDataKeys(place(folder))


def _elasticsearch_index(folder: Path) -> ProfileIndex:
    from sinks.elasticsearch.index import ElasticsearchProfileIndex

    return ElasticsearchProfileIndex(place_of_index(folder), hashed_name)


PROFILE_STORES: list[Implementation[ProfileStore]] = [
    Implementation("memory", lambda _: MemoryProfileStore(), durable=False),
    Implementation(
        "sqlite", lambda folder: SqliteProfileStore(folder / "profiles.db", reversed_name), durable=True
    ),
    Implementation(
        "dynamodb",
        _dynamodb_profiles,
        durable=True,
        in_files=False,
        many=50,
        require=require_dynamodb,
    ),
]

PROFILE_INDEXES: list[Implementation[ProfileIndex]] = [
    Implementation("memory", lambda _: MemoryProfileIndex(), durable=False),
    Implementation(
        "tantivy", lambda folder: TantivyProfileIndex(folder / "index", reversed_name), durable=True
    ),
    Implementation(
        "elasticsearch",
        _elasticsearch_index,
        durable=True,
        in_files=False,
        require=require_elasticsearch,
    ),
]


def _elasticsearch_versions(folder: Path) -> IndexVersions:
    from sinks.elasticsearch.schema import IndexShape
    from sinks.elasticsearch.versions import ElasticsearchIndexVersions

    return ElasticsearchIndexVersions(place_of_index(folder), hashed_name, IndexShape(replicas=0))


INDEX_VERSIONS: list[Implementation[IndexVersions]] = [
    Implementation(
        "tantivy", lambda folder: TantivyIndexVersions(folder / "index", reversed_name), durable=True
    ),
    Implementation(
        "elasticsearch",
        _elasticsearch_versions,
        durable=True,
        in_files=False,
        require=require_elasticsearch,
    ),
]
"""Each of the index of the same name in the same folder."""


def _dead_letters_with_keys(folder: Path) -> SqliteDeadLetters:
    keys = DeadLetterKeys(FixedProvider(), SqliteDataKeys(folder / "dead-letters.keys.db"))
    return SqliteDeadLetters(folder / "dead-letters.db", keys)


def _dynamodb_dead_letters(folder: Path) -> DeadLetters:
    from sinks.dynamodb.dead_letters import DynamoDeadLetterKeys, DynamoDeadLetters

    tables = place(folder)
    return DynamoDeadLetters(tables, DeadLetterKeys(FixedProvider(), DynamoDeadLetterKeys(tables)))


DEAD_LETTERS: list[Implementation[DeadLetters]] = [
    Implementation("sqlite", lambda folder: SqliteDeadLetters(folder / "dead-letters.db"), durable=True),
    Implementation("sqlite, with keys", _dead_letters_with_keys, durable=True),
    Implementation(
        "dynamodb", _dynamodb_dead_letters, durable=True, in_files=False, require=require_dynamodb
    ),
]


def _dynamodb_jobs(folder: Path) -> JobLog:
    from sinks.dynamodb.jobs import DynamoJobLog

    return DynamoJobLog(place(folder), LEASE_SECONDS)


def _dynamodb_documents(folder: Path) -> SharedDocuments:
    from sinks.dynamodb.documents import DynamoDocuments

    return DynamoDocuments(place(folder), LEASE_SECONDS)


LEASE_SECONDS = 4.0
"""Until a lease of a dead process ends."""

JOB_LOGS: list[Implementation[JobLog]] = [
    Implementation("sqlite", lambda folder: SqliteJobLog(folder / "jobs.db", folder / "jobs"), durable=True),
    Implementation("dynamodb", _dynamodb_jobs, durable=True, in_files=False, require=require_dynamodb),
]


def _dynamodb_households(folder: Path) -> HouseholdLog:
    from sinks.dynamodb.shared_logs import DynamoHouseholdLog

    return DynamoHouseholdLog(place(folder))


HOUSEHOLD_LOGS: list[Implementation[HouseholdLog]] = [
    Implementation("sqlite", lambda folder: SqliteHouseholdLog(folder / "households.db"), durable=True),
    Implementation("dynamodb", _dynamodb_households, durable=True, in_files=False, require=require_dynamodb),
]


def _dynamodb_tombstones(folder: Path) -> TombstoneKeeper:
    require_dynamodb()
    from sinks.dynamodb.shared_logs import DynamoTombstones

    return DynamoTombstones(place(folder), LEASE_SECONDS)


TOMBSTONE_KEEPERS: dict[str, Callable[[Path], TombstoneKeeper]] = {
    "file": lambda folder: TombstoneFile(folder / "tombstones.jsonl"),
    "dynamodb": _dynamodb_tombstones,
}


def _dynamodb_audit_lines(folder: Path) -> AuditLines:
    require_dynamodb()
    from sinks.dynamodb.shared_logs import DynamoAuditLines

    return DynamoAuditLines(place(folder))


AUDIT_LINES: dict[str, Callable[[Path], AuditLines]] = {
    "file": lambda folder: AuditFile(folder / "audit.jsonl"),
    "dynamodb": _dynamodb_audit_lines,
}

SHARED_DOCUMENTS: list[Implementation[SharedDocuments]] = [
    Implementation("folder", DocumentFolder, durable=True),
    Implementation("dynamodb", _dynamodb_documents, durable=True, in_files=False, require=require_dynamodb),
]

DATA_KEYS: list[Implementation[DataKeyStore]] = [
    Implementation("memory", lambda _: MemoryDataKeys(), durable=False),
    Implementation("sqlite", lambda folder: SqliteDataKeys(folder / "keys.db"), durable=True),
    Implementation(
        "dynamodb",
        _dynamodb_data_keys,
        durable=True,
        in_files=False,
        many=50,
        require=require_dynamodb,
    ),
]
