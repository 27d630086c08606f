"""Callers of the profile service: names, rights, and the digests of their tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator


class Scope(StrEnum):
    """Rights of a caller besides reading. `privacy`: access requests, erasures and the consents of anybody.
    `persons`: issue tokens by which persons act for themselves. `rules`: preview identity rules, over all profiles.
    `links`: decide which identifiers are one person. `operate`: see all jobs, cancel them, and start those that keep
    index and store in order; dead letters and flows."""

    PRIVACY = "privacy"
    PERSONS = "persons"
    RULES = "rules"
    LINKS = "links"
    OPERATE = "operate"


class Role(StrEnum):
    """Roles of people: `viewer` reads, `analyst` drafts, `publisher` publishes, `admin` does everything, `privacy`
    decides on protection and on the rights of persons. Roles of machines: `reader` may GET, `pipeline` also PATCH the
    schema, `profiles` calls the profile service alone, and `service` is that service itself."""

    VIEWER = "viewer"
    ANALYST = "analyst"
    PUBLISHER = "publisher"
    ADMIN = "admin"
    PRIVACY = "privacy"
    READER = "reader"
    PIPELINE = "pipeline"
    SERVICE = "service"
    PROFILES = "profiles"
    __repr__ = str.__repr__  # messages of pydantic have it


DUTIES: Mapping[Role, str] = {
    Role.VIEWER: "a person who reads attributes, specs and, with a clearance, profiles",
    Role.ANALYST: "that, and drafts specs, rules, views and segments",
    Role.PUBLISHER: "that, and publishes them",
    Role.ADMIN: "that, and does everything but what privacy decides",
    Role.PRIVACY: "a person who decides on protection and on the rights of persons",
    Role.READER: "a machine that reads attributes and specs",
    Role.PIPELINE: "a flow",
    Role.SERVICE: "a profile service",
    Role.PROFILES: "a machine that reads profiles, up to its clearance",
}
"""The purpose of each role, for those who choose one."""

PEOPLE = (Role.VIEWER, Role.ANALYST, Role.PUBLISHER, Role.ADMIN, Role.PRIVACY)
"""Roles of people, who call both services."""

SCOPES: Mapping[Role, frozenset[Scope]] = {
    Role.ANALYST: frozenset({Scope.RULES}),
    Role.PUBLISHER: frozenset({Scope.RULES, Scope.LINKS}),
    Role.ADMIN: frozenset({Scope.RULES, Scope.LINKS, Scope.OPERATE}),
    Role.PRIVACY: frozenset({Scope.RULES, Scope.LINKS, Scope.PRIVACY}),
}
"""The scopes of each role in the profile service, besides those that were given to one person or token."""

_LADDER = (Role.VIEWER, Role.ANALYST, Role.PUBLISHER, Role.ADMIN)
FROM_LEAST = (Role.VIEWER, Role.ANALYST, Role.PUBLISHER, Role.PRIVACY, Role.ADMIN)
"""Roles of people, that with the least rights first."""


def lesser_role(one: Role, other: Role) -> Role:
    """The role of people that has no more than either. `privacy` has with each other role no more than a viewer in common."""
    if one is other:
        return one
    return Role.VIEWER if Role.PRIVACY in (one, other) else min(one, other, key=_LADDER.index)


SESSION_PREFIX = "idgs_"
FRESH = timedelta(seconds=3)
"""So long a session may be unknown to the profile service, which asks for its callers each second; a client asks again until
then."""


def is_fresh_session(token: str, now: datetime) -> bool:
    """Whether this may be the key of a session, `idgs_SECONDS_KEY`, that began just now."""
    began = token.removeprefix(SESSION_PREFIX).partition("_")[0]
    is_key = token.startswith(SESSION_PREFIX) and began.isascii() and began.isdecimal()
    return is_key and abs(int(began[:12]) - now.timestamp()) <= FRESH.total_seconds()


class Grant(BaseModel):
    """An attribute, with what is below it, that somebody sees for a time, as far as it needs at most the clearance
    `level`."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    path: str
    level: int
    until: AwareDatetime


class PersonGrant(Grant):
    """A grant, and whose it is."""

    person: str


class CallerRights(BaseModel):
    """An attribute whose authorization level is above `clearance` does not exist. Additions of a later metadata
    service are ignored, and an unknown right is none: else nobody's token could be revoked."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    clearance: int = Field(ge=0, le=100)
    may_reveal: bool = Field(
        description="Whether protected values may be opened, for a purpose that is recorded."
    )
    scopes: frozenset[Scope] = Field(default=frozenset(), description="With those of the role.")

    @field_validator("scopes", mode="before")
    @classmethod
    def _known(cls, given: object) -> object:
        return [each for each in given if each in set(Scope)] if isinstance(given, list) else given


class Caller(CallerRights):
    """Somebody with a token."""

    name: str
    digest: str = Field(description="SHA-256 of the token, in hexadecimal digits.")
    expires: AwareDatetime | None
    grants: tuple[Grant, ...] = ()

    @property
    def role(self) -> str:
        """Every caller has the role of a reader of profiles."""
        return "profiles"

    def granted(self, now: datetime) -> frozenset[tuple[str, int]]:
        """Paths with levels that are granted at a time."""
        return frozenset((each.path, each.level) for each in self.grants if each.until > now)

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now


class KnownPerson(BaseModel):
    """Somebody who signs in by an issuer: what the metadata service knows besides the claims."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    identity: str = Field(description="SHA-256 of issuer and subject.")
    name: str
    is_disabled: bool
    bound: CallerRights | None = Field(
        default=None, description="The rights that an admin decided: claims can give no more."
    )


class CallerList(BaseModel):
    """All callers, by name."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    callers: tuple[Caller, ...]
    people: tuple[KnownPerson, ...] = ()
    grants: tuple[PersonGrant, ...] = ()


def token_digest(plaintext: str) -> str:
    """The stored fields of a token."""
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).hexdigest()
