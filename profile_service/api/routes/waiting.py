"""Requests and changes that wait for a decision of the caller, counted up to a bound."""

from __future__ import annotations

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from idgraph.model.callers import Scope
from idgraph.model.jobs import JobKind, JobState
from profile_service.api.dependencies import ActingCaller, Service
from profile_service.api.documents import answer
from profile_service.api.routes.links import undecided

MOST_COUNTED = 1000
MOST_SUGGESTED = 50

router = APIRouter(prefix="/v1/waiting", tags=["jobs"])


class WaitingCounts(BaseModel):
    """Null where the caller lacks the scope, or the service the part. A count that reached its bound may be more."""

    dead_letters: int | None = Field(description="Up to 1,000; for the scope `operate`.")
    suggestions: int | None = Field(
        description="Up to 50 of the caller's newest list that nobody decided on; for the scope `links`."
    )


@router.get("", response_model=WaitingCounts)
def get(service: Service, caller: ActingCaller) -> Response:
    """The number of requests and changes that wait for a decision of the caller."""
    desk, jobs = service.rights.dead_letters, service.rights.jobs
    letters = suggested = None
    if desk is not None and Scope.OPERATE in caller.scopes:
        letters = len(desk.newest(MOST_COUNTED))
    if jobs is not None and Scope.LINKS in caller.scopes:
        own = [
            each
            for each in jobs.records()
            if each.kind is JobKind.SUGGEST and each.state is JobState.DONE and each.origin.who == caller.name
        ]
        newest = max(own, key=lambda each: each.started, default=None)
        found = [] if newest is None else (jobs.result(newest.id) or {"items": []})["items"]
        suggested = len(undecided(service, caller, found, 0, MOST_SUGGESTED)[0])
    return answer({"dead_letters": letters, "suggestions": suggested})
