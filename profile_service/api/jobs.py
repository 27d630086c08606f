"""Jobs, as routes see them: which kinds there are, who may start, see and resume which, and what each reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from idgraph.model.callers import Caller, Scope
from idgraph.model.jobs import START, Download, JobKind, JobRecord, JobState, JobType, Requester
from profile_service.reader import ProfileReader

RESUMED = (JobState.INTERRUPTED, JobState.FAILED, JobState.CANCELLED)


class Jobs(Protocol):
    """Starts, shows and cancels jobs. A start returns None where there is nothing to do, and raises AlreadyRunningError."""

    @property
    def kinds(self) -> Mapping[JobKind, JobType[Any, Any]]: ...
    def start(
        self, kind: JobKind, parameters: Mapping[str, Any], origin: Requester, clearance: int = 100
    ) -> JobRecord | None: ...
    def records(self) -> list[JobRecord]: ...
    def record(self, job_id: str) -> JobRecord | None: ...
    def private(self, record: JobRecord) -> Mapping[str, Any]: ...
    def cancel(self, job_id: str) -> bool: ...
    def download(self, job_id: str) -> Download | None: ...
    def result(self, job_id: str) -> Mapping[str, Any] | None:
        """The result of a job, as JSON data; None before its end."""
        ...

    def preview(
        self, kind: JobKind, parameters: Mapping[str, Any], origin: Requester, clearance: int = 100
    ) -> Mapping[str, Any] | None:
        """The effects that a job would have; changes nothing."""
        ...


def sees(caller: Caller, record: JobRecord) -> bool:
    """Everybody sees their own jobs, who has the scope `operate` all."""
    return Scope.OPERATE in caller.scopes or record.origin.who == caller.name


def may_start(jobs: Jobs, caller: Caller) -> list[JobKind]:
    """The kinds that this caller may start by `POST /v1/jobs`."""
    return [
        kind
        for kind, each in jobs.kinds.items()
        if each.request == START and (each.scope is None or each.scope in caller.scopes)
    ]


def resumption(jobs: Jobs, caller: Caller, record: JobRecord) -> Mapping[str, Any] | None:
    """The parameters by which this caller resumes a job; None where only its command can."""
    if record.kind not in may_start(jobs, caller) or record.state not in RESUMED:
        return None
    return jobs.kinds[record.kind].resumed(record, caller.name)


def described(jobs: Jobs, caller: Caller, record: JobRecord, reader: ProfileReader) -> dict[str, Any]:
    """A job as this caller sees it. Parameters that name what is hidden are left out, and unless the caller sees everything,
    parts of counts, which may name attributes."""
    progress = record.progress
    is_running = record.state is JobState.RUNNING
    rate = progress.per_second(record.updated)
    acts = ["cancel"] if is_running and not record.is_cancel_requested else []
    acts += ["resume"] if resumption(jobs, caller, record) is not None else []
    known = jobs.kinds.get(record.kind)
    return record.document("milliseconds") | {
        "is_ending": is_running and record.is_cancel_requested,
        "what": {
            name: value
            for name, value in (record.what if known is None else known.shown(record)).items()
            if reader.shown_text(str(value)) == str(value)
        },
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
