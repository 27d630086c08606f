"""What records became in the map stage: side outputs are values."""

from __future__ import annotations

from dataclasses import dataclass, field

from ingestion.files import DamagedRecord
from merge.fragments import FragmentState
from model.attributes import DataType
from model.dead_letters import DeadLetter
from model.events import RawRecord
from model.proposals import Proposal

OUTPUT_BYTES = 128 << 20
"""An output of large records ends here: their fragments are held in memory."""


@dataclass(slots=True)
class MapOutput:
    """What some chunks of events became."""

    fragments: dict[str, FragmentState] = field(default_factory=dict)
    changes: dict[tuple[str, DataType], tuple[str, str]] = field(default_factory=dict)
    proposals: dict[tuple[str, DataType], Proposal] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    events: int = 0
    bytes: int = 0
    skipped: int = 0
    protected: int = 0
    erased: int = 0
    untold: int = 0
    judged: dict[str, int] = field(default_factory=dict)
    """By fragment id, what the events of the chunk under way were judged by."""
    chunks: list[list[RawRecord | DamagedRecord]] = field(default_factory=list)
    """What it is of, until it is known that each state can be written."""
    broken: set[str] = field(default_factory=set)
    """Fragments that an event could not be joined to."""

    def was_judged_otherwise(self) -> bool:
        """Whether earlier chunks had a fragment that was judged by something else than now."""
        present = self.fragments
        return any(
            present[fragment_id].judged != until
            for fragment_id, until in self.judged.items()
            if fragment_id in present
        )
