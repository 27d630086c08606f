"""The drainer beside the flow."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from idgraph.model.batch_size import MOST_BYTES, UNWEIGHED
from idgraph.model.errors import ProfileIndexError, StoreError
from idgraph.model.index import IndexDocument, IndexRules
from idgraph.model.queries import Query
from idgraph.model.store import FragmentWrite, OutboxEntry
from idgraph.projection import outbox
from idgraph.projection.outbox import OutboxDrainer, drain_outbox
from sinks.memory.index import MemoryProfileIndex
from sinks.memory.profiles import MemoryProfileStore
from tests.ingestion.patience import eventually
from tests.ingestion.weighed_stores import HEAVY, WeighedStore
from tests.merge.test_commit import state


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "POLL_SECONDS", 0.01)


EVERYTHING = IndexRules(lambda _path: True)


def written(store: MemoryProfileStore, name: str = "user_id:1", version: int = 0) -> None:
    data = state(version + 1, name).encode()
    assert store.write([FragmentWrite(name, version, data, frozenset({name}))]) == set()


def test_what_stays_is_indexed_while_the_flow_is_idle() -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    with OutboxDrainer(store, index, lambda: EVERYTHING):
        written(store)
        eventually(lambda: not store.outbox())
        assert index.count(Query()) == 1


def test_the_policy_of_now_decides_at_each_drain() -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    allowed: set[str] = set()
    with OutboxDrainer(store, index, lambda: IndexRules(allowed.__contains__)):
        written(store, "user_id:1")
        eventually(lambda: not store.outbox())
        allowed.add("a")
        written(store, "user_id:2")
        eventually(lambda: not store.outbox())
    fields = {name: dict(document.fields) for name, document in index._documents.items()}
    assert fields == {"user_id:1": {}, "user_id:2": {"a": 1}}


def test_at_its_end_it_drains_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "POLL_SECONDS", 3600.0)
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    with OutboxDrainer(store, index, lambda: EVERYTHING):
        written(store)
        assert store.outbox()
    assert not store.outbox()


@pytest.mark.parametrize(
    ("error", "failures", "reported"),
    [
        (StoreError("away for a moment"), 3, "away for a moment"),
        (KeyError("of a value: secret"), 1, "KeyError"),
    ],
    ids=["away", "unexpected"],
)
def test_a_store_that_fails_is_reported_and_does_not_end_it(
    error: Exception, failures: int, reported: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Store(MemoryProfileStore):
        left = failures

        def outbox(self, limit: int = 1000) -> list[OutboxEntry]:
            if self.left:
                self.left -= 1
                raise error
            return super().outbox(limit)

    store, index = Store(), MemoryProfileIndex()
    with caplog.at_level(logging.WARNING), OutboxDrainer(store, index, lambda: EVERYTHING):
        written(store)
        eventually(lambda: not store.left and not store.outbox())
    assert f"{reported}; the outbox cannot be read until then" in caplog.text
    assert "secret" not in caplog.text


def test_an_index_that_stays_away_is_reported_once_and_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Index(MemoryProfileIndex):
        failures = 3

        def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
            if self.failures:
                self.failures -= 1
                raise ProfileIndexError("no answer")
            return super().put(documents)

    store, index = MemoryProfileStore(), Index()
    with caplog.at_level(logging.WARNING), OutboxDrainer(store, index, lambda: EVERYTHING):
        written(store)
        eventually(lambda: not store.outbox())
    assert caplog.messages == ["no answer; the outbox waits until it is back", "the index is back"]


def test_what_nobody_expected_does_not_end_it() -> None:
    calls: list[int] = []

    def rules() -> IndexRules:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("odd")
        return EVERYTHING

    store, index = MemoryProfileStore(), MemoryProfileIndex()
    with OutboxDrainer(store, index, rules):
        written(store)
        eventually(lambda: not store.outbox())


def test_an_index_that_is_closed_leaves_the_outbox() -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    index.close()
    with OutboxDrainer(store, index, lambda: EVERYTHING):
        written(store)
    assert store.outbox()


class _Picky(MemoryProfileIndex):
    """Refuses some ids, and counts what it is given."""

    def __init__(self, refused: set[str]) -> None:
        super().__init__()
        self.refused = refused
        self.given = 0

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        self.given += len(documents)
        refused = {each.id: "no" for each in documents if each.id in self.refused}
        super().put([each for each in documents if each.id not in refused])
        return refused


def test_what_is_refused_holds_up_nothing_behind_it_however_much_it_is() -> None:
    store = MemoryProfileStore()
    for number in range(50):
        written(store, f"user_id:{number:02d}")
    picky = _Picky({f"user_id:{number:02d}" for number in range(30)})
    assert drain_outbox(store, picky, EVERYTHING, 4) == 30
    assert {entry.fragment_id for entry in store.outbox()} == picky.refused
    assert picky.given == 50
    picky.refused = set()
    assert drain_outbox(store, picky, EVERYTHING, 4) == 0
    assert store.outbox() == []
    assert picky.count(Query()) == 50


def test_an_index_that_is_away_is_asked_once_and_not_for_each_page() -> None:
    class Away(_Picky):
        def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
            super().put(documents)
            raise ProfileIndexError("away")

    store, index = MemoryProfileStore(), Away(set())
    for number in range(50):
        written(store, f"user_id:{number:02d}")
    with pytest.raises(ProfileIndexError):
        drain_outbox(store, index, EVERYTHING, 4)
    assert index.given == 4
    assert len(store.outbox()) == 50


def test_heavy_fragments_are_read_and_indexed_in_small_portions() -> None:
    """A thousand of them, decoded and made documents of, would be gigabytes."""
    store, index = WeighedStore(), _Picky(set())
    store.fill(200, HEAVY)
    assert drain_outbox(store, index, IndexRules(lambda _path: False)) == 0
    assert (store.outbox(), index.given) == ([], 200)
    assert 0.9 * MOST_BYTES < max(store.bytes) <= MOST_BYTES


def test_light_fragments_are_soon_read_many_at_once() -> None:
    store, index = WeighedStore(), MemoryProfileIndex()
    store.fill(4000)
    assert drain_outbox(store, index, EVERYTHING) == 0
    assert (store.counts[0], store.counts[-2:]) == (UNWEIGHED, [1000, 1000])
    assert len(store.counts) < 10


def test_what_the_index_refuses_is_given_to_it_ever_more_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    store, index = MemoryProfileStore(), _Picky({"user_id:1"})
    written(store)
    with OutboxDrainer(store, index, lambda: EVERYTHING) as drainer:
        waits: list[float] = []
        plain = drainer._stop.wait

        def hurried(pause: float) -> bool:
            waits.append(pause)
            return plain(0.001)

        monkeypatch.setattr(drainer._stop, "wait", hurried)
        eventually(lambda: index.given > 5)
        index.refused = set()
        eventually(lambda: not store.outbox())
        written(store, version=1)
        eventually(lambda: waits[-1] == outbox.POLL_SECONDS)
    assert max(waits) > 10 * outbox.POLL_SECONDS
