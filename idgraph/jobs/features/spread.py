"""Features by Spark's tasks: each gets the labels of some identifiers, and reads the store by itself.

Identifiers go there sealed, as shuffle blocks do: policy may protect them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

import msgspec
import pyarrow as pa

from idgraph.jobs.features.columns import Features, given_text
from idgraph.model.attributes import Catalogue
from idgraph.model.snapshots import MetadataSnapshot
from profile_service.reader import ProfileReader

if TYPE_CHECKING:
    from idgraph.jobs.job import Run
    from idgraph.jobs.kind import JobContext
    from ingestion.spark.workers import WorkerResources


class AskedFeatures(NamedTuple):
    """The arguments of `Features`."""

    columns: Sequence[str]
    among: Collection[str] | None
    complete: bool


class _Task(NamedTuple):
    """All that a task needs besides labels."""

    snapshot: MetadataSnapshot
    catalogue: Catalogue | None
    clearance: int
    asked: AskedFeatures
    attempt: str
    """The run whose labels are sealed."""


class _Made(msgspec.Struct, array_like=True):
    table: bytes
    """As an Arrow stream."""
    counts: dict[str, int]
    damaged: list[str]


class SpreadFeatures:
    """`Features.columns` by the tasks of a Spark session. `features` gets the counts, and `damaged` of its reader the ids."""

    def __init__(
        self,
        session: Any,
        context: JobContext,
        clearance: int,
        asked: AskedFeatures,
        features: Features,
        run: Run,
    ) -> None:
        pinned = context.pinned
        catalogue = None if pinned.catalogue is None else pinned.catalogue()
        self._task = _Task(pinned.snapshot, catalogue, clearance, asked, run.id)
        self._session, self._features, self._run = session, features, run
        self._plan, self._keys = context.plan, context.resources().block_keys

    def columns(self, identifiers: Sequence[Any], times: Sequence[int]) -> pa.Table:
        """Raises as `Features.columns` does, JobStoppedError, and FlowStoppedError for what Spark itself says."""
        from ingestion.spark.spread import answered, tasks_of

        rows: list[list[int]] = [[] for _ in range(tasks_of(self._session))]
        for row, text in enumerate(identifiers):
            rows[0 if text is None else crc32(given_text(text).encode()) % len(rows)].append(row)
        task = self._task._replace(attempt=f"{self._run.id} {self._run.progress.done}")
        sealer, encode = self._keys.sealer(task.attempt), msgspec.msgpack.encode
        parts = [
            sealer.seal(encode(([identifiers[row] for row in own], [times[row] for row in own])), place)
            for place, own in enumerate(rows)
        ]
        answers: list[bytes] = []
        for found in answered(self._session, self._plan, parts, partial(_answer, task)):
            # Somebody may cancel it meanwhile.
            self._run.page({})
            answers = found or []
        tables = []
        for made in (msgspec.msgpack.decode(each, type=_Made) for each in answers):
            tables.append(pa.ipc.open_stream(made.table).read_all())
            self._features.counts.update(made.counts)
            self._features.reader.damaged += made.damaged
        places = [0] * len(times)
        for place, row in enumerate(row for own in rows for row in own):
            places[row] = place
        return pa.concat_tables(tables).take(pa.array(places, pa.int64()))


def _answer(task: _Task, tools: WorkerResources, place: int, sealed: bytes) -> bytes:
    """The columns of a part's labels, in a worker."""
    part = tools.block_keys.sealer(task.attempt).open(memoryview(sealed), place)
    identifiers, times = msgspec.msgpack.decode(part, type=tuple[list[str | None], list[int]])
    stores, known = (tools.store, tools.index, tools.data_keys, tools.blind_index), task.catalogue
    reader = ProfileReader(*stores, task.snapshot, None if known is None else lambda: known)
    features = Features(reader.with_clearance(task.clearance), *task.asked)
    table = features.columns(identifiers, times)
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    made = _Made(stream.getvalue().to_pybytes(), dict(features.counts), features.reader.damaged)
    return msgspec.msgpack.encode(made)
