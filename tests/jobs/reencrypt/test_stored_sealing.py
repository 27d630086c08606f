"""The sealing of stored values: its races, its crashes, and what one bad fragment costs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from idgraph.jobs.reencrypt.stored_sealing import StoredSealing
from idgraph.model.errors import ConflictError, ProfileIndexError, StoreError
from idgraph.model.jobs import Progress
from idgraph.model.queries import FullText, Query, Term
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import FragmentWrite
from ingestion.stages.dead_letters import DeadLetterWriter
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from tests.replaying import replay
from tests.retail import UNDETECTED, Pipeline, attribute, attributes, order, records, snapshot
from tests.sealing import Sealed, previewed, sealed, sealing_of, steps
from tests.support.memory.data_keys import MemoryDataKeys
from tests.support.memory.profiles import MemoryProfileStore
from tests.support.stored_orders import AwayIndex, Meddled, beside, from_the_start, states, stored_orders
from transforms.privacy.protected_names import TombstoneNames
from transforms.spec.mapping import CompiledSnapshot

OPEN = [each for each in attributes() if each.path == "identity.email"]
BEFORE = snapshot(1, declared=OPEN, defaults=UNDETECTED)
AFTER = snapshot(2)
CITY = "address.shipping.city"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """Orders of two persons, stored before anything but their e-mail addresses was protected."""
    return stored_orders(tmp_path, BEFORE, AFTER)


def test_a_value_of_every_kind_that_is_protected_is_counted(pipeline: Pipeline) -> None:
    before = states(pipeline)
    reported = previewed(pipeline)
    assert states(pipeline) == before
    done = sealed(pipeline)
    assert (done.total, done.looked_at, done.fragments, done.failed) == (2, 2, 2, 0)
    assert done.values == {"identity.name.first": 2, "identity.name.last": 2, "address.shipping.line1": 2}
    assert (reported.values, reported.fragments) == (done.values, done.fragments)
    assert states(pipeline) == from_the_start(pipeline, AFTER)
    assert pipeline.store.outbox() == []


def test_the_index_forgets_what_it_found(pipeline: Pipeline) -> None:
    by_street = Query((FullText("main"),))
    assert pipeline.index.count(by_street) == 2
    sealed(pipeline)
    assert pipeline.index.count(by_street) == 0
    assert pipeline.index.count(Query((Term(CITY, "Springfield"),))) == 2


@pytest.fixture
def meddled(tmp_path: Path) -> tuple[Pipeline, Meddled]:
    store = Meddled()
    return stored_orders(tmp_path, BEFORE, AFTER, store), store


@pytest.mark.parametrize("under", [BEFORE, AFTER])
def test_a_flow_that_writes_in_between_loses_nothing(
    meddled: tuple[Pipeline, Meddled], under: MetadataSnapshot
) -> None:
    pipeline, store = meddled
    later = order(1, 7, created_at="2024-03-05T00:00:00Z", order_id="R7", shipping={"line1": "9 Other St"})
    store.before_write = lambda: beside(pipeline, under).process([later])
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, AFTER, later)


def test_another_sealing_in_between_is_no_harm(meddled: tuple[Pipeline, Meddled]) -> None:
    pipeline, store = meddled
    store.before_write = lambda: sealed(beside(pipeline, AFTER))
    assert sealed(pipeline).fragments == 0, "the other one did it"
    assert states(pipeline) == from_the_start(pipeline, AFTER)


def test_an_erasure_in_between_wins(meddled: tuple[Pipeline, Meddled]) -> None:
    pipeline, store = meddled
    victim, other = sorted(states(pipeline))
    store.before_write = lambda: store.erase([victim], 10**15)
    assert sealed(pipeline).fragments == 1
    assert list(states(pipeline)) == [other]


def test_what_came_back_after_an_erasure_is_sealed_under_its_own_key(pipeline: Pipeline) -> None:
    victim = min(states(pipeline))
    # Another process erased it: here its key may still be in the cache.
    pipeline.data_keys.fetch([victim], create=True)
    pipeline.key_store.delete([victim])
    pipeline.store.erase([victim], 1)
    flow = Pipeline(pipeline.folder, pipeline.key_store, pipeline.store, pipeline.index, snapshot=BEFORE)
    flow.process([order(1), order(2, 2)])
    sealed(pipeline)
    pipeline.data_keys.forget([victim])
    assert b"unreadable" not in pipeline.export(reveal=True)
    assert states(pipeline) == from_the_start(pipeline, AFTER)


def test_a_fragment_that_keeps_changing_is_reported(pipeline: Pipeline) -> None:
    class Restless(MemoryProfileStore):
        def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
            return {write.id for write in writes}

    restless = Restless()
    MemoryProfileStore.write(
        restless, [FragmentWrite(name, 0, data, frozenset()) for name, data in states(pipeline).items()]
    )
    pipeline.store = restless
    with pytest.raises(ConflictError, match="2 fragment"):
        sealed(pipeline)


class Fragile(MemoryProfileStore):
    """Fails at one of its writes, before or after it took effect, as a killed process leaves it."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.effect = False

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        self.left -= 1
        if self.left == 0:
            if self.effect:
                super().write(writes)
            raise StoreError("killed")
        return super().write(writes)


@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize("at", [1, 2, 3, 4, 5])
def test_two_crashes_and_one_retry_end_as_if_nothing_had_happened(
    tmp_path: Path, at: int, effect: bool
) -> None:
    store = Fragile()
    pipeline = Pipeline(tmp_path, store=store, snapshot=BEFORE)
    given = [order(number, number) for number in range(1, 13)]
    pipeline.process(given)
    pipeline.snapshot = AFTER
    store.effect = effect
    for _ in range(2):
        store.left = at
        with pytest.raises(StoreError, match="killed"):
            sealed(pipeline, page=1)
    store.left = -1
    sealed(pipeline, page=1)
    assert states(pipeline) == from_the_start(pipeline, AFTER, *given[2:])
    assert pipeline.store.outbox() == []
    assert pipeline.index.count(Query((FullText("main"),))) == 0


def test_an_index_that_is_away_is_reported_and_followed_up(tmp_path: Path) -> None:
    index = AwayIndex()
    pipeline = Pipeline(tmp_path, index=index, snapshot=BEFORE)
    pipeline.process([order(1)])
    pipeline.snapshot = AFTER
    index.is_away = True
    with pytest.raises(ProfileIndexError):
        sealed(pipeline)
    index.is_away = False
    assert sealed(pipeline).fragments == 0
    assert index.count(Query((FullText("main"),))) == 0


def test_one_bad_fragment_costs_itself(pipeline: Pipeline) -> None:
    damaged, other = sorted(states(pipeline))
    pipeline.store.write([FragmentWrite(damaged, 1, b"damaged", frozenset())])
    done = sealed_but_unindexed(pipeline)
    assert (done.failed, done.named, done.fragments) == (1, [damaged], 1)
    assert states(pipeline)[other] == from_the_start(pipeline, AFTER)[other]


def test_an_unusable_key_costs_its_fragment(pipeline: Pipeline) -> None:
    victim = min(states(pipeline))
    pipeline.data_keys.fetch([victim], create=True)
    pipeline.data_keys.forget([victim])
    keys = pipeline.key_store
    (wrapped,) = keys.get([victim]).values()
    keys.replace({victim: (wrapped, wrapped._replace(kek_version=9))})
    done = sealed(pipeline)
    assert (done.failed, done.named, done.fragments) == (1, [victim], 1)


def sealed_but_unindexed(pipeline: Pipeline) -> Sealed:
    *_, done = steps(pipeline, sealing_of(pipeline))
    return done


def test_two_sealings_and_a_flow_at_once(tmp_path: Path) -> None:
    keys = MemoryDataKeys()
    seed = Pipeline(tmp_path, keys)
    names = TombstoneNames(seed.provider)
    store = SqliteProfileStore(tmp_path / "profiles.db", names)
    index = TantivyProfileIndex(tmp_path / "index", names)
    given = records(120)

    def running(known: object) -> Pipeline:
        found = Pipeline(tmp_path, keys, store, index)
        found.snapshot = BEFORE if known is BEFORE else AFTER
        return found

    running(BEFORE).process(given)
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)

        return run

    stream = records(240)
    work: list[Callable[[], object]] = [
        lambda: sealed(running(AFTER), page=3),
        lambda: sealed(running(AFTER), page=5),
        lambda: [running(AFTER).process(stream[at : at + 20]) for at in range(0, len(stream), 20)],
        lambda: [running(BEFORE).process(stream[at : at + 20]) for at in range(0, len(stream), 20)],
    ]
    threads = [threading.Thread(target=guarded(each)) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    last = running(AFTER)
    sealed(last)
    expected = Pipeline(tmp_path, keys, snapshot=AFTER)
    expected.process(stream)
    assert {e.id: e.state for e in store.scan()} == {e.id: e.state for e in expected.store.scan()}
    assert store.outbox() == []
    store.close()
    index.close()


def test_names_that_policy_protects_now_are_never_reported(tmp_path: Path) -> None:
    email = attribute("identity.email", encryption="none")
    pipeline = Pipeline(tmp_path, snapshot=snapshot(1, declared=[email], defaults=UNDETECTED))
    pipeline.process([order(1), order(2, 2)])
    pipeline.snapshot = AFTER
    victim = min(states(pipeline))
    assert "@" in victim
    pipeline.store.write([FragmentWrite(victim, 1, b"damaged", frozenset())])
    reported = sealed_but_unindexed(pipeline)
    assert (reported.failed, reported.renamed) == (1, {"email": 1})
    assert "@" not in str(reported)


def test_a_page_is_durable_when_it_is_reported(pipeline: Pipeline) -> None:
    job = steps(pipeline, sealing_of(pipeline), page=1)
    next(job)
    next(job)
    first, second = (states(pipeline)[each] for each in sorted(states(pipeline)))
    expected = from_the_start(pipeline, AFTER)
    assert first == expected[min(expected)]
    assert second != expected[max(expected)]
    sealed(pipeline)
    assert states(pipeline) == expected


def test_changes_that_waited_for_a_damaged_fragment_are_sealed_when_they_are_replayed(
    pipeline: Pipeline,
) -> None:
    (victim,) = pipeline.map(order(1)).fragments
    (present,) = pipeline.store.read([victim]).values()
    pipeline.store.write([FragmentWrite(victim, present.version, b"damaged", frozenset())])
    later = order(1, 7, created_at="2024-03-05T00:00:00Z", order_id="R7", shipping={"line1": "9 Other St"})
    pipeline.snapshot = BEFORE
    damaged = pipeline.process([later]).failed
    resources = pipeline.resources()
    dead_letters = DeadLetterWriter(pipeline.sealer).of_failures(damaged, 1, pipeline.batch)
    resources.dead_letters.put(dead_letters)
    # Restored from a backup, and sealed, before the dead letters are retried.
    pipeline.store.write([FragmentWrite(victim, present.version + 1, present.state, frozenset())])
    pipeline.snapshot = AFTER
    sealed(pipeline)
    report = replay(dead_letters, pipeline.plan(), resources, AFTER, pipeline.sealer.open, lambda _: None)
    assert (report.replayed, report.still_dead) == (1, 0)
    resources.dead_letters.close()
    assert states(pipeline) == from_the_start(pipeline, AFTER, later), (
        "no plaintext, and nothing left to seal"
    )


def test_beside_a_projection_the_index_waits_for_it_or_for_the_last_step(pipeline: Pipeline) -> None:
    resources = pipeline.resources()
    with closing(resources.dead_letters):
        sealing = StoredSealing(resources, CompiledSnapshot(pipeline.snapshot), is_projected=True)
        for _ in sealing.run(Progress(), page=1):
            pass
        assert {name for name, _ in pipeline.store.outbox()} == set(states(pipeline))
        assert sealing.finish() == 0
    assert pipeline.store.outbox() == []
    assert pipeline.index.count(Query((FullText("main"),))) == 0
    assert states(pipeline) == from_the_start(pipeline, AFTER)
