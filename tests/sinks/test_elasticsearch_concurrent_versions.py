"""What the contract of index versions cannot show: copies that lag behind, and two runs on two machines."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "elasticsearch", reason="elasticsearch is not installed: pip install idgraph[elasticsearch]"
)

from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument
from idgraph.model.queries import Query
from sinks.elasticsearch.client import ElasticsearchClient, IndexLocation
from sinks.elasticsearch.index import ElasticsearchProfileIndex
from sinks.elasticsearch.schema import IndexShape
from sinks.elasticsearch.versions import ElasticsearchIndexVersions
from tests.contracts.implementations import hashed_name
from tests.servers.elasticsearch import place_of_index
from tests.servers.faulty_proxy import Answer, Fault, faulty_proxy

SHAPE = IndexShape(replicas=0)


@dataclass
class Machines:
    """A flow's index, and the versions as two machines see them, of which faults befall the first."""

    index: ElasticsearchProfileIndex
    versions: ElasticsearchIndexVersions
    other: ElasticsearchIndexVersions
    faults: deque[Fault]

    def take(self, ids: Sequence[str]) -> None:
        assert self.versions.put([document(each) for each in ids]) == {}

    def ids(self) -> list[str]:
        return self.index.search(Query(), 100).ids


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    real = place_of_index(tmp_path)
    with faulty_proxy(real.url) as (url, faults):
        index = ElasticsearchProfileIndex(real, hashed_name)
        versions = ElasticsearchIndexVersions(real._replace(url=url), hashed_name, SHAPE)
        other = ElasticsearchIndexVersions(real, hashed_name, SHAPE)
        yield Machines(index, versions, other, faults)
        for each in (index, versions, other):
            each.close()


def document(name: str) -> IndexDocument:
    return IndexDocument(name, 1, {"x": "word"})


def lagging(operations: int, hidden: str = "") -> Fault:
    """A shard one copy of which has not done the last operations, as its statistics report it; one of them is not
    seen by searches."""

    def fault(send: Callable[[bytes], Answer], body: bytes) -> Answer:
        answer = send(body)
        reported: Any = json.loads(answer.body)
        if isinstance(indices := reported.get("indices"), dict):
            for index in indices.values():
                for copies in index["shards"].values():
                    for each in copies:
                        each["seq_no"]["global_checkpoint"] -= operations
        if hits := reported.get("hits"):
            hits["hits"] = [each for each in hits["hits"] if each.get("fields") != {"id": [hidden]}]
        return answer._replace(body=json.dumps(reported).encode())

    return fault


def test_what_is_done_late_in_a_copy_is_followed_though_a_later_one_was_seen(machines: Machines) -> None:
    machines.index.put([document("before")])
    machines.versions.begin()
    machines.index.put([document("late")])
    machines.index.put([document("seen")])
    machines.faults.extend([lagging(2, hidden="late")] * 3)
    assert machines.versions.changed() == []
    assert not machines.faults
    assert machines.versions.changed() == ["late", "seen"]
    assert machines.versions.changed() == []


def test_the_last_step_waits_until_every_copy_is_at_its_end(machines: Machines) -> None:
    machines.versions.begin()
    machines.index.put([document("late")])
    # The alias, the block, and the first look, which shows nothing.
    machines.faults.extend([lagging(1)] * 6)
    taken: list[str] = []

    def take(ids: Sequence[str]) -> None:
        # In the version in use, before the alias moves.
        assert machines.ids() == ["late"]
        taken.extend(ids)
        machines.take(ids)

    machines.versions.switch(take)
    assert not machines.faults
    assert taken == machines.ids() == ["late"]


def test_a_put_behind_a_block_that_another_machine_lifted_is_followed(machines: Machines) -> None:
    machines.versions.begin()

    def meanwhile(send: Callable[[bytes], Answer], body: bytes) -> Answer:
        # The alias moves with it.
        if b'"actions"' in body:
            machines.other.begin()
            assert machines.index.put([document("between")]) == {}
        return send(body)

    machines.faults.extend([meanwhile] * 30)
    machines.versions.switch(machines.take)
    assert machines.ids() == ["between"]
    machines.index.put([document("after")])
    assert machines.ids() == ["after", "between"]
    with pytest.raises(ProfileIndexError, match="somebody else has switched to"):
        machines.other.switch(machines.take)


@contextmanager
def indices_made_by_themselves(place: IndexLocation) -> Iterator[None]:
    """As Elasticsearch does it unless it is reported not to, which the tests' node is."""
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


def test_a_version_that_was_deleted_meanwhile_does_not_come_into_use(
    machines: Machines, tmp_path: Path
) -> None:
    machines.index.put([document("a")])
    for put_again in (True, False):
        made = machines.versions.begin()
        machines.other.delete(made.name)
        if put_again:
            with indices_made_by_themselves(place_of_index(tmp_path)):
                machines.take(["a"])
            assert machines.other.known()[-1].name == made.name
        with pytest.raises(ProfileIndexError, match="was deleted while it was made; run it again"):
            machines.versions.switch(machines.take)
        assert machines.ids() == ["a"]
        assert machines.index.put([document("a")]) == {}
    machines.versions.begin()
    machines.take(["a"])
    machines.versions.switch(machines.take)
    assert machines.ids() == ["a"]
    assert len(machines.other.known()) == 2
