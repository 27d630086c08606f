"""Data keys and fragments beside erasures: nothing is sealed by a key that is gone, no key stays without a use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.jobs.erase.erasure import Erasure
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConflictError, ProfileIndexError, StoreError
from idgraph.model.events import RawRecord
from idgraph.model.pins import PinRecord
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import FragmentWrite
from idgraph.model.tombstones import Tombstone
from ingestion.stages.commit import CommitStage
from ingestion.stages.dead_letters import DeadLetterWriter
from ingestion.stages.map_output import MapOutput
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tombstone_file import TombstoneFile
from tests.ingestion.stages.test_tombstones import at, may
from tests.merge.identity.test_persons import Installation
from tests.replaying import replay
from tests.retail import NOW, UNDETECTED, Pipeline, attributes, durable_keys, order, snapshot, states_of
from tests.sealing import sealing_of, steps
from tests.support.memory.data_keys import MemoryDataKeys
from transforms.privacy.keys import WrappedKey

LATER = NOW + 60 * 86_400


class Watched(MemoryDataKeys):
    """Runs something once, right before keys are asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.before_get: Callable[[], object] | None = None
        self.before_delete: Callable[[], object] | None = None

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        first, self.before_get = self.before_get, None
        if first:
            first()
        return super().get(fragment_ids)

    def delete(self, fragment_ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
        first, self.before_delete = self.before_delete, None
        if first:
            first()
        return super().delete(fragment_ids, kept)


@pytest.fixture
def keys() -> Watched:
    return Watched()


@pytest.fixture
def pipeline(tmp_path: Path, keys: Watched) -> Pipeline:
    return Pipeline(tmp_path, keys, now=lambda: LATER)


@pytest.fixture
def files(tmp_path: Path) -> Pipeline:
    """The same over the real files."""
    store = SqliteProfileStore(tmp_path / "profiles.db", str.encode)
    return Pipeline(tmp_path, durable_keys(tmp_path), store, now=lambda: LATER)


def erasure_of(pipeline: Pipeline) -> Erasure:
    def no_dead_letters() -> DeadLetterSearch:
        raise AssertionError("there are no dead letters")

    tombstones = TombstoneFile(pipeline.folder / "tombstones.jsonl")
    return Erasure(pipeline.resources(), tombstones, str.encode, no_dead_letters, pipeline.rules)


def cut_short(pipeline: Pipeline) -> str:
    """A fragment whose erasure ended behind the store's transaction; its id."""
    pipeline.process([at(1)])
    (stored,) = pipeline.store.scan()
    pipeline.data_keys.erase([stored.id])
    pipeline.store.erase([stored.id], may(9))
    return stored.id


def impatient(pipeline: Pipeline) -> CommitStage:
    stage = pipeline.commit_stage()
    stage.committer._sleep = lambda _: None
    return stage


@pytest.mark.parametrize("kind", ["pipeline", "files"])
def test_an_erasure_that_goes_on_makes_no_later_event_unreadable(
    kind: str, request: pytest.FixtureRequest
) -> None:
    pipeline: Pipeline = request.getfixturevalue(kind)
    name = cut_short(pipeline)
    on_its_way = pipeline.map(at(12), order(2))
    erasure_of(pipeline).again()
    with pytest.raises(ConflictError, match="retry the batch"):
        impatient(pipeline).run(on_its_way.encoded())
    # The other is not held up.
    assert [each.id for each in pipeline.store.scan()] == [
        each for each in on_its_way.fragments if each != name
    ]
    pipeline.process([at(12), order(2)])
    assert pipeline.store.count() == 2
    assert b"unreadable" not in pipeline.export(reveal=True)


@pytest.mark.parametrize("kind", ["pipeline", "files"])
def test_what_was_sealed_before_an_erasure_that_was_lifted_is_not_joined_to_what_came_back(
    kind: str, request: pytest.FixtureRequest
) -> None:
    """Found by the machine of law 1: the fragment was there again, so nobody asked for its tombstone."""
    pipeline: Pipeline = request.getfixturevalue(kind)
    pipeline.process([at(1)])
    (stored,) = pipeline.store.scan()
    on_its_way = pipeline.map(at(12))
    erasure = erasure_of(pipeline)
    erasure.erase([stored.id], may(20))
    erasure.cancel([stored.id])
    pipeline.process([at(2)])
    with pytest.raises(ConflictError, match="retry the batch"):
        impatient(pipeline).run(on_its_way.encoded())
    pipeline.process([at(12)])
    assert b"unreadable" not in pipeline.export(reveal=True)


@pytest.mark.parametrize("kind", ["pipeline", "files"])
def test_the_key_of_a_later_event_that_was_written_stays(kind: str, request: pytest.FixtureRequest) -> None:
    pipeline: Pipeline = request.getfixturevalue(kind)
    cut_short(pipeline)
    pipeline.process([at(12)])
    erasure_of(pipeline).again()
    pipeline.process([at(13)])
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_a_later_event_that_is_written_while_the_erasure_goes_on(pipeline: Pipeline, keys: Watched) -> None:
    cut_short(pipeline)
    on_its_way = pipeline.map(at(12))
    keys.before_delete = lambda: impatient(pipeline).run(on_its_way.encoded())
    erasure_of(pipeline).again()
    pipeline.data_keys.forget(on_its_way.fragments)
    assert pipeline.store.count() == 1
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_a_lifted_fragment_is_guarded_too(pipeline: Pipeline) -> None:
    name = cut_short(pipeline)
    pipeline.store.finish([name])
    pipeline.store.cancel([name])
    on_its_way = pipeline.map(at(1))
    assert pipeline.resources().key_guard().erase_unused([name]) == 1
    with pytest.raises(ConflictError):
        impatient(pipeline).run(on_its_way.encoded())


def test_a_key_that_is_wrapped_anew_is_the_same(pipeline: Pipeline) -> None:
    name = cut_short(pipeline)
    on_its_way = pipeline.map(at(12))
    old = pipeline.key_store.get([name])[name]
    secret = pipeline.provider.unwrap(old, name.encode())
    pipeline.key_store.replace({name: (old, pipeline.provider.wrap(secret, name.encode()))})
    assert impatient(pipeline).run(on_its_way.encoded()).written == 1


def erased_before_its_commit(pipeline: Pipeline, *given: RawRecord) -> tuple[str, MapOutput]:
    """A fragment that was erased when its events were mapped, and their key made; with what they became."""
    mapped = pipeline.map(*given)
    (name,) = mapped.fragments
    pipeline.store.erase([name], may(9))
    return name, mapped


def test_a_refused_change_leaves_no_key(pipeline: Pipeline) -> None:
    _, mapped = erased_before_its_commit(pipeline, at(1))
    stage = pipeline.commit_stage()
    assert stage.run(mapped.encoded()).erased == 1
    assert pipeline.erase_leftover_keys(stage.refused) == 1
    assert pipeline.key_store.counts() == {}


def test_a_micro_batch_that_never_came_to_its_commit_leaves_no_key(pipeline: Pipeline) -> None:
    """Found by the machine of law 1, and reported before by docs/adr/0011-erasure.md as a hole."""
    name, _ = erased_before_its_commit(pipeline, at(1))
    assert pipeline.data_keys.existing([name]) == {name}
    assert pipeline.process([at(1)], is_again=True).written == 0
    assert pipeline.key_store.counts() == {}


def test_refused_events_leave_the_key_of_later_ones_of_their_micro_batch(pipeline: Pipeline) -> None:
    erased_before_its_commit(pipeline, at(1))
    assert pipeline.process([at(1), at(12), at(2)], is_again=True).written == 1
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_refused_events_leave_the_key_of_what_is_set_aside(pipeline: Pipeline) -> None:
    name, _ = erased_before_its_commit(pipeline, at(1))
    failure = CommitFailure(
        name, DeadLetterReason.REFUSED_BY_STORE, "", states_of(pipeline.map(at(12)))[name]
    )
    dead_letters = pipeline.resources().dead_letters
    dead_letters.put(DeadLetterWriter(pipeline.sealer).of_failures([failure], 1, pipeline.batch))
    pipeline.process([at(1)], is_again=True)
    assert pipeline.data_keys.existing([name]) == {name}
    replayed(pipeline)
    assert pipeline.store.count() == 1
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_an_erasure_that_waits_for_the_index_leaves_the_key_of_what_is_set_aside(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by the machine of law 1: a later event's dead letter was unreadable until the erasure took it."""
    name = cut_short(pipeline)
    failure = CommitFailure(
        name, DeadLetterReason.REFUSED_BY_STORE, "", states_of(pipeline.map(at(12)))[name]
    )
    dead_letters = pipeline.resources().dead_letters
    dead_letters.put(DeadLetterWriter(pipeline.sealer).of_failures([failure], 1, pipeline.batch))

    def away(_: object) -> int:
        raise ProfileIndexError("away")

    monkeypatch.setattr(pipeline.index, "erase", away)
    with pytest.raises(ProfileIndexError):
        erasure_of(pipeline).again()
    replayed(pipeline)
    assert pipeline.store.count() == 1
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_a_dead_letter_of_refused_changes_leaves_no_key_once_it_is_replayed(pipeline: Pipeline) -> None:
    name, mapped = erased_before_its_commit(pipeline, at(1))
    failure = CommitFailure(name, DeadLetterReason.REFUSED_BY_STORE, "", states_of(mapped)[name])
    dead_letters = pipeline.resources().dead_letters
    dead_letters.put(DeadLetterWriter(pipeline.sealer).of_failures([failure], 1, pipeline.batch))
    replayed(pipeline)
    assert list(dead_letters.scan()) == []
    assert pipeline.store.count() == 0
    assert pipeline.key_store.counts() == {}


def replayed(pipeline: Pipeline) -> None:
    resources = pipeline.resources()
    replay(
        [*resources.dead_letters.scan()],
        pipeline.plan(),
        resources,
        pipeline.snapshot,
        pipeline.sealer.open,
        lambda _: None,
    )


@pytest.mark.parametrize("is_away", [False, True], ids=["another keeps changing", "the store goes away"])
def test_a_refused_change_leaves_no_key_when_its_batch_fails_otherwise(
    is_away: bool, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given again, the events are refused where they are mapped: nobody asks for the key any more."""
    mapped = pipeline.map(at(1), order(2))
    name, other = sorted(mapped.fragments, key=lambda each: each not in pipeline.map(at(1)).fragments)
    pipeline.store.erase([name], may(9))

    def write(writes: Sequence[FragmentWrite]) -> set[str]:
        if is_away:
            raise StoreError("the store is away")
        return {each.id for each in writes}

    with monkeypatch.context() as fault:
        fault.setattr(pipeline.store, "write", write)
        with pytest.raises(StoreError):
            impatient(pipeline).run(mapped.encoded())
    assert pipeline.process([at(1), order(2)], is_again=True).written == 1
    assert pipeline.key_store.get([name, other]).keys() == {other}


def test_a_refused_change_leaves_the_key_of_what_came_back(pipeline: Pipeline) -> None:
    _, mapped = erased_before_its_commit(pipeline, at(1))
    pipeline.process([at(12)])
    stage = impatient(pipeline)
    assert stage.run(mapped.encoded()).erased == 1
    assert pipeline.erase_leftover_keys(stage.refused) == 0
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_sealing_beside_an_erasure_leaves_no_key(pipeline: Pipeline, keys: Watched) -> None:
    pipeline.snapshot = in_the_clear()
    pipeline.process([order(1), order(2)])
    name, other = [each.id for each in pipeline.store.scan()]
    keys.delete([name, other])
    pipeline.snapshot = snapshot(2)
    sealing = sealing_of(pipeline)
    # After the page and its tombstones were read.
    keys.before_get = lambda: (keys.delete([name]), pipeline.store.erase([name], may(9)))
    pipeline.data_keys.forget([name, other])
    *_, done = steps(pipeline, sealing)
    assert done.fragments == 1
    assert keys.get([name, other]).keys() == {other}


def in_the_clear() -> MetadataSnapshot:
    mail = [each for each in attributes() if each.path == "identity.email"]
    return snapshot(1, declared=mail, defaults=UNDETECTED)


def test_only_fragments_with_a_tombstone_are_guarded(pipeline: Pipeline) -> None:
    guarded: list[Mapping[str, FragmentState]] = []
    stage = pipeline.commit_stage()
    hold = stage.committer._guard

    def watched(changes: Mapping[str, FragmentState]) -> AbstractContextManager[set[str]]:
        guarded.append(changes)
        return hold(changes)

    stage.committer._guard = watched
    name = cut_short(pipeline)
    assert pipeline.store.tombstones([name]) == {name: Tombstone(may(9), 2)}
    stage.run(pipeline.map(at(12), order(2)).encoded())
    assert [list(changes) for changes in guarded] == [[name]]


def test_an_erasure_forgets_decisions_on_what_only_an_event_that_is_taken_back_showed(tmp_path: Path) -> None:
    events = [
        {
            "id": "1",
            "t": "2026-03-02T09:00:00Z",
            "source": "crm",
            "ids": [["user", "1"], ["email", "a@x.org"]],
        },
        {"id": "2", "t": "2026-03-03T09:00:00Z", "source": "crm", "retracts": "1"},
        {"id": "3", "t": "2026-03-03T09:00:00Z", "source": "crm", "ids": [["user", "2"], ["phone", "7"]]},
    ]
    installation = Installation({"rules": {}, "events": events})
    store = installation.store
    installation.take(installation.events.values())
    installation.check_index()
    kept = PinRecord("phone:7", "user:2", 1, "never")
    store.add_pins([PinRecord("email:a@x.org", "phone:+15550100", 1, "never", "ann", "a friend's"), kept])
    assert store.summaries(["user:1"])[0].identifiers.isdisjoint({"email:a@x.org"})
    pipeline = Pipeline(tmp_path, store=store, index=installation.index)
    erasure_of(pipeline).erase(["user:1"], may(9))
    assert list(store.pins()) == [kept]


def test_an_erasure_after_a_retraction_that_waits_leaves_the_other_person_in_the_index(
    tmp_path: Path,
) -> None:
    """Found by a reader: the erased fragment's entry was the only one, and nobody else knew whom it had joined."""
    events = [
        {
            "id": "1",
            "t": "2026-03-01T09:00:00Z",
            "source": "crm",
            "ids": [["user", "1"], ["device", "b"]],
        },
        {"id": "2", "t": "2026-03-02T09:00:00Z", "source": "crm", "ids": [["device", "b"]]},
        {"id": "3", "t": "2026-03-03T09:00:00Z", "source": "crm", "retracts": "1"},
    ]
    installation = Installation({"rules": {}, "events": events})
    *shown, retraction = installation.events.values()
    installation.take(shown)
    installation.check_index()
    assert list(installation.persons()) == ["user:1"]
    installation.take([retraction])
    pipeline = Pipeline(tmp_path, store=installation.store, index=installation.index)
    pipeline.rules = lambda: installation.index_rules  # type: ignore[method-assign]
    erasure_of(pipeline).erase(["user:1"], may(9))
    assert installation.store.outbox() == []
    installation.check_index()
    assert list(installation.persons()) == ["device:b"]
