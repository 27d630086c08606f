"""The promises of every profile store (`idgraph.model.store.ProfileStore`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import StoreError, UnstorableError
from idgraph.model.pins import PinRecord
from idgraph.model.store import (
    MOST_SHARES,
    NEW,
    Assignment,
    FragmentWrite,
    OutboxEntry,
    OutboxShare,
    ProfileStore,
    StoredFragment,
    document_version,
    read_pages,
    scan_all,
)
from tests.contracts.conftest import DURABLE, long_on_servers
from tests.contracts.implementations import Implementation
from tests.contracts.processes import finish, killed_after, start
from tests.lanes import long

ODD_IDS = [
    "quote:'; DROP TABLE fragments; --",
    'quote:"`',
    "like:100%_\\",
    "space: \t\n",
    "accent:é",
    "accent:e\u0301",
    "emoji:\U0001f600",
    "bmp:\uffee",
    "long:" + "x" * 1024,
    "CASE:a",
    "case:a",
]


def new(fragment_id: str, state: bytes = b"1", *identifiers: str) -> FragmentWrite:
    return FragmentWrite(fragment_id, NEW, state, frozenset(identifiers))


def test_a_new_fragment_has_version_one(store: ProfileStore) -> None:
    assert store.write([new("a:1", b"state")]) == set()
    assert store.read(["a:1", "a:2"]) == {"a:1": StoredFragment("a:1", 1, b"state")}
    assert store.count() == 1


def test_the_expected_version_is_replaced_and_no_other(store: ProfileStore) -> None:
    store.write([new("a:1", b"one")])
    assert store.write([FragmentWrite("a:1", 1, b"two", frozenset())]) == set()
    for stale in (NEW, 1, 3):
        assert store.write([FragmentWrite("a:1", stale, b"no", frozenset({"x:1"}))]) == {"a:1"}
    assert store.read(["a:1"]) == {"a:1": StoredFragment("a:1", 2, b"two")}
    assert store.find("x:1") == []


@pytest.mark.parametrize("bad", [new("a:\ud800"), new("a:2", b"2", "x:\udfff")])
def test_what_can_never_be_stored_is_reported_as_such_and_nothing_is_written(
    store: ProfileStore, bad: FragmentWrite
) -> None:
    with pytest.raises(UnstorableError) as reported:
        store.write([new("a:1"), bad, new("a:3")])
    assert "\\u" not in str(reported.value)
    assert (store.count(), store.outbox()) == (0, [])
    with pytest.raises(UnstorableError):
        store.read(["a:1", "a:\ud800"])
    assert store.write([new("a:1")]) == set()


def test_what_is_not_there_cannot_be_expected(store: ProfileStore) -> None:
    assert store.write([FragmentWrite("a:1", 1, b"x", frozenset())]) == {"a:1"}
    assert store.count() == 0
    assert store.outbox() == []


def test_a_consistent_read_hinders_nobody_and_ends_with_an_error(store: ProfileStore) -> None:
    store.write([new("a:1", b"one", "x:1")])
    with store.consistent_read(), store.consistent_read():
        assert store.read(["a:1"])["a:1"].state == b"one"
        with ThreadPoolExecutor(1) as other:
            assert other.submit(store.write, [new("a:2", b"two", "x:1")]).result() == set()
        assert "a:1" in store.find_all(["x:1"], 10)["x:1"]
    with pytest.raises(ZeroDivisionError), store.consistent_read():
        raise ZeroDivisionError
    assert sorted(store.find_all(["x:1"], 10)["x:1"]) == ["a:1", "a:2"]


def test_each_change_changes_the_counter(store: ProfileStore) -> None:
    """Of a store that has one."""
    seen = [store.changes()]
    acts: list[Callable[[], object]] = [
        lambda: store.write([new("a:1", b"one", "x:1")]),
        lambda: store.write([FragmentWrite("a:1", 1, b"two", frozenset())]),
        lambda: store.assign([Assignment("a:1", 0, "b:1")]),
        lambda: store.add_pins([PinRecord("a:1", "b:1", 5, "never")]),
    ]
    for act in acts:
        act()
        seen.append(store.changes())
        store.read(["a:1"])
        assert store.changes() == seen[-1]
    assert len(set(seen)) == (1 if seen[0] is None else len(seen))


def test_conflicts_in_a_batch_hurt_only_themselves(store: ProfileStore, many: int) -> None:
    store.write([new(f"a:{number}") for number in range(0, 3 * many, 3)])
    refused = store.write([new(f"a:{number}", b"2") for number in range(3 * many)])
    assert refused == {f"a:{number}" for number in range(0, 3 * many, 3)}
    assert store.count() == 3 * many
    read = store.read([f"a:{number}" for number in range(3 * many)])
    assert {fragment.version for fragment in read.values()} == {1}
    assert sum(fragment.state == b"2" for fragment in read.values()) == 2 * many


def test_nothing_to_do_is_no_error(store: ProfileStore) -> None:
    assert store.read([]) == {}
    assert store.write([]) == set()
    assert store.outbox() == []
    store.settle([])
    assert store.find("a:1") == []
    assert store.identifiers("a:1") == frozenset()
    assert store.scan() == []


def test_fragments_are_found_by_each_identifier_they_carry(store: ProfileStore) -> None:
    store.write([new("b:1", b"", "b:1", "mail:x"), new("a:1", b"", "mail:x"), new("a:2", b"", "a:1")])
    assert store.find("mail:x") == ["a:1", "b:1"]
    assert store.find("b:1") == ["b:1"]
    assert store.find("a:1") == ["a:2"], "a fragment's id is an identifier only if it was given as one"
    assert store.identifiers("b:1") == {"b:1", "mail:x"}


def test_many_identifiers_are_looked_for_at_once_and_hubs_up_to_a_limit(store: ProfileStore) -> None:
    store.write([new("b:1", b"", "b:1", "mail:x"), new("a:1", b"", "mail:x"), new("a:2", b"", "a:1")])
    store.write([new(f"c:{number}", b"", f"c:{number}", "hub:1") for number in range(20)])
    found = store.find_all(["mail:x", "b:1", "nobody:1", "hub:1"], 5)
    assert {name: sorted(ids) for name, ids in found.items() if ids and name != "hub:1"} == {
        "mail:x": ["a:1", "b:1"],
        "b:1": ["b:1"],
    }
    assert len(set(found["hub:1"])) == 5
    assert store.find_all([], 5) == {}


def test_a_read_says_which_identifiers_others_carry_too(store: ProfileStore, many: int) -> None:
    store.write(
        [new("b:1", b"", "b:1", "mail:x"), new("a:1", b"", "mail:x"), new("a:2", b"", "a:1", "mail:y")]
    )
    store.write([new(f"c:{number}", b"", f"c:{number}", "hub:1") for number in range(many)])
    store.add_pins([PinRecord("mail:y", "none:1", 1, "always")])
    ids = ["a:1", "a:2", "b:1", "c:0", "none:1"]
    fragments, shared = store.read_with_shared(ids)
    assert fragments == store.read(ids)
    if shared is not None:
        assert all(sorted(some) == store.find(name) for name, some in shared.carriers.items())
        hubs, hub = ({"c:0"}, {"hub:1"}) if many > 1 else (set(), set())
        assert shared.fragments == {"a:1", "a:2", "b:1"} | hubs
        assert shared.identifiers == {"a:1", "mail:x", "mail:y"} | hub
    assert store.read_with_shared([])[0] == {}


def test_a_hub_beside_others_is_found_up_to_the_limit(store: ProfileStore, many: int) -> None:
    store.write([new(f"c:{number}", b"", f"c:{number}", "hub:1") for number in range(5 * many)])
    store.write([new("a:1", b"", "a:1", "mail:x"), new("b:1", b"", "mail:x")])
    found = store.find_all(["a:1", "hub:1", "mail:x", "a:1"], 7)
    assert {name: len(set(ids)) for name, ids in found.items()} == {"a:1": 1, "hub:1": 7, "mail:x": 2}


def test_an_assignment_counts_if_nobody_was_faster(store: ProfileStore) -> None:
    store.write([new("a:1", b"one"), new("a:2", b"two")])
    store.settle(store.outbox())
    assert store.assign(
        [Assignment("a:1", 0, "a:2"), Assignment("a:2", 1, "x"), Assignment("a:3", 0, "x")]
    ) == {
        "a:2",
        "a:3",
    }
    assert store.assign([Assignment("a:1", 0, "a:3")]) == {"a:1"}
    assert store.assign([Assignment("a:1", 1, "")]) == set()
    assert store.write([FragmentWrite("a:1", 1, b"late", frozenset())]) == {"a:1"}
    store.write([FragmentWrite("a:1", 3, b"three", frozenset())])
    assert store.read(["a:1", "a:2"]) == {
        "a:1": StoredFragment("a:1", 4, b"three", "", 2),
        "a:2": StoredFragment("a:2", 1, b"two"),
    }
    assert store.scan()[0] == StoredFragment("a:1", 4, b"three", "", 2)
    assert [entry.fragment_id for entry in store.outbox()] == ["a:1"], "for what a crash leaves to do"


def test_what_comes_after_a_fragment_is_later_than_its_documents(store: ProfileStore) -> None:
    store.write([new("a:1"), new("a:2"), new("a:3")])
    store.assign([Assignment("a:1", 0, ""), Assignment("a:2", 0, "a:1")])
    latest = document_version(1, [2, 2, 1_000])
    (erased,) = store.erase(["a:1"], 5)
    store.withdraw({"a:2": 2})
    versions = {name: each.version for name, each in store.tombstones(["a:1", "a:2", "a:3"]).items()}
    assert min(versions.values()) > latest
    assert erased.version == versions["a:1"]
    assert store.write([FragmentWrite("a:1", versions["a:1"], b"new", frozenset(), 5)]) == set()
    assert store.read(["a:1"]) == {"a:1": StoredFragment("a:1", versions["a:1"] + 1, b"new")}


def test_a_write_adds_identifiers_and_takes_none_away(store: ProfileStore) -> None:
    store.write([new("a:1", b"", "a:1", "mail:x")])
    store.write([FragmentWrite("a:1", 1, b"", frozenset({"mail:y", "mail:x"}))])
    store.write([FragmentWrite("a:1", 2, b"", frozenset())])
    assert store.identifiers("a:1") == {"a:1", "mail:x", "mail:y"}
    assert store.find("a:1") == store.find("mail:x") == store.find("mail:y") == ["a:1"]


def test_scan_goes_on_behind_the_last_id_in_an_order_of_its_own(store: ProfileStore) -> None:
    ids = [*ODD_IDS, *(f"n:{number}" for number in range(50))]
    store.write([new(each) for each in ids])
    order = [fragment.id for fragment in store.scan(limit=1000)]
    assert sorted(order) == sorted(ids)
    assert [fragment.id for fragment in scan_all(store, page=7)] == order
    assert [fragment.id for fragment in store.scan(after=order[4], limit=3)] == order[5:8]
    assert store.scan(after=order[-1]) == []
    store.erase([order[4]], 100)
    assert [fragment.id for fragment in store.scan(after=order[4], limit=3)] == order[5:8]
    assert [fragment.id for fragment in store.scan(after=order[3], limit=3)] == order[5:8]


def test_all_are_given_in_the_byte_order_of_their_ids(store: ProfileStore) -> None:
    ids = [*ODD_IDS, *(f"n:{number}" for number in range(50))]
    store.write([new(each) for each in ids])
    expected = sorted(ids, key=str.encode)
    assert list(store.ids()) == expected
    pages = read_pages(store, store.ids(), BatchSize(7))
    assert [found[each].id for some, found in pages for each in some if each in found] == expected


def test_a_mark_is_there_until_another_takes_its_place(store: ProfileStore) -> None:
    assert not store.remembers("a")
    store.remember("a")
    store.remember("a")
    store.remember("other")
    assert (store.remembers("a"), store.remembers("b"), store.remembers("other")) == (True, False, True)
    store.remember("b", "a")
    assert (store.remembers("a"), store.remembers("b"), store.remembers("other")) == (False, True, True)
    store.write([new("a:1")])
    store.erase(["a:1"], 1)
    store.settle([OutboxEntry("a:1", 2)])
    store.finish(["a:1"])
    assert store.remembers("b")
    assert (store.scan(), list(store.ids()), store.count(), store.outbox()) == ([], [], 0, [])
    assert (store.unfinished(), store.withdrawn(), len(store.all_tombstones())) == ([], {}, 1)


@pytest.mark.parametrize("fragment_id", ODD_IDS)
def test_odd_ids_are_ids(store: ProfileStore, fragment_id: str) -> None:
    store.write([new(each) for each in ODD_IDS if each != fragment_id])
    store.write([new(fragment_id, b"\x00\xff", fragment_id, "mail:" + fragment_id)])
    assert store.read([fragment_id])[fragment_id].state == b"\x00\xff"
    assert store.find(fragment_id) == store.find("mail:" + fragment_id) == [fragment_id]
    assert store.identifiers(fragment_id) == {fragment_id, "mail:" + fragment_id}
    store.settle([OutboxEntry(fragment_id, 1)])
    assert len(store.outbox()) == len(ODD_IDS) - 1


def test_states_may_be_empty_or_large(store: ProfileStore) -> None:
    large = bytes(range(256)) * 20_000
    store.write([new("a:1", b""), new("a:2", large)])
    assert store.read(["a:1"])["a:1"].state == b""
    assert store.read(["a:2"])["a:2"].state == large


def test_the_outbox_holds_each_written_fragment_once(store: ProfileStore) -> None:
    for each in ("b:1", "a:1", "c:1"):
        store.write([new(each)])
    assert sorted(store.outbox()) == [OutboxEntry("a:1", 1), OutboxEntry("b:1", 1), OutboxEntry("c:1", 1)]
    store.write([FragmentWrite("b:1", 1, b"", frozenset())])
    assert sorted(store.outbox()) == [OutboxEntry("a:1", 1), OutboxEntry("b:1", 2), OutboxEntry("c:1", 1)]


def test_the_outbox_is_walked_page_by_page_while_entries_are_settled(store: ProfileStore) -> None:
    store.write([new(f"a:{number}") for number in range(20)])
    order = store.outbox()
    seen, after = list[OutboxEntry](), ""
    while page := store.outbox(3, after):
        assert len(page) <= 3
        seen += page
        after = page[-1].fragment_id
        # Also the entry that the next page begins behind.
        store.settle(page[1:])
    assert seen == order
    assert len(seen) == len({*seen}) == 20
    assert store.outbox() == order[::3]


def test_settling_leaves_what_was_written_again_since(store: ProfileStore) -> None:
    store.write([new("a:1"), new("a:2")])
    seen = store.outbox()
    store.write([FragmentWrite("a:1", 1, b"2", frozenset())])
    store.settle(seen)
    assert store.outbox() == [OutboxEntry("a:1", 2)]
    store.settle([OutboxEntry("a:1", 2), OutboxEntry("a:1", 2), OutboxEntry("unknown:1", 1)])
    assert store.outbox() == []
    store.write([FragmentWrite("a:1", 2, b"3", frozenset())])
    assert store.outbox() == [OutboxEntry("a:1", 3)]


@pytest.mark.parametrize("of", [1, 2, 3, MOST_SHARES])
def test_shares_of_the_outbox_are_disjoint_and_together_all(of: int, store: ProfileStore) -> None:
    store.write([new(f"a:{number}") for number in range(40)])
    shares = []
    for number in range(of):
        share, after, found = OutboxShare(number, of), "", list[OutboxEntry]()
        while page := store.outbox(3, after, share):
            found += page
            after = page[-1].fragment_id
        assert store.outbox(share=share) == found
        shares.append(found)
    together = [each for found in shares for each in found]
    assert sorted(together) == sorted(store.outbox())
    assert len({*together}) == len(together) == 40


def test_a_refused_write_is_not_in_the_outbox(store: ProfileStore) -> None:
    store.write([new("a:1")])
    store.settle([OutboxEntry("a:1", 1)])
    store.write([new("a:1", b"2")])
    assert store.outbox() == []


def test_threads_that_count_together_lose_no_count(store: ProfileStore) -> None:
    def count_up(_: int) -> None:
        for _round in range(25):
            while True:
                present = store.read(["a:1"]).get("a:1")
                version, value = (present.version, int(present.state)) if present else (NEW, 0)
                if not store.write([FragmentWrite("a:1", version, str(value + 1).encode(), frozenset())]):
                    break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count_up, range(4)))
    assert store.read(["a:1"]) == {"a:1": StoredFragment("a:1", 100, b"100")}
    assert store.outbox() == [OutboxEntry("a:1", 100)]


def test_settling_beside_a_writer_forgets_no_version(store: ProfileStore) -> None:
    written = threading.Event()
    confirmed: set[OutboxEntry] = set()

    def index() -> None:
        while True:
            last = written.is_set()
            entries = store.outbox(3)
            confirmed.update(entries)
            store.settle(entries)
            if last and not entries:
                return

    indexer = threading.Thread(target=index)
    indexer.start()
    ids = [f"a:{number}" for number in range(5)]
    for version in range(60):
        assert not store.write([FragmentWrite(each, version, b"", frozenset()) for each in ids])
    written.set()
    indexer.join()
    assert {OutboxEntry(each, 60) for each in ids} <= confirmed
    assert store.outbox() == []


def test_a_closed_store_says_so(store: ProfileStore) -> None:
    store.close()
    store.close()
    for use in (
        lambda: store.read(["a:1"]),
        lambda: store.write([new("a:1")]),
        store.count,
        store.outbox,
        store.scan,
        lambda: store.find("a:1"),
        lambda: store.settle([OutboxEntry("a:1", 1)]),
    ):
        with pytest.raises(StoreError, match="closed"):
            use()


def test_what_was_written_is_there_when_opened_again(
    durable: Implementation[ProfileStore], tmp_path: Path
) -> None:
    store = durable.open(tmp_path)
    store.write([new("a:1", b"1", "mail:x"), new("a:2")])
    store.settle([OutboxEntry("a:2", 1)])
    store.close()
    again = durable.open(tmp_path)
    assert [fragment.id for fragment in again.scan()] == ["a:1", "a:2"]
    assert again.find("mail:x") == ["a:1"]
    assert again.outbox() == [OutboxEntry("a:1", 1)]
    again.close()


_COUNT_UP = """
import sys
from pathlib import Path
from idgraph.model.store import FragmentWrite
from tests.contracts.implementations import PROFILE_STORES
store = next(each for each in PROFILE_STORES if each.name == sys.argv[1]).open(Path(sys.argv[2]))
for number in range(int(sys.argv[4])):
    ids = [f"a:{number % 10}", f"b:{sys.argv[3]}:{number}"]
    while ids:
        present = store.read(ids)
        ids = sorted(store.write([
            FragmentWrite(
                each,
                present[each].version if each in present else 0,
                str(int(present[each].state) + 1 if each in present else 1).encode(),
                frozenset([each]),
            )
            for each in ids
        ]))
store.close()
"""


@pytest.mark.process
def test_processes_that_count_together_lose_no_count(
    durable: Implementation[ProfileStore], tmp_path: Path
) -> None:
    # They also create the store at once.
    rounds = max(20, durable.many // 10)
    arguments = [(durable.name, tmp_path, str(number), str(rounds)) for number in range(3)]
    for process in [start(_COUNT_UP, *each) for each in arguments]:
        finish(process)
    store = durable.open(tmp_path)
    counters = store.read([f"a:{number}" for number in range(10)])
    assert {int(fragment.state) for fragment in counters.values()} == {3 * rounds // 10}
    assert {fragment.version for fragment in counters.values()} == {3 * rounds // 10}
    assert store.count() == 3 * rounds + 10
    assert len(store.outbox()) == 3 * rounds + 10
    store.close()


_REWRITE_ALL = """
import sys
many = int(sys.argv[3])
from pathlib import Path
from idgraph.model.store import FragmentWrite
from tests.contracts.implementations import PROFILE_STORES
store = next(each for each in PROFILE_STORES if each.name == sys.argv[1]).open(Path(sys.argv[2]))
version = 0
while True:
    state = f"{version + 1} ".encode() * 200
    refused = store.write(
        [FragmentWrite(f"a:{number}", version, state, frozenset([f"v:{version + 1}"])) for number in range(many)]
    )
    assert not refused
    version += 1
    print(version, flush=True)
"""


@pytest.mark.process
@pytest.mark.parametrize("pause", [0.0, 0.011, *long(0.005, 0.017, 0.03)])
@pytest.mark.parametrize("durable", long_on_servers(DURABLE), ids=str, indirect=True)
def test_a_killed_writer_leaves_whole_fragments(
    durable: Implementation[ProfileStore], tmp_path: Path, pause: float
) -> None:
    size = 2 * durable.many
    with killed_after(_REWRITE_ALL, durable.name, tmp_path, str(size), lines=2, pause=pause) as printed:
        confirmed = int(printed[-1])
    store = durable.open(tmp_path)
    fragments = list(scan_all(store))
    before: list[StoredFragment] = []
    while fragments != before:
        # A server may still be at the last request of a client that is no more.
        time.sleep(0.2 if durable.many < 100 else 0)
        fragments, before = list(scan_all(store)), fragments
    assert len(fragments) == size
    versions = {fragment.id: fragment.version for fragment in fragments}
    assert set(versions.values()) <= {confirmed, confirmed + 1}, "what write() returned for is there"
    assert all(each.state == f"{each.version} ".encode() * 200 for each in fragments)
    for version in (confirmed, confirmed + 1, confirmed + 2):
        carriers = sorted(each for each in versions if versions[each] >= version)
        assert store.find(f"v:{version}") == carriers, "each is found by what its version carries"
    assert {(entry.fragment_id, entry.version) for entry in store.outbox(5000)} == set(versions.items())
    store.close()
