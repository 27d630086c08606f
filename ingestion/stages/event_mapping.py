"""From a record to a mapped event that waits for its fragment's data key: decode, map, protect names, diff.

A bad event becomes a dead letter of the output and nothing else (law 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from idgraph import native
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError, SchemaRegistryError, SpecError, TransformError
from idgraph.model.events import DecryptedRecord, Event, RawRecord
from idgraph.model.fragments import Origin
from idgraph.model.identifiers import MOST_BYTES, Identifier
from idgraph.model.sources import SourceConfig
from idgraph.model.stamps import SpecRef, Stamp
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.kafka.envelope import envelope_reader
from ingestion.sources.payload_formats import NOT_OF_THE_EVENT, PayloadFormats
from ingestion.stages.dead_letters import BatchDeadLetters
from ingestion.stages.event_states import event_states
from ingestion.stages.map_output import MapOutput, MappedChunk, MappedEvent
from ingestion.stages.outcomes import MAX_REPORTED_CHANGES
from transforms.privacy.blind_index import BlindIndex
from transforms.schema.attribute_nodes import Leaves
from transforms.spec.mapping import MappedPayload, MappingSpec
from transforms.spec.snapshot import MAX_CACHED_ROUTES, CompiledSnapshot

_SURELY_SHORT = MOST_BYTES // 4
"""A character has at most four bytes."""

_Route = tuple[Callable[[Event], Any], SpecRef, tuple[str, ...]]
"""A spec's function, its reference, and the signs of ids that may have to be hashed."""


class _Hashes(dict[Identifier, Identifier]):
    """What identifiers of a chunk are hashed to. Nothing of it outlives the chunk, which has them in the clear."""

    def __init__(self, blind_index: BlindIndex) -> None:
        super().__init__()
        self._blind_index = blind_index

    def __missing__(self, identifier: Identifier) -> Identifier:
        hashed = self[identifier] = self._blind_index.hashed(identifier)
        return hashed


class EventMapper:
    """Maps records with one snapshot. Not safe for several threads, as the snapshot is not."""

    def __init__(
        self,
        snapshot: CompiledSnapshot,
        sources: Mapping[str, SourceConfig],
        blind_index: BlindIndex,
        dead_letters: BatchDeadLetters,
        formats: PayloadFormats,
    ) -> None:
        self._snapshot = snapshot
        self._blind_index = blind_index
        self._dead_letters = dead_letters
        self._readers = {name: envelope_reader(config, formats) for name, config in sources.items()}
        self._hashes = _Hashes(blind_index)
        self._protect = snapshot.protected_names.protector(self._hashes.__getitem__)
        self._timed = frozenset(name for name, config in sources.items() if config.ordinal_unit == "epoch_ms")
        self._routes: dict[tuple[str, str], _Route | None] = {}
        self._gather = self._native_gatherer()

    def map_chunk(
        self,
        records: list[RawRecord | DamagedRecord],
        latest: int,
        output: MapOutput,
        are_whole: bool = False,
    ) -> MappedChunk:
        """`map` of each record, and dead letters for those that are damaged. `are_whole`: none is given as plain.
        Raises SchemaRegistryError."""
        chunk = MappedChunk(event_states(), {}, {})

        def map_one(item: RawRecord | DamagedRecord) -> None:
            if isinstance(item, DamagedRecord):
                output.bytes += len(item.record.value)
                self._dead_letters.add(
                    output, item.record, item.stage, item.reason, item.detail, None, item.file
                )
                return
            output.bytes += len(item.value)
            event = self.map(item, latest, output)
            if event is not None:
                chunk.add(event, self.is_timed(item), are_whole)

        try:
            if self._gather is None or are_whole:
                # Reference of `gatherer` in native/events/gatherer.h, which gives `map_one` what is not of the common form.
                for record in records:
                    map_one(record)
            else:
                size, skipped = self._gather(
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
            self._hashes.clear()
        return chunk

    def _native_gatherer(self) -> Callable[..., tuple[int, int]] | None:
        leaves = self._snapshot.attributes.native_state()
        if native.events is None or leaves is None:
            return None
        return native.events.gatherer(
            (RawRecord, DecryptedRecord, Origin, Leaves, MappedEvent, SchemaRegistryError),
            {name: reader.read for name, reader in self._readers.items()},
            self._routes,
            self._route,
            self._protect,
            leaves,
            self._snapshot.attributes.take_back,
            self._timed,
        )

    def _route(self, source: str, event_type: str) -> _Route | None:
        """How the native loop maps events of a source and type; None for those that it knows nothing of."""
        spec = self._snapshot.spec_for(source, event_type)
        signs = None if spec is None else self._snapshot.protected_names.signs_in_event_ids(spec.document.id)
        found = None
        if spec is not None and spec.scope is None and signs is not None:
            found = spec.map, spec.ref, signs
        if len(self._routes) < MAX_CACHED_ROUTES:
            self._routes[source, event_type] = found
        return found

    def map(self, record: RawRecord, latest: int, output: MapOutput) -> MappedEvent | None:
        """None when it maps to nothing, or was set aside. An ordinal, of a source that counts in time, beyond
        `latest`, in epoch milliseconds, is refused. Raises SchemaRegistryError, and ConfigError where what the registry
        is asked with cannot be read."""
        stage, spec_ref, leaves = "decode", None, None
        try:
            event = self._readers[record.source].read(record)
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
            if mapped.stamp.ordinal > latest and self.is_timed(record):
                raise EventError(
                    DeadLetterReason.FUTURE_ORDINAL,
                    "the ordinal lies further in the future than the allowed skew",
                )
            stage = "encrypt"
            identifiers = self._protect(mapped.identifiers)
            fragment_id = str(identifiers[0])
            if (
                len(fragment_id) > _SURELY_SHORT
                and len(fragment_id.encode(errors="surrogatepass")) > MOST_BYTES
            ):
                raise EventError(
                    DeadLetterReason.LONG_IDENTIFIER,
                    f"the primary identifier has more than the {MOST_BYTES:,} bytes that every store takes",
                )
            origin = Origin(self._protect_event_id(spec, mapped.stamp), spec_ref)
            stage = "diff"
            leaves, state = self._leaves(mapped.output, origin, identifiers, spec.scope)
            self._snapshot.attributes.refuse_value_keys(leaves, lambda: spec.is_value_of(event))
        except EventError as error:
            self._dead_letters.add(
                output, record, stage, DeadLetterReason(error.reason), error.message, spec_ref
            )
        except TransformError as error:
            self._dead_letters.add(
                output, record, stage, DeadLetterReason.TRANSFORM_FAILED, str(error), spec_ref
            )
        except SpecError as error:
            self._dead_letters.add(
                output, record, stage, DeadLetterReason.SPEC_UNUSABLE, str(error), spec_ref
            )
        except NOT_OF_THE_EVENT:
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote the event.
            self._dead_letters.add(
                output, record, stage, DeadLetterReason.STAGE_CRASHED, type(error).__name__, spec_ref
            )
        else:
            _note_changes(leaves, event, output)
            return MappedEvent(record, fragment_id, origin, identifiers, leaves, spec.scope, state)
        if leaves is not None:
            self._snapshot.attributes.take_back(leaves)
        return None

    def is_timed(self, record: RawRecord) -> bool:
        """Whether the ordinals of its source are times."""
        return record.source in self._timed

    def _leaves(
        self, output: dict[str, Any], origin: Origin, identifiers: tuple[Identifier, ...], scope: str | None
    ) -> tuple[Leaves, bytes | None]:
        attributes = self._snapshot.attributes
        if scope is not None:
            # What a snapshot event hides is known to states of registers alone.
            return attributes.leaves(output, origin), None
        return attributes.leaves_and_state(output, origin, identifiers)

    def _protect_event_id(self, spec: MappingSpec, stamp: Stamp) -> Stamp:
        # A stamp is stored readable, beside the values: an id that is a sealed attribute must not be.
        if not self._snapshot.protected_names.protects_event_id(spec.document.id, stamp.event_id):
            return stamp
        hashed = self._blind_index.identifier(Identifier("event", stamp.event_id))
        return stamp._replace(event_id=hashed.value)


def _mapped(spec: MappingSpec, event: Event) -> MappedPayload | None:
    try:
        return spec.map(event)
    except TransformError as error:
        raise spec.refused(event, error) from None


def _note_changes(leaves: Leaves, event: Event, output: MapOutput) -> None:
    """Add what no metadata knows to the output's schema changes, of which it has room for so many."""
    for unexpected in leaves.unexpected:
        change = unexpected.node.path, unexpected.data_type
        if len(output.changes) >= MAX_REPORTED_CHANGES and change not in output.changes:
            output.dropped_changes += 1
            continue
        output.changes.setdefault(change, (event.source, event.position))
        proposal = unexpected.proposal
        if proposal is not None and proposal.is_stronger(output.proposals.get(change)):
            output.proposals[change] = proposal
