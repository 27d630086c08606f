"""The metrics of a flow, in Prometheus' text format.

Counters are the sums of micro-batches' reports (`ingestion.stages.outcomes`): nothing is counted a second
time. They are of this process and begin at 0 with it, as Prometheus expects. No label holds a value of an
event.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from idgraph.model.errors import IdgraphError
from idgraph.web.metrics import Gauge
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


class FlowMetrics(Collector):
    """The metrics of one flow in this process. Safe for several threads."""

    def __init__(
        self,
        flow: str,
        sources: Collection[str],
        gauges: Mapping[str, Mapping[str, Gauge]],
        seen: Mapping[str, float],
    ) -> None:
        """`gauges` are read at each scrape: by what they ask, then by name. Those of one question are left out together where one
        raises IdgraphError. `seen` has the time of the last event of a source before this process, in seconds since 1970."""
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
        for what, gauges in self._gauges.items():
            try:
                values = {name: gauge.read() for name, gauge in gauges.items()}
            except IdgraphError:
                failed.add_metric([self._flow, what], 1)
                continue
            failed.add_metric([self._flow, what], 0)
            for name, value in values.items():
                if value is not None:
                    yield self._gauge(name, gauges[name].meaning, value, gauges[name].labels)
        yield failed

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
                    "last_batch_timestamp_seconds",
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

        yield self._gauge(
            "source_last_event_timestamp_seconds",
            "Time at which the last micro-batch with an event of a source ended.",
            {(source,): self._seen[source] for source in self._sources if source in self._seen},
            ("source",),
        )

    def _counter(self, name: str, help_text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"idgraph_{name}", help_text, labels=["flow"])
        family.add_metric([self._flow], value)
        return family

    def _gauge(
        self,
        name: str,
        help_text: str,
        value: float | Mapping[tuple[str, ...], float],
        labels: tuple[str, ...] = (),
    ) -> Metric:
        family = GaugeMetricFamily(f"idgraph_{name}", help_text, labels=["flow", *labels])
        for each, number in (value if isinstance(value, Mapping) else {(): value}).items():
            family.add_metric([self._flow, *each], number)
        return family
