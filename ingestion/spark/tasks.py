"""The tasks of a Spark worker process: Arrow batches in, Arrow batches out, the stages between."""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from zlib import crc32

import pyarrow as pa

from idgraph.model.backoff import Backoff
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.kafka import kafka_sources
from idgraph.model.pulsar import pulsar_sources, record_position
from idgraph.model.sources import file_sources
from ingestion.sources.files.lines import FileNames, FileRecords
from ingestion.sources.kafka.records import KafkaRecords
from ingestion.sources.stream import RecordReader, SparkRow
from ingestion.spark.shuffle_blocks import (
    BLOCK_FRAGMENTS,
    ShuffleBlock,
    read_blocks,
    report_body,
    report_row,
    sealed_rows,
)
from ingestion.spark.worker_process import (
    BatchOrder,
    commit_size,
    compiled,
    is_task_retried,
    only_our_errors,
    resources,
)
from ingestion.spark.workers import WorkerPlan, WorkerResources
from ingestion.stages.commit import CommitStage
from ingestion.stages.dead_letters import DeadLetterWriter, to_set_aside
from ingestion.stages.decrypt import Decryption
from ingestion.stages.map_output import EncodedChange, MapOutput
from ingestion.stages.map_stage import MapStage
from ingestion.stages.outcomes import MAX_REPORTED_DEAD_LETTERS, SetAside, StageReport
from transforms.privacy.record_sealing import ShuffleBlockSealer

QUICK_EVENTS = 1000
"""After so many events a quick task commits: some tens of milliseconds, of which the flushes take a part."""

Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
RowTask = Callable[[Iterable[SparkRow]], Iterator[bytes]]
"""Rows of what is to be read, as an RDD has them, to the body of a report."""


def map_task(plan: WorkerPlan, order: BatchOrder) -> Task:
    """Arrow batches of what is to be read to rows of combined fragments and a report."""
    return functools.partial(_run_map, plan, order)


def commit_task(plan: WorkerPlan, order: BatchOrder) -> Task:
    """Rows of the map stage, shuffled by fragment, to reports."""
    return functools.partial(_run_commit, plan, order)


def quick_task(plan: WorkerPlan, order: BatchOrder) -> Task:
    """Both stages in one task, which commits what it has mapped every `QUICK_EVENTS`; for throughput, every output."""
    return functools.partial(_run_quick, _quick(plan), order)


def quick_row_task(plan: WorkerPlan, order: BatchOrder) -> RowTask:
    """The same of few rows: an RDD of them needs no plan."""
    return functools.partial(_run_quick_rows, _quick(plan), order)


def _quick(plan: WorkerPlan) -> WorkerPlan:
    if plan.flow.strategy == "high_throughput":
        return plan
    events = min(QUICK_EVENTS, plan.flow.combine_events)
    return replace(plan, flow=plan.flow.model_copy(update={"combine_events": events}))


@only_our_errors
def _run_map(
    plan: WorkerPlan, order: BatchOrder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    sealer = _block_sealer(plan, order)
    for output, report in _mapped(plan, order, rows_of(batches)):
        blocks = [ShuffleBlock([]) for _ in range(plan.flow.partitions)]
        for change in output.encoded():
            part = crc32(change[0].encode()) % len(blocks)
            block = blocks[part]
            block.fragments.append(change)
            if len(block.fragments) == BLOCK_FRAGMENTS:
                yield sealed_rows([(part, block)], sealer)
                blocks[part] = ShuffleBlock([])
        blocks[0].report = report
        yield sealed_rows(enumerate(blocks), sealer)


@only_our_errors
def _run_commit(
    plan: WorkerPlan, order: BatchOrder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    total = StageReport()

    def fragments() -> Iterator[EncodedChange]:
        for block in read_blocks(batches, _block_sealer(plan, order)):
            if block.report is not None:
                total.add(block.report)
            yield from block.fragments

    total.add(_commit(plan, order, fragments()))
    yield report_row(total)


@only_our_errors
def _run_quick(
    plan: WorkerPlan, order: BatchOrder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    yield report_row(_committed(plan, order, rows_of(batches)))


@only_our_errors
def _run_quick_rows(plan: WorkerPlan, order: BatchOrder, rows: Iterable[SparkRow]) -> Iterator[bytes]:
    yield report_body(_committed(plan, order, rows))


def _committed(plan: WorkerPlan, order: BatchOrder, rows: Iterable[SparkRow]) -> StageReport:
    total = StageReport()
    for output, report in _mapped(plan, order, rows):
        total.add(report)
        total.add(_commit(plan, order, output.encoded()))
    return total


def _mapped(
    plan: WorkerPlan, order: BatchOrder, rows: Iterable[SparkRow]
) -> Iterator[tuple[MapOutput, StageReport]]:
    tools = resources(plan)
    snapshot = compiled(order)
    snapshot.attributes.look_again(time.time())
    stage = MapStage(
        snapshot,
        plan.sources,
        plan.flow,
        order.attempt._replace(is_again=order.attempt.is_again or is_task_retried()),
        tools.data_keys,
        tools.blind_index,
        DeadLetterWriter(tools.sealer),
        tombstones=tools.tombstones,
        formats=tools.formats,
    )
    read = record_reader(plan, tools, rows, order.is_last)
    decryption = Decryption(plan.sources, tools.decryptors)

    def report(output: MapOutput) -> StageReport:
        # Before units are asked for, of which this may take some.
        refused = sorted(tools.data_keys.existing(output.refused))
        stage_report = _map_report(output, refused)
        stage_report.count(decryption.taken())
        stage_report.count(read.taken())
        stage_report.count(tools.consumed())
        stage_report.map_seconds = time.perf_counter() - started
        return stage_report

    started = time.perf_counter()
    for output in stage.run(decryption.run(read.records())):
        stage_report = report(output)
        tools.dead_letters.put(output.dead_letters)
        yield output, stage_report
        started = time.perf_counter()
    # Files without a record are taken too.
    yield MapOutput(), report(MapOutput())


def _block_sealer(plan: WorkerPlan, order: BatchOrder) -> ShuffleBlockSealer:
    return resources(plan).block_keys.sealer(order.attempt.attempt)


def _map_report(output: MapOutput, refused: list[str]) -> StageReport:
    report = StageReport(
        dead=dict(Counter(str(each.reason) for each in output.dead_letters)),
        set_aside=[
            SetAside(each.id, each.reason, each.stage, each.position)
            for each in output.dead_letters[:MAX_REPORTED_DEAD_LETTERS]
        ],
        changes=output.reported_changes(),
        refused=refused,
        sources=output.sources,
        uses=output.uses,
        sights=output.sights,
    )
    for each in output.dead_letters:
        of_source = report.dead_of.setdefault(each.source, {})
        of_source[each.reason] = of_source.get(each.reason, 0) + 1
        name, _, version = (each.spec or "").partition("@")
        if each.source and (name or each.reason is DeadLetterReason.NO_SPEC):
            report.uses.of(name, int(version or 0), each.source).errors += 1
    report.count(output)
    return report


def _commit(
    plan: WorkerPlan,
    order: BatchOrder,
    fragments: Iterable[EncodedChange],
) -> StageReport:
    tools = resources(plan)
    stage = CommitStage(
        tools.store,
        commit_size(plan),
        tools.key_guard(),
        Backoff(plan.flow.commit_retries),
        order.is_last,
    )
    output = stage.run(fragments)
    kept = to_set_aside(plan.flow.on_failure, output.failed)
    dead_letters = DeadLetterWriter(tools.sealer).of_failures(kept, compiled(order).version, order.attempt)
    with tools.key_guard().setting_aside(kept):
        tools.dead_letters.put(dead_letters)
    dead = dict(Counter(str(failure.reason) for failure in kept))
    report = StageReport(
        dead=dead,
        dead_of={"": dict(dead)} if dead else {},
        refused=sorted(tools.data_keys.existing(stage.refused)),
    )
    report.count(output)
    report.count(tools.consumed())
    return report


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[SparkRow]:
    """The rows of Arrow batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def record_reader(
    plan: WorkerPlan, tools: WorkerResources, rows: Iterable[SparkRow], is_last: bool
) -> RecordReader:
    """A reader of the rows of the flow's sources, which are all of one kind. `is_last`: these rows are not retried."""
    limit = plan.flow.max_event_bytes
    if topics := kafka_sources(plan.sources):
        return KafkaRecords(topics, limit, rows, tools.read_range)
    if messages := pulsar_sources(plan.sources):
        return KafkaRecords(messages, limit, rows, tools.read_range, record_position)
    names = FileNames(tools.blind_index)
    return FileRecords(file_sources(plan.sources), limit, names, rows, is_last, plan.closed)
