"""Persons: what they may do, and who counts as whom."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field, field_serializer
from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.model.callers import SCOPES, CallerRights, KnownPerson, Role, Scope, lesser_role, token_digest
from idgraph.model.documents import StrictDocument
from idgraph.web.conditional import Check, etag_of
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.openid import Identity
from idgraph.web.refusals import ClashError, RefusedRequestError, SamePersonError, UnknownSubjectError
from metadata_service.storage.database import Database
from metadata_service.storage.edits import Edit
from metadata_service.storage.passwords import is_slowed, new_password
from metadata_service.storage.sessions import end_sessions
from metadata_service.storage.tables import TokenRow, UserRow
from metadata_service.storage.tokens import live, person_of, was_used
from metadata_service.storage.versions import paged

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$"
DECIDING = (Role.ADMIN, Role.PRIVACY)
"""Roles that approve what weakens protection."""
MOST_COMPARED = 200
SECOND = 2
PersonRole = Literal[Role.VIEWER, Role.ANALYST, Role.PUBLISHER, Role.ADMIN, Role.PRIVACY]


class PersonRights(StrictDocument):
    """The rights of a person, in both services."""

    role: PersonRole
    clearance: int = Field(default=0, ge=0, le=100, description="The highest authorization level they read.")
    may_reveal: bool = Field(default=False, description="Whether they may open protected values.")
    scopes: frozenset[Scope] = Field(
        default=frozenset(), description="Rights in the profile service, besides those of the role."
    )

    @field_serializer("scopes")
    def _in_order(self, scopes: frozenset[Scope]) -> list[Scope]:
        return sorted(scopes)

    @property
    def all_scopes(self) -> frozenset[Scope]:
        """With those of the role."""
        return self.scopes | SCOPES.get(self.role, frozenset())


class UserRecord(PersonRights):
    """A person, as lists show them."""

    name: str
    sign_in: Literal["password", "single sign-on"]
    created: datetime
    seen: datetime | None = Field(description="Time of the last sign-in.")
    disabled: datetime | None
    is_locked: bool = Field(
        description="Whether too many wrong passwords were tried lately; tries from the same addresses are slowed."
    )
    made_by: list[str] = Field(
        description="The accounts that made this one or its password over HTTP. It counts as each of them in approvals, "
        "until somebody else confirms it."
    )
    confirmed_by: str | None = Field(
        description="The account that confirmed, since the last of these, that it belongs to a person of its own."
    )

    @property
    def counts_as(self) -> list[str]:
        """The accounts that it counts as, besides itself."""
        return [] if self.confirmed_by else self.made_by

    bound: PersonRights | None = Field(
        default=None,
        description="With single sign-on: the rights that an admin decided. The user has the rights that both this and the claims give.",
    )

    def etag(self) -> str:
        """The ETag of the content that an admin decides."""
        return etag_of(self.content())

    def content(self) -> str:
        """The user as JSON, without the fields that change by themselves."""
        return self.model_dump_json(exclude={"seen", "is_locked"})


def add_user(edit: Edit, name: str, rights: PersonRights, made_by: str = "") -> str:
    """Make an account and give its first password. Raises ClashError."""
    row = UserRow(name=name, created=edit.at, tries=0, made_by=person_of(made_by))
    if _is_taken(edit, name):
        raise ClashError(f"a person or token named {name} exists, or existed; choose another name")
    _give(row, rights)
    password = new_password(row)
    edit.session.add(row)
    edit.record("user", name, None, "made")
    return password


def change_user(
    edit: Edit,
    name: str,
    rights: PersonRights | None,
    is_disabled: bool | None,
    check: Check = lambda _: None,
) -> UserRow:
    """Other rights, at once; who has them by an issuer's claims gets no more than those. Disabled ones are signed out
    and their keys refused. `check` gets what is there. Raises UnknownSubjectError, PreconditionError."""
    row = get_user(edit.session, name)
    check(record_of(row).content())
    if rights is not None:
        if row.identity is None:
            _give(row, rights)
        else:
            now = _rights_of(row)
            row.bound = rights.model_dump_json()
            _give(row, _within(now, rights))
        edit.record("user", name, None, "saved")
    if is_disabled is not None:
        row.disabled = (row.disabled or edit.at) if is_disabled else None
        edit.record("user", name, None, "disabled" if is_disabled else "saved")
        if is_disabled:
            end_sessions(edit, row.id)
    return row


def reset_password(edit: Edit, name: str, made_by: str = "") -> str:
    """A new password, at which nobody tried yet; all sessions end. Raises UnknownSubjectError, RefusedRequestError."""
    row = get_user(edit.session, name)
    if row.identity is not None:
        raise RefusedRequestError(f"{name} signs in by single sign-on, and has no password here")
    end_sessions(edit, row.id)
    if made_by:
        row.made_by = "\n".join(sorted({*_makers(row), person_of(made_by)}))
        row.confirmed_by = ""
    row.tries = 0
    edit.record("user", name, None, "reset")
    return new_password(row)


def admit(database: Database, found: Identity, is_signing_in: bool = False) -> UserRow | None:
    """The person that an issuer names, with the present rights: those of the claims, but no more than an admin decided;
    None for an account that is disabled. At the first time an account is made, whose name stays. Raises ClashError for
    a name that somebody else has."""
    claimed = PersonRights.model_validate(found.rule, from_attributes=True)
    query = select(UserRow).where(UserRow.identity == found.key)
    with database.read() as session:
        row = session.scalar(query)
    if row is None or is_signing_in or _rights_of(row) != _bounded(row, claimed):
        with database.write(f"sso:{found.subject}", "by the claims of the issuer") as edit:
            row = edit.session.scalar(query)
            is_new = row is None
            if row is None:
                name = next(
                    (each for each in (found.name, found.subject) if re.fullmatch(NAME_PATTERN, each)), ""
                )
                if not name or _is_taken(edit, name):
                    raise ClashError(
                        f"the name {name or 'of this account'} cannot be used here, or is somebody else's"
                    )
                row = UserRow(name=name, identity=found.key, created=edit.at, tries=0)
                edit.session.add(row)
            rights = _bounded(row, claimed)
            if is_new or _rights_of(row) != rights:
                _give(row, rights)
                edit.record("user", row.name, None, "made" if is_new else "saved")
            row.seen = edit.at if is_signing_in else row.seen
    return None if row.disabled else row


def known_people(session: Session) -> list[KnownPerson]:
    """Persons who signed in by an issuer, by name."""
    rows = session.scalars(select(UserRow).where(UserRow.identity.is_not(None)).order_by(UserRow.name))
    return [
        KnownPerson(
            identity=token_digest(row.identity or ""),
            name=row.name,
            is_disabled=row.disabled is not None,
            bound=None if bound is None else CallerRights(**dict(bound) | {"scopes": bound.all_scopes}),
        )
        for row in rows
        for bound in [_bound_of(row)]
    ]


def get_user(session: Session, name: str) -> UserRow:
    """Raises UnknownSubjectError."""
    row = session.scalar(select(UserRow).where(UserRow.name == name))
    if row is None:
        raise UnknownSubjectError(f"there is no person named {name}; `idgraph users list` shows all")
    return row


def list_users(
    session: Session, wanted: PageRequest, q: str = "", role: Role | None = None
) -> ListPage[UserRecord]:
    """Persons by name."""
    query = paged(select(UserRow), UserRow.name, wanted)
    if q:
        query = query.where(UserRow.name.icontains(q, autoescape=True))
    if role is not None:
        query = query.where(UserRow.role == role)
    return wanted.page(map(record_of, session.scalars(query)), lambda each: each.name)


def record_of(row: UserRow) -> UserRecord:
    """As lists show a person."""
    return UserRecord(
        **dict(_rights_of(row)),
        **{each: getattr(row, each) for each in ("name", "created", "seen", "disabled")},
        sign_in="password" if row.identity is None else "single sign-on",
        is_locked=is_slowed(row, datetime.now(UTC)),
        bound=_bound_of(row),
        made_by=_makers(row),
        confirmed_by=row.confirmed_by or None,
    )


def _makers(row: UserRow) -> list[str]:
    return [each for each in row.made_by.split("\n") if each]


def confirm_user(edit: Edit, name: str, by: str = "") -> UserRow:
    """Say that an account belongs to a person of its own: it no longer counts as its maker. Without `by` the holder of the
    database says so. Raises UnknownSubjectError, SamePersonError for somebody who counts as the same person."""
    row = get_user(edit.session, name)
    if by and are_one_person(edit.session, by, name):
        raise SamePersonError(
            f"{name} counts as the same person as you; somebody whose account neither of you made can confirm it, or "
            f"run `idgraph users confirm {name}` on the machine of the service"
        )
    if _makers(row) and not row.confirmed_by:
        row.confirmed_by = person_of(by or edit.actor)
        edit.record("user", name, None, "confirmed")
    return row


def are_one_person(session: Session, one: str, other: str) -> bool:
    """Whether two names of the history may be the same person. An account counts as whoever made it or reset its
    password over HTTP, and as who did so with that one's, until another person confirmed it. So two that one admin made
    are one."""
    return not _counts_as(session, person_of(one)).isdisjoint(_counts_as(session, person_of(other)))


def count_deciding(session: Session) -> int:
    """The number of persons who can decide on weakened protection: one for each group of accounts and admin tokens
    that count as one, at most as many as matter."""
    accounts = select(UserRow.name).where(UserRow.role.in_(DECIDING), UserRow.disabled.is_(None))
    tokens = live(datetime.now(UTC)).where(TokenRow.role.in_(DECIDING))
    names = {*session.scalars(accounts.limit(MOST_COMPARED))}
    names |= {person_of(each.name) for each in session.scalars(tokens.limit(MOST_COMPARED))}
    apart: list[set[str]] = []
    for name in sorted(names):
        own = _counts_as(session, name)
        if all(own.isdisjoint(each) for each in apart):
            apart.append(own)
        if len(apart) == SECOND:
            break
    return len(apart)


def _counts_as(session: Session, name: str) -> set[str]:
    found, waiting = set[str](), {name}
    while waiting:
        found |= waiting
        unconfirmed = select(UserRow).where(UserRow.name.in_(waiting), UserRow.confirmed_by == "")
        waiting = {each for row in session.scalars(unconfirmed) for each in _makers(row)} - found
    return found


def _is_taken(edit: Edit, name: str) -> bool:
    known = edit.session.scalar(select(UserRow.id).where(UserRow.name == name))
    return known is not None or was_used(edit, name)


def _bound_of(row: UserRow) -> PersonRights | None:
    return PersonRights.model_validate_json(row.bound) if row.bound else None


def _bounded(row: UserRow, claimed: PersonRights) -> PersonRights:
    bound = _bound_of(row)
    return claimed if bound is None else _within(claimed, bound)


def _within(rights: PersonRights, bound: PersonRights) -> PersonRights:
    """The rights that both give."""
    return PersonRights.model_validate(
        {
            "role": lesser_role(rights.role, bound.role),
            "clearance": min(rights.clearance, bound.clearance),
            "may_reveal": rights.may_reveal and bound.may_reveal,
            "scopes": rights.all_scopes & bound.all_scopes,
        }
    )


def _rights_of(row: UserRow) -> PersonRights:
    stated = {each: getattr(row, each) for each in ("role", "clearance", "may_reveal")}
    return PersonRights.model_validate(stated | {"scopes": row.scopes.split()})


def _give(row: UserRow, rights: PersonRights) -> None:
    row.role, row.clearance, row.may_reveal = rights.role, rights.clearance, rights.may_reveal
    row.scopes = " ".join(sorted(rights.scopes))
