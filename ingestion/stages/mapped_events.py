"""What events are between mapping and combining: by fragment, with no more kept of each than is still needed."""

from __future__ import annotations

from typing import NamedTuple

from idgraph.model.events import RawRecord
from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from ingestion.stages.event_states import EventStates
from transforms.schema.leaves import Leaves


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
