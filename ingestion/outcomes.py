"""What the stages say about a micro-batch, as values that cross from workers to the driver."""

from __future__ import annotations

import msgspec

from model.attributes import DataType
from model.schema_changes import SchemaChange


class StageReport(msgspec.Struct, array_like=True):
    """Counts of one task, or of all tasks of a micro-batch once added up.

    `dead` counts dead letters by reason. `changes` are schema changes as (path, type, source, position).
    `erased` are events, and changes that were on their way at an erasure, which a tombstone refused.
    """

    events: int = 0
    bytes: int = 0
    skipped: int = 0
    protected: int = 0
    dead: dict[str, int] = {}
    changes: list[tuple[str, str, str, str]] = []
    written: int = 0
    unchanged: int = 0
    conflicts: int = 0
    unindexed: int = 0
    erased: int = 0

    def add(self, other: StageReport) -> None:
        """Add another report's counts to this one's."""
        self.events += other.events
        self.bytes += other.bytes
        self.skipped += other.skipped
        self.protected += other.protected
        for reason, count in other.dead.items():
            self.dead[reason] = self.dead.get(reason, 0) + count
        self.changes.extend(other.changes)
        self.written += other.written
        self.unchanged += other.unchanged
        self.conflicts += other.conflicts
        self.unindexed += other.unindexed
        self.erased += other.erased

    def schema_changes(self) -> list[SchemaChange]:
        """The schema changes as model values."""
        return [
            SchemaChange(path=path, data_type=DataType(kind), source=source, first_event=position)
            for path, kind, source, position in self.changes
        ]

    def dead_letters(self) -> int:
        """Dead letters of all reasons."""
        return sum(self.dead.values())
