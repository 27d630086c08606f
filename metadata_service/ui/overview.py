"""The first page: what needs a decision, then what is new, and the numbers in the navigation. Only what its reader may see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Response
from sqlalchemy.orm import Session as Reading

from idgraph.client import ProfilesClient
from idgraph.model.attributes import AttributeStatus
from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.model.jobs import JobState
from idgraph.web.cursors import PageRequest
from metadata_service.attributes.catalogue import AttributeFilter, find_attributes, total_attributes
from metadata_service.attributes.policy_changes import list_policy_changes
from metadata_service.specs.catalogue import count_active_specs
from metadata_service.storage.grants import ending, list_grants
from metadata_service.storage.tokens import Role, person_of
from metadata_service.storage.versions import list_changes
from metadata_service.ui.frame import HOME, ROOT, as_time, pages_of
from metadata_service.ui.jobs import subject
from metadata_service.ui.page import OwnPage, SignedIn, Watching, items_of, see_other

router = APIRouter()

SHOWN = 6
SECONDS = 30.0
"""Dead letters and refused links are looked through."""
MOST_PENDING = 100
FOUND = ("discovered",)
WAITING_SECONDS = 2.0
REVIEW, DEAD_LETTERS = "/ui/review/violations", "/ui/dead-letters"
BOUNDS = {DEAD_LETTERS: 1000, REVIEW: 50, "/ui/attributes": 1000}
"""What reached its bound may be more."""
DECIDED = ("saved", "made", "revoked", "activated", "retired", "requested", "approved", "refused")


class WaitingDecision(NamedTuple):
    """One cause, and what to do about it. `number` is None where it would cost too much to know; with `is_more` it reached its
    bound."""

    number: int | None
    title: str
    says: str
    verb: str
    url: str
    is_harm: bool = False
    is_more: bool = False


class Beside(NamedTuple):
    """What the profile service knows; `problem` says why it is not all."""

    jobs: list[dict[str, Any]]
    flows: list[dict[str, Any]]
    waiting: list[WaitingDecision]
    problem: str = ""


@router.get("/")
@router.get(ROOT)
def first_page() -> Response:
    """Where a person begins."""
    return see_other(HOME)


@router.get(HOME)
def show(page: SignedIn, beside: bool = False) -> Response:
    """The overview; who only reads profiles begins there. With `beside`, also what the profile service knows, which may take
    its time: the page asks for it by itself."""
    if page.caller.role is Role.PROFILES:
        return see_other("/ui/profiles")
    page.require("GET", "/v1/attributes")
    known_beside = _beside(page) if beside and page.can_ask else Beside([], [], [])
    with page.database.read() as reading:
        found = list_changes(reading, PageRequest(None, SHOWN), "attribute", actions=FOUND).items
        known = {each.path: each for each in find_attributes(reading, {each.subject for each in found})}
        changes = list_changes(reading, PageRequest(None, SHOWN), actions=DECIDED).items
        has_specs = count_active_specs(reading) > 0
        waiting = [*known_beside.waiting, *_decisions(page, reading)]
    return page.render(
        "overview.html",
        title="Overview",
        beside=known_beside,
        is_asked=beside or not page.can_ask,
        waiting=sorted(waiting, key=lambda each: not each.is_harm),
        new=[(each, known[each.subject]) for each in found if each.subject in known],
        changes=changes,
        has_specs=has_specs,
        version=page.database.revision().version,
        subject=subject,
        curl=page.curl("/v1/changes", limit=SHOWN),
    )


@router.get("/ui/waiting")
def show_numbers(page: Watching) -> Response:
    """The numbers beside the pages that this person may use; the page asks for them by itself."""
    found: Counter[str] = Counter()
    with page.database.read() as reading:
        for each in _decisions(page, reading):
            found["/".join(each.url.partition("?")[0].split("/")[:3])] += each.number or 0
        if page.may("POST", "/v1/attribute-edits"):
            wanted = AttributeFilter(status=(AttributeStatus.DISCOVERED,))
            found["/ui/attributes"] = total_attributes(reading, wanted, BOUNDS["/ui/attributes"])
    # Without the profile service the pages of the catalogue still have theirs.
    with suppress(ProfileServiceError):
        counts = page.ask("GET", "waiting", seconds=WAITING_SECONDS)
        found[DEAD_LETTERS], found[REVIEW] = counts["dead_letters"] or 0, counts["suggestions"] or 0
    shown = [(item, found[item.url], BOUNDS.get(item.url)) for item in pages_of(page.session)]
    return page.render("waiting.html", counts=shown)


def _decisions(page: OwnPage, reading: Reading) -> Iterator[WaitingDecision]:
    """What of the metadata waits for this person."""
    if page.may("POST", "/v1/policy-changes/1/approve"):
        pending = list_policy_changes(reading, PageRequest(None, MOST_PENDING), "pending").items
        others = [each for each in pending if each.requested.actor != page.caller.name]
        if others:
            newest = others[0]
            says = f"{newest.requested.actor} asks: {'; '.join(newest.weakens[:2])}"
            is_more = len(pending) == MOST_PENDING
            url = "/ui/policy-changes" if len(others) > 1 else f"/ui/policy-changes/{newest.id}"
            title = "Edits weaken protection"
            yield WaitingDecision(len(others), title, says, "Decide", url, is_harm=True, is_more=is_more)
    if page.may("POST", "/v1/requests/1/answer"):
        asked = list_grants(reading, PageRequest(None, MOST_PENDING), datetime.now(UTC), state="waits").items
        asked = [each for each in asked if each.person != person_of(page.caller.name)]
        if asked:
            says = f"{asked[0].person} asks for {asked[0].title}"
            yield WaitingDecision(len(asked), "Requests for access", says, "Answer", "/ui/requests")
    for each in ending(reading, datetime.now(UTC), person_of(page.caller.name)):
        url = f"/ui/requests?{urlencode(each.named)}"
        says = f"You {'edit' if each.spec else 'see'} {each.title} until {as_time(each.ends or each.until)}"
        yield WaitingDecision(1, "Your access ends", says, "Ask again", url)
    if page.may("POST", "/v1/attributes/a/proposal"):
        proposed = total_attributes(reading, AttributeFilter(proposed=True))
        if proposed:
            says = "A detector proposes a policy; sealed ones stay so until you decide"
            title, url = "New attributes look sensitive", "/ui/attributes?proposed=true"
            yield WaitingDecision(proposed, title, says, "Decide", url, is_harm=True)


def _beside(page: OwnPage) -> Beside:
    scopes = page.rights.scopes
    jobs: list[dict[str, Any]] = []
    flows: list[dict[str, Any]] = []
    waiting: list[WaitingDecision] = []
    try:
        with page.profiles(SECONDS) as client:
            jobs = items_of(client, "jobs", limit=50)
            waiting += _unfinished(jobs)
            if Scope.OPERATE in scopes:
                flows = items_of(client, "flows")
                waiting += _set_aside(client)
            if Scope.LINKS in scopes:
                says = "The rules keep identifiers apart that events showed together"
                refused = items_of(client, "links", "violations", limit=1)
                review = WaitingDecision(None, "Refused links", says, "Review", "/ui/review/violations")
                waiting += [review] if refused else []
    except ProfileServiceError as error:
        return Beside(jobs, flows, waiting, str(error))
    return Beside(jobs, flows, waiting)


def _unfinished(jobs: list[dict[str, Any]]) -> Iterator[WaitingDecision]:
    """The newest job of each kind and subject, where it ended early and this person may resume it."""
    newest = {(each["kind"], subject(each)): each for each in reversed(jobs)}
    ended = [each for each in newest.values() if each["state"] in (JobState.INTERRUPTED, JobState.FAILED)]
    for each in ended:
        if "resume" in each["acts"]:
            says = f"{each['kind']}, by {each['who']}: {each['why'] or 'no reason given'}"
            title = "A job failed" if each["state"] == JobState.FAILED else "A job was interrupted"
            yield WaitingDecision(1, title, says, "Resume", f"/ui/jobs/{each['id']}")


def _set_aside(client: ProfilesClient) -> Iterator[WaitingDecision]:
    found = client.call("GET", "dead-letters", params={"limit": 1})
    if found["matching"]:
        largest = found["groups"]["reason"][0]
        title = f"Dead letters, {largest['count']:,} with one cause"
        says = f"{largest['value']} since {as_time(largest['since'])}: {largest['detail']}"
        url = f"/ui/dead-letters?reason={largest['value']}"
        verb, is_more = f"Open {largest['count']:,}", not found["is_complete"]
        yield WaitingDecision(found["matching"], title, says, verb, url, is_harm=True, is_more=is_more)
