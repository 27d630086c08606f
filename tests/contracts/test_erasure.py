"""The promises of every profile store on erased fragments (`idgraph.model.store.ProfileStore`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.model.errors import StoreError
from idgraph.model.store import NEW, FragmentWrite, OutboxEntry, ProfileStore, StoredFragment, scan_all
from idgraph.model.timelines import DueEntry, PageKey
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary, Tombstone
from sinks.sqlite.profiles import SqliteProfileStore
from tests.contracts.conftest import DURABLE, long_on_servers
from tests.contracts.implementations import Implementation
from tests.contracts.processes import finish, killed_after, start

CARRIED = frozenset({"a:1", "mail:x"})


def write(fragment_id: str, version: int = NEW, erasure_epoch: int = NO_EPOCH) -> FragmentWrite:
    return FragmentWrite(fragment_id, version, b"s", frozenset({fragment_id, "mail:x"}), erasure_epoch)


def test_an_erased_fragment_is_nowhere_and_the_others_stay(store: ProfileStore) -> None:
    store.write([write("a:1"), write("a:2")])
    store.write([write("a:1", 1)])
    assert store.summaries(["a:1", "a:3"]) == [
        FragmentSummary("a:1", 2, CARRIED, True),
        FragmentSummary("a:3", NEW, frozenset(), False),
    ]
    assert store.erase(["a:1"], 100) == [FragmentSummary("a:1", 3, CARRIED, True)]
    assert store.read(["a:1", "a:2"]).keys() == {"a:2"}
    assert store.find("a:1") == []
    assert store.find("mail:x") == ["a:2"]
    assert store.identifiers("a:1") == frozenset()
    # Its entry has the projection erase its document.
    assert sorted(store.outbox()) == [OutboxEntry("a:1", 3), OutboxEntry("a:2", 1)]
    store.settle([OutboxEntry("a:1", 2)])
    assert len(store.outbox()) == 2
    store.settle([OutboxEntry("a:1", 3)])
    assert store.outbox() == [OutboxEntry("a:2", 1)]
    assert store.count() == 1


def test_a_write_judged_by_less_than_the_tombstone_is_refused(store: ProfileStore) -> None:
    store.write([write("a:1")])
    store.erase(["a:1"], 100)
    # Read before the erasure, read after it, and judged by an earlier tombstone.
    assert store.write([write("a:1", 1), write("b:1")]) == {"a:1"}
    assert store.write([write("a:1", NEW)]) == {"a:1"}
    assert store.write([write("a:1", 1, erasure_epoch=99)]) == {"a:1"}
    assert store.read(["a:1", "b:1"]).keys() == {"b:1"}


def test_a_fragment_made_anew_goes_on_behind_the_erased_version(store: ProfileStore) -> None:
    store.write([write("a:1")])
    store.write([write("a:1", 1)])
    store.erase(["a:1"], 100)
    assert store.tombstones(["a:1", "a:2"]) == {"a:1": Tombstone(100, 3)}
    assert store.write([write("a:1", NEW, erasure_epoch=100)]) == {"a:1"}
    assert store.write([write("a:1", 2, erasure_epoch=100)]) == {"a:1"}, "read before the erasure"
    assert store.write([write("a:1", 3, erasure_epoch=100)]) == set()
    assert store.read(["a:1"]) == {"a:1": StoredFragment("a:1", 4, b"s")}
    assert store.outbox() == [OutboxEntry("a:1", 4)]
    # The tombstone continues guarding it.
    assert store.write([write("a:1", 4)]) == {"a:1"}


def test_what_never_was_can_be_erased_beforehand(store: ProfileStore) -> None:
    assert store.erase(["a:1"], 100) == [FragmentSummary("a:1", NEW, frozenset(), False)]
    assert store.write([write("a:1")]) == {"a:1"}
    assert store.write([write("a:1", erasure_epoch=100)]) == set()
    assert store.read(["a:1"])["a:1"].version == 1


def test_erasing_again_forbids_no_less_and_keeps_what_was_noted(store: ProfileStore) -> None:
    store.write([write("a:1")])
    store.erase(["a:1"], 100)
    store.settle([OutboxEntry("a:1", 2)])
    assert store.erase(["a:1"], 50) == [FragmentSummary("a:1", 2, CARRIED, False)]
    assert store.tombstones(["a:1"]) == {"a:1": Tombstone(100, 2)}
    assert store.unfinished() == [FragmentSummary("a:1", 2, CARRIED, False)]
    store.finish(["a:1", "unknown:1"])
    store.finish([])
    store.settle([OutboxEntry("a:1", 2)])
    assert store.unfinished() == []
    assert store.erase(["a:1"], 100) == [FragmentSummary("a:1", 2, frozenset(), False)], (
        "nothing more is to be done"
    )


def test_what_came_back_before_an_erasure_was_finished_is_reported_with_what_was_noted(
    store: ProfileStore,
) -> None:
    store.write([write("a:1")])
    store.erase(["a:1"], 100)
    store.write([FragmentWrite("a:1", 2, b"s", frozenset({"mail:later"}), erasure_epoch=100)])
    both = CARRIED | {"mail:later"}
    assert store.erase(["a:1"], 200) == [FragmentSummary("a:1", 4, both, True)]
    assert store.unfinished() == [FragmentSummary("a:1", 4, both, False)]


def test_a_lifted_tombstone_forbids_nothing_and_keeps_the_version(store: ProfileStore) -> None:
    store.write([write("a:1")])
    store.erase(["a:1"], 100)
    store.finish(["a:1"])
    assert store.cancel(["a:1", "a:2"]) == 1
    assert store.cancel(["a:1"]) == 0
    assert store.write([write("a:1", 1)]) == {"a:1"}, "who read it before the erasure would bring it back"
    assert store.write([write("a:1", 2)]) == set()
    assert store.read(["a:1"])["a:1"].version == 3


def test_what_is_unfinished_is_not_lifted(store: ProfileStore) -> None:
    """Who finishes it would take dead letters that come behind the lift."""
    store.erase(["a:1", "a:2"], 100)
    store.finish(["a:2"])
    assert store.cancel(["a:1", "a:2"]) == 1
    assert store.write([write("a:1"), write("a:2")]) == {"a:1"}
    store.finish(["a:1"])
    assert store.cancel(["a:1"]) == 1
    assert store.write([write("a:1")]) == set()


def test_a_restored_store_takes_back_the_tombstones_it_lost(store: ProfileStore) -> None:
    store.erase(["a:1"], 100)
    kept = store.all_tombstones()
    assert set(kept.values()) == {Tombstone(100, 0)}
    assert store.reinstate({**kept, b"other": Tombstone(5, 7)}) == 1
    assert store.reinstate(dict.fromkeys(kept, Tombstone(200, 3))) == 0
    assert store.tombstones(["a:1"]) == {"a:1": Tombstone(200, 3)}
    assert store.reinstate({}) == 0


def test_fragments_and_tombstones_are_read_at_once(store: ProfileStore) -> None:
    assert store.write([write("a:1"), write("a:2"), write("a:3")]) == set()
    versions = {each.fragment_id: each.version for each in store.erase(["a:1", "a:2"], 100)}
    assert (
        store.write([FragmentWrite("a:2", versions["a:2"], b"back", frozenset(), erasure_epoch=100)]) == set()
    )
    ids = ["a:1", "a:2", "a:3", "a:4"]
    found, tombstoned = store.read_with_tombstones(ids)
    assert found.keys() == {"a:2", "a:3"}
    assert tombstoned == {name: Tombstone(100, version) for name, version in versions.items()}
    assert (found, tombstoned) == (store.read(ids), store.tombstones(ids))
    assert store.read_with_tombstones([]) == ({}, {})


def test_ids_are_not_looked_at_while_there_is_no_tombstone(store: ProfileStore) -> None:
    looked_at: list[str] = []

    def ids() -> Iterator[str]:
        looked_at.append("a:1")
        yield "a:1"

    assert store.tombstones(ids()) == {}
    assert looked_at == []
    store.erase(["a:1"], 100)
    assert store.tombstones(ids()).keys() == set(looked_at)


def test_an_erasure_beside_writers_leaves_nothing_they_had_read_before(store: ProfileStore) -> None:
    """Writers that judged their events by no tombstone go on until they are refused."""
    store.write([write("a:1")])
    begun = threading.Barrier(3)

    def keep_writing() -> None:
        begun.wait()
        for _ in range(10_000):
            present = store.read(["a:1"]).get("a:1")
            refused = store.write([write("a:1", present.version if present else NEW)])
            if refused and store.tombstones(["a:1"]):
                return
        raise AssertionError("never refused")

    writers = [threading.Thread(target=keep_writing) for _ in range(2)]
    for writer in writers:
        writer.start()
    begun.wait()
    (erased,) = store.erase(["a:1"], 100)
    for writer in writers:
        writer.join()
    assert store.read(["a:1"]) == {}
    assert store.outbox() == [OutboxEntry("a:1", erased.version)]
    assert store.tombstones(["a:1"]) == {"a:1": Tombstone(100, erased.version)}


def test_closed(store: ProfileStore) -> None:
    store.close()
    for use in (
        lambda: store.tombstones([]),
        lambda: store.erase(["a:1"], 1),
        store.unfinished,
        lambda: store.finish([]),
        store.all_tombstones,
    ):
        with pytest.raises(StoreError, match="closed"):
            use()


def test_no_byte_of_an_erased_fragment_is_left_in_a_file(
    durable: Implementation[ProfileStore], tmp_path: Path
) -> None:
    if not durable.in_files:
        pytest.skip("what it keeps is in no file of ours")
    secrets = [
        b"canary-of-the-state" * 2000,
        b"mail:canary-identifier",
        b"id:canary",
        *(b"canary-of-the-page%d" % day for day in range(3)),
    ]
    store = durable.open(tmp_path)
    store.write([write(f"a:{number}") for number in range(500)])
    found = frozenset({"id:canary", "mail:canary-identifier"})
    pages = {PageKey("orders", day): secret * 100 for day, secret in enumerate(secrets[3:])}
    store.write([FragmentWrite("id:canary", NEW, secrets[0], found, pages=pages)])

    def seen() -> list[bytes]:
        content = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
        return [secret for secret in secrets if secret[:19] in content]

    assert seen() == secrets
    store.plan([DueEntry("id:canary", 5)])
    store.erase(["id:canary"], 100)
    store.settle([OutboxEntry("id:canary", 2)])
    store.finish(["id:canary"])
    assert seen() == []
    assert store.count() == 500
    store.close()


_WRITE_FOR_EVER = """
import sys
from pathlib import Path
from idgraph.model.store import FragmentWrite
from tests.contracts.implementations import PROFILE_STORES
store = next(each for each in PROFILE_STORES if each.name == sys.argv[1]).open(Path(sys.argv[2]))
for number in range(100_000):
    present = store.read(["a:1"]).get("a:1")
    version = present.version if present else 0
    if store.write([FragmentWrite("a:1", version, b"s", frozenset(["a:1"]))]) and store.tombstones(["a:1"]):
        break
    print(version, flush=True)
else:
    sys.exit("never refused")
"""


@pytest.mark.process
def test_writers_in_other_processes_are_refused_from_the_erasure_on(
    durable: Implementation[ProfileStore], tmp_path: Path
) -> None:
    writers = [start(_WRITE_FOR_EVER, durable.name, tmp_path) for _ in range(2)]
    for writer in writers:
        assert writer.stdout
        assert writer.stdout.readline()
    store = durable.open(tmp_path)
    store.erase(["a:1"], 100)
    for writer in writers:
        finish(writer)
    assert store.read(["a:1"]) == {}
    store.close()


_ERASE_ALL = """
import sys
from pathlib import Path
from idgraph.model.store import FragmentWrite
from tests.contracts.implementations import PROFILE_STORES
store = next(each for each in PROFILE_STORES if each.name == sys.argv[1]).open(Path(sys.argv[2]))
ids = [f"a:{number}" for number in range(int(sys.argv[3]))]
store.write([FragmentWrite(each, 0, b"s" * 500, frozenset([each, "mail:" + each])) for each in ids])
print("written", flush=True)
store.erase(ids, 100)
print("erased", flush=True)
store.finish(ids)
"""


@pytest.mark.process
@pytest.mark.parametrize("pause", [0.0, 0.01, 0.03, 0.06])
@pytest.mark.parametrize("durable", long_on_servers(DURABLE), ids=str, indirect=True)
def test_a_killed_erasure_leaves_each_fragment_whole_or_erased(
    durable: Implementation[ProfileStore], tmp_path: Path, pause: float
) -> None:
    size = durable.many
    with killed_after(_ERASE_ALL, durable.name, tmp_path, str(size), lines=1, pause=pause) as printed:
        confirmed = "erased" in printed
    store = durable.open(tmp_path)
    _wait_for_the_server(store)
    left = {fragment.id for fragment in scan_all(store)}
    assert not (confirmed and left)
    assert len(store.all_tombstones()) == size - len(left)
    for number in range(size):
        fragment_id = f"a:{number}"
        assert store.find("mail:" + fragment_id) == [fragment_id] * (fragment_id in left)
    if not confirmed:
        # Only `finish` makes it forget which they were.
        assert len(store.unfinished()) == size - len(left)
    store.close()


def _wait_for_the_server(store: ProfileStore) -> None:
    """A server may still do what a client asked for that was killed meanwhile."""
    seen = -1
    while (now := len(store.all_tombstones())) != seen:
        seen = now
        time.sleep(0.2)


def test_a_store_with_tombstones_takes_no_write_without_their_key(tmp_path: Path) -> None:
    store = SqliteProfileStore(tmp_path / "profiles.db", str.encode)
    store.erase(["a:1"], 100)
    store.close()
    without = SqliteProfileStore(tmp_path / "profiles.db")
    with pytest.raises(StoreError, match="without the key"):
        without.write([write("a:1", erasure_epoch=100)])
    assert without.read(["a:1"]) == {}
    without.close()


def test_a_withdrawn_fragment_is_gone_where_its_version_is_the_one_that_was_read(store: ProfileStore) -> None:
    store.write([write("a:1"), write("a:2"), write("a:3")])
    store.write([write("a:2", 1)])
    assert store.withdraw({"a:1": 1, "a:2": 1, "a:9": 4}) == {"a:2"}, "what is not there need not be removed"
    assert store.read(["a:1", "a:2", "a:9"]).keys() == {"a:2"}
    assert store.find("mail:x") == ["a:2", "a:3"]
    assert sorted(store.outbox()) == [OutboxEntry("a:1", 2), OutboxEntry("a:2", 2), OutboxEntry("a:3", 1)]
    assert store.withdrawn() == {"a:1": 1}
    assert store.unfinished() == [], "it is no erasure: no dead letter goes with it"
    store.forget_withdrawn(["a:1", "a:2"])
    assert store.withdrawn() == {}


def test_who_read_a_fragment_before_it_was_withdrawn_cannot_write_it(store: ProfileStore) -> None:
    store.write([write("a:1")])
    store.withdraw({"a:1": 1})
    assert store.write([write("a:1", 1)]) == {"a:1"}
    assert store.write([write("a:1")]) == {"a:1"}
    assert store.tombstones(["a:1"]) == {"a:1": Tombstone(NO_EPOCH, 2)}
    assert store.write([write("a:1", 2)]) == set(), "no event is refused"
    assert store.read(["a:1"])["a:1"].version == 3


def test_a_withdrawal_leaves_what_an_erasure_forbids(store: ProfileStore) -> None:
    store.write([write("a:1")])
    store.erase(["a:1"], 100)
    store.write([write("a:1", 2, erasure_epoch=100)])
    store.withdraw({"a:1": 3})
    assert store.tombstones(["a:1"]) == {"a:1": Tombstone(100, 4)}


def test_a_write_drops_identifiers(store: ProfileStore) -> None:
    store.write([write("a:1"), write("a:2")])
    renamed = FragmentWrite("a:1", 1, b"t", frozenset({"mail:~x"}), dropped=frozenset({"mail:x", "a:9"}))
    assert store.write([renamed]) == set()
    assert store.identifiers("a:1") == {"a:1", "mail:~x"}
    assert store.find("mail:x") == ["a:2"]
    unnamed = FragmentWrite("a:1", 2, b"t", frozenset(), dropped=frozenset({"a:1"}))
    store.write([unnamed])
    assert store.find("a:1") == []


def test_what_a_backup_brought_back_takes_no_later_event(store: ProfileStore) -> None:
    """A later event, joined to it, would be lost when it is erased again."""
    store.erase(["a:1"], 1)
    (name,) = store.all_tombstones()
    store.write([write("a:1", erasure_epoch=1)])
    store.write([write("a:1", 1, erasure_epoch=1)])
    store.reinstate({name: Tombstone(100, 5)})
    assert store.write([write("a:1", 2, erasure_epoch=100)]) == {"a:1"}
    store.erase(["a:1"], 100)
    assert store.write([write("a:1", 5, erasure_epoch=100)]) == set()
    assert store.write([write("a:1", 6, erasure_epoch=100)]) == set()
    store.finish(["a:1"])
    store.cancel(["a:1"])
    assert store.write([write("a:1", 7)]) == set()
