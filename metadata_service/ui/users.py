"""Persons with their rights, and one's own account and keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Path, Response

from idgraph.model.callers import PEOPLE, Scope
from idgraph.web.conditional import precondition
from idgraph.web.cursors import PageRequest
from metadata_service.api.routes import keys as key_routes
from metadata_service.api.routes import users as api
from metadata_service.storage.keys import NewKey
from metadata_service.storage.passwords import LEAST_CHARACTERS
from metadata_service.storage.tokens import GIVES
from metadata_service.storage.users import (
    NAME_PATTERN,
    PersonRole,
    are_one_person,
    count_deciding,
)
from metadata_service.ui.page import FIRST, OwnFields, OwnPage, Paging, SignedIn, Text, reason_of, see_other

router = APIRouter()

USERS = "/ui/users"
KEYS = "/ui/keys"


@router.get(USERS)
def list_users(
    page: SignedIn, paging: Paging, q: Text = "", role: Text = "", sel: Text = "", done: Text = ""
) -> Response:
    """Persons, and one of them to change or a form for a new one."""
    return _users(page, sel, paging=paging, q=q, role=role, done=done)


def _users(
    page: OwnPage,
    sel: str = "",
    status: int = 200,
    paging: PageRequest = FIRST,
    q: str = "",
    role: str = "",
    **context: Any,
) -> Response:
    page.require("GET", "/v1/users")
    wanted = next((each for each in get_args(PersonRole) if each == role), None)
    chosen = api.get(sel, page.service, Response()) if sel else None
    with page.database.read() as reading:
        may_confirm = (
            chosen is not None
            and bool(chosen.counts_as)
            and page.may("POST", f"/v1/users/{chosen.name}/confirm")
            and not are_one_person(reading, page.caller.name, chosen.name)
        )
        is_alone = count_deciding(reading) < 2
    return page.render(
        "users.html",
        status,
        page=api.list_(page.service, paging, q, wanted),
        q=q,
        role=role,
        chosen=chosen,
        may_confirm=may_confirm,
        is_alone=is_alone,
        roles=PEOPLE,
        **context,
    )


@router.post(USERS)
def add_user(page: SignedIn, fields: OwnFields) -> Response:
    """Make an account; its password is shown this once."""
    page.require("POST", "/v1/users")
    stated = {"name": fields.get("name", "").strip(), **_rights(fields)}
    page.on_refusal(_users, typed=stated)
    made = api.add(api.NewUser.model_validate(stated), page.service, page.caller, reason_of(fields))
    return _users(page, made.user.name, made=made)


@router.post(USERS + "/{name}")
def change_user(
    page: SignedIn, fields: OwnFields, name: Annotated[str, Path(pattern=NAME_PATTERN)]
) -> Response:
    """Save rights, disable, enable, reset the password, or confirm whose it is."""
    act, reason = fields.get("act", ""), reason_of(fields)
    page.on_refusal(_users, name)
    if act == "confirm":
        page.require("POST", f"/v1/users/{name}/confirm")
        api.confirm(name, page.service, page.caller, reason)
        return see_other(USERS, sel=name, done="confirmed")
    if act == "reset":
        page.require("POST", f"/v1/users/{name}/reset")
        return _users(page, name, made=api.reset(name, page.service, page.caller, reason))
    page.require("PATCH", f"/v1/users/{name}")
    stated: dict[str, Any] = (
        {"rights": _rights(fields)} if act == "save" else {"is_disabled": act == "disable"}
    )
    edit, known = api.UserEdit.model_validate(stated), precondition(fields.get("etag"))
    api.change(name, edit, page.service, page.caller, known, reason)
    return see_other(USERS, sel=name, done={"save": "saved"}.get(act, f"{act}d"))


@router.get(KEYS)
def list_keys(page: SignedIn, paging: Paging, q: Text = "", done: Text = "") -> Response:
    """One's own account and keys; for an admin those of all."""
    return _keys(page, paging=paging, q=q, done=done)


def _keys(
    page: OwnPage, status: int = 200, paging: PageRequest = FIRST, q: str = "", **context: Any
) -> Response:
    page.require("GET", "/v1/keys")
    return page.render(
        "keys.html",
        status,
        page=key_routes.list_(page.service, paging, page.caller, q),
        q=q,
        me=api.get_own(page.caller),
        roles=sorted(GIVES[page.caller.role]),
        least=LEAST_CHARACTERS,
        now=datetime.now(UTC),
        **context,
    )


@router.post(KEYS)
def make_key(page: SignedIn, fields: OwnFields) -> Response:
    """Make a key, which is shown this once."""
    page.require("POST", "/v1/keys")
    stated = {"name": fields.get("name", "").strip(), **_rights(fields), "days": fields.get("days", "")}
    page.on_refusal(_keys, typed=stated)
    made = key_routes.make(NewKey.model_validate(stated), page.service, page.caller, reason_of(fields))
    return _keys(page, made=made)


@router.post(KEYS + "/{number}")
def change_key(page: SignedIn, fields: OwnFields, number: key_routes.Number) -> Response:
    """Rotate or revoke."""
    if fields.get("act") == "rotate":
        page.require("POST", f"/v1/keys/{number}/rotate")
        return _keys(page, made=key_routes.rotate(number, page.service, page.caller))
    page.require("DELETE", f"/v1/keys/{number}")
    key_routes.revoke(number, page.service, page.caller)
    return see_other(KEYS, done="revoked")


@router.post("/ui/password")
def change_password(page: SignedIn, fields: OwnFields) -> Response:
    """Choose another password, and sign in again."""
    page.require("PUT", "/v1/me/password")
    page.on_refusal(_keys, is_account=True)
    wanted = api.PasswordChange(current=fields.get("current", ""), wanted=fields.get("wanted", ""))
    api.change_password(wanted, page.service, page.caller)
    return see_other("/ui/sign-in")


def _rights(fields: dict[str, str]) -> dict[str, Any]:
    return {
        "role": fields.get("role", ""),
        "clearance": fields.get("clearance") or 0,
        "may_reveal": "may_reveal" in fields,
        "scopes": [each for each in Scope if f"scope-{each}" in fields],
    }
