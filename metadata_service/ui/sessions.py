"""Sessions of signed-in persons, and links that sign in once.

Both are in the memory of one process: a restart signs everybody out, and several processes need a proxy that keeps each
person at one of them. Ids and codes are kept as digests; the token behind a session is kept to act with it, is never
shown, and ends with the session. Whenever a session is used, its token is looked up again: a revoked one is out at once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from idgraph.model.callers import token_digest
from metadata_service.storage.tokens import Role, TokenRecord

LONGEST_SECONDS = 12 * 3600
IDLE_SECONDS = 30 * 60
LINK_SECONDS = 10 * 60
MOST_SESSIONS = 1000
"""Beyond them the one that was not used for longest ends."""


@dataclass(frozen=True)
class Session:
    """One signed-in person. `csrf` is in every form; `profiles_token` is what the profile service is asked with."""

    caller: TokenRecord
    csrf: str
    token: str
    profiles_token: str | None
    began: float

    def __repr__(self) -> str:
        return f"Session({self.caller.name!r})"


class Sessions:
    """All sessions of this process. Safe for several threads."""

    def __init__(
        self,
        authenticate: Callable[[str], TokenRecord | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._authenticate = authenticate
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[str, Session] = {}
        self._used: dict[str, float] = {}
        self._links: dict[str, tuple[str, str | None, float]] = {}

    def begin(self, token: str, profiles_token: str | None = None) -> str | None:
        """The id of a new session; None for a token that is unknown, revoked or expired."""
        caller = self._authenticate(token)
        if caller is None:
            return None
        if caller.role is Role.PROFILES:
            profiles_token = token
        return self._keep(Session(caller, secrets.token_urlsafe(32), token, profiles_token, self._clock()))

    def find(self, session_id: str) -> Session | None:
        """None for one that ended. Blocks; raises SQLAlchemyError."""
        digest, now = token_digest(session_id), self._clock()
        with self._lock:
            session = self._kept.get(digest)
            used = self._used.get(digest, 0.0)
        if session is None:
            return None
        caller = self._authenticate(session.token)
        if caller is None or now - session.began > LONGEST_SECONDS or now - used > IDLE_SECONDS:
            self.end(session_id)
            return None
        with self._lock:
            if digest in self._kept:
                self._used[digest] = now
        return replace(session, caller=caller)

    def end(self, session_id: str) -> None:
        """Sign out."""
        with self._lock:
            self._kept.pop(token_digest(session_id), None)
            self._used.pop(token_digest(session_id), None)

    def with_profiles(self, session_id: str, session: Session, token: str) -> str | None:
        """The id of the session that also reads profiles, instead of this one; None if the token is of no caller of the
        profile service."""
        caller = self._authenticate(token)
        if caller is None or caller.role is not Role.PROFILES:
            return None
        self.end(session_id)
        return self._keep(replace(session, profiles_token=token, csrf=secrets.token_urlsafe(32)))

    def make_link_code(self, token: str, profiles_token: str | None = None) -> str:
        """A code that signs in once, within minutes."""
        code, now = secrets.token_urlsafe(32), self._clock()
        with self._lock:
            self._links = {each: link for each, link in self._links.items() if link[2] > now}
            self._links[token_digest(code)] = token, profiles_token, now + LINK_SECONDS
        return code

    def begin_by_code(self, code: str) -> str | None:
        """The id of a new session; None for a code that is unknown, used or too old."""
        with self._lock:
            link = self._links.pop(token_digest(code), None)
        if link is None or link[2] <= self._clock():
            return None
        return self.begin(link[0], link[1])

    def _keep(self, session: Session) -> str:
        session_id = secrets.token_urlsafe(32)
        with self._lock:
            if len(self._kept) >= MOST_SESSIONS:
                oldest = min(self._used, key=self._used.__getitem__)
                del self._kept[oldest], self._used[oldest]
            self._kept[token_digest(session_id)] = session
            self._used[token_digest(session_id)] = self._clock()
        return session_id
