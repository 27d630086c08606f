"""Routes for views: which there are; for segments: who is in one, and which ones somebody is in; and for triggers: what came of
who entered and left."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response

from idgraph.model.documents import NAME_PATTERN
from idgraph.model.identifiers import given_identifier
from idgraph.model.index import Segment
from idgraph.model.queries import leaves
from idgraph.model.triggers import TriggerDocument
from idgraph.model.views import SegmentDocument, ViewDocument
from idgraph.web.cursors import ListPage
from idgraph.web.refusals import UnknownSubjectError
from profile_service.api.dependencies import AFTER_COMMIT, AFTER_INDEX, ActingCaller, Service, WantedParts
from profile_service.api.documents import (
    Items,
    MemberCount,
    Membership,
    ProfileDocument,
    SegmentDetails,
    ViewSummary,
    answer,
)
from profile_service.request_bodies import IdentifiersBody
from profile_service.trigger_ledger import TriggerLine, ledger_of, triggers_of

router = APIRouter(prefix="/v1/segments", tags=["segments"])
triggers = APIRouter(prefix="/v1/triggers", tags=["triggers"])
views = APIRouter(prefix="/v1/views", tags=["views"])


@views.get("", response_model=Items[ViewSummary])
def list_views(service: Service) -> Response:
    """The views, by name. Look-ups and searches take one by its name."""
    return answer({"items": list(map(_summary, service.views().documents.values()))})


def _segment(
    service: Service, caller: ActingCaller, name: Annotated[str, Path(pattern=NAME_PATTERN)]
) -> tuple[Segment, SegmentDocument]:
    found = service.reader(caller).segments().get(name)
    document = next(
        (each for each in service.following.edition().snapshot.segments if each.name == name), None
    )
    if found is None or document is None:
        raise UnknownSubjectError("there is no such segment")
    return found, document


Asked = Annotated[tuple[Segment, SegmentDocument], Depends(_segment)]


def _summary(document: SegmentDocument | ViewDocument) -> dict[str, Any]:
    return document.model_dump(include={"name", "version", "description", "purpose"})


@router.get("", response_model=Items[ViewSummary])
def list_(service: Service, caller: ActingCaller) -> Response:
    """The segments, by name. One that asks for a hidden attribute does not exist for the caller."""
    seen = service.reader(caller).segments()
    found = (each for each in service.following.edition().snapshot.segments if each.name in seen)
    return answer({"items": list(map(_summary, found))})


@router.get("/{name}", response_model=SegmentDetails)
def get(asked: Asked, service: Service) -> Response:
    """One segment."""
    segment, document = asked
    attributes = sorted({each.path for each in leaves(segment.asked) if each.path is not None})
    body = document.model_dump(include={"q", "query", "changes", "time_zone"})
    used = {"attributes": attributes, "used_by": service.uses.get(document.name, [])}
    return answer(_summary(document) | body | used)


@router.get("/{name}/count", response_model=MemberCount, dependencies=[AFTER_INDEX])
def count(asked: Asked, service: Service, caller: ActingCaller) -> Response:
    """The number of members, and of matches that have not consented. `/v1/search/count` counts for a search that is no
    segment yet."""
    segment, document = asked
    reader = service.reader(caller)
    found = {"count": reader.count_members(segment)}
    if document.purpose is not None:
        found["without_consent"] = reader.count_without_consent(segment)
    return answer(found)


@router.get("/{name}/members", response_model=ListPage[ProfileDocument], dependencies=[AFTER_INDEX])
def members(
    asked: Asked,
    service: Service,
    caller: ActingCaller,
    wanted: WantedParts,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=10_000, description="`next` of the page before.")] = None,
) -> Response:
    """The members, by id. A page can be shorter than `limit`: whoever withdrew a consent since is left out at once."""
    wanted = wanted.with_purpose(asked[1].purpose)
    reader = wanted.reading(service.reader(caller))
    search = f"segment {asked[0].name}"
    result = reader.members(asked[0], limit, service.opened(cursor, search), wanted.reveal)
    items = [wanted.document(each) for each in wanted.read(service, caller, result.profiles, reader)]
    return answer({"items": items, "next": service.sealed(result, search)})


@router.post("/member-of", response_model=Items[Membership], dependencies=[AFTER_COMMIT])
def member_of(body: IdentifiersBody, service: Service, caller: ActingCaller) -> Response:
    """The segments of up to 100 profiles, by what is stored now."""
    found = service.reader(caller).segments_of_each(list(map(given_identifier, body.identifiers)))
    items = [
        {"identifier": text, "segments": segments}
        for text, segments in zip(body.identifiers, found, strict=True)
    ]
    service.require_found(any(each["segments"] is not None for each in items))
    return answer({"items": items})


@triggers.get("", response_model=Items[TriggerDocument])
def list_triggers(service: Service, caller: ActingCaller) -> Response:
    """The triggers in force, by name. One whose segment asks for a hidden attribute does not exist for the caller."""
    found = triggers_of(service, caller)
    return answer({"items": [each.model_dump(mode="json") for each in found]})


@triggers.get("/{name}/ledger", response_model=ListPage[TriggerLine])
def ledger(
    name: Annotated[str, Path(pattern=NAME_PATTERN)],
    service: Service,
    caller: ActingCaller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(max_length=200, description="`next` of the page before.")] = None,
) -> Response:
    """The outcomes of the newest crossings of a trigger's segment, the newest decision first: fired, held, waiting, suppressed
    or failed, and why."""
    return answer(ledger_of(service, caller, name, limit, cursor))
