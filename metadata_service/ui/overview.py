"""The first page: what needs a decision, then what is new, and the numbers in the navigation. Only what its reader may
see. And the palette: one field that finds pages, attributes, specs and profiles; the typed text is in no address."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session as Reading

from idgraph.model.attributes import AttributeStatus
from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.model.jobs import JobState
from idgraph.model.records import PolicyChangeRecord
from idgraph.web.cursors import PageRequest
from metadata_service.attributes.catalogue import (
    AttributeFilter,
    find_attributes,
    search_attributes,
    total_attributes,
)
from metadata_service.attributes.policy_changes import list_policy_changes
from metadata_service.specs.catalogue import count_active_specs, list_specs
from metadata_service.storage.grants import GrantRecord, ending, list_grants
from metadata_service.storage.tokens import Role, person_of
from metadata_service.storage.users import are_one_person
from metadata_service.storage.versions import list_changes
from metadata_service.ui.frame import ATTRIBUTES, HOME, ROOT, pages_of
from metadata_service.ui.jobs import subject
from metadata_service.ui.page import OwnFields, OwnPage, SignedIn, Watching, items_of, see_other
from metadata_service.ui.profile_search import named_profiles
from metadata_service.ui.profiles import address_of

router = APIRouter()

SHOWN = 6
SECONDS = 30.0
"""Dead letters and refused links are looked through."""
MOST_PENDING = 100
FOUND = ("discovered",)
WAITING_SECONDS = 2.0
REVIEW, DEAD_LETTERS = "/ui/review/violations", "/ui/dead-letters"
BOUNDS = {DEAD_LETTERS: 1000, REVIEW: 50, ATTRIBUTES: 1000}
"""A count that reached its bound may be more."""
DECIDED = ("saved", "made", "revoked", "activated", "retired", "requested", "approved", "refused")


class WaitingDecisions(NamedTuple):
    """Decisions on metadata that wait for a person: edits that others asked for, requests of others, their own grants
    that end soon, and the number of proposed policies."""

    changes: list[PolicyChangeRecord]
    is_more: bool
    """Whether there may be more changes."""
    requests: list[GrantRecord]
    ending: list[GrantRecord]
    proposed: int


@router.get("/")
@router.get(ROOT)
def first_page() -> Response:
    """The first page."""
    return see_other(HOME)


@router.get(HOME)
def show(page: SignedIn, beside: bool = False) -> Response:
    """The overview; who only reads profiles begins there. With `beside`, also what the profile service knows, which may take
    its time: the page asks for it by itself."""
    if page.caller.role is Role.PROFILES:
        return see_other("/ui/profiles")
    page.require("GET", "/v1/attributes")
    known_beside = _beside(page) if beside and page.can_ask else {}
    with page.database.read() as reading:
        found = list_changes(reading, PageRequest(None, SHOWN), "attribute", actions=FOUND).items
        known = {each.path: each for each in find_attributes(reading, {each.subject for each in found})}
        changes = list_changes(reading, PageRequest(None, SHOWN), actions=DECIDED).items
        has_specs = count_active_specs(reading) > 0
        waiting = _decisions(page, reading)
    return page.render(
        "overview.html",
        beside=known_beside,
        is_asked=beside or not page.can_ask,
        waiting=waiting,
        new=[(each, known[each.subject]) for each in found if each.subject in known],
        changes=changes,
        has_specs=has_specs,
        version=page.database.revision().version,
        subject=subject,
    )


@router.get("/ui/waiting")
def show_numbers(page: Watching) -> Response:
    """The numbers beside the pages that this person may use; the page asks for them by itself."""
    with page.database.read() as reading:
        waiting = _decisions(page, reading)
        found = {
            "/ui/policy-changes": len(waiting.changes),
            "/ui/requests": len(waiting.requests) + len(waiting.ending),
        }
        if page.may("POST", "/v1/attribute-edits"):
            wanted = AttributeFilter(status=(AttributeStatus.DISCOVERED,))
            found[ATTRIBUTES] = total_attributes(reading, wanted, BOUNDS[ATTRIBUTES])
    # Without the profile service the pages of the catalogue still have theirs.
    with suppress(ProfileServiceError):
        counts = page.ask("GET", "waiting", seconds=WAITING_SECONDS)
        found |= {DEAD_LETTERS: counts["dead_letters"], REVIEW: counts["suggestions"]}
    return page.render("waiting.html", counts=found, bounds=BOUNDS)


def _decisions(page: OwnPage, reading: Reading) -> WaitingDecisions:
    """Only what this person may decide on."""
    me, now, most = person_of(page.caller.name), datetime.now(UTC), PageRequest(None, MOST_PENDING)
    pending: list[PolicyChangeRecord] = []
    asked: list[GrantRecord] = []
    if page.may("POST", "/v1/policy-changes/1/approve"):
        pending = list_policy_changes(reading, most, "pending").items
    if page.may("POST", "/v1/requests/1/answer"):
        asked = list_grants(reading, most, now, state="waits").items
    may_propose = page.may("POST", "/v1/attributes/a/proposal")
    people = {each.requested.actor for each in pending} | {each.person for each in asked}
    others = {each for each in people if not are_one_person(reading, each, me)}
    return WaitingDecisions(
        [each for each in pending if each.requested.actor in others],
        len(pending) == MOST_PENDING,
        [each for each in asked if each.person in others],
        ending(reading, now, me),
        total_attributes(reading, AttributeFilter(proposed=True)) if may_propose else 0,
    )


def _beside(page: OwnPage) -> dict[str, Any]:
    """Facts of the profile service that this person may act on; `problem` says why they are not all."""
    found: dict[str, Any] = {}
    try:
        with page.profiles(SECONDS) as client:
            found["jobs"] = items_of(client, "jobs", limit=50)
            if Scope.OPERATE in page.rights.scopes:
                found["flows"] = items_of(client, "flows")
                found["dead_letters"] = client.call("GET", "dead-letters", params={"limit": 1})
            if Scope.LINKS in page.rights.scopes:
                found["refused_links"] = items_of(client, "links", "violations", limit=1)
    except ProfileServiceError as error:
        found["problem"] = str(error)
    # The newest job of each kind and subject, where it ended early and this person may resume it.
    newest = {(each["kind"], subject(each)): each for each in reversed(found.get("jobs", []))}
    early = (JobState.INTERRUPTED, JobState.FAILED)
    ended = [each for each in newest.values() if each["state"] in early and "resume" in each["acts"]]
    return found | {"ended": ended}


MOST_FOUND = 5
"""Matches of each kind."""
LONGEST_WORDS = 1000
PALETTE_SECONDS = 2.0


@router.post("/ui/palette")
def find(page: SignedIn, fields: OwnFields) -> Response:
    """Matches of the typed words, pages first; without words, the pages."""
    typed = fields.get("q", "").strip()[:LONGEST_WORDS]
    words = typed.lower().split()
    pages = [each for each in pages_of(page.session) if all(word in each.title.lower() for word in words)]
    if not typed:
        return page.render("palette.html", pages=pages)
    found: dict[str, Any] = {"pages": pages[:MOST_FOUND], "profiles": _profiles(page, typed)}
    first = PageRequest(None, MOST_FOUND)
    with page.database.read() as reading:
        if page.may("GET", "/v1/attributes"):
            found["attributes"] = search_attributes(reading, AttributeFilter(words=typed), first).items
        if page.may("GET", "/v1/specs"):
            found["specs"] = list_specs(reading, first, typed).items
    return page.render("palette.html", typed=typed, **found)


def _profiles(page: OwnPage, typed: str) -> list[tuple[str, str]]:
    """Names and addresses."""
    with suppress(ProfileServiceError), page.profiles(PALETTE_SECONDS) as client:
        profiles = named_profiles(client, typed, page.database)[:MOST_FOUND]
        return [(each["id"], address_of(each)) for each in profiles]
    return []
