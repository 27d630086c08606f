"""Versions of an index in a real Elasticsearch: what a crash in the last step leaves, lost answers, earlier layouts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip(
    "elasticsearch", reason="elasticsearch is not installed: pip install idgraph[elasticsearch]"
)

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument
from idgraph.model.queries import Query
from sinks.elasticsearch.client import ElasticsearchClient, IndexLocation
from sinks.elasticsearch.index import ElasticsearchProfileIndex
from sinks.elasticsearch.other_versions import block
from sinks.elasticsearch.schema import IndexShape
from sinks.elasticsearch.versions import ElasticsearchIndexVersions
from tests.contracts.implementations import hashed_name
from tests.servers.elasticsearch import place_of_index
from tests.servers.faulty_proxy import broken, faulty_proxy, lost_answer


@pytest.fixture
def place(tmp_path: Path) -> IndexLocation:
    return place_of_index(tmp_path)


@pytest.fixture
def index(place: IndexLocation) -> Iterator[ElasticsearchProfileIndex]:
    opened = ElasticsearchProfileIndex(place, hashed_name)
    yield opened
    opened.close()


@pytest.fixture
def versions(place: IndexLocation) -> Iterator[ElasticsearchIndexVersions]:
    opened = ElasticsearchIndexVersions(place, hashed_name, IndexShape(replicas=0))
    yield opened
    opened.close()


def document(name: str, version: int = 1) -> IndexDocument:
    return IndexDocument(name, version, {"x": "word"})


def test_a_writer_that_meets_the_block_waits_and_finds_the_next_version(
    place: IndexLocation, index: ElasticsearchProfileIndex, versions: ElasticsearchIndexVersions
) -> None:
    index.put([document("a")])
    versions.begin()
    with ThreadPoolExecutor(1) as pool:
        waiting = []

        def take(ids: Sequence[str]) -> None:
            # Writing is blocked by now.
            waiting.append(pool.submit(index.put, [document("late")]))
            versions.put([document(each) for each in ids])

        index.put([document("b")])
        versions.switch(take)
        assert [each.result() for each in waiting] == [{}]
    assert index.search(Query()).ids == ["b", "late"]


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_block_that_a_killed_run_left_is_lifted_by_the_next_step(
    place: IndexLocation,
    index: ElasticsearchProfileIndex,
    versions: ElasticsearchIndexVersions,
    goes_on: bool,
) -> None:
    made = versions.begin()
    client = ElasticsearchClient(place)
    block(client, versions.known()[0].name)
    client.close()
    if goes_on:
        assert versions.begin() == made
    else:
        versions.delete(made.name)
    assert index.put([document("a")]) == {}
    assert index.count(Query()) == 1


def test_lost_answers_and_errors_of_the_server_are_tried_again_in_each_step(
    place: IndexLocation, index: ElasticsearchProfileIndex
) -> None:
    index.put([document("a"), document("b")])
    with faulty_proxy(place.url) as (url, faults):
        versions = ElasticsearchIndexVersions(place._replace(url=url), hashed_name, IndexShape(replicas=0))
        versions.begin()
        steps = (
            lambda: versions.put([document("a"), document("b")]),
            versions.changed,
            lambda: versions.switch(lambda _: None),
        )
        for step in steps:
            faults.extend([lost_answer, broken])
            step()
            assert not faults
        versions.close()
    assert index.search(Query()).ids == ["a", "b"]
    index.put([document("c")])
    assert index.count(Query()) == 3


def test_an_index_of_an_earlier_layout_is_made_anew(
    place: IndexLocation, index: ElasticsearchProfileIndex, versions: ElasticsearchIndexVersions
) -> None:
    client = ElasticsearchClient(place)
    client.call(lambda api: api.indices.put_mapping(index=place.name, meta={"layout": 1}))
    client.close()
    for use in (lambda: index.put([document("a")]), lambda: index.count(Query())):
        with pytest.raises(ProfileIndexError, match="`idgraph reindex` makes it again"):
            use()
    versions.begin()
    versions.put([document("a")])
    versions.switch(lambda _: None)
    assert index.put([document("b")]) == {}
    assert index.search(Query()).ids == ["a", "b"]


def test_each_shard_is_followed_by_itself(place: IndexLocation) -> None:
    wide = ElasticsearchIndexVersions(place, hashed_name, IndexShape(shards=3, replicas=0))
    index = ElasticsearchProfileIndex(place, hashed_name)
    wide.begin()
    wide.switch(lambda _: None)
    index.put([document(f"d:{each}") for each in range(30)])
    wide.begin()
    index.put([document(f"d:{each}", 2) for each in range(0, 30, 2)])
    index.erase({f"d:{each}": 2 for each in range(0, 30, 6)})
    wide.put([document(f"d:{each}") for each in range(30)])
    while ids := wide.changed():
        wide.put([document(each, 2) for each in ids])
    wide.switch(lambda _: None)
    kept = [each for each in range(30) if each % 6]
    assert index.search(Query(), 100).ids == sorted(f"d:{each}" for each in kept)
    assert index.versions([f"d:{each}" for each in kept]) == {
        f"d:{each}": 1 + (each % 2 == 0) for each in kept
    }
    index.close()
    wide.close()
