"""The state that all processes of an installation share, apart from profiles: files of the directory, or records in the
table `shared` where profiles are in DynamoDB."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from idgraph.app.adapters.stores import (
    DEAD_LETTER_KEYS,
    DEAD_LETTERS,
    open_dead_letters,
    open_embedded_dead_letters,
    place,
    worker_config,
)
from idgraph.model.errors import StoreError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.app.shared_flows import SharedFlows
    from idgraph.jobs.erase.erasure import TombstoneKeeper
    from idgraph.model.households import HouseholdEntry, HouseholdLog
    from idgraph.model.jobs import JobLog
    from idgraph.model.shared_documents import SharedDocuments
    from idgraph.web.audit import AuditLines

log = logging.getLogger(__name__)

HOUSEHOLDS, TOMBSTONES, AUDIT = "households.db", "tombstones.jsonl", "audit.jsonl"
LEFT = (DEAD_LETTERS, HOUSEHOLDS, TOMBSTONES, AUDIT)
"""Files that earlier versions kept in the directory beside tables in DynamoDB."""
_LEFT_DOCUMENTS = (
    *("flows/*/paused.json", "flows/*/held/*.json", "flows/*/held/*.again"),
    *("webhooks/*/place.json", "topics/*/place.json", "receipts/*.json"),
)


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
def shared_flows(settings: Settings) -> Iterator[SharedFlows]:
    """The flows of this installation."""
    from idgraph.app.shared_flows import SharedFlows

    with closing(open_documents(settings)) as documents:
        yield SharedFlows(documents)


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
            f"{settings.directory / left[0]} is of an earlier version, which kept it beside the tables in DynamoDB; run "
            "`idgraph store create` here, which moves it into them"
        )


def move_left(settings: Settings) -> list[str]:
    """Move what earlier versions left in files of the directory into the tables; returns the names of these files, which end
    in `.moved` now. Doing it twice is no error. Raises StoreError, KeyProviderError."""
    moved = []
    for name, move in ((DEAD_LETTERS, _move_dead_letters), (HOUSEHOLDS, _move_households)):
        if (settings.directory / name).exists():
            move(settings)
            moved.append(name)
    if (file := settings.directory / TOMBSTONES).exists():
        from sinks.tombstone_file import TombstoneFile

        keeper = tombstone_keeper(settings)
        with keeper.alone():
            keeper.append(TombstoneFile(file).read())
        moved.append(TOMBSTONES)
    if (settings.directory / AUDIT).exists() and _move_audit_log(settings):
        moved.append(AUDIT)
    _move_documents(settings)
    if DEAD_LETTERS in moved:
        moved.append(DEAD_LETTER_KEYS)
    for name in moved:
        for file in settings.directory.glob(f"{name}*"):
            file.rename(file.with_name(f"{file.name}.moved"))
    return moved


def _move_dead_letters(settings: Settings) -> None:
    from idgraph.app.adapters.key_providers import provider_of

    config, provider = worker_config(settings), provider_of(settings)
    with (
        closing(open_embedded_dead_letters(config, provider)) as old,
        closing(open_dead_letters(config, provider)) as new,
    ):
        for each in old.scan():
            new.put([each])


def _move_households(settings: Settings) -> None:
    from sinks.sqlite.households import SqliteHouseholdLog

    with (
        closing(SqliteHouseholdLog(settings.directory / HOUSEHOLDS)) as old,
        closing(household_log(settings)) as new,
    ):
        for household in old.households():
            entries = old.read(household)
            while len(there := new.read(household)) < len(entries):
                new.append(household, partial(_next_entries, entries, there))


def _next_entries(
    entries: Sequence[HouseholdEntry], there: Sequence[HouseholdEntry], known: Sequence[HouseholdEntry]
) -> Sequence[HouseholdEntry]:
    return entries[len(there) : len(there) + _AT_ONCE] if len(known) == len(there) else []


def _as_they_are(lines: list[bytes], _last: Sequence[bytes]) -> list[bytes]:
    return lines


def _move_audit_log(settings: Settings) -> bool:
    """False where another chain has begun in the table: two cannot be one, so the file is set aside."""
    from idgraph.web.audit import AuditFile

    file, there = AuditFile(settings.directory / AUDIT), audit_lines(settings)
    lines, known = file.read(), there.read()
    if known != lines[: len(known)]:
        log.warning(
            "another audit log has begun in the tables; the one of this directory is %s", file.set_aside()
        )
        return False
    for start in range(len(known), len(lines), _LINES_AT_ONCE):
        some = [line + b"\n" for line in lines[start : start + _LINES_AT_ONCE]]
        there.append(partial(_as_they_are, some))
    return True


def _move_documents(settings: Settings) -> None:
    from sinks.document_folder import DocumentFolder

    old = DocumentFolder(settings.directory)
    with closing(open_documents(settings)) as new:
        for name in (name for pattern in _LEFT_DOCUMENTS for name in old.names(pattern)):
            if (content := old.read(name)) is not None:
                new.add(name, content)
                old.remove(name)


_AT_ONCE, _LINES_AT_ONCE = 40, 1000
