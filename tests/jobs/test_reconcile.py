"""Comparing index and store: each kind of damage is found and repaired, and what is in progress is none."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from idgraph.model.batch_size import MOST_BYTES
from idgraph.model.index import IndexDocument
from idgraph.model.store import FragmentWrite
from tests.support.indexed_stores import KINDS, Compared, IndexedStore, allowing, indexed_store
from tests.support.weighed_stores import HEAVY, WeighedStore


@pytest.fixture(params=KINDS, ids=str)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexedStore]:
    with indexed_store(request.param, tmp_path) as kept:
        yield kept


def ended(job: Iterator[Compared]) -> Compared:
    """Run to the end."""
    return deque(job, maxlen=1)[0]


def damage(kept: IndexedStore) -> dict[str, list[str]]:
    """One or two of each kind."""
    kept.unseen("p:001", "stale")
    kept.unseen("new:1", "missing")
    kept.lose("p:002")
    kept.index.put([IndexDocument("p:003", 1, {"x": "other"})])
    kept.index.put([IndexDocument("p:004", 1, {"x": "value4", "y": 1})])
    kept.index.put([IndexDocument("orphan:1", 3, {"x": "nobody"}), IndexDocument("a-orphan:2", 1, {})])
    return {
        "stale": ["p:001"],
        "missing": ["new:1", "p:002"],
        "different": ["p:003", "p:004"],
        "orphaned": ["a-orphan:2", "orphan:1"],
    }


def test_where_all_is_well_nothing_is_reported(kept: IndexedStore) -> None:
    kept.fill(25)
    kept.erase("p:007")
    done = ended(kept.reconciling(10))
    assert (*done.compared, done.progress.done, done.progress.total) == (24, 24, 48, 48)
    assert not done.drift.total()
    assert (done.left, done.waiting) == (0, 0)


def test_each_kind_of_damage_is_reported_and_mended(kept: IndexedStore) -> None:
    kept.fill(25)
    expected = damage(kept)
    for _ in range(2):
        reported = ended(kept.reconciling(7))
        assert {kind: sorted(names) for kind, names in reported.named.items()} == expected
        assert reported.drift == {kind: len(names) for kind, names in expected.items()}
        assert (reported.left, reported.repaired, reported.waiting) == (7, 0, 0)
    repaired = ended(kept.reconciling(7, repairs=True))
    assert (repaired.left, repaired.repaired, repaired.drift) == (0, 7, reported.drift)
    assert ended(kept.reconciling(7)).drift.total() == 0
    assert kept.found("stale") == ["p:001"]
    assert kept.found("missing") == ["new:1"]
    assert kept.found("other") == kept.found("nobody") == []
    assert kept.ids() == sorted(["new:1", *(f"p:{each:03}" for each in range(25))])


def test_what_waits_in_the_outbox_is_no_drift(kept: IndexedStore) -> None:
    kept.fill(5)
    kept.write("p:001", "waits")
    kept.write("new:1", "waits")
    done = ended(kept.reconciling(repairs=True))
    assert (done.waiting, done.drift.total(), done.repaired) == (2, 0, 0)
    assert len(kept.store.outbox()) == 2


def test_an_erasure_that_is_not_finished_is_no_drift(kept: IndexedStore) -> None:
    kept.fill(5)
    kept.store.erase(["p:001"], 1)
    done = ended(kept.reconciling())
    assert (done.waiting, done.drift.total()) == (1, 0)


def test_what_policy_forbids_since_is_drift_and_is_taken_out(kept: IndexedStore) -> None:
    kept.policy = allowing("x", "secret")
    kept.fill(5)
    kept.flow("p:001", "hidden", "secret")
    kept.policy = allowing("x")
    assert ended(kept.reconciling(repairs=True)).drift == {"different": 1}
    assert kept.found("hidden", "secret") == []


def test_an_index_that_holds_on_to_what_is_later_is_reported(kept: IndexedStore) -> None:
    kept.fill(3)
    kept.index.put([IndexDocument("p:000", 9, {"x": "later"})])
    kept.index.erase({"p:001": 9})
    done = ended(kept.reconciling(repairs=True))
    assert done.drift == {"ahead": 1, "missing": 1}
    assert (done.left, done.repaired) == (2, 0)
    deque(kept.reindexing(), maxlen=0)
    assert ended(kept.reconciling()).drift.total() == 0


def test_an_orphan_that_is_still_there_is_not_counted_as_mended(
    kept: IndexedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.fill(3)
    kept.index.put([IndexDocument("orphan:1", 3, {}), IndexDocument("orphan:2", 3, {})])
    erase = kept.index.erase

    def raced(versions: Mapping[str, int]) -> int:
        # A writer that was late puts a later version before.
        kept.index.put([IndexDocument("orphan:1", 5, {})])
        return erase(versions)

    monkeypatch.setattr(kept.index, "erase", raced)
    done = ended(kept.reconciling(repairs=True))
    assert (done.drift, done.repaired, done.left) == ({"orphaned": 2}, 1, 1)


def test_a_damaged_fragment_is_counted_and_holds_nothing(kept: IndexedStore) -> None:
    kept.fill(3)
    kept.store.write([FragmentWrite("p:001", 1, b"damaged", frozenset())])
    done = ended(kept.reconciling(repairs=True))
    assert (done.unreadable, done.drift.total()) == (1, 0)


def test_what_is_cut_short_goes_on_with_what_it_had_counted(kept: IndexedStore) -> None:
    kept.fill(30)
    expected = damage(kept)
    whole = ended(kept.reconciling(10))
    for cut in (1, 3, 6, 7):
        job = kept.reconciling(10)
        for _ in range(cut):
            next(job)
        job.close()
        again = kept.reconciling(10)
        first = next(again)
        assert first.progress.resumed is (cut > 1)
        assert first.progress.done > 0 or cut == 1
        done = ended(again)
        assert done.drift == whole.drift, cut
        assert {kind: sorted(names) for kind, names in done.named.items()} == expected
        assert done.compared == (31, 31)
    # What was to be reported is not resumed to repair, nor the other way round.
    next(job := kept.reconciling(10))
    next(job)
    job.close()
    assert not next(kept.reconciling(10, repairs=True)).progress.resumed


def test_of_an_index_that_was_lost_meanwhile_all_is_mended(tmp_path: Path) -> None:
    (embedded,) = (each for each in KINDS if each.in_files)
    with indexed_store(embedded, tmp_path) as kept:
        kept.fill(30)
        job = kept.reconciling(10, repairs=True)
        next(job)
        next(job)
        job.close()
        kept.lose_all()
        done = ended(kept.reconciling(10, repairs=True))
        assert (done.progress.resumed, done.repaired, done.left) == (False, 30, 0)
        assert len(kept.ids()) == 30


def test_nothing_of_a_flow_beside_it_is_drift(kept: IndexedStore) -> None:
    kept.fill(60)
    stop = threading.Event()
    failures: list[BaseException] = []

    def flow(worker: int) -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                name = f"p:{(7 * number) % 30 + 30 * worker:03}"
                if number % 11 == 0:
                    kept.erase(name)
                    continue
                kept.flow(name, f"{worker}-{number}")
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=flow, args=(each,)) for each in range(2)]
    for each in workers:
        each.start()
    try:
        looks = [ended(kept.reconciling(13, repairs=run % 2 == 1)) for run in range(6)]
    finally:
        stop.set()
        for each in workers:
            each.join()
    assert failures == []
    assert [look.drift for look in looks] == [{}] * 6
    assert ended(kept.reconciling()).drift == {}


def test_heavy_fragments_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """Those that are stored, those that are repaired, and those that are indexed."""
    with indexed_store(KINDS[0], tmp_path) as kept:
        kept.store = store = WeighedStore()
        store.fill(200, HEAVY)
        store.settle(store.outbox())
        done = ended(kept.reconciling(repairs=True))
        assert (*done.compared, done.repaired, done.left) == (200, 200, 200, 0)
    assert 0.9 * MOST_BYTES < max(store.bytes) <= MOST_BYTES
