"""Reports of the stages about a micro-batch, as values that cross from workers to the driver."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec import field

from idgraph.model.counts import BatchCounts
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.spec_use import joined_fields


class ReportedChange(msgspec.Struct, array_like=True):
    """A schema change on its way to the driver."""

    path: str
    data_type: str
    source: str
    first_event: str
    proposal: dict[str, Any] | None = None
    seen: bool = False


class ReportedUse(msgspec.Struct, array_like=True):
    """The use of one spec version for one source's events, about; `spec` is empty for those that no spec maps.
    `fields` as of `SpecUse`."""

    spec: str
    version: int
    source: str
    events: float = 0.0
    errors: int = 0
    fields: dict[str, bool] = field(default_factory=dict)


class Uses(msgspec.Struct, array_like=True):
    """Uses by spec, version and source."""

    found: dict[str, ReportedUse] = field(default_factory=dict)

    def of(self, spec: str, version: int, source: str) -> ReportedUse:
        """The use of a spec and a source, to be counted on."""
        return self.found.setdefault(f"{spec}@{version}/{source}", ReportedUse(spec, version, source))

    def add(self, other: Uses) -> None:
        """Add others to these."""
        for each in other.found.values():
            use = self.of(each.spec, each.version, each.source)
            use.events += each.events
            use.errors += each.errors
            use.fields = joined_fields(use.fields, each.fields)


class SetAside(msgspec.Struct, array_like=True):
    """One event that was set aside: its dead letter's id, reason and stage, and its position."""

    dead_letter: str
    reason: str
    stage: str
    position: str


MAX_REPORTED_DEAD_LETTERS = 100
"""The most dead letters of a micro-batch that are named one by one."""
MAX_REPORTED_CHANGES = 50_000
"""The most schema changes that a micro-batch reports: a source whose keys are ids has millions, which would fill the
driver. A later event reports the others."""


class StageReport(BatchCounts, array_like=True, kw_only=True):
    """The report of one task, or of all tasks of a micro-batch once added up: its counters and side outputs.

    `dead` counts dead letters by reason; `set_aside` names some of them. `sources` counts records by configured source. `refused` are fragments with a data key of which a tombstone refused an
    event or a change.
    """

    dead: dict[str, int] = field(default_factory=dict)
    set_aside: list[SetAside] = field(default_factory=list)
    changes: list[ReportedChange] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    sources: dict[str, int] = field(default_factory=dict)
    uses: Uses = field(default_factory=Uses)
    sights: dict[str, ReportedChange] = field(default_factory=dict)
    """Sights of attributes in the snapshot, by path."""
    dead_of: dict[str, dict[str, int]] = field(default_factory=dict)
    """`dead` by configured source; that of a fragment's changes is empty."""

    def add(self, other: StageReport) -> None:
        """Add another report to this one."""
        self.count(other)
        for reason, count in other.dead.items():
            self.dead[reason] = self.dead.get(reason, 0) + count
        for source, reasons in other.dead_of.items():
            of_source = self.dead_of.setdefault(source, {})
            for reason, count in reasons.items():
                of_source[reason] = of_source.get(reason, 0) + count
        for source, count in other.sources.items():
            self.sources[source] = self.sources.get(source, 0) + count
        self.uses.add(other.uses)
        self.set_aside.extend(other.set_aside[: MAX_REPORTED_DEAD_LETTERS - len(self.set_aside)])
        kept = other.changes[: MAX_REPORTED_CHANGES - len(self.changes)]
        self.dropped_changes += len(other.changes) - len(kept)
        self.changes.extend(kept)
        self.sights |= other.sights
        self.refused.extend(other.refused)

    def schema_changes(self) -> list[SchemaChange]:
        """The schema changes as model values."""
        found = (*self.changes, *self.sights.values())
        return [SchemaChange.model_validate(msgspec.structs.asdict(each)) for each in found]

    def dead_letter_count(self) -> int:
        """Dead letters of all reasons."""
        return sum(self.dead.values())


class BatchReport(NamedTuple):
    """One finished micro-batch. `batch` names its query and number, `seconds` are from its start to its end.
    `lag` is how many records wait when it is done, by `TOPIC/PARTITION`; empty for files, and while no broker says."""

    number: int
    seconds: float
    snapshot_version: int
    tasks: int
    counts: StageReport
    attempts: int = 1
    batch: str = ""
    lag: Mapping[str, int] = MappingProxyType({})
