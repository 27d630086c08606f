"""What runs in a Spark worker process: Arrow batches in, Arrow batches out, the stages between.

A worker process lives through many micro-batches. What is dear to make - open stores, the compiled
snapshot - is kept here by process; keys come from the worker's own provider and never from the driver.
"""

from __future__ import annotations

import functools
import gc
import traceback
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa

from ingestion.commit_stage import CommitStage
from ingestion.file_names import FileNames
from ingestion.files import DamagedRecord, read_records
from ingestion.key_guard import KeyGuard
from ingestion.map_output import MapOutput
from ingestion.map_stage import MapStage
from ingestion.outcomes import StageReport, reported_changes
from ingestion.set_aside import BatchAttempt, LetterWriter
from ingestion.source_files import folder_of, source_of
from ingestion.workers import WorkerPlan, WorkerResources
from merge import codec
from merge.encoded import state_of
from merge.fragments import FragmentState
from merge.tombstones import UNJUDGED
from model.dead_letters import DeadLetterReason
from model.errors import FlowStoppedError, IdgraphError
from model.events import RawRecord
from model.snapshots import MetadataSnapshot
from transforms.compiled import CompiledSnapshot

ROW_SCHEMA = "part int, body binary"
"""Rows between the stages and to the driver: a parcel, and which commit task it is for."""

_ARROW_SCHEMA = pa.schema([("part", pa.int32()), ("body", pa.binary())])


class _Parcel(msgspec.Struct, array_like=True):
    """What one chunk of events has for one commit task: fragments as (id, state), and a report if any.

    Many fragments a row: for each row Spark copies, hashes and sorts.
    """

    fragments: list[tuple[str, bytes]] = []
    report: StageReport | None = None
    judged: dict[str, int] = {}
    """By fragment id, of those few that have a tombstone: the `until` that their events were judged by."""


# Of a size that Spark can copy, encrypt and hand on while the next is made.
_PARCEL_FRAGMENTS = 1000

_encode_parcel = msgspec.msgpack.Encoder().encode
_decode_parcel = msgspec.msgpack.Decoder(_Parcel).decode


class BatchOrder(NamedTuple):
    """One micro-batch: which run of it, and under which snapshot. `snapshot` is a broadcast of JSON."""

    attempt: BatchAttempt
    etag: str
    snapshot: Any


@dataclass(slots=True)
class _Process:
    resources: dict[str, WorkerResources] = field(default_factory=dict)
    compiled: tuple[str, CompiledSnapshot] | None = None


_process = _Process()


def resources(plan: WorkerPlan) -> WorkerResources:
    """This process's resources for a plan, opened when first asked for."""
    opened = _process.resources.get(plan.settings)
    if opened is None:
        opened = _process.resources[plan.settings] = plan.open_resources(plan.settings)
        # What lives as long as the process need not be looked at again.
        gc.collect()
        gc.freeze()
    return opened


def compiled(order: BatchOrder) -> CompiledSnapshot:
    """The order's snapshot, compiled once a process and version."""
    if _process.compiled is None or _process.compiled[0] != order.etag:
        snapshot = MetadataSnapshot.model_validate_json(order.snapshot.value)
        previous = _process.compiled[1] if _process.compiled else None
        _process.compiled = (order.etag, CompiledSnapshot(snapshot, previous))
    return _process.compiled[1]


Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_task(plan: WorkerPlan, order: BatchOrder) -> Task:
    """Arrow batches of file paths to rows of combined fragments and a report."""
    return functools.partial(_run_map, plan, order)


def commit_task(plan: WorkerPlan, order: BatchOrder) -> Task:
    """Rows of the map stage, shuffled by fragment, to reports."""
    return functools.partial(_run_commit, plan, order)


def whole_task(plan: WorkerPlan, order: BatchOrder) -> Task:
    """Both stages in one task, for a micro-batch too small to gain from a shuffle."""
    return functools.partial(_run_whole, plan, order)


def _telling_only_our_errors(
    run: Callable[..., Iterator[pa.RecordBatch]],
) -> Callable[..., Iterator[pa.RecordBatch]]:
    """Spark logs a failed task's traceback and hands it to the driver. The message of a stranger's
    exception may quote an event (law 3), so only its type goes on, with the places in the code."""

    @functools.wraps(run)
    def guarded(*arguments: Any) -> Iterator[pa.RecordBatch]:
        failure: IdgraphError | None = None
        # A chunk of events is millions of small tuples and hardly a cycle. With Python's thresholds the
        # collector walks them again and again, which halves the rate; so it runs between tasks.
        gc.disable()
        try:
            yield from run(*arguments)
        except IdgraphError:
            raise
        except Exception as error:
            places = " < ".join(
                f"{Path(frame.filename).name}:{frame.lineno}"
                for frame in reversed(traceback.extract_tb(error.__traceback__))
            )
            failure = FlowStoppedError(f"a stage failed with {type(error).__name__} at {places}")
        finally:
            gc.enable()
            gc.collect()
        if failure is not None:
            # Outside the handler, or the original would hang on as its context.
            raise failure

    return guarded


@_telling_only_our_errors
def _run_map(
    plan: WorkerPlan, order: BatchOrder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for output in _mapped(plan, order, batches):
        parcels = [_Parcel([]) for _ in range(plan.flow.partitions)]
        for fragment_id, state in output.fragments.items():
            state.normalise()
            part = crc32(fragment_id.encode()) % len(parcels)
            parcel = parcels[part]
            parcel.fragments.append((fragment_id, codec.encode(state)))
            if state.judged != UNJUDGED:
                parcel.judged[fragment_id] = state.judged
            if len(parcel.fragments) == _PARCEL_FRAGMENTS:
                yield _rows([(part, parcel)])
                parcels[part] = _Parcel([])
        parcels[0].report = _map_report(output)
        yield _rows(enumerate(parcels))


@_telling_only_our_errors
def _run_commit(
    plan: WorkerPlan, order: BatchOrder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    total = StageReport()

    def fragments() -> Iterator[tuple[str, FragmentState | bytes]]:
        for parcel in _parcels(batches):
            if parcel.report is not None:
                total.add(parcel.report)
            yield from _judged(parcel) if parcel.judged else parcel.fragments

    total.add(_commit(plan, order, fragments()))
    yield _rows([(0, _Parcel([], total))])


@_telling_only_our_errors
def _run_whole(
    plan: WorkerPlan, order: BatchOrder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    total = StageReport()

    def fragments() -> Iterator[tuple[str, FragmentState]]:
        for output in _mapped(plan, order, batches):
            total.add(_map_report(output))
            yield from output.fragments.items()

    total.add(_commit(plan, order, fragments()))
    yield _rows([(0, _Parcel([], total))])


def _mapped(plan: WorkerPlan, order: BatchOrder, batches: Iterable[pa.RecordBatch]) -> Iterator[MapOutput]:
    tools = resources(plan)
    stage = MapStage(
        compiled(order),
        plan.sources,
        plan.flow,
        order.attempt,
        tools.data_keys,
        tools.blind_index,
        LetterWriter(tools.sealer),
        tombstones=tools.store.tombstones,
    )
    for output in stage.run(_records(plan, batches)):
        if output.letters:
            tools.dead_letters.put(output.letters)
        yield output


def _records(plan: WorkerPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[RawRecord | DamagedRecord]:
    names = FileNames(resources(plan).blind_index)
    for batch in batches:
        for uri in batch.column(0).to_pylist():
            path = Path(uri.removeprefix("file:").replace("///", "/", 1))
            source = source_of(path, plan.sources)
            config = plan.sources[source]
            shown = functools.partial(names.shown, source=config)
            yield from read_records(path, source, plan.flow.max_event_bytes, folder_of(config), shown)


def _judged(parcel: _Parcel) -> Iterator[tuple[str, FragmentState]]:
    for fragment_id, encoded in parcel.fragments:
        state = state_of(encoded)
        state.judged = parcel.judged.get(fragment_id, UNJUDGED)
        yield fragment_id, state


def _map_report(output: MapOutput) -> StageReport:
    dead: dict[str, int] = {}
    for letter in output.letters:
        dead[letter.reason] = dead.get(letter.reason, 0) + 1
    return StageReport(
        events=output.events,
        bytes=output.bytes,
        skipped=output.skipped,
        protected=output.protected,
        erased=output.erased,
        dead=dead,
        changes=list(reported_changes(output.changes, output.proposals)),
    )


def _commit(
    plan: WorkerPlan, order: BatchOrder, fragments: Iterable[tuple[str, FragmentState | bytes]]
) -> StageReport:
    tools = resources(plan)
    stage = CommitStage(
        tools.store,
        tools.index,
        compiled(order).attributes.is_indexable,
        plan.flow.commit_fragments,
        KeyGuard(tools.store, tools.data_keys),
    )
    output = stage.run(fragments)
    if output.damaged:
        letters = LetterWriter(tools.sealer).of_damaged(
            output.damaged, compiled(order).version, order.attempt
        )
        tools.dead_letters.put(letters)
    return StageReport(
        dead={str(DeadLetterReason.DAMAGED_FRAGMENT): len(output.damaged)} if output.damaged else {},
        written=output.written,
        unchanged=output.unchanged,
        conflicts=output.conflicts,
        unindexed=output.unindexed,
        erased=output.erased,
    )


def _rows(parcels: Iterable[tuple[int, _Parcel]]) -> pa.RecordBatch:
    """Parcels and the commit tasks that they are for."""
    # `pa.array` would import pandas to see whether it was given a Series: seconds in every new worker.
    tasks, bodies = zip(*((part, _encode_parcel(parcel)) for part, parcel in parcels), strict=True)
    parts = pa.Array.from_buffers(pa.int32(), len(bodies), [None, pa.py_buffer(array("i", tasks))])
    ends = pa.py_buffer(array("i", accumulate(map(len, bodies), initial=0)))
    content = pa.Array.from_buffers(pa.binary(), len(bodies), [None, ends, pa.py_buffer(b"".join(bodies))])
    return pa.record_batch([parts, content], schema=_ARROW_SCHEMA)


def _parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[_Parcel]:
    for batch in batches:
        for body in batch.column(1):
            yield _decode_parcel(body.as_buffer())


def decode_reports(bodies: Iterable[bytes]) -> StageReport:
    """All tasks' reports added up."""
    total = StageReport()
    for body in bodies:
        parcel = _decode_parcel(body)
        if parcel.report is not None:
            total.add(parcel.report)
    return total
