"""Callers of the profile service: names, rights, and the digests of their tokens."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, field_validator


class Scope(StrEnum):
    """What a caller may do besides reading. `privacy`: access requests, erasures and the consents of anybody. `persons`: issue
    tokens by which persons act for themselves. `rules`: preview identity rules, over all profiles. `links`: decide which
    identifiers are one person. `operate`: see all jobs, cancel them, and start those that keep index and store in order."""

    PRIVACY = "privacy"
    PERSONS = "persons"
    RULES = "rules"
    LINKS = "links"
    OPERATE = "operate"


class Caller(BaseModel):
    """Somebody with a token. An attribute whose authorization level is above `clearance` does not exist for the caller. What a
    later metadata service adds is ignored, a right that is not known is none: else nobody's token could be revoked."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    digest: str = Field(description="SHA-256 of the token, in hexadecimal digits.")
    expires: AwareDatetime | None
    clearance: int = Field(ge=0, le=100)
    may_reveal: bool = Field(
        description="Whether protected values may be opened, for a purpose that is recorded."
    )

    scopes: frozenset[Scope] = frozenset()

    @field_validator("scopes", mode="before")
    @classmethod
    def _known(cls, given: object) -> object:
        return [each for each in given if each in set(Scope)] if isinstance(given, list) else given

    @property
    def role(self) -> str:
        """Every caller has the role of a reader of profiles."""
        return "profiles"

    def is_expired(self, now: datetime) -> bool:
        return self.expires is not None and self.expires <= now


class CallerList(BaseModel):
    """All callers, by name."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    callers: tuple[Caller, ...]


def token_digest(plaintext: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).hexdigest()
