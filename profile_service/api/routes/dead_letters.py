"""Routes for dead letters, for callers with the scope `operate`: what was set aside, why, replay and drop."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from idgraph.model.dead_letters import FRAGMENT, PARTIAL, DeadLetter
from idgraph.model.documents import StrictDocument
from idgraph.model.jobs import JobKind
from idgraph.web.cursors import from_cursor, to_cursor
from idgraph.web.refusals import BadQueryError, RefusedRequestError, UnknownSubjectError
from profile_service.api.dead_letters import MOST_SCANNED, DeadLetterDesk, DeadLetterFilter
from profile_service.api.dependencies import Operator, Service
from profile_service.api.documents import Reasoned, answer
from profile_service.api.rights import required
from profile_service.api.routes import jobs
from profile_service.api.routes.jobs import JobDocument
from profile_service.link_documents import time_text
from profile_service.reader import ProfileReader
from profile_service.service import ProfileService

MOST_CHOSEN = 1000
GROUPED = ("reason", "source", "stage", "spec")

router = APIRouter(prefix="/v1/dead-letters", tags=["dead letters"])


class DeadLetterSummary(BaseModel):
    """One record that was set aside. The position of a fragment's changes has a keyed hash instead of its name."""

    id: str
    reason: str
    detail: str = Field(
        description="The fault; never a value of the record. Empty if it names an attribute above the clearance."
    )
    stage: str
    source: str = Field(description="Empty for changes of a fragment that could not be committed.")
    position: str
    spec: str | None = Field(description="`name@version` of the spec that mapped it.")
    snapshot_version: int
    batch: str
    attempt: str
    set_aside_at: str


class DeadLetterGroup(BaseModel):
    """Dead letters with the same value."""

    value: str
    count: int
    since: str = Field(description="Time at which the oldest of them was set aside.")
    detail: str = Field(description="The fault of the newest of them.")


class DeadLetterList(BaseModel):
    """A page, the newest first. One answer looks at a bounded number; `next` goes on behind them, also of an empty page."""

    items: list[DeadLetterSummary]
    next: str | None
    scanned: int = Field(description="Number of the newest dead letters that the counts and groups cover.")
    scanned_to: str | None = Field(description="The age of the oldest of them.")
    is_complete: bool = Field(description="Whether these are all.")
    matching: int = Field(description="Number of them that match.")
    groups: dict[str, list[DeadLetterGroup]] = Field(
        description="The matching ones by reason, source, stage and spec; the largest group first."
    )


class DeadLetterDetails(DeadLetterSummary):
    """One dead letter with its record, as far as policy and the caller's clearance show it."""

    payload: Any = Field(
        description='A sealed value is `{"$protected": true, "type": ...}`, with `like` another number or time for one; one above the clearance is left out. If no '
        "policy applies only keys and types are shown."
    )
    problem: str | None = Field(description="Why there is no payload.")
    becomes: dict[str, list[str]] = Field(
        description="By JSON pointer into the payload, the attributes that a value becomes."
    )
    cause: list[str] = Field(description="JSON pointers of what is wrong, where that is known.")


class DeadLetterListing(DeadLetterFilter):
    """A filter of dead letters, and a page of those that match."""

    cursor: str | None = Field(default=None, max_length=1000, description="`next` of the page before.")
    limit: int = Field(default=50, ge=1, le=500)


class DeadLetterChoice(StrictDocument):
    """Some dead letters by their ids, or all that a filter selects. An empty filter selects all."""

    ids: list[Annotated[str, Field(max_length=100)]] | None = Field(
        default=None, min_length=1, max_length=MOST_CHOSEN
    )
    filter: DeadLetterFilter | None = None


class ReasonedChoice(DeadLetterChoice, Reasoned):
    """The same, and why they are replayed or dropped."""


class Dropped(BaseModel):
    """The number of dropped dead letters."""

    dropped: int


class ReplayPreview(BaseModel):
    """The number of dead letters that a replay would take up."""

    count: int
    reasons: dict[str, int]
    partial: int = Field(
        description="Number of them that hold only a part of their record: their file must be published again."
    )


@router.get("", response_model=DeadLetterList)
def list_(service: Service, caller: Operator, listing: Annotated[DeadLetterListing, Query()]) -> Response:
    """The newest dead letters that match, and all in groups."""
    desk, reader = _desk(service), service.reader(caller)
    newest = desk.newest(MOST_SCANNED)
    matching = [each for each in newest if listing.takes(each)]
    before = _place(listing.cursor)
    window = newest if before is None else desk.newest(MOST_SCANNED, before)
    found = [each for each in window if listing.takes(each)]
    shown = found[: listing.limit]
    last = None
    if len(found) > listing.limit:
        last = shown[-1]
    elif len(window) == MOST_SCANNED:
        last = window[-1]
    return answer(
        {
            "items": [_summary(service, reader, each) for each in shown],
            "next": None if last is None else to_cursor(f"{last.set_aside_at}:{last.id}"),
            "scanned": len(newest),
            "scanned_to": time_text(newest[-1].set_aside_at) if newest else None,
            "is_complete": len(newest) < MOST_SCANNED,
            "matching": len(matching),
            "groups": {name: _groups(matching, name, reader) for name in GROUPED},
        }
    )


@router.get("/{dead_letter}", response_model=DeadLetterDetails)
def get(dead_letter: str, service: Service, caller: Operator) -> Response:
    """One dead letter. It shows nothing that policy protects or that is above the clearance."""
    desk = _desk(service)
    found = desk.get(dead_letter)
    if found is None:
        raise UnknownSubjectError("there is no such dead letter: it may have been replayed or dropped")
    edition = service.following.edition()
    reader = service.reader(caller)
    record = desk.record(found, edition.snapshot, edition.etag, reader.sees)
    return answer(_summary(service, reader, found) | record._asdict())


@router.post("/replay/preview", response_model=ReplayPreview)
def preview(body: DeadLetterChoice, service: Service, _: Operator) -> Response:
    """The number of dead letters that a replay would take up; changes nothing."""
    reasons = Counter(each.reason for each in _chosen(service, body))
    partial = sum(reasons[each] for each in PARTIAL)
    counted = {str(reason): count for reason, count in sorted(reasons.items())}
    return answer({"count": reasons.total(), "reasons": counted, "partial": partial})


@router.post("/replay", response_model=JobDocument, status_code=202)
def replay(body: ReasonedChoice, service: Service, caller: Operator) -> Response:
    """Give dead letters through the stages again, with today's specs: a job. Those that pass leave the list; of the others
    it counts those `still_dead`, `partial` (publish their file again) and `unreadable`."""
    chosen = [each.id for each in _chosen(service, body)]
    if not chosen:
        raise UnknownSubjectError("there is no such dead letter: they may have been replayed or dropped")
    service.note(caller, "start replay", subject=f"{len(chosen)} dead letters", purpose=body.reason)
    return jobs.started(service, caller, JobKind.REPLAY, {"dead_letters": chosen}, body.reason)


@router.post("/drop", response_model=Dropped)
def drop(body: ReasonedChoice, service: Service, caller: Operator) -> Response:
    """Remove dead letters for good; 0 when they are gone already. `/replay/preview` counts the same choice."""
    chosen = [each.id for each in _chosen(service, body)]
    if chosen:
        service.note(caller, "drop dead letters", subject=f"{len(chosen)} dead letters", purpose=body.reason)
    return answer({"dropped": _desk(service).drop(chosen) if chosen else 0})


def _desk(service: ProfileService) -> DeadLetterDesk:
    return required(service.rights.dead_letters)


def _place(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    age, _, dead_letter = from_cursor(cursor, str).partition(":")
    if not (age.isascii() and age.isdecimal() and len(age) < 19):
        raise BadQueryError("the cursor belongs to another list; start again without one")
    return int(age), dead_letter


def _chosen(service: ProfileService, choice: DeadLetterChoice) -> list[DeadLetter]:
    if (choice.ids is None) == (choice.filter is None):
        raise RefusedRequestError("give `ids`, or a `filter`", hint="an empty filter means all")
    desk = _desk(service)
    if choice.filter is not None:
        return list(choice.filter.all_of(desk))
    found = (desk.get(each) for each in dict.fromkeys(choice.ids or ()))
    return [each for each in found if each is not None]


def _groups(found: list[DeadLetter], name: str, reader: ProfileReader) -> list[dict[str, Any]]:
    """`found` has the newest first."""
    groups: dict[str, list[DeadLetter]] = {}
    for each in found:
        if value := getattr(each, name):
            groups.setdefault(str(value), []).append(each)
    return [
        {
            "value": value,
            "count": len(group),
            "since": time_text(group[-1].set_aside_at),
            "detail": reader.shown_text(group[0].detail),
        }
        for value, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _summary(service: ProfileService, reader: ProfileReader, each: DeadLetter) -> dict[str, Any]:
    found = {name: value for name, value in each._asdict().items() if name != "payload"}
    if each.holds_changes():
        # It names somebody, maybe by an identifier that is protected by now.
        found["position"] = FRAGMENT + service.hashed(each.position.removeprefix(FRAGMENT))
    found["detail"] = reader.shown_text(each.detail)
    return found | {"reason": str(each.reason), "set_aside_at": time_text(each.set_aside_at)}
