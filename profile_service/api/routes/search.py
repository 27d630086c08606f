"""Routes for searches: the search language in a URL, or JSON in a body."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from idgraph.model import queries
from idgraph.model.callers import Caller
from idgraph.model.queries import Order
from idgraph.model.query_language import corrected, parse_query, warnings
from idgraph.web.conditional import IfNoneMatch
from idgraph.web.refusals import BadQueryError
from profile_service.api.dependencies import AFTER_INDEX, ActingCaller, Service, WantedParts
from profile_service.api.documents import (
    LONGEST_QUERY,
    CountResult,
    FacetBody,
    FacetResults,
    QueryBody,
    SearchBody,
    SearchParams,
    SearchResults,
    Words,
    answer,
    warned,
)
from profile_service.reader import ProfileReader
from profile_service.wanted import Wanted

router = APIRouter(prefix="/v1/search", tags=["search"])

UNCHANGED: dict[int | str, dict[str, str]] = {304: {"description": "Nothing changed."}}


def _query(reader: ProfileReader, body: QueryBody) -> queries.Query:
    if sum(each is not None for each in (body.q, body.words, body.query)) > 1:
        raise BadQueryError("`q`, `words` and `query` are forms of one thing; give one")
    if body.words is not None:
        return parse_query(body.words, reader.types().get)
    if body.query is not None:
        return queries.from_json(body.query)
    # Unlike the words of a command line, each of which a shell has kept together.
    return parse_query([f"({body.q})"] if body.q and body.q.strip() else [], reader.types().get)


def _warnings(
    reader: ProfileReader, query: queries.Query, others: Iterable[str] = (), within: Iterable[str] = ()
) -> list[str]:
    return warnings(query, reader.types(), reader.found_type, others, within)


def _sealed_for(caller: Caller) -> str:
    """Nobody else reads what was typed: it may name what a clearance hides."""
    return f"query of {caller.name}"


def _search(
    service: Service, caller: ActingCaller, body: SearchBody, wanted: Wanted, if_none_match: str | None
) -> Response:
    reader = wanted.reading(service.reader(caller))
    if body.search is not None:
        body = body.model_copy(update={"q": service.cursors.open(body.search, _sealed_for(caller))})
    query = _query(reader, body)
    order = None if body.sort is None else Order(body.sort.removeprefix("-"), body.sort.startswith("-"))
    asked, others = repr((body.q, body.words, body.query, body.sort)), (order.path,) if order else ()
    result = reader.search(query, body.limit, service.opened(body.cursor, asked), wanted.reveal, order)
    service.require_found(bool(result.profiles))
    profiles = wanted.read(service, caller, result.profiles, reader)
    incomplete = reader.take_incomplete()
    found: dict[str, Any] = {
        "items": [wanted.document(profile) for profile in profiles],
        "next": service.sealed(result, asked),
        "warnings": [
            *_warnings(reader, query, others, wanted.fields or ()),
            *wanted.left_out(result, profiles),
            *([] if result.profiles or body.cursor else service.warnings_of_loss(caller)),
        ],
        "q": body.q,
        "corrected": None,
        "search": None if body.q is None else service.cursors.seal(body.q, _sealed_for(caller)),
    }
    if incomplete:
        found["incomplete"] = incomplete
    if body.q is not None and found["warnings"]:
        meant = corrected(body.q, query, reader.types())
        found["corrected"] = meant if meant != body.q else None
    return answer(found, if_none_match)


@router.get("", response_model=SearchResults, responses=UNCHANGED, dependencies=[AFTER_INDEX])
def get(
    service: Service,
    caller: ActingCaller,
    wanted: WantedParts,
    asked: Annotated[SearchParams, Query()],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Profiles that match: by `sort`, else the best matches for its words first, else by id."""
    return _search(service, caller, SearchBody(**asked.model_dump()), wanted, if_none_match)


@router.post("", response_model=SearchResults, dependencies=[AFTER_INDEX])
def post(body: SearchBody, service: Service, caller: ActingCaller) -> Response:
    """The same, with the query in the body: nothing of it is in a URL."""
    return _search(service, caller, body, body.wanted(service, caller), None)


@router.get("/count", response_model=CountResult, dependencies=[AFTER_INDEX])
def get_count(service: Service, caller: ActingCaller, asked: Annotated[Words, Query()]) -> Response:
    """The number of profiles that match."""
    return post_count(QueryBody(q=asked.q), service, caller)


@router.post("/count", response_model=CountResult, dependencies=[AFTER_INDEX])
def post_count(body: QueryBody, service: Service, caller: ActingCaller) -> Response:
    """The number of profiles that match."""
    reader = service.reader(caller)
    query = _query(reader, body)
    count, said = reader.count(query), _warnings(reader, query)
    return answer(warned({"count": count}, said if count else said + service.warnings_of_loss(caller)))


@router.get("/facets", response_model=FacetResults, dependencies=[AFTER_INDEX])
def get_facets(
    service: Service,
    caller: ActingCaller,
    path: Annotated[
        list[str], Query(min_length=1, max_length=20, description="Attribute path; can be repeated.")
    ],
    q: Annotated[str | None, Query(max_length=LONGEST_QUERY)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 10,
) -> Response:
    """The most frequent values of attributes among the profiles that match."""
    return post_facets(FacetBody(q=q, paths=path, limit=limit), service, caller)


@router.post("/facets", response_model=FacetResults, dependencies=[AFTER_INDEX])
def post_facets(body: FacetBody, service: Service, caller: ActingCaller) -> Response:
    """The most frequent values of attributes among the profiles that match."""
    reader = service.reader(caller)
    query = _query(reader, body)
    found = reader.facets(query, body.paths, body.limit)
    facets = {path: [each._asdict() for each in some] for path, some in found.items()}
    return answer(warned({"facets": facets}, _warnings(reader, query, body.paths)))
