"""Rights of callers of the metadata service."""

from __future__ import annotations

import math
import re
import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from idgraph.model.attributes import AttributeDefinition
from idgraph.model.callers import FROM_LEAST, PEOPLE
from idgraph.web.application import FREE
from idgraph.web.guard import READING, Access
from idgraph.web.openid import OpenId, is_signed_token
from idgraph.web.refusals import ClashError, ForbiddenError
from metadata_service.api.database_problems import database_unavailable
from metadata_service.attributes.catalogue import PlannedAttribute
from metadata_service.kinds import DOCUMENTS
from metadata_service.storage.database import Database
from metadata_service.storage.grants import specs_granted
from metadata_service.storage.tokens import Role, TokenRecord, authenticate, person_of, user_record
from metadata_service.storage.users import admit

CALLERS = "/v1/callers"
SPECS = "/v1/specs/"

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


class Right(NamedTuple):
    """The roles that may make a call, besides admins, who may make all."""

    methods: frozenset[str]
    route: re.Pattern[str]
    roles: frozenset[Role]


def _right(methods: str, route: str, *roles: Role) -> Right:
    """`*` in a route is one part of a path, `**` any number."""
    pattern = re.escape(route).replace(r"\*\*", ".*").replace(r"\*", "[^/]+")
    allowed = READING if methods == "GET" else frozenset(methods.split())
    return Right(allowed, re.compile(pattern, re.DOTALL), frozenset(roles))


_DRAFT = (Role.ANALYST, Role.PUBLISHER)
_OFFICE = (Role.PRIVACY,)
_PUBLISH = (Role.PUBLISHER,)

RIGHTS = (
    _right("GET", CALLERS, Role.SERVICE),
    _right("GET", "/v1/users", *_OFFICE),
    _right("GET", "/v1/users/*", *_OFFICE),
    _right("POST", "/v1/users/*/confirm", *_OFFICE),
    _right("PUT", "/v1/me/password", *PEOPLE),
    _right("GET", "/v1/keys", *PEOPLE),
    _right("POST", "/v1/keys", *PEOPLE),
    _right("POST", "/v1/keys/*/rotate", *PEOPLE),
    _right("DELETE", "/v1/keys/*", *PEOPLE),
    _right("GET", "/v1/requests", *PEOPLE),
    _right("GET", "/v1/requests/*", *PEOPLE),
    _right("POST", "/v1/requests", *PEOPLE),
    _right("POST", "/v1/requests/*/answer", *_PUBLISH, *_OFFICE),
    _right("POST", "/v1/requests/*/reply", *PEOPLE),
    _right("POST", "/v1/requests/*/end", *PEOPLE),
    _right("GET", "**", *(role for role in Role if role is not Role.PROFILES)),
    _right("PATCH", "/v1/schema", Role.PIPELINE),
    _right("PUT", "/v1/attributes/*", *_DRAFT, *_OFFICE),
    _right("POST", "/v1/attributes/*/preview", *_DRAFT, *_OFFICE),
    _right("POST", "/v1/attributes/*/proposal", *_OFFICE),
    _right("POST", "/v1/attribute-edits", *_PUBLISH, *_OFFICE),
    _right("POST", "/v1/policy-changes/*/approve", *_OFFICE),
    _right("POST", "/v1/policy-changes/*/refuse", *_OFFICE),
    _right("POST", "/v1/redactions", *_OFFICE),
    _right("POST", "/v1/changes/verify", *_OFFICE),
    _right("POST", "/v1/specs/check", *_DRAFT),
    _right("POST", "/v1/specs/preview", *_DRAFT),
    _right("POST", "/v1/specs/protected-places", *_DRAFT, Role.SERVICE),
    _right("POST", "/v1/specs/generate", *_DRAFT),
    _right("POST", "/v1/specs/cases", *_DRAFT),
    _right("POST", "/v1/specs/moves", *_DRAFT),
    _right("POST", "/v1/specs/*/status", *_PUBLISH),
    _right("PUT", "/v1/specs/*", *_DRAFT),
    *(_right("POST", f"/v1/{each.path}/check", *each.checkers) for each in DOCUMENTS.values()),
    *(
        _right("PUT", f"/v1/{each.path}{'/*' if each.default is None else ''}", *each.publishers)
        for each in DOCUMENTS.values()
    ),
    _right("POST", "/v1/sandboxes", *_DRAFT),
    _right("POST", "/v1/sandboxes/*/promote", *_DRAFT, *_OFFICE),
    _right("DELETE", "/v1/sandboxes/*", *_PUBLISH),
)
"""The first that fits a call decides; a call that none fits is for admins. The route checks the body: each role that
may PUT an attribute changes its own fields, and an analyst's spec stays a draft."""

_WORDS = frozenset({"name", "description", "owner", "tags"})
FIELDS = {
    Role.ANALYST: _WORDS,
    Role.PUBLISHER: _WORDS | {"data_type", "status", "indexable"},
    Role.PRIVACY: _WORDS | {"classification", "encryption", "authorization_level", "identifiable"},
}
"""The fields of an attribute that each of these roles changes; a publisher's new one has defaults in the other
fields."""


def require_fields(caller: TokenRecord, planned: PlannedAttribute, stated: AttributeDefinition) -> None:
    """Raises ForbiddenError for an edit of an attribute that changes more than the role of the caller may."""
    allowed = FIELDS.get(caller.role)
    if allowed is None:
        return
    known, after = planned.before, planned.after
    if known is None and caller.role is not Role.PUBLISHER:
        raise ForbiddenError(f"the role {caller.role} makes no new attribute")
    fields = set(AttributeDefinition.model_fields) - allowed - {"source"}
    blank = AttributeDefinition(path=stated.path, data_type=stated.data_type)
    changed = sorted(
        each
        for each in fields
        if (
            getattr(stated, each) != getattr(blank, each)
            if known is None
            else getattr(after, each) != getattr(known, each)
        )
    )
    if changed:
        raise ForbiddenError(
            f"the role {caller.role} does not change this of an attribute: {', '.join(changed)}"
        )


class MissingRoleError(ForbiddenError):
    """The role of the caller may not make a call; `least` is the least role that may."""

    def __init__(self, role: Role, method: str, path: str) -> None:
        self.least = least_role(method, path)
        super().__init__(
            f"the role {role} may not do this ({method} {path}); the least role that may is {self.least}"
        )


def require_right(caller: TokenRecord, method: str, path: str) -> None:
    """Raises MissingRoleError for a call that the role of the caller may not make."""
    if not is_allowed(caller.role, method, path):
        raise MissingRoleError(caller.role, method, path)


def least_role(method: str, path: str) -> Role:
    """The role of people with the least rights that may make a call."""
    return next(each for each in FROM_LEAST if is_allowed(each, method, path))


def access(database: Database, max_body_bytes: int, openid: OpenId | None = None) -> Access:
    """Callers by the tokens of a database, or of an issuer."""

    def caller(token: str) -> TokenRecord | None:
        if openid is None or not is_signed_token(token):
            return authenticate(database, token)
        identity = openid.bearer(token)
        try:
            row = None if identity is None else admit(database, identity)
        except ClashError:
            row = None
        return None if row is None else user_record(row)

    permits = partial(may_call, database)
    return Access(
        caller, permits, FREE, max_body_bytes, refused=Refusals(database), answer=database_unavailable
    )


def may_call(database: Database, caller: TokenRecord, method: str, path: str) -> bool:
    """By the role, or by a grant of a spec: it lets a person check drafts as an analyst does, and save those of that spec."""
    if is_allowed(caller.role, method, path):
        return True
    is_draft = path.startswith(SPECS) and is_allowed(Role.ANALYST, method, path)
    if not is_draft or caller.role not in PEOPLE:
        return False
    with database.read() as session:
        granted = specs_granted(session, datetime.now(UTC), person_of(caller.name))
    return path.removeprefix(SPECS) in granted if method == "PUT" else bool(granted)


def is_allowed(role: Role, method: str, path: str) -> bool:
    """The rights of a role, for REST and pages alike."""
    if role is Role.ADMIN:
        return True
    for methods, route, roles in RIGHTS:
        if method in methods and route.fullmatch(path):
            return role in roles
    return False
