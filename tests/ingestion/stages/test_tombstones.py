"""Events of erased fragments: refused wherever they are on their way, and law 1 beside erasures."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import KeyProviderError
from idgraph.model.events import RawRecord
from idgraph.model.stamps import ORDINAL_MAX
from idgraph.model.store import FragmentWrite, StoredFragment
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from ingestion.stages.aggregate import Aggregator
from ingestion.stages.dead_letters import DeadLetterWriter, read_changes
from ingestion.stages.map_output import Fault, MapOutput
from ingestion.stages.protect import ProtectedChunk
from merge.commit import CommitFailure
from merge.fragments import FragmentState
from tests.retail import NOW, SOURCES, Pipeline, order, snapshot, states_of
from tests.support.memory.profiles import MemoryProfileStore
from transforms.privacy.sealing import SealingKey

DAY = 86_400_000
APRIL = int(NOW * 1000)


def at(day: int, number: int = 1) -> RawRecord:
    """An order on a day of May 2024."""
    return order(number, day, order_id=f"R{day}", created_at=f"2024-05-{day:02}T00:00:00Z")


def may(day: int) -> int:
    """Midnight of that day."""
    return APRIL + (29 + day) * DAY


@pytest.fixture
def later(pipeline: Pipeline) -> Pipeline:
    pipeline.now = lambda: NOW + 60 * 86_400
    return pipeline


def only_id(pipeline: Pipeline) -> str:
    (fragment_id,) = pipeline.map(at(1)).fragments
    return fragment_id


def test_events_up_to_the_tombstone_are_refused_and_counted(later: Pipeline) -> None:
    name = only_id(later)
    later.store.erase([name], may(9))
    output = later.map(at(1), at(8), at(12), at(3, number=2))
    assert output.erased == 2
    assert output.events == 4
    assert output.dead_letters == []
    assert len(output.fragments) == 2
    assert states_of(output)[name].erasure_epoch == may(9)


def test_a_source_that_counts_brings_nothing_back_until_lifted(later: Pipeline) -> None:
    name = only_id(later)
    later.sources["orders"] = SOURCES["orders"].model_copy(update={"ordinal_unit": "sequence"})
    later.store.erase([name], may(9))
    later.store.finish([name])
    assert later.map(at(12)).erased == 1
    later.store.cancel([name])
    assert later.map(at(1), at(12)).erased == 0


def test_a_refused_event_makes_no_data_key(later: Pipeline) -> None:
    name = only_id(later)
    later.data_keys.erase([name])
    later.store.erase([name], may(9))
    later.map(at(1))
    assert later.data_keys.fetch([name], create=False) == {}
    later.map(at(12))
    assert later.data_keys.fetch([name], create=False).keys() == {name}


def test_a_cached_key_does_not_seal_what_comes_after_the_erasure(later: Pipeline) -> None:
    name = only_id(later)
    # Another process than the one that erases: its cache still has the old key.
    later.key_store.delete([name])
    later.store.erase([name], may(9))
    later.process([at(12)])
    later.data_keys.forget([name])
    assert later.profile(name)["orders"]["last"] != {"$protected": "unreadable"}
    assert b"unreadable" not in later.export(reveal=True)


def test_what_was_mapped_before_the_erasure_is_refused_when_it_is_written(later: Pipeline) -> None:
    mapped = later.map(at(1))
    (name,) = mapped.fragments
    later.store.erase([name], may(9))
    output = later.commit_stage().run(mapped.encoded())
    assert (output.written, output.erased, output.conflicts) == (0, 1, 0)
    assert later.store.count() == 0


class Between(MemoryProfileStore):
    """Erases a fragment after it was read and before it is written."""

    erased = ""

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        found = super().read_with_tombstones(ids)
        if self.erased in ids:
            self.erase([self.erased], may(9))
            self.erased = ""
        return found


def test_an_erasure_between_read_and_write_wins(later: Pipeline) -> None:
    store = later.store = Between()
    later.process([at(1)])
    mapped = later.map(at(2), at(2, number=2))
    (name,) = [each.id for each in store.scan()]
    store.erased = name
    stage = later.commit_stage()
    stage.committer._sleep = lambda _: None
    output = stage.run(mapped.encoded())
    assert (output.written, output.erased) == (1, 1)
    assert store.read([name]) == {}
    later.project()
    assert store.outbox() == []
    assert later.index.versions([name]) == {}


def test_of_changes_that_meet_only_those_judged_after_the_erasure_count(later: Pipeline) -> None:
    before = later.map(at(1))
    (name,) = before.fragments
    later.store.erase([name], may(9))
    after = later.map(at(12))
    both = [*before.encoded(), *after.encoded()]
    output = later.commit_stage().run(both)
    assert (output.written, output.erased) == (1, 1)
    expected = Pipeline(later.folder, later.key_store, now=later.now)
    expected.process([at(12)])
    assert later.export() == expected.export()


def test_of_changes_that_meet_where_all_were_judged_before_no_data_key_stays(later: Pipeline) -> None:
    before = later.map(at(1))
    (name,) = before.fragments
    later.store.erase([name], may(5))
    between = later.map(at(6))
    later.store.erase([name], may(9))
    assert (states_of(between)[name].erasure_epoch, name in later.key_store.get([name])) == (may(5), True)
    stage = later.commit_stage()
    output = stage.run([*before.encoded(), *between.encoded()])
    assert (output.written, output.erased) == (0, 2)
    later.erase_leftover_keys(stage.refused)
    assert later.key_store.get([name]) == {}


def test_what_comes_after_an_erasure_between_two_chunks_stays(
    later: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingestion.stages.map_stage.CHUNK_EVENTS", 1)
    name = only_id(later)

    def given() -> Iterator[RawRecord]:
        yield at(1)
        later.store.erase([name], may(9))
        yield at(12)

    first, second = later.map_stage().run(given())
    assert (states_of(first)[name].erasure_epoch, states_of(second)[name].erasure_epoch) == (NO_EPOCH, may(9))
    output = later.commit_stage().run([*first.encoded(), *second.encoded()])
    assert (output.written, output.erased) == (1, 1)


def test_what_comes_after_a_lift_between_two_chunks_stays(
    later: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingestion.stages.map_stage.CHUNK_EVENTS", 1)
    name = only_id(later)
    later.store.erase([name], may(9))
    later.store.finish([name])

    def given() -> Iterator[RawRecord]:
        yield at(12)
        later.store.cancel([name])
        yield at(1)
        yield at(14)

    output = later.process(given())
    assert (output.written, output.erased) == (2, 0)
    expected = Pipeline(later.folder, later.key_store, now=later.now)
    expected.process([at(1), at(12), at(14)])
    assert later.export() == expected.export()


def test_what_comes_after_an_erasure_stays_where_a_faulty_output_is_mapped_again(
    later: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingestion.stages.map_stage.CHUNK_EVENTS", 1)
    name, looks, tombstones = only_id(later), list[str](), later.store.tombstones

    def after_three_looks(names: Iterable[str]) -> Mapping[str, Tombstone]:
        looks.extend(names)
        if len(looks) == 4:
            later.store.erase([name], may(9))
        return tombstones([name])

    with monkeypatch.context() as between:
        between.setattr(later.store, "tombstones", after_three_looks)
        between.setattr(Aggregator, "add", _Breaking(Aggregator.add))
        first, second = later.map_stage().run([at(1), at(12)])
    epochs = [states_of(each)[name].erasure_epoch for each in (first, second)]
    assert (len(looks), epochs) == (4, [NO_EPOCH, may(9)])
    done = later.commit_stage().run([*first.encoded(), *second.encoded()])
    assert (done.written, done.erased) == (1, 1)
    expected = Pipeline(later.folder, later.key_store, now=later.now)
    expected.process([at(12)])
    assert later.export() == expected.export()


class _Breaking:
    """Fails on every chunk until all of an output were tried."""

    def __init__(self, add: Callable[..., None]) -> None:
        self._add, self._tries = add, 0

    def __get__(self, aggregator: Aggregator, _: object) -> Callable[[ProtectedChunk, MapOutput], None]:
        def add(chunk: ProtectedChunk, output: MapOutput) -> None:
            self._add(aggregator, chunk, output)
            self._tries += 1
            if self._tries <= 2:
                output.faults[next(iter(output.fragments))] = Fault("Faulty", None)

        return add


def test_a_dead_letter_alone_is_an_output_too(later: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingestion.stages.map_stage.CHUNK_EVENTS", 1)
    name = only_id(later)
    stage = later.map_stage()

    def unreachable(*_: object, **__: object) -> dict[str, SealingKey]:
        raise KeyProviderError("away")

    def given() -> Iterator[RawRecord]:
        yield at(1)
        later.store.erase([name], may(9))
        later.data_keys.forget([name])
        monkeypatch.setattr(later.key_store, "get", unreachable)
        yield at(12)

    outputs = list(stage.run(given()))
    assert [len(output.fragments) for output in outputs] == [1, 0]
    assert [dead_letter.reason for output in outputs for dead_letter in output.dead_letters] == [
        DeadLetterReason.KEY_UNAVAILABLE
    ]


def test_changes_of_a_damaged_fragment_are_no_dead_letter_once_it_is_erased(later: Pipeline) -> None:
    later.process([at(1)])
    (stored,) = later.store.scan()
    later.store.write([FragmentWrite(stored.id, 1, b"damaged", frozenset())])
    mapped = later.map(at(2))

    assert [each.fragment_id for each in later.commit_stage().run(mapped.encoded()).failed] == [stored.id]
    later.store.erase([stored.id], may(9))
    later.store.write([FragmentWrite(stored.id, 2, b"damaged", frozenset(), ORDINAL_MAX)])
    output = later.commit_stage().run(later.map(at(1)).encoded())
    assert output.failed == []
    output = later.commit_stage().run(mapped.encoded())
    assert (output.failed, output.erased) == ([], 1)


def test_a_dead_letter_of_a_damaged_fragment_keeps_what_it_was_judged_by(later: Pipeline) -> None:
    state = FragmentState()
    for erasure_epoch in (NO_EPOCH, -5, 7):
        state.erasure_epoch = erasure_epoch
        (dead_letter,) = DeadLetterWriter(later.sealer).of_failures(
            [CommitFailure("a:1", DeadLetterReason.DAMAGED_FRAGMENT, "", state)], 1, later.batch
        )
        opened = read_changes(later.sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position))
        assert opened.erasure_epoch == erasure_epoch


@pytest.mark.parametrize("seed", range(12))
def test_the_export_is_the_same_whenever_the_erasure_comes(tmp_path: Path, seed: int) -> None:
    """Law 1 with erasures: order, batching, repetition, and what was on its way do not show.

    The clock follows the events as a source's clock does, so that an erasure's tombstone is later than all
    that was taken before it."""
    chance = random.Random(seed)
    events = [at(day, number) for day in range(1, 28) for number in (1, 2)]
    expected = Pipeline(tmp_path, snapshot=snapshot())
    expected.now = lambda: NOW + 90 * 86_400
    name = only_id(expected)
    expected.store.erase([name], may(14))
    expected.process(events)
    assert expected.store.count() == 2

    pipeline = Pipeline(tmp_path, expected.key_store, now=expected.now)
    # Some come before the erasure, and all, some of them twice, after it.
    before = chance.sample(events[:28], 20)
    on_their_way = []
    while before:
        some, before = before[:5], before[5:]
        if chance.random() < 0.4:
            on_their_way.append(pipeline.map(*some))
        else:
            pipeline.process(some)
    pipeline.store.erase([name], may(14))
    for mapped in on_their_way:
        pipeline.commit_stage().run(mapped.encoded())
    again = [*events, *chance.sample(events, 20)]
    chance.shuffle(again)
    while again:
        some, again = again[:7], again[7:]
        pipeline.process(some)
    assert pipeline.export(reveal=True) == expected.export(reveal=True)
