"""The report that a running flow writes of itself each second, for readers in other processes."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from idgraph.app.adapters.shared_state import is_embedded
from idgraph.app.observation.flow_observation import LAG_SECONDS, Watch
from idgraph.app.settings.document import Settings
from idgraph.model.errors import IdgraphError, StoreError
from idgraph.model.flows import (
    FlowMoment,
    FlowReport,
    Flows,
    FlowSource,
    FlowState,
    LastBatch,
    StageRate,
    Straggler,
)
from idgraph.model.topics import Behind, TopicSource, topic_sources
from idgraph.projection.runner import ProjectionRunner
from idgraph.repeating import Outage, Repeating
from ingestion.metadata.follower import SnapshotFollower
from ingestion.sources.kafka.offsets import Offsets
from ingestion.sources.kafka.offsets import taken as taken_of
from ingestion.stages.outcomes import BatchReport, StageReport

log = logging.getLogger(__name__)

WINDOW_SECONDS = 60.0
WRITE_SECONDS = 1.0
MOMENT_SECONDS = 15.0
MOST_MOMENTS = 80


class _Ended(NamedTuple):
    at: float
    report: BatchReport


class FlowReporter:
    """Adds up the micro-batches of the latest window. Safe for several threads."""

    def __init__(
        self,
        settings: Settings,
        snapshots: SnapshotFollower,
        projection: ProjectionRunner | None,
        waiting: Callable[[], Mapping[str, Behind]],
        before: FlowReport | None,
        clock: Callable[[], float] = time.time,
        taken: Callable[[], Offsets | None] = lambda: None,
    ) -> None:
        """`waiting` returns the backlog of each part of the input. `before` is the last report of an earlier run. `taken` returns
        the offsets to report."""
        self._taken = taken
        self._settings = settings
        self._snapshots = snapshots
        self._projection = projection
        self._waiting = waiting
        self._clock = clock
        self._started = clock()
        self._ended: deque[_Ended] = deque()
        self._last = before.last_batch if before else None
        self._waits: deque[tuple[float, dict[str, int]]] = deque()
        self._seen = {each.name: each.last_event_ms for each in before.sources} if before else {}
        self._history = deque(before.history if before else (), MOST_MOMENTS)
        self._lock = threading.Lock()

    def add(self, report: BatchReport) -> None:
        """Add a finished micro-batch."""
        now, counts = self._clock(), report.counts
        at_ms = int(now * 1000)
        with self._lock:
            self._ended.append(_Ended(now, report))
            self._last = LastBatch(
                number=report.number, events=counts.events, seconds=report.seconds, ended_ms=at_ms
            )
            self._seen |= dict.fromkeys(counts.sources, at_ms)

    def report(self, state: FlowState, problem: str | None = None) -> FlowReport:
        """The present report. Raises IdgraphError while there is no snapshot."""
        now = self._clock()
        with self._lock:
            while self._ended and self._ended[0].at < now - WINDOW_SECONDS:
                self._ended.popleft()
            batches, last, seen = [each.report for each in self._ended], self._last, dict(self._seen)
        age = self._snapshots.age()
        window = max(WRITE_SECONDS, min(WINDOW_SECONDS, now - self._started))
        total, sources, dead = StageReport(), Counter[str](), Counter[str]()
        for each in batches:
            total.count(each.counts)
            sources.update(each.counts.sources)
            dead.update(each.counts.dead)
        found = FlowReport(
            name=self._settings.flow.name,
            state=state,
            started_ms=int(self._started * 1000),
            written_ms=int(now * 1000),
            window_seconds=window,
            events_per_second=total.events / window,
            commit_seconds_p99=_seconds(batches, 0.99),
            projection_lag_seconds=self._projection.lag_seconds() if self._projection else None,
            set_aside_per_second=dead.total() / window,
            set_aside_share=dead.total() / total.events if total.events else 0.0,
            set_aside_limit=self._settings.flow.dead_letters.max_rate,
            set_aside_reasons=dict(sorted(dead.items())),
            snapshot_version=self._snapshots.current().snapshot.version,
            snapshot_age_seconds=age if math.isfinite(age) else None,
            last_batch=last,
            stages=_stages(total, dead.total(), window),
            sources=self._sources(sources, seen, window),
            problem=problem,
            taken=self._taken() or {},
        )
        with self._lock:
            oldest = found.written_ms - MOST_MOMENTS * MOMENT_SECONDS * 1000
            while self._history and self._history[0].at_ms < oldest:
                self._history.popleft()
            if not self._history or found.written_ms - self._history[-1].at_ms >= MOMENT_SECONDS * 1000:
                self._history.append(_moment(found))
            return found.model_copy(update={"history": list(self._history)})

    def _sources(
        self, counts: Mapping[str, int], seen: Mapping[str, int | None], window: float
    ) -> list[FlowSource]:
        try:
            waiting = self._waiting()
        except IdgraphError:
            waiting = {}
        sources = self._settings.sources_by_name()
        parts = {name: _parts_of(each, waiting) for name, each in topic_sources(sources).items() if waiting}
        counted = {name: sum(each.records for each in found.values()) for name, found in parts.items()}
        now = self._clock()
        while self._waits and self._waits[0][0] < now - WINDOW_SECONDS:
            self._waits.popleft()
        self._waits.append((now, counted))
        return [
            FlowSource(
                name=name,
                per_second=counts.get(name, 0) / window,
                waiting=counted.get(name),
                straggler=_straggler(parts.get(name, {})),
                falls_behind=self._falls_behind(name, now),
                last_event_ms=seen.get(name),
            )
            for name in sources
        ]

    def _falls_behind(self, name: str, now: float) -> bool:
        """Whether in the newer half of the window more waited at any time than in the older one."""
        middle = now - WINDOW_SECONDS / 2
        older = [each[name] for at, each in self._waits if at < middle and name in each]
        newer = [each[name] for at, each in self._waits if at >= middle and name in each]
        is_known = len(older) > 1 and self._waits[0][0] <= middle - WINDOW_SECONDS / 4
        return is_known and min(newer, default=0) > max(older)


def _moment(report: FlowReport) -> FlowMoment:
    known = [each.waiting for each in report.sources if each.waiting is not None]
    return FlowMoment(
        at_ms=report.written_ms,
        events_per_second=round(report.events_per_second, 3),
        set_aside_per_second=round(report.set_aside_per_second, 3),
        commit_seconds_p99=report.commit_seconds_p99,
        waiting=sum(known) if known else None,
    )


def _parts_of(source: TopicSource, waiting: Mapping[str, Behind]) -> dict[str, Behind]:
    """Those of a source, by `TOPIC/PARTITION`."""
    named = ((part, part.rpartition("/")[0]) for part in waiting)
    return {part: waiting[part] for part, topic in named if topic in source.topics or source.matches(topic)}


def _straggler(parts: Mapping[str, Behind]) -> Straggler | None:
    name, most = max(
        parts.items(), key=lambda each: (each[1].seconds or 0, each[1].records), default=("", Behind(0))
    )
    return Straggler(partition=name, waiting=most.records, seconds=most.seconds) if most.records else None


def _seconds(batches: list[BatchReport], share: float) -> float | None:
    """The seconds of the micro-batch in which this share of all events had ended, the quickest first."""
    ordered = sorted((each.seconds, each.counts.events) for each in batches if each.counts.events)
    left = share * sum(events for _, events in ordered)
    for seconds, events in ordered:
        left -= events
        if left <= 0:
            return seconds
    return None


def _stages(total: StageReport, dead: int, window: float) -> list[StageRate]:
    """In the order of the data's way."""
    fragments = total.written + total.unchanged

    def rate(stage: str, unit: str, count: int, seconds: float | None = None) -> StageRate:
        each = seconds / count if seconds and count else None
        return StageRate(stage=stage, unit=unit, per_second=count / window, seconds_each=each)

    decrypted = total.decrypted + total.undecrypted
    return [
        *([rate("decrypt", "records", decrypted, total.decrypt_seconds)] if decrypted else []),
        rate("map", "events", total.events, total.map_seconds),
        rate("protect", "values", total.protected),
        rate("commit", "fragments", fragments, total.commit_seconds),
        rate("set aside", "events", dead),
    ]


@contextmanager
def reporting(
    settings: Settings,
    flows: Flows,
    snapshots: SnapshotFollower,
    projection: ProjectionRunner | None,
    waiting: Callable[[], Mapping[str, Behind]],
    is_running: Callable[[], bool],
    on_batch: Callable[[BatchReport], None],
) -> Iterator[Callable[[BatchReport], None]]:
    """Write the flow's report each second while the block runs, and its end state after it. Gives the callback for
    finished micro-batches, which also calls `on_batch`."""
    name = settings.flow.name
    outage = Outage("the flow's report")
    try:
        before = flows.report(name)
    except IdgraphError:
        before = None
    nothing: Mapping[str, Behind] = {}
    with ExitStack() as stack:
        lag: Callable[[], Mapping[str, Behind]] = lambda: nothing  # noqa: E731
        if topic_sources(settings.sources_by_name()):
            lag = stack.enter_context(Watch(waiting, nothing, LAG_SECONDS)).latest
        # Those beside the flow's directory see its checkpoint.
        taken = (
            (lambda: None)
            if is_embedded(settings)
            else partial(taken_of, settings.flow_state() / "checkpoint")
        )
        reporter = FlowReporter(settings, snapshots, projection, lag, before, taken=taken)
        was_paused = has_run = False

        def failed(error: Exception) -> None:
            outage.show_report(f"the flow's report: {type(error).__name__}", "the flow goes on")

        def write(state: FlowState, problem: str | None = None) -> None:
            try:
                flows.write(reporter.report(state, problem))
                outage.is_over()
            except StoreError as error:
                # A flow does not end because nobody can see it.
                outage.show_report(str(error), "the flow goes on")
            except IdgraphError as error:
                failed(error)

        def step() -> None:
            nonlocal was_paused, has_run
            is_paused = flows.is_paused(name)
            if is_paused and not was_paused:
                log.warning(
                    "paused: `idgraph flows show` names the person, and `idgraph flows resume %s` ends the pause",
                    name,
                )
            was_paused = is_paused
            state = FlowState.PAUSED if is_paused else FlowState.RUNNING
            # Also while it stops.
            has_run = has_run or is_running()
            write(state if has_run else FlowState.STARTING)

        def show_report(report: BatchReport) -> None:
            reporter.add(report)
            on_batch(report)

        end: tuple[FlowState, str | None] = FlowState.STOPPED, None
        try:
            with Repeating("flow-report", step, failed, pause=WRITE_SECONDS):
                yield show_report
        except Exception as error:
            # Only the type: a message may name a fragment.
            end = FlowState.FAILED, type(error).__name__
            raise
        finally:
            write(*end)
