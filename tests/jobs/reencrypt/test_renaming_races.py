"""Names that policy protects after they were stored, renamed while others write, erase, crash and are away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, suppress
from datetime import datetime
from pathlib import Path

import pytest

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.jobs.erase.erasure import Erasure
from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConflictError, ProfileIndexError, StoreError
from idgraph.model.events import RawRecord
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.stages.dead_letters import DeadLetterWriter
from merge.commit import CommitFailure
from sinks.tombstone_file import TombstoneFile
from tests.replaying import replay
from tests.retail import Pipeline, order, states_of
from tests.sealing import sealed, sealing_of, steps
from tests.support.memory.data_keys import MemoryDataKeys
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore
from tests.support.renamed_orders import AFTER, BEFORE, OTHER, PLAIN, hashed, later
from tests.support.stored_orders import AwayIndex, Meddled, beside, from_the_start, states, stored_orders
from transforms.privacy.keys import WrappedKey

UNMAPPED = order(1, 9, created_at="no time")


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return stored_orders(tmp_path, BEFORE, AFTER)


def test_what_an_erased_key_sealed_is_refused_and_given_again(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    flow = beside(pipeline, BEFORE)
    output = flow.map(later())
    sealed(pipeline)
    with pytest.raises(ConflictError):
        flow.commit_stage().run(output.encoded())
    flow.process([later()])
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, AFTER, later())
    assert b"unreadable" not in pipeline.export(reveal=True)


@pytest.fixture
def meddled(tmp_path: Path) -> tuple[Pipeline, Meddled]:
    store = Meddled()
    return stored_orders(tmp_path, BEFORE, AFTER, store), store


@pytest.mark.parametrize("under", [BEFORE, AFTER])
@pytest.mark.parametrize("when", ["before_write", "before_withdrawal"])
def test_a_flow_that_writes_in_between_loses_nothing(
    meddled: tuple[Pipeline, Meddled], under: MetadataSnapshot, when: str
) -> None:
    pipeline, store = meddled
    setattr(store, when, lambda: beside(pipeline, under).process([later()]))
    sealed(pipeline)
    assert states(pipeline) == from_the_start(pipeline, AFTER, later())
    assert b"unreadable" not in pipeline.export(reveal=True)


@pytest.mark.parametrize("when", ["before_write", "before_withdrawal"])
def test_two_runs_at_once_end_as_one(meddled: tuple[Pipeline, Meddled], when: str) -> None:
    pipeline, store = meddled
    setattr(store, when, lambda: sealed(beside(pipeline, AFTER)))
    done = sealed(pipeline)
    assert done.failed == 0
    assert states(pipeline) == from_the_start(pipeline, AFTER)
    assert b"unreadable" not in pipeline.export(reveal=True)
    assert pipeline.store.withdrawn() == {}


@pytest.mark.parametrize("when", ["before_write", "before_withdrawal"])
def test_an_erasure_in_between_wins(meddled: tuple[Pipeline, Meddled], when: str) -> None:
    pipeline, store = meddled
    names = [PLAIN, hashed(pipeline)]
    setattr(store, when, lambda: store.erase(names, 10**15))
    sealed(pipeline)
    assert set(states(pipeline)) == {hashed(pipeline, OTHER)}


STEPS = [
    (MemoryProfileStore, "write"),
    (MemoryProfileStore, "withdraw"),
    (MemoryProfileStore, "forget_withdrawn"),
    (MemoryProfileIndex, "put"),
    (MemoryProfileIndex, "erase"),
    (MemoryDataKeys, "delete"),
]


@pytest.mark.parametrize("is_done", [False, True])
@pytest.mark.parametrize(("of", "step"), STEPS)
def test_two_crashes_and_one_retry_end_as_if_nothing_had_happened(
    of: type, step: str, is_done: bool, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = from_the_start(pipeline, AFTER)
    work = getattr(of, step)
    left = 2

    def crash(self: object, *arguments: object) -> object:
        nonlocal left
        if left == 0:
            return work(self, *arguments)
        left -= 1
        if is_done:
            work(self, *arguments)
        raise StoreError("killed")

    monkeypatch.setattr(of, step, crash)
    for _ in range(2):
        # What was done before the crash the second run need not do.
        with suppress(StoreError):
            sealed(beside(pipeline, AFTER))
    assert left < 2
    left = 0
    sealed(beside(pipeline, AFTER))
    assert states(pipeline) == expected
    assert pipeline.store.withdrawn() == {}
    assert pipeline.key_store.get([PLAIN]) == {}
    assert pipeline.index.versions([PLAIN]).keys() == set()
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_an_index_that_is_away_is_followed_up(tmp_path: Path) -> None:
    index = AwayIndex()
    pipeline = Pipeline(tmp_path, index=index, snapshot=BEFORE)
    pipeline.process([order(1)])
    pipeline.snapshot = AFTER
    index.is_away = True
    with pytest.raises(ProfileIndexError):
        sealed(pipeline)
    assert PLAIN not in states(pipeline)
    assert index.versions([PLAIN]).keys() == {PLAIN}
    index.is_away = False
    sealed(pipeline)
    assert index.versions([PLAIN, hashed(pipeline)]).keys() == {hashed(pipeline)}


@pytest.fixture
def away(tmp_path: Path) -> Iterator[tuple[Pipeline, AwayIndex, Erasure]]:
    """One order, stored by its name in the clear; and erasures by files of their own."""
    index = AwayIndex()
    pipeline = Pipeline(tmp_path, store=MemoryProfileStore(str.encode), index=index, snapshot=BEFORE)
    pipeline.process([order(1)])
    resources = pipeline.resources()
    search = DeadLetterSearch(pipeline.sources, AFTER, pipeline.blind_index, pipeline.sealer.open)
    tombstones = TombstoneFile(tmp_path / "t.jsonl")
    yield pipeline, index, Erasure(resources, tombstones, str.encode, lambda: search, pipeline.rules)
    resources.dead_letters.close()


def set_aside(pipeline: Pipeline, *records: RawRecord) -> list[str]:
    """The positions of all dead letters, with those of what cannot be mapped of these records."""
    dead_letters = pipeline.resources().dead_letters
    dead_letters.put(pipeline.map(*records).dead_letters if records else [])
    found = [dead_letter.position for dead_letter in dead_letters.scan()]
    dead_letters.close()
    return found


def test_who_came_back_and_was_renamed_while_the_index_was_away_is_not_erased_again(
    away: tuple[Pipeline, AwayIndex, Erasure],
) -> None:
    """As the machine of law 1 found: a document with no row is not a whole person that a backup brought back."""
    pipeline, index, erasure = away
    erasure.erase([PLAIN], ordinal_of(order(1)))
    pipeline.process([later()])
    assert len(set_aside(pipeline, UNMAPPED)) == 1
    pipeline.snapshot = AFTER
    index.is_away = True
    with pytest.raises(ProfileIndexError):
        sealed(pipeline)
    index.is_away = False
    shown = pipeline.export()

    assert erasure.again().index_documents == 1
    assert pipeline.export() == shown
    assert set(states(pipeline)) == {hashed(pipeline)}
    assert set_aside(pipeline) == [UNMAPPED.position]
    assert index.versions([PLAIN]).keys() == set()


def test_an_erasure_that_was_cut_short_under_the_other_name_is_finished_by_the_next(
    away: tuple[Pipeline, AwayIndex, Erasure],
) -> None:
    """As the machine of law 1 found: else it would take, at a flow's next start, dead letters that came since."""
    pipeline, index, erasure = away
    pipeline.snapshot = AFTER
    sealed(pipeline)
    index.is_away = True
    with pytest.raises(ProfileIndexError):
        erasure.erase([PLAIN], ordinal_of(order(1)))
    index.is_away = False
    erasure.erase([PLAIN], ordinal_of(order(1)))

    assert len(set_aside(pipeline, UNMAPPED)) == 1
    assert pipeline.store.unfinished() == []
    erasure.again()
    assert set_aside(pipeline) == [UNMAPPED.position]


def test_an_erasure_forgets_that_a_fragment_was_renamed(away: tuple[Pipeline, AwayIndex, Erasure]) -> None:
    """Its old name stands in the note in the clear."""
    pipeline, index, erasure = away
    pipeline.snapshot = AFTER
    index.is_away = True
    with pytest.raises(ProfileIndexError):
        sealed(pipeline)
    index.is_away = False
    assert pipeline.store.withdrawn().keys() == {PLAIN}
    erasure.erase([PLAIN], ordinal_of(order(1)))
    assert pipeline.store.withdrawn() == {}
    assert index.versions([PLAIN, hashed(pipeline)]).keys() == set()


def test_changes_set_aside_under_the_other_name_leave_no_key_when_an_erasure_takes_them(
    away: tuple[Pipeline, AwayIndex, Erasure],
) -> None:
    """As the machine of law 1 found: the erasure continues weeks later, and their fragment never was."""
    pipeline, index, erasure = away
    index.is_away = True
    with pytest.raises(ProfileIndexError):
        erasure.erase([PLAIN], ordinal_of(order(1)))
    index.is_away = False
    pipeline.snapshot = AFTER
    ((name, change),) = states_of(pipeline.map(later())).items()
    failure = CommitFailure(name, DeadLetterReason.REFUSED_BY_STORE, "", change)
    with closing(pipeline.resources().dead_letters) as dead_letters:
        dead_letters.put(DeadLetterWriter(pipeline.sealer).of_failures([failure], 1, pipeline.batch))
        assert pipeline.data_keys.existing([name]) == {hashed(pipeline)}
        assert erasure.again().dead_letters == 1
    assert pipeline.data_keys.existing([name]) == set()


@pytest.mark.parametrize("drops", [False, True], ids=["replayed", "dropped"])
def test_what_was_set_aside_under_the_old_name_keeps_its_key_until_it_is_renamed(
    pipeline: Pipeline, drops: bool
) -> None:
    """As the machine of law 1 found: the fragment was renamed, its key erased, and what the dead letter holds lost."""
    pages = steps(pipeline, sealing_of(pipeline), 1)
    assert [next(pages).looked_at, next(pages).looked_at] == [0, 1]
    assert set(states(pipeline)) == {hashed(pipeline), OTHER}
    ((name, change),) = states_of(beside(pipeline, BEFORE).map(theirs := order(2, 7, order_id="R7"))).items()
    assert name == OTHER
    failure = CommitFailure(name, DeadLetterReason.REFUSED_BY_STORE, "", change)
    resources = pipeline.resources()
    with closing(resources.dead_letters) as dead_letters:
        (dead_letter,) = DeadLetterWriter(pipeline.sealer).of_failures([failure], 1, pipeline.batch)
        dead_letters.put([dead_letter])
        assert [*pages][-1].failed == 0
        assert set(states(pipeline)) == {hashed(pipeline), hashed(pipeline, OTHER)}
        assert pipeline.data_keys.existing([OTHER]) == {OTHER}
        if drops:
            dead_letters.drop([dead_letter.id])
            assert (
                resources.orphaned_keys().erase_of_dead_letters({dead_letter.id: dead_letter.position}) == 1
            )
        else:
            opened = pipeline.sealer.open
            done = replay(dead_letters.scan(), pipeline.plan(), resources, AFTER, opened, lambda _: None)
            assert done.replayed == 1
            assert states(pipeline).keys() == from_the_start(pipeline, AFTER, theirs).keys()
            assert pipeline.profile(hashed(pipeline, OTHER))["orders"]["last"]["id"] == "R7"
    assert pipeline.data_keys.existing([OTHER]) == set()
    assert b"unreadable" not in pipeline.export(reveal=True)


def test_a_key_that_goes_while_a_fragment_is_renamed_is_made_anew(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the machine of law 1 found: a flow may take it for what is left of an erased fragment of that name."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    name = hashed(pipeline)
    pipeline.store.erase([name], 1)
    pipeline.store.finish([name])
    pipeline.store.cancel([name])
    hold = pipeline.key_store.hold
    taken: list[set[str]] = []

    def late_hold(ids: Sequence[str]) -> AbstractContextManager[dict[str, WrappedKey]]:
        if name in ids and not taken:
            taken.append(pipeline.data_keys.existing([name]))
            pipeline.key_store.delete([name])
        return hold(ids)

    monkeypatch.setattr(pipeline.key_store, "hold", late_hold)
    sealed(pipeline)
    assert taken == [{name}]
    assert states(pipeline).keys() == from_the_start(pipeline, AFTER).keys()
    assert b"unreadable" not in pipeline.export(reveal=True)


def ordinal_of(record: RawRecord) -> int:
    created = datetime.fromisoformat(canonical.decode(record.value)["created_at"])
    return int(created.timestamp() * 1000)
