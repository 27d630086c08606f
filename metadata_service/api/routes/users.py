"""Persons, what one may see of oneself, and who may call the profile service."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from idgraph.model.callers import CallerList, Scope
from idgraph.model.documents import StrictDocument
from idgraph.web.conditional import IfNoneMatch, Precondition, etag_of, is_listed, json_answer
from idgraph.web.cursors import ListPage
from metadata_service.api.access import CALLERS
from metadata_service.api.routes.pipeline import Wait
from metadata_service.api.service import Acting, Paging, Reason, Service
from metadata_service.storage import passwords, users
from metadata_service.storage.database import Database, revision_in
from metadata_service.storage.grants import grants_in_force
from metadata_service.storage.passwords import MOST_CHARACTERS
from metadata_service.storage.sessions import session_callers, trace_of_sessions
from metadata_service.storage.tokens import Role, TokenRecord, callers_in, person_of, require_within
from metadata_service.storage.users import NAME_PATTERN, PersonRights, PersonRole, UserRecord, known_people

router = APIRouter(prefix="/v1/users", tags=["users"])
own = APIRouter(prefix="/v1/me", tags=["users"])
callers = APIRouter(prefix=CALLERS, tags=["callers"])

UserName = Annotated[str, Path(pattern=NAME_PATTERN)]
NOT_MORE: dict[int | str, dict[str, Any]] = {403: {"description": "More than the caller has."}}


class NewUser(PersonRights):
    """A person who signs in by a password."""

    name: str = Field(pattern=NAME_PATTERN)


class UserEdit(StrictDocument):
    """Other rights, or whether the account is disabled; what is left out stays."""

    rights: PersonRights | None = None
    is_disabled: bool | None = None


class UserPassword(BaseModel):
    """A person with the password that was made, which is shown this once."""

    user: UserRecord
    password: str


class PasswordChange(StrictDocument):
    """The password of now, and the one that is wanted."""

    current: str = Field(max_length=MOST_CHARACTERS)
    wanted: str = Field(max_length=MOST_CHARACTERS)


class OwnRecord(BaseModel):
    """The caller, and the caller's rights."""

    name: str
    person: str
    role: Role
    clearance: int
    may_reveal: bool
    scopes: list[Scope]


@router.get("")
def list_(
    service: Service,
    paging: Paging,
    q: Annotated[str, Query(max_length=100, description="A part of the name.")] = "",
    role: PersonRole | None = None,
) -> ListPage[UserRecord]:
    """Persons by name."""
    with service.database.read() as session:
        return users.list_users(session, paging, q, role)


@router.get("/{name}")
def get(name: UserName, service: Service, response: Response) -> UserRecord:
    """One person. The ETag is of what an admin decides."""
    with service.database.read() as session:
        found = users.record_of(users.get_user(session, name))
    response.headers["ETag"] = found.etag()
    return found


@router.post("", status_code=201, responses=NOT_MORE)
def add(person: NewUser, service: Service, caller: Acting, reason: Reason = "") -> UserPassword:
    """Make an account. Nobody gives more clearance, reveal or scopes than they have, those of the role included: privacy
    officers are made by `idgraph users add`, by the issuer, or by an admin with the scope `privacy`."""
    _require_within(caller, person)
    with service.database.write(caller.name, reason) as edit:
        password = users.add_user(edit, person.name, person, caller.name)
        edit.session.flush()
        return UserPassword(
            user=users.record_of(users.get_user(edit.session, person.name)), password=password
        )


@router.patch("/{name}", responses=NOT_MORE)
def change(
    name: UserName,
    wanted: UserEdit,
    service: Service,
    caller: Acting,
    precondition: Precondition,
    reason: Reason = "",
) -> UserRecord:
    """Change rights, at once; or disable the account, which ends its sessions and keys. A user of an issuer has no more than
    the claims give, whatever is set here."""
    with service.database.write(caller.name, reason) as edit:
        if wanted.rights is not None:
            _require_within(caller, users.record_of(users.get_user(edit.session, name)))
            _require_within(caller, wanted.rights)
        return users.record_of(users.change_user(edit, name, wanted.rights, wanted.is_disabled, precondition))


@router.post("/{name}/reset", responses=NOT_MORE)
def reset(name: UserName, service: Service, caller: Acting, reason: Reason = "") -> UserPassword:
    """Make a new password, and lift a lock. Sessions end. Nobody resets the account of a person who has more than they
    have."""
    with service.database.write(caller.name, reason) as edit:
        user = users.record_of(users.get_user(edit.session, name))
        _require_within(caller, user)
        return UserPassword(user=user, password=users.reset_password(edit, name, caller.name))


@router.post("/{name}/confirm", responses={409: {"description": "The caller counts as the same person."}})
def confirm(name: UserName, service: Service, caller: Acting, reason: Reason = "") -> UserRecord:
    """Say that an account belongs to a person of its own: where a second person has to agree, it no longer counts as
    who made it or reset its password. Somebody does so who counts as none of these."""
    with service.database.write(caller.name, reason) as edit:
        return users.record_of(users.confirm_user(edit, name, caller.name))


@own.get("")
def get_own(caller: Acting) -> OwnRecord:
    """The caller."""
    return OwnRecord(
        name=caller.name,
        person=person_of(caller.name),
        role=caller.role,
        clearance=caller.clearance,
        may_reveal=caller.may_reveal,
        scopes=sorted(caller.all_scopes),
    )


@own.put(
    "/password", status_code=204, responses={429: {"description": "Too many wrong passwords; ask later."}}
)
def change_password(wanted: PasswordChange, service: Service, caller: Acting) -> Response:
    """Choose another password; all sessions end."""
    passwords.change_password(service.database, person_of(caller.name), wanted.current, wanted.wanted)
    return Response(status_code=204)


def _require_within(caller: TokenRecord, rights: PersonRights) -> None:
    # The scopes of the role too: else an admin made an officer, and read by that account what no admin reads.
    require_within(caller, rights.clearance, rights.may_reveal, rights.all_scopes)


def trace_of_callers(database: Database) -> str:
    """Another text after each write that may have changed who may call; cheap."""
    with database.read() as session:
        return f"{revision_in(session)} {trace_of_sessions(session)}"


def _callers_in_force(database: Database) -> tuple[str, str]:
    """The `CallerList` of now as JSON, and its trace."""
    trace = trace_of_callers(database)
    with database.read() as session:
        known = (*callers_in(session), *session_callers(session))
        people, grants = known_people(session), grants_in_force(session, datetime.now(UTC))
    found = CallerList(callers=known, people=tuple(people), grants=tuple(grants))
    return found.model_dump_json(), trace


@callers.get("", response_model=CallerList, responses={304: {"description": "Nothing changed."}})
async def get_callers(service: Service, wait: Wait = 0, if_none_match: IfNoneMatch = None) -> Response:
    """Callers of the profile service, by a token or signed in to the pages: digests, never tokens. For the roles
    `service` and `admin`. `If-None-Match` and `wait` as for the snapshot."""
    ends, watch = time.monotonic() + wait, service.callers_watch
    while True:
        found, trace = await run_in_threadpool(_callers_in_force, service.database)
        left = ends - time.monotonic()
        if left <= 0 or watch.is_closed or not is_listed(etag_of(found), if_none_match):
            return json_answer(found, if_none_match)
        await watch.wait(trace, left)
