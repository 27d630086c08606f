"""The profile index in Elasticsearch.

See docs/adr/0022-elasticsearch.md for why documents are exact keys, and how one number decides every write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from idgraph.model.backoff import Retries, steady
from idgraph.model.errors import ProfileIndexError, QueryError
from idgraph.model.index import FacetCount, IndexDocument, Indexed, SearchPage
from idgraph.model.index_versions import VersionState
from idgraph.model.queries import Order, Query
from idgraph.model.tombstones import TombstoneNames
from sinks.elasticsearch import schema
from sinks.elasticsearch.bulk import TAKEN, Action, alive, erase, erased, key_of, write
from sinks.elasticsearch.client import ElasticsearchClient, ElasticsearchRefusedError, IndexLocation
from sinks.elasticsearch.queries import EVERY, Json, compiled, sorting
from sinks.elasticsearch.schema import column, column_value, made_alias, require_layout, source
from sinks.index_values import check_text, cursor_of, read_cursor
from sinks.matching import matches

LEASE_SECONDS = 90.0
MERGE_SECONDS = 3600.0

SEARCH_SECONDS = 10
"""The longest search; one that takes more is refused, as it costs too much."""
_WHOLE: dict[str, Any] = {"timeout": f"{SEARCH_SECONDS}s", "allow_partial_search_results": False}
"""Every answer is whole, or an error."""

_STATS = [
    "indices.*.shards.*.seq_no.max_seq_no",
    "indices.*.shards.*.retention_leases.leases.retaining_seq_no",
]


def compact(client: ElasticsearchClient) -> None:
    """Raises ProfileIndexError when a copy of a shard lags behind: something may be left then."""
    for index, state in schema.versions(client).items():
        if state is VersionState.REPLACED:
            schema.remove(client, index)
    indices = [each for each, state in schema.versions(client).items() if state is not VersionState.REPLACED]
    wanted = {shard: last for shard, last, _ in _shards(client, indices)}
    retries = Retries(steady(0.2), LEASE_SECONDS)
    while any(lease <= wanted.get(shard, -1) for shard, _, lease in _shards(client, indices)):
        if not retries.pause():
            raise ProfileIndexError(
                f"Elasticsearch index {client.place.name}: a copy of it lags behind, so erased values may still be in its "
                "files; repair the cluster, then `idgraph erase --again`"
            )
    client.call(lambda api: api.indices.flush(index=indices, force=True), MERGE_SECONDS)
    client.call(lambda api: api.indices.forcemerge(index=indices, only_expunge_deletes=True), MERGE_SECONDS)
    # The next commit deletes segments that were merged away.
    client.call(lambda api: api.indices.flush(index=indices, force=True), MERGE_SECONDS)


def _shards(client: ElasticsearchClient, indices: list[str]) -> Iterator[tuple[tuple[str, str], int, int]]:
    """The name of each copy of each shard, its last operation, and the first that somebody may ask for."""
    answer: Mapping[str, Any] = client.call(
        lambda api: api.indices.stats(index=indices, metric="_all", level="shards", filter_path=_STATS)
    )
    for index, content in answer.get("indices", {}).items():
        for number, copies in content["shards"].items():
            for each in copies:
                leases = each.get("retention_leases", {}).get("leases", [])
                last = each["seq_no"]["max_seq_no"]
                yield (index, number), last, min((it["retaining_seq_no"] for it in leases), default=last + 1)


MOST_HITS = 10_000
"""The most that Elasticsearch gives of one answer."""

_IDS = 1000
NOT_FOUND = 404


class ElasticsearchProfileIndex:
    """A `ProfileIndex` behind one alias, made by `idgraph index create`.

    An id that is longer than 32,766 bytes is refused.
    """

    def __init__(self, place: IndexLocation, names: TombstoneNames) -> None:
        """`names` hashes the ids that documents and tombstones stand under."""
        self._client = ElasticsearchClient(place)
        self._alias = place.name
        self._names = names
        self._is_checked = False
        self._lock = threading.Lock()

    def writing(self, stays_open: bool = False) -> AbstractContextManager[Callable[[], bool]]:  # noqa: ARG002
        """Others write as well: external versions decide."""
        return nullcontext(lambda: False)

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        self._check()
        actions, refused = prepared(documents, self._names)
        while True:
            is_made = self._is_made()
            outcomes = write(self._client, self._alias, list(actions.values()), is_alias=True)
            if not is_made or self._write_made(list(actions.values())):
                break
        refused |= {
            each: reason
            for each, reason in zip(actions, outcomes, strict=True)
            if reason is not None and reason not in TAKEN
        }
        # Also when all were stale: the process that put a later one may have died before it was visible.
        self._refresh()
        return refused

    def _is_made(self) -> bool:
        made = made_alias(self._alias)
        return bool(self._client.call(lambda api: api.indices.exists_alias(name=made)))

    def _write_made(self, actions: Sequence[Action]) -> bool:
        """Write into the version that is being made too; False where it took the place of the one in use meanwhile, or
        was deleted."""
        try:
            write(self._client, made_alias(self._alias), actions, is_alias=True)
        except ElasticsearchRefusedError as error:
            if error.status != NOT_FOUND:
                raise
            return False
        return True

    def versions(self, ids: Sequence[str]) -> dict[str, int]:
        self._check()
        return {each: hit.version // 2 for each, hit in self._present(ids).items()}

    def compare(self, documents: Sequence[IndexDocument]) -> dict[str, Indexed]:
        self._check()
        contents = {each.id: _content(each) for each in documents}
        return {
            each: Indexed(hit.version // 2, hit.content is not None and hit.content == contents[each])
            for each, hit in self._present(list(contents)).items()
        }

    def erase(self, versions: Mapping[str, int]) -> int:
        self._check()
        if not versions:
            return 0
        self._refresh()
        present = {each: hit.version for each, hit in self._present(list(versions)).items()}
        tombstones = {key_of(self._names(each)): erased(version) for each, version in versions.items()}
        are_new = erase(self._client, self._alias, tombstones, is_alias=True)
        for index, state in schema.versions(self._client).items():
            if state is not VersionState.IN_USE:
                erase(self._client, index, tombstones, is_alias=False)
        self._refresh()
        gone = [each for each, is_new in zip(versions, are_new, strict=True) if is_new]
        return sum(present.get(each, erased(versions[each])) < erased(versions[each]) for each in gone)

    def compact(self) -> None:
        """Have Elasticsearch write again what holds anything that was replaced. Waits until no copy needs it."""
        self._check()
        compact(self._client)

    def search(
        self, query: Query, limit: int = 20, cursor: str | None = None, order: Order | None = None
    ) -> SearchPage:
        check_text(query, order)
        sort = sorting(query, order)
        kind = list(map(str, sort))
        after = None if cursor is None else _place(cursor, kind)
        self._check()
        asked = min(limit + 1, MOST_HITS)
        answer = self._client.call(
            lambda api: api.search(
                index=self._alias,
                query=compiled(query),
                sort=sort,
                search_after=after,
                size=asked,
                source=False,
                track_total_hits=False,
                filter_path=["hits.hits.sort"],
                **_WHOLE,
            )
        )
        hits = [hit["sort"] for hit in answer.get("hits", {}).get("hits", [])]
        page = hits[: min(limit, asked - 1)]
        ids = [each[-1] for each in page]
        return SearchPage(ids, cursor_of([kind, page[-1]]) if len(hits) > len(page) and page else None)

    def facets(self, query: Query, path: str, limit: int = 10) -> list[FacetCount]:
        check_text(query, Order(path))
        self._check()
        counted = {"terms": {"field": f"columns.{column(path)}", "size": 10 * limit + 100}}
        answer = self._client.call(
            lambda api: api.search(
                index=self._alias,
                query=compiled(query),
                size=0,
                aggs={"values": counted},
                **_WHOLE,
            )
        )
        found = [(each["key"], each["doc_count"]) for each in answer["aggregations"]["values"]["buckets"]]
        best = sorted(found, key=lambda each: (-each[1], each[0]))[:limit]
        return [FacetCount(column_value(key), number) for key, number in best]

    def count(self, query: Query) -> int:
        check_text(query)
        self._check()
        answer = self._client.call(
            lambda api: api.search(
                index=self._alias,
                query=compiled(query),
                size=0,
                track_total_hits=True,
                filter_path=["hits.total.value"],
                **_WHOLE,
            )
        )
        return int(answer["hits"]["total"]["value"])

    def matches(self, document: IndexDocument, query: Query) -> bool:
        return matches(document, query)

    def identity(self) -> str:
        self._check()
        found = self._client.call(lambda api: api.indices.get_settings(index=self._alias, name="index.uuid"))
        return " ".join(sorted(each["settings"]["index"]["uuid"] for each in found.values()))

    def close(self) -> None:
        self._client.close()

    def _present(self, ids: Sequence[str]) -> dict[str, _Hit]:
        """The documents of those ids that have one."""
        by_key = {key_of(self._names(each)): each for each in ids}
        keys = list(by_key)
        found: dict[str, _Hit] = {}
        for start in range(0, len(keys), _IDS):
            for hit in self._hits({"ids": {"values": keys[start : start + _IDS]}}):
                (content,) = hit.get("fields", {}).get("content", [None])
                found[by_key[hit["_id"]]] = _Hit(hit["_version"], content)
        return found

    def _hits(self, wanted: Json) -> list[Json]:
        answer = self._client.call(
            lambda api: api.search(
                index=self._alias,
                query={"bool": {"filter": [wanted, EVERY]}},
                size=_IDS,
                source=False,
                docvalue_fields=["content"],
                version=True,
                allow_partial_search_results=False,
            )
        )
        found: list[Json] = answer["hits"]["hits"]
        return found

    def _check(self) -> None:
        with self._lock:
            if self._is_checked:
                return
        require_layout(self._client)
        self._is_checked = True

    def _refresh(self) -> None:
        self._client.call(lambda api: api.indices.refresh(index=self._alias))


def _place(cursor: str, kind: list[str]) -> list[Any]:
    """The place behind which a page begins. Raises QueryError for a cursor of another search."""
    place = read_cursor(cursor)
    if not isinstance(place, list) or len(place) != 2 or place[0] != kind:
        raise QueryError("the cursor is not one that this index gave out for this search")
    after: list[Any] = place[1]
    return after


class _Hit(NamedTuple):
    """A document that is there: Elasticsearch's version of it, and the hash of its content."""

    version: int
    content: str | None


def _content(document: IndexDocument) -> str | None:
    try:
        return source(document.id, document.fields).content
    except (TypeError, UnicodeEncodeError):
        return None


def prepared(
    documents: Sequence[IndexDocument], names: TombstoneNames
) -> tuple[dict[str, Action], dict[str, str]]:
    """The actions that put documents, by id, of each id the newest; and the reason by id for those that cannot
    be put."""
    refused: dict[str, str] = {}
    actions: dict[str, Action] = {}
    for document in documents:
        try:
            content = source(document.id, document.fields).json
            present = actions.get(document.id)
            if present is None or present.version <= alive(document.version):
                actions[document.id] = Action(key_of(names(document.id)), alive(document.version), content)
        except TypeError as error:
            refused[document.id] = str(error)
        except UnicodeEncodeError:
            refused[document.id] = "text that is not valid Unicode"
    return actions, refused
