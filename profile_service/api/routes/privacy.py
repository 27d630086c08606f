"""Routes for access requests and erasures, for callers with the scope `privacy`. They reach all of a person, whatever the
caller's clearance is."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from idgraph.model import canonical
from idgraph.model.callers import Caller
from idgraph.model.documents import StrictDocument
from idgraph.model.identifiers import Identifier, given_identifier
from idgraph.model.jobs import JobKind, JobRecord, Requester
from idgraph.web.refusals import ClashError, UnknownSubjectError
from profile_service.api.dependencies import Officer, Service
from profile_service.api.documents import Reasoned, answer
from profile_service.api.rights import own_job, required, start_job
from profile_service.api.routes.profiles import the_profile
from profile_service.link_documents import time_text
from profile_service.service import ProfileService
from profile_service.visibility import HIGHEST
from profile_service.wanted import MASKED

router = APIRouter(prefix="/v1", tags=["privacy"])


class PersonJobDocument(BaseModel):
    """A job. `expires` is when the download of an access request does; `receipt` is of an erasure that is done."""

    id: str
    state: str = Field(description="`running`, `done`, `failed`, `cancelled` or `interrupted`.")
    started: str
    updated: str
    counts: dict[str, int] = Field(description="By part of the document, or by place.")
    expires: str | None = None
    receipt: dict[str, Any] | None = None
    paths_to_redact: list[str] | None = Field(
        default=None,
        description="Attribute paths that are made of the erased persons' values; an admin redacts them.",
    )


class ErasurePreview(BaseModel):
    """The data that an erasure would remove, by place. `possible_dead_letters` stay: they may be another
    person's. So do `fragments_elsewhere`: fragments of other profiles whose events showed an identifier of
    the person."""

    counts: dict[str, int]
    complete_from: str | None = Field(
        description="The day from which an erasure of today holds in backups too; null where `[keys] backup_days` is not set."
    )


class AccessBody(Reasoned):
    """The person whose data is asked for, and the reason."""

    identifier: str = Field(max_length=4096, description="`type:value`.")


class PersonsBody(StrictDocument):
    """Persons, each by one identifier."""

    identifiers: list[Annotated[str, Field(max_length=4096)]] = Field(min_length=1, max_length=20)


class ErasureBody(PersonsBody, Reasoned):
    """The persons to erase, and the reason."""


def _unbound(caller: Officer) -> Caller:
    return caller.model_copy(update={"clearance": HIGHEST})


Unbound = Annotated[Caller, Depends(_unbound)]
"""Reaches all of a person."""


@router.post("/access-requests", response_model=PersonJobDocument, status_code=202)
def request_access(body: AccessBody, service: Service, officer: Unbound) -> Response:
    """Collect all that is stored of a person: a job, whose document can be downloaded until it expires."""
    identifier = given_identifier(body.identifier)
    profile = the_profile(service, officer, identifier, MASKED)
    service.note(officer, "access request", profile=service.hashed(profile.id), purpose=body.reason)
    return _started(service, officer, JobKind.ACCESS, {"identifier": body.identifier}, body.reason)


@router.get("/access-requests/{job}", response_model=PersonJobDocument)
def get_access(job: str, service: Service, officer: Unbound) -> Response:
    """The progress of an access request."""
    return answer(_document(service, own_job(service.rights, officer, job, JobKind.ACCESS)))


@router.get(
    "/access-requests/{job}/download",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
def download(job: str, service: Service, officer: Unbound) -> Response:
    """The document, with protected values in the clear. 404: the job is not done, or the document expired."""
    record = own_job(service.rights, officer, job, JobKind.ACCESS)
    found = required(service.rights.jobs).download(job)
    if found is None:
        raise UnknownSubjectError("there is no document: the job is not done, or the document expired")
    service.note(officer, "download", subject=record.id, purpose=record.origin.why)
    return Response(found.content, headers={"Cache-Control": "no-store"}, media_type="application/json")


@router.post("/erasures/preview", response_model=ErasurePreview)
def preview(body: PersonsBody, service: Service, officer: Unbound) -> Response:
    """The effects of an erasure; changes nothing."""
    _named(service, officer, body)
    stated, origin = {"identifiers": body.identifiers}, Requester(officer.name)
    found = required(service.rights.jobs).preview(JobKind.ERASE, stated, origin, officer.clearance)
    if found is None:
        raise UnknownSubjectError("nothing is stored of these persons")
    return answer(found)


@router.post("/erasures", response_model=PersonJobDocument, status_code=202)
def erase(body: ErasureBody, service: Service, officer: Unbound) -> Response:
    """Erase whole persons, for good: a job. Events up to now are refused from then on."""
    for each in _named(service, officer, body):
        service.note(officer, "erasure", profile=service.hashed(str(each)), purpose=body.reason)
    return _started(service, officer, JobKind.ERASE, {"identifiers": body.identifiers}, body.reason)


@router.get("/erasures/{job}", response_model=PersonJobDocument)
def get_erasure(job: str, service: Service, officer: Unbound) -> Response:
    """The progress of an erasure, and its receipt when it is done."""
    return answer(_document(service, own_job(service.rights, officer, job, JobKind.ERASE)))


def _named(service: ProfileService, officer: Caller, body: PersonsBody) -> list[Identifier]:
    named = [given_identifier(each) for each in body.identifiers]
    for place, each in enumerate(named):
        if service.lookup(officer, each, MASKED).is_shared:
            raise ClashError(
                f"several profiles share identifier {place}: name each person by one of their own"
            )
    return named


def _started(
    service: ProfileService, officer: Caller, kind: JobKind, stated: dict[str, Any], reason: str
) -> Response:
    nothing = "nothing is stored of these persons"
    job = start_job(service.rights, officer, kind, stated, reason, nothing)
    return answer(_document(service, job), status=202)


def _document(service: ProfileService, job: JobRecord) -> dict[str, Any]:
    shown = ("id", "state", "started", "updated", "counts")
    document = {name: value for name, value in job.document("milliseconds").items() if name in shown}
    found = required(service.rights.jobs).download(job.id)
    if job.kind is JobKind.ACCESS:
        return document if found is None else {**document, "expires": time_text(found.expires_ms)}
    named = [] if found is None else canonical.decode(found.content)
    return {**document, "receipt": required(service.rights.jobs).result(job.id), "paths_to_redact": named}
