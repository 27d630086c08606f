"""One event by one snapshot: the output of the map stage in plain text, or the reason why it would be set
aside."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from idgraph.jobs.spec_preview.protected import VersionFlow
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError, SpecError
from idgraph.model.events import Event, RawRecord
from idgraph.model.fragments import Kind
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import SourceConfig
from idgraph.model.specs import SpecDocument
from idgraph.model.stamps import ORDINAL_MIN, SpecRef
from ingestion.sources.payload_formats import NOT_OF_THE_EVENT, PayloadFormats
from ingestion.stages.dead_letters import BatchDeadLetters
from ingestion.stages.map import EventMapper
from ingestion.stages.map_output import MapOutput, MappedEvent
from ingestion.stages.protect import Protector
from transforms.privacy.blind_index import BlindIndex, is_hashed
from transforms.privacy.sealing import DataKeys
from transforms.schema.data_types import DATA_TYPES
from transforms.spec.mapping import CompiledSnapshot, MappingSpec

_PLACES = {
    DeadLetterReason.MISSING_ID: "/id",
    DeadLetterReason.MISSING_ORDINAL: "/ordinal",
    DeadLetterReason.FUTURE_ORDINAL: "/ordinal",
    DeadLetterReason.PAST_ORDINAL: "/ordinal",
    DeadLetterReason.MISSING_IDENTIFIER: "/identifiers",
    DeadLetterReason.LONG_IDENTIFIER: "/identifiers",
}


class SpecProblem(NamedTuple):
    """The reason why an event would be set aside, without any value, and the place in the spec as a JSON
    pointer."""

    reason: str
    message: str
    pointer: str


class Leaf(NamedTuple):
    """A value of the mapped event. `looks_like` is a detector's finding."""

    data_type: str
    value: Any
    is_sealed: bool
    looks_like: str | None


class TriedEvent(NamedTuple):
    """The leaves by path, or the reason why there are none. `event` is None for one that is set aside or maps
    to nothing."""

    leaves: Mapping[str, Leaf]
    event: MappedEvent | None
    problem: SpecProblem | None

    def about(self) -> tuple[Any, ...]:
        """The parts by which two outcomes of one event are compared, beside their leaves."""
        about = None
        if self.event is not None:
            stamp = self.event.origin.stamp
            how = self.event.scope, self.event.evidence, self.event.retracts
            about = self.event.fragment_id, self.event.identifiers, stamp, how
        return about, self.problem

    def open_types(self) -> set[str]:
        """The types of its identifiers that are stored readable."""
        named: tuple[Identifier, ...] = () if self.event is None else self.event.identifiers
        return {each.type for each in named if not is_hashed(each.value)}


class _Refusals(BatchDeadLetters):
    """Keeps why the last record was refused, instead of the record."""

    def __init__(self) -> None:
        self.last: SpecProblem | None = None

    def add(
        self,
        output: MapOutput,  # noqa: ARG002
        record: RawRecord,  # noqa: ARG002
        stage: str,
        reason: DeadLetterReason,
        detail: str,
        spec: SpecRef | None,  # noqa: ARG002
        file: str = "",  # noqa: ARG002
    ) -> None:
        pointer = _PLACES.get(reason, "")
        if stage == "map" and detail.startswith("/"):
            place, _, detail = detail.partition(": ")
            pointer = f"/operations{place}"
        self.last = SpecProblem(str(reason), detail, pointer)


class _StoodInMapper(EventMapper):
    """Maps another payload in place of a record's own."""

    payload: Any = None

    def read(self, record: RawRecord) -> Event:
        event = super().read(record)
        return event if self.payload is None else event._replace(payload=copy.deepcopy(self.payload))


class TriedSnapshot:
    """Maps events by one snapshot. For one thread."""

    def __init__(
        self,
        snapshot: MetadataSnapshot,
        sources: Mapping[str, SourceConfig],
        data_keys: DataKeys,
        blind_index: BlindIndex,
        formats: PayloadFormats,
        latest: int,
        earliest: int = ORDINAL_MIN,
    ) -> None:
        """`latest` and `earliest` as of `EventMapper`."""
        self.snapshot = snapshot
        self._compiled = CompiledSnapshot(snapshot)
        self._declared = {each.path: each for each in snapshot.attributes}
        self._refusals = _Refusals()
        protector = Protector(self._compiled, data_keys, blind_index, self._refusals)
        self._mapper = _StoodInMapper(self._compiled, sources, protector, self._refusals, formats, earliest)
        self._protector = protector
        self._latest = latest
        self._flows: dict[MappingSpec | None, VersionFlow] = {}

    def is_timed(self, record: RawRecord) -> bool:
        """Whether the ordinals of its source are times."""
        return self._mapper.is_timed(record)

    def payload(self, record: RawRecord) -> tuple[VersionFlow, Any]:
        """The payload of the event, None for a record that is none, and its spec's uses of values."""
        with suppress(EventError, SpecError, *NOT_OF_THE_EVENT):
            event = self._mapper.read(record)
            spec = self._compiled.spec_for(event.source, event.type)
            if spec not in self._flows:
                self._flows[spec] = self._flow(spec.document if spec else None)
            return self._flows[spec], event.payload
        return self._flow(None), None

    def _flow(self, spec: SpecDocument | None) -> VersionFlow:
        return VersionFlow(spec, self._compiled.attributes, self._declared.get)

    def outcome(
        self,
        record: RawRecord,
        payload: Any = None,
        name_of: Callable[[Identifier], Identifier] = lambda name: name,
    ) -> TriedEvent:
        """The outcome of a record, or of another `payload` in place of its own, with `name_of` each
        identifier. Raises SchemaRegistryError, ConfigError."""
        self._refusals.last = None
        # Detectors say what they find once for each attribute, and here it is asked for each event.
        self._compiled.attributes.report_again()
        self._mapper.payload = payload
        try:
            event = self._mapper.map(record, self._latest, MapOutput())
        finally:
            self._mapper.payload = None
        self._protector.forget_identifiers()
        if event is None:
            return TriedEvent({}, None, self._refusals.last)
        first = str(name_of(Identifier.parse(event.fragment_id)))
        event = event._replace(fragment_id=first, identifiers=tuple(map(name_of, event.identifiers)))
        found = {each.node.path: each.proposal for each in event.leaves.unexpected if each.proposal}

        def leaf(path: str, value: Any, is_sealed: bool) -> Leaf:
            kind = "null" if value is None else str(DATA_TYPES[type(value)])
            looks_like = str(found[path].kind) if path in found else None
            return Leaf(kind, value, is_sealed, looks_like)

        leaves = {
            path: leaf(path, None if register.kind is Kind.DELETED else register.value, False)
            for path, register in event.leaves.plain.items()
        }
        leaves |= {each.path: leaf(each.path, each.value, True) for each in event.leaves.to_seal}
        return TriedEvent(leaves, event, None)
