"""Who may call the metadata service."""

from __future__ import annotations

from functools import partial

from idgraph.web.application import FREE
from idgraph.web.guard import READING, Access
from metadata_service.storage.database import Database
from metadata_service.storage.tokens import Role, TokenRecord, authenticate

CALLERS = "/v1/callers"


def access(database: Database, max_body_bytes: int) -> Access:
    """Callers by the tokens of a database."""
    return Access(partial(authenticate, database), _permits, FREE, max_body_bytes)


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
