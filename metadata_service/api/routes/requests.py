"""Requests that wait for a second person: edits that weaken protection, redactions, and access to attributes
above somebody's clearance, by path or by view, or to the drafts of a spec."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import AwareDatetime, Field

from idgraph.model.documents import StrictDocument
from idgraph.model.records import (
    PolicyChangeRecord,
)
from idgraph.web.cursors import ListPage
from metadata_service.api.service import Acting, Actor, Paging, Reason, Service
from metadata_service.attributes import policy_changes as policies
from metadata_service.attributes import redaction
from metadata_service.attributes.policy_changes import Status, request_change
from metadata_service.storage import grants
from metadata_service.storage.grants import ANSWERING, GrantRecord, GrantWish, State
from metadata_service.storage.tokens import TokenRecord, person_of

router = APIRouter(prefix="/v1/requests", tags=["requests"])

Number = Annotated[int, Path(ge=1, lt=2**31)]


class GrantAnswer(StrictDocument):
    """A decision, or a question."""

    action: Literal["granted", "refused", "asked"]
    reason: str = Field(min_length=1, max_length=1000, description="Shown to who asked.")
    until: AwareDatetime | None = Field(default=None, description="End of a grant. Default: as asked for.")


class GrantReply(StrictDocument):
    """The answer to a question, or why a request is taken back or a grant ended."""

    reason: str = Field(min_length=1, max_length=1000)


@router.get("")
def list_(
    service: Service,
    paging: Paging,
    caller: Acting,
    state: State | None = None,
    mine: Annotated[bool, Query(description="Only one's own.")] = False,
) -> ListPage[GrantRecord]:
    """Requests, the newest first: one's own, and those of all for who answers them."""
    with service.database.read() as session:
        person = person_of(caller.name) if mine else _only(caller)
        return grants.list_grants(session, paging, datetime.now(UTC), person, state)


@router.get("/{number}")
def get(number: Number, service: Service, caller: Acting) -> GrantRecord:
    """One request with its answers; one's own, or any for who answers them."""
    with service.database.read() as session:
        return grants.get_grant(session, number, datetime.now(UTC), _only(caller))


@router.post("", status_code=201)
def ask(wish: GrantWish, service: Service, caller: Acting) -> GrantRecord:
    """Ask to see an attribute, or those that a view shows, and what is below them; or to save drafts of a
    spec."""
    with service.database.write(caller.name) as edit:
        number = grants.ask(edit, wish)
    return get(number, service, caller)


@router.post("/{number}/answer", responses={409: {"description": "The same person, or decided already."}})
def answer(number: Number, decision: GrantAnswer, service: Service, caller: Acting) -> GrantRecord:
    """Grant it until a day, refuse it, or ask back. Nobody grants to themselves, or what they do not see."""
    with service.database.write(caller.name) as edit:
        grants.answer(edit, caller, number, decision.action, decision.reason, decision.until)
    return get(number, service, caller)


@router.post("/{number}/reply")
def reply(number: Number, said: GrantReply, service: Service, caller: Acting) -> GrantRecord:
    """Answer a question about one's own request, which waits again."""
    with service.database.write(caller.name) as edit:
        grants.reply(edit, number, said.reason)
    return get(number, service, caller)


@router.post("/{number}/end")
def end(number: Number, said: GrantReply, service: Service, caller: Acting) -> GrantRecord:
    """Take a request back, or end a grant before its day."""
    with service.database.write(caller.name) as edit:
        grants.end(edit, caller, number, said.reason)
    return get(number, service, caller)


def _only(caller: TokenRecord) -> str | None:
    """The person whose requests the caller sees; None for all."""
    return None if caller.role in ANSWERING else person_of(caller.name)


policy_changes = APIRouter(prefix="/v1/policy-changes", tags=["policy changes"])

ASKED: dict[int | str, dict[str, Any]] = {
    202: {"model": PolicyChangeRecord, "description": "It weakens protection and waits for a second person."}
}
"""The answer to an edit that a second person must approve."""


def asked(change: PolicyChangeRecord) -> Response:
    """The answer to it."""
    headers = {"Location": f"{policy_changes.prefix}/{change.id}"}
    return Response(change.model_dump_json(), 202, headers, media_type="application/json")


class ApprovalDecision(StrictDocument):
    """The reason of an approval or refusal; kept with it."""

    reason: str = Field(default="", max_length=1000)


@policy_changes.get("")
def list_policy_changes(
    service: Service, paging: Paging, status: Status | None = None
) -> ListPage[PolicyChangeRecord]:
    """List requested edits and the decisions on them; the newest first."""
    with service.database.read() as session:
        return policies.list_policy_changes(session, paging, status)


@policy_changes.get("/{number}")
def get_policy_change(number: Number, service: Service) -> PolicyChangeRecord:
    """One of them."""
    with service.database.read() as session:
        return policies.get_policy_change(session, number)


@policy_changes.post(
    "/{number}/approve", responses={409: {"description": "The same person, or out of date."}}
)
def approve(number: Number, decision: ApprovalDecision, service: Service, actor: Actor) -> PolicyChangeRecord:
    """Carry it out. Another person than the one who asked for it does this."""
    with service.database.write(actor, decision.reason) as edit:
        done = policies.approve(edit, number)
    if done.kind == redaction.KIND:
        service.database.forget_replaced()
    return done


@policy_changes.post("/{number}/refuse")
def refuse(number: Number, decision: ApprovalDecision, service: Service, actor: Actor) -> PolicyChangeRecord:
    """Refuse it. The caller who asked for it may withdraw it in this way."""
    with service.database.write(actor, decision.reason) as edit:
        return policies.refuse(edit, number)


redactions = APIRouter(prefix="/v1/redactions", tags=["redactions"])


@redactions.post("", status_code=202, response_model=PolicyChangeRecord)
def request_redaction(
    wanted: redaction.RedactedPath, service: Service, actor: Actor, reason: Reason = ""
) -> Response:
    """Ask to take a path that is made of somebody's value out of the catalogue and its history, with all
    paths below it. It waits for a second person."""
    with service.database.write(actor, reason) as edit:
        named = redaction.described(edit.session, redaction.paths_to_redact(edit.session, wanted.path))
        return asked(request_change(edit, "redaction", wanted.path, None, wanted, named))
