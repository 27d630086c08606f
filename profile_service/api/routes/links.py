"""Routes for decisions on links, for callers with the scope `links`: what a decision would do, then the decision."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field

from idgraph.model.callers import Caller, Scope
from idgraph.model.documents import StrictDocument
from idgraph.model.identifiers import given_identifier
from idgraph.model.jobs import JobKind, JobRecord
from idgraph.web.conditional import IfMatch, is_listed
from idgraph.web.refusals import PreconditionError, RefusedRequestError, UnknownSubjectError
from merge.identity.components import Person
from merge.identity.evidence import Pair
from merge.identity.resolve import Decision, Violation
from profile_service.api.dependencies import Service, scoped
from profile_service.api.documents import DecidedPin, LinkDocument, Reasoned, answer
from profile_service.api.rights import own_job, required, start_job
from profile_service.api.routes.profiles import shown_links
from profile_service.link_documents import pin_document
from profile_service.links import Links, PinChange, RefusedGroup, StoredIdentifier
from profile_service.reader import ProfileLeaf, ProfileReader
from profile_service.request_bodies import LONGEST_PURPOSE
from profile_service.service import ProfileService

MOST_PINS = 50
MOST_SHOWN = 100
LOOKED_AT_ONCE = 200
"""Fragments."""
MOST_SECONDS = 1.0
"""After so long a page of violations ends, whether it is full or not."""

router = APIRouter(prefix="/v1/links", tags=["links"])


class DecisionDocument(StrictDocument):
    """`always`: the pair is one person. `never`: it is not. `none` takes the newest decision back."""

    pair: Annotated[list[Annotated[str, Field(max_length=4096)]], Field(min_length=2, max_length=2)]
    decision: Literal["always", "never", "none"]


class PinsBody(StrictDocument):
    """Decisions on pairs of identifiers, each `type:value`."""

    pins: list[DecisionDocument] = Field(min_length=1, max_length=MOST_PINS)


class DecisionBody(PinsBody, Reasoned):
    """The same, and why."""


class ChangedValue(BaseModel):
    """A value that another one replaces. `before` is absent where there is none today, `after` where there would be
    none. Both are `{"$protected": true}` where policy protects it."""

    path: str
    before: Any = None
    after: Any = None


class ChangedProfile(BaseModel):
    """A profile that begins, ends or changes: its identifiers and those of today, and the values that would change."""

    id: str
    state: Literal["begins", "ends", "changes"]
    identifiers: list[str]
    identifiers_before: list[str]
    values: list[ChangedValue]


class RefusedDocument(BaseModel):
    """A pair that a rule keeps apart."""

    pair: list[str] = Field(min_length=2, max_length=2)
    rule: str


class LinkChange(BaseModel):
    """The effects of decisions, as far as the caller may know of them. `pins` is empty where there is nothing
    to take back."""

    pins: list[DecidedPin]
    profiles: list[ChangedProfile]
    joining: list[LinkDocument] = Field(
        description="Links that join because of it; `rule` has kept them apart so far."
    )
    refused_no_more: list[RefusedDocument]
    refused_from_now: list[RefusedDocument]
    etag: str = Field(description="ETag of the evidence that this follows from: `If-Match` of the decision.")
    searchable: bool = Field(
        default=True,
        description="Whether searches show it. Look-ups do at once, searches by the next projection.",
    )


class RefusedGroupDocument(BaseModel):
    """Links that were refused for one cause: one rule, and one identifier that all of them would join.
    `owner` is the profile that has the identifier now, by the `accepted` links, null where it is nobody's;
    `rivals` are its identifiers of the types that were refused. At most 100 refused links are listed."""

    identifier: str
    rule: str
    owner: str | None
    rivals: list[str]
    accepted: list[LinkDocument]
    refused: list[LinkDocument]


class RefusedGroups(BaseModel):
    """A page of groups. It can be empty while `next` leads on: most profiles have no refused link."""

    items: list[RefusedGroupDocument]
    next: str | None
    looked: int = Field(description="About how many fragments were looked through for this page.")


class SuggestionsBody(StrictDocument):
    """The attributes to compare, of profiles that agree on all of one entry of `blocking` (default: on one
    attribute)."""

    attributes: list[Annotated[str, Field(max_length=1024)]] = Field(min_length=2, max_length=20)
    blocking: list[list[str]] = Field(default=[], max_length=20)
    least_weight: float = Field(
        default=2.0, description="Logarithm to base 2 of the odds; 0: as likely as not."
    )
    reason: str = Field(default="", max_length=LONGEST_PURPOSE)


class SuggestionDocument(BaseModel):
    """Two profiles that may be one person, and what each attribute adds to the weight."""

    pair: list[str] = Field(min_length=2, max_length=2)
    weight: float
    parts: dict[str, float]


class SuggestionPage(BaseModel):
    """A job, and a page of what it found, the heaviest first, without pairs that somebody decided on. There are none
    before the end, and after a restart of the service."""

    id: str
    state: str = Field(description="`running`, `done`, `failed`, `cancelled` or `interrupted`.")
    done: int
    total: int
    items: list[SuggestionDocument]
    next: str | None


Decider = Annotated[Caller, scoped(Scope.LINKS)]


class _Found(NamedTuple):
    links: Links
    reader: ProfileReader
    change: PinChange
    etag: str


@router.post("/preview", response_model=LinkChange)
def preview(body: PinsBody, service: Service, caller: Decider) -> Response:
    """The effects of decisions, and the links that would join next; changes nothing."""
    found = _found(service, caller, body, "")
    return _answer(found)


@router.post("", response_model=LinkChange, responses={412: {"description": "The evidence changed."}})
def decide(body: DecisionBody, service: Service, caller: Decider, if_match: IfMatch = None) -> Response:
    """Decide. With the `etag` of a preview as `If-Match` only if the evidence is still what the preview saw: else 412."""
    found = _found(service, caller, body, body.reason)
    if if_match is not None and not is_listed(found.etag, if_match):
        raise PreconditionError(
            "evidence, a decision or a rule has changed since the preview; preview it again"
        )
    return _answer(found, service.decide(caller, found.links, found.change, body.reason))


@router.get("/violations", response_model=RefusedGroups)
def violations(
    service: Service,
    caller: Decider,
    cursor: Annotated[str | None, Query(max_length=10_000)] = None,
    limit: Annotated[int, Query(ge=1, le=200, description="The page ends once it has as many.")] = 50,
) -> Response:
    """Links that the rules refused, by cause, as far as the caller may know of them. Pins are not among them."""
    reader = service.reader(caller)
    links = service.links(reader)
    place: str | None = "" if cursor is None else service.cursors.open(cursor, "violations")
    items: list[dict[str, Any]] = []
    looked = 0
    ends = time.monotonic() + MOST_SECONDS
    while place is not None and (not looked or (len(items) < limit and time.monotonic() < ends)):
        groups, place = links.refused(place, LOOKED_AT_ONCE)
        looked += LOOKED_AT_ONCE
        items += [document for each in groups if (document := _group(each, reader))["refused"]]
    following = None if place is None else service.cursors.seal(place, "violations")
    return answer({"items": items, "next": following, "looked": looked})


@router.post("/suggestions", response_model=SuggestionPage, status_code=202)
def start_suggestions(body: SuggestionsBody, service: Service, caller: Decider) -> Response:
    """Find pairs of profiles that may be one person: a job that changes nothing. One runs at a time (409)."""
    stated = body.model_dump(include={"attributes", "blocking", "least_weight"})
    nothing = "there is nothing to compare"
    job = start_job(service.rights, caller, JobKind.SUGGEST, stated, body.reason, nothing)
    return answer(_suggestions(service, caller, job, None, 1), status=202)


@router.get("/suggestions/{job}", response_model=SuggestionPage)
def suggestions(
    job: str,
    service: Service,
    caller: Decider,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """The progress of the job, and its suggestions."""
    found = own_job(service.rights, caller, job, JobKind.SUGGEST)
    return answer(_suggestions(service, caller, found, cursor, limit))


def _suggestions(
    service: ProfileService, caller: Caller, job: JobRecord, cursor: str | None, limit: int
) -> dict[str, Any]:
    found = (required(service.rights.jobs).result(job.id) or {"items": []})["items"]
    place = 0 if cursor is None else int(service.cursors.open(cursor, "suggestions"))
    items, place = undecided(service, caller, found, place, limit)
    following = service.cursors.seal(str(place), "suggestions") if place < len(found) else None
    progress = {"done": job.progress.done, "total": job.progress.total}
    return {"id": job.id, "state": str(job.state), **progress, "items": items, "next": following}


def undecided(
    service: ProfileService, caller: Caller, found: list[dict[str, Any]], place: int, limit: int
) -> tuple[list[dict[str, Any]], int]:
    """Up to `limit` pairs from a place on that the caller may see and nobody decided on, and where the next ones begin."""
    reader = service.reader(caller)
    links = service.links(reader)
    items: list[dict[str, Any]] = []
    end = min(len(found), place + 10 * limit)
    decided = links.decided(name for each in found[place:end] for name in each["pair"])
    while place < end and len(items) < limit:
        ends = [given_identifier(name) for name in found[place]["pair"]]
        # A person who was erased since is in the list of the job, and nowhere else.
        if Pair.of(*ends) not in decided and all(
            reader.sees_type(end.type) and links.stored(end) for end in ends
        ):
            items.append(found[place])
        place += 1
    return items, place


def _group(group: RefusedGroup, reader: ProfileReader) -> dict[str, Any]:
    return {
        "identifier": str(group.identifier),
        "rule": group.rule,
        "owner": None if group.owner is None else reader.shown_name(group.owner),
        "rivals": [str(each) for each in group.rivals if reader.sees_type(each.type)],
        "accepted": shown_links(group.accepted, reader),
        "refused": shown_links(group.refused, reader)[:MOST_SHOWN],
    }


def _found(service: ProfileService, caller: Caller, body: PinsBody, reason: str) -> _Found:
    reader = service.reader(caller)
    links = service.links(reader)

    def stored(text: str) -> StoredIdentifier:
        identifier = given_identifier(text)
        known = links.stored(identifier) if reader.sees_type(identifier.type) else None
        if known is None:
            service.require_found(is_found=False)
            raise UnknownSubjectError("no profile has this identifier")
        return known

    asked = []
    for number, each in enumerate(body.pins):
        one, other = map(stored, each.pair)
        if one.identifier == other.identifier:
            raise RefusedRequestError("both are the same identifier", f"/pins/{number}/pair")
        asked.append((one, other, Decision(each.decision)))
    change = links.decide(asked, time.time_ns() // 1_000_000, caller.name, reason)
    # Keyed: whoever has it cannot try what it is the digest of.
    etag = service.hashed(f"evidence:{change.evidence}").partition("~")[2]
    return _Found(links, reader, change, f'"{etag}"')


def _answer(found: _Found, is_searchable: bool = True) -> Response:
    change, reader = found.change, found.reader
    before, after = ({each.id: each for each in some} for some in (change.before, change.after))
    body = {
        "pins": [pin_document(each) for each in change.pins],
        "profiles": [
            _profile(reader, each, before.get(each), after.get(each))
            for each in sorted(before.keys() | after.keys())
        ],
        "joining": shown_links(change.joining, reader),
        "refused_no_more": refused_documents(change.gone, reader),
        "refused_from_now": refused_documents(change.new, reader),
        "etag": found.etag,
        "searchable": is_searchable,
    }
    response = answer(body)
    response.headers["ETag"] = found.etag
    return response


def refused_documents(some: Iterable[Violation], reader: ProfileReader) -> list[dict[str, Any]]:
    """Those whose two identifiers a reader may see."""
    return [
        {"pair": [str(end) for end in each.pair], "rule": each.rule}
        for each in some
        if all(reader.sees_type(end.type) for end in each.pair)
    ]


def _profile(reader: ProfileReader, name: str, before: Person | None, after: Person | None) -> dict[str, Any]:
    old, new = (({}, []) if each is None else _shown(reader, each) for each in (before, after))
    return {
        "id": reader.shown_name(name),
        "state": "begins" if before is None else "ends" if after is None else "changes",
        "identifiers": new[1],
        "identifiers_before": old[1],
        "values": list(_values(old[0], new[0])),
    }


def _shown(reader: ProfileReader, person: Person) -> tuple[dict[str, ProfileLeaf], list[str]]:
    profile = reader.profile_of(person)
    return {each.path: each for each in profile.leaves}, [str(each) for each in profile.identifiers]


def _values(old: dict[str, ProfileLeaf], new: dict[str, ProfileLeaf]) -> Iterator[dict[str, Any]]:
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path), new.get(path)
        if before is not None and after is not None and _content(before) == _content(after):
            continue
        sides = (("before", before), ("after", after))
        yield {"path": path} | {name: leaf.value for name, leaf in sides if leaf is not None}


def _content(leaf: ProfileLeaf) -> Any:
    """The value to compare; for a protected one its sealed parts, which differ by event."""
    return [part.value for part in leaf.stored.parts] if leaf.protected else leaf.value
