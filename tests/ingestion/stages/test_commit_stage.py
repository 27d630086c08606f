"""The commit stage: joins and commits. With the projection: each crash between two of their steps is harmless."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from idgraph.model.backoff import Backoff
from idgraph.model.batch_size import MOST_BYTES, UNWEIGHED, BatchSize
from idgraph.model.errors import StoreError
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.index import IndexRules
from idgraph.model.queries import Query, Range, Term
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.store import FragmentWrite, OutboxEntry, StoredFragment, scan_all
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from ingestion.stages import commit as commit_stage
from ingestion.stages.commit import CommitStage
from ingestion.stages.map_output import EncodedChange
from merge.fragments import FragmentState
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from tests.contracts.implementations import hashed_name
from tests.contracts.processes import finish, start
from tests.projecting import sweep
from tests.retail import Pipeline, durable_keys, persons_of, records
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore

EVERYTHING = IndexRules(lambda _path: True)
ORIGIN = Origin(Stamp(0, 1, "shop", "e"), SpecRef("s", 1))


def one(number: int, ordinal: int = 1, age: int = 30) -> EncodedChange:
    name = Identifier("user_id", str(number))
    state = FragmentState()
    origin = Origin(Stamp(0, ordinal, "shop", f"e{ordinal}"), SpecRef("s", 1))
    mutations = {"age": Register(origin, Kind.PLAIN, age)}
    state.apply(FragmentChange(str(name), origin, mutations, (name,)))
    return str(name), state.encode(), NO_EPOCH


@pytest.fixture
def store() -> MemoryProfileStore:
    return MemoryProfileStore()


@pytest.fixture
def index() -> MemoryProfileIndex:
    return MemoryProfileIndex()


@pytest.fixture
def stage(store: MemoryProfileStore) -> CommitStage:
    return CommitStage(store, size=BatchSize(2), backoff=Backoff(base=0.0))


def test_what_is_written_waits_in_the_outbox_and_is_found_when_it_is_projected(
    stage: CommitStage, store: MemoryProfileStore, index: MemoryProfileIndex
) -> None:
    output = stage.run([one(1), one(2), one(3)])
    assert (output.written, output.unchanged) == (3, 0)
    assert store.outbox() == [OutboxEntry(f"user_id:{number}", 1) for number in (1, 2, 3)]
    assert sweep(store, index, EVERYTHING) == 0
    assert store.outbox() == []
    assert index.search(Query((Range("age", lower=30),))).ids == ["user_id:1", "user_id:2", "user_id:3"]


def test_states_of_one_fragment_meet_before_they_are_written(
    stage: CommitStage, store: MemoryProfileStore
) -> None:
    output = stage.run([one(1, 1, 30), one(2), one(1, 3, 32), one(1, 2, 31)])
    assert output.written == 2
    (found,) = [fragment for fragment in scan_all(store) if fragment.id == "user_id:1"]
    assert found.version == 1
    assert b"32" in found.state


def test_more_than_are_held_at_once_are_all_written(stage: CommitStage, store: MemoryProfileStore) -> None:
    assert stage.run(one(number) for number in range(100)).written == 100
    assert store.count() == 100


@pytest.mark.parametrize("are_bytes", [True, False], ids=["bytes", "states"])
def test_what_is_held_is_bounded_whatever_it_comes_as(
    are_bytes: bool, stage: CommitStage, store: MemoryProfileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_stage, "GATHERED_BYTES", 1 << 20)
    given = 0

    def large() -> Iterator[EncodedChange]:
        nonlocal given
        for number in range(40):
            state = FragmentState()
            state.registers["x"] = Register(
                Origin(Stamp(0, 1, "shop", "e"), SpecRef("s", 1)), Kind.PLAIN, "x" * 100_000
            )
            encoded = state.encode()
            given += 1
            # As many as fit, one more that goes beyond, and the one that is given.
            assert given - store.count() <= 13
            yield f"user_id:{number}", encoded, NO_EPOCH

    assert stage.run(large()).written == 40


def test_heavy_fragments_are_committed_in_small_rounds() -> None:
    """Eight thousand fragments with long sums would be gigabytes in memory."""

    def heavy() -> Iterator[EncodedChange]:
        for number in range(60):
            name, encoded, _ = one(number)
            state = FragmentState.decode(encoded)
            state.registers["x"] = Register(ORIGIN, Kind.PLAIN, "x" * 1_000_000)
            state.encoded = None
            yield name, state.encode(), NO_EPOCH

    class Store(MemoryProfileStore):
        def write(self, some: Sequence[FragmentWrite]) -> set[str]:
            writes.append(len(some))
            return super().write(some)

    writes: list[int] = []
    stage = CommitStage(Store(), size=BatchSize(8000))
    stage.run(heavy())
    assert stage.size.present == MOST_BYTES // 1_000_000
    stage.run(one(int(name[8:]), 2) for name, *_ in heavy())
    assert max(writes[1:]) <= MOST_BYTES // 1_000_000


def test_a_new_worker_reads_a_few_before_it_reads_many() -> None:
    """It may stand in for one that ran out of memory: a thousand heavy fragments would be gigabytes again."""

    class Store(MemoryProfileStore):
        def read_with_tombstones(
            self, ids: Sequence[str]
        ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
            read.append(len(ids))
            return super().read_with_tombstones(ids)

    read: list[int] = []
    store = Store()
    CommitStage(store, size=BatchSize(8000)).run(one(number) for number in range(1000))
    assert read == [UNWEIGHED, 100, 200, 400, 250]
    for fragment in scan_all(store):
        heavy = FragmentState()
        heavy.registers["x"] = Register(ORIGIN, Kind.PLAIN, "x" * 200_000)
        heavy.join(FragmentState.decode(fragment.state))
        write = FragmentWrite(fragment.id, fragment.version, heavy.encode(), frozenset())
        assert not store.write([write])
    read.clear()
    stage = CommitStage(store, size=BatchSize(8000))
    stage.run(one(number, 2) for number in range(300))
    assert read[0] == UNWEIGHED
    assert 50 < max(read[1:]) <= MOST_BYTES // 200_000


def test_the_same_again_writes_nothing(
    stage: CommitStage, store: MemoryProfileStore, index: MemoryProfileIndex
) -> None:
    stage.run([one(1)])
    sweep(store, index, EVERYTHING)
    output = stage.run([one(1)])
    assert (output.written, output.unchanged) == (0, 1)
    assert store.outbox() == []
    assert stage.run([]).written == 0


class _CrashError(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("where", ["before the write", "after the write", "before the settling"])
def test_a_crash_anywhere_is_healed_by_giving_the_batch_again(where: str) -> None:
    index = MemoryProfileIndex()

    class Store(MemoryProfileStore):
        crash = True

        def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
            if self.crash and where == "before the write":
                raise _CrashError
            refused = super().write(writes)
            if self.crash and where == "after the write":
                raise _CrashError
            return refused

        def settle(self, entries: Sequence[OutboxEntry]) -> None:
            if self.crash:
                raise _CrashError
            super().settle(entries)

    store = Store()
    with pytest.raises(_CrashError):
        _ = CommitStage(store).run([one(1)]), sweep(store, index, EVERYTHING)
    store.crash = False
    CommitStage(store).run([one(1)])
    sweep(store, index, EVERYTHING)
    assert store.outbox() == []
    assert [fragment.version for fragment in scan_all(store)] == [1]
    assert index.search(Query((Term("age", 30),))).ids == ["user_id:1"]


def test_a_store_that_is_away_gives_the_batch_back(stage: CommitStage, store: MemoryProfileStore) -> None:
    store.close()
    with pytest.raises(StoreError):
        stage.run([one(1)])


def test_batches_adapt_to_a_store_that_fails() -> None:
    class Failing(MemoryProfileStore):
        def __init__(self) -> None:
            super().__init__()
            self.fails = 2
            self.sizes: list[int] = []

        def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
            self.sizes.append(len(writes))
            if self.fails:
                self.fails -= 1
                raise StoreError("throttled")
            return super().write(writes)

    store = Failing()
    stage = CommitStage(store, BatchSize(8), backoff=Backoff(base=0.0))
    output = stage.run(one(number) for number in range(40))
    assert (output.written, output.retries) == (40, 2)
    assert store.sizes[:5] == [8, 4, 2, 2, 4]
    assert store.sizes[5] == 2
    assert store.sizes[-2:] != [2, 2]


# Several writers


def open_pipeline(folder: Path) -> Pipeline:
    """A pipeline on the files of a folder, as each task would open its own."""
    return Pipeline(
        folder,
        durable_keys(folder),
        SqliteProfileStore(folder / "profiles.db", hashed_name),
        TantivyProfileIndex(folder / "index", hashed_name),
    )


def close(pipeline: Pipeline) -> None:
    pipeline.data_keys.close()
    pipeline.store.close()
    pipeline.index.close()


def half(pipeline: Pipeline, which: int) -> None:
    """Process every second retail event, a few at a time."""
    mine = records(60)[which::2]
    for at in range(0, len(mine), 5):
        pipeline.process(mine[at : at + 5])


def states(folder: Path) -> dict[str, bytes]:
    pipeline = open_pipeline(folder)
    try:
        sweep(pipeline.store, pipeline.index, EVERYTHING)
        assert pipeline.store.outbox() == []
        assert pipeline.index.count(Query()) == len(persons_of(pipeline.store))
        return {fragment.id: fragment.state for fragment in scan_all(pipeline.store)}
    finally:
        close(pipeline)


def as_one_writer(folder: Path) -> dict[str, bytes]:
    """The same events by one writer, in one go, with the same keys."""
    pipeline = open_pipeline(folder)
    pipeline.store = MemoryProfileStore()
    try:
        pipeline.process(records(60))
        return {fragment.id: fragment.state for fragment in scan_all(pipeline.store)}
    finally:
        close(pipeline)


def in_threads(folder: Path) -> None:
    failures: list[BaseException] = []

    def run(which: int) -> None:
        pipeline = open_pipeline(folder)
        try:
            half(pipeline, which)
        except BaseException as error:
            failures.append(error)
        finally:
            close(pipeline)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


PROGRAM = """
import sys
from pathlib import Path
from tests.ingestion.stages.test_commit_stage import close, half, open_pipeline
pipeline = open_pipeline(Path(sys.argv[1]))
half(pipeline, int(sys.argv[2]))
close(pipeline)
"""


def in_processes(folder: Path) -> None:
    for process in [start(PROGRAM, folder, str(which)) for which in range(2)]:
        finish(process)


@pytest.mark.process
@pytest.mark.parametrize("writers", [in_threads, in_processes])
def test_two_writers_make_the_same_bytes_as_one(writers: Callable[[Path], None], tmp_path: Path) -> None:
    close(open_pipeline(tmp_path))  # makes the keyring, which both share
    writers(tmp_path)
    assert states(tmp_path) == as_one_writer(tmp_path)
