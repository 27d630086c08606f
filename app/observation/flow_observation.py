"""Metrics and health of the flow that runs in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from app.observation.http_server import Page, serving, verdict
from ingestion.kafka_configuration import kafka_sources
from model.errors import ConfigError

if TYPE_CHECKING:
    from app.observation.flow_metrics import PartitionLag
    from app.settings import Settings
    from ingestion.outcomes import BatchReport
    from ingestion.snapshots import SnapshotFollower
    from ingestion.workers import WorkerResources

OUTBOX_COUNTED = 10_000
"""More of the outbox is not looked at."""


@contextmanager
def observed(
    settings: Settings,
    resources: WorkerResources,
    snapshots: SnapshotFollower,
    waiting: Callable[[], Mapping[str, int]],
    is_ready: Callable[[], bool],
    on_batch: Callable[[BatchReport], None],
) -> Iterator[Callable[[BatchReport], None]]:
    """Serve metrics and health while the block runs, if `[metrics] port` says so; gives what is to be told of
    micro-batches, which tells `on_batch`. `waiting` gives what is not taken yet of each partition. Raises ConfigError."""
    if settings.metrics.port is None:
        yield on_batch
        return
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        from app.observation.flow_metrics import FlowMetrics, Gauges
    except ModuleNotFoundError:
        raise ConfigError(
            "[metrics] port needs prometheus_client; install it with `pip install idgraph[metrics]`"
        ) from None
    with ExitStack() as stack:
        gauges = Gauges(
            lambda: snapshots.current().snapshot.version,
            snapshots.age,
            lambda: len(resources.store.outbox(OUTBOX_COUNTED)),
            resources.dead_letters.counts,
            _lag(settings, waiting, stack),
            is_ready,
        )
        metrics = FlowMetrics(settings.flow.name, gauges)

        def tell(report: BatchReport) -> None:
            metrics.add(report, time.time())
            on_batch(report)

        pages = {
            "/metrics": lambda: Page(200, CONTENT_TYPE_LATEST, generate_latest(metrics.registry)),
            "/health/live": lambda: verdict(True),
            "/health/ready": lambda: verdict(is_ready()),
        }
        stack.enter_context(serving(settings.metrics.host, settings.metrics.port, pages))
        yield tell


def _lag(
    settings: Settings, waiting: Callable[[], Mapping[str, int]], stack: ExitStack
) -> Callable[[], list[PartitionLag]]:
    from app.observation.flow_metrics import PartitionLag
    from app.observation.kafka_lag import LagWatch

    if not kafka_sources(settings.sources_by_name()):
        return list

    def ask() -> list[PartitionLag]:
        # No name of a topic has a slash.
        named = ((name.rpartition("/"), count) for name, count in waiting().items())
        return [PartitionLag(topic, int(partition), count) for (topic, _, partition), count in named]

    return stack.enter_context(LagWatch(ask)).latest
