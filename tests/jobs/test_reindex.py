"""An index that is rebuilt: what is in it, whatever comes meanwhile and whatever cuts it short."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from idgraph.model.batch_size import MOST_BYTES
from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexRules
from idgraph.model.store import FragmentWrite
from idgraph.projection.documents import IndexPolicies, documents_of, fingerprint
from merge.identity.persons import Persons
from merge.identity.rules import Rules
from tests.projecting import sweep
from tests.retail import attribute, attributes, snapshot
from tests.support.indexed_stores import KINDS, IndexedStore, Rebuilt, allowing, empty_store, indexed_store
from tests.support.weighed_stores import HEAVY, WeighedStore


@pytest.fixture(params=KINDS, ids=str)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[IndexedStore]:
    with indexed_store(request.param, tmp_path) as kept:
        yield kept


def ended(job: Iterator[Rebuilt]) -> Rebuilt:
    """Run to the end."""
    return deque(job, maxlen=1)[0]


def test_it_has_what_is_stored_and_nothing_that_policy_forbids(kept: IndexedStore) -> None:
    kept.policy = allowing("x", "secret")
    kept.fill(25)
    kept.flow("p:000", "hidden", "secret")
    kept.lose("p:001")
    before = kept.versions.known()[-1].name
    kept.policy = allowing("x")
    done = ended(kept.reindexing(10))
    assert (done.progress.total, done.progress.done, done.refused, done.job.replaced) == (25, 25, [], before)
    assert kept.ids() == [f"p:{each:03}" for each in range(25)]
    assert kept.found("hidden", "secret") == []
    assert kept.found("value1") == ["p:001"]
    # The outbox knows nothing of it: what waits there waits on.
    assert kept.store.outbox() == []


def test_what_flows_write_and_erase_meanwhile_is_in_it_as_they_left_it(kept: IndexedStore) -> None:
    kept.fill(30)
    job = kept.reindexing(10)
    next(job)
    for number, _ in enumerate(job):
        # Behind the walk, ahead of it, and new.
        kept.flow("p:005", f"early{number}")
        kept.flow("p:025", f"late{number}")
        kept.flow(f"new:{number}", "new")
        kept.write("p:007", f"waits{number}")
        if number == 0:
            kept.erase("p:003")
            kept.erase("p:023")
        if number == 1:
            kept.erase("p:004")
            kept.erase("p:024")
            kept.flow("p:024", "back")
        last = number
    sweep(kept.store, kept.index, kept.policy.rules)
    assert kept.found(f"early{last}") == ["p:005"]
    assert kept.found(f"late{last}") == ["p:025"]
    assert kept.found(f"waits{last}") == ["p:007"]
    assert kept.found("back") == ["p:024"]
    assert len(kept.found("new")) == last + 1
    assert {"p:003", "p:004", "p:023"}.isdisjoint(kept.ids())
    assert [ended_well.drift.total() for ended_well in kept.reconciling()][-1] == 0


def test_what_was_erased_before_does_not_come_with_a_writer_that_is_late(kept: IndexedStore) -> None:
    kept.fill(3)
    late = Persons(kept.store, Rules()).named(["p:001"]).persons
    kept.erase("p:001")
    ended(kept.reindexing())
    kept.index.put(documents_of(late, kept.policy.rules).documents)
    assert kept.ids() == ["p:000", "p:002"]


def test_a_policy_that_changes_meanwhile_holds_for_all(
    kept: IndexedStore, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(30):
        kept.write(f"p:{number:03}", "open")
        kept.write(f"p:{number:03}", "closing", "y")
    policies = iter([allowing("x", "y")] * 4)
    with caplog.at_level(logging.WARNING):
        done = ended(kept.reindexing(10, policy=lambda: next(policies, allowing("x"))))
    assert "the rules for indexable values have changed" in caplog.text
    assert (done.progress.done, done.progress.total) == (30, 30)
    assert kept.found("closing", "y") == []
    assert len(kept.found("open")) == 30


def test_what_is_cut_short_goes_on_where_it_was(kept: IndexedStore) -> None:
    kept.fill(40)
    job = kept.reindexing(10)
    made = [next(job), next(job), next(job)][-1].version
    job.close()
    kept.flow("p:002", "meanwhile")
    kept.flow("p:035", "meanwhile")
    kept.erase("p:001")
    again = kept.reindexing(10)
    first = next(again)
    assert (first.version, first.progress.resumed, first.progress.done) == (made, True, 20)
    done = ended(again)
    assert (done.progress.done, done.progress.counts["indexed"]) in ((39, 39), (39, 40), (40, 40))
    assert kept.found("meanwhile") == ["p:002", "p:035"]
    assert kept.ids() == [f"p:{each:03}" for each in range(40) if each != 1]
    # That was that: the next one begins.
    assert not next(kept.reindexing()).progress.resumed


def test_in_a_file_that_was_lost_meanwhile_it_begins_anew(tmp_path: Path) -> None:
    """What the message about a damaged file says to do left more than half of the profiles out."""
    (embedded,) = (each for each in KINDS if each.in_files)
    with indexed_store(embedded, tmp_path) as kept:
        kept.fill(40)
        job = kept.reindexing(10)
        made = [next(job), next(job), next(job)][-1].version
        job.close()
        kept.lose_all()
        again = kept.reindexing(10)
        first = next(again)
        assert (first.version, first.progress.resumed) == (made, False)
        ended(again)
        assert kept.ids() == [f"p:{each:03}" for each in range(40)]


def test_begun_anew_it_takes_nothing_from_before(kept: IndexedStore) -> None:
    kept.fill(20)
    job = kept.reindexing(10)
    assert [next(job), next(job)][-1].progress.done == 10
    job.close()
    again = kept.reindexing(10, again=True)
    assert not next(again).progress.resumed
    ended(again)
    assert kept.ids() == [f"p:{each:03}" for each in range(20)]


def test_what_cannot_be_indexed_is_reported_and_holds_nothing(
    kept: IndexedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.fill(5)
    kept.store.write([FragmentWrite("p:002", 1, b"damaged", frozenset())])
    put = kept.versions.put
    monkeypatch.setattr(
        kept.versions,
        "put",
        lambda documents: (
            put([d for d in documents if d.id != "p:003"])
            | {d.id: "no" for d in documents if d.id == "p:003"}
        ),
    )
    done = ended(kept.reindexing(2))
    assert done.refused == ["p:002", "p:003"]
    assert done.progress.counts["refused"] == 2
    assert kept.ids() == ["p:000", "p:001", "p:004"]


def test_an_index_that_is_away_is_an_error_and_it_goes_on_later(
    kept: IndexedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.fill(20)
    job = kept.reindexing(10)
    assert [next(job), next(job)][-1].progress.done == 10

    def away(_: object) -> dict[str, str]:
        raise ProfileIndexError("away")

    with monkeypatch.context() as patch:
        patch.setattr(kept.versions, "put", away)
        with pytest.raises(ProfileIndexError, match="away"):
            next(job)
    again = kept.reindexing(10)
    assert next(again).progress.done == 10
    ended(again)
    assert len(kept.ids()) == 20


def test_an_index_that_is_ahead_of_a_restored_store_is_mended(kept: IndexedStore) -> None:
    kept.fill(3)
    for version in range(4):
        kept.flow("p:001", f"later{version}")
    kept.index.erase({"p:002": 9})
    restored = replace(kept, store=empty_store(kept.kind))
    restored.fill(3)
    restored.store.settle(restored.store.outbox())
    assert restored.ids() == ["p:000", "p:001"]
    ended(restored.reindexing())
    assert restored.ids() == ["p:000", "p:001", "p:002"]
    assert restored.index.versions(["p:001"]) == {"p:001": 1}


def test_the_place_on_disk_shows_nothing_of_a_profile(kept: IndexedStore) -> None:
    kept.fill(20)
    job = kept.reindexing(10)
    assert [next(job), next(job)][-1].progress.done == 10
    for file in kept.folder.glob("jobs.db*"):
        assert b"p:0" not in file.read_bytes()
    job.close()


def test_rules_are_reported_apart_by_what_they_let_in() -> None:
    known = snapshot(1)
    discovered = attribute("activity.new", status="discovered")
    open_one = attribute("activity.open", indexable=True)
    closed = attribute("activity.open", indexable=False)
    base = fingerprint(known)
    assert fingerprint(snapshot(2, declared=[*attributes(), discovered])) == base
    assert (
        len({base, *(fingerprint(snapshot(3, declared=[*attributes(), a])) for a in (open_one, closed))}) == 3
    )
    newest = [known]
    policies = IndexPolicies(lambda: newest[0])
    first = policies()
    assert policies() is first
    newest[0] = snapshot(3, declared=[*attributes(), closed])
    assert isinstance(policies().rules, IndexRules)
    assert not policies().rules.is_indexable("activity.open")
    assert first.rules.is_indexable("activity.open")


def test_heavy_fragments_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    with indexed_store(KINDS[0], tmp_path) as kept:
        kept.store = store = WeighedStore()
        store.fill(200, HEAVY)
        done = ended(kept.reindexing())
        assert (done.progress.done, kept.ids()) == (200, list(store.ids()))
    assert 0.9 * MOST_BYTES < max(store.bytes) <= MOST_BYTES
