"""Map: a record becomes a mapped event. One event goes through decode, its spec, the schema diff and `protect`'s names.

A bad event becomes a dead letter of the output and nothing else (law 5). Native code takes a chunk of common events
through the same steps in one call (native/events/chunk_mapper.h); `map` is its reference and takes all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from idgraph import native
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError, SchemaRegistryError, SpecError, TransformError
from idgraph.model.events import DecryptedRecord, Event, RawRecord
from idgraph.model.fragments import Origin
from idgraph.model.sources import SourceConfig
from idgraph.model.stamps import ORDINAL_MIN, SpecRef
from idgraph.model.timelines import ActivityEntries, TimelineChange
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.kafka.envelope import envelope_reader
from ingestion.sources.payload_formats import NOT_OF_THE_EVENT, PayloadFormats
from ingestion.stages.dead_letters import BatchDeadLetters
from ingestion.stages.map_output import MapOutput, MappedChunk, MappedEvent, Record, event_states
from ingestion.stages.outcomes import ReportedChange
from ingestion.stages.protect import Protector
from merge.identity.evidence import options_of
from transforms.behaviour.activities import Activities, Activity, open_values
from transforms.schema.attribute_nodes import Leaves, ValueToSeal
from transforms.spec.mapping import MAX_CACHED_ROUTES, CompiledSnapshot, MappedPayload, MappingSpec

_Route = tuple[Callable[[Event], Any], SpecRef, tuple[str, ...], Callable[..., TimelineChange] | None]
"""A spec's function, its reference, the signs of ids that may have to be hashed, and what gives the entries that an event
leaves, if any activity names it."""


COUNTERS = range(100_000_000)
"""Ordinals of the first day of 1970: of a source that counts, though nobody said so."""


class EventMapper:
    """Maps records with one snapshot. Not safe for several threads, as the snapshot is not."""

    def __init__(
        self,
        snapshot: CompiledSnapshot,
        sources: Mapping[str, SourceConfig],
        protector: Protector,
        dead_letters: BatchDeadLetters,
        formats: PayloadFormats,
        earliest: int = ORDINAL_MIN,
    ) -> None:
        """The ordinal of a timed source must not be before `earliest` (epoch milliseconds), nor beyond `latest` of a call;
        `COUNTERS` are no times. Nor must the time of an activity be beyond `latest`."""
        self._earliest = earliest
        self._latest = 0
        self._snapshot = snapshot
        self._protector = protector
        self._dead_letters = dead_letters
        self._readers = {name: envelope_reader(config, formats) for name, config in sources.items()}
        self._timed = frozenset(name for name, config in sources.items() if config.ordinal_unit == "epoch_ms")
        self._routes: dict[tuple[str, str], _Route | None] = {}
        self._activities = Activities(snapshot.attributes.activities)
        self._map_natively = self._native_mapper()

    def map_chunk(self, records: list[Record], latest: int, output: MapOutput) -> MappedChunk:
        """`map` of each record, and dead letters for those that are damaged. Raises SchemaRegistryError."""
        chunk = MappedChunk(event_states(), {}, {})
        self._latest = latest

        def map_one(item: Record) -> None:
            if isinstance(item, DamagedRecord):
                output.bytes += len(item.record.value)
                self._dead_letters.add(
                    output, item.record, item.stage, item.reason, item.detail, None, item.file
                )
                return
            output.bytes += len(item.value)
            event = self.map(item, latest, output)
            if event is not None:
                chunk.add(event)

        try:
            if self._map_natively is None:
                for record in records:
                    map_one(record)
            else:
                size, skipped = self._map_natively(
                    records,
                    latest,
                    chunk.plain.add,
                    chunk.others,
                    chunk.to_seal,
                    map_one,
                )
                output.bytes += size
                output.skipped += skipped
        finally:
            self._protector.forget_identifiers()
        return chunk

    def _native_mapper(self) -> Callable[..., tuple[int, int]] | None:
        leaves = self._snapshot.attributes.native_state()
        if native.events is None or leaves is None:
            return None
        return native.events.chunk_mapper(
            (RawRecord, DecryptedRecord, Origin, Leaves, MappedEvent, SchemaRegistryError),
            {name: reader.read for name, reader in self._readers.items()},
            self._routes,
            self._route,
            self._protector.identifiers,
            leaves,
            self._snapshot.attributes.take_back,
            self._timed,
            self._earliest,
        )

    def _route(self, source: str, event_type: str) -> _Route | None:
        """The native loop's way to map events of a source and type; None for those that it knows nothing of."""
        spec = self._snapshot.spec_for(source, event_type)
        names = self._snapshot.protected_names
        signs = (
            None
            if spec is None
            else names.signs_in_event_ids(names.place_of(spec.document, spec.document.id))
        )
        found = None
        is_harmless = self._snapshot.attributes.sensitive(source) is None
        is_plain = (
            spec is not None
            and spec.scope is None
            and spec.document.evidence is None
            and spec.document.retracts is None
        )
        if spec is not None and is_plain and signs is not None and is_harmless:
            activities = self._activities.of(source, event_type)
            found = spec.map, spec.ref, signs, partial(self._timeline, activities) if activities else None
        if len(self._routes) < MAX_CACHED_ROUTES:
            self._routes[source, event_type] = found
        return found

    def map(self, record: RawRecord, latest: int, output: MapOutput) -> MappedEvent | None:
        """None when it maps to nothing, or became a dead letter. The ordinal of a timed source must not be beyond
        `latest` (epoch milliseconds). Raises SchemaRegistryError, and ConfigError for a registry's unreadable secret."""
        stage, spec_ref, leaves = "decode", None, None
        self._latest = latest
        try:
            event = self.read(record)
            stage = "map"
            spec = self._snapshot.spec_for(event.source, event.type)
            if spec is None:
                if event.is_deletion():
                    # Nobody said what such a record means here: as good as one that maps to nothing.
                    output.skipped += 1
                    return None
                raise EventError(
                    DeadLetterReason.NO_SPEC, "no active mapping spec matches the event's source and type"
                )
            spec_ref = spec.ref
            mapped = _mapped(spec, event)
            if mapped is None:
                output.skipped += 1
                return None
            self._check_order(record, mapped.stamp.ordinal, latest)
            stage = "diff"
            leaves = self._snapshot.attributes.leaves(mapped.output, Origin(mapped.stamp, spec_ref))
            self._snapshot.attributes.refuse_value_keys(leaves, lambda: spec.is_value_of(event))
            stage = "encrypt"
            names = self._protector.names(mapped, spec, leaves)
            stage = "timeline"
            activities = self._activities.of(event.source, event.type)
            own = Origin(names.stamp, spec_ref)
            timeline = self._timeline(activities, mapped.output, own, leaves.to_seal, record)
        except EventError as error:
            reason, detail = DeadLetterReason(error.reason), error.message
        except TransformError as error:
            reason, detail = DeadLetterReason.TRANSFORM_FAILED, str(error)
        except SpecError as error:
            reason, detail = DeadLetterReason.SPEC_UNUSABLE, str(error)
        except NOT_OF_THE_EVENT:
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote the event.
            reason, detail = DeadLetterReason.STAGE_CRASHED, type(error).__name__
        else:
            _note_changes(leaves, event, output)
            return MappedEvent(
                record,
                names.fragment_id,
                own,
                names.identifiers,
                leaves,
                spec.scope,
                evidence=_options(spec),
                retracts=names.retracts,
                timeline=timeline,
            )
        self._dead_letters.add(output, record, stage, reason, detail, spec_ref)
        if leaves is not None:
            self._snapshot.attributes.take_back(leaves)
        return None

    def _timeline(
        self,
        activities: Sequence[Activity],
        mapped: dict[str, Any],
        origin: Origin,
        to_seal: Sequence[ValueToSeal],
        record: RawRecord,
    ) -> TimelineChange:
        """The entries that an event leaves. Raises EventError, TransformError."""
        shown = open_values(mapped, [each.path for each in to_seal])
        found: dict[str, ActivityEntries] = {}
        for each in activities:
            entry = each.entry(mapped, shown, *origin, self.is_timed(record), self._latest)
            if entry is not None:
                found[each.definition.name] = each.entries((entry,))
        return found

    def read(self, record: RawRecord) -> Event:
        """The event of a record. Raises EventError, SchemaRegistryError."""
        event = self._readers[record.source].read(record)
        # A source's name is stored readable, in stamps and in the catalogue, and may come out of the event.
        if event.source != record.source:
            detection = self._snapshot.attributes.sensitive(event.source)
            if detection is not None:
                raise EventError(
                    DeadLetterReason.SENSITIVE_KEY,
                    f"the envelope's source looks sensitive ({detection.kind}), and names of sources are stored readable",
                )
        return event

    def _check_order(self, record: RawRecord, ordinal: int, latest: int) -> None:
        if self._earliest <= ordinal <= latest or not self.is_timed(record):
            return
        if ordinal > latest:
            message = "the ordinal lies further in the future than the allowed skew"
            raise EventError(DeadLetterReason.FUTURE_ORDINAL, message)
        if ordinal not in COUNTERS:
            message = "the ordinal lies before the earliest year; are these seconds, not milliseconds?"
            raise EventError(DeadLetterReason.PAST_ORDINAL, message)

    def is_timed(self, record: RawRecord) -> bool:
        """Whether the ordinals of its source are times."""
        return record.source in self._timed


def _options(spec: MappingSpec) -> str:
    evidence = spec.document.evidence
    return "" if evidence is None else options_of(evidence.strength, evidence.links)


def _mapped(spec: MappingSpec, event: Event) -> MappedPayload | None:
    try:
        return spec.map(event)
    except TransformError as error:
        raise spec.refused(event, error) from None


def _note_changes(leaves: Leaves, event: Event, output: MapOutput) -> None:
    where = event.source, event.position
    for unexpected in leaves.unexpected:
        change = unexpected.node.path, unexpected.data_type
        known, proposal = unexpected.node.declared, unexpected.proposal
        if known and known.accepts(change[1]) and not (proposal and proposal.is_stronger(unexpected.known)):
            output.sights[known.path] = ReportedChange(*change, *where, seen=True)
        else:
            output.note(change, where, proposal)
