"""Policy Changes, which a second person decides, and Audit: the history with its chain."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Request, Response

from idgraph.model.callers import Scope
from idgraph.model.records import PolicyChangeRecord
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import ClashError, SamePersonError
from metadata_service.api.routes import policies as api
from metadata_service.api.service import Service
from metadata_service.attributes.policy_changes import Status
from metadata_service.storage.edits import Kind
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other
from metadata_service.ui.profiles import profiles_rights

router = APIRouter()

CHANGES = "/ui/policy-changes"
AUDIT = "/ui/audit"
PAGE = 50
Cursor = Annotated[str | None, Query(max_length=10_000)]
Text = Annotated[str, Query(max_length=1024)]


@router.get(CHANGES)
def show_changes(
    request: Request,
    session: SignedIn,
    service: Service,
    status: Status | Literal["all"] = "pending",
    cursor: Cursor = None,
) -> Response:
    """Edits that weaken protection: by default those that wait."""
    require(session, "GET", "/v1/policy-changes")
    asked: Status | None = None if status == "all" else status
    page = api.list_(service, PageRequest(cursor, PAGE), asked)
    params = {} if asked is None else {"status": asked}
    return _changes(
        request,
        session,
        page=page,
        wanted=status,
        curl=curl(str(request.base_url), "/v1/policy-changes", **params),
    )


@router.get(CHANGES + "/{number}")
def show_change(
    request: Request,
    session: SignedIn,
    service: Service,
    number: api.Number,
    done: Literal["", "approved", "refused"] = "",
) -> Response:
    """One of them, with what it weakens."""
    return _change(request, session, service, number, done=done)


@router.post(CHANGES + "/{number}/{act}")
def decide(
    request: Request,
    session: SignedIn,
    service: Service,
    fields: OwnFields,
    number: api.Number,
    act: Literal["approve", "refuse"],
) -> Response:
    """Approve or refuse it."""
    require(session, "POST", f"/v1/policy-changes/{number}/{act}")
    decision = api.ApprovalDecision(reason=fields.get("reason", "")[:1000])
    try:
        call = api.approve if act == "approve" else api.refuse
        decided = call(number, decision, service, session.caller.name)
    except (ClashError, SamePersonError) as error:
        return _change(request, session, service, number, 409, problem=str(error))
    return see_other(f"{CHANGES}/{number}", done=decided.status)


def _change(
    request: Request, session: Session, service: Service, number: int, status: int = 200, **context: Any
) -> Response:
    require(session, "GET", f"/v1/policy-changes/{number}")
    found: PolicyChangeRecord = api.get(number, service)
    shown = {"done": "", "problem": None} | context
    address = f"/v1/policy-changes/{number}"
    return _changes(
        request, session, status, change=found, curl=curl(str(request.base_url), address), **shown
    )


def _changes(request: Request, session: Session, status: int = 200, **context: Any) -> Response:
    change: PolicyChangeRecord | None = context.get("change")
    name = "policy_changes.html" if change is None else "policy_change.html"
    title = "Policy Changes" if change is None else f"Change {change.id}"
    path = f"/v1/policy-changes/{1 if change is None else change.id}/approve"
    may_decide = may(session, "POST", path)
    return render(request, name, session, status, title=title, may_decide=may_decide, **context)


@router.get(AUDIT)
def show_audit(
    request: Request,
    session: SignedIn,
    service: Service,
    kind: Kind | Literal[""] = "",
    subject: Text = "",
    who: Text = "",
    cursor: Cursor = None,
) -> Response:
    """The history, the newest first."""
    return _audit(request, session, service, kind, subject, who, cursor)


@router.post(AUDIT)
def verify(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Check the chain, and show the newest of the history."""
    del fields
    require(session, "POST", "/v1/changes/verify")
    return _audit(request, session, service, report=api.verify(service))


def _audit(
    request: Request,
    session: Session,
    service: Service,
    kind: Kind | Literal[""] = "",
    subject: str = "",
    who: str = "",
    cursor: str | None = None,
    report: Any = None,
) -> Response:
    require(session, "GET", "/v1/changes")
    page = api.list_log(service, PageRequest(cursor, PAGE), kind or None, subject or None, who or None)
    asked = {"kind": kind, "subject": subject, "actor": who}
    params = {name: value for name, value in asked.items() if value}
    return render(
        request,
        "audit.html",
        session,
        title="Audit",
        page=page,
        kinds=get_args(Kind),
        asked=asked,
        is_filtered=bool(params),
        sees_reveals=Scope.PRIVACY in profiles_rights(session).scopes,
        report=report,
        may_verify=may(session, "POST", "/v1/changes/verify"),
        curl=curl(str(request.base_url), "/v1/changes", **params),
    )
