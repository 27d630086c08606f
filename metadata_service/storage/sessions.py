"""Sessions of signed-in persons, and links that sign in once, in the database: they survive a restart, and
all processes share them.

Ids and codes are kept as digests. From the id of a session come, by a keyed hash each, the secret of its
forms and the key by which the pages ask the profile service in the person's name; neither is kept. Each use
of a session looks its owner up again: with the token it ends at once.
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Select, and_, delete, func, or_, select
from sqlalchemy.orm import Session as Reading

from idgraph.model.callers import SESSION_PREFIX, Caller, token_digest
from metadata_service.storage.database import Database
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import SessionRow, TokenRow, UserRow
from metadata_service.storage.tokens import CALLING, TokenRecord, is_live, live, token_record, user_record

LONGEST = timedelta(hours=12)
IDLE = timedelta(minutes=30)
LINK = timedelta(minutes=10)
NOTED = timedelta(minutes=1)
"""So exactly it is kept when a session was used last."""


@dataclass(frozen=True)
class Session:
    """One signed-in person. `csrf` is in every form; `profiles_token` is what the profile service is asked with, None where the
    role reads no profiles."""

    caller: TokenRecord
    csrf: str
    profiles_token: str | None

    def __repr__(self) -> str:
        return f"Session({self.caller.name!r})"


class SignInSessions:
    """All sessions. Safe for several threads; every method blocks, and raises SQLAlchemyError."""

    def __init__(self, database: Database, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._database = database
        self._clock = clock

    def begin(self, token: str) -> str | None:
        """The id of a new session; None for a token that is unknown, revoked or expired, or a person's key: who has one signs
        in as the person."""
        if not self._finds(live(self._clock()).where(TokenRow.digest == token_digest(token))):
            return None
        with self._database.write() as edit:
            row = edit.session.scalar(live(edit.at).where(TokenRow.digest == token_digest(token)))
            return None if row is None or row.owner else self._keep(edit, row.id)

    def begin_for(self, user_id: int) -> str:
        """The id of a new session of a person."""
        with self._database.write() as edit:
            return self._keep(edit, None, user_id)

    def find(self, session_id: str, is_use: bool = True) -> Session | None:
        """None for one that ended. One that is looked at and not used ends when nobody uses it."""
        now = self._clock()
        with self._database.read() as session:
            query = _living(now).where(SessionRow.digest == token_digest(session_id))
            found = session.execute(query).one_or_none()
        if found is None:
            return None
        row, token, user = found
        if is_use and now - row.used > NOTED:
            with self._database.write() as edit:
                used = edit.session.get(SessionRow, row.digest)
                if used is not None:
                    used.used = now
        caller = _who(token, user)
        key = _caller_key(session_id, row.began) if caller.role in CALLING else None
        return Session(caller, _derived(session_id, "csrf"), key)

    def end(self, session_id: str) -> None:
        """Sign out."""
        if not self._finds(select(SessionRow).where(SessionRow.digest == token_digest(session_id))):
            return
        with self._database.write() as edit:
            edit.session.execute(delete(SessionRow).where(SessionRow.digest == token_digest(session_id)))

    def make_link_code(self, token: str) -> str | None:
        """A code that signs in once, within minutes; None for a token that is not in use."""
        with self._database.write() as edit:
            row = edit.session.scalar(live(edit.at).where(TokenRow.digest == token_digest(token)))
            return None if row is None else self._keep(edit, row.id, is_link=True)

    def begin_by_code(self, code: str) -> str | None:
        """The id of a new session; None for a code that is unknown, used or too old."""
        if not self._finds(select(SessionRow).where(SessionRow.digest == token_digest(code))):
            return None
        with self._database.write() as edit:
            query = _living(self._clock(), is_link=True).where(SessionRow.digest == token_digest(code))
            found = edit.session.execute(query).one_or_none()
            if found is None:
                return None
            edit.session.delete(found[0])
            return self._keep(edit, found[0].token_id)

    def _finds(self, query: Select[Any]) -> bool:
        # Mere tries make no other writer wait.
        with self._database.read() as session:
            return session.execute(query.limit(1)).first() is not None

    def _keep(
        self, edit: Edit, token_id: int | None, user_id: int | None = None, is_link: bool = False
    ) -> str:
        session_id, now = secrets.token_urlsafe(32), self._clock()
        over = or_(SessionRow.began < now - LONGEST, SessionRow.used < now - IDLE)
        edit.session.execute(delete(SessionRow).where(over))
        edit.session.add(
            SessionRow(
                digest=token_digest(session_id),
                caller_digest=token_digest(_caller_key(session_id, now)),
                token_id=token_id,
                user_id=user_id,
                began=now,
                used=now,
                is_link=is_link,
            )
        )
        return session_id


def end_sessions(edit: Edit, user_id: int) -> None:
    """Sign a person out everywhere."""
    edit.session.execute(delete(SessionRow).where(SessionRow.user_id == user_id))


def session_callers(reading: Reading) -> list[Caller]:
    """Persons who may call the profile service by a session now."""
    found = [
        who.caller(row.caller_digest, min(row.began + LONGEST, row.used + IDLE))
        for row, token, user in reading.execute(_living(datetime.now(UTC)))
        if (who := _who(token, user)).role in CALLING
    ]
    return sorted(found, key=lambda each: (each.name, each.digest))


def trace_of_sessions(reading: Reading) -> str:
    """Another text after each write to a session."""
    [(count, began, used)] = reading.execute(
        select(func.count(), func.max(SessionRow.began), func.max(SessionRow.used))
    )
    return f"{count} {began} {used}"


def _who(token: TokenRow | None, user: UserRow | None) -> TokenRecord:
    if user is not None:
        return user_record(user)
    assert token is not None  # noqa: S101 - one of them is there
    return token_record(token)


def _living(now: datetime, is_link: bool = False) -> Select[SessionRow, TokenRow | None, UserRow | None]:
    """Sessions, or links, with the token or the person behind them."""
    began = now - (LINK if is_link else LONGEST)
    return (
        select(SessionRow, TokenRow, UserRow)
        .outerjoin(TokenRow, TokenRow.id == SessionRow.token_id)
        .outerjoin(UserRow, UserRow.id == SessionRow.user_id)
        .where(
            or_(
                and_(TokenRow.id.is_not(None), is_live(now)),
                and_(UserRow.id.is_not(None), UserRow.disabled.is_(None)),
            )
        )
        .where(SessionRow.is_link.is_(is_link), SessionRow.began > began, SessionRow.used > now - IDLE)
    )


def _derived(session_id: str, purpose: str) -> str:
    mac = hmac.digest(session_id.encode("utf-8", "surrogatepass"), purpose.encode(), "sha256")
    return urlsafe_b64encode(mac).decode().rstrip("=")


def _caller_key(session_id: str, began: datetime) -> str:
    return f"{SESSION_PREFIX}{int(began.timestamp())}_{_derived(session_id, 'profile service')}"
