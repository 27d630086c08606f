"""Policy Changes, which a second person decides."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response

from metadata_service.api.routes import policies as api
from metadata_service.attributes.policy_changes import Status
from metadata_service.storage.requests import same_person_problem
from metadata_service.ui.page import OwnFields, OwnPage, Paging, SignedIn, reason_of, see_other

router = APIRouter()

CHANGES = "/ui/policy-changes"
API = "/v1/policy-changes"


@router.get(CHANGES)
def show_all(page: SignedIn, paging: Paging, status: Status | Literal["all"] = "pending") -> Response:
    """Edits that weaken protection: by default those that wait."""
    page.require("GET", API)
    found = api.list_(page.service, paging, None if status == "all" else status)
    return page.render("policy_changes.html", page=found, wanted=status)


@router.get(CHANGES + "/{number}")
def show(page: SignedIn, number: api.Number, done: Literal["", "approved", "refused"] = "") -> Response:
    """One of them, with what it weakens."""
    return _change(page, number, done=done)


@router.post(CHANGES + "/{number}/{act}")
def decide(
    page: SignedIn, fields: OwnFields, number: api.Number, act: Literal["approve", "refuse"]
) -> Response:
    """Approve or refuse it."""
    page.require("POST", f"{API}/{number}/{act}")
    page.on_refusal(_change, number)
    call = api.approve if act == "approve" else api.refuse
    decided = call(number, api.ApprovalDecision(reason=reason_of(fields)), page.service, page.caller.name)
    return see_other(f"{CHANGES}/{number}", done=decided.status)


def _change(page: OwnPage, number: int, status: int = 200, **context: Any) -> Response:
    page.require("GET", f"{API}/{number}")
    change = api.get(number, page.service)
    with page.database.read() as reading:
        obstacle = same_person_problem(reading, change.requested.actor, page.caller.name)
    return page.render(
        "policy_change.html",
        status,
        change=change,
        obstacle=obstacle,
        **context,
    )
