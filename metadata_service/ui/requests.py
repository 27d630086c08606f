"""Requests for access: asked by one person, answered by another."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from idgraph.model.errors import MetadataError
from idgraph.web.cursors import PageRequest
from metadata_service.api.routes import requests as api
from metadata_service.api.service import Service
from metadata_service.definitions import VIEWS
from metadata_service.storage.grants import LONGEST, GrantWish, State, ending
from metadata_service.storage.sessions import Session
from metadata_service.storage.tokens import person_of
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other
from metadata_service.ui.users import said, status_of

router = APIRouter()

LIST = "/ui/requests"
ROWS = 50
USUAL = timedelta(days=90)
Shown = Literal["waits", "mine", "granted", "all"]


@router.get(LIST)
def show(
    request: Request,
    session: SignedIn,
    service: Service,
    show: Shown | None = None,
    sel: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    path: Annotated[str, Query(max_length=1024)] = "",
    view: Annotated[str, Query(max_length=100)] = "",
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    """Those that wait for this person, their own, or all; and one of them, or a form for a new one."""
    typed = {"path": path, "view": view}
    return _page(request, session, service, shown=show, sel=sel, cursor=cursor, done=done, typed=typed)


def _page(
    request: Request, session: Session, service: Service, status: int = 200, **context: Any
) -> Response:
    require(session, "GET", "/v1/requests")
    may_answer = may(session, "POST", "/v1/requests/1/answer")
    given = {"shown": None, "sel": None, "cursor": None, "done": "", "problem": "", "typed": {}} | context
    shown: Shown = given.pop("shown") or ("waits" if may_answer else "mine")
    state: State | None = next((each for each in get_args(State) if each == shown), None)
    paging = PageRequest(given.pop("cursor"), ROWS)
    sel = given.pop("sel")
    usual = {
        "path": "",
        "view": "",
        "purpose": "",
        "until": f"{datetime.now(UTC) + USUAL:%Y-%m-%d}",
        "reason": "",
    }
    me, now = person_of(session.caller.name), datetime.now(UTC)
    with service.database.read() as reading:
        views = [
            each.name for each in VIEWS.list(reading, PageRequest(None, 500)).items if each.status == "active"
        ]
        soon = ending(reading, now, me)
    return render(
        request,
        "requests.html",
        session,
        status,
        title="Requests",
        shown=shown,
        page=api.list_(service, paging, session.caller, state, mine=shown == "mine"),
        chosen=None if sel is None else api.get(sel, service, session.caller),
        may_answer=may_answer,
        me=me,
        views=views,
        soon=soon,
        latest=f"{now + LONGEST:%Y-%m-%d}",
        curl=curl(str(request.base_url), "/v1/requests" if sel is None else f"/v1/requests/{sel}"),
        **given | {"typed": usual | given["typed"]},
    )


@router.post(LIST)
def ask(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Ask to see an attribute, or what a view shows."""
    require(session, "POST", "/v1/requests")
    typed = {each: fields.get(each, "").strip() for each in ("path", "view", "purpose", "until")}
    try:
        made = api.ask(
            GrantWish.model_validate(typed | {"until": _end(typed["until"])}), service, session.caller
        )
    except (ValidationError, MetadataError) as error:
        return _page(request, session, service, status_of(error), problem=said(error), typed=typed)
    return see_other(LIST, sel=str(made.id), show="mine", done="asked")


@router.post(LIST + "/{number}")
def step(
    request: Request, session: SignedIn, service: Service, fields: OwnFields, number: api.Number
) -> Response:
    """Grant, refuse, ask back, reply, or end."""
    act, reason = fields.get("act", ""), fields.get("reason", "").strip()
    call = act if act in ("reply", "end") else "answer"
    require(session, "POST", f"/v1/requests/{number}/{call}")
    try:
        if call == "answer":
            stated = {"action": act, "reason": reason, "until": _end(fields.get("until", "")) or None}
            api.answer(number, api.GrantAnswer.model_validate(stated), service, session.caller)
        else:
            known = api.GrantReply(reason=reason)
            (api.reply if call == "reply" else api.end)(number, known, service, session.caller)
    except (ValidationError, MetadataError) as error:
        typed = {"reason": reason} | ({"until": fields["until"]} if fields.get("until") else {})
        return _page(
            request, session, service, status_of(error), problem=said(error), typed=typed, sel=number
        )
    return see_other(LIST, sel=str(number), done=act)


def _end(day: str) -> str:
    """The end of a day, as forms have it."""
    return f"{day}T23:59:59Z" if len(day) == len("2026-01-01") else day
