"""The first page: what needs a decision, then what is new. Only what its reader may see."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session as Reading

from idgraph.client import ProfilesClient
from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.model.jobs import JobState
from idgraph.web.cursors import PageRequest
from metadata_service.api.service import Service
from metadata_service.attributes.catalogue import AttributeFilter, find_attributes, total_attributes
from metadata_service.attributes.policy_changes import list_policy_changes
from metadata_service.specs.catalogue import count_active_specs
from metadata_service.storage.edits import list_changes
from metadata_service.storage.grants import ending, list_grants
from metadata_service.storage.sessions import Session
from metadata_service.storage.tokens import person_of
from metadata_service.ui.jobs import subject
from metadata_service.ui.page import (
    HOME,
    ROOT,
    SignedIn,
    as_time,
    curl,
    may,
    reads_profiles_only,
    render,
    require,
    see_other,
)
from metadata_service.ui.profiles import profiles_client, profiles_rights

router = APIRouter()

SHOWN = 6
SECONDS = 30.0
"""Dead letters and refused links are looked through."""
UNCONFIGURED = 422
"""The status of a call for which the profile service lacks a part."""
MOST_PENDING = 100
FOUND = ("discovered",)
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
def show(request: Request, session: SignedIn, service: Service, beside: bool = False) -> Response:
    """The overview; who only reads profiles begins there. With `beside`, also what the profile service knows, which may take
    its time: the page asks for it by itself."""
    if reads_profiles_only(session):
        return see_other("/ui/profiles")
    require(session, "GET", "/v1/attributes")
    can_ask = session.profiles_token is not None and request.app.state.profile_source is not None
    known_beside = _beside(request, session) if beside and can_ask else Beside([], [], [])
    with service.database.read() as reading:
        found = list_changes(reading, PageRequest(None, SHOWN), "attribute", actions=FOUND).items
        known = {each.path: each for each in find_attributes(reading, {each.subject for each in found})}
        changes = list_changes(reading, PageRequest(None, SHOWN), actions=DECIDED).items
        has_specs = count_active_specs(reading) > 0
        waiting = [*known_beside.waiting, *decisions(reading, session)]
    return render(
        request,
        "overview.html",
        session,
        title="Overview",
        beside=known_beside,
        is_asked=beside or not can_ask,
        waiting=sorted(waiting, key=lambda each: not each.is_harm),
        new=[(each, known[each.subject]) for each in found if each.subject in known],
        changes=changes,
        has_specs=has_specs,
        version=service.database.revision().version,
        subject=subject,
        curl=curl(str(request.base_url), "/v1/changes", limit=SHOWN),
    )


def decisions(reading: Reading, session: Session) -> Iterator[WaitingDecision]:
    """What of the metadata waits for this person."""
    if may(session, "POST", "/v1/policy-changes/1/approve"):
        pending = list_policy_changes(reading, PageRequest(None, MOST_PENDING), "pending").items
        others = [each for each in pending if each.requested.actor != session.caller.name]
        if others:
            newest = others[0]
            says = f"{newest.requested.actor} asks: {'; '.join(newest.weakens[:2])}"
            is_more = len(pending) == MOST_PENDING
            url = "/ui/policy-changes" if len(others) > 1 else f"/ui/policy-changes/{newest.id}"
            title = "Edits weaken protection"
            yield WaitingDecision(len(others), title, says, "Decide", url, is_harm=True, is_more=is_more)
    if may(session, "POST", "/v1/requests/1/answer"):
        asked = list_grants(reading, PageRequest(None, MOST_PENDING), datetime.now(UTC), state="waits").items
        asked = [each for each in asked if each.person != person_of(session.caller.name)]
        if asked:
            says = f"{asked[0].person} asks to see {asked[0].path or f'the view {asked[0].view}'}"
            yield WaitingDecision(len(asked), "Requests for access", says, "Answer", "/ui/requests")
    for each in ending(reading, datetime.now(UTC), person_of(session.caller.name)):
        what, url = each.path or f"the view {each.view}", f"/ui/requests?{urlencode(each.again)}"
        says = f"You see {what} until {as_time(each.ends or each.until)}"
        yield WaitingDecision(1, "Your access ends", says, "Ask again", url)
    if may(session, "POST", "/v1/attributes/a/proposal"):
        proposed = total_attributes(reading, AttributeFilter(proposed=True))
        if proposed:
            says = "A detector proposes a policy; sealed ones stay so until you decide"
            yield WaitingDecision(
                proposed,
                "New attributes look sensitive",
                says,
                "Decide",
                "/ui/attributes?proposed=true",
                is_harm=True,
            )


def _beside(request: Request, session: Session) -> Beside:
    scopes = profiles_rights(session).scopes
    jobs: list[dict[str, Any]] = []
    flows: list[dict[str, Any]] = []
    waiting: list[WaitingDecision] = []
    try:
        with profiles_client(request, session, SECONDS) as client:
            jobs = _items(client, "jobs", limit=50)
            waiting += _unfinished(jobs)
            if Scope.OPERATE in scopes:
                flows = _items(client, "flows")
                waiting += _set_aside(client)
            if Scope.LINKS in scopes:
                says = "The rules keep identifiers apart that events showed together"
                refused = _items(client, "links", "violations", limit=1)
                review = WaitingDecision(None, "Refused links", says, "Review", "/ui/review/violations")
                waiting += [review] if refused else []
    except ProfileServiceError as error:
        return Beside(jobs, flows, waiting, str(error))
    return Beside(jobs, flows, waiting)


def _items(client: ProfilesClient, *path: str, **params: Any) -> list[dict[str, Any]]:
    try:
        found: list[dict[str, Any]] = client.call("GET", *path, params=params)["items"]
    except ProfileServiceError as error:
        if error.status != UNCONFIGURED:
            raise
        return []
    return found


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
