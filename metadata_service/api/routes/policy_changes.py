"""Edits that weaken protection, and a second person's decision on them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from idgraph.web.cursors import Page
from metadata_service.api.records import PolicyChangeRecord
from metadata_service.api.service import Actor, Paging, Service
from metadata_service.attributes import policy_changes
from metadata_service.attributes.policy_changes import Status

router = APIRouter(prefix="/v1/policy-changes", tags=["policy changes"])

Number = Annotated[int, Path(ge=1, lt=2**31)]

ASKED: dict[int | str, dict[str, Any]] = {
    202: {"model": PolicyChangeRecord, "description": "It weakens protection and waits for a second person."}
}
"""What an edit is answered with that a second person must approve."""


def asked(change: PolicyChangeRecord) -> Response:
    """The answer to it."""
    headers = {"Location": f"{router.prefix}/{change.id}"}
    return Response(change.model_dump_json(), 202, headers, media_type="application/json")


class Decision(BaseModel):
    """Why it is approved or refused; kept with it."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=1000)


@router.get("")
def list_(service: Service, paging: Paging, status: Status | None = None) -> Page[PolicyChangeRecord]:
    """What was asked for, by whom, and what was decided; the newest first."""
    with service.database.read() as session:
        return policy_changes.list_policy_changes(session, paging, status)


@router.get("/{number}")
def get(number: Number, service: Service) -> PolicyChangeRecord:
    """One of them."""
    with service.database.read() as session:
        return policy_changes.get_policy_change(session, number)


@router.post("/{number}/approve", responses={409: {"description": "The same person, or out of date."}})
def approve(number: Number, decision: Decision, service: Service, actor: Actor) -> PolicyChangeRecord:
    """Carry it out. Another person than the one who asked for it does this."""
    with service.database.write(actor, decision.reason) as edit:
        return policy_changes.approve(edit, number)


@router.post("/{number}/refuse")
def refuse(number: Number, decision: Decision, service: Service, actor: Actor) -> PolicyChangeRecord:
    """Let it be. Who asked for it may take it back so."""
    with service.database.write(actor, decision.reason) as edit:
        return policy_changes.refuse(edit, number)
