"""Requests for access: to attributes above somebody's clearance, by path or by view, or to the drafts of a spec."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query
from pydantic import AwareDatetime, Field

from idgraph.model.documents import StrictDocument
from idgraph.web.cursors import ListPage
from metadata_service.api.service import Acting, Paging, Service
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
    """Ask to see an attribute, or those that a view shows, and what is below them; or to save drafts of a spec."""
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
