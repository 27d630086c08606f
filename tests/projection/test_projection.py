"""The projection: from the outbox to the index, beside a flow, beside other projections, and over crashes."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from idgraph.model.backoff import Backoff
from idgraph.model.batch_size import MOST_BYTES, UNWEIGHED
from idgraph.model.errors import ProfileIndexError, StoreError
from idgraph.model.index import IndexDocument, IndexRules
from idgraph.model.queries import Query, Term
from idgraph.model.store import (
    WHOLE,
    FragmentWrite,
    OutboxEntry,
    OutboxShare,
    SharedIdentifiers,
    StoredFragment,
)
from idgraph.projection import projection as projections
from idgraph.projection import runner as runners
from idgraph.projection.projection import Projection
from idgraph.projection.runner import ProjectionRunner
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from tests.contracts.implementations import hashed_name
from tests.contracts.processes import killed_after
from tests.merge.test_commit import state
from tests.projecting import project, sweep
from tests.support.indexed_stores import write
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore
from tests.support.patience import eventually
from tests.support.weighed_stores import HEAVY, WeighedStore

EVERYTHING = IndexRules(lambda _path: True)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(runners, "RETRY", Backoff(base=0.01, cap=0.3))
    monkeypatch.setattr(projections, "RETRY", Backoff(base=0.01, cap=60.0))


@pytest.fixture
def store() -> MemoryProfileStore:
    return MemoryProfileStore()


def written(store: MemoryProfileStore, name: str = "user_id:1", version: int = 0) -> None:
    data = state(version + 1, name).encode()
    assert store.write([FragmentWrite(name, version, data, frozenset({name}))]) == set()


class _Index(MemoryProfileIndex):
    """Refuses some ids, is away for some puts, and counts what it is given."""

    def __init__(self, *refused: str, failures: int = 0) -> None:
        super().__init__()
        self.refused = {*refused}
        self.failures = failures
        self.given = 0

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        self.given += len(documents)
        if self.failures:
            self.failures -= 1
            raise ProfileIndexError("no answer")
        refused = {each.id: "no" for each in documents if each.id in self.refused}
        super().put([each for each in documents if each.id not in refused])
        return refused


def running(store: MemoryProfileStore, index: MemoryProfileIndex) -> ProjectionRunner:
    return ProjectionRunner(Projection(store, index, lambda: EVERYTHING))


# What it does


def test_fragments_are_projected_and_settled(store: MemoryProfileStore) -> None:
    index = _Index()
    for number in range(5):
        written(store, f"user_id:{number}")
    assert project(store, index, EVERYTHING, ["user_id:1", "user_id:3", "unknown:1"]) == set()
    assert [each.fragment_id for each in store.outbox()] == ["user_id:0", "user_id:2", "user_id:4"]
    assert sweep(store, index, EVERYTHING) == 0
    assert (store.outbox(), index.count(Query())) == ([], 5)


def test_only_what_policy_allows_is_indexed(store: MemoryProfileStore) -> None:
    index = _Index()
    written(store)
    sweep(store, index, IndexRules(lambda path: path != "a"))
    assert (index.count(Query()), index.count(Query((Term("a", 1),)))) == (1, 0)


@pytest.mark.parametrize("is_withdrawn", [False, True], ids=["erased", "withdrawn"])
def test_a_fragment_that_is_gone_leaves_the_index(is_withdrawn: bool, store: MemoryProfileStore) -> None:
    index = _Index()
    written(store)
    written(store, "user_id:2")
    sweep(store, index, EVERYTHING)
    if is_withdrawn:
        store.withdraw({"user_id:1": 1})
    else:
        store.erase(["user_id:1"], 1)
    done = Projection(store, index, lambda: EVERYTHING).sweep()
    assert (done.projected, done.erased) == (1, 1)
    assert (store.outbox(), index.search(Query()).ids) == ([], ["user_id:2"])
    # One that comes back continues from a later version.
    write(store, "user_id:1", "back")
    sweep(store, index, EVERYTHING)
    assert index.search(Query((Term("x", "back"),))).ids == ["user_id:1"]


def test_a_document_of_a_fragment_that_the_store_lost_is_erased(store: MemoryProfileStore) -> None:
    index = _Index()
    index.put([IndexDocument("orphan:1", 7, {})])
    assert Projection(store, index, lambda: EVERYTHING).project(["orphan:1"]).erased == 1
    assert index.count(Query()) == 0


def test_an_entry_of_a_version_that_was_written_meanwhile_stays(store: MemoryProfileStore) -> None:
    class Slow(_Index):
        def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
            if documents[0].version == 1:
                written(store, version=1)
            return super().put(documents)

    index = Slow()
    written(store)
    project(store, index, EVERYTHING, ["user_id:1"])
    assert store.outbox() == [OutboxEntry("user_id:1", 2)]
    assert sweep(store, index, EVERYTHING) == 0
    assert (store.outbox(), index.versions(["user_id:1"])) == ([], {"user_id:1": 2})


def test_heavy_fragments_are_projected_a_few_at_a_time() -> None:
    """A thousand of them, decoded and made documents of, would be gigabytes."""
    store, index = WeighedStore(), _Index()
    store.fill(200, HEAVY)
    assert sweep(store, index, IndexRules(lambda _path: False)) == 0
    assert (store.outbox(), index.given) == ([], 200)
    assert 0.9 * MOST_BYTES < max(store.bytes) <= MOST_BYTES


def test_light_fragments_are_soon_projected_many_at_once() -> None:
    store, index = WeighedStore(), MemoryProfileIndex()
    store.fill(4000)
    assert sweep(store, index, EVERYTHING, 1000) == 0
    assert (store.counts[0], store.counts[-2:]) == (UNWEIGHED, [1000, 450])
    assert len(store.counts) < 10


def test_a_sweep_ends_in_time_and_the_next_one_goes_on(store: MemoryProfileStore) -> None:
    index = _Index()
    for number in range(50):
        written(store, f"user_id:{number:02d}")
    projection = Projection(store, index, lambda: EVERYTHING, 4)
    assert not projection.sweep(0.0).is_whole
    assert projection.sweep().is_whole
    assert store.outbox() == []


# What the index refuses


def test_what_is_refused_holds_up_nothing_however_much_it_is(store: MemoryProfileStore) -> None:
    for number in range(50):
        written(store, f"user_id:{number:02d}")
    picky = _Index(*(f"user_id:{number:02d}" for number in range(30)))
    assert sweep(store, picky, EVERYTHING, 4) == 30
    assert {entry.fragment_id for entry in store.outbox()} == picky.refused
    assert picky.given == 50
    picky.refused = set()
    assert sweep(store, picky, EVERYTHING, 4) == 0
    assert (store.outbox(), picky.count(Query())) == ([], 50)


def test_a_refused_document_is_put_ever_more_seldom_and_logged_once(
    store: MemoryProfileStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    # That of this module alone: all event loops of the process sleep by the other, and one may never wake up again.
    monkeypatch.setattr(
        "idgraph.projection.projection.time",
        SimpleNamespace(monotonic=lambda: now[0], time_ns=time.time_ns),
    )
    monkeypatch.setattr(projections, "RETRY", SimpleNamespace(pause=lambda retried: min(60.0, 2.0**retried)))
    index = _Index("user_id:1")
    written(store)
    projection = Projection(store, index, lambda: EVERYTHING)
    puts = []
    with caplog.at_level(logging.WARNING):
        for second in range(20):
            now[0] = 100.0 + second
            given = index.given
            swept = projection.sweep()
            assert swept.left() == 1
            puts += [second] if index.given > given else []
    assert puts == [0, 1, 3, 7, 15]
    assert caplog.messages == ["the index refused 1 profile(s), which stay in the outbox (user_id:1: no)"]
    # What was written since does not wait.
    written(store, version=1)
    index.refused = set()
    assert projection.sweep().projected == 1
    assert store.outbox() == []
    index.refused = {"user_id:1"}
    written(store, version=2)
    assert len(projection.sweep().refused) == 1
    now[0] += 1.0
    assert len(projection.sweep().refused) == 1


def test_a_profile_of_which_no_document_can_be_made_waits_alone(store: MemoryProfileStore) -> None:
    def fails(_path: str) -> bool:
        raise RecursionError("a value")

    index = _Index()
    written(store)
    assert sweep(store, index, IndexRules(fails)) == 1
    assert [entry.fragment_id for entry in store.outbox()] == ["user_id:1"]
    assert sweep(store, index, EVERYTHING) == 0
    assert store.outbox() == []


def test_an_index_that_is_away_is_asked_once_and_not_for_each_page(store: MemoryProfileStore) -> None:
    index = _Index(failures=1)
    for number in range(50):
        written(store, f"user_id:{number:02d}")
    with pytest.raises(ProfileIndexError):
        sweep(store, index, EVERYTHING, 4)
    assert index.given == 4
    assert len(store.outbox()) == 50


# Crashes, and several at once


class _CrashError(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("change", ["written", "erased", "withdrawn"])
@pytest.mark.parametrize("step", ["put", "settle"])
def test_a_crash_between_put_and_settle_is_healed_by_the_next_sweep(step: str, change: str) -> None:
    class Store(MemoryProfileStore):
        crash = False

        def settle(self, entries: Sequence[OutboxEntry]) -> None:
            if self.crash and step == "settle":
                raise _CrashError
            super().settle(entries)

    class Index(_Index):
        def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
            if crashing.crash and step == "put":
                raise _CrashError
            return super().put(documents)

        def erase(self, versions: Mapping[str, int]) -> int:
            if crashing.crash and step == "put":
                raise _CrashError
            return super().erase(versions)

    store = crashing = Store()
    index = Index()
    written(store)
    sweep(store, index, EVERYTHING)
    if change == "written":
        written(store, version=1)
    elif change == "erased":
        store.erase(["user_id:1"], 1)
    else:
        store.withdraw({"user_id:1": 1})
    waits = store.outbox()
    store.crash = True
    with pytest.raises(_CrashError):
        sweep(store, index, EVERYTHING)
    store.crash = False
    assert store.outbox() == waits
    assert sweep(store, index, EVERYTHING) == 0
    assert store.outbox() == []
    assert index.versions(["user_id:1"]) == ({"user_id:1": 2} if change == "written" else {})


def test_slices_share_a_commit(store: MemoryProfileStore, tmp_path: Path) -> None:
    for each in range(4 * UNWEIGHED):
        written(store, f"user_id:{each}")
    index = TantivyProfileIndex(tmp_path / "index", hashed_name)
    assert Projection(store, index, lambda: EVERYTHING).sweep().projected == 4 * UNWEIGHED
    (meta,) = (tmp_path / "index").glob("index-*/meta.json")
    (segment,) = json.loads(meta.read_bytes())["segments"]
    assert segment["max_doc"] == 4 * UNWEIGHED
    assert store.outbox() == []


def test_nothing_is_settled_before_the_commit(store: MemoryProfileStore) -> None:
    class Index(MemoryProfileIndex):
        @contextmanager
        def writing(self, stays_open: bool = False) -> Iterator[Callable[[], bool]]:
            yield lambda: False
            raise ProfileIndexError("no space")

    written(store)
    with pytest.raises(ProfileIndexError):
        Projection(store, Index(), lambda: EVERYTHING).sweep()
    assert len(store.outbox()) == 1


def test_an_erasure_waits_for_a_projection_that_has_read_the_fragment(tmp_path: Path) -> None:
    """Else it would be put behind the erasure, for good."""
    index = TantivyProfileIndex(tmp_path / "index", hashed_name)
    eraser = TantivyProfileIndex(tmp_path / "index", hashed_name)
    erasure = threading.Thread(target=lambda: sweep(erased, eraser, EVERYTHING))

    class Store(MemoryProfileStore):
        def read_with_shared(self, ids: Sequence[str]) -> tuple[dict[str, StoredFragment], SharedIdentifiers]:
            found = super().read_with_shared(ids)
            if found[0] and not erasure.ident:
                self.erase(["user_id:1"], 1)
                erasure.start()
                erasure.join(0.2)
                assert erasure.is_alive()
            return found

    erased = Store()
    written(erased)
    with closing(index), closing(eraser):
        sweep(erased, index, EVERYTHING)
        erasure.join()
        assert erased.outbox() == []
        assert index.count(Query()) == 0


_SWEEP = """
import sys
from pathlib import Path
from tests.projection.test_projection import Files
with Files(Path(sys.argv[1])) as swept:
    while True:
        swept.write(int(sys.argv[2]))
        print(flush=True)
"""


class Files:
    """A store and an index in files, and a process that writes to both."""

    def __init__(self, folder: Path) -> None:
        self.store = SqliteProfileStore(folder / "profiles.db", str.encode)
        self.index = TantivyProfileIndex(folder / "index", hashed_name)
        self.number = 0

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()
        self.index.close()

    def write(self, worker: int) -> None:
        """Some fragments that no other process writes, some of them erased or withdrawn."""
        self.number += 1
        for each in range(10):
            name = f"p:{worker}-{each}"
            if (self.number + each) % 4 == 0:
                self.store.erase([name], 1)
            elif (self.number + each) % 5 == 0 and (found := self.store.read([name])):
                self.store.withdraw({name: found[name].version})
            else:
                write(self.store, name, self.number)
        sweep(self.store, self.index, EVERYTHING, 7)


@pytest.mark.process
def test_several_processes_that_are_killed_leave_store_and_index_alike(tmp_path: Path) -> None:
    """A flow's projection and a command's at once, over kills at any moment: all are found by what is stored."""
    with Files(tmp_path) as last:
        for pause in (0.0, 0.03, 0.3):
            with (
                killed_after(_SWEEP, tmp_path, "1", lines=2, pause=pause),
                killed_after(_SWEEP, tmp_path, "2", lines=2, pause=pause),
            ):
                pass
        assert sweep(last.store, last.index, EVERYTHING) == 0
        assert last.store.outbox() == []
        stored = {each.id: each.version for each in last.store.scan()}
        assert stored
        assert last.index.versions([f"p:{one}-{each}" for one in (1, 2) for each in range(10)]) == stored
        assert last.index.count(Query()) == len(stored)


# Beside a flow


def test_what_is_committed_is_projected_at_once(
    store: MemoryProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "POLL_SECONDS", 3600.0)
    index = MemoryProfileIndex()
    with running(store, index) as runner:
        assert runner.lag_seconds() == 0.0
        written(store)
        runner.wake()
        eventually(lambda: not store.outbox() and runner.lag_seconds() == 0.0)
        assert index.count(Query()) == 1


def test_what_a_crash_or_another_process_left_is_projected_soon(store: MemoryProfileStore) -> None:
    index = MemoryProfileIndex()
    with running(store, index):
        written(store)
        eventually(lambda: not store.outbox())
        assert index.count(Query()) == 1


def test_the_policy_of_now_decides_at_each_sweep(store: MemoryProfileStore) -> None:
    index = MemoryProfileIndex()
    allowed: set[str] = set()
    projection = Projection(store, index, lambda: IndexRules(allowed.__contains__))
    with ProjectionRunner(projection):
        written(store, "user_id:1")
        eventually(lambda: not store.outbox())
        allowed.add("a")
        written(store, "user_id:2")
        eventually(lambda: not store.outbox())
    fields = {name: dict(document.fields) for name, document in index._documents.items()}
    assert fields == {"user_id:1": {}, "user_id:2": {"a": 1}}


def test_its_end_waits_for_what_is_left(store: MemoryProfileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "POLL_SECONDS", 3600.0)
    with running(store, MemoryProfileIndex()):
        written(store)
        assert store.outbox()
    assert not store.outbox()


def test_its_end_waits_no_longer_than_it_may_and_says_so(
    store: MemoryProfileStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "SWEEP_SECONDS", 0.01)
    reached, goes_on = threading.Event(), threading.Event()

    class Hung(_Index):
        def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
            reached.set()
            goes_on.wait(60)
            return super().put(documents)

    runner = ProjectionRunner(Projection(store, Hung(), lambda: EVERYTHING), 0.05)
    with caplog.at_level(logging.WARNING), runner:
        written(store)
        runner.wake()
        assert reached.wait(60)
        eventually(lambda: runner.lag_seconds() > 0.0)
    assert caplog.messages == ["the index takes long; the next run projects the rest of the outbox"]
    goes_on.set()
    eventually(lambda: not store.outbox())


def test_all_is_searchable_once_it_has_finished_however_slow_the_index_is(
    store: MemoryProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "SWEEP_SECONDS", 0.001)

    class Slow(_Index):
        def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
            time.sleep(0.05)
            return super().put(documents)

    index = Slow()
    for number in range(60):
        written(store, f"user_id:{number}")
    with ProjectionRunner(
        Projection(store, index, lambda: EVERYTHING, at_once=5), end_seconds=0.01
    ) as runner:
        runner.finish(threading.Event())
        assert not store.outbox()
        assert index.count(Query()) == 60


def test_an_index_that_is_away_is_not_waited_for(
    store: MemoryProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "RETRY", Backoff(base=0.01, cap=0.01))
    with running(store, _Index(failures=2)) as soon_back:
        written(store)
        soon_back.finish(threading.Event())
        assert not store.outbox()
    away = MemoryProfileIndex()
    away.close()
    with running(store, away) as runner:
        written(store, "user_id:2")
        with pytest.raises(ProfileIndexError, match="next run"):
            runner.finish(threading.Event())
    assert store.outbox()
    asked_to_stop = threading.Event()
    asked_to_stop.set()
    with running(store, away) as runner:
        runner.finish(asked_to_stop)


def test_its_end_says_what_remains(store: MemoryProfileStore, caplog: pytest.LogCaptureFixture) -> None:
    index = MemoryProfileIndex()
    index.close()
    with caplog.at_level(logging.WARNING), running(store, index):
        written(store)
    assert store.outbox()
    assert caplog.messages[-1] == "1 profile(s) wait for the index; the next run projects them"


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

        def outbox(self, limit: int = 1000, after: str = "", share: OutboxShare = WHOLE) -> list[OutboxEntry]:
            if self.left:
                self.left -= 1
                raise error
            return super().outbox(limit, after, share)

    store = Store()
    with caplog.at_level(logging.WARNING), running(store, MemoryProfileIndex()):
        written(store)
        eventually(lambda: not store.left and not store.outbox())
    assert f"{reported}; commits wait in the outbox" in caplog.text
    assert "secret" not in caplog.text


def test_an_index_that_stays_away_is_reported_once_and_when_it_is_back(
    store: MemoryProfileStore, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), running(store, _Index(failures=3)):
        written(store)
        eventually(lambda: not store.outbox())
    assert caplog.messages == [
        "no answer; commits wait in the outbox",
        "the projection is back",
    ]
