"""The state that all processes of an installation share, apart from profiles: files of the directory, or records in the
table `shared` where profiles are in DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from idgraph.app.adapters.stores import place, worker_config

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.app.shared_flows import SharedFlows
    from idgraph.model.jobs import JobLog
    from idgraph.model.shared_documents import SharedDocuments


def is_embedded(settings: Settings) -> bool:
    """Whether all of it is in files of the directory."""
    return settings.store.kind == "sqlite"


def open_documents(settings: Settings) -> SharedDocuments:
    """Reports, pauses, places in feeds. To be closed."""
    if is_embedded(settings):
        from sinks.document_folder import DocumentFolder

        return DocumentFolder(settings.directory)
    tables = place(worker_config(settings))
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
