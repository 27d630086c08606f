"""Routes for searches: the search language in a URL, or JSON in a body."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from idgraph.model.durations import TimeZone
from idgraph.web.conditional import IfNoneMatch
from profile_service import searching
from profile_service.api.dependencies import AFTER_INDEX, ActingCaller, ReadingParams, Service
from profile_service.api.documents import CountResult, FacetResults, SearchResults, answer
from profile_service.request_bodies import (
    LONGEST_QUERY,
    FacetBody,
    QueryBody,
    SearchBody,
    SearchParams,
    Words,
)

router = APIRouter(prefix="/v1/search", tags=["search"])

UNCHANGED: dict[int | str, dict[str, str]] = {304: {"description": "Nothing changed."}}


@router.get("", response_model=SearchResults, responses=UNCHANGED, dependencies=[AFTER_INDEX])
def get(
    service: Service,
    caller: ActingCaller,
    reading: Annotated[ReadingParams, Query()],
    asked: Annotated[SearchParams, Query()],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Profiles that match: by `sort`, else the best matches for its words first, else by id."""
    body = SearchBody.model_validate(asked.model_dump() | reading.model_dump(by_alias=True))
    return answer(searching.search(service, caller, body), if_none_match)


@router.post("", response_model=SearchResults, dependencies=[AFTER_INDEX])
def post(body: SearchBody, service: Service, caller: ActingCaller) -> Response:
    """The same, with the query in the body: nothing of it is in a URL."""
    return answer(searching.search(service, caller, body))


@router.get("/count", response_model=CountResult, dependencies=[AFTER_INDEX])
def get_count(service: Service, caller: ActingCaller, asked: Annotated[Words, Query()]) -> Response:
    """The number of profiles that match."""
    return answer(searching.count(service, caller, QueryBody(q=asked.q, time_zone=asked.time_zone)))


@router.post("/count", response_model=CountResult, dependencies=[AFTER_INDEX])
def post_count(body: QueryBody, service: Service, caller: ActingCaller) -> Response:
    """The number of profiles that match."""
    return answer(searching.count(service, caller, body))


@router.get("/facets", response_model=FacetResults, dependencies=[AFTER_INDEX])
def get_facets(
    service: Service,
    caller: ActingCaller,
    path: Annotated[
        list[str], Query(min_length=1, max_length=20, description="Attribute path; can be repeated.")
    ],
    q: Annotated[str | None, Query(max_length=LONGEST_QUERY)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    time_zone: Annotated[TimeZone, Query()] = "UTC",
) -> Response:
    """The most frequent values of attributes among the profiles that match."""
    body = FacetBody(q=q, paths=path, limit=limit, time_zone=time_zone)
    return answer(searching.facets(service, caller, body))


@router.post("/facets", response_model=FacetResults, dependencies=[AFTER_INDEX])
def post_facets(body: FacetBody, service: Service, caller: ActingCaller) -> Response:
    """The most frequent values of attributes among the profiles that match."""
    return answer(searching.facets(service, caller, body))
