"""Persons with their rights, and one's own account and keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ValidationError

from idgraph.model.callers import PEOPLE, Scope
from idgraph.model.errors import MetadataError
from idgraph.web.conditional import precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.problems import STATUS
from metadata_service.api.routes import keys as key_routes
from metadata_service.api.routes import users as api
from metadata_service.api.service import Service
from metadata_service.storage.keys import NewKey
from metadata_service.storage.sessions import Session
from metadata_service.storage.tokens import GIVES, Role
from metadata_service.storage.users import LEAST_CHARACTERS, NAME_PATTERN, PersonRole
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other

router = APIRouter()

USERS = "/ui/users"
KEYS = "/ui/keys"
ROWS = 50
NOTHING: dict[str, Any] = {"name": "", "role": Role.VIEWER, "clearance": 0, "may_reveal": False, "scopes": ()}
Query100 = Annotated[str, Query(max_length=100)]
Cursor = Annotated[str | None, Query(max_length=1000)]


@router.get(USERS)
def list_users(
    request: Request,
    session: SignedIn,
    service: Service,
    q: Query100 = "",
    role: Query100 = "",
    sel: Query100 = "",
    cursor: Cursor = None,
    done: Query100 = "",
) -> Response:
    """Persons, and one of them to change or a form for a new one."""
    return _users(request, session, service, q=q, role=role, sel=sel, cursor=cursor, done=done)


def _users(
    request: Request, session: Session, service: Service, status: int = 200, **context: Any
) -> Response:
    require(session, "GET", "/v1/users")
    shown = {
        "q": "",
        "role": "",
        "sel": "",
        "cursor": None,
        "done": "",
        "made": None,
        "problem": "",
    } | context
    wanted = next((each for each in get_args(PersonRole) if each == shown["role"]), None)
    page = api.list_(service, PageRequest(shown.pop("cursor"), ROWS), shown["q"], wanted)
    chosen = api.get(shown["sel"], service, Response()) if shown["sel"] else None
    return render(
        request,
        "users.html",
        session,
        status,
        title="Users",
        page=page,
        chosen=chosen,
        typed=shown.pop("typed", None) or chosen or NOTHING,
        may_edit=may(session, "POST", "/v1/users"),
        roles=PEOPLE,
        scopes=sorted(session.caller.all_scopes),
        curl=curl(str(request.base_url), "/v1/users"),
        **shown,
    )


@router.post(USERS)
def add_user(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Make an account; its password is shown this once."""
    require(session, "POST", "/v1/users")
    stated = {"name": fields.get("name", "").strip(), **_rights(fields)}
    try:
        person = api.NewUser.model_validate(stated)
        made = api.add(person, service, session.caller, fields.get("reason", "")[:1000])
    except (ValidationError, MetadataError) as error:
        return _users(request, session, service, status_of(error), problem=said(error), typed=stated)
    return _users(request, session, service, made=made, sel=made.user.name)


@router.post(USERS + "/{name}")
def change_user(
    request: Request,
    session: SignedIn,
    service: Service,
    fields: OwnFields,
    name: Annotated[str, Path(pattern=NAME_PATTERN)],
) -> Response:
    """Save rights, disable, enable, or reset the password."""
    act, reason = fields.get("act", ""), fields.get("reason", "")[:1000]
    require(
        session, *(("POST", f"/v1/users/{name}/reset") if act == "reset" else ("PATCH", f"/v1/users/{name}"))
    )
    try:
        if act == "reset":
            made = api.reset(name, service, session.caller, reason)
            return _users(request, session, service, made=made, sel=name)
        stated: dict[str, Any] = {"is_disabled": act == "disable"}
        if act == "save":
            stated = {"rights": _rights(fields)}
        edit, known = api.UserEdit.model_validate(stated), precondition(fields.get("etag"))
        api.change(name, edit, service, session.caller, known, reason)
    except (ValidationError, MetadataError) as error:
        return _users(request, session, service, status_of(error), problem=said(error), sel=name)
    return see_other(USERS, sel=name, done={"save": "saved"}.get(act, f"{act}d"))


@router.get(KEYS)
def list_keys(
    request: Request,
    session: SignedIn,
    service: Service,
    q: Query100 = "",
    cursor: Cursor = None,
    done: Query100 = "",
) -> Response:
    """One's own account and keys; for an admin those of all."""
    return _keys(request, session, service, q=q, cursor=cursor, done=done)


def _keys(
    request: Request, session: Session, service: Service, status: int = 200, **context: Any
) -> Response:
    require(session, "GET", "/v1/keys")
    shown = {
        "q": "",
        "cursor": None,
        "done": "",
        "made": None,
        "problem": "",
        "account_problem": "",
    } | context
    page = key_routes.list_(service, PageRequest(shown.pop("cursor"), ROWS), session.caller, shown["q"])
    typed = NOTHING | {"role": session.caller.role, "days": 90} | shown.pop("typed", {})
    return render(
        request,
        "keys.html",
        session,
        status,
        title="Keys",
        page=page,
        own=api.get_own(session.caller),
        typed=typed,
        roles=sorted(GIVES[session.caller.role]),
        scopes=sorted(session.caller.all_scopes),
        least=LEAST_CHARACTERS,
        days_left=lambda expires: (expires - datetime.now(expires.tzinfo)).days,
        curl=curl(str(request.base_url), "/v1/keys"),
        **shown,
    )


@router.post(KEYS)
def make_key(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Make a key, which is shown this once."""
    require(session, "POST", "/v1/keys")
    stated = {"name": fields.get("name", "").strip(), **_rights(fields), "days": fields.get("days", "")}
    try:
        key = NewKey.model_validate(stated)
        made = key_routes.make(key, service, session.caller, fields.get("reason", "")[:1000])
    except (ValidationError, MetadataError) as error:
        return _keys(request, session, service, status_of(error), problem=said(error), typed=stated)
    return _keys(request, session, service, made=made)


@router.post(KEYS + "/{number}")
def change_key(
    request: Request, session: SignedIn, service: Service, fields: OwnFields, number: key_routes.Number
) -> Response:
    """Rotate or revoke."""
    if fields.get("act") == "rotate":
        require(session, "POST", f"/v1/keys/{number}/rotate")
        return _keys(request, session, service, made=key_routes.rotate(number, service, session.caller))
    require(session, "DELETE", f"/v1/keys/{number}")
    key_routes.revoke(number, service, session.caller)
    return see_other(KEYS, done="revoked")


@router.post("/ui/password")
def change_password(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Choose another password, and sign in again."""
    require(session, "PUT", "/v1/me/password")
    try:
        wanted = api.PasswordChange(current=fields.get("current", ""), wanted=fields.get("wanted", ""))
        api.change_password(wanted, service, session.caller)
    except (ValidationError, MetadataError) as error:
        return _keys(request, session, service, status_of(error), account_problem=said(error))
    return see_other("/ui/sign-in")


def _rights(fields: dict[str, str]) -> dict[str, Any]:
    return {
        "role": fields.get("role", ""),
        "clearance": fields.get("clearance") or 0,
        "may_reveal": "may_reveal" in fields,
        "scopes": [each for each in Scope if f"scope-{each}" in fields],
    }


def said(error: ValidationError | MetadataError) -> str:
    """What was wrong with a form."""
    if isinstance(error, ValidationError):
        wrong = error.errors()[0]
        return f"{wrong['loc'][0]}: {wrong['msg']}"
    return str(error)


def status_of(error: Exception) -> int:
    """The status of the page that says so."""
    return next((STATUS[base] for base in type(error).__mro__ if base in STATUS), 422)
