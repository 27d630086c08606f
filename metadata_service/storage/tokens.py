"""Bearer tokens. Only their SHA-256 is stored: the plaintext is shown once, to who creates the token."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy import BindParameter, ColumnElement, Select, and_, bindparam, or_, select
from sqlalchemy.orm import Session, aliased

from idgraph.model.callers import PEOPLE, SCOPES, Caller, Scope, token_digest
from idgraph.model.callers import Role as Role  # noqa: PLC0414 - who asks for a token asks for its role
from idgraph.web.refusals import ClashError, ForbiddenError, RefusedRequestError, UnknownSubjectError
from metadata_service.storage.database import Database
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import TokenRow, UserRow

LIFETIME = timedelta(days=365)
ADMIN_LIFETIME = timedelta(days=90)
CALLING = (*PEOPLE, Role.PROFILES)
"""Roles that call the profile service."""
_READING = {Role.VIEWER, Role.READER, Role.PROFILES}
GIVES: Mapping[Role, frozenset[Role]] = {
    Role.VIEWER: frozenset(_READING),
    Role.ANALYST: frozenset(_READING | {Role.ANALYST}),
    Role.PUBLISHER: frozenset(_READING | {Role.ANALYST, Role.PUBLISHER}),
    Role.ADMIN: frozenset(set(Role) - {Role.PRIVACY}),
    Role.PRIVACY: frozenset(_READING | {Role.PRIVACY}),
}
"""Roles of the keys that a person of each role makes."""
_MAKER = aliased(TokenRow)
Moment = datetime | BindParameter[datetime]


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

    @property
    def all_scopes(self) -> frozenset[Scope]:
        """With those of the role."""
        return frozenset(map(Scope, self.scopes.split())) | SCOPES.get(self.role, frozenset())

    def caller(self, digest: str, expires: datetime | None) -> Caller:
        """As the profile service knows it."""
        return Caller(
            name=self.name,
            digest=digest,
            expires=expires,
            clearance=self.clearance,
            may_reveal=self.may_reveal,
            scopes=self.all_scopes,
        )


def add_token(
    edit: Edit,
    name: str,
    role: Role,
    lifetime: timedelta | None = None,
    clearance: int = 0,
    may_reveal: bool = False,
    scopes: Collection[Scope] = (),
    owner: str = "",
) -> str:
    """Make a token, of an `owner` a key for themselves, and give its plaintext, which cannot be had again. Nobody chooses one: it
    has 256 random bits.

    Without a lifetime it is that of the role. Raises RefusedRequestError for rights over profiles with a role that reads
    none; ClashError when the name is in use.
    """
    if not name or "/" in name:
        raise RefusedRequestError("a token has a name, without a slash: before one stands the owner of a key")
    name = f"{owner}/{name}" if owner else name
    if role not in CALLING and (clearance or may_reveal or scopes):
        raise RefusedRequestError(f"the role {role} reads no profiles: it has no clearance, reveal or scopes")
    if not 0 <= clearance <= 100:
        raise RefusedRequestError("a clearance is between 0 and 100")
    if is_in_use(edit, name) or edit.session.scalar(select(UserRow.id).where(UserRow.name == name)):
        raise ClashError(f"a token or person named {name} exists; revoke it or choose another name")
    plaintext = new_token()
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
            owner=owner,
        )
    )
    edit.record("token", name, None, "made")
    return plaintext


def is_in_use(edit: Edit, name: str) -> bool:
    """Whether a token of this name is neither revoked nor expired."""
    return edit.session.scalar(live(edit.at).where(TokenRow.name == name)) is not None


def was_used(edit: Edit, name: str) -> bool:
    """Whether there ever was a token of this name, or a key of somebody of this name. Jobs, downloads and grants belong to names:
    no person gets one that was somebody else's."""
    query = select(TokenRow.id).where(or_(TokenRow.name == name, TokenRow.owner == name))
    return edit.session.scalar(query.limit(1)) is not None


def has_tokens(edit: Edit) -> bool:
    """Whether there ever was a token."""
    return edit.session.scalar(select(TokenRow.id).limit(1)) is not None


def list_tokens(database: Database) -> list[TokenRecord]:
    """All tokens, revoked and expired ones too, the oldest first."""
    with database.read() as session:
        rows = session.scalars(select(TokenRow).order_by(TokenRow.id))
        return [token_record(row) for row in rows]


def callers_in(session: Session) -> list[Caller]:
    """Callers who may call the profile service by a token now, by name."""
    query = _owned(datetime.now(UTC)).where(TokenRow.role.in_(CALLING)).order_by(TokenRow.name)
    found = ((row, in_force(row, owner, maker)) for row, owner, maker in session.execute(query))
    return [record.caller(row.digest, row.expires) for row, record in found if record is not None]


def revoke_token(database: Database, name: str, actor: str = "") -> None:
    """The token of this name is refused from now on. Raises UnknownSubjectError if none is in use."""
    with database.write(actor) as edit:
        row = edit.session.scalar(live(edit.at).where(TokenRow.name == name))
        if row is None:
            raise UnknownSubjectError(f"no token named {name} is in use")
        row.revoked = edit.at
        edit.record("token", name, None, "revoked")


def authenticate(database: Database, plaintext: str) -> TokenRecord | None:
    """The owner of a token; None if it is unknown, revoked or expired."""
    digest = token_digest(plaintext)
    with database.read() as session:
        # All are compared, in constant time each, so that timing reveals nothing of any digest.
        found = None
        for row, owner, maker in session.execute(_OWNED, {"now": datetime.now(UTC)}):
            if hmac.compare_digest(row.digest, digest):
                found = in_force(row, owner, maker)
        return found


def new_token() -> str:
    """The plaintext of a token."""
    return "idg_" + secrets.token_urlsafe(32)


def require_within(caller: TokenRecord, clearance: int, may_reveal: bool, scopes: Collection[Scope]) -> None:
    """Nobody gives more than they have. Raises ForbiddenError."""
    missing = set(scopes) - caller.all_scopes
    if clearance > caller.clearance or (may_reveal and not caller.may_reveal) or missing:
        raise ForbiddenError(
            f"this is more than you have (clearance {caller.clearance}, reveal {'yes' if caller.may_reveal else 'no'}, scopes "
            f"{', '.join(sorted(caller.all_scopes)) or 'none'}); ask somebody who has these rights, or run `idgraph users` on the machine of the service"
        )


def person_of(name: str) -> str:
    """The person behind a token or a key: `ann` behind `ann/laptop`."""
    return name.partition("/")[0]


def in_force(row: TokenRow, owner: UserRow | None, maker: TokenRow | None) -> TokenRecord | None:
    """A token as it may be used: a key with no more than the person or the token that made it has now, and not after them. One
    of the flow or of the profile service lives on."""
    record = token_record(row)
    if not row.owner or record.role in (Role.PIPELINE, Role.SERVICE):
        return record
    if owner is not None:
        giver = None if owner.disabled else user_record(owner)
    else:
        giver = None if maker is None else token_record(maker)
    if giver is None or record.role not in GIVES.get(giver.role, ()):
        return None
    return record._replace(
        clearance=min(record.clearance, giver.clearance),
        may_reveal=record.may_reveal and giver.may_reveal,
        scopes=" ".join(each for each in record.scopes.split() if Scope(each) in giver.all_scopes),
    )


def user_record(row: UserRow) -> TokenRecord:
    """The record of a person who signed in without a token."""
    dates = (row.created, None, row.disabled)
    return TokenRecord(row.name, Role(row.role), *dates, row.clearance, row.may_reveal, row.scopes)


def _owned(now: Moment) -> Select[TokenRow, UserRow | None, TokenRow | None]:
    """Tokens in use, with the persons or the tokens in use whose keys they are."""
    made_by = and_(_MAKER.name == TokenRow.owner, _MAKER.owner == "", is_live(now, _MAKER))
    return (
        select(TokenRow, UserRow, _MAKER)
        .outerjoin(UserRow, UserRow.name == TokenRow.owner)
        .outerjoin(_MAKER, made_by)
        .where(is_live(now))
    )


def token_record(row: TokenRow) -> TokenRecord:
    """The record of a token."""
    dates = (row.created, row.expires, row.revoked)
    return TokenRecord(row.name, Role(row.role), *dates, row.clearance, row.may_reveal, row.scopes)


def live(now: datetime) -> Select[TokenRow]:
    """Tokens that are neither revoked nor expired."""
    return select(TokenRow).where(is_live(now))


def is_live(now: Moment, row: type[TokenRow] = TokenRow) -> ColumnElement[bool]:
    """Whether a token is neither revoked nor expired."""
    return and_(row.revoked.is_(None), or_(row.expires.is_(None), row.expires > now))


_OWNED = _owned(bindparam("now"))
