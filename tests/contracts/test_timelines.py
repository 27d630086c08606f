"""The promises of every store on timelines (`idgraph.model.timelines.Timelines`)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idgraph.model.store import NEW, FragmentWrite, OutboxEntry, ProfileStore
from idgraph.model.timelines import BEGINNING, DueEntry, PageKey
from idgraph.model.tombstones import NO_EPOCH
from tests.contracts.conftest import DURABLE, long_on_servers
from tests.contracts.implementations import Implementation
from tests.contracts.processes import killed_after
from tests.lanes import long

ORDERS, VISITS = "orders", "visits"
FIRST, SECOND = PageKey(ORDERS, -1), PageKey(ORDERS, 20_000)
VISIT = PageKey(VISITS, 20_000)


def write(
    fragment_id: str,
    version: int = NEW,
    pages: Mapping[PageKey, bytes] | None = None,
    expired: Mapping[str, int] | None = None,
    erasure_epoch: int = NO_EPOCH,
) -> FragmentWrite:
    return FragmentWrite(
        fragment_id,
        version,
        b"s",
        frozenset({fragment_id}),
        erasure_epoch,
        pages=pages or {},
        expired=expired or {},
    )


def test_pages_are_written_with_their_fragment_and_read_by_key_and_activity(store: ProfileStore) -> None:
    pages = {FIRST: b"1", SECOND: b"2", VISIT: bytes(range(256))}
    assert store.write([write("a:1", NEW, pages), write("a:2", NEW, {SECOND: b"4"}), write("a:3")]) == set()
    assert store.pages([("a:1", FIRST), ("a:2", FIRST), ("a:2", SECOND), ("a:4", FIRST)]) == {
        ("a:1", FIRST): b"1",
        ("a:2", SECOND): b"4",
    }
    assert store.pages([]) == {}
    ids = ["a:1", "a:2", "a:3", "a:4"]
    assert store.timelines(ids, [ORDERS]) == {"a:1": {FIRST: b"1", SECOND: b"2"}, "a:2": {SECOND: b"4"}}
    assert store.timelines(ids, [VISITS, ORDERS]) == {"a:1": pages, "a:2": {SECOND: b"4"}}
    assert store.timelines(ids, []) == store.timelines([], [ORDERS]) == {}
    assert store.timelines(ids, ["order"]) == {}
    assert store.timelines(ids) == store.timelines(ids, [VISITS, ORDERS])


def test_of_pages_of_earlier_days_only_the_beginning_is_read(store: ProfileStore) -> None:
    pages = {
        PageKey(activity, day): bytes([day + 10]) * (BEGINNING + more)
        for activity in (ORDERS, VISITS)
        for day, more in ((-9, 5000), (-1, 0), (3, -1), (4, 1), (5, 70_000))
    }
    assert store.write([write("a:1", NEW, pages), write("a:2", NEW, {FIRST: b"1"})]) == set()
    found = store.timelines(["a:1", "a:2"], None, {ORDERS: 4, "unknown": 9})
    assert found["a:2"] == {FIRST: b"1"}
    assert found["a:1"] == {
        key: page[:BEGINNING] if key.activity == ORDERS and key.day < 4 else page
        for key, page in pages.items()
    }
    bounds = {ORDERS: -1, VISITS: 99}
    found = store.timelines(["a:1"], [ORDERS, VISITS], bounds)
    assert found["a:1"] == {
        key: page[:BEGINNING] if key.day < bounds[key.activity] else page for key, page in pages.items()
    }
    assert store.timelines(["a:1"], [VISITS], {ORDERS: 99})["a:1"] == {
        key: page for key, page in pages.items() if key.activity == VISITS
    }


def test_a_page_is_replaced_as_a_whole_and_removed_by_an_empty_one(store: ProfileStore) -> None:
    store.write([write("a:1", NEW, {FIRST: b"1", SECOND: b"2" * 9000})])
    store.write([write("a:1", 1, {SECOND: b"3"})])
    assert store.timelines(["a:1"], [ORDERS]) == {"a:1": {FIRST: b"1", SECOND: b"3"}}
    store.write([write("a:1", 2, {SECOND: b"", VISIT: b""})])
    assert store.timelines(["a:1"], [ORDERS, VISITS]) == {"a:1": {FIRST: b"1"}}


def test_pages_of_before_a_day_expire_by_activity(store: ProfileStore) -> None:
    days = {PageKey(activity, day): b"1" for activity in (ORDERS, VISITS) for day in (-5, 3, 4, 5)}
    store.write([write("a:1", NEW, days), write("a:2", NEW, days)])
    store.write([write("a:1", 1, {PageKey(ORDERS, 2): b"2", SECOND: b"2"}, {ORDERS: 4, "unknown": 9})])
    left = store.timelines(["a:1", "a:2"], [ORDERS, VISITS])
    assert [key.day for key in sorted(left["a:1"]) if key.activity == ORDERS] == [4, 5, SECOND.day]
    assert len([key for key in left["a:1"] if key.activity == VISITS]) == 4
    assert left["a:2"] == days


def test_who_loses_a_fragment_writes_none_of_its_pages(store: ProfileStore) -> None:
    store.write([write("a:1", NEW, {FIRST: b"1"})])
    assert store.write([write("a:1", 1, {FIRST: b"first", SECOND: b"first"})]) == set()
    lost = write("a:1", 1, {FIRST: b"second", VISIT: b"second"}, {ORDERS: 99_999})
    assert store.write([lost, write("a:2", NEW, {FIRST: b"2"})]) == {"a:1"}
    assert store.timelines(["a:1", "a:2"], [ORDERS, VISITS]) == {
        "a:1": {FIRST: b"first", SECOND: b"first"},
        "a:2": {FIRST: b"2"},
    }
    assert store.write([lost._replace(expected_version=2)]) == set()
    assert store.timelines(["a:1"], [ORDERS, VISITS]) == {"a:1": {VISIT: b"second"}}


def test_nothing_of_before_an_erasure_or_a_withdrawal_shows_again(store: ProfileStore) -> None:
    pages = {FIRST: b"1", SECOND: b"2"}
    store.write([write("a:1", NEW, pages), write("a:2", NEW, pages), write("a:3", NEW, pages)])
    store.plan([DueEntry("a:1", 5), DueEntry("a:2", 5)])
    store.erase(["a:1"], 100)
    assert store.withdraw({"a:2": 1}) == set()
    assert not store.timelines(["a:1", "a:2"], [ORDERS])
    assert not store.pages([("a:1", FIRST), ("a:2", FIRST)])
    assert store.take_due(10, 10) == 0
    late = write("a:1", 1, {VISIT: b"late"}, erasure_epoch=100)
    assert store.write([late]) == {"a:1"}
    versions = {name: tombstone.version for name, tombstone in store.tombstones(["a:1", "a:2"]).items()}
    again = [write(name, version, {SECOND: b"3"}, {}, 100) for name, version in versions.items()]
    assert store.write(again) == set()
    store.finish(["a:1"])
    store.forget_withdrawn(["a:2"])
    ids = ["a:1", "a:2", "a:3"]
    assert store.timelines(ids, [ORDERS, VISITS]) == {
        "a:1": {SECOND: b"3"},
        "a:2": {SECOND: b"3"},
        "a:3": pages,
    }
    assert store.pages([("a:1", FIRST), ("a:2", SECOND)]) == {("a:2", SECOND): b"3"}
    assert store.take_due(10, 10) == 0


def test_due_entries_enter_the_outbox_in_versions_of_their_own(store: ProfileStore) -> None:
    store.write([write(f"a:{number}") for number in range(1, 5)])
    store.settle([OutboxEntry(f"a:{number}", 1) for number in range(1, 5)])
    store.plan([DueEntry("a:1", 30), DueEntry("a:2", 10), DueEntry("a:3", 20), DueEntry("b:1", 10)])
    store.plan([])
    assert store.take_due(9, 10) == 0
    assert store.outbox() == []
    assert store.take_due(100, 2) == 2
    assert sorted(store.outbox()) == [OutboxEntry("a:2", 2), OutboxEntry("a:3", 2)]
    assert store.read(["a:2"])["a:2"].version == 2
    # Of a projection that has read the fragment before.
    store.settle([OutboxEntry("a:2", 1)])
    assert len(store.outbox()) == 2
    assert store.take_due(100, 2) == 1
    assert store.take_due(100, 2) == 0


def test_the_entry_of_the_latest_document_stays(store: ProfileStore) -> None:
    store.write([write("a:1"), write("a:2"), write("a:3")])
    store.plan([DueEntry("a:1", 10, 5), DueEntry("a:2", 10, 5), DueEntry("a:3", 10, 5)])
    store.plan([DueEntry("a:1", 50, 5), DueEntry("a:2", 50, 4), DueEntry("a:3", 0, 4)])
    assert store.take_due(10, 10) == 2
    assert store.take_due(50, 10) == 1
    store.plan([DueEntry("a:1", 60, 1)])
    store.plan([DueEntry("a:1", 0, 1), DueEntry("b:1", 0, 1)])
    assert store.take_due(100, 10) == 0


def test_a_fragment_has_as_many_pages_as_days(store: ProfileStore, many: int) -> None:
    pages = {PageKey(ORDERS, day): b"%d" % day for day in range(10 * many)}
    assert store.write([write("a:1", NEW, pages), write("a:2", NEW, {FIRST: b"1"})]) == set()
    assert store.timelines(["a:1", "a:2"], [ORDERS]) == {"a:1": pages, "a:2": {FIRST: b"1"}}
    assert store.pages([("a:1", key) for key in pages]) == {("a:1", key): page for key, page in pages.items()}
    (version,) = (entry.version for entry in store.outbox() if entry.fragment_id == "a:1")
    assert store.read(["a:1"])["a:1"].version == version
    last = PageKey(ORDERS, 10 * many - 1)
    assert store.write([write("a:1", version, {last: b"last"}, {ORDERS: 10 * many - 3})]) == set()
    days = range(10 * many - 3, 10 * many - 1)
    assert store.timelines(["a:1"], [ORDERS]) == {
        "a:1": {PageKey(ORDERS, day): b"%d" % day for day in days} | {last: b"last"}
    }


def test_writers_that_read_the_pages_behind_the_fragment_lose_no_entry(store: ProfileStore) -> None:
    """Each adds to a set, as the commit does; whoever loses reads again."""
    entries = [bytes([number]) for number in range(24)]

    def add(entry: bytes) -> None:
        for _ in range(1000):
            present = store.read(["a:1"]).get("a:1")
            page = store.pages([("a:1", FIRST)]).get(("a:1", FIRST), b"")
            version = present.version if present else NEW
            if not store.write(
                [write("a:1", version, {FIRST: page + entry, PageKey(VISITS, entry[0]): entry})]
            ):
                return
        raise AssertionError("never written")

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(add, entries))
    timelines = store.timelines(["a:1"], [ORDERS, VISITS])["a:1"]
    assert bytes(sorted(timelines.pop(FIRST))) == b"".join(entries)
    assert timelines == {PageKey(VISITS, each[0]): each for each in entries}
    assert store.read(["a:1"])["a:1"].version == len(entries)


def test_several_take_all_that_is_due_and_nothing_else(store: ProfileStore) -> None:
    ids = [f"a:{number}" for number in range(40)]
    store.write([write(each) for each in ids])
    store.plan([DueEntry(each, number + 1) for number, each in enumerate(ids)])
    with ThreadPoolExecutor(4) as takers:
        list(takers.map(lambda _: list(iter(lambda: store.take_due(30, 7), 0)), range(4)))
    versions = {each.id: each.version for each in store.read(ids).values()}
    assert all(versions[each] > 1 for each in ids[:30])
    assert all(versions[each] == 1 for each in ids[30:])
    assert sorted(entry.version for entry in store.outbox()) == sorted(versions.values())
    assert store.take_due(30, 100) == 0
    assert store.take_due(100, 100) == 10


_REWRITE_ALL = """
import sys
from pathlib import Path
from idgraph.model.store import FragmentWrite
from idgraph.model.timelines import PageKey
from tests.contracts.implementations import PROFILE_STORES

(implementation,) = (each for each in PROFILE_STORES if each.name == sys.argv[1])
store = implementation.open(Path(sys.argv[2]))
version = 0
while True:
    text = b"%d " % (version + 1)
    pages = {PageKey("orders", day): text * 900 for day in (1, 2, 3)}
    writes = [FragmentWrite(f"a:{n}", version, text, frozenset(), pages=pages) for n in range(int(sys.argv[3]))]
    assert store.write(writes) == set()
    version += 1
    print(version, flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("pause", [0.0, *long(0.03, 0.07)])
@pytest.mark.parametrize("durable", long_on_servers(DURABLE), ids=str, indirect=True)
def test_a_killed_writer_leaves_each_fragment_with_the_pages_of_its_version(
    durable: Implementation[ProfileStore], tmp_path: Path, pause: float
) -> None:
    size = 2 * durable.many
    with killed_after(_REWRITE_ALL, durable.name, tmp_path, str(size), lines=2, pause=pause) as printed:
        confirmed = int(printed[-1])
    with durable.opened(tmp_path) as store:
        # A server may still be at the last request of a client that is no more.
        time.sleep(1 if durable.many < 100 else 0)
        ids = [f"a:{number}" for number in range(size)]
        found, timelines = store.read(ids), store.timelines(ids, [ORDERS])
        assert len(found) == len(timelines) == size
        for fragment_id, fragment in found.items():
            assert fragment.version in (confirmed, confirmed + 1)
            assert fragment.state == b"%d " % fragment.version
            assert set(timelines[fragment_id].values()) == {fragment.state * 900}
