"""Who may call the metadata service."""

from __future__ import annotations

import math
import re
import threading
import time
from functools import partial

from idgraph.web.application import FREE
from idgraph.web.guard import READING, Access
from metadata_service.storage.database import Database
from metadata_service.storage.tokens import Role, TokenRecord, authenticate

CALLERS = "/v1/callers"


MOST_REFUSALS = 100
REFUSALS_SECONDS = 3600.0
_ROUTE = re.compile(r"/v1/[a-z-]{1,40}(?=/|$)")


class Refusals:
    """Puts refused calls into the history, by token, method and route: of each kind one per hour, and at most
    `MOST_REFUSALS` in all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._known: set[tuple[str, str]] = set()
        self._since = -math.inf

    def __call__(self, caller: TokenRecord, method: str, path: str) -> None:
        route = _ROUTE.match(path)
        # Nothing that the caller may choose freely: history is never deleted.
        call = f"{method if method in METHODS else 'other'} {route[0] if route else 'elsewhere'}"
        with self._lock:
            if time.monotonic() - self._since > REFUSALS_SECONDS:
                self._known.clear()
                self._since = time.monotonic()
            if (caller.name, call) in self._known or len(self._known) >= MOST_REFUSALS:
                return
            self._known.add((caller.name, call))
        with self._database.write(caller.name, f"the role {caller.role} may not do this") as edit:
            edit.record("call", call, None, "refused")


METHODS = READING | {"PUT", "POST", "PATCH", "DELETE"}


def access(database: Database, max_body_bytes: int) -> Access:
    """Callers by the tokens of a database."""
    return Access(partial(authenticate, database), _permits, FREE, max_body_bytes, refused=Refusals(database))


def _permits(caller: TokenRecord, method: str, path: str) -> bool:
    return is_allowed(caller.role, method, path)


def is_allowed(role: Role, method: str, path: str) -> bool:
    """The rights of a role."""
    if role is Role.ADMIN:
        return True
    if role is Role.PROFILES:
        return False
    if path == CALLERS:
        return role is Role.SERVICE and method in READING
    return method in READING or (role is Role.PIPELINE and (method, path) == ("PATCH", "/v1/schema"))
