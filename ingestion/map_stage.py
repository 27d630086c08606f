"""The map stage: decode, map, diff the schema, seal by policy, combine. Plain Python, no Spark.

Events go through in chunks, because the data keys of a chunk's fragments are fetched in one read. A bad
event becomes a dead letter and nothing else of the chunk is touched (law 5). Plaintext that policy
protects does not leave this stage (law 3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ingestion.chunks import chunked
from ingestion.configuration import FlowConfig, SourceConfig
from ingestion.event_sealing import FetchedKeys, MappedEvent, Unsealed, seal_events
from ingestion.event_states import joined, sealed_part
from ingestion.files import DamagedRecord
from ingestion.kafka_envelope import envelope_reader
from ingestion.map_output import OUTPUT_BYTES, MapOutput
from ingestion.poison import prove, with_part
from ingestion.set_aside import BatchAttempt, LetterWriter
from merge.fragments import FragmentState
from merge.tombstones import UNJUDGED, Tombstone
from model.dead_letters import DeadLetterReason
from model.errors import EventError, KeyProviderError, SpecError, StoreError, TransformError
from model.events import RawRecord
from model.fragments import FragmentChange, Origin
from model.identifiers import Identifier
from model.stamps import SpecRef, Stamp
from transforms.blind_index import BlindIndex
from transforms.compiled import CompiledSnapshot
from transforms.mapping import MappingSpec
from transforms.register_sealing import RegisterSealer
from transforms.schema import Leaves
from transforms.sealing import DataKeys


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
        letters: LetterWriter,
        now: Callable[[], float] = time.time,
        tombstones: Callable[[Iterable[str]], Mapping[str, Tombstone]] = lambda _: {},
    ) -> None:
        self._snapshot = snapshot
        snapshot.attributes.report_anew()
        self._flow = flow
        self._batch = batch
        self._data_keys = data_keys
        self._blind_index = blind_index
        self._letters = letters
        self._now = now
        self._tombstones = tombstones
        self._readers = {name: envelope_reader(config) for name, config in sources.items()}
        self._protect = snapshot.protected_names.protector(blind_index.identifier)
        self._sealer = RegisterSealer(snapshot.snapshot, blind_index)
        self._timed = {name for name, config in sources.items() if config.ordinal_unit == "epoch_ms"}

    def run(self, records: Iterable[RawRecord | DamagedRecord]) -> Iterator[MapOutput]:
        """One output for every `combine_events` records or `OUTPUT_BYTES` of them, in order. Raises StoreError
        when the key store is away: the batch is given again."""
        output = MapOutput()
        for chunk in chunked(records, self._flow.combine_events):
            prepared = self._map_chunk(chunk, output)
            if output.was_judged_otherwise():
                # What a tombstone that came meanwhile lets pass must not go under with what came before it.
                judged = output.judged
                yield self._proven(output)
                output = MapOutput(judged=judged)
            output.chunks.append(chunk)
            self._combine(prepared, output)
            if output.events >= self._flow.combine_events or output.bytes >= OUTPUT_BYTES:
                yield self._proven(output)
                output = MapOutput()
        if output.events or output.fragments or output.letters:
            yield self._proven(output)

    def _map_chunk(self, chunk: list[RawRecord | DamagedRecord], output: MapOutput) -> list[MappedEvent]:
        output.events += len(chunk)
        latest = int((self._now() + self._flow.max_future_skew_seconds) * 1000)
        prepared: list[MappedEvent] = []
        for item in chunk:
            if isinstance(item, DamagedRecord):
                output.bytes += len(item.record.value)
                self._set_aside(output, item.record, "read", item.reason, item.detail, None)
                continue
            output.bytes += len(item.value)
            event = self._prepare(item, latest, output)
            if event is not None:
                prepared.append(event)
        # After `latest`: an event that was taken before an erasure is then never later than its tombstone.
        output.judged = {}
        if buried := self._tombstones(event.fragment_id for event in prepared):
            prepared = self._judge(prepared, buried, output)
        return prepared

    def _prepare(self, record: RawRecord, latest: int, output: MapOutput) -> MappedEvent | None:
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
            if mapped.stamp.ordinal > latest and record.source in self._timed:
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
            self._set_aside(output, record, stage, DeadLetterReason(error.reason), error.message, spec_ref)
        except TransformError as error:
            self._set_aside(output, record, stage, DeadLetterReason.TRANSFORM_FAILED, str(error), spec_ref)
        except SpecError as error:
            self._set_aside(output, record, stage, DeadLetterReason.SPEC_UNUSABLE, str(error), spec_ref)
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote the event.
            self._set_aside(
                output, record, stage, DeadLetterReason.STAGE_CRASHED, type(error).__name__, spec_ref
            )
        else:
            for unexpected in leaves.unexpected:
                change = unexpected.node.path, unexpected.data_type
                output.changes.setdefault(change, (event.source, event.position))
                proposal = unexpected.proposal
                if proposal is not None and proposal.is_stronger(output.proposals.get(change)):
                    output.proposals[change] = proposal
            return MappedEvent(record, str(identifiers[0]), origin, identifiers, leaves, spec.scope, state)
        if leaves is not None:
            self._snapshot.attributes.take_back(leaves)
        return None

    def _leaves(
        self, output: dict[str, Any], origin: Origin, identifiers: tuple[Identifier, ...], scope: str | None
    ) -> tuple[Leaves, bytes | None]:
        attributes = self._snapshot.attributes
        if scope is not None:
            # What a snapshot event hides is known to states of registers alone.
            return attributes.leaves(output, origin), None
        return attributes.leaves_and_state(output, origin, identifiers)

    def _judge(
        self, prepared: list[MappedEvent], buried: Mapping[str, Tombstone], output: MapOutput
    ) -> list[MappedEvent]:
        """The events that no tombstone refuses: those of other fragments, and later ones of a timed source."""
        # A key that was cached before the erasure must not seal what comes after it.
        self._data_keys.forget(buried)
        output.judged = {fragment_id: tombstone.until for fragment_id, tombstone in buried.items()}
        kept = [event for event in prepared if self._is_alive(event, buried.get(event.fragment_id))]
        output.erased += len(prepared) - len(kept)
        return kept

    def _is_alive(self, event: MappedEvent, tombstone: Tombstone | None) -> bool:
        if tombstone is None or tombstone.until == UNJUDGED:
            return True
        return event.record.source in self._timed and event.origin.stamp.ordinal > tombstone.until

    def _protect_event_id(self, spec: MappingSpec, stamp: Stamp) -> Stamp:
        # A stamp is stored readable, beside the values: an id that is a sealed attribute must not be.
        if not self._snapshot.protected_names.protects_event_id(spec.document.id, stamp.event_id):
            return stamp
        hashed = self._blind_index.identifier(Identifier("event", stamp.event_id))
        return stamp._replace(event_id=hashed.value)

    def _fetch_keys(self, fragment_ids: set[str]) -> FetchedKeys:
        try:
            return self._data_keys.fetch(sorted(fragment_ids), create=True) if fragment_ids else {}
        except KeyProviderError as error:
            return error

    def _combine(self, prepared: list[MappedEvent], output: MapOutput) -> None:
        keys = self._fetch_keys({event.fragment_id for event in prepared if event.leaves.to_seal})
        for fragment_id, events in _by_fragment(prepared).items():
            try:
                self._join(fragment_id, events, keys, output)
            except MemoryError:
                raise
            except Exception:
                # Its state is half of what it was to be.
                output.broken.add(fragment_id)

    def _join(
        self, fragment_id: str, events: list[MappedEvent], keys: FetchedKeys, output: MapOutput
    ) -> None:
        """Join events of one fragment into the output's state of it."""
        state = output.fragments.get(fragment_id)
        policies = self._snapshot.attributes.policies
        # A state that stands as bytes is decoded only for what may be sealed.
        is_sealing = state is not None and any(event.leaves.to_seal for event in events)
        present = state.registers if state is not None and is_sealing else {}
        parts: list[bytes] = []
        for event, sealed in zip(
            events, seal_events(self._sealer, keys, events, present, policies), strict=True
        ):
            if isinstance(sealed, Unsealed):
                spec = event.origin.spec
                self._set_aside(output, event.record, "encrypt", sealed.reason, sealed.detail, spec)
                continue
            output.protected += len(event.leaves.to_seal)
            if event.state is not None:
                parts.append(event.state)
                if sealed.registers:
                    parts.append(sealed_part(sealed.registers))
                continue
            if state is None:
                state = self._begin(fragment_id, FragmentState(), output)
            mutations = event.leaves.plain
            mutations |= sealed.registers
            origin, identifiers, scope = event.origin, event.identifiers, event.scope
            state.apply(
                FragmentChange(fragment_id, origin, mutations, identifiers, scope, policies, sealed.entries)
            )
        if parts and state is None:
            self._begin(fragment_id, joined(parts), output)
        elif parts and state is not None:
            state.join(joined(parts))

    def _begin(self, fragment_id: str, state: FragmentState, output: MapOutput) -> FragmentState:
        output.fragments[fragment_id] = state
        state.judged = output.judged.get(fragment_id, UNJUDGED)
        return state

    def _proven(self, output: MapOutput) -> MapOutput:
        """The output with nothing in it that cannot be written: of a fragment whose state has no bytes, the records
        that are to blame become dead letters."""
        for fragment_id, state in list(output.fragments.items()):
            try:
                prove(state)
            except MemoryError:
                raise
            except Exception:
                output.broken.add(fragment_id)
        if output.broken:
            self._isolate(output)
        output.chunks = []
        return output

    def _isolate(self, output: MapOutput) -> None:
        told = {letter.id for letter in output.letters}
        output.fragments = {name: s for name, s in output.fragments.items() if name not in output.broken}
        for record in (each for chunk in output.chunks for each in chunk if isinstance(each, RawRecord)):
            scratch = MapOutput()
            event = next(iter(self._map_chunk([record], scratch)), None)
            if event is None or event.fragment_id not in output.broken:
                continue
            name = event.fragment_id
            try:
                self._join(
                    name, [event], self._fetch_keys({name} if event.leaves.to_seal else set()), scratch
                )
                if name in scratch.fragments:
                    output.fragments[name] = with_part(output.fragments.get(name), scratch.fragments[name])
            except (StoreError, MemoryError):
                raise
            except Exception as error:
                # Only the type: the message of a stranger's exception may quote the event.
                reason, detail = DeadLetterReason.STAGE_CRASHED, type(error).__name__
                self._set_aside(output, record, "combine", reason, detail, event.origin.spec)
            output.letters += [letter for letter in scratch.letters if letter.id not in told]

    def _set_aside(
        self,
        output: MapOutput,
        record: RawRecord,
        stage: str,
        reason: DeadLetterReason,
        detail: str,
        spec: SpecRef | None,
    ) -> None:
        output.letters.append(
            self._letters.letter(record, stage, reason, detail, spec, self._snapshot.version, self._batch)
        )


def _by_fragment(prepared: list[MappedEvent]) -> dict[str, list[MappedEvent]]:
    events: dict[str, list[MappedEvent]] = {}
    for event in prepared:
        events.setdefault(event.fragment_id, []).append(event)
    return events
