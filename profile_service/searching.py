"""Searches: the search language or JSON conditions, and answers as JSON has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from idgraph.model import queries
from idgraph.model.callers import Caller
from idgraph.model.queries import Order
from idgraph.model.query_language import corrected, parse_query, warnings
from idgraph.web.refusals import BadQueryError
from profile_service.reader import ProfileReader
from profile_service.request_bodies import FacetBody, QueryBody, SearchBody
from profile_service.service import ProfileService


def _query(reader: ProfileReader, body: QueryBody) -> queries.Query:
    if sum(each is not None for each in (body.q, body.words, body.query)) > 1:
        raise BadQueryError("`q`, `words` and `query` are forms of one thing; give one")
    if body.query is not None:
        query = queries.from_json(body.query)
    else:
        # Unlike the words of a command line, each of which a shell has kept together.
        words = [f"({body.q})"] if body.q and body.q.strip() else body.words or []
        query = parse_query(words, reader.types().get, reader.time_of)
    return queries.in_time_zone(query, body.time_zone)


def _warnings(
    reader: ProfileReader, query: queries.Query, others: Iterable[str] = (), within: Iterable[str] = ()
) -> list[str]:
    return warnings(query, reader.types(), reader.found_type, others, within)


def _sealed_for(caller: Caller) -> str:
    """The purpose that seals a query for its caller alone: its text may name attributes that a clearance
    hides."""
    return f"query of {caller.name}"


def search(service: ProfileService, caller: Caller, body: SearchBody) -> dict[str, Any]:
    """A page of profiles. Raises ForbiddenError, BadQueryError, QueryError and what stores raise."""
    wanted = body.wanted(service, caller)
    reader = wanted.reading(service.reader(caller))
    if body.search is not None:
        body = body.model_copy(update={"q": service.cursors.open(body.search, _sealed_for(caller))})
    query = _query(reader, body)
    order = None if body.sort is None else Order(body.sort.removeprefix("-"), body.sort.startswith("-"))
    search_key, others = repr((body.q, body.words, body.query, body.sort)), (order.path,) if order else ()
    if body.time_zone != "UTC":
        search_key += body.time_zone
    result = reader.search(query, body.limit, service.opened(body.cursor, search_key), wanted.reveal, order)
    service.require_found(bool(result.profiles))
    profiles = wanted.read(service, caller, result.profiles, reader)
    incomplete = reader.take_incomplete()
    document: dict[str, Any] = {
        "items": [wanted.document(profile) for profile in profiles],
        "next": service.sealed(result, search_key),
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
        document["incomplete"] = incomplete
    if body.q is not None and document["warnings"]:
        meant = corrected(body.q, query, reader.types())
        document["corrected"] = meant if meant != body.q else None
    return document


def count(service: ProfileService, caller: Caller, body: QueryBody) -> dict[str, Any]:
    """The number of profiles that match. Raises BadQueryError, QueryError and what stores raise."""
    reader = service.reader(caller)
    query = _query(reader, body)
    found, said = reader.count(query), _warnings(reader, query)
    return warned({"count": found}, said if found else said + service.warnings_of_loss(caller))


def facets(service: ProfileService, caller: Caller, body: FacetBody) -> dict[str, Any]:
    """The most frequent values of attributes among the profiles that match. Raises as `count` does."""
    reader = service.reader(caller)
    query = _query(reader, body)
    counts = reader.facets(query, body.paths, body.limit)
    documents = {path: [each._asdict() for each in values] for path, values in counts.items()}
    return warned({"facets": documents}, _warnings(reader, query, body.paths))


def warned(body: dict[str, Any], warnings: list[str]) -> dict[str, Any]:
    """An answer with its warnings, if there are any."""
    return body | {"warnings": warnings} if warnings else body
