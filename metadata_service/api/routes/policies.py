"""Routes of policies for groups of attributes, of edits that weaken protection with a second person's decision, and of
the change log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from idgraph.model.documents import StrictDocument
from idgraph.model.records import (
    ChangeRecord,
    DiscoveryCounts,
    PolicyChangeRecord,
    PurgeRecord,
    VerificationRecord,
)
from idgraph.web.cursors import ListPage
from idgraph.web.refusals import RefusedRequestError
from metadata_service.api.service import Actor, Paging, Reason, Service
from metadata_service.attributes import policy_changes, redaction
from metadata_service.attributes.policy_changes import Status, request_change
from metadata_service.attributes.undecided import Purge, discovery_counts, purge
from metadata_service.storage.edits import Action, Kind
from metadata_service.storage.history import verify_history
from metadata_service.storage.versions import list_changes

requests = APIRouter(prefix="/v1/policy-changes", tags=["policy changes"])

Number = Annotated[int, Path(ge=1, lt=2**31)]

ASKED: dict[int | str, dict[str, Any]] = {
    202: {"model": PolicyChangeRecord, "description": "It weakens protection and waits for a second person."}
}
"""The answer to an edit that a second person must approve."""


def asked(change: PolicyChangeRecord) -> Response:
    """The answer to it."""
    headers = {"Location": f"{requests.prefix}/{change.id}"}
    return Response(change.model_dump_json(), 202, headers, media_type="application/json")


class ApprovalDecision(StrictDocument):
    """The reason of an approval or refusal; kept with it."""

    reason: str = Field(default="", max_length=1000)


@requests.get("")
def list_(service: Service, paging: Paging, status: Status | None = None) -> ListPage[PolicyChangeRecord]:
    """List requested edits and the decisions on them; the newest first."""
    with service.database.read() as session:
        return policy_changes.list_policy_changes(session, paging, status)


@requests.get("/{number}")
def get(number: Number, service: Service) -> PolicyChangeRecord:
    """One of them."""
    with service.database.read() as session:
        return policy_changes.get_policy_change(session, number)


@requests.post("/{number}/approve", responses={409: {"description": "The same person, or out of date."}})
def approve(number: Number, decision: ApprovalDecision, service: Service, actor: Actor) -> PolicyChangeRecord:
    """Carry it out. Another person than the one who asked for it does this."""
    with service.database.write(actor, decision.reason) as edit:
        done = policy_changes.approve(edit, number)
    if done.kind == redaction.KIND:
        service.database.forget_replaced()
    return done


@requests.post("/{number}/refuse")
def refuse(number: Number, decision: ApprovalDecision, service: Service, actor: Actor) -> PolicyChangeRecord:
    """Refuse it. The caller who asked for it may withdraw it in this way."""
    with service.database.write(actor, decision.reason) as edit:
        return policy_changes.refuse(edit, number)


redactions = APIRouter(prefix="/v1/redactions", tags=["redactions"])


@redactions.post("", status_code=202, response_model=PolicyChangeRecord)
def request_redaction(
    wanted: redaction.RedactedPath, service: Service, actor: Actor, reason: Reason = ""
) -> Response:
    """Ask to take a path that is made of somebody's value out of the catalogue and its history, with all paths below it. It
    waits for a second person."""
    with service.database.write(actor, reason) as edit:
        named = redaction.described(edit.session, redaction.paths_to_redact(edit.session, wanted.path))
        return asked(request_change(edit, "redaction", wanted.path, None, wanted, named))


counts_router = APIRouter(prefix="/v1/discovery-counts", tags=["discovery defaults"])


@counts_router.get("")
def get_counts(service: Service) -> DiscoveryCounts:
    """The number of attributes in the catalogue, and the ones that each source added of late; `waiting` counts those
    over a cap."""
    with service.database.read() as session:
        return discovery_counts(session, datetime.now(UTC))


purges = APIRouter(prefix="/v1/attribute-purges", tags=["attributes"])


@purges.post("")
def purge_undecided(wanted: Purge, service: Service, actor: Actor, reason: Reason = "") -> PurgeRecord:
    """Take attributes that nobody decided on out of the catalogue; by default only say which. Stored values stay, and so does
    what is protected by more than a detector's finding."""
    if wanted.source is None and not wanted.prefix and wanted.created_before is None:
        raise RefusedRequestError("say which: by source, prefix or created_before")
    if not wanted.dry_run and not reason:
        raise RefusedRequestError("a purge has a reason")
    with service.database.write(actor, reason) as edit:
        return purge(edit, wanted)


log = APIRouter(prefix="/v1/changes", tags=["changes"])


@log.get("")
def list_log(
    service: Service,
    paging: Paging,
    kind: Kind | None = None,
    subject: Annotated[str | None, Query(max_length=1024, description="Spec name or attribute path.")] = None,
    actor: Annotated[str | None, Query(max_length=200, description="The caller who made it.")] = None,
    action: Annotated[list[Action] | None, Query()] = None,
) -> ListPage[ChangeRecord]:
    """List changes with author, time and reason; the newest first."""
    with service.database.read() as session:
        return list_changes(session, paging, kind, subject, actor, action or ())


@log.post("/verify")
def verify(service: Service) -> VerificationRecord:
    """Check that nothing in the history was altered, inserted or removed. It reads all of it."""
    key = service.settings.key.history if service.settings.key else b""
    with service.database.read() as session:
        report = verify_history(session, key)
    return VerificationRecord(versions=report.entries, broken_version=report.broken_line, head=report.head)
