"""What policies other than `latest` keep, where something befalls the fragment that it is kept in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from idgraph.model.attributes import AttributeMetadata
from idgraph.model.queries import Query, Range, Term
from idgraph.model.snapshots import MetadataSnapshot
from merge.fragments import FragmentState
from tests.retail import UNDETECTED, Pipeline, attribute, attributes, order, snapshot
from tests.sealing import sealed
from tests.support.memory.data_keys import MemoryDataKeys

KEPT = [
    attribute("orders.last.total", "number", policy="sum"),
    attribute("orders.last.id", policy="count"),
    attribute("orders.last.at", "integer", policy="first"),
    attribute("orders.last.items", "integer", policy="max"),
    attribute("address.shipping.city", policy="union"),
    attribute("identity.name.first", encryption="protected", policy="append"),
]
ORDERS = [
    order(1, 1, cart={"id": "c1", "total": "0.10", "items": 3}),
    order(
        1, 2, order_id="R2", created_at="2024-03-02T00:00:00Z", cart={"id": "c2", "total": "0.20", "items": 2}
    ),
    order(1, 3, order_id="R3", created_at="2024-02-02T00:00:00Z", shipping={"city": "Ulm"}),
]
SHOWN = {"total": 12.8, "id": 3, "at": 1706832000000, "items": 3}


def known(version: int, *more: AttributeMetadata) -> MetadataSnapshot:
    return snapshot(version, declared=[*KEPT, *more], defaults=UNDETECTED)


def states(pipeline: Pipeline) -> dict[str, bytes]:
    return {each.id: each.state for each in pipeline.store.scan()}


def shown(pipeline: Pipeline) -> dict[str, Any]:
    (profile,) = pipeline.reader().scan(reveal=True)
    last = profile.attributes()["orders"]["last"]
    return {name: last[name] for name in SHOWN}


def test_a_renamed_fragment_takes_it_along(tmp_path: Path) -> None:
    keys = MemoryDataKeys()
    email = next(each for each in attributes() if each.path == "identity.email")
    pipeline = Pipeline(tmp_path, keys, snapshot=known(1, attribute("identity.email")))
    expected = Pipeline(tmp_path, keys, snapshot=known(2, email))
    pipeline.process(ORDERS)
    expected.process(ORDERS)
    assert shown(pipeline) == SHOWN
    pipeline.snapshot = expected.snapshot
    sealed(pipeline)
    assert states(pipeline) == states(expected)
    assert pipeline.export(reveal=True) == expected.export(reveal=True)
    assert shown(pipeline) == SHOWN


def test_it_is_found_by_what_shows(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=known(1))
    pipeline.process(ORDERS)
    for clause in (
        Range("orders.last.total", 12.8, 12.8),
        Term("orders.last.id", 3),
        Term("address.shipping.city", "Ulm"),
        Term("address.shipping.city", "Springfield"),
    ):
        assert pipeline.reader().count(Query((clause,))) == 1, clause


def test_nothing_of_it_outlives_an_erasure(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=known(1))
    pipeline.process(ORDERS)
    (name,) = states(pipeline)
    assert FragmentState.decode(states(pipeline)[name]).cells
    pipeline.store.erase([name], 10**15)
    assert states(pipeline) == {}
    pipeline.process(ORDERS)
    assert states(pipeline) == {}
