"""What runs in a worker, without Spark: Arrow batches of file names in, reports and a filled store out."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from idgraph.model.errors import ConflictError, FlowStoppedError, SourceUnavailableError
from idgraph.model.sources import FlowConfig
from idgraph.model.stamps import ORDINAL_MAX
from idgraph.model.store import FragmentWrite
from ingestion.spark.sent_snapshots import SentSnapshot, packed
from ingestion.spark.shuffle_blocks import decode_reports
from ingestion.spark.tasks import Task, commit_task, map_task, quick_task
from ingestion.spark.worker_process import BatchOrder
from ingestion.spark.workers import WorkerPlan, WorkerResources
from ingestion.stages.dead_letters import BatchAttempt
from ingestion.stages.outcomes import StageReport
from tests.retail import Pipeline, lines
from tests.support.memory.profiles import MemoryProfileStore

EVENTS = 60


class Worker:
    """One worker process's resources, and files to read."""

    def __init__(self, folder: Path, store: MemoryProfileStore | None = None, **flow: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.pipeline = Pipeline(folder, store=store or MemoryProfileStore())
        self.resources = self.pipeline.resources()
        self.folder = folder
        sources = {
            name: config.model_copy(update={"path": folder / "inbox" / name})
            for name, config in self.pipeline.sources.items()
        }
        config = FlowConfig(partitions=3, **flow)
        self.plan = WorkerPlan(config, sources, str(folder), self._open)
        for name in sources:
            (folder / "inbox" / name).mkdir(parents=True, exist_ok=True)
            (folder / "inbox" / name / "a.jsonl").write_bytes(b"\n".join(lines(name, EVENTS)) + b"\n")

    def _open(self, _: str) -> WorkerResources:
        return self.resources

    def order(self, is_last: bool = False, is_again: bool = False) -> BatchOrder:
        snapshot = SentSnapshot(str(self.folder), SimpleNamespace(value=packed(self.pipeline.snapshot)))
        return BatchOrder(BatchAttempt("main/q/0", "attempt", is_again), snapshot, is_last)

    def files(self) -> Iterator[pa.RecordBatch]:
        paths = [f"file://{path}" for path in sorted(self.folder.glob("inbox/*/*.jsonl"))]
        yield pa.record_batch([pa.array(paths)], names=["path"])

    def run(self, task: Task) -> StageReport:
        return decode_reports(body for batch in task(self.files()) for body in batch.column(1).to_pylist())

    def run_by(self, strategy: str, is_again: bool = False) -> StageReport:
        order = self.order(is_again=is_again)
        match strategy:
            case "quick":
                return self.run(quick_task(self.plan, order))
            case _:
                return self.run_shuffled(order)

    def run_shuffled(self, order: BatchOrder) -> StageReport:
        rows = list(map_task(self.plan, order)(self.files()))
        total = StageReport()
        for part in range(self.plan.flow.partitions):
            mine = [row.filter(pa.compute.equal(row.column(0), part)) for row in rows]
            done = list(commit_task(self.plan, order)(mine))
            total.add(decode_reports(body for batch in done for body in batch.column(1).to_pylist()))
        return total


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    made = Worker(tmp_path / "worker")
    with closing(made.resources.dead_letters):
        yield made


def test_all_strategies_give_the_same_profiles_and_counts(tmp_path: Path) -> None:
    exports: list[bytes] = []
    reports = []
    for name in ("quick", "shuffled"):
        # Hashed identifiers show which keyring made them.
        (tmp_path / name).mkdir()
        if exports:
            shutil.copy(tmp_path / "quick" / "keyring.json", tmp_path / name)
        worker = Worker(tmp_path / name, combine_events=17, commit_fragments=5)
        report = worker.run_by(name)
        exports.append(worker.pipeline.export(reveal=True))
        reports.append(
            (report.files, report.events, report.bytes, report.protected, report.dead, report.isolated)
        )
        assert report.file_bytes == sum(file.stat().st_size for file in worker.folder.glob("inbox/*/*"))
        assert min(report.map_seconds, report.commit_seconds) > 0
        worker.resources.dead_letters.close()
    assert exports[0] == exports[1] != b""
    assert reports[0][:3] == reports[1][:3]
    assert reports[0][0] == 3


@pytest.mark.parametrize("strategy", ["quick", "shuffled"])
def test_fragments_with_a_key_of_which_events_are_refused_are_reported(worker: Worker, strategy: str) -> None:
    pipeline = worker.pipeline
    assert worker.run_by(strategy).refused == []
    ids = [each.id for each in pipeline.store.scan()]
    sealed = pipeline.data_keys.existing(ids)
    pipeline.store.erase(ids[::2], ORDINAL_MAX)
    assert 0 < len(sealed.intersection(ids[::2])) < len(sealed)
    assert worker.run_by(strategy).refused == [], "no run before may have made one"
    report = worker.run_by(strategy, is_again=True)
    assert set(report.refused) == sealed.intersection(ids[::2])
    assert report.erased > 0
    pipeline.erase_leftover_keys(report.refused)
    assert pipeline.data_keys.existing(ids) == sealed.intersection(ids[1::2])


@pytest.mark.parametrize("strategy", ["quick", "shuffled"])
def test_a_task_that_is_done_twice_leaves_its_dead_letters_once(tmp_path: Path, strategy: str) -> None:
    worker = Worker(tmp_path / "worker", combine_events=17)
    inbox = tmp_path / "worker" / "inbox"
    for name in ("orders", "segment"):
        with (inbox / name / "a.jsonl").open("ab") as file:
            file.write(b"not JSON\n" * 3)
    with closing(worker.resources.dead_letters) as there:
        reports = [worker.run_by(strategy) for _ in range(2)]
        assert [each.dead["not_json"] for each in reports] == [6, 6]
        assert Counter(each.reason for each in there.scan()) == reports[0].dead


def damage(worker: Worker) -> str:
    worker.run(quick_task(worker.plan, worker.order()))
    store = worker.pipeline.store
    victim = store.scan()[0]
    assert not store.write([FragmentWrite(victim.id, victim.version, b"damaged", frozenset())])
    return victim.id


def test_a_damaged_fragment_is_isolated_with_a_dead_letter(worker: Worker) -> None:
    victim = damage(worker)
    report = worker.run(quick_task(worker.plan, worker.order()))
    assert (report.isolated, report.dead) == (1, {"damaged_fragment": 1})
    (dead_letter,) = worker.resources.dead_letters.scan()
    assert (dead_letter.position, dead_letter.stage) == (f"fragment:{victim}", "commit")


def test_a_flow_that_is_to_stop_puts_no_dead_letter(tmp_path: Path) -> None:
    worker = Worker(tmp_path / "worker", on_failure="stop")
    damage(worker)
    with closing(worker.resources.dead_letters) as dead_letters:
        with pytest.raises(FlowStoppedError, match=r"flow\.on_failure says to stop"):
            worker.run(quick_task(worker.plan, worker.order()))
        assert dead_letters.counts() == {}


class _Hot(MemoryProfileStore):
    """Another writer is always faster at one fragment."""

    hot = ""

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        self.hot = self.hot or writes[0].id
        hot = {write.id for write in writes if write.id == self.hot}
        return hot | super().write([write for write in writes if write.id not in hot])


def test_what_keeps_changing_is_set_aside_at_the_last_attempt_only(tmp_path: Path) -> None:
    store = _Hot()
    worker = Worker(tmp_path / "worker", store, commit_retries=1)
    with closing(worker.resources.dead_letters) as dead_letters:
        with pytest.raises(ConflictError):
            worker.run(quick_task(worker.plan, worker.order()))
        assert dead_letters.counts() == {}
        report = worker.run(quick_task(worker.plan, worker.order(is_last=True)))
        assert (report.isolated, report.dead) == (1, {"conflict": 1})
        assert [dead_letter.position for dead_letter in dead_letters.scan()] == [f"fragment:{store.hot}"]


@pytest.mark.parametrize("make", [quick_task, map_task])
def test_a_file_that_cannot_be_read_is_set_aside_at_the_last_attempt_only(
    worker: Worker, make: Callable[[WorkerPlan, BatchOrder], Task]
) -> None:
    # To read it gives EIO, whoever asks.
    (worker.folder / "inbox" / "orders" / "0.jsonl").symlink_to("/proc/self/mem")
    orders = worker.plan.sources["orders"].model_copy(update={"follow_links": True})
    worker.plan = replace(worker.plan, sources={**worker.plan.sources, "orders": orders})
    dead_letters = worker.resources.dead_letters
    with pytest.raises(
        SourceUnavailableError, match=r"source orders: file:orders/0\.jsonl#1: Input/output error"
    ):
        worker.run(make(worker.plan, worker.order()))
    assert dead_letters.counts() == {}
    last = worker.order(is_last=True)
    report = worker.run_shuffled(last) if make is map_task else worker.run(make(worker.plan, last))
    assert (report.files, report.events, report.dead) == (4, 3 * EVENTS + 1, {"corrupt_source": 1})
    assert [dead_letter.position for dead_letter in dead_letters.scan()] == ["file:orders/0.jsonl#1"]


def test_a_file_of_no_source_is_set_aside_and_named(worker: Worker) -> None:
    """Found by review: a directory that a glob matched stopped the flow at each start, and nobody said which."""
    inbox = worker.folder / "inbox"
    orders = worker.plan.sources["orders"].model_copy(update={"path": inbox / "orders" / "*"})
    worker.plan = replace(worker.plan, sources={**worker.plan.sources, "orders": orders})
    found = [inbox / "orders" / "done" / "a.jsonl", inbox / "elsewhere" / "ann" / "a.jsonl"]
    for file in found:
        file.parent.mkdir(parents=True)
        file.write_bytes(b"{}")
    # As Spark lists them: all below what a glob matches, and of a source that was taken out of the configuration.
    paths = [f"file://{path}" for path in [*sorted(worker.folder.glob("inbox/*/*.jsonl")), *found]]
    batch = pa.record_batch([pa.array(paths)], names=["path"])
    rows = quick_task(worker.plan, worker.order())([batch])
    report = decode_reports(body for row in rows for body in row.column(1).to_pylist())
    assert (report.files, report.events, report.dead) == (3, 3 * EVENTS + 2, {"corrupt_source": 2})
    known, unknown = sorted(worker.resources.dead_letters.scan(), key=lambda each: each.source, reverse=True)
    assert (known.source, known.position) == ("orders", "file:orders/done/a.jsonl#1")
    assert unknown.source == ""
    assert re.fullmatch(r"file:/~[\w-]{22}#1", unknown.position)
    assert "no source holds this file" in known.detail
