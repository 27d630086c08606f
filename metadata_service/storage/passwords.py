"""Signing in by a password: made at random, shown once, changed by its owner; its argon2id hash alone is kept.

The answer to a sign-in does not depend on whether there is such an account. `tries.py` bounds the tries.
"""

from __future__ import annotations

import os
import secrets
from concurrent.futures import Future
from datetime import UTC, datetime

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from sqlalchemy import select

from idgraph.web.refusals import RateError, RefusedRequestError
from metadata_service.storage.database import Database
from metadata_service.storage.sessions import end_sessions
from metadata_service.storage.tables import UserRow
from metadata_service.storage.tries import MOST_TRIES, SLOWED

LEAST_CHARACTERS = 12
MOST_CHARACTERS = 200


def submit_sign_in(database: Database, name: str, password: str, address: str) -> Future[int | None]:
    """`sign_in` in a thread that no other call waits for. Raises RateError."""
    database.tries.take_address(address)
    return database.tries.submit(lambda: sign_in(database, name, password, address))


def sign_in(database: Database, name: str, password: str, address: str = "") -> int | None:
    """The id of the person whose password this is; None for a wrong one, a name that nobody has, and an account that is disabled.
    All take the same time, and a wrong one writes nothing. Raises RateError."""
    with database.read() as session:
        row = session.scalar(select(UserRow).where(UserRow.name == name))
    # With another password, the tries at the one before count no longer.
    account = f"{name[:MOST_CHARACTERS]} {'' if row is None else row.password[-16:]}"
    try:
        database.tries.take(account, address)
    except RateError:
        if row is not None and not is_slowed(row, datetime.now(UTC)):
            with database.write(name, "too many wrong passwords") as edit:
                known = edit.session.get_one(UserRow, row.id)
                known.tries, known.tried = MOST_TRIES, edit.at
                edit.record("user", name, None, "locked")
        raise
    is_right = _is_right(password, row.password if row is not None and row.password else _NOBODY)
    if row is None or not (is_right and row.password) or row.disabled is not None:
        return None
    database.tries.succeed(account, address)
    with database.write() as edit:
        known = edit.session.get_one(UserRow, row.id)
        known.tries, known.seen = 0, edit.at
    return row.id


def change_password(database: Database, name: str, current: str, wanted: str, address: str = "") -> None:
    """A person's own choice; all sessions end. Raises RefusedRequestError, RateError."""
    if not LEAST_CHARACTERS <= len(wanted) <= MOST_CHARACTERS:
        raise RefusedRequestError(f"a password has at least {LEAST_CHARACTERS} characters", "/wanted")
    user_id = sign_in(database, name, current, address)
    if user_id is None:
        raise RefusedRequestError("the current password is wrong", "/current")
    hashed = _hashed(wanted)
    with database.write(name) as edit:
        row = edit.session.get_one(UserRow, user_id)
        row.password = hashed
        end_sessions(edit, row.id)
        edit.record("user", name, None, "saved")


def is_slowed(row: UserRow, now: datetime) -> bool:
    """Whether somebody tried too many wrong passwords lately."""
    return row.tries >= MOST_TRIES and row.tried is not None and row.tried > now - SLOWED


def new_password(row: UserRow) -> str:
    """Another one, which is shown once."""
    password = secrets.token_urlsafe(15)
    row.password = _hashed(password)
    return password


def _hashed(password: str) -> str:
    # The least that OWASP asks for.
    made = Argon2id(salt=os.urandom(16), length=32, iterations=2, lanes=1, memory_cost=19 * 1024)
    return made.derive_phc_encoded(password.encode("utf-8", "surrogatepass"))


def _is_right(password: str, hashed: str) -> bool:
    try:
        Argon2id.verify_phc_encoded(password[:MOST_CHARACTERS].encode("utf-8", "surrogatepass"), hashed)
    except InvalidKey:
        return False
    return True


_NOBODY = "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5bm9ib2R5bm9ibw$" + 43 * "A"
