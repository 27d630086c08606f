"""Particularities of timelines in DynamoDB: large pages, many pages, transactions, and what an erasure leaves."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="boto3 is not installed: pip install -e .[dynamodb]")

from idgraph.model.errors import StoreError, UnstorableError
from idgraph.model.store import NEW, FragmentWrite, OutboxEntry
from idgraph.model.timelines import DueEntry, PageKey
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from sinks.dynamodb import timelines
from sinks.dynamodb.client import Item
from sinks.dynamodb.profiles import DynamoProfileStore
from sinks.dynamodb.schema import LINKS
from tests.contracts.implementations import hashed_name
from tests.servers.dynamodb import place

pytestmark = pytest.mark.slow

DAY, NEXT = PageKey("orders", 20_000), PageKey("orders", 20_001)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DynamoProfileStore]:
    opened = DynamoProfileStore(place(tmp_path), hashed_name)
    yield opened
    opened.close()


def write(fragment_id: str, version: int, pages: dict[PageKey, bytes], state: bytes = b"s") -> FragmentWrite:
    return FragmentWrite(fragment_id, version, state, frozenset({fragment_id, "mail:x"}), pages=pages)


def beside_links(store: DynamoProfileStore) -> list[Item]:
    """The items of timelines and due entries."""
    found = store.client.query("scan", LINKS, ConsistentRead=True)
    return [each for each in found if b" beside links" in bytes(each["pk"]["B"])]


def test_a_large_page_is_in_parts_and_leaves_none_when_it_shrinks(store: DynamoProfileStore) -> None:
    large, larger = secrets.token_bytes(800_000), secrets.token_bytes(1_200_000)
    assert store.write([write("a:1", NEW, {DAY: large, NEXT: b"1"}), write("a:2", NEW, {DAY: b"2"})]) == set()
    assert store.timelines(["a:1"], ["orders"]) == {"a:1": {DAY: large, NEXT: b"1"}}
    for version, page in ((1, larger), (2, b"small"), (3, large)):
        assert store.write([write("a:1", version, {DAY: page}), write("a:2", version, {DAY: b"2"})]) == set()
        assert store.pages([("a:1", DAY), ("a:2", DAY)]) == {("a:1", DAY): page, ("a:2", DAY): b"2"}
    assert store.write([write("a:1", 4, {DAY: b""})]) == set()
    assert store.timelines(["a:1"], ["orders"]) == {"a:1": {NEXT: b"1"}}
    assert len(beside_links(store)) == 2
    assert store.read(["a:1"])["a:1"].version == 5


def test_what_never_fits_is_reported_before_anything_is_written(store: DynamoProfileStore) -> None:
    page = secrets.token_bytes(3_600_000)
    with pytest.raises(UnstorableError, match="3,500,000 bytes"):
        store.write([write("a:1", NEW, {DAY: b"1"}), write("a:2", NEW, {DAY: page})])
    assert (store.count(), beside_links(store)) == (0, [])
    assert store.write([write("a:2", NEW, {DAY: page[:3_400_000]}, secrets.token_bytes(390_000))]) == set()
    assert store.pages([("a:2", DAY)])["a:2", DAY] == page[:3_400_000]


def test_an_item_that_grew_too_large_spoils_no_other_write(store: DynamoProfileStore) -> None:
    state = secrets.token_bytes(200_000)
    many = [frozenset(f"n{part}:" + secrets.token_hex(500) for _ in range(120)) for part in range(2)]
    store.write([FragmentWrite("a:1", NEW, state, many[0]), write("a:3", NEW, {DAY: b"1"})])
    grown = FragmentWrite("a:1", 1, state, many[1], pages={DAY: b"1"})
    others = [write("a:2", NEW, {DAY: b"2"}), write("a:3", NEW, {DAY: b"late"})]
    with pytest.raises(UnstorableError) as reported:
        store.write([grown, *others])
    assert reported.value.ids == {"a:1"}
    assert reported.value.refused == {"a:3"}
    assert store.timelines(["a:1", "a:2", "a:3"], ["orders"]) == {"a:2": {DAY: b"2"}, "a:3": {DAY: b"1"}}


def test_more_pages_than_a_transaction_takes_are_written_in_later_versions(
    store: DynamoProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {PageKey("orders", day): b"%d" % day for day in range(250)}
    assert store.write([write("a:1", NEW, pages), write("a:2", NEW, pages | {DAY: b"2"})]) == set()
    assert store.timelines(["a:1"], ["orders"]) == {"a:1": pages}
    assert store.read(["a:1"])["a:1"].version == 3
    assert sorted(store.outbox()) == [OutboxEntry("a:1", 3), OutboxEntry("a:2", 3)]

    class AwayError(Exception):
        pass

    transact = store.client.transact

    def cut(table: str, actions: Sequence[Item]) -> list[str | None]:
        if calls.pop() == 0:
            raise AwayError
        return transact(table, actions)

    def overtaken(table: str, actions: Sequence[Item]) -> list[str | None]:
        if calls.pop() == 0:
            store.enqueue(["a:1"])
        return transact(table, actions)

    changed = dict.fromkeys(pages, b"new")
    calls = [0, 1]
    monkeypatch.setattr(store.client, "transact", cut)
    with pytest.raises(AwayError):
        store.write([write("a:1", 3, changed, b"t")])
    present = store.read(["a:1"])["a:1"]
    assert (present.version, present.state) == (4, b"t"), "the fragment is there, and some pages"
    calls = [9, 0, 1]
    monkeypatch.setattr(store.client, "transact", overtaken)
    assert store.write([write("a:1", 4, changed, b"t")]) == {"a:1"}, "whoever was overtaken reads again"
    monkeypatch.setattr(store.client, "transact", transact)
    version = store.read(["a:1"])["a:1"].version
    assert store.write([write("a:1", version, changed, b"t")]) == set()
    assert store.timelines(["a:1"], ["orders"]) == {"a:1": changed}


def test_conflicts_in_a_batch_hurt_only_themselves(store: DynamoProfileStore) -> None:
    store.write([write(f"a:{number}", NEW, {DAY: b"1"}) for number in range(0, 120, 5)])
    batch = [write(f"a:{number}", NEW, {DAY: b"2", NEXT: b"2"}) for number in range(120)]
    assert store.write(batch) == {f"a:{number}" for number in range(0, 120, 5)}
    ids = [f"a:{number}" for number in range(120)]
    found = store.timelines(ids, ["orders"])
    assert all(found[each] == {DAY: b"1"} for each in ids[::5])
    assert sum(pages == {DAY: b"2", NEXT: b"2"} for pages in found.values()) == 96


def test_an_erasure_leaves_no_item(store: DynamoProfileStore) -> None:
    store.write(
        [write(f"a:{number}", NEW, {DAY: b"1", NEXT: secrets.token_bytes(800_000)}) for number in (1, 2)]
    )
    store.plan([DueEntry("a:1", 5), DueEntry("a:2", 5)])
    assert len(beside_links(store)) == 2 * 4 + 2 * 2
    store.erase(["a:1"], 100)
    store.withdraw({"a:2": 1})
    assert store.timelines(["a:1", "a:2"], ["orders"]) == {}
    again = [each.version for each in store.tombstones(["a:1", "a:2"]).values()]
    store.write(
        [
            write(name, version, {DAY: b"2"})._replace(erasure_epoch=100)
            for name, version in zip(["a:1", "a:2"], again, strict=True)
        ]
    )
    store.finish(["a:1"])
    store.forget_withdrawn(["a:2"])
    assert len(beside_links(store)) == 2
    store.erase(["a:1", "a:2"], 200)
    store.finish(["a:1", "a:2"])
    assert beside_links(store) == []


def test_pages_count_in_a_fragment_that_lives_on_behind_a_later_tombstone(store: DynamoProfileStore) -> None:
    """A restored store takes back the tombstone of a withdrawal that its fragments do not know."""
    store.write([write("a:1", NEW, {DAY: b"1"})])
    store.reinstate({hashed_name("a:1"): Tombstone(NO_EPOCH, 7)})
    assert store.write([write("a:1", 1, {NEXT: b"2"})]) == set()
    assert store.timelines(["a:1"], ["orders"]) == {"a:1": {DAY: b"1", NEXT: b"2"}}


def test_a_page_whose_parts_are_of_two_versions_is_read_again(
    store: DynamoProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = secrets.token_bytes(800_000), secrets.token_bytes(800_000)
    store.write([write("a:1", NEW, {DAY: old})])
    get = store.client.get
    reads: list[int] = []

    def torn(table: str, keys: Sequence[Item], attributes: str | None = None) -> list[Item]:
        found = get(table, keys, attributes)
        reads.append(len(keys))
        if len(reads) == 2:
            store.write([write("a:1", 1, {DAY: new})])
            return found[:1] + [each for each in get(table, keys, attributes) if each["sk"] != found[0]["sk"]]
        return found

    monkeypatch.setattr(store.client, "get", torn)
    assert store.pages([("a:1", DAY)]) == {("a:1", DAY): new}


def test_what_a_crash_leaves_in_the_list_of_due_entries_is_projected_once_more(
    store: DynamoProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write([write("a:1", NEW, {})])
    execute = store.client.execute
    monkeypatch.setattr(store.client, "execute", lambda *_: (_ for _ in ()).throw(StoreError("away")))
    with pytest.raises(StoreError):
        store.plan([DueEntry("a:1", 5, 1)])
    monkeypatch.setattr(store.client, "execute", execute)
    store.plan([DueEntry("a:1", 20, 2)])
    assert store.take_due(10, 10) == 1
    assert store.take_due(10, 10) == 0
    assert store.take_due(20, 10) == 1
    assert beside_links(store) == []


def test_shards_are_not_each_asked_for_all_that_is_wanted(
    store: DynamoProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"a:{number}" for number in range(60)]
    store.write([write(each, NEW, {}) for each in names])
    store.plan([DueEntry(each, 5, 1) for each in names])
    asked: list[int] = []
    query = store.client.query

    def counted(*given: str, **request: Any) -> Iterator[Item]:
        asked.append(request.get("Limit", 0))
        return query(*given, **request)

    monkeypatch.setattr(store.client, "query", counted)
    assert store.take_due(10, 5000) == 60
    assert max(asked) < 1000
    assert store.take_due(10, 5000) == 0


def test_many_timelines_are_read_together_and_large_ones_alone(
    store: DynamoProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timelines, "_TOGETHER", 20)
    pages = {PageKey("orders", day): b"%d" % day for day in range(30)}
    store.write([write("a:1", NEW, pages), *(write(f"b:{number}", NEW, {DAY: b"1"}) for number in range(30))])
    ids = ["a:1", "c:1", *(f"b:{number}" for number in range(30))]
    assert store.timelines(ids, ["orders"]) == {"a:1": pages} | {
        f"b:{number}": {DAY: b"1"} for number in range(30)
    }


def test_a_write_without_pages_makes_no_further_request(
    store: DynamoProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    call = store.client.call

    def noted(operation: str, table: str, **request: object) -> object:
        asked.append(operation)
        return call(operation, table, **request)

    monkeypatch.setattr(store.client, "call", noted)
    store.write([FragmentWrite("a:1", NEW, b"s", frozenset({"a:1"}))])
    assert asked == ["batch_execute_statement"]
