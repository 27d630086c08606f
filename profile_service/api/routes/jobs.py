"""Routes for jobs over all profiles: everybody sees their own and exports what they see; the scope `operate` sees all jobs and
starts those that keep index and store in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any, Literal, Self

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, model_validator

from idgraph.model.callers import Caller
from idgraph.model.jobs import JobKind, JobRecord, JobState, Requester
from idgraph.web.cursors import from_cursor, to_cursor
from idgraph.web.refusals import ClashError, ForbiddenError, UnknownSubjectError
from profile_service.api.documents import Reasoned, answer
from profile_service.api.operations import (
    JobDownload,
    Operations,
    Work,
    described,
    download_of,
    may_start,
    sees,
    work_of,
)
from profile_service.api.rights import required
from profile_service.api.service import ActingCaller, ProfileService, Service
from profile_service.link_documents import time_text
from profile_service.visibility import restrictions

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

MEDIA_TYPES = {"jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}


class JobDocument(BaseModel):
    """A job. A name in `counts` may have parts, as `drift/missing`. `notes` (examples) and `error` may name persons and
    attributes: they are for callers who see everything."""

    id: str
    kind: str
    state: JobState = Field(description="`interrupted`: it was stopped, or its process ended; it resumes.")
    is_ending: bool = Field(description="Whether it was cancelled and ends after its current page.")
    who: str
    why: str
    what: dict[str, Any] = Field(description="Its parameters.")
    started: str
    updated: str
    done: int
    total: int = Field(description="As planned; `done` may come to be more.")
    unit: str = Field(description="What `done` and `total` count, in the singular.")
    per_second: float | None = Field(description="Units per second of the current or last run.")
    seconds_left: float | None
    counts: dict[str, int]
    acts: list[Literal["cancel", "resume", "download"]] = Field(description="What this caller may do now.")
    expires: str | None = Field(default=None, description="When the download of an export ends.")
    notes: dict[str, list[str]] | None = None
    error: str | None = None


class JobPage(BaseModel):
    """Jobs, the newest first. `may_start`: the kinds that this caller may start."""

    items: list[JobDocument]
    next: str | None
    may_start: list[str]


Rate = Annotated[int | None, Field(ge=1, le=1_000_000, description="Most units per second.")]


class ReindexBody(Reasoned):
    """Make the search index again, beside the flows."""

    kind: Literal[JobKind.REINDEX]
    rate: Rate = None


class ReconcileBody(Reasoned):
    """Compare the index with the store."""

    kind: Literal[JobKind.RECONCILE]
    repair: bool = False
    rate: Rate = None


class SealBody(Reasoned):
    """Seal stored values that policy protects now."""

    kind: Literal[JobKind.REENCRYPT]
    rate: Rate = None


class ExportBody(Reasoned):
    """Profiles as a file to download, with what the caller may see; protected values are masked."""

    kind: Literal[JobKind.EXPORT]
    form: Literal["jsonl", "parquet"] = "jsonl"
    segment: str | None = Field(default=None, max_length=100)
    columns: list[str] | None = Field(
        default=None,
        max_length=10_000,
        description="Parquet: these attributes and no other value; null for all.",
    )
    key: str | None = Field(
        default=None, max_length=200, description="Parquet: a column with the identifier of this type."
    )

    @model_validator(mode="after")
    def _is_table(self) -> Self:
        if self.form != "parquet" and (self.columns is not None or self.key is not None):
            raise ValueError("columns and key are of the form parquet")
        return self


StartBody = Annotated[ReindexBody | ReconcileBody | SealBody | ExportBody, Field(discriminator="kind")]


def _operations(service: Service) -> Operations:
    return required(service.rights.operations)


Here = Annotated[Operations, Depends(_operations)]


@router.get("", response_model=JobPage)
def list_(
    service: Service,
    caller: ActingCaller,
    operations: Here,
    kind: JobKind | None = None,
    state: JobState | None = None,
    who: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """The jobs that this caller sees, also those of commands and flows."""
    found: Iterator[JobRecord] = (
        each
        for each in operations.records()
        if sees(caller, each)
        and kind in (None, each.kind)
        and state in (None, each.state)
        and who in (None, each.origin.who)
    )
    if cursor:
        last = from_cursor(cursor, str)
        next((each for each in found if each.id == last), None)
    page = list(islice(found, limit + 1))
    shown = [_document(service, caller, operations, each) for each in page[:limit]]
    following = to_cursor(shown[-1]["id"]) if len(page) > limit else None
    return answer({"items": shown, "next": following, "may_start": list(map(str, may_start(caller)))})


@router.post("", response_model=JobDocument, status_code=202)
def start(body: StartBody, service: Service, caller: ActingCaller, operations: Here) -> Response:
    """Start a job, or resume the last one of this kind and these parameters. 409 while such a one runs."""
    options = body.model_dump(exclude={"reason"})
    work = Work(**options, clearance=caller.clearance if body.kind is JobKind.EXPORT else 0)
    return _started(service, caller, operations, work, body.reason)


@router.get("/{job}", response_model=JobDocument)
def get(job: str, service: Service, caller: ActingCaller, operations: Here) -> Response:
    """How far a job is."""
    record = _seen(caller, operations, job)
    return answer(_document(service, caller, operations, record, is_whole=True))


@router.post("/{job}/cancel", response_model=JobDocument, status_code=202)
def cancel(job: str, body: Reasoned, service: Service, caller: ActingCaller, operations: Here) -> Response:
    """Ask a job to end after its current page; what is done stays done. 409 if it is not running."""
    record = _seen(caller, operations, job)
    service.note(caller, f"cancel {record.kind}", subject=record.id, purpose=body.reason)
    if not operations.cancel(job):
        raise ClashError("the job is not running")
    return answer(_document(service, caller, operations, _seen(caller, operations, job)), status=202)


@router.post("/{job}/resume", response_model=JobDocument, status_code=202)
def resume(job: str, body: Reasoned, service: Service, caller: ActingCaller, operations: Here) -> Response:
    """Go on where a job ended that was cancelled, interrupted or failed. An export begins again. 409 for a job that is done,
    or that only its command resumes."""
    record = _seen(caller, operations, job)
    work = work_of(caller, record)
    if work is None:
        raise ClashError("this job cannot be resumed here; the command that started it may resume it")
    return _started(service, caller, operations, work, body.reason)


@router.get(
    "/{job}/download",
    response_class=Response,
    responses={
        200: {
            "content": {
                each: {"schema": {"type": "string", "format": "binary"}} for each in MEDIA_TYPES.values()
            }
        }
    },
)
def download(job: str, service: Service, caller: ActingCaller, operations: Here) -> Response:
    """The file of an export, for whoever started it. 404: it is not done, it expired, or a person was erased since. 409: what
    callers may see has changed since; export again."""
    record = _seen(caller, operations, job)
    found = _own_download(caller, operations, record)
    if found is None:
        raise UnknownSubjectError("there is no file: the job is not done, or the file expired or was removed")
    snapshot = service.following.edition().snapshot
    if found.rules != restrictions(snapshot) or caller.clearance < record.what["clearance"]:
        raise ClashError("what callers may see has changed since this export; export again")
    form = record.what["format"]
    service.note(caller, f"download {record.kind}", subject=record.id, purpose=record.origin.why)
    return StreamingResponse(
        found.parts(),
        media_type=MEDIA_TYPES[form],
        headers={"Content-Disposition": f'attachment; filename="export-{record.id}.{form}"'},
    )


def _started(
    service: ProfileService, caller: Caller, operations: Operations, work: Work, reason: str
) -> Response:
    if work.kind not in may_start(caller):
        raise ForbiddenError("the token of this caller has not the scope operate")
    if work.segment is not None and work.segment not in service.reader(caller).segments():
        raise UnknownSubjectError("there is no such segment")
    service.note(caller, f"start {work.kind}", subject=work.segment, purpose=reason)
    record = operations.start(work, Requester(caller.name, reason))
    found = answer(_document(service, caller, operations, record), status=202)
    found.headers["Location"] = f"{router.prefix}/{record.id}"
    return found


def _seen(caller: Caller, operations: Operations, job: str) -> JobRecord:
    record = operations.record(job)
    if record is None or not sees(caller, record):
        raise UnknownSubjectError("there is no such job, or it is another caller's")
    return record


def _own_download(caller: Caller, operations: Operations, record: JobRecord) -> JobDownload | None:
    is_own = record.kind is JobKind.EXPORT and record.target == download_of(caller.name)
    return operations.download(record.id) if is_own and record.state is JobState.DONE else None


def _document(
    service: ProfileService, caller: Caller, operations: Operations, record: JobRecord, is_whole: bool = False
) -> dict[str, Any]:
    reader = service.reader(caller)
    document = described(caller, record, reader)
    if not is_whole:
        return document
    found = _own_download(caller, operations, record)
    if found is not None:
        document |= {"expires": time_text(found.expires_ms), "acts": [*document["acts"], "download"]}
    if reader.sees_all:
        private = operations.private(record)
        document |= {"notes": private.get("notes", {}), "error": private.get("error", "")}
    return document
