"""The map stage: decode, map, diff the schema, seal by policy, combine. Plain Python, no Spark.

Events go through in chunks, because the data keys of a chunk's fragments are fetched in one read. A bad
event becomes a dead letter and nothing else of the chunk is touched (law 5). Plaintext that policy
protects does not leave this stage (law 3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import KeyServiceError, StoreError
from idgraph.model.events import RawRecord
from idgraph.model.sources import FlowConfig, SourceConfig
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.payload_formats import PayloadFormats
from ingestion.stages.aggregate import Combiner
from ingestion.stages.dead_letters import BatchAttempt, BatchDeadLetters, DeadLetterWriter
from ingestion.stages.event_mapping import EventMapper
from ingestion.stages.map_output import OUTPUT_BYTES, MapOutput, MappedChunk, MappedEvent
from merge.isolation import validate, with_part
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.sealing import DataKeys
from transforms.privacy.stored_values import RegisterSealer
from transforms.spec.snapshot import CompiledSnapshot

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
        snapshot.attributes.report_again()
        self._flow = flow
        self._data_keys = data_keys
        self._dead_letters = BatchDeadLetters(dead_letters, snapshot.version, batch)
        self._now = now
        self._tombstones = tombstones
        self._is_again = batch.is_again
        self._mapper = EventMapper(
            snapshot, sources, blind_index, self._dead_letters, formats or PayloadFormats()
        )
        sealer = RegisterSealer(snapshot.attributes, blind_index)
        self._combiner = Combiner(
            snapshot, sealer, data_keys, self._dead_letters, flow.on_key_service_failure == "stop"
        )

    def run(self, records: Iterable[RawRecord | DamagedRecord]) -> Iterator[MapOutput]:
        """One output for every `combine_events` records or `OUTPUT_BYTES` of them, in order. Raises StoreError
        when the key store is away, KeyServiceError and SchemaRegistryError when what holds the keys or the schemas
        is: the batch is retried."""
        output = MapOutput()
        for chunk in chunked(records, self._flow.combine_events):
            mapped = self._map_chunk(chunk, output)
            if output.saw_another_epoch():
                # What a tombstone that came meanwhile lets pass must not go under with what came before it.
                erasure_epoch = output.erasure_epoch
                yield self._validated(output)
                output = MapOutput(erasure_epoch=erasure_epoch)
            output.chunks.append(chunk)
            self._combiner.combine(mapped, output)
            if output.events >= self._flow.combine_events or output.bytes >= OUTPUT_BYTES:
                yield self._validated(output)
                output = MapOutput()
        if output.events or output.fragments or output.dead_letters:
            yield self._validated(output)

    def _map_chunk(
        self, chunk: list[RawRecord | DamagedRecord], output: MapOutput, are_whole: bool = False
    ) -> MappedChunk:
        output.events += len(chunk)
        latest = int((self._now() + self._flow.max_future_skew_seconds) * 1000)
        mapped = self._mapper.map_chunk(chunk, latest, output, are_whole)
        self._judge(mapped, output, is_again=self._is_again or are_whole)
        return mapped

    def _judge(self, mapped: MappedChunk, output: MapOutput, is_again: bool) -> None:
        """Leave out the events that a tombstone refuses: all but later ones of a timed source."""
        # After `latest`: an event that was taken before an erasure is then never later than its tombstone.
        tombstoned = self._tombstones(mapped.fragment_ids())
        output.erasure_epoch = {fragment_id: tombstone.until for fragment_id, tombstone in tombstoned.items()}
        if not tombstoned:
            return
        # A key that was cached before the erasure must not seal what comes after it.
        self._data_keys.forget(tombstoned)
        for fragment_id, tombstone in tombstoned.items():
            if self._is_refused(fragment_id, tombstone, mapped, output) and is_again:
                # A run before may have made a key for them, and nobody asks for it any more.
                output.refused.add(fragment_id)

    def _is_refused(
        self, fragment_id: str, tombstone: Tombstone, mapped: MappedChunk, output: MapOutput
    ) -> bool:
        """Judge a fragment's events; says whether some are refused."""
        if tombstone.until == NO_EPOCH:
            return False
        plain = mapped.plain.take(fragment_id)
        others = mapped.others.pop(fragment_id, [])
        mapped.to_seal.pop(fragment_id, None)
        alive = [(when, state) for when, state in plain if when is not None and when > tombstone.until]
        alive_others = [
            each
            for each in others
            if self._mapper.is_timed(each.record) and each.origin.stamp.ordinal > tombstone.until
        ]
        for when, state in alive:
            mapped.plain.add(fragment_id, when, state)
        for each in alive_others:
            mapped.add(each, True, is_whole=True)
        refused = len(plain) + len(others) - len(alive) - len(alive_others)
        output.erased += refused
        return refused > 0

    def _validated(self, output: MapOutput) -> MapOutput:
        """The output with nothing in it that cannot be written: of a fragment whose state has no bytes, the records
        that are to blame become dead letters."""
        for fragment_id, state in output.fragments.items():
            if isinstance(state, bytes):
                continue
            try:
                validate(state)
            except MemoryError:
                raise
            except Exception:
                output.broken.add(fragment_id)
        if output.broken:
            self._isolate(output)
        output.chunks = []
        return output

    def _isolate(self, output: MapOutput) -> None:
        output.fragments = {name: s for name, s in output.fragments.items() if name not in output.broken}
        for chunk in output.chunks:
            again = MapOutput()
            undamaged: list[RawRecord | DamagedRecord] = [
                each for each in chunk if isinstance(each, RawRecord)
            ]
            mapped = self._map_chunk(undamaged, again, are_whole=True)
            # What is refused this time only must not go under: the first time it was part of what is broken.
            _add_dead_letters(output, again)
            output.refused |= again.refused
            for name, events in mapped.others.items():
                if name in output.broken:
                    self._join_what_can_be(events, again.erasure_epoch, output)

    def _join_what_can_be(
        self, events: Sequence[MappedEvent], erasure_epoch: dict[str, int], output: MapOutput
    ) -> None:
        """Join events of one fragment, in halves until those that it fails on are alone."""
        name = events[0].fragment_id
        part = MapOutput(erasure_epoch=erasure_epoch)
        try:
            self._combiner.combine_fragment(events, part)
            if name in part.fragments:
                present = output.state(name)
                made = output.fragments[name] = with_part(present, part.states()[name])
                output.erased += present is not None and present.erasure_epoch < made.erasure_epoch
        except (StoreError, KeyServiceError, MemoryError):
            raise
        except Exception as error:
            if len(events) > 1:
                half = len(events) // 2
                self._join_what_can_be(events[:half], erasure_epoch, output)
                self._join_what_can_be(events[half:], erasure_epoch, output)
                return
            (event,) = events
            # Only the type: the message of a stranger's exception may quote the event.
            reason, detail = DeadLetterReason.STAGE_CRASHED, type(error).__name__
            self._dead_letters.add(output, event.record, "combine", reason, detail, event.origin.spec)
        else:
            _add_dead_letters(output, part)


def _add_dead_letters(output: MapOutput, part: MapOutput) -> None:
    reported = {dead_letter.id for dead_letter in output.dead_letters}
    output.dead_letters += [
        dead_letter for dead_letter in part.dead_letters if dead_letter.id not in reported
    ]
