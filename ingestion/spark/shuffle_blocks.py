"""Rows between the stages and to the driver: shuffle blocks of fragments, with a task's report, as Arrow.

A row holds many fragments, since Spark copies, hashes and sorts each row. Shuffle blocks are sealed (law 3): Spark
writes them to files.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate

import msgspec
import pyarrow as pa

from idgraph.model.errors import SealError, StoreError
from ingestion.stages.map_output import EncodedChange
from ingestion.stages.outcomes import StageReport
from transforms.privacy.record_sealing import ShuffleBlockSealer

ROW_SCHEMA = "part int, body binary"
"""A shuffle block, and which commit task it is for."""

BLOCK_FRAGMENTS = 1000
"""Fragments per block: Spark copies one block while the task makes the next."""

_ARROW_SCHEMA = pa.schema([("part", pa.int32()), ("body", pa.binary())])


class ShuffleBlock(msgspec.Struct, array_like=True):
    """The part of a map output for one commit task, and a report if any."""

    fragments: list[EncodedChange] = []
    report: StageReport | None = None


_encode_block = msgspec.msgpack.Encoder().encode
_decode_block = msgspec.msgpack.Decoder(ShuffleBlock).decode


def sealed_rows(blocks: Iterable[tuple[int, ShuffleBlock]], sealer: ShuffleBlockSealer) -> pa.RecordBatch:
    """Shuffle blocks, each with the number of its commit task."""
    return _rows((part, sealer.seal(_encode_block(block), part)) for part, block in blocks)


def report_row(report: StageReport) -> pa.RecordBatch:
    """A task's report to the driver: counts, paths, positions and stored ids. It holds no value, so it is not sealed."""
    return _rows([(0, report_body(report))])


def report_body(report: StageReport) -> bytes:
    """A report as `decode_reports` reads it."""
    return _encode_block(ShuffleBlock([], report))


def _rows(parts_and_bodies: Iterable[tuple[int, bytes]]) -> pa.RecordBatch:
    # `pa.array` would import pandas to see whether it was given a Series: seconds in every new worker.
    tasks, bodies = zip(*parts_and_bodies, strict=True)
    parts = pa.Array.from_buffers(pa.int32(), len(bodies), [None, pa.py_buffer(array("i", tasks))])
    ends = pa.py_buffer(array("i", accumulate(map(len, bodies), initial=0)))
    content = pa.Array.from_buffers(pa.binary(), len(bodies), [None, ends, pa.py_buffer(b"".join(bodies))])
    return pa.record_batch([parts, content], schema=_ARROW_SCHEMA)


def read_blocks(batches: Iterable[pa.RecordBatch], sealer: ShuffleBlockSealer) -> Iterator[ShuffleBlock]:
    """The shuffle blocks of sealed rows. Raises StoreError for a damaged one: a retry may map it whole."""
    for batch in batches:
        for part, body in zip(batch.column(0).to_pylist(), batch.column(1), strict=True):
            try:
                block = sealer.open(memoryview(body.as_buffer()).cast("B"), part)
            except SealError as error:
                raise StoreError(f"changes of fragments were damaged on their way: {error}") from None
            yield _decode_block(block)


def decode_reports(bodies: Iterable[bytes]) -> StageReport:
    """All tasks' reports added up."""
    total = StageReport()
    for body in bodies:
        block = _decode_block(body)
        if block.report is not None:
            total.add(block.report)
    return total
