"""The state that all processes of an installation share, apart from profiles: files of the directory, or records in the
table `shared` where profiles are in DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from idgraph.app.adapters.stores import DEAD_LETTERS, place, worker_config
from idgraph.model.errors import StoreError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.jobs.erase.erasure import TombstoneKeeper
    from idgraph.model.flows import Flows
    from idgraph.model.households import HouseholdLog
    from idgraph.model.jobs import JobLog
    from idgraph.model.shared_documents import SharedDocuments
    from idgraph.web.audit import AuditLines

HOUSEHOLDS, TOMBSTONES, AUDIT = "households.db", "tombstones.jsonl", "audit.jsonl"
LEFT = (DEAD_LETTERS, HOUSEHOLDS, TOMBSTONES, AUDIT)
"""Files that are tables where profiles are in DynamoDB."""


def is_embedded(settings: Settings) -> bool:
    """Whether all of it is in files of the directory."""
    return settings.store.kind == "sqlite"


def open_documents(settings: Settings, retry_seconds: float | None = None) -> SharedDocuments:
    """Reports, pauses, places in feeds, downloads. To be closed. `retry_seconds` as of `worker_config`."""
    if is_embedded(settings):
        from sinks.document_folder import DocumentFolder

        return DocumentFolder(settings.directory)
    tables = place(worker_config(settings, retry_seconds))
    from sinks.dynamodb.documents import DynamoDocuments

    return DynamoDocuments(tables)


@contextmanager
def shared_flows(settings: Settings) -> Iterator[Flows]:
    """The flows of this installation."""
    from idgraph.model.flows import Flows

    with closing(open_documents(settings)) as documents:
        yield Flows(documents)


@contextmanager
def job_log(settings: Settings) -> Iterator[JobLog]:
    """All jobs of this installation, closed at the end."""
    with closing(_open_job_log(settings)) as log:
        yield log


def _open_job_log(settings: Settings) -> JobLog:
    if is_embedded(settings):
        from sinks.sqlite.jobs import SqliteJobLog

        return SqliteJobLog(settings.directory / "jobs.db", settings.directory / "jobs")
    tables = place(worker_config(settings))
    from sinks.dynamodb.jobs import DynamoJobLog

    return DynamoJobLog(tables)


def household_log(settings: Settings) -> HouseholdLog:
    """The log of acts of persons to share attributes. To be closed."""
    if is_embedded(settings):
        from sinks.sqlite.households import SqliteHouseholdLog

        return SqliteHouseholdLog(settings.directory / HOUSEHOLDS)
    tables = place(worker_config(settings))
    from sinks.dynamodb.shared_logs import DynamoHouseholdLog

    return DynamoHouseholdLog(tables)


def existing_household_log(settings: Settings) -> HouseholdLog | None:
    """The same, but no file is made for it."""
    is_missing = is_embedded(settings) and not (settings.directory / HOUSEHOLDS).exists()
    return None if is_missing else household_log(settings)


def tombstone_keeper(settings: Settings) -> TombstoneKeeper:
    """The tombstones apart from the store."""
    if is_embedded(settings):
        from sinks.tombstone_file import TombstoneFile

        return TombstoneFile(settings.directory / TOMBSTONES)
    tables = place(worker_config(settings))
    from sinks.dynamodb.shared_logs import DynamoTombstones

    return DynamoTombstones(tables)


def audit_lines(settings: Settings) -> AuditLines:
    """The lines of the audit log."""
    if is_embedded(settings):
        from idgraph.web.audit import AuditFile

        return AuditFile(settings.directory / AUDIT)
    tables = place(worker_config(settings))
    from sinks.dynamodb.shared_logs import DynamoAuditLines

    return DynamoAuditLines(tables)


def require_moved(settings: Settings) -> None:
    """Raises StoreError where a file is left beside the tables that nobody would read."""
    left = [each for each in LEFT if (settings.directory / each).exists()]
    if left and not is_embedded(settings):
        raise StoreError(
            f"{settings.directory / left[0]} is of an installation that keeps it in files, and with [store] kind dynamodb it is "
            "in tables: nobody would read the file. Name another `directory`, or move the file away (docs/cluster.md)"
        )
