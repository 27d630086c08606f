"""From a record to a mapped event that waits for its fragment's data key: decode, map, protect names, diff.

A bad event becomes a dead letter of the output and nothing else (law 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingestion.configuration import SourceConfig
from ingestion.event_sealing import MappedEvent
from ingestion.kafka_envelope import envelope_reader
from ingestion.map_output import MapOutput
from ingestion.payload_formats import PayloadFormats
from ingestion.set_aside import BatchLetters
from model.dead_letters import DeadLetterReason
from model.errors import EventError, SchemaRegistryError, SpecError, TransformError
from model.events import Event, RawRecord
from model.fragments import Origin
from model.identifiers import Identifier
from model.stamps import Stamp
from transforms.blind_index import BlindIndex
from transforms.compiled import CompiledSnapshot
from transforms.mapping import MappingSpec
from transforms.schema import Leaves


class EventMapper:
    """Maps records with one snapshot. Not safe for several threads, as the snapshot is not."""

    def __init__(
        self,
        snapshot: CompiledSnapshot,
        sources: Mapping[str, SourceConfig],
        blind_index: BlindIndex,
        letters: BatchLetters,
        formats: PayloadFormats,
    ) -> None:
        self._snapshot = snapshot
        self._blind_index = blind_index
        self._letters = letters
        self._readers = {name: envelope_reader(config, formats) for name, config in sources.items()}
        self._protect = snapshot.protected_names.protector(blind_index.identifier)
        self._timed = {name for name, config in sources.items() if config.ordinal_unit == "epoch_ms"}

    def map(self, record: RawRecord, latest: int, output: MapOutput) -> MappedEvent | None:
        """None when it maps to nothing, or was set aside. An ordinal, of a source that counts in time, beyond
        `latest`, in epoch milliseconds, is refused. Raises SchemaRegistryError."""
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
            mapped = spec.map(event)
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
            origin = Origin(self._protect_event_id(spec, mapped.stamp), spec_ref)
            stage = "diff"
            leaves, state = self._leaves(mapped.output, origin, identifiers, spec.scope)
        except EventError as error:
            self._letters.add(output, record, stage, DeadLetterReason(error.reason), error.message, spec_ref)
        except TransformError as error:
            self._letters.add(output, record, stage, DeadLetterReason.TRANSFORM_FAILED, str(error), spec_ref)
        except SpecError as error:
            self._letters.add(output, record, stage, DeadLetterReason.SPEC_UNUSABLE, str(error), spec_ref)
        except SchemaRegistryError:
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote the event.
            self._letters.add(
                output, record, stage, DeadLetterReason.STAGE_CRASHED, type(error).__name__, spec_ref
            )
        else:
            _note_changes(leaves, event, output)
            return MappedEvent(record, str(identifiers[0]), origin, identifiers, leaves, spec.scope, state)
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


def _note_changes(leaves: Leaves, event: Event, output: MapOutput) -> None:
    """Add what no metadata knows to the output's schema changes."""
    for unexpected in leaves.unexpected:
        change = unexpected.node.path, unexpected.data_type
        output.changes.setdefault(change, (event.source, event.position))
        proposal = unexpected.proposal
        if proposal is not None and proposal.is_stronger(output.proposals.get(change)):
            output.proposals[change] = proposal
