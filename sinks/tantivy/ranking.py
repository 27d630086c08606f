"""In which order matching documents come, page by page, and how many have which value.

Sorted pages are a composite aggregation over the columns of the attribute and of the id: it goes on behind any pair
of both. Ranked pages are counted from the best match, by the relevance of the moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tantivy import Query as Compiled
from tantivy import Searcher

from idgraph.model.errors import QueryError
from idgraph.model.index import FacetCount, SearchPage
from idgraph.model.queries import Order, Query, Scalar
from sinks.index_values import cursor_of, order_key, read_cursor
from sinks.tantivy.documents import SCHEMA, column, is_cut, read, shown, stored

RANKED = "ranked"
MOST_PASSED_OVER = 1_000_000
_FOREIGN = "the cursor is not one that this index gave out for this search"


def page_of(
    searcher: Searcher, found: Compiled, query: Query, limit: int, cursor: str | None, order: Order | None
) -> SearchPage:
    """One page of the documents that `found` matches, which is the compiled `query`."""
    place = None if cursor is None else read_cursor(cursor)
    if order is None and query.is_ranked:
        return _ranked(searcher, found, limit, _behind(place, RANKED))
    kind = "by id" if order is None else f"by {'-' * order.is_descending}{column(order.path)}"
    return _sorted(searcher, found, order, limit, _behind(place, kind), kind)


def _behind(place: Any, kind: str) -> Any:
    """The content of a cursor of this kind. Raises QueryError for one of another kind."""
    if place is None:
        return None
    if not isinstance(place, list) or len(place) != 2 or place[0] != kind:
        raise QueryError(_FOREIGN)
    behind = place[1]
    if kind != RANKED and not (
        isinstance(behind, dict) and all(isinstance(each, str) for each in behind.values())
    ):
        raise QueryError(_FOREIGN)
    return behind


def _ranked(searcher: Searcher, found: Compiled, limit: int, behind: Any) -> SearchPage:
    seen = 0 if behind is None else behind
    # The index makes room for all that it passes over.
    if type(seen) is not int or not 0 <= seen <= MOST_PASSED_OVER:
        raise QueryError(f"ranked pages go up to match {MOST_PASSED_OVER:,}: narrow the search, or sort it")
    hits = searcher.search(found, limit + 1, count=False, offset=seen).hits
    page = [str(searcher.doc(place).get_first("id")) for _, place in hits[:limit]]
    return SearchPage(page, cursor_of([RANKED, seen + limit]) if len(hits) > limit else None)


def _sorted(
    searcher: Searcher, found: Compiled, order: Order | None, limit: int, behind: Any, kind: str
) -> SearchPage:
    ids: list[str] = []
    while len(ids) < limit:
        page, after = _buckets(searcher, found, order, limit - len(ids), behind)
        ids += _first_met(searcher, page, order)
        if after is None:
            return SearchPage(ids, None)
        behind = after
    end = behind
    while True:
        page, after = _buckets(searcher, found, order, 1, end)
        if _first_met(searcher, page, order):
            return SearchPage(ids, cursor_of([kind, behind]))
        if after is None:
            return SearchPage(ids, None)
        end = after


_Bucket = tuple[Any, str]


def _buckets(
    searcher: Searcher, found: Compiled, order: Order | None, size: int, behind: Any
) -> tuple[list[_Bucket], Any]:
    """The next pairs of value and id, and what they go on behind; None at the end."""
    sources: list[dict[str, Any]] = [{"id": {"terms": {"field": "id"}}}]
    if order is not None:
        direction = "desc" if order.is_descending else "asc"
        by = {"field": f"data.{column(order.path)}", "order": direction}
        sources.insert(0, {"value": {"terms": {**by, "missing_bucket": True, "missing_order": "last"}}})
    asked: dict[str, Any] = {"sources": sources, "size": size}
    if behind is not None:
        asked["after"] = behind
    answer = searcher.aggregate(found, {"page": {"composite": asked}})["page"]
    buckets = [(each["key"].get("value"), each["key"]["id"]) for each in answer["buckets"]]
    return buckets, answer.get("after_key") if len(buckets) == size else None


def _first_met(searcher: Searcher, page: Sequence[_Bucket], order: Order | None) -> list[str]:
    """The ids of a page without those that an earlier value of an array has brought already."""
    if order is None or not page:
        return [name for _, name in page]
    named = Compiled.term_set_query(SCHEMA, "id", list({name for _, name in page}))
    first: dict[str, Any] = {}
    behind: Any = None
    while True:
        buckets, behind = _buckets(searcher, named, order, 1000, behind)
        for value, name in buckets:
            first.setdefault(name, (type(value), value))
        if behind is None:
            break
    return [name for value, name in page if first[name] == (type(value), value)]


def facets(searcher: Searcher, found: Compiled, path: str, limit: int) -> list[FacetCount]:
    """The most frequent values of a column."""
    asked = {"terms": {"field": f"data.{column(path)}", "size": 10 * limit + 100}}
    answer = searcher.aggregate(found, {"values": asked})["values"]
    counted = [FacetCount(_value(each, searcher, path), each["doc_count"]) for each in answer["buckets"]]
    return sorted(counted, key=lambda each: (-each.profiles, order_key(each.value)))[:limit]


def _value(bucket: dict[str, Any], searcher: Searcher, path: str) -> Scalar:
    value: str = bucket["key"]
    return _whole(value, searcher, path) if is_cut(value) else shown(value)


def _whole(text: str, searcher: Searcher, path: str) -> str:
    """A text of `data` that may be cut, as it was given."""
    query = Compiled.term_query(SCHEMA, f"data.{column(path)}", text, index_option="basic")
    for _, place in searcher.search(query, 1, count=False).hits:
        value = read(searcher.doc(place).to_dict()["source"][0])[path]
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str) and stored(each) == text:
                return each
    return str(shown(text))
