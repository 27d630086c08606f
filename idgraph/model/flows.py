"""Flows as somebody beside them sees them: what each one last reported of itself, and who paused it."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field


class FlowState(StrEnum):
    """The state that a flow reports. One that was killed said `running` last (`FlowReport.is_silent`)."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


class StageRate(BaseModel):
    """The work of a stage per second of the window. `seconds_each` is the time that one unit took, of all tasks
    together."""

    model_config = ConfigDict(frozen=True)

    stage: str
    unit: str = Field(description="The counted things, in the plural.")
    per_second: float
    seconds_each: float | None = None


class Straggler(BaseModel):
    """A partition with waiting records, and the time for which the first of them waits; null where nobody says."""

    model_config = ConfigDict(frozen=True)

    partition: str
    waiting: int
    seconds: float | None = None


class FlowSource(BaseModel):
    """One source. `waiting` counts records in topics that are not taken yet; null where it is not known."""

    model_config = ConfigDict(frozen=True)

    name: str
    per_second: float
    waiting: int | None = None
    straggler: Straggler | None = Field(
        default=None, description="The partition in which most waits, by time if it is known."
    )
    falls_behind: bool = Field(
        default=False,
        description="Whether more arrives than the flow takes: in the last 30 s more waited than ever before.",
    )
    last_event_ms: int | None = Field(
        default=None, description="End of the last micro-batch with an event of it, in epoch milliseconds."
    )


class LastBatch(BaseModel):
    """The micro-batch that ended last."""

    model_config = ConfigDict(frozen=True)

    number: int
    events: int
    seconds: float
    ended_ms: int


class FlowMoment(BaseModel):
    """The figures of a flow as they stood at a moment; `waiting` is of all sources."""

    model_config = ConfigDict(frozen=True)

    at_ms: int
    events_per_second: float
    set_aside_per_second: float
    commit_seconds_p99: float | None
    waiting: int | None


SILENT_SECONDS = 10.0
"""A flow reports each second."""


class FlowReport(BaseModel):
    """A flow's report, which it writes each second while it runs. Rates are of the latest `window_seconds`. No value
    of an event is in it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    state: FlowState
    started_ms: int
    written_ms: int
    window_seconds: float
    events_per_second: float
    commit_seconds_p99: float | None = Field(
        description="Time from the start of a micro-batch until its events are readable, for 99 of 100 events."
    )
    projection_lag_seconds: float | None = Field(
        description="Age of the oldest readable change that is not searchable; 0 without one. Null: another process indexes."
    )
    set_aside_per_second: float
    set_aside_share: float = Field(description="The share of the window's events that were set aside.")
    set_aside_limit: float = Field(description="The share of a source's events at which the source waits.")
    set_aside_reasons: dict[str, int]
    snapshot_version: int
    snapshot_age_seconds: float | None = Field(
        description="Time since the metadata service last confirmed the snapshot as the newest; null if it never did."
    )
    last_batch: LastBatch | None
    stages: list[StageRate]
    sources: list[FlowSource]
    history: list[FlowMoment] = Field(
        default=[], description="The latest 20 minutes, one entry for 15 seconds, the oldest first."
    )
    problem: str | None = Field(default=None, description="The kind of the error that ended a failed flow.")
    taken: dict[str, dict[int, int]] = Field(
        default={},
        description="From topics, where other machines see the report: the offset after the last record of a finished "
        "micro-batch, by topic and partition.",
    )

    def age_seconds(self, now: float) -> float:
        """Seconds since it was written; `now` in seconds since 1970."""
        return max(0.0, now - self.written_ms / 1000)

    def is_silent(self, now: float) -> bool:
        """Whether the flow should have reported since: it was killed, or does not get on."""
        has_ended = self.state in (FlowState.STOPPED, FlowState.FAILED)
        return not has_ended and self.age_seconds(now) > SILENT_SECONDS


class FlowPause(BaseModel):
    """A request to pause a flow, with person and reason."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    who: str
    why: str
    at_ms: int


class SourceHold(BaseModel):
    """A source of a flow that waits while the others flow on: too many of its records became dead letters. Its
    records since micro-batch `batch`, which it is no longer part of, stay at the source."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    source: str
    why: str = Field(
        description="The number of its records that became dead letters, and the most frequent reason."
    )
    at_ms: int
    batch: int = Field(description="Number of the micro-batch that it failed in.")
    batch_name: str = Field(description="Its name, as dead letters show it.")
    specs: tuple[str, ...] = Field(
        description="The mapping specs that were in force for it. With other specs in force, it is tried again."
    )
    offsets: dict[str, dict[int, int]] = Field(
        default={}, description="From topics: the offsets at which it goes on, by topic and partition."
    )

    def is_of(self, query: str | None) -> bool:
        """Whether `batch` and `offsets` are those of the checkpoint of this query."""
        return self.batch_name.split("/")[-2:-1] == [query]


class Flows(Protocol):
    """The flows of one folder. All may raise StoreError."""

    def names(self) -> list[str]:
        """Flows that have run here, by name."""
        ...

    def report(self, name: str) -> FlowReport | None:
        """The last report of a flow; None where it never did."""
        ...

    def pause_of(self, name: str) -> FlowPause | None:
        """The request that paused a flow; None while it may run."""
        ...

    def pause(self, name: str, pause: FlowPause) -> bool:
        """Let it begin no further micro-batch, also when it starts again. False if it is paused already."""
        ...

    def resume(self, name: str) -> bool:
        """Let it go on. False if it was not paused."""
        ...

    def holds_of(self, name: str) -> list[SourceHold]:
        """The sources that a flow lets wait, by name."""
        ...

    def try_again(self, name: str, source: str) -> bool:
        """Let a flow take a source again that waits. False if it does not wait."""
        ...
