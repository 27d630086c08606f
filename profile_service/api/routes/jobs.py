"""Routes for jobs of all kinds: everybody sees their own, the scope `operate` sees all. Each kind says who may start it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, Literal, Union

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field, create_model

from idgraph.model.callers import Caller
from idgraph.model.jobs import START, Download, JobKind, JobRecord, JobState, JobType, download_of
from idgraph.web.cursors import from_cursor, to_cursor
from idgraph.web.refusals import ClashError, ForbiddenError, UnknownSubjectError
from profile_service.api.dependencies import ActingCaller, Service
from profile_service.api.documents import Reasoned, answer
from profile_service.api.jobs import (
    Jobs,
    described,
    may_start,
    resumption,
    sees,
)
from profile_service.api.rights import required, start_job
from profile_service.link_documents import time_text
from profile_service.service import ProfileService
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
    unit: str = Field(description="The things that `done` and `total` count, in the singular.")
    per_second: float | None = Field(description="Units per second of the current or last run.")
    seconds_left: float | None
    counts: dict[str, int]
    acts: list[Literal["cancel", "resume", "download"]] = Field(
        description="The acts that this caller may do now."
    )
    expires: str | None = Field(
        default=None, description="End of the time in which an export can be downloaded."
    )
    notes: dict[str, list[str]] | None = None
    error: str | None = None


class JobPage(BaseModel):
    """Jobs, the newest first. `may_start`: the kinds that this caller may start."""

    items: list[JobDocument]
    next: str | None
    may_start: list[str]


def starting(kinds: Mapping[JobKind, JobType[Any, Any]]) -> APIRouter:
    """The route that starts a job: its body is one of these kinds, with its parameters."""
    literal: Any = Literal
    bodies = tuple(
        create_model(
            each.parameters.__name__.replace("Parameters", "Body"),
            __base__=(each.parameters, Reasoned),
            __doc__=each.parameters.__doc__,
            kind=(literal[str(kind)], ...),
        )
        for kind, each in kinds.items()
        if each.request == START
    )

    def start(body: Any, service: Service, caller: ActingCaller) -> Response:
        """Start a job, or resume the last one of this kind and these parameters. 409 while such a one runs."""
        stated = body.model_dump(exclude={"kind", "reason"})
        segment = stated.get("segment")
        if segment is not None and segment not in service.reader(caller).segments():
            raise UnknownSubjectError("there is no such segment")
        return started(service, caller, JobKind(body.kind), stated, body.reason, segment)

    start.__annotations__["body"] = Annotated[Union[bodies], Field(discriminator="kind")]  # noqa: UP007
    found = APIRouter(prefix=router.prefix, tags=router.tags)
    found.post("", response_model=JobDocument, status_code=202)(start)
    return found


def _jobs(service: Service) -> Jobs:
    return required(service.rights.jobs)


Here = Annotated[Jobs, Depends(_jobs)]


@router.get("", response_model=JobPage)
def list_(
    service: Service,
    caller: ActingCaller,
    jobs: Here,
    kind: JobKind | None = None,
    state: JobState | None = None,
    who: Annotated[str | None, Query(max_length=200)] = None,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """The jobs that this caller sees, also those of commands and flows."""
    found: Iterator[JobRecord] = (
        each
        for each in jobs.records()
        if sees(caller, each)
        and kind in (None, each.kind)
        and state in (None, each.state)
        and who in (None, each.origin.who)
    )
    if cursor:
        last = from_cursor(cursor, str)
        next((each for each in found if each.id == last), None)
    page = list(islice(found, limit + 1))
    shown = [_document(service, caller, jobs, each) for each in page[:limit]]
    following = to_cursor(shown[-1]["id"]) if len(page) > limit else None
    return answer({"items": shown, "next": following, "may_start": list(map(str, may_start(jobs, caller)))})


@router.get("/{job}", response_model=JobDocument)
def get(job: str, service: Service, caller: ActingCaller, jobs: Here) -> Response:
    """The progress of a job."""
    record = _seen(caller, jobs, job)
    return answer(_document(service, caller, jobs, record, is_whole=True))


@router.post("/{job}/cancel", response_model=JobDocument, status_code=202)
def cancel(job: str, body: Reasoned, service: Service, caller: ActingCaller, jobs: Here) -> Response:
    """Ask a job to end after its current page; what is done stays done. 409 if it is not running."""
    record = _seen(caller, jobs, job)
    service.note(caller, f"cancel {record.kind}", subject=record.id, purpose=body.reason)
    if not jobs.cancel(job):
        raise ClashError("the job is not running")
    return answer(_document(service, caller, jobs, _seen(caller, jobs, job)), status=202)


@router.post("/{job}/resume", response_model=JobDocument, status_code=202)
def resume(job: str, body: Reasoned, service: Service, caller: ActingCaller, jobs: Here) -> Response:
    """Go on where a job ended that was cancelled, interrupted or failed. An export begins again. 409 for a job that is done,
    or that only its command resumes."""
    record = _seen(caller, jobs, job)
    stated = resumption(jobs, caller, record)
    if stated is None:
        raise ClashError("this job cannot be resumed here; the command that started it may resume it")
    return started(service, caller, record.kind, stated, body.reason, stated.get("segment"))


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
def download(job: str, service: Service, caller: ActingCaller, jobs: Here) -> Response:
    """The file of an export, for whoever started it. 404: it is not done, it expired, or a person was erased
    since. 409: the rights of callers have changed since; export again."""
    record = _seen(caller, jobs, job)
    found = _own_download(caller, jobs, record)
    if found is None:
        raise UnknownSubjectError("there is no file: the job is not done, or the file expired or was removed")
    snapshot = service.following.edition().snapshot
    if found.rules != restrictions(snapshot) or caller.clearance < record.what["clearance"]:
        raise ClashError("the rules for what callers may see have changed since this export; export again")
    form = record.what["format"]
    service.note(caller, f"download {record.kind}", subject=record.id, purpose=record.origin.why)
    return StreamingResponse(
        found.parts(),
        media_type=MEDIA_TYPES[form],
        headers={"Content-Disposition": f'attachment; filename="export-{record.id}.{form}"'},
    )


def started(
    service: ProfileService,
    caller: Caller,
    kind: JobKind,
    stated: Mapping[str, Any],
    reason: str,
    subject: str | None = None,
) -> Response:
    """Start a job of these parameters, which is recorded first with its `subject`; the answer of its route."""
    jobs = required(service.rights.jobs)
    scope = jobs.kinds[kind].scope
    if scope is not None and scope not in caller.scopes:
        raise ForbiddenError(f"the token of this caller has not the scope {scope}")
    service.note(caller, f"start {kind}", subject=subject, purpose=reason)
    record = start_job(service.rights, caller, kind, stated, reason, "there is nothing to do")
    found = answer(_document(service, caller, jobs, record), status=202)
    found.headers["Location"] = f"{router.prefix}/{record.id}"
    return found


def _seen(caller: Caller, jobs: Jobs, job: str) -> JobRecord:
    record = jobs.record(job)
    if record is None or not sees(caller, record):
        raise UnknownSubjectError("there is no such job, or it is another caller's")
    return record


def _own_download(caller: Caller, jobs: Jobs, record: JobRecord) -> Download | None:
    is_own = record.kind is JobKind.EXPORT and record.target == download_of(caller.name)
    return jobs.download(record.id) if is_own and record.state is JobState.DONE else None


def _document(
    service: ProfileService, caller: Caller, jobs: Jobs, record: JobRecord, is_whole: bool = False
) -> dict[str, Any]:
    reader = service.reader(caller)
    document = described(jobs, caller, record, reader)
    if not is_whole:
        return document
    found = _own_download(caller, jobs, record)
    if found is not None:
        document |= {"expires": time_text(found.expires_ms), "acts": [*document["acts"], "download"]}
    if reader.sees_all:
        private = jobs.private(record)
        document |= {"notes": private.get("notes", {}), "error": private.get("error", "")}
    return document
