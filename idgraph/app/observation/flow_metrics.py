"""The metrics of a flow, in Prometheus' text format.

Counters are the sums of micro-batches' reports (`ingestion.stages.outcomes`): nothing is counted a second
time. They are of this process and begin at 0 with it, as Prometheus expects. No label holds a value of an
event.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from idgraph.model.errors import IdgraphError
from ingestion.stages.outcomes import BatchReport, StageReport

COUNTERS: dict[str, tuple[str, str]] = {
    "files": ("files", "Files read to their end."),
    "file_bytes": ("file_bytes", "Bytes of these files on disk."),
    "events": ("events", "Records read, good and bad."),
    "bytes": ("event_bytes", "Bytes of these records."),
    "skipped": ("events_skipped", "Events that mapped to nothing."),
    "erased": ("events_erased", "Events and changes that a tombstone refused."),
    "dropped_changes": (
        "schema_changes_dropped",
        "New attributes and types beyond the limit of one micro-batch.",
    ),
    "protected": ("values_sealed", "Sealed values."),
    "decrypted": ("records_decrypted", "Records that arrived encrypted and were decrypted."),
    "undecrypted": ("records_undecrypted", "Records that arrived encrypted and were not decrypted."),
    "decrypt_retries": ("decryption_retries", "Retried requests to a decryption service."),
    "written": ("fragments_written", "Fragments that changed and were written."),
    "unchanged": ("fragments_unchanged", "Fragments that were read and did not change."),
    "isolated": ("fragments_isolated", "Fragments that could not be committed."),
    "conflicts": ("commit_conflicts", "Fragments that another writer changed first."),
    "retries": ("commit_retries", "Repeated writes."),
    "read_units": ("store_read_units", "Capacity units of DynamoDB for reads."),
    "write_units": ("store_write_units", "Capacity units of DynamoDB for writes."),
}
"""By field of the report: name, to which `idgraph_` and `_total` belong, and help."""

STAGES = ("decrypt", "map", "commit")
"""Each has a field `STAGE_seconds` in the report; `decrypt` is a part of `map`."""

BATCH_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class PartitionLag(NamedTuple):
    """The number of offsets of a partition that are not taken yet, and the seconds since the first of them was published."""

    topic: str
    partition: int
    lag: int
    seconds: float | None = None


class Gauges(NamedTuple):
    """The questions of each scrape. All may raise IdgraphError, and are left out then; so are answers of
    None."""

    snapshot_version: Callable[[], int]
    snapshot_age: Callable[[], float]
    outbox: Callable[[], int | None]
    projection_lag: Callable[[], float | None]
    dead_letters: Callable[[], Mapping[str, int]]
    lag: Callable[[], list[PartitionLag]]
    is_ready: Callable[[], bool]
    is_paused: Callable[[], bool]
    held: Callable[[], Collection[str]]
    input_lag: Callable[[], float]
    heap: Callable[[], Collection[tuple[int, int]]]
    """The bytes of Java's heap: used, and at most. None before Spark runs."""
    disk: Callable[[], tuple[int, int]]
    """The bytes of the directory's disk: free, and all."""


class FlowMetrics(Collector):
    """The metrics of one flow in this process. Safe for several threads."""

    def __init__(
        self, flow: str, sources: Collection[str], gauges: Gauges, seen: Mapping[str, float]
    ) -> None:
        """`seen` has the time of the last event of a source before this process, in seconds since 1970."""
        self._flow = flow
        self._seen = dict(seen)
        self._sources = sources
        self._gauges = gauges
        self._total = StageReport()
        self._batches = self._retried = 0
        self._last_batch = 0.0
        self._lock = threading.Lock()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._seconds = Histogram(
            "idgraph_batch_seconds",
            "From the start of a micro-batch to its end.",
            ["flow"],
            buckets=BATCH_SECONDS,
            registry=self.registry,
        )
        self._seconds.labels(flow)
        self.registry.register(self)

    def add(self, report: BatchReport, ended: float) -> None:
        """Add a finished micro-batch; `ended` in seconds since 1970."""
        with self._lock:
            self._total.add(report.counts)
            self._total.changes.clear()
            self._total.sights.clear()
            self._batches += 1
            self._retried += report.attempts - 1
            self._last_batch = ended
            self._seen |= dict.fromkeys(report.counts.sources, ended)
        self._seconds.labels(self._flow).observe(report.seconds)

    def collect(self) -> Iterator[Metric]:
        """The present metrics."""
        yield from self._counters()
        failed = GaugeMetricFamily(
            "idgraph_scrape_failed", "1 where something could not be asked for.", labels=["flow", "what"]
        )
        for what, family in (
            ("snapshot", self._snapshot),
            ("outbox", self._outbox),
            ("projection", self._projection),
            ("dead_letters", self._waiting),
            ("lag", self._lag),
            ("paused", self._paused),
            ("held", self._held),
            ("heap", self._heap),
            ("disk", self._disk),
        ):
            try:
                yield from family()
                failed.add_metric([self._flow, what], 0)
            except IdgraphError:
                failed.add_metric([self._flow, what], 1)
        yield failed
        is_ready = self._gauges.is_ready()
        with suppress(IdgraphError):
            is_ready = is_ready and not self._gauges.is_paused()
        yield self._gauge("idgraph_ready", "1 while the flow takes events.", is_ready)
        yield self._gauge(
            "idgraph_input_lag_seconds",
            "Since when there is input that is not readable yet; 0 while there is none.",
            self._gauges.input_lag(),
        )

    def _counters(self) -> Iterator[Metric]:
        with self._lock:
            yield self._counter("batches", "Micro-batches that were done.", self._batches)
            yield self._counter(
                "batch_retries", "Micro-batches that were retried because they failed.", self._retried
            )
            for field, (name, help_text) in COUNTERS.items():
                yield self._counter(name, help_text, getattr(self._total, field))
            seconds = CounterMetricFamily(
                "idgraph_stage_seconds",
                "Time of all tasks together, by stage.",
                labels=["flow", "stage"],
            )
            for stage in STAGES:
                seconds.add_metric([self._flow, stage], getattr(self._total, f"{stage}_seconds"))
            yield seconds
            dead_letters = CounterMetricFamily(
                "idgraph_dead_letters", "New dead letters.", labels=["flow", "reason"]
            )
            for reason, count in self._total.dead.items():
                dead_letters.add_metric([self._flow, reason], count)
            yield dead_letters
            yield from self._of_sources()
            if self._last_batch:
                yield self._gauge(
                    "idgraph_last_batch_timestamp_seconds",
                    "Time at which the last micro-batch ended.",
                    self._last_batch,
                )

    def _of_sources(self) -> Iterator[Metric]:
        events = CounterMetricFamily(
            "idgraph_source_events", "Records read of a source, good and bad.", labels=["flow", "source"]
        )
        for source in self._sources:
            events.add_metric([self._flow, source], self._total.sources.get(source, 0))
        yield events
        dead_letters = CounterMetricFamily(
            "idgraph_source_dead_letters",
            "New dead letters of a source.",
            labels=["flow", "source", "reason"],
        )
        for source in self._sources:
            for reason, count in self._total.dead_of.get(source, {}).items():
                dead_letters.add_metric([self._flow, source, reason], count)
        yield dead_letters

        last = GaugeMetricFamily(
            "idgraph_source_last_event_timestamp_seconds",
            "Time at which the last micro-batch with an event of a source ended.",
            labels=["flow", "source"],
        )
        for source in self._sources:
            if source in self._seen:
                last.add_metric([self._flow, source], self._seen[source])
        yield last

    def _heap(self) -> Iterator[Metric]:
        for used, most in self._gauges.heap():
            yield self._gauge(
                "idgraph_jvm_heap_used_bytes", "Used bytes of the heap of Spark's driver.", used
            )
            yield self._gauge("idgraph_jvm_heap_max_bytes", "The most that this heap may have.", most)

    def _paused(self) -> Iterator[Metric]:
        is_paused = self._gauges.is_paused()
        yield self._gauge("idgraph_paused", "1 while somebody has paused the flow.", is_paused)

    def _disk(self) -> Iterator[Metric]:
        free, size = self._gauges.disk()
        yield self._gauge("idgraph_disk_free_bytes", "Free bytes of the disk of the directory.", free)
        yield self._gauge("idgraph_disk_size_bytes", "All bytes of that disk.", size)

    def _held(self) -> Iterator[Metric]:
        held = self._gauges.held()
        waits = GaugeMetricFamily(
            "idgraph_source_held",
            "1 while a source waits for too many dead letters.",
            labels=["flow", "source"],
        )
        for source in self._sources:
            waits.add_metric([self._flow, source], source in held)
        yield waits

    def _snapshot(self) -> Iterator[Metric]:
        version, age = self._gauges.snapshot_version(), self._gauges.snapshot_age()
        yield self._gauge("idgraph_snapshot_version", "Version of the metadata snapshot in force.", version)
        yield self._gauge(
            "idgraph_snapshot_age_seconds", "Since the metadata service last said that it is the newest.", age
        )

    def _outbox(self) -> Iterator[Metric]:
        depth = self._gauges.outbox()
        if depth is not None:
            yield self._gauge(
                "idgraph_outbox_entries", "Profiles that wait for the index, counted to 10,000.", depth
            )

    def _projection(self) -> Iterator[Metric]:
        lag = self._gauges.projection_lag()
        if lag is not None:
            yield self._gauge(
                "idgraph_projection_lag_seconds",
                "Since when profiles are committed and not searchable; 0 while all are.",
                lag,
            )

    def _waiting(self) -> Iterator[Metric]:
        waiting = GaugeMetricFamily(
            "idgraph_dead_letters_waiting", "Stored dead letters.", labels=["flow", "reason"]
        )
        for reason, count in self._gauges.dead_letters().items():
            waiting.add_metric([self._flow, reason], count)
        yield waiting

    def _lag(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "idgraph_source_lag_records",
            "Offsets of a Kafka partition, or about as many messages of a Pulsar partition, that are not taken yet.",
            labels=["flow", "topic", "partition"],
        )
        seconds = GaugeMetricFamily(
            "idgraph_source_lag_seconds",
            "Since when the first message of a Pulsar partition waits that is not taken yet; 0 without one.",
            labels=["flow", "topic", "partition"],
        )
        for each in self._gauges.lag():
            labels = [self._flow, each.topic, str(each.partition)]
            lag.add_metric(labels, each.lag)
            if each.seconds is not None:
                seconds.add_metric(labels, each.seconds)
        yield lag
        yield seconds

    def _counter(self, name: str, help_text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"idgraph_{name}", help_text, labels=["flow"])
        family.add_metric([self._flow], value)
        return family

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, help_text, labels=["flow"])
        family.add_metric([self._flow], value)
        return family
