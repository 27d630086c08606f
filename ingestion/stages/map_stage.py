"""The map stage: decode, map, diff, protect, aggregate, one after the other for a chunk. Plain Python, no Spark.

Events go through in chunks, because the data keys of a chunk's fragments are fetched in one read. If a fragment of an
output cannot be joined or encoded, each half of the output's records goes through the same stages again, until the
record that is to blame stands alone and becomes a dead letter (law 5).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.sources import FlowConfig, SourceConfig
from idgraph.model.tombstones import Tombstone
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.payload_formats import PayloadFormats
from ingestion.stages.aggregate import Aggregator
from ingestion.stages.dead_letters import BatchAttempt, BatchDeadLetters, DeadLetterWriter
from ingestion.stages.map import EventMapper
from ingestion.stages.map_output import MapOutput, MappedChunk, Record
from ingestion.stages.protect import Protector
from ingestion.stages.usage import UsageCounter
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.sealing import DataKeys
from transforms.spec.mapping import CompiledSnapshot

CHUNK_EVENTS = 20_000
CHUNK_BYTES = 16 << 20
"""A chunk ends at either."""

_SOURCE = attrgetter("source")

OUTPUT_BYTES = 128 << 20
"""An output of large records ends here: their fragments are held in memory."""


def chunked(records: Iterable[Record], most: int) -> Iterator[list[Record]]:
    """The records in lists of at most `most` and `CHUNK_EVENTS`; no list is empty."""
    most = min(CHUNK_EVENTS, most)
    chunk: list[Record] = []
    size = 0
    for item in records:
        chunk.append(item)
        size += len(item.record.value if isinstance(item, DamagedRecord) else item.value)
        if len(chunk) >= most or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


class MapStage:
    """Maps the records of one micro-batch with exactly one snapshot (law 4). One per task."""

    def __init__(
        self,
        snapshot: CompiledSnapshot,
        sources: Mapping[str, SourceConfig],
        flow: FlowConfig,
        batch: BatchAttempt,
        data_keys: DataKeys,
        blind_index: BlindIndex,
        dead_letters: DeadLetterWriter,
        now: Callable[[], float] = time.time,
        tombstones: Callable[[Iterable[str]], Mapping[str, Tombstone]] = lambda _: {},
        formats: PayloadFormats | None = None,
    ) -> None:
        if batch.is_again:
            snapshot.attributes.report_again(is_lost=True)
        self._attributes = snapshot.attributes
        self._flow = flow
        self._data_keys = data_keys
        self._dead_letters = BatchDeadLetters(dead_letters, snapshot.version, batch)
        self._now = now
        self._tombstones = tombstones
        self._is_again = batch.is_again
        stops_without_keys = flow.on_key_service_failure == "stop"
        self._protector = Protector(snapshot, data_keys, blind_index, self._dead_letters, stops_without_keys)
        self._mapper = EventMapper(
            snapshot,
            sources,
            self._protector,
            self._dead_letters,
            formats or PayloadFormats(),
            flow.earliest_ordinal,
        )
        self._usage = UsageCounter(snapshot, sources, self._mapper.read)
        self._aggregator = Aggregator(snapshot.attributes.policies)

    def run(self, records: Iterable[Record]) -> Iterator[MapOutput]:
        """One output for every `combine_events` records or `OUTPUT_BYTES` of them, in order; several where one fails.
        Raises StoreError when the key store is away, KeyServiceError and SchemaRegistryError when the key service or
        the schema registry is: the batch is retried."""
        output, taken = MapOutput(), list[Record]()
        for chunk in chunked(records, self._flow.combine_events):
            part = MapOutput(events=len(chunk), sources=Counter(map(_SOURCE, chunk)))
            mapped = self._mapper.map_chunk(chunk, self._latest_ordinal(), part)
            # Behind the latest ordinal: an event that was taken before an erasure is never later than its tombstone.
            self._leave_out_erased(mapped, part)
            self._usage.look_at(chunk, part)
            if output.has_other_epochs(part):
                # A later tombstone refuses earlier events: joined to later ones they would take these with them.
                yield from self._finished(output, taken)
                output, taken = MapOutput(), []
            output.add(part)
            taken += chunk
            self._aggregator.add(self._protector.seal(mapped, output), output)
            if output.events >= self._flow.combine_events or output.bytes >= OUTPUT_BYTES:
                yield from self._finished(output, taken)
                output, taken = MapOutput(), []
        if taken:
            yield from self._finished(output, taken)

    def _finished(self, output: MapOutput, taken: list[Record]) -> Iterator[MapOutput]:
        """The output of these records; with a fault, the outputs of each half of them in its place."""
        self._aggregator.finish(output)
        if output.faults and (len(taken) > 1 or not self._is_again):
            # The output is dropped, and its schema changes with it. Its keys are made: `_leave_out_erased` notes them.
            self._attributes.report_again(is_lost=True)
            was_again, self._is_again = self._is_again, True
            half = len(taken) // 2
            for some in (taken[:half], taken[half:]):
                yield from self.run(some)
            self._is_again = was_again
            return
        for fault in output.faults.values():
            record = taken[0].record if isinstance(taken[0], DamagedRecord) else taken[0]
            # Only the type: the message of a stranger's exception may quote the event.
            reason = DeadLetterReason.STAGE_CRASHED
            self._dead_letters.add(output, record, "combine", reason, fault.error, fault.spec)
        yield output

    def _latest_ordinal(self) -> int:
        return int((self._now() + self._flow.max_future_skew_seconds) * 1000)

    def _leave_out_erased(self, mapped: MappedChunk, output: MapOutput) -> None:
        tombstoned = self._tombstones(mapped.fragment_ids())
        output.erasure_epochs = {fragment_id: each.until for fragment_id, each in tombstoned.items()}
        if not tombstoned:
            return
        # A key that was cached before the erasure must not seal what comes after it.
        self._data_keys.forget(tombstoned)
        for fragment_id, tombstone in tombstoned.items():
            left_out = mapped.leave_out(fragment_id, tombstone, self._mapper.is_timed)
            output.erased += left_out
            if left_out and self._is_again:
                # A run before may have made a key for them, and nobody asks for it any more.
                output.refused.add(fragment_id)
