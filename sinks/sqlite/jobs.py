"""The job log in one SQLite file, with a lock for each job that is running."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from idgraph.files import file_lock
from idgraph.model import canonical
from idgraph.model.errors import AlreadyRunningError, StoreError
from idgraph.model.jobs import JobIdentity, JobKind, JobRecord, JobState, Progress, Requester
from sinks.job_rows import KEPT, decoded, encoded, now, running_already
from sinks.sqlite.database import SqliteFile
from sinks.sqlite.schema import Schema

_COLUMNS = "id, kind, target, what, who, why, state, started, updated, progress, private, cancel"
_SCHEMA = Schema(
    application_id=0x69646A6F,
    migrations=(
        (
            """CREATE TABLE jobs (
                number INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                kind TEXT NOT NULL,
                target TEXT NOT NULL,
                what TEXT NOT NULL,
                who TEXT NOT NULL,
                why TEXT NOT NULL,
                state TEXT NOT NULL,
                started INTEGER NOT NULL,
                updated INTEGER NOT NULL,
                progress TEXT NOT NULL,
                private BLOB NOT NULL,
                cancel INTEGER NOT NULL)""",
            "CREATE INDEX jobs_by_target ON jobs (kind, target, number)",
        ),
    ),
)


class SqliteJobLog:
    """`JobLog` in one file, made when first used, for the owner only.

    The process that runs a job holds the lock `ID.lock` in the folder `locks`, which goes with it, however it ends.
    """

    def __init__(self, path: Path, locks: Path) -> None:
        self._file = SqliteFile(path, _SCHEMA, StoreError)
        self._locks = locks

    @contextmanager
    def running(self, work: JobIdentity, origin: Requester, again: bool = False) -> Iterator[JobRecord]:
        what = canonical.encode(dict(work.what)).decode()

        def begin(connection: sqlite3.Connection) -> str:
            held.close()
            self._locks.mkdir(mode=0o700, parents=True, exist_ok=True)
            _interrupt_ended(connection, self._locks)
            last = connection.execute(
                "SELECT id, state, what, who, started FROM jobs WHERE kind = ? AND target = ? "
                "ORDER BY number DESC LIMIT 1",
                (work.kind, work.target),
            ).fetchone()
            if last and last[1] == JobState.RUNNING:
                raise AlreadyRunningError(running_already(work.kind, last[0], last[3], last[4]))
            began = now()
            is_same = last and last[2] == what and (last[1] != JobState.DONE or work.reopens)
            if is_same and not again:
                job_id = str(last[0])
                connection.execute(
                    "UPDATE jobs SET state = ?, who = ?, why = ?, updated = ?, cancel = 0 WHERE id = ?",
                    (JobState.RUNNING, *origin, began, job_id),
                )
            else:
                job_id = secrets.token_hex(6)
                row = (
                    job_id,
                    work.kind,
                    work.target,
                    what,
                    *origin,
                    JobState.RUNNING,
                    began,
                    began,
                    "{}",
                    b"",
                )
                connection.execute(
                    f"INSERT INTO jobs ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",  # noqa: S608 - ours only
                    row,
                )
                _forget_oldest(connection)
            held.enter_context(file_lock(self._lock(job_id), _refuse))
            return job_id

        with ExitStack() as held:
            job_id = self._file.write(begin)
            try:
                yield self._found(job_id)
            finally:
                self._file.write(lambda connection: self._release(connection, job_id))

    def keep(self, job_id: str, progress: Progress, private: bytes) -> bool:
        # A power cut may take the last one back; the one before it is as good.
        rows = self._file.write_unflushed(
            lambda connection: connection.execute(
                "UPDATE jobs SET updated = ?, progress = ?, private = ? WHERE id = ? RETURNING cancel",
                (now(), encoded(progress), private, job_id),
            ).fetchall()
        )
        return bool(rows and rows[0][0])

    def reseal(self, job_id: str, private: bytes) -> None:
        self._file.write(
            lambda connection: connection.execute(
                "UPDATE jobs SET private = ? WHERE id = ? AND state <> ?", (private, job_id, JobState.RUNNING)
            )
        )

    def end(self, job_id: str, state: JobState, progress: Progress, private: bytes) -> None:
        self._file.write(
            lambda connection: connection.execute(
                "UPDATE jobs SET state = ?, updated = ?, progress = ?, private = ? WHERE id = ?",
                (state, now(), encoded(progress), private, job_id),
            )
        )

    def cancel(self, job_id: str) -> bool:
        def ask(connection: sqlite3.Connection) -> bool:
            _interrupt_ended(connection, self._locks)
            asked = connection.execute(
                "UPDATE jobs SET cancel = 1 WHERE id = ? AND state = ?", (job_id, JobState.RUNNING)
            )
            return asked.rowcount > 0

        return self._file.write(ask)

    def get(self, job_id: str) -> JobRecord | None:
        return next(self._rows("WHERE id = ?", (job_id,)), None)

    def scan(self, kind: JobKind | None = None) -> Iterator[JobRecord]:
        where = "WHERE kind = ? " if kind else ""
        return self._rows(f"{where}ORDER BY number DESC", (kind,) if kind else ())

    def close(self) -> None:
        self._file.close()

    def _rows(self, where: str, values: tuple[str, ...]) -> Iterator[JobRecord]:
        query = f"SELECT {_COLUMNS} FROM jobs {where}"  # noqa: S608 - ours only
        rows = self._file.read(lambda connection: connection.execute(query, values).fetchall())
        if any(row[6] == JobState.RUNNING for row in rows):
            self._file.write(lambda connection: _interrupt_ended(connection, self._locks))
            rows = self._file.read(lambda connection: connection.execute(query, values).fetchall())
        return map(_record, rows)

    def _found(self, job_id: str) -> JobRecord:
        (row,) = self._file.read(
            lambda connection: connection.execute(
                f"SELECT {_COLUMNS} FROM jobs WHERE id = ?",  # noqa: S608 - ours only
                (job_id,),
            ).fetchall()
        )
        return _record(row)

    def _release(self, connection: sqlite3.Connection, job_id: str) -> None:
        connection.execute(
            "UPDATE jobs SET state = ? WHERE id = ? AND state = ?",
            (JobState.INTERRUPTED, job_id, JobState.RUNNING),
        )
        self._lock(job_id).unlink(missing_ok=True)

    def _lock(self, job_id: str) -> Path:
        return self._locks / f"{job_id}.lock"


def _interrupt_ended(connection: sqlite3.Connection, locks: Path) -> None:
    """Note jobs as interrupted whose lock nobody holds. Locks are taken and tried by the file's only writer."""
    for (job_id,) in connection.execute(
        "SELECT id FROM jobs WHERE state = ?", (JobState.RUNNING,)
    ).fetchall():
        lock = locks / f"{job_id}.lock"
        try:
            with file_lock(lock, _refuse):
                lock.unlink(missing_ok=True)
        except AlreadyRunningError:
            continue
        except FileNotFoundError:
            # The folder of locks is gone, and nobody holds one.
            pass
        connection.execute("UPDATE jobs SET state = ? WHERE id = ?", (JobState.INTERRUPTED, job_id))


def _refuse() -> None:
    raise AlreadyRunningError("the lock of a job is held")


def _forget_oldest(connection: sqlite3.Connection) -> None:
    connection.execute(
        "DELETE FROM jobs WHERE state <> ? AND number <= (SELECT max(number) FROM jobs) - ?",
        (JobState.RUNNING, KEPT),
    )


def _record(row: tuple[Any, ...]) -> JobRecord:
    job_id, kind, target, what, who, why, state, started, updated, progress, private, cancel = row
    return JobRecord(
        job_id,
        JobKind(kind),
        target,
        json.loads(what),
        Requester(who, why),
        JobState(state),
        started,
        updated,
        decoded(progress),
        private,
        bool(cancel),
    )
