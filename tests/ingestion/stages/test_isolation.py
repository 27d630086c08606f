"""An event, or a fragment's changes, that code fails on fails alone in every stage. Nothing of it is lost, and a replay
by repaired code makes it whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from idgraph import native
from idgraph.model import canonical
from idgraph.model.attributes import Reconciliation, ReconciliationPolicy
from idgraph.model.errors import StoreError
from idgraph.model.events import RawRecord
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.index import IndexDocument
from idgraph.model.sources import file_sources
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.tombstones import NO_EPOCH
from ingestion.sources.files.lines import DamagedRecord, read_records
from ingestion.sources.files.taken import folder_of
from ingestion.spark.tasks import quick_task
from ingestion.stages.commit import CommitStage
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from ingestion.stages.map_output import EncodedChange
from ingestion.stages.outcomes import StageReport
from merge import codec
from merge.cells import Cell
from merge.fragments import FragmentState
from merge.policies import POLICIES
from merge.policies.lists import Union
from merge.policies.policy import Kept
from sinks.tantivy.index import TantivyProfileIndex
from tests.contracts.implementations import hashed_name
from tests.ingestion.spark.test_tasks import Worker
from tests.ingestion.stages.test_commit_stage import EVERYTHING, one
from tests.projecting import sweep
from tests.replaying import replay
from tests.retail import Pipeline, attribute, snapshot, spec
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import CompiledSnapshot

POISON = 666
UNION = ReconciliationPolicy.UNION
PASSING = [{"operation": "shift", "spec": {"*": "&"}}]


class _FaultError(Exception):
    """A bug in code that one value meets."""


class FaultyUnion(Union):
    """A policy with a bug at one place, or where the value meets others."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    def _meet(self, place: str, entry: Register) -> None:
        if place == self.place and entry.value == POISON:
            raise _FaultError("a value")

    def entries(self, register: Register) -> Sequence[Register]:
        self._meet("combined", register)
        return super().entries(register)

    def rank(self, entry: Register) -> Any:
        self._meet("encoded", entry)
        if self.place == "encoded beside others" and entry.value == POISON:
            return "not to be compared with others"
        return super().rank(entry)

    def chosen(self, kept: Kept) -> list[Register]:
        for entry in kept.entries:
            self._meet("shown", entry)
        return super().chosen(kept)


@contextmanager
def faulty(place: str) -> Iterator[None]:
    POLICIES[UNION] = FaultyUnion(place)
    try:
        yield
    finally:
        POLICIES[UNION] = Union()


def event(number: int, person: int, value: int) -> bytes:
    return canonical.encode(
        {
            "_event": {"id": f"e{number}", "ordinal": 1_709_251_200_000 + number},
            "identity": {"email": f"p{person}@example.com"},
            "a": value,
            "b": number,
        }
    )


EVENTS = [event(number, number % 3, number) for number in range(9)]
EVENTS.insert(5, event(10, 1, POISON))


def worker(folder: Path, **flow: Any) -> Worker:
    made = Worker(folder, **flow)
    made.pipeline.snapshot = snapshot(
        specs=[spec("orders", operations=PASSING, specification_type="chain")],
        declared=[attribute("a", "integer", policy="union"), attribute("identity.email", encryption="protected")],
    )  # fmt: skip
    for file in folder.glob("inbox/*/*"):
        file.unlink()
    (folder / "inbox" / "orders" / "a.jsonl").write_bytes(b"\n".join(EVENTS) + b"\n")
    return made


def run(at: Worker, strategy: str) -> StageReport:
    order = at.order(is_last=True)
    match strategy:
        case "quick":
            return at.run(quick_task(at.plan, order))
        case _:
            return at.run_shuffled(order)


def replayed(at: Worker) -> tuple[int, int]:
    report = replay(
        list(at.resources.dead_letters.scan()),
        at.plan,
        at.resources,
        at.pipeline.snapshot,
        at.pipeline.sealer.open,
        lambda _: None,
    )
    return report.replayed, report.still_dead


@pytest.mark.parametrize("combine", [2, 100], ids=["in several parts", "in one part"])
@pytest.mark.parametrize("strategy", ["quick", "shuffled"])
@pytest.mark.parametrize("place", ["combined", "encoded", "encoded beside others"])
def test_an_event_fails_alone_and_is_whole_once_the_code_is_mended(
    place: str, strategy: str, combine: int, tmp_path: Path
) -> None:
    at = worker(tmp_path / "worker", combine_events=combine)
    with closing(at.resources.dead_letters) as dead_letters:
        with faulty(place):
            report = run(at, strategy)
            assert (report.events, sum(report.dead.values())) == (len(EVENTS), 1)
            (dead_letter,) = dead_letters.scan()
            assert dead_letter.reason in {"stage_crashed", "merge_failed"}
            assert dead_letter.detail == "_FaultError" or place == "encoded beside others"
            assert [state.count(b"example.com") for state in states(at)] == [0, 0, 0]
            assert len(states(at)) == 3
            assert replayed(at)[1] == 1, "it fails again, alone"
            assert len(list(dead_letters.scan())) == 1
        assert replayed(at) == (1, 0)
        assert list(dead_letters.scan()) == []
        assert b"666" in _as_without_fault(at)


@pytest.mark.parametrize("strategy", ["quick", "shuffled"])
def test_what_is_refused_when_it_is_mapped_again_is_no_less_a_dead_letter(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = worker(tmp_path / "worker")
    mapped = AttributeTree.leaves
    seen: Counter[str] = Counter()

    def once(self: AttributeTree, output: Any, origin: Origin) -> Any:
        seen[origin.stamp.event_id] += 1
        if seen["e4"] > 1 and origin.stamp.event_id == "e4":
            raise _FaultError("for want of something")
        return mapped(self, output, origin)

    with closing(at.resources.dead_letters) as dead_letters:
        with faulty("combined"), monkeypatch.context() as patched:
            patched.setattr(AttributeTree, "leaves", once)
            patched.setattr(native, "events", None)
            assert sum(run(at, strategy).dead.values()) == 2
        assert replayed(at) == (2, 0)
        assert list(dead_letters.scan()) == []
        _as_without_fault(at)


def states(at: Worker) -> list[bytes]:
    return [each.state for each in at.pipeline.store.scan()]


def _as_without_fault(at: Worker) -> bytes:
    """The export, which is that of a run in which nothing failed."""
    found = at.pipeline.export(reveal=True)
    once = Pipeline(
        at.folder, at.pipeline.key_store, sources=dict(at.plan.sources), snapshot=at.pipeline.snapshot
    )
    once.process(_records(at))
    assert found == once.export(reveal=True) != b""
    return found


def _records(at: Worker) -> list[RawRecord | DamagedRecord]:
    config = file_sources(at.plan.sources)["orders"]
    return list(read_records(config.path / "a.jsonl", "orders", 1 << 20, folder_of(config), str))


@pytest.mark.parametrize("strategy", ["quick", "shuffled"])
def test_a_document_that_cannot_be_made_waits_alone(strategy: str, tmp_path: Path) -> None:
    at = worker(tmp_path / "worker")
    with closing(at.resources.dead_letters):
        rules = CompiledSnapshot(at.pipeline.snapshot).attributes.index_rules
        with faulty("shown"):
            report = run(at, strategy)
            assert (report.dead, report.written) == ({}, 3)
            assert sweep(at.pipeline.store, at.pipeline.index, rules) == 1
        assert sweep(at.pipeline.store, at.pipeline.index, rules) == 0
        assert at.pipeline.store.outbox() == []


def test_want_of_memory_is_no_fault_of_a_document(monkeypatch: pytest.MonkeyPatch) -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()

    def document(*_: object) -> IndexDocument:
        raise MemoryError

    CommitStage(store).run([one(1)])
    with monkeypatch.context() as want:
        want.setattr("idgraph.projection.documents.document_of_all", document)
        with pytest.raises(MemoryError):
            sweep(store, index, EVERYTHING)
    assert [entry.fragment_id for entry in store.outbox()] == ["user_id:1"]
    assert sweep(store, index, EVERYTHING) == 0
    assert index.versions(["user_id:1"]) == {"user_id:1": 1}


class _FaultyIndex(MemoryProfileIndex):
    """An index with a bug that one document meets."""

    is_mended = False

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        if not self.is_mended and any(each.id == "user_id:3" for each in documents):
            raise _FaultError("a value")
        return super().put(documents)


def test_a_document_that_the_index_fails_on_waits_alone() -> None:
    store, index = MemoryProfileStore(), _FaultyIndex()
    CommitStage(store).run(one(number) for number in range(9))
    assert sweep(store, index, EVERYTHING) == 1
    assert [entry.fragment_id for entry in store.outbox()] == ["user_id:3"]
    index.is_mended = True
    assert sweep(store, index, EVERYTHING) == 0
    assert store.outbox() == []


@pytest.mark.parametrize("is_embedded", [False, True], ids=["in memory", "embedded"])
@pytest.mark.parametrize(
    "body", [b'[[],{"age":[0,1,1]},[],{},{}]', b'[[[0,1,"s","e","m",1]],{"a":[0,1,?]},[],{},{}]']
)
def test_a_state_that_is_damaged_under_its_checksum_waits_alone(
    body: bytes, is_embedded: bool, tmp_path: Path
) -> None:
    index = TantivyProfileIndex(tmp_path / "index", hashed_name) if is_embedded else MemoryProfileIndex()
    store = MemoryProfileStore()
    with closing(index):
        output = CommitStage(store).run([*map(one, range(9)), ("x:1", codec.framed(body), NO_EPOCH)])
        assert (output.written, output.failed) == (10, [])
        assert sweep(store, index, EVERYTHING) == 1
        assert [entry.fragment_id for entry in store.outbox()] == ["x:1"]
        assert index.versions([f"user_id:{number}" for number in range(9)]).keys() == {
            f"user_id:{number}" for number in range(9)
        }


def test_parts_that_cannot_be_joined_are_committed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of them is to blame, the others are written."""
    store = MemoryProfileStore()
    at_first, joins = Cell.join, list[int]()

    def join(self: Cell, other: Cell) -> bool:
        joins.append(len(joins))
        values = {each.value for each in (*self.entries.values(), *other.entries.values())}
        if POISON in values and len(values) > 1:
            raise _FaultError("a value")
        return at_first(self, other)

    parts = [with_cell(1, 30), with_cell(2, POISON), with_cell(3, 31)]
    with monkeypatch.context() as fault:
        fault.setattr(Cell, "join", join)
        output = CommitStage(store).run([*parts, one(2)])
        assert joins
    (failure,) = output.failed
    assert (failure.fragment_id, failure.detail) == ("user_id:1", "_FaultError")
    assert (output.written, store.count()) == (3, 2)
    again = CommitStage(store).run([("user_id:1", failure.change.encode(), NO_EPOCH)])
    assert again.failed == []
    straight = MemoryProfileStore()
    CommitStage(straight).run([*parts, one(2)])
    assert [each.state for each in store.scan()] == [each.state for each in straight.scan()]


def with_cell(ordinal: int, value: int) -> EncodedChange:
    name = Identifier("user_id", "1")
    origin = Origin(Stamp(0, ordinal, "shop", f"e{ordinal}"), SpecRef("s", 1))
    state = FragmentState()
    written = {"age": Register(origin, Kind.PLAIN, value)}
    state.apply(FragmentChange(str(name), origin, written, (name,), None, {"age": Reconciliation(UNION, ())}))
    state.normalise()
    return str(name), state.encode(), NO_EPOCH


@pytest.mark.parametrize("bytes_", [b"", b"\x01", b"\x01garbage", b"\x09later", with_cell(1, 1)[1][:-3]])
def test_changes_that_cannot_be_read_are_mapped_again_and_then_set_aside_as_they_are(
    bytes_: bytes, tmp_path: Path
) -> None:
    store = MemoryProfileStore()
    given: list[EncodedChange] = [
        ("user_id:7", bytes_, NO_EPOCH),
        one(2),
        ("user_id:7", with_cell(1, 1)[1], NO_EPOCH),
    ]
    with pytest.raises(StoreError, match="damaged on their way"):
        CommitStage(store).run(given)
    output = CommitStage(store, gives_up=True).run(given)
    assert (output.written, [each.fragment_id for each in output.failed]) == (2, ["user_id:7"])
    pipeline = Pipeline(tmp_path)
    (dead_letter,) = DeadLetterWriter(pipeline.sealer).of_failures(
        output.failed, 1, BatchAttempt("main/0", "a")
    )
    assert pipeline.sealer.open(dead_letter.payload, dead_letter.id, dead_letter.position) == bytes_
