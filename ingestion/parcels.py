"""Rows between the stages and to the driver: parcels of fragments, with a task's report, as Arrow.

Many fragments a row: for each row Spark copies, hashes and sorts.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import accumulate

import msgspec
import pyarrow as pa

from ingestion.outcomes import StageReport

ROW_SCHEMA = "part int, body binary"
"""A parcel, and which commit task it is for."""

PARCEL_FRAGMENTS = 1000
"""Of a size that Spark can copy, encrypt and hand on while the next is made."""

_ARROW_SCHEMA = pa.schema([("part", pa.int32()), ("body", pa.binary())])


class Parcel(msgspec.Struct, array_like=True):
    """What one chunk of events has for one commit task: fragments as (id, state), and a report if any."""

    fragments: list[tuple[str, bytes]] = []
    report: StageReport | None = None
    judged: dict[str, int] = {}
    """By fragment id, of those few that have a tombstone: the `until` that their events were judged by."""


_encode_parcel = msgspec.msgpack.Encoder().encode
_decode_parcel = msgspec.msgpack.Decoder(Parcel).decode


def rows(parcels: Iterable[tuple[int, Parcel]]) -> pa.RecordBatch:
    """Parcels and the commit tasks that they are for."""
    # `pa.array` would import pandas to see whether it was given a Series: seconds in every new worker.
    tasks, bodies = zip(*((part, _encode_parcel(parcel)) for part, parcel in parcels), strict=True)
    parts = pa.Array.from_buffers(pa.int32(), len(bodies), [None, pa.py_buffer(array("i", tasks))])
    ends = pa.py_buffer(array("i", accumulate(map(len, bodies), initial=0)))
    content = pa.Array.from_buffers(pa.binary(), len(bodies), [None, ends, pa.py_buffer(b"".join(bodies))])
    return pa.record_batch([parts, content], schema=_ARROW_SCHEMA)


def read_parcels(batches: Iterable[pa.RecordBatch]) -> Iterator[Parcel]:
    """The parcels of rows."""
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
