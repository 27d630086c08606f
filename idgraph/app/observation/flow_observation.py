"""Metrics and health of the flow in this process over HTTP."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from idgraph.app.adapters.shared_state import is_embedded
from idgraph.model.backoff import steady
from idgraph.model.errors import IdgraphError, StoreError
from idgraph.model.topics import Behind, topic_sources
from idgraph.repeating import Repeating, message_of

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.dead_letters import DeadLetters
    from idgraph.model.flows import Flows
    from idgraph.model.store import Outbox
    from idgraph.projection.runner import ProjectionRunner
    from ingestion.metadata.follower import SnapshotFollower
    from ingestion.spark.workers import WorkerResources
    from ingestion.stages.outcomes import BatchReport


T = TypeVar("T")


class RunningQuery(Protocol):
    """What is asked of a flow's query, at any time and from any thread."""

    def is_ready(self) -> bool: ...
    def lag_seconds(self) -> float: ...
    def heap_bytes(self) -> tuple[int, int]:
        """Raises SparkStoppedError."""
        ...


EARLY_SECONDS = 1.0
"""Before there is anything to report: Spark starts, nothing was taken yet."""

_ENDING_SECONDS = 2.0


class Watch(Generic[T]):
    """Asks every `seconds` on a thread of its own, every EARLY_SECONDS while the answer is `nothing`. Use as a context
    manager."""

    def __init__(self, ask: Callable[[], T], nothing: T, seconds: float) -> None:
        self._ask = ask
        self._nothing = nothing
        self._seconds = seconds
        self._latest: T | IdgraphError = nothing
        self._repeating = Repeating("watch", self._step, self._keep, backoff=steady(seconds))

    def __enter__(self) -> Watch[T]:
        self._repeating.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        # The resources that it asks are closed next.
        self._repeating.close(_ENDING_SECONDS)

    def latest(self) -> T:
        """The last answer, `nothing` before the first one. Raises the error of the last question."""
        if isinstance(self._latest, IdgraphError):
            raise self._latest.with_traceback(None)
        return self._latest

    def _step(self) -> float:
        self._latest = self._ask()
        return EARLY_SECONDS if self._latest == self._nothing else self._seconds

    def _keep(self, error: Exception) -> None:
        self._latest = error if isinstance(error, IdgraphError) else IdgraphError(message_of(error))


OUTBOX_COUNTED = 10_000
"""More of the outbox is not looked at. DynamoDB may read as many from each of its sixteen shards."""


class Stops(NamedTuple):
    """What stops a flow: somebody paused it, or these sources wait."""

    is_paused: bool
    held: list[str]


OUTBOX_SECONDS = 60.0
LAG_SECONDS = 15.0


@contextmanager
def observed(
    settings: Settings,
    flows: Flows,
    resources: WorkerResources,
    snapshots: SnapshotFollower,
    projection: ProjectionRunner | None,
    waiting: Callable[[], Mapping[str, Behind]],
    running: Sequence[RunningQuery],
    on_batch: Callable[[BatchReport], None],
) -> Iterator[Callable[[BatchReport], None]]:
    """Serve metrics and health while the block runs, if `[metrics] port` says so; gives the callback for finished
    micro-batches, which also calls `on_batch`. `waiting` gives the number of records of each partition that are not
    taken yet; `running` has the query while it runs. Raises ConfigError."""
    if settings.metrics.port is None:
        yield on_batch
        return
    from idgraph.app.observation.flow_metrics import FlowMetrics
    from idgraph.web.metrics import Gauge, observation
    from idgraph.web.server import Transport, serving

    name, sources = settings.flow.name, list(settings.sources_by_name())

    def is_ready() -> bool:
        return any(each.is_ready() for each in running)

    def disk() -> tuple[int, int, int]:
        """All bytes, used and free ones."""
        try:
            return shutil.disk_usage(settings.directory)
        except OSError as error:
            raise StoreError(f"{settings.directory}: {error.strerror}") from None

    def stops() -> Stops:
        return Stops(flows.is_paused(name), [each.source for each in flows.held(name).holds()])

    with ExitStack() as stack:
        stopped = stops
        letters: Callable[[], Mapping[str, int]] = resources.dead_letters.counts
        if not is_embedded(settings):
            # Not at each request: a store that is away must hold up none, and each look is charged for.
            stopped = stack.enter_context(Watch(stops, Stops(False, []), EARLY_SECONDS)).latest
            letters = _counted(resources.dead_letters, stack)

        def detail() -> dict[str, Any]:
            with suppress(IdgraphError):
                is_paused, waiting = stopped()
                return ({"paused": True} if is_paused else {}) | ({"held": waiting} if waiting else {})
            return {}

        def takes_events() -> bool:
            with suppress(IdgraphError):
                return is_ready() and not stopped().is_paused
            return is_ready()

        def heap(part: int) -> float | None:
            return running[0].heap_bytes()[part] if running else None

        lag = _lag(settings, waiting, stack)
        gauges = {
            "snapshot": {
                "snapshot_version": Gauge(
                    "Version of the metadata snapshot in force.", lambda: snapshots.current().snapshot.version
                ),
                "snapshot_age_seconds": Gauge(
                    "Since the metadata service last said that it is the newest.", snapshots.age
                ),
            },
            "outbox": {
                "outbox_entries": Gauge(
                    "Profiles that wait for the index, counted to 10,000.", _outbox(resources.store, stack)
                )
            },
            "projection": {
                "projection_lag_seconds": Gauge(
                    "Since when profiles are committed and not searchable; 0 while all are.",
                    lambda: projection.lag_seconds() if projection else None,
                )
            },
            "dead_letters": {
                "dead_letters_waiting": Gauge(
                    "Stored dead letters.", lambda: _labelled(letters()), ("reason",)
                )
            },
            "lag": {
                "source_lag_records": Gauge(
                    "Offsets of a Kafka partition, or about as many messages of a Pulsar partition, that are not taken yet.",
                    lambda: {part: each.records for part, each in lag().items()},
                    ("topic", "partition"),
                ),
                "source_lag_seconds": Gauge(
                    "Since when the first message of a Pulsar partition waits that is not taken yet; 0 without one.",
                    lambda: {part: each.seconds for part, each in lag().items() if each.seconds is not None},
                    ("topic", "partition"),
                ),
            },
            "paused": {"paused": Gauge("1 while somebody has paused the flow.", lambda: stopped().is_paused)},
            "held": {
                "source_held": Gauge(
                    "1 while a source waits for too many dead letters.",
                    lambda: _labelled({each: each in stopped().held for each in sources}),
                    ("source",),
                )
            },
            "heap": {
                "jvm_heap_used_bytes": Gauge("Used bytes of the heap of Spark's driver.", lambda: heap(0)),
                "jvm_heap_max_bytes": Gauge("The most that this heap may have.", lambda: heap(1)),
            },
            "disk": {
                "disk_free_bytes": Gauge("Free bytes of the disk of the directory.", lambda: disk()[2]),
                "disk_size_bytes": Gauge("All bytes of that disk.", lambda: disk()[0]),
            },
            "flow": {
                "ready": Gauge("1 while the flow takes events.", takes_events),
                "input_lag_seconds": Gauge(
                    "Since when there is input that is not readable yet; 0 while there is none.",
                    lambda: max((each.lag_seconds() for each in running), default=0.0),
                ),
            },
        }
        metrics = FlowMetrics(name, sources, gauges, _seen(flows, name))

        def show_report(report: BatchReport) -> None:
            metrics.add(report, time.time())
            on_batch(report)

        app = observation(metrics.registry, is_ready, detail)
        # Neither holds what a person may not see, and a monitoring system asks from another machine.
        transport = Transport(allow_plain_http=True)
        stack.enter_context(
            serving(app, settings.metrics.host, settings.metrics.port, transport, name="[metrics]:")
        )
        yield show_report


def _seen(flows: Flows, name: str) -> dict[str, float]:
    """When the sources' last events came before this start."""
    try:
        before = flows.report(name)
    except IdgraphError:
        return {}
    sources = before.sources if before else ()
    return {each.name: each.last_event_ms / 1000 for each in sources if each.last_event_ms is not None}


def _counted(dead_letters: DeadLetters, stack: ExitStack) -> Callable[[], Mapping[str, int]]:
    def ask() -> Mapping[str, int] | None:
        return dead_letters.counts()

    latest = stack.enter_context(Watch(ask, None, OUTBOX_SECONDS)).latest
    return lambda: latest() or {}


def _outbox(store: Outbox, stack: ExitStack) -> Callable[[], int | None]:
    def ask() -> int | None:
        return len(store.outbox(OUTBOX_COUNTED))

    # Not at each scrape: a store that is away must hold up none, and each look is charged for.
    return stack.enter_context(Watch(ask, None, OUTBOX_SECONDS)).latest


def _lag(
    settings: Settings, waiting: Callable[[], Mapping[str, Behind]], stack: ExitStack
) -> Callable[[], Mapping[tuple[str, str], Behind]]:
    """The backlog by topic and partition."""
    if not topic_sources(settings.sources_by_name()):
        return dict

    def ask() -> Mapping[tuple[str, str], Behind]:
        named = ((name.rpartition("/"), each) for name, each in waiting().items())
        return {(topic, partition): each for (topic, _, partition), each in named}

    nothing: Mapping[tuple[str, str], Behind] = {}
    return stack.enter_context(Watch(ask, nothing, LAG_SECONDS)).latest


def _labelled(counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(label,): count for label, count in counts.items()}
