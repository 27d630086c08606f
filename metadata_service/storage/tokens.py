"""Bearer tokens. Only their SHA-256 is stored: the plaintext is shown once, to who creates the token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, and_, or_, select
from sqlalchemy.orm import Session

from idgraph.model.callers import PEOPLE, SCOPES, Caller, Scope, token_digest
from idgraph.model.callers import Role as Role  # noqa: PLC0414 - who asks for a token asks for its role
from idgraph.web.refusals import ClashError, RefusedRequestError, UnknownSubjectError
from metadata_service.storage.database import Database
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import TokenRow

LIFETIME = timedelta(days=365)
ADMIN_LIFETIME = timedelta(days=90)
CALLING = (*PEOPLE, Role.PROFILES)
"""Roles that call the profile service."""


class TokenRecord(NamedTuple):
    """The record of a token. `clearance` (0 to 100) and `may_reveal` are of those who read profiles: attributes of at most
    this authorization level, and whether protected ones may be opened; so are `scopes`, besides those of the role."""

    name: str
    role: Role
    created: datetime
    expires: datetime | None
    revoked: datetime | None
    clearance: int = 0
    may_reveal: bool = False
    scopes: str = ""

    def caller(self, digest: str, expires: datetime | None) -> Caller:
        """As the profile service knows it."""
        return Caller(
            name=self.name,
            digest=digest,
            expires=expires,
            clearance=self.clearance,
            may_reveal=self.may_reveal,
            scopes=frozenset(map(Scope, self.scopes.split())) | SCOPES.get(self.role, frozenset()),
        )


def create_token(
    database: Database,
    name: str,
    role: Role,
    lifetime: timedelta | None = None,
    clearance: int = 0,
    may_reveal: bool = False,
    scopes: Collection[Scope] = (),
    actor: str = "",
) -> str:
    """Create a token and give its plaintext, which cannot be had again. Nobody chooses one: it has 256 random bits.

    Without a lifetime it is that of the role. Raises RefusedRequestError for rights over profiles with a role that reads
    none; ClashError when the name is in use.
    """
    with database.write(actor) as edit:
        return add_token(edit, name, role, lifetime, clearance, may_reveal, scopes)


def add_token(
    edit: Edit,
    name: str,
    role: Role,
    lifetime: timedelta | None = None,
    clearance: int = 0,
    may_reveal: bool = False,
    scopes: Collection[Scope] = (),
) -> str:
    """`create_token` as a part of an edit."""
    if not name:
        raise RefusedRequestError("a token has a name")
    if role not in CALLING and (clearance or may_reveal or scopes):
        raise RefusedRequestError(f"the role {role} reads no profiles: it has no clearance, reveal or scopes")
    if not 0 <= clearance <= 100:
        raise RefusedRequestError("a clearance is between 0 and 100")
    if is_in_use(edit, name):
        raise ClashError(f"a token named {name} exists; revoke it or choose another name")
    plaintext = "idg_" + secrets.token_urlsafe(32)
    edit.session.add(
        TokenRow(
            name=name,
            role=role,
            digest=token_digest(plaintext),
            created=edit.at,
            expires=edit.at + (lifetime or (ADMIN_LIFETIME if role is Role.ADMIN else LIFETIME)),
            clearance=clearance,
            may_reveal=may_reveal,
            scopes=" ".join(sorted(scopes)),
        )
    )
    edit.record("token", name, None, "made")
    return plaintext


def is_in_use(edit: Edit, name: str) -> bool:
    """Whether a token of this name is neither revoked nor expired."""
    return edit.session.scalar(live(edit.at).where(TokenRow.name == name)) is not None


def has_tokens(edit: Edit) -> bool:
    """Whether there ever was a token."""
    return edit.session.scalar(select(TokenRow.id).limit(1)) is not None


def list_tokens(database: Database) -> list[TokenRecord]:
    """All tokens, revoked and expired ones too, the oldest first."""
    with database.read() as session:
        rows = session.scalars(select(TokenRow).order_by(TokenRow.id))
        return [token_record(row) for row in rows]


def list_callers(database: Database) -> list[Caller]:
    """Whoever may call the profile service by a token now, by name."""
    with database.read() as session:
        return callers_in(session)


def callers_in(session: Session) -> list[Caller]:
    """The same, as a session sees it."""
    query = live(datetime.now(UTC)).where(TokenRow.role.in_(CALLING)).order_by(TokenRow.name)
    return [token_record(row).caller(row.digest, row.expires) for row in session.scalars(query)]


def revoke_token(database: Database, name: str, actor: str = "") -> None:
    """The token of this name is refused from now on. Raises UnknownSubjectError if none is in use."""
    with database.write(actor) as edit:
        row = edit.session.scalar(live(edit.at).where(TokenRow.name == name))
        if row is None:
            raise UnknownSubjectError(f"no token named {name} is in use")
        row.revoked = edit.at
        edit.record("token", name, None, "revoked")


def authenticate(database: Database, plaintext: str) -> TokenRecord | None:
    """Whose token this is; None if it is unknown, revoked or expired."""
    digest = token_digest(plaintext)
    with database.read() as session:
        # All are compared, in constant time each, so that timing reports nothing of any digest.
        found = None
        for row in session.scalars(live(datetime.now(UTC))):
            if hmac.compare_digest(row.digest, digest):
                found = token_record(row)
        return found


def token_record(row: TokenRow) -> TokenRecord:
    """What is known of it."""
    dates = (row.created, row.expires, row.revoked)
    return TokenRecord(row.name, Role(row.role), *dates, row.clearance, row.may_reveal, row.scopes)


def live(now: datetime) -> Select[TokenRow]:
    """Tokens that are neither revoked nor expired."""
    return select(TokenRow).where(is_live(now))


def is_live(now: datetime) -> ColumnElement[bool]:
    """Whether a token is neither revoked nor expired."""
    return and_(TokenRow.revoked.is_(None), or_(TokenRow.expires.is_(None), TokenRow.expires > now))
