"""Bearer tokens. Only their SHA-256 is stored: the plaintext is shown once, to who creates the token."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import Select, or_, select

from idgraph.web.refusals import ClashError, RefusedRequestError, UnknownSubjectError
from metadata_service.storage.database import Database
from metadata_service.storage.tables import TokenRow

MIN_LENGTH = 20


class Role(StrEnum):
    """`reader` may GET, `pipeline` also PATCH the schema, `admin` everything."""

    READER = "reader"
    PIPELINE = "pipeline"
    ADMIN = "admin"


class TokenRecord(NamedTuple):
    """The record of a token."""

    name: str
    role: Role
    created: datetime
    expires: datetime | None
    revoked: datetime | None


def create_token(
    database: Database,
    name: str,
    role: Role,
    plaintext: str | None = None,
    lifetime: timedelta | None = None,
) -> str:
    """Create a token and give its plaintext, which cannot be had again.

    A caller may supply the plaintext; doing so again for the same name and role has no effect. Raises
    RefusedError for a plaintext that is too weak, ClashError when the name or the plaintext is in use.
    """
    if plaintext is None:
        plaintext = "idg_" + secrets.token_urlsafe(32)
    elif (
        len(plaintext) < MIN_LENGTH
        or not plaintext.isascii()
        or not plaintext.isprintable()
        or " " in plaintext
    ):
        raise RefusedRequestError(f"a token has at least {MIN_LENGTH} visible ASCII characters")
    if not name:
        raise RefusedRequestError("a token has a name")
    with database.write() as edit:
        same = edit.session.scalar(select(TokenRow).where(TokenRow.digest == _digest(plaintext)))
        if same is not None:
            expired = same.expires is not None and same.expires <= edit.at
            if (same.name, same.role) == (name, role) and same.revoked is None and not expired:
                return plaintext
            raise ClashError("this token exists already: with another name or role, revoked, or expired")
        if edit.session.scalar(_live(edit.at).where(TokenRow.name == name)) is not None:
            raise ClashError(f"a token named {name} exists; revoke it or choose another name")
        edit.session.add(
            TokenRow(
                name=name,
                role=role,
                digest=_digest(plaintext),
                created=edit.at,
                expires=edit.at + lifetime if lifetime else None,
            )
        )
    return plaintext


def list_tokens(database: Database) -> list[TokenRecord]:
    """All tokens, revoked and expired ones too, the oldest first."""
    with database.read() as session:
        rows = session.scalars(select(TokenRow).order_by(TokenRow.id))
        return [TokenRecord(row.name, Role(row.role), row.created, row.expires, row.revoked) for row in rows]


def revoke_token(database: Database, name: str) -> None:
    """The token of this name is refused from now on. Raises UnknownSubjectError if none is in use."""
    with database.write() as edit:
        row = edit.session.scalar(_live(edit.at).where(TokenRow.name == name))
        if row is None:
            raise UnknownSubjectError(f"no token named {name} is in use")
        row.revoked = edit.at


def authenticate(database: Database, plaintext: str) -> TokenRecord | None:
    """Whose token this is; None if it is unknown, revoked or expired."""
    digest = _digest(plaintext)
    with database.read() as session:
        # All are compared, in constant time each, so that timing reports nothing of any digest.
        found = None
        for row in session.scalars(_live(datetime.now(UTC))):
            if hmac.compare_digest(row.digest, digest):
                found = TokenRecord(row.name, Role(row.role), row.created, row.expires, row.revoked)
        return found


def _live(now: datetime) -> Select[TokenRow]:
    return select(TokenRow).where(
        TokenRow.revoked.is_(None), or_(TokenRow.expires.is_(None), TokenRow.expires > now)
    )


def _digest(plaintext: str) -> str:
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).hexdigest()
