"""The drainer beside the flow."""

from __future__ import annotations

import logging

import pytest

from ingestion import outbox
from ingestion.outbox import OutboxDrainer
from merge import codec
from merge.store import FragmentWrite, OutboxEntry
from model.errors import StoreError
from model.queries import Query
from sinks.memory_index import MemoryProfileIndex
from sinks.memory_profiles import MemoryProfileStore
from tests.ingestion.patience import eventually
from tests.merge.test_commit import state


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "POLL_SECONDS", 0.01)


def everything(_path: str) -> bool:
    return True


def written(store: MemoryProfileStore, name: str = "user_id:1", version: int = 0) -> None:
    data = codec.encode(state(version + 1, name))
    assert store.write([FragmentWrite(name, version, data, frozenset({name}))]) == set()


def test_what_stays_is_indexed_while_the_flow_is_idle() -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    with OutboxDrainer(store, index, lambda: everything):
        written(store)
        eventually(lambda: not store.outbox())
        assert index.count(Query()) == 1


def test_the_policy_of_now_decides_at_each_drain() -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    allowed: set[str] = set()
    with OutboxDrainer(store, index, lambda: allowed.__contains__):
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
    with OutboxDrainer(store, index, lambda: everything):
        written(store)
        assert store.outbox()
    assert not store.outbox()


def test_a_store_or_index_that_is_away_is_told_and_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    class Store(MemoryProfileStore):
        failures = 3

        def outbox(self, limit: int = 1000) -> list[OutboxEntry]:
            if self.failures:
                self.failures -= 1
                raise StoreError("away for a moment")
            return super().outbox(limit)

    store, index = Store(), MemoryProfileIndex()
    with caplog.at_level(logging.WARNING), OutboxDrainer(store, index, lambda: everything):
        written(store)
        eventually(lambda: not store.failures and not store.outbox())
    assert "the outbox cannot be read: away for a moment" in caplog.text


def test_what_nobody_expected_does_not_end_it() -> None:
    calls: list[int] = []

    def policy() -> object:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("odd")
        return everything

    store, index = MemoryProfileStore(), MemoryProfileIndex()
    with OutboxDrainer(store, index, policy):  # type: ignore[arg-type]
        written(store)
        eventually(lambda: not store.outbox())


def test_an_index_that_is_closed_leaves_the_outbox() -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    index.close()
    with OutboxDrainer(store, index, lambda: everything):
        written(store)
    assert store.outbox()
