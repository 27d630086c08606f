"""What the stages say about a micro-batch, as values that cross from workers to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from idgraph.model.attributes import DataType
from idgraph.model.dead_letters import DeadLetter
from idgraph.model.proposals import Proposal
from idgraph.model.schema_changes import SchemaChange


class ReportedChange(msgspec.Struct, array_like=True):
    """A schema change on its way to the driver; `proposal` is its JSON."""

    path: str
    data_type: str
    source: str
    first_event: str
    proposal: str | None = None


def reported_changes(
    changes: Mapping[tuple[str, DataType], tuple[str, str]],
    proposals: Mapping[tuple[str, DataType], Proposal],
) -> Iterator[ReportedChange]:
    """What a map stage found: (source, position) and proposal by path and type."""
    for change, (source, position) in changes.items():
        proposal = proposals.get(change)
        said = None if proposal is None else proposal.model_dump_json()
        yield ReportedChange(*change, source, position, said)


class SetAside(msgspec.Struct, array_like=True):
    """One event that was set aside: its dead letter's id, reason and stage, and its position."""

    dead_letter: str
    reason: str
    stage: str
    position: str


MAX_REPORTED_DEAD_LETTERS = 100
"""Of a micro-batch no more are reported one by one."""
MAX_REPORTED_CHANGES = 50_000
"""Of a micro-batch no more schema changes are reported: a source whose keys are made of ids has millions, which would fill
the driver. What is not reported is reported when an event shows it again."""


class StageReport(msgspec.Struct, array_like=True):
    """Counts of one task, or of all tasks of a micro-batch once added up.

    `file_bytes` are those of the files as they lie on disk, `bytes` those of the records.
    `dead` counts dead letters by reason; `set_aside` reports some of them. `changes` are schema changes,
    besides which `dropped_changes` were too many. `dead_letters` are dead letters that the driver is to put, since the task could not.
    `conflicts` are fragments that another writer was faster at, `retries` writes that were made again, `isolated`
    fragments that could not be committed. Seconds are those of all tasks together.
    `decrypted` and `undecrypted` are records that arrived encrypted; `decrypt_seconds`, which are part of
    `map_seconds`, is how long the stages waited for them.
    Units are what a store charges for, of DynamoDB its capacity; none where it charges nothing.
    `erased` are events, and changes that were on their way at an erasure, which a tombstone refused; `refused` the
    fragments of these that have a data key.
    """

    files: int = 0
    file_bytes: int = 0
    events: int = 0
    bytes: int = 0
    skipped: int = 0
    protected: int = 0
    decrypted: int = 0
    undecrypted: int = 0
    decrypt_retries: int = 0
    dead: dict[str, int] = {}
    set_aside: list[SetAside] = []
    changes: list[ReportedChange] = []
    written: int = 0
    unchanged: int = 0
    conflicts: int = 0
    retries: int = 0
    isolated: int = 0
    unindexed: int = 0
    erased: int = 0
    dropped_changes: int = 0
    decrypt_seconds: float = 0.0
    map_seconds: float = 0.0
    commit_seconds: float = 0.0
    index_seconds: float = 0.0
    read_units: float = 0.0
    write_units: float = 0.0
    dead_letters: list[DeadLetter] = []
    refused: list[str] = []

    def add(self, other: StageReport) -> None:
        """Add another report's counts to this one's."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for reason, count in other.dead.items():
            self.dead[reason] = self.dead.get(reason, 0) + count
        self.set_aside.extend(other.set_aside[: MAX_REPORTED_DEAD_LETTERS - len(self.set_aside)])
        reported = other.changes[: MAX_REPORTED_CHANGES - len(self.changes)]
        self.dropped_changes += len(other.changes) - len(reported)
        self.changes.extend(reported)
        self.dead_letters.extend(other.dead_letters)
        self.refused.extend(other.refused)

    def schema_changes(self) -> list[SchemaChange]:
        """The schema changes as model values."""
        return [
            SchemaChange(
                path=change.path,
                data_type=DataType(change.data_type),
                source=change.source,
                first_event=change.first_event,
                proposal=None if change.proposal is None else Proposal.model_validate_json(change.proposal),
            )
            for change in self.changes
        ]

    def dead_letter_count(self) -> int:
        """Dead letters of all reasons."""
        return sum(self.dead.values())


_NUMBERS = tuple(
    name
    for name in StageReport.__struct_fields__
    if name not in ("dead", "set_aside", "changes", "dead_letters", "refused")
)


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
