"""What records became in the map stage: side outputs are values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from idgraph.model.attributes import DataType
from idgraph.model.dead_letters import DeadLetter
from idgraph.model.events import RawRecord
from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.proposals import Proposal
from idgraph.model.tombstones import NO_EPOCH
from ingestion.sources.files.lines import DamagedRecord
from ingestion.stages.event_states import EventStates
from merge.encoded import as_state
from merge.fragments import FragmentState
from transforms.schema.attribute_nodes import Leaves


class MappedEvent(NamedTuple):
    """An event that is mapped and waits for its fragment's data key."""

    record: RawRecord
    fragment_id: str
    origin: Origin
    identifiers: tuple[Identifier, ...]
    leaves: Leaves
    scope: str | None
    state: bytes | None = None
    """Where its plain values stand as bytes, and not among `leaves`: see `AttributeTree.leaves_and_state`."""


class MappedChunk(NamedTuple):
    """The events of a chunk by the id of their fragment, in their order. A fragment may be in both.

    Of a `plain` event nothing must be sealed: its state is all of it.
    """

    plain: EventStates
    others: dict[str, list[MappedEvent]]
    to_seal: dict[str, None]
    """Fragments with something to seal: reported when an event is added, as looking for it would fetch all events again."""

    def fragment_ids(self) -> dict[str, None]:
        """Of all events, each once."""
        return dict.fromkeys((*self.plain.fragment_ids(), *self.others))

    def add(self, event: MappedEvent, is_timed: bool, is_whole: bool) -> None:
        """One more, and where not all of it is wanted, as a plain one if it is. `is_timed`: its ordinal is a time."""
        if is_whole or event.state is None or event.leaves.to_seal:
            self.others.setdefault(event.fragment_id, []).append(event)
            if event.leaves.to_seal:
                self.to_seal[event.fragment_id] = None
        else:
            time = event.origin.stamp.ordinal if is_timed else None
            self.plain.add(event.fragment_id, time, event.state)


OUTPUT_BYTES = 128 << 20
"""An output of large records ends here: their fragments are held in memory."""

Fragment = FragmentState | bytes
"""Bytes are those of a normalised state in the first of `merge.codec`'s formats, which was judged by nothing."""


@dataclass(slots=True)
class MapOutput:
    """What some chunks of events became."""

    fragments: dict[str, Fragment] = field(default_factory=dict)
    changes: dict[tuple[str, DataType], tuple[str, str]] = field(default_factory=dict)
    proposals: dict[tuple[str, DataType], Proposal] = field(default_factory=dict)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    events: int = 0
    bytes: int = 0
    skipped: int = 0
    protected: int = 0
    erased: int = 0
    dropped_changes: int = 0
    refused: set[str] = field(default_factory=set)
    """Fragments of which a tombstone refused an event of a batch that is retried: see `OrphanedKeys`."""
    erasure_epoch: dict[str, int] = field(default_factory=dict)
    """By fragment id, what the events of the chunk in progress were judged by."""
    chunks: list[list[RawRecord | DamagedRecord]] = field(default_factory=list)
    """What it is of, until it is known that each state can be written."""
    broken: set[str] = field(default_factory=set)
    """Fragments that an event could not be joined to."""

    def states(self) -> dict[str, FragmentState]:
        """All fragments, none as bytes."""
        return {name: as_state(fragment) for name, fragment in self.fragments.items()}

    def state(self, fragment_id: str) -> FragmentState | None:
        """One fragment, if it is there, and not as bytes."""
        found = self.fragments.get(fragment_id)
        return None if found is None else as_state(found)

    def saw_another_epoch(self) -> bool:
        """Whether earlier chunks had a fragment that was judged by something else than now."""
        present = self.fragments
        return any(
            _erasure_epoch(present[fragment_id]) != until
            for fragment_id, until in self.erasure_epoch.items()
            if fragment_id in present
        )


def _erasure_epoch(fragment: Fragment) -> int:
    return NO_EPOCH if isinstance(fragment, bytes) else fragment.erasure_epoch
