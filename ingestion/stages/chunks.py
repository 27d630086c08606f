"""Chunks of records: as many as are held in memory at once, mapped, several times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from idgraph.model.events import RawRecord
from ingestion.sources.files.lines import DamagedRecord

CHUNK_EVENTS = 20_000
CHUNK_BYTES = 16 << 20
"""A chunk ends at either."""


def chunked(
    records: Iterable[RawRecord | DamagedRecord], most: int
) -> Iterator[list[RawRecord | DamagedRecord]]:
    """The records in lists of at most `most` and `CHUNK_EVENTS`; no list is empty."""
    most = min(CHUNK_EVENTS, most)
    chunk: list[RawRecord | DamagedRecord] = []
    size = 0
    for item in records:
        chunk.append(item)
        size += len(item.record.value if isinstance(item, DamagedRecord) else item.value)
        if len(chunk) >= most or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
