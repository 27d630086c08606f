"""Versions of an index in a real Elasticsearch: what the contract cannot show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("elasticsearch", reason="elasticsearch is not installed: pip install -e .[elasticsearch]")

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument
from idgraph.model.queries import Query
from sinks.elasticsearch.client import ElasticsearchClient, IndexLocation
from sinks.elasticsearch.index import ElasticsearchProfileIndex
from sinks.elasticsearch.schema import IndexShape, remove
from sinks.elasticsearch.versions import ElasticsearchIndexVersions
from tests.contracts.implementations import hashed_name
from tests.servers.elasticsearch import place_of_index
from tests.servers.faulty_proxy import Answer, broken, faulty_proxy, lost_answer


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


@pytest.mark.process
def test_what_is_put_while_the_alias_moves_is_in_the_version_that_comes(place: IndexLocation) -> None:
    with faulty_proxy(place.url) as (url, faults):
        index = ElasticsearchProfileIndex(place._replace(url=url), hashed_name)
        versions = ElasticsearchIndexVersions(place, hashed_name, IndexShape(replicas=0))
        index.put([document("a")])
        versions.begin()
        versions.put([document("a")])

        def meanwhile(send: Callable[[bytes], Answer], body: bytes) -> Answer:
            # The document is in the version in use; the next request is for the one that is being made.
            answer = send(body)
            if b"word" in body or b'"_id"' in body:
                versions.switch()
                faults.clear()
            return answer

        faults.extend([meanwhile] * 10)
        assert index.put([document("b")]) == {}
        assert index.search(Query()).ids == ["a", "b"]
        assert len(versions.known()) == 1
        index.close()
        versions.close()


def test_a_version_that_was_deleted_meanwhile_does_not_come_into_use(
    place: IndexLocation, index: ElasticsearchProfileIndex, versions: ElasticsearchIndexVersions
) -> None:
    index.put([document("a")])
    made = versions.begin()
    remove(ElasticsearchClient(place), made.name)
    with indices_made_by_themselves(place):
        with pytest.raises(ProfileIndexError, match="deleted"):
            versions.put([document("a")])
        assert index.put([document("b")]) == {}
    with pytest.raises(ProfileIndexError, match="deleted"):
        versions.switch()
    assert index.search(Query()).ids == ["a", "b"]
    assert len(versions.known()) == 1


@contextmanager
def indices_made_by_themselves(place: IndexLocation) -> Iterator[None]:
    """As Elasticsearch does it unless it is configured not to, which the tests' node is."""
    client = ElasticsearchClient(place)

    def set_to(value: bool | None) -> None:
        settings = {"action.auto_create_index": value}
        client.call(lambda api: api.cluster.put_settings(persistent=settings))

    set_to(True)
    try:
        yield
    finally:
        set_to(None)
        client.close()


def test_lost_answers_and_errors_of_the_server_are_tried_again_in_each_step(
    place: IndexLocation, index: ElasticsearchProfileIndex
) -> None:
    index.put([document("a"), document("b")])
    with faulty_proxy(place.url) as (url, faults):
        versions = ElasticsearchIndexVersions(place._replace(url=url), hashed_name, IndexShape(replicas=0))
        versions.begin()
        steps = (
            lambda: versions.put([document("a"), document("b")]),
            versions.switch,
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
    versions.switch()
    assert index.put([document("b")]) == {}
    assert index.search(Query()).ids == ["a", "b"]
