"""Jobs over all profiles, as routes see them: what is asked for, who may see which, and what each reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from idgraph.model.callers import Caller, Scope
from idgraph.model.jobs import JobKind, JobRecord, JobState, Requester
from profile_service.link_documents import time_text
from profile_service.reader import ProfileReader

OPERATED = (JobKind.REINDEX, JobKind.RECONCILE, JobKind.REENCRYPT)
"""What the scope `operate` starts; every caller may export what it sees."""
RESUMED = (JobState.INTERRUPTED, JobState.FAILED, JobState.CANCELLED)


class Work(NamedTuple):
    """A job that is asked for. `rate` bounds its units per second. An export has what `clearance` sees, of a `segment` or
    of all, as `form` says, as Parquet with these `columns` or all, and one of the `key`. A replay is of `dead_letters`, by their ids."""

    kind: JobKind
    rate: int | None = None
    repair: bool = False
    form: str = "jsonl"
    segment: str | None = None
    clearance: int = 0
    columns: Sequence[str] | None = None
    key: str | None = None
    dead_letters: Sequence[str] = ()


class JobDownload(Protocol):
    """The document of an export: its parts, when it expires in epoch milliseconds, and the rules by which it was made."""

    @property
    def parts(self) -> Callable[[], Iterator[bytes]]: ...
    @property
    def expires_ms(self) -> int: ...
    @property
    def rules(self) -> str: ...


class Operations(Protocol):
    """Starts, shows and cancels jobs. A start raises AlreadyRunningError."""

    def start(self, work: Work, origin: Requester) -> JobRecord: ...
    def records(self) -> list[JobRecord]: ...
    def record(self, job_id: str) -> JobRecord | None: ...
    def private(self, record: JobRecord) -> Mapping[str, Any]: ...
    def cancel(self, job_id: str) -> bool: ...
    def download(self, job_id: str) -> JobDownload | None: ...


def download_of(caller: str) -> str:
    """The target of a caller's exports: one runs at a time."""
    return f"a download of {caller}"


def sees(caller: Caller, record: JobRecord) -> bool:
    """Everybody sees their own jobs, who has the scope `operate` all."""
    return Scope.OPERATE in caller.scopes or record.origin.who == caller.name


def may_start(caller: Caller) -> list[JobKind]:
    """What this caller may start."""
    return [*(OPERATED if Scope.OPERATE in caller.scopes else ()), JobKind.EXPORT]


def work_of(caller: Caller, record: JobRecord) -> Work | None:
    """What resumes a job by this caller; None where only its command can."""
    what = record.what
    if record.kind not in may_start(caller) or record.state not in RESUMED:
        return None
    if record.kind is JobKind.EXPORT:
        if record.target != download_of(caller.name):
            return None
        return Work(
            record.kind,
            form=what["format"],
            segment=what["segment"],
            clearance=caller.clearance,
            columns=what.get("columns"),
            key=what.get("key"),
        )
    if what.get("flow"):
        return None  # A flow resumes its own.
    return Work(record.kind, repair=what.get("repair", False))


def described(caller: Caller, record: JobRecord, reader: ProfileReader) -> dict[str, Any]:
    """A job as this caller sees it. Parameters that name what is hidden are left out, and unless the caller sees everything,
    parts of counts, which may name attributes."""
    progress = record.progress
    is_running = record.state is JobState.RUNNING
    rate = progress.per_second(record.updated)
    hidden = {"protection"} | ({"output"} if record.target == download_of(record.origin.who) else set())
    acts = ["cancel"] if is_running and not record.is_cancel_requested else []
    acts += ["resume"] if work_of(caller, record) is not None else []
    return {
        "id": record.id,
        "kind": str(record.kind),
        "state": str(record.state),
        "is_ending": is_running and record.is_cancel_requested,
        "who": record.origin.who,
        "why": record.origin.why,
        "what": {
            name: value
            for name, value in record.what.items()
            if name not in hidden and reader.shown_text(str(value)) == str(value)
        },
        "started": time_text(record.started),
        "updated": time_text(record.updated),
        "done": progress.done,
        "total": progress.total,
        "unit": progress.unit,
        "per_second": rate,
        "seconds_left": max(0, progress.total - progress.done) / rate if is_running and rate else None,
        "counts": {
            name: number
            for name, number in sorted(progress.counts.items())
            if reader.sees_all or "/" not in name
        },
        "acts": acts,
        **dict.fromkeys(("expires", "notes", "error")),
    }
