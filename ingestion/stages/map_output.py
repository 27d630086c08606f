"""The output of the map stage: side outputs are values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple
from zlib import crc32

from msgspec import field

from idgraph import native
from idgraph.model.attributes import DataType
from idgraph.model.classification import Proposal
from idgraph.model.counts import BatchCounts
from idgraph.model.dead_letters import DeadLetter
from idgraph.model.events import RawRecord
from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef
from idgraph.model.timelines import TimelineChange
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from ingestion.sources.files.lines import DamagedRecord
from ingestion.stages.outcomes import MAX_REPORTED_CHANGES, ReportedChange, Uses
from merge import codec
from merge.timelines import joined_changes, with_change
from transforms.schema.attribute_nodes import Leaves

_BEGUN = crc32(codec.FORMAT)


class EventStates:
    """The states of events by fragment, each as the JSON of its bytes (`merge.codec`), with the event's ordinal if that is
    a time. This one keeps lists and joins nothing: it is the reference of `EventStates` in native/states.c."""

    def __init__(self) -> None:
        self._events: dict[str, list[tuple[int | None, bytes]]] = {}

    def add(self, fragment_id: str, time: int | None, state: bytes, /) -> None:
        """Keep one more."""
        self._events.setdefault(fragment_id, []).append((time, state))

    def fragment_ids(self) -> list[str]:
        """Fragments of all events, each once."""
        return list(self._events)

    def take(self, fragment_id: str, /) -> list[tuple[int | None, bytes]]:
        """Take out the events of a fragment."""
        return self._events.pop(fragment_id, [])

    def join_into(self, fragments: dict[str, bytes], excluded: Mapping[str, object], /) -> list[str]:  # noqa: ARG002
        """Join the events of each fragment that is not `excluded` with its bytes in `fragments`, and put the joined bytes
        there. Returns the ids of fragments whose states are not of the common form: these are left."""
        return [name for name in self._events if name not in excluded]

    def join_with(self, fragment_id: str, parts: list[bytes], present: bytes | None, /) -> bytes | None:  # noqa: ARG002
        """The joined bytes of a fragment's events, of `parts` (JSON of states) and of `present` (bytes of a state). None
        for states that are not of the common form, and where there is nothing to join."""
        return None


def event_states() -> EventStates:
    """Without any events yet."""
    if native.states is None:
        return EventStates()
    made: EventStates = native.states.EventStates(crc32, _BEGUN)
    return made


Record = RawRecord | DamagedRecord


class MappedEvent(NamedTuple):
    """A mapped event that waits for the data key of its fragment."""

    record: RawRecord
    fragment_id: str
    origin: Origin
    identifiers: tuple[Identifier, ...]
    leaves: Leaves
    scope: str | None
    state: bytes | None = None
    """The state of its plain values and identifiers, as JSON (`merge.codec`); then `leaves` has no plain values."""
    evidence: str = ""
    """The spec's statement on its identifiers (`merge.identity.evidence.shown_key`)."""
    retracts: str | None = None
    """The id of the event that it takes back, empty for none; None where its spec cannot say."""
    timeline: TimelineChange | None = None
    """The entries that it leaves, if any."""


class MappedChunk(NamedTuple):
    """The events of a chunk by the id of their fragment, in their order. A fragment may be in both.

    A `plain` event has nothing to seal and is whole as its state.
    """

    plain: EventStates
    others: dict[str, list[MappedEvent]]
    to_seal: dict[str, None]
    """Fragments with something to seal: noted when an event is added, as a search would fetch all events again."""

    def fragment_ids(self) -> dict[str, None]:
        """Fragments of all events, each once."""
        return dict.fromkeys((*self.plain.fragment_ids(), *self.others))

    def add(self, event: MappedEvent) -> None:
        """Add an event that is not plain."""
        self.others.setdefault(event.fragment_id, []).append(event)
        if event.leaves.to_seal:
            self.to_seal[event.fragment_id] = None

    def leave_out(self, fragment_id: str, tombstone: Tombstone, is_timed: Callable[[RawRecord], bool]) -> int:
        """Leave out the events of a fragment that its tombstone refuses; returns how many."""
        if tombstone.until == NO_EPOCH:
            return 0
        plain, others = self.plain.take(fragment_id), self.others.pop(fragment_id, [])
        self.to_seal.pop(fragment_id, None)
        left_out = 0
        for ordinal, state in plain:
            if tombstone.refuses_event(ordinal):
                left_out += 1
            else:
                self.plain.add(fragment_id, ordinal, state)
        for event in others:
            if tombstone.refuses_event(event.origin.stamp.ordinal if is_timed(event.record) else None):
                left_out += 1
            else:
                self.add(event)
        return left_out


class Fault(NamedTuple):
    """The reason why the events of a fragment cannot be joined or written; `error` is the type of the exception."""

    error: str
    spec: SpecRef | None


EncodedChange = tuple[str, bytes, int]
"""A fragment's id, the bytes of a change to join into it (`merge.timelines.with_change`), and the erasure epoch of its events."""


class MapOutput(BatchCounts, kw_only=True):
    """The output of some chunks of events. `fragments` are the bytes of a state by fragment id."""

    fragments: dict[str, bytes] = field(default_factory=dict)
    changes: dict[tuple[str, DataType], tuple[str, str]] = field(default_factory=dict)
    proposals: dict[tuple[str, DataType], Proposal] = field(default_factory=dict)
    sights: dict[str, ReportedChange] = field(default_factory=dict)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    """Fragments of which a tombstone refused an event of a batch that is retried: see `OrphanedKeys`."""
    erasure_epochs: dict[str, int] = field(default_factory=dict)
    """The `until` of the tombstone that events were compared with, by fragment id."""
    faults: dict[str, Fault] = field(default_factory=dict)
    """Fragments that an event could not be joined to."""
    sources: dict[str, int] = field(default_factory=dict)
    """The number of records of each configured source."""
    uses: Uses = field(default_factory=Uses)
    timelines: dict[str, list[TimelineChange]] = field(default_factory=dict)
    """The entries that events leave, by fragment."""

    def encoded(self) -> Iterator[EncodedChange]:
        """The changes of all fragments."""
        for fragment_id, state in self.fragments.items():
            change = with_change(joined_changes(self.timelines.get(fragment_id, ())), state)
            yield fragment_id, change, self.erasure_epochs.get(fragment_id, NO_EPOCH)

    def note(
        self, change: tuple[str, DataType], where: tuple[str, str], proposal: Proposal | None = None
    ) -> None:
        """Add a schema change, first seen at (source, position), while there is room for it."""
        if len(self.changes) >= MAX_REPORTED_CHANGES and change not in self.changes:
            self.dropped_changes += 1
            return
        self.changes.setdefault(change, where)
        if proposal is not None and proposal.is_stronger(self.proposals.get(change)):
            self.proposals[change] = proposal

    def reported_changes(self) -> list[ReportedChange]:
        """The schema changes, for the driver."""
        said = {change: each.model_dump(mode="json") for change, each in self.proposals.items()}
        return [ReportedChange(*change, *where, said.get(change)) for change, where in self.changes.items()]

    def add(self, part: MapOutput) -> None:
        """Add an output that has no fragments yet."""
        self.count(part)
        for change, where in part.changes.items():
            self.note(change, where, part.proposals.get(change))
        self.sights |= part.sights
        for source, count in part.sources.items():
            self.sources[source] = self.sources.get(source, 0) + count
        self.uses.add(part.uses)
        self.dead_letters += part.dead_letters
        self.refused |= part.refused
        self.erasure_epochs |= part.erasure_epochs

    def has_other_epochs(self, other: MapOutput) -> bool:
        """Whether a fragment of both was compared with another tombstone here than there."""
        return any(
            name in self.fragments and self.erasure_epochs.get(name, NO_EPOCH) != until
            for name, until in other.erasure_epochs.items()
        )
