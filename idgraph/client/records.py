"""Answers of the profile service, as its client gives them."""

from __future__ import annotations

from typing import Any, TypedDict

Profile = dict[str, Any]


class ConsentRecord(TypedDict):
    """A person's decision about one purpose: `given`, or refused by any other status; and the event that recorded it."""

    purpose: str
    status: str
    source: str
    time: str | int | None
    event: str
    ordinal: int


class ContactRecord(TypedDict):
    """A customer who may be meant: from 0 to 1, by which fields, and the profile."""

    score: float
    matched: list[str]
    profile: Profile


class MembershipRecord(TypedDict):
    """A household of a person: the names by which its members know the person, and what the person shares there."""

    id: str
    names: list[str]
    shares: list[dict[str, Any]]


class HouseholdRecord(TypedDict):
    """A household as one member sees it. `me` are the person's own memberships, `members` names by member."""

    id: str
    me: list[str]
    members: dict[str, str]
    shared_with_me: list[dict[str, Any]]
    i_share: list[dict[str, Any]]


class ExpiringRecord(TypedDict, total=False):
    """The token of a person, or the code of an invitation, and when it ends."""

    token: str
    code: str
    expires: str


class _Share(TypedDict):
    attribute: str
    to: list[str]
    purpose: str


class SharedAttribute(_Share, total=False):
    """An attribute, and those below it, for some other members; without `until` (RFC 3339) until it is taken back."""

    until: str


class _PersonJob(TypedDict):
    id: str
    state: str
    started: str
    updated: str
    counts: dict[str, int]


class PersonJobRecord(_PersonJob, total=False):
    """An access request or an erasure: `running`, `done`, `failed`, `cancelled` or `interrupted`. `expires`: when its document
    does; `receipt`: of an erasure that is done."""

    expires: str | None
    receipt: dict[str, Any] | None
    paths_to_redact: list[str] | None


class ErasurePreviewRecord(TypedDict):
    """What an erasure would remove, by place; and the day from which one of today holds in backups, if that is known."""

    counts: dict[str, int]
    complete_from: str | None
