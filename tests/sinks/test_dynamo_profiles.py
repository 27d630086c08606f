"""Particularities of the profile store in DynamoDB: sizes, links, capacity, and its tables."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="boto3 is not installed: pip install -e .[dynamodb]")

from idgraph.model.errors import UnstorableError
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.ledger import CHANGES, Crossing
from idgraph.model.pins import PinRecord
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.store import NEW, FragmentWrite, OutboxEntry
from merge.commit import Committer
from merge.fragments import FragmentState
from sinks.dynamodb import items
from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.profiles import DynamoProfileStore
from sinks.dynamodb.schema import FRAGMENTS, LINKS, create_tables
from tests.contracts.implementations import hashed_name
from tests.servers.dynamodb import place

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DynamoProfileStore]:
    opened = DynamoProfileStore(place(tmp_path), hashed_name)
    yield opened
    opened.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[DynamoClient]:
    opened = DynamoClient(place(tmp_path))
    yield opened
    opened.close()


def test_what_does_not_fit_is_reported_before_anything_is_written(store: DynamoProfileStore) -> None:
    large = FragmentWrite("a:1", NEW, secrets.token_bytes(400_000), frozenset())
    with pytest.raises(UnstorableError, match="400,000 bytes"):
        store.write([FragmentWrite("a:2", NEW, b"s", frozenset()), large])
    assert store.count() == 0
    fitting = large._replace(state=secrets.token_bytes(399_000))
    assert store.write([fitting]) == set()
    assert store.read(["a:1"])["a:1"].state == fitting.state


def test_identifiers_that_no_longer_fit_beside_the_state_are_reported(store: DynamoProfileStore) -> None:
    state = secrets.token_bytes(200_000)
    many = [frozenset(f"n{part}:" + secrets.token_hex(500) for _ in range(120)) for part in range(2)]
    assert store.write([FragmentWrite("a:1", NEW, state, many[0])]) == set()
    store.write([FragmentWrite("a:3", NEW, b"s", frozenset())])
    others = [FragmentWrite("a:2", NEW, b"s", frozenset()), FragmentWrite("a:3", NEW, b"late", frozenset())]
    with pytest.raises(UnstorableError, match="400,000 bytes") as caught:
        store.write([FragmentWrite("a:1", 1, state, many[1]), *others])
    assert (caught.value.ids, caught.value.refused) == (frozenset({"a:1"}), frozenset({"a:3"}))
    found = store.read(["a:1", "a:2", "a:3"])
    assert {name: each.version for name, each in found.items()} == {"a:1": 1, "a:2": 1, "a:3": 1}
    assert not any(store.find(each) for each in sorted(many[1])[:3])


def state(name: str, value: str) -> FragmentState:
    made = FragmentState()
    origin = Origin(Stamp(0, 1, "shop", "e1"), SpecRef("spec", 1))
    made.apply(FragmentChange(name, origin, {"path": Register(origin, Kind.PLAIN, value)}, ()))
    return made


def test_the_commit_sets_aside_what_does_not_fit_and_writes_the_rest(store: DynamoProfileStore) -> None:
    changes = {"a:1": state("a:1", secrets.token_hex(500_000)), "a:2": state("a:2", "small")}
    result = Committer(store).commit(changes)
    assert result.failed.keys() == {"a:1"}
    assert [(name, version) for name, version in result.versions.items()] == [("a:2", 1)]
    assert store.read(["a:1", "a:2"]).keys() == {"a:2"}
    assert result.failed["a:1"].change.encode() == changes["a:1"].encode()


def test_a_commit_reads_each_fragment_once_whoever_was_erased(store: DynamoProfileStore) -> None:
    changes = {f"a:{each}": state(f"a:{each}", "x") for each in range(10)}
    assert Committer(store).commit(changes).written == 10
    store.erase(["a:gone"], 100)
    before = store.consumed().read
    assert Committer(store).commit(changes).unchanged == 10
    assert store.consumed().read == before + 10


def test_a_link_that_no_fragment_confirms_is_not_followed(
    store: DynamoProfileStore, client: DynamoClient
) -> None:
    """As a writer leaves it that was killed before it wrote the fragment."""
    link = items.link(hashed_name, "mail:x", hashed_name("a:1"), 1)
    client.put(LINKS, [{"PutRequest": {"Item": link}}])
    assert store.find("mail:x") == []
    store.write([FragmentWrite("a:1", NEW, b"s", frozenset({"a:1"}))])
    assert store.find("mail:x") == []
    store.write([FragmentWrite("a:1", 1, b"s", frozenset({"mail:x"}))])
    assert store.find("mail:x") == ["a:1"]


def test_identifiers_with_many_links_are_found_beside_others(
    store: DynamoProfileStore, client: DynamoClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten by ten, in pages of seven items as DynamoDB may answer; the links of one are too many for its request."""
    call = store.client.call

    def paged(operation: str, table: str, **request: Any) -> Any:
        few = {"Limit": 7} if operation == "execute_statement" else {}
        return call(operation, table, **request | few)

    monkeypatch.setattr(store.client, "call", paged)
    monkeypatch.setattr("sinks.dynamodb.profiles._LINKS_TOGETHER", 40)
    store.write([FragmentWrite(f"a:{n}", NEW, b"s", frozenset({f"a:{n}", f"m:{n}"})) for n in range(60)])
    store.write([FragmentWrite(f"c:{n}", NEW, b"s", frozenset({"hub:1"})) for n in range(60)])
    client.put(LINKS, [{"PutRequest": {"Item": items.link(hashed_name, "m:9", hashed_name("c:1"), 1)}}])
    asked = [*(f"a:{n}" for n in range(60)), "c:1", *(f"m:{n}" for n in range(59)), "hub:1"]
    found = store.find_all(asked, 7)
    assert len(set(found.pop("hub:1"))) == 7
    assert found == {each: [f"a:{each[2:]}"] if each != "c:1" else [] for each in asked[:-1]}


def test_a_finished_erasure_leaves_no_link_of_the_erased_and_all_of_a_later_one(
    store: DynamoProfileStore, client: DynamoClient
) -> None:
    carried = frozenset({"a:1", "mail:x", "mail:y"})
    store.write([FragmentWrite("a:1", NEW, b"s", carried)])
    store.erase(["a:1"], 100)
    store.write([FragmentWrite("a:1", 2, b"s", frozenset({"mail:x"}), erasure_epoch=100)])
    store.finish(["a:1"])
    assert store.find("mail:x") == ["a:1"]
    assert len(list(client.query("scan", LINKS))) == 1


def test_no_identifier_stands_in_a_key_and_none_is_left_after_an_erasure(
    store: DynamoProfileStore, client: DynamoClient
) -> None:
    store.write([FragmentWrite("id:canary", NEW, b"canary" * 9, frozenset({"id:canary", "mail:canary"}))])
    assert "canary" not in str(list(client.query("scan", LINKS)))
    (erased,) = store.erase(["id:canary"], 100)
    store.settle([OutboxEntry("id:canary", erased.version)])
    store.finish(["id:canary"])
    assert "canary" not in str([*client.query("scan", FRAGMENTS), *client.query("scan", LINKS)])


def test_states_are_compressed_where_that_helps() -> None:
    text = b'{"activity":"search"}' * 200
    assert len(items.pack(text)) < len(text) / 10
    for state in (b"", b"short", secrets.token_bytes(5000), text):
        assert items.unpack(items.pack(state)) == state
        assert len(items.pack(state)) <= len(state) + 1
    damaged = items.pack(text)[:-30]
    assert items.unpack(damaged) == damaged, "the reader finds it damaged, not this module"


def test_consumed_capacity_is_counted(store: DynamoProfileStore) -> None:
    # DynamoDB Local does not report PartiQL, but of the links.
    store.write([FragmentWrite(f"a:{each}", NEW, b"s", frozenset({"mail:x"})) for each in range(10)])
    written = store.consumed()
    assert written.write >= 10
    store.read([f"a:{each}" for each in range(10)])
    assert store.consumed().read >= written.read + 10
    assert store.consumed().write == written.write
    store.erase(["a:1"], 100)
    assert store.consumed().write > written.write


def test_a_settled_entry_leaves_no_mark(store: DynamoProfileStore, client: DynamoClient) -> None:
    store.write([FragmentWrite("a:1", NEW, b"s", frozenset())])
    store.settle([OutboxEntry("a:1", 1)])
    (item,) = client.query("scan", FRAGMENTS)
    assert item.keys() == {"pk", "fragment", "revision", "body"}


def test_tables_are_on_demand_protected_and_streamed(client: DynamoClient) -> None:
    assert create_tables(client) == []
    table = client.table(FRAGMENTS)
    reported = client.call("describe_table", table, TableName=table)["Table"]
    assert reported["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    assert reported["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    assert reported["DeletionProtectionEnabled"] is True


@pytest.mark.long
@pytest.mark.parametrize("removed", range(3))
def test_decisions_that_a_killed_process_was_removing_are_removed_by_the_next(
    removed: int, store: DynamoProfileStore, client: DynamoClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add_pins([PinRecord("a:1", "b:1", 5, "never")])
    requests: list[Any] = []

    def killed(client: DynamoClient, table: str, some: Sequence[Any]) -> None:
        for each in some:
            if len(requests) == removed:
                raise SystemExit
            requests.append(each)
            through(client, table, [each])

    through = DynamoClient.put
    with monkeypatch.context() as patched:
        patched.setattr(DynamoClient, "put", killed)
        with pytest.raises(SystemExit):
            store.drop_pins(["a:1"])
    store.drop_pins(["a:1"])
    table = client.table(LINKS)
    assert client.call("scan", table, TableName=table, ConsistentRead=True)["Items"] == []


def test_a_change_is_read_however_often_the_profile_changes(
    store: DynamoProfileStore, client: DynamoClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader learns of each change by an entry that it reads later; and few stay in the list."""
    store.write([FragmentWrite("a:1", NEW, b"s", frozenset())])
    clock, cursor, changed = 10_000_000, "", 0
    monkeypatch.setattr("sinks.dynamodb.ledger.now_ms", lambda: clock)
    read_at: list[int] = []
    for version in range(1, 60):
        store.cross([Crossing(clock, "a:1", f"s{CHANGES}", version)])
        changed, clock = clock, clock + (7_000 if version % 3 else 40_000)
        for entry in store.ledger(cursor, segment="s"):
            cursor = entry.cursor
            read_at.append(clock)
        # Nobody waits for longer than the held-back minute and the next look.
        assert clock - max(read_at, default=10_000_000) <= 130_000
    clock += 61_000
    assert store.ledger(cursor, segment="s") or max(read_at) > changed
    assert len(store.ledger(segment="s")) <= 5
    assert store.crossed(["a:1"]) == {"a:1": {f"s{CHANGES}": 59}}


def test_a_hub_is_read_up_to_its_limit(store: DynamoProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write([FragmentWrite(f"c:{n}", NEW, b"s", frozenset({"hub:1"})) for n in range(200)])
    read: list[int] = []
    get = store.client.get

    def counted(table: str, keys: Sequence[Any], names: str) -> Any:
        read.append(len(keys))
        return get(table, keys, names)

    monkeypatch.setattr(store.client, "get", counted)
    found = store.find_all(["hub:1", "a:1"], 21)
    assert len(set(found["hub:1"])) == 21
    assert sum(read) <= 24
