"""Data keys, fragments and dead letters of a person who was erased and came back, with other writers in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConflictError, StoreError, UnstorableError
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import FragmentWrite, StoredFragment
from idgraph.model.tombstones import Tombstone
from ingestion.stages.aggregate import Aggregator
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from ingestion.stages.orphaned_keys import KeyGuard
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from sinks.sqlite.dead_letters import SqliteDeadLetters
from tests.jobs.reencrypt.test_renaming_races import ordinal_of
from tests.replaying import ReplayReport, replay
from tests.retail import Pipeline, order, states_of
from tests.sealing import sealed
from tests.support.memory.profiles import MemoryProfileStore
from tests.support.renamed_orders import AFTER, BEFORE, PLAIN, hashed, later
from tests.support.stored_orders import beside


class Store(MemoryProfileStore):
    """Lets something happen before a commit reads, and refuses what it is to write."""

    before_read: Callable[[], object] | None = None
    is_refusing = False

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        between, self.before_read = self.before_read, None
        if between is not None:
            between()
        return super().read_with_tombstones(ids)

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        if self.is_refusing:
            raise UnstorableError("too large")
        return super().write(writes)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def pipeline(tmp_path: Path, store: Store) -> Pipeline:
    """Somebody was stored, and erased under both names; the name is protected by now."""
    found = Pipeline(tmp_path, store=store, snapshot=BEFORE)
    found.process([order(1)])
    erase(found)
    found.snapshot = AFTER
    return found


def erase(pipeline: Pipeline) -> None:
    names = [PLAIN, hashed(pipeline)]
    pipeline.key_store.delete(names)
    pipeline.store.erase(names, ordinal_of(order(1)))


def set_aside(pipeline: Pipeline, known: MetadataSnapshot = BEFORE) -> None:
    """A later event comes, and the store refuses what it changes."""
    ((name, change),) = states_of(beside(pipeline, known).map(later())).items()
    put(pipeline, name, change)


def put(pipeline: Pipeline, name: str, change: FragmentState) -> None:
    failure = CommitFailure(name, DeadLetterReason.REFUSED_BY_STORE, "", change)
    resources = pipeline.resources()
    dead_letters = DeadLetterWriter(pipeline.sealer).of_failures([failure], 1, pipeline.batch)
    with closing(resources.dead_letters) as dead, resources.key_guard().setting_aside([failure]):
        dead.put(dead_letters)


def replayed(pipeline: Pipeline) -> ReplayReport:
    """As by a process of its own."""
    other = beside(pipeline, AFTER)
    resources = other.resources()
    with closing(resources.dead_letters) as dead:
        return replay([*dead.scan()], other.plan(), resources, AFTER, other.sealer.open, lambda _: None)


def positions(pipeline: Pipeline) -> list[str]:
    with closing(pipeline.resources().dead_letters) as dead_letters:
        return [each.position for each in dead_letters.scan()]


def old_events_again(pipeline: Pipeline) -> None:
    """A flow's batch is retried, and the tombstone refuses what it has."""
    beside(pipeline, AFTER).process([order(1)], is_again=True)


def is_whole(pipeline: Pipeline) -> bool:
    """What came later is stored, and can be read."""
    other = beside(pipeline, AFTER)
    shown = other.export(reveal=True)
    return other.store.count() == 1 and b"unreadable" not in shown and b"R7" in shown


def meddle(monkeypatch: pytest.MonkeyPatch, between: Callable[[], object]) -> list[bool]:
    """Once, before dead letters of fragments are put, something happens. Gives a list that then has an element."""
    done: list[bool] = []
    plain = KeyGuard.setting_aside

    def call(guard: KeyGuard, failures: Sequence[CommitFailure]) -> AbstractContextManager[None]:
        if failures and not done:
            done.append(True)
            between()
        return plain(guard, failures)

    monkeypatch.setattr(KeyGuard, "setting_aside", call)
    return done


def test_a_dead_letter_is_renamed_and_old_events_come_before_it_is_put(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_aside(pipeline)
    done = meddle(monkeypatch, lambda: old_events_again(pipeline))
    sealed(beside(pipeline, AFTER))
    sealed(beside(pipeline, AFTER))
    assert done
    assert replayed(pipeline).replayed == 1
    assert is_whole(pipeline)


def test_a_dead_letter_is_renamed_by_a_process_that_remembers_the_key_of_before_the_erasure(
    pipeline: Pipeline,
) -> None:
    pipeline.process([later()])
    erase(pipeline)
    set_aside(pipeline)
    sealed(pipeline)
    assert replayed(pipeline).replayed == 1
    assert is_whole(pipeline)


def test_a_renamed_dead_letter_is_joined_and_old_events_come_before_it_is_committed(
    pipeline: Pipeline, store: Store
) -> None:
    set_aside(pipeline)
    store.before_read = lambda: old_events_again(pipeline)
    while positions(pipeline):
        replayed(pipeline)
    assert is_whole(pipeline)


@pytest.mark.parametrize("what", [sealed, replayed])
def test_killed_before_a_dead_letter_under_the_old_name_is_dropped(
    what: Callable[[Pipeline], object], pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_aside(pipeline)

    def killed(_: SqliteDeadLetters, ids: Sequence[str]) -> int:
        assert ids
        raise StoreError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(SqliteDeadLetters, "drop", killed)
        with pytest.raises(StoreError):
            what(beside(pipeline, AFTER))
    what(beside(pipeline, AFTER))
    replayed(pipeline)
    assert positions(pipeline) == []
    assert is_whole(pipeline)
    assert pipeline.data_keys.existing([PLAIN, hashed(pipeline)]) == {hashed(pipeline)}


def test_a_record_is_replayed_that_becomes_a_dead_letter_and_old_events_come_before_it_is_put(
    pipeline: Pipeline, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = later()
    writer, reason = DeadLetterWriter(pipeline.sealer), DeadLetterReason.NO_SPEC
    with closing(pipeline.resources().dead_letters) as dead_letters:
        dead_letters.put(
            [writer.dead_letter(record, "map", reason, "", None, 1, BatchAttempt("main/0", "a"))]
        )
    store.is_refusing = True

    def between() -> None:
        store.is_refusing = False
        old_events_again(pipeline)
        store.is_refusing = True

    done = meddle(monkeypatch, between)
    with pytest.raises(ConflictError, match="retry them"):
        replayed(pipeline)
    assert done
    assert positions(pipeline) == [record.position]
    replayed(pipeline)
    store.is_refusing = False
    assert positions(pipeline) == [f"fragment:{hashed(pipeline)}"]
    assert replayed(pipeline).replayed == 1
    assert is_whole(pipeline)


def test_what_was_sealed_by_a_key_that_went_since_is_not_set_aside(pipeline: Pipeline) -> None:
    ((name, change),) = states_of(beside(pipeline, AFTER).map(later())).items()
    old_events_again(pipeline)
    with pytest.raises(ConflictError, match="retry them"):
        put(pipeline, name, change)
    assert positions(pipeline) == []


def test_a_fragment_that_is_isolated_and_erased_meanwhile_leaves_no_key(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its events are looked at twice in the first run of their micro-batch, which made the key."""
    join = Aggregator._join

    def poisoned(aggregator: Aggregator, fragment_id: str, *given: object) -> None:
        join(aggregator, fragment_id, *given)  # type: ignore[arg-type]
        pipeline.store.erase([fragment_id], ordinal_of(later()))
        raise ValueError("poison")

    with monkeypatch.context() as patched:
        patched.setattr(Aggregator, "_join", poisoned)
        outputs = list(pipeline.map_stage().run([later()]))
    assert pipeline.data_keys.existing([hashed(pipeline)])
    pipeline.erase_leftover_keys(_refused(outputs))
    assert pipeline.data_keys.existing([hashed(pipeline)]) == set()


def _refused(outputs: Iterable[object]) -> set[str]:
    return set().union(*(output.refused for output in outputs))  # type: ignore[attr-defined]


def test_a_batch_that_is_begun_anew_under_another_policy_leaves_no_key_of_its_dead_letters(
    pipeline: Pipeline,
) -> None:
    """As where too many dead letters stopped the flow: the dead letters of its first run are dropped when it is done."""
    set_aside(pipeline)
    pipeline.process([later()])
    resources = pipeline.resources()
    with closing(resources.dead_letters) as dead_letters:
        dropped = dead_letters.settle_batch(pipeline.batch.batch, "second")
        assert [*dropped.values()] == [f"fragment:{PLAIN}"]
        assert resources.orphaned_keys().erase_of_dead_letters(dropped) == 1
    assert pipeline.data_keys.existing([PLAIN, hashed(pipeline)]) == {hashed(pipeline)}
    assert is_whole(pipeline)
