"""Routes for previews of mapping specs, for callers with the scope `rules`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from idgraph.model.jobs import JobKind, JobRecord, Requester
from idgraph.model.specs import SpecDefinition
from idgraph.web.refusals import UnknownSubjectError
from profile_service.api.documents import answer
from profile_service.api.rights import required
from profile_service.api.routes.identity_rules import Admitted
from profile_service.api.service import LONGEST_PURPOSE, ProfileService, Service

router = APIRouter(prefix="/v1/specs", tags=["mapping specs"])

MOST_SAMPLE = 20_000


class SpecPreviewBody(BaseModel):
    """A mapping spec to compare with the one in force of its name, if there is one. `sample`: look at so many events, drawn at
    random."""

    model_config = ConfigDict(extra="forbid")

    definition: SpecDefinition
    sample: int = Field(default=2000, ge=1, le=MOST_SAMPLE)
    reason: str = Field(default="", max_length=LONGEST_PURPOSE)


class SpecPreviewDocument(BaseModel):
    """A job, and what it has found so far. `figures` are numbers of events and persons, each with its share of those looked at
    and how far that may be from the share of all, with 95 % confidence; 0 where all were read."""

    id: str
    state: str = Field(description="`running`, `done`, `failed`, `cancelled` or `interrupted`.")
    done: int = Field(description="Events that were looked at.")
    total: int
    result: dict[str, Any] | None = Field(
        default=None, description="Null before the first events, and after a restart of the service."
    )


@router.post("/previews", response_model=SpecPreviewDocument, status_code=202)
def start(body: SpecPreviewBody, service: Service, caller: Admitted) -> Response:
    """What a spec would make of events in the source's own files: a job that changes nothing. One runs at a time (409)."""
    origin = Requester(caller.name, body.reason)
    job = required(service.rights.jobs).start_spec_preview(body.definition, body.sample, origin)
    return answer(_document(service, job), status=202)


@router.get("/previews/{job}", response_model=SpecPreviewDocument)
def get(job: str, service: Service, caller: Admitted) -> Response:
    """How far a preview is, and what it has found so far. `POST /v1/jobs/{id}/cancel` stops it, and it keeps that."""
    found = required(service.rights.jobs).record(job, JobKind.PREVIEW)
    if found is None or found.origin.who != caller.name or "spec" not in found.what:
        raise UnknownSubjectError("this caller has no such job")
    return answer(_document(service, found))


def _document(service: ProfileService, job: JobRecord) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": str(job.state),
        "done": job.progress.done,
        "total": job.progress.total,
        "result": required(service.rights.jobs).preview(job.id),
    }
