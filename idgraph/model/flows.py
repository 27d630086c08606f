"""Flows as somebody beside them sees them: what each one last reported of itself, who paused it, and which sources wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from idgraph.model.errors import StoreError
from idgraph.model.snapshots import MetadataSnapshot, pattern_matches

if TYPE_CHECKING:
    from idgraph.model.shared_documents import SharedDocuments
    from idgraph.model.sources import SourceConfig

Document = TypeVar("Document", bound=BaseModel)


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


_HELD = "held"
_WAITS, _AGAIN = ".json", ".again"


def specs_for(snapshot: MetadataSnapshot, source: SourceConfig) -> tuple[str, ...]:
    """The active specs that may map events of a configured source, as `NAME@VERSION`."""
    place = source.source
    name = source.name if place is None else None if place.const is None else str(place.const)
    found = (spec for spec in snapshot.specs if name is None or pattern_matches(spec.source, name))
    return tuple(sorted(str(spec.ref) for spec in found))


class HeldSources:
    """The sources of one flow that wait: each has failed beyond the limit of dead letters, and the others flow on. The flow holds,
    others only let be tried again.

    The shared document `FLOW/held/SOURCE.json` says why. To have the source tried again, it becomes
    `FLOW/held/SOURCE.again`, which stays until the flow has taken some of the source again. So a hold outlives the flow
    and its crashes.
    """

    def __init__(self, documents: SharedDocuments, flow: str) -> None:
        self._documents = documents
        self._folder = f"{flow}{_HELD}/"
        self._is_new = False
        self.waiting: dict[str, SourceHold] = {}
        """Those that the running query leaves out, by source."""
        self.tried_again: dict[str, SourceHold] = {}
        """Those that it takes again, and has not taken any record of yet."""

    def holds(self) -> list[SourceHold]:
        """The sources that wait now, by name. Raises StoreError."""
        return [hold for _, hold in sorted(self._read(_WAITS).items())]

    def load(self, sources: Collection[str]) -> None:
        """Load the sources that the next query leaves out, and those that it takes again. A source that is configured
        no more is taken again, too. Raises StoreError."""
        for name in self._read(_WAITS).keys() - sources:
            self.try_again(name)
        self.waiting = self._read(_WAITS)
        self.tried_again = {
            name: each for name, each in self._read(_AGAIN).items() if name not in self.waiting
        }
        self._is_new = False

    def hold(self, hold: SourceHold) -> None:
        """Let a source wait from now on. Durable when it returns. Raises StoreError."""
        self._documents.write(self._name(hold.source, _WAITS), hold.model_dump_json().encode())
        self._documents.remove(self._name(hold.source, _AGAIN))
        self._is_new = True

    def try_again(self, source: str) -> bool:
        """Let a source be taken again. False if it does not wait. Raises StoreError."""
        hold = self._documents.read(self._name(source, _WAITS))
        if hold is None:
            return False
        # One that has both waits still.
        self._documents.write(self._name(source, _AGAIN), hold)
        return self._documents.remove(self._name(source, _WAITS))

    def follow(self, snapshot: MetadataSnapshot, sources: Mapping[str, SourceConfig]) -> list[str]:
        """Let those be tried again for which other specs are in force than when they failed; returns their names."""
        changed = [
            name
            for name, hold in self._read(_WAITS).items()
            if name in sources and specs_for(snapshot, sources[name]) != hold.specs
        ]
        return [name for name in changed if self.try_again(name)]

    def let_go(self, sources: Collection[str]) -> None:
        """The checkpoint is as the next query of these sources is to find it: sources that are configured no more are
        forgotten. Raises StoreError."""
        for name in self.tried_again.keys() - sources:
            self.was_taken(name)

    def was_taken(self, source: str) -> None:
        """Some of a source that is tried again was taken. Raises StoreError."""
        self.tried_again.pop(source, None)
        self._documents.remove(self._name(source, _AGAIN))

    def is_new(self) -> bool:
        """Whether a source waits that the running query does not leave out."""
        return self._is_new

    def has_changed(self) -> bool:
        """Whether the running query should be another: some source waits that did not, or the other way round."""
        return self._is_new or any(
            self._documents.read(self._name(each, _WAITS)) is None for each in self.waiting
        )

    def _name(self, source: str, suffix: str) -> str:
        return f"{self._folder}{source}{suffix}"

    def _read(self, suffix: str) -> dict[str, SourceHold]:
        found = {}
        for name in self._documents.names(f"{self._folder}*{suffix}"):
            hold = _read(self._documents, name, SourceHold)
            if hold is not None:
                found[name.removeprefix(self._folder).removesuffix(suffix)] = hold
        return found


class Flows:
    """The flows of one installation, as all of its processes see them. All may raise StoreError."""

    def __init__(self, documents: SharedDocuments) -> None:
        self._documents = documents

    def names(self) -> list[str]:
        """Flows that have run here, by name."""
        return [each.split("/")[1] for each in self._documents.names(_report("*"))]

    def report(self, name: str) -> FlowReport | None:
        """The last report of a flow; None where it never did."""
        return _read(self._documents, _report(name), FlowReport)

    def write(self, report: FlowReport) -> None:
        """Take the place of the flow's last report."""
        self._documents.write(_report(report.name), report.model_dump_json().encode(), durable=False)

    def pause_of(self, name: str) -> FlowPause | None:
        """The request that paused a flow; None while it may run."""
        return _read(self._documents, _pause(name), FlowPause)

    def is_paused(self, name: str) -> bool:
        """Also by a document that cannot be understood: somebody wanted it to pause."""
        return self._documents.read(_pause(name)) is not None

    def pause(self, name: str, pause: FlowPause) -> bool:
        """Let it begin no further micro-batch, also when it starts again. False if it is paused already."""
        return self._documents.add(_pause(name), pause.model_dump_json().encode())

    def resume(self, name: str) -> bool:
        """Let it go on. False if it was not paused."""
        return self._documents.remove(_pause(name))

    def held(self, name: str) -> HeldSources:
        """The sources that a flow lets wait."""
        return HeldSources(self._documents, f"flows/{name}/")


def _report(name: str) -> str:
    return f"flows/{name}/report.json"


def _pause(name: str) -> str:
    return f"flows/{name}/paused.json"


def _read(documents: SharedDocuments, name: str, kind: type[Document]) -> Document | None:
    content = documents.read(name)
    try:
        return None if content is None else kind.model_validate_json(content)
    except ValidationError:
        raise StoreError(f"{name}: is damaged, or of another version of idgraph") from None
