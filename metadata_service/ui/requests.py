"""Requests of one person that another decides: requests for access, and policy changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Response

from idgraph.web.cursors import PageRequest
from metadata_service.api.routes import requests as api
from metadata_service.attributes.policy_changes import Status
from metadata_service.definitions import VIEWS
from metadata_service.storage.grants import LONGEST, GrantWish, State, ending
from metadata_service.storage.requests import same_person_problem
from metadata_service.storage.tokens import person_of
from metadata_service.storage.users import are_one_person
from metadata_service.ui.page import FIRST, OwnFields, OwnPage, Paging, SignedIn, Text, reason_of, see_other

router = APIRouter()

LIST = "/ui/requests"
USUAL = timedelta(days=90)
Shown = Literal["waits", "mine", "granted", "all"]


@router.get(LIST)
def show(
    page: SignedIn,
    paging: Paging,
    show: Shown | None = None,
    sel: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    path: Text = "",
    view: Text = "",
    spec: Text = "",
    done: Text = "",
) -> Response:
    """Those that wait for this person, their own, or all; and one of them, or a form for a new one."""
    return _page(
        page, sel, shown=show, paging=paging, done=done, typed={"path": path, "view": view, "spec": spec}
    )


def _page(
    page: OwnPage,
    sel: int | None = None,
    status: int = 200,
    shown: Shown | None = None,
    paging: PageRequest = FIRST,
    typed: dict[str, str] | None = None,
    **context: Any,
) -> Response:
    page.require("GET", "/v1/requests")
    shown = shown or ("waits" if page.may("POST", "/v1/requests/1/answer") else "mine")
    state: State | None = next((each for each in get_args(State) if each == shown), None)
    me, now = person_of(page.caller.name), datetime.now(UTC)
    with page.database.read() as reading:
        views = VIEWS.list(reading, PageRequest(None, 500)).items
        soon = ending(reading, now, me)
        chosen = None if sel is None else api.get(sel, page.service, page.caller)
        is_same = chosen is not None and are_one_person(reading, chosen.person, me)
    return page.render(
        "requests.html",
        status,
        shown=shown,
        page=api.list_(page.service, paging, page.caller, state, mine=shown == "mine"),
        chosen=chosen,
        is_same=is_same,
        me=me,
        views=[each.name for each in views if each.status == "active"],
        soon=soon,
        latest=f"{now + LONGEST:%Y-%m-%d}",
        typed={"until": f"{now + USUAL:%Y-%m-%d}"} | (typed or {}),
        **context,
    )


@router.post(LIST)
def ask(page: SignedIn, fields: OwnFields) -> Response:
    """Ask to see an attribute, or what a view shows, or to edit a spec."""
    page.require("POST", "/v1/requests")
    typed = {each: fields.get(each, "").strip() for each in ("path", "view", "spec", "purpose", "until")}
    page.on_refusal(_page, typed=typed)
    wish = GrantWish.model_validate(typed | {"until": _end(typed["until"])})
    made = api.ask(wish, page.service, page.caller)
    return see_other(LIST, sel=str(made.id), show="mine", done="asked")


@router.post(LIST + "/{number}")
def step(page: SignedIn, fields: OwnFields, number: api.Number) -> Response:
    """Grant, refuse, ask back, reply, or end."""
    act, reason = fields.get("act", ""), fields.get("reason", "").strip()
    call = act if act in ("reply", "end") else "answer"
    page.require("POST", f"/v1/requests/{number}/{call}")
    until = {"until": fields["until"]} if fields.get("until") else {}
    page.on_refusal(_page, number, typed={"reason": reason} | until)
    if call == "answer":
        stated = {"action": act, "reason": reason, "until": _end(fields.get("until", "")) or None}
        api.answer(number, api.GrantAnswer.model_validate(stated), page.service, page.caller)
    else:
        known = api.GrantReply(reason=reason)
        (api.reply if call == "reply" else api.end)(number, known, page.service, page.caller)
    return see_other(LIST, sel=str(number), done=act)


def _end(day: str) -> str:
    """The end of a day, as forms have it."""
    return f"{day}T23:59:59Z" if len(day) == len("2026-01-01") else day


CHANGES = "/ui/policy-changes"
API = "/v1/policy-changes"


@router.get(CHANGES)
def show_all(page: SignedIn, paging: Paging, status: Status | Literal["all"] = "pending") -> Response:
    """Edits that weaken protection: by default those that wait."""
    page.require("GET", API)
    found = api.list_policy_changes(page.service, paging, None if status == "all" else status)
    return page.render("policy_changes.html", page=found, wanted=status)


@router.get(CHANGES + "/{number}")
def show_change(
    page: SignedIn, number: api.Number, done: Literal["", "approved", "refused"] = ""
) -> Response:
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
    change = api.get_policy_change(number, page.service)
    with page.database.read() as reading:
        obstacle = same_person_problem(reading, change.requested.actor, page.caller.name)
    return page.render(
        "policy_change.html",
        status,
        change=change,
        obstacle=obstacle,
        **context,
    )
