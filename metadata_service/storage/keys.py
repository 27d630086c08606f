"""API keys that people make for themselves and for the machines they run: tokens that are never more than who made them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.model.callers import Role, Scope, token_digest
from idgraph.model.documents import StrictDocument
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import ForbiddenError, UnknownSubjectError
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import TokenRow
from metadata_service.storage.tokens import (
    GIVES,
    TokenRecord,
    add_token,
    is_live,
    new_token,
    person_of,
    require_within,
)
from metadata_service.storage.versions import paged


class NewKey(StrictDocument):
    """The rights of a key."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,63}$")
    role: Role
    clearance: int = Field(default=0, ge=0, le=100)
    may_reveal: bool = False
    scopes: frozenset[Scope] = Field(
        default=frozenset(), description="Rights in the profile service, besides those of the role."
    )
    days: int = Field(default=90, ge=1, le=365, description="Days until it expires.")


class KeyRecord(BaseModel):
    """A key; never the key itself."""

    id: int
    name: str
    owner: str = Field(description="The caller who made it; empty for tokens of the command line.")
    role: Role
    clearance: int
    may_reveal: bool
    scopes: list[Scope]
    created: datetime
    expires: datetime | None


class MadeKey(BaseModel):
    """A key with its plaintext, which is shown this once."""

    key: KeyRecord
    token: str


def make_key(edit: Edit, caller: TokenRecord, wanted: NewKey) -> MadeKey:
    """Raises ForbiddenError for more than the caller has, ClashError."""
    rights = (wanted.clearance, wanted.may_reveal, wanted.scopes)
    _require_rights(caller, wanted.role, *rights)
    lifetime = timedelta(days=wanted.days)
    owner = person_of(caller.name)
    token = add_token(edit, wanted.name, wanted.role, lifetime, *rights, owner=owner)
    edit.session.flush()
    row = edit.session.scalars(select(TokenRow).where(TokenRow.digest == token_digest(token))).one()
    return MadeKey(key=_record(row), token=token)


def rotate_key(edit: Edit, caller: TokenRecord, number: int) -> MadeKey:
    """The same key with another secret, for as long as the one before had; that one ends at once. For its owner alone,
    who may call by a lesser key. Raises ForbiddenError for a key with more than the caller has, UnknownSubjectError."""
    row = _find(edit, number, {person_of(caller.name)})
    _require_rights(caller, Role(row.role), row.clearance, row.may_reveal, frozenset(_record(row).scopes))
    token = new_token()
    lasted = (row.expires or edit.at) - row.created
    row.digest, row.created, row.expires = token_digest(token), edit.at, edit.at + lasted
    edit.record("token", row.name, None, "reset")
    return MadeKey(key=_record(row), token=token)


def revoke_key(edit: Edit, caller: TokenRecord, number: int) -> None:
    """Revoke one's own key; an admin revokes any. Raises UnknownSubjectError."""
    row = _find(edit, number, None if caller.role is Role.ADMIN else {person_of(caller.name)})
    row.revoked = edit.at
    edit.record("token", row.name, None, "revoked")


def list_keys(
    session: Session, caller: TokenRecord, wanted: PageRequest, now: datetime, q: str = ""
) -> ListPage[KeyRecord]:
    """Keys in use, the newest first: one's own; all, with the tokens of machines, for admins and privacy officers."""
    query = paged(select(TokenRow).where(is_live(now)), TokenRow.id, wanted, is_reversed=True)
    if caller.role not in (Role.ADMIN, Role.PRIVACY):
        query = query.where(TokenRow.owner == person_of(caller.name))
    if q:
        query = query.where(TokenRow.name.icontains(q, autoescape=True))
    return wanted.page(map(_record, session.scalars(query)), lambda each: each.id)


def _require_rights(
    caller: TokenRecord, role: Role, clearance: int, may_reveal: bool, scopes: frozenset[Scope]
) -> None:
    if role not in GIVES[caller.role]:
        raise ForbiddenError(f"the role {caller.role} makes no keys of the role {role}")
    require_within(caller, clearance, may_reveal, scopes)


def _find(edit: Edit, number: int, owners: Collection[str] | None) -> TokenRow:
    row = edit.session.scalar(select(TokenRow).where(is_live(edit.at), TokenRow.id == number))
    if row is None or (owners is not None and row.owner not in owners):
        raise UnknownSubjectError("no key of yours with this number is in use")
    return row


def _record(row: TokenRow) -> KeyRecord:
    stated = {each: getattr(row, each) for each in KeyRecord.model_fields}
    return KeyRecord.model_validate(stated | {"scopes": row.scopes.split()})
