"""How far a flow from Kafka has come, partition by partition."""

from __future__ import annotations

from typing import NamedTuple

from idgraph.app.settings.document import Settings
from idgraph.model.errors import ConfigError
from idgraph.model.kafka import kafka_sources
from ingestion.sources.kafka.offsets import taken


class PartitionState(NamedTuple):
    """`taken` is the offset after the last record of a finished micro-batch, `end` that of the partition, None while
    it cannot be asked for; `lag` counts offsets, of which some may hold no record."""

    flow: str
    topic: str
    partition: int
    taken: int
    end: int | None
    lag: int | None


def partition_states(settings: Settings) -> list[PartitionState]:
    """The partitions that the configured flow has taken from. Raises ConfigError for a flow of files, and where the
    client for Kafka is not installed."""
    if not kafka_sources(settings.sources_by_name()):
        raise ConfigError("the flow's sources are files; offsets and lag are those of topics in Kafka")
    try:
        from sinks.kafka.topics import ends
    except ModuleNotFoundError:
        from idgraph.app.package import install_command

        raise ConfigError(
            f"Kafka needs confluent-kafka; install it with `{install_command('kafka')}`"
        ) from None
    offsets = taken(settings.flow_state() / "checkpoint") or {}
    found = {
        (topic, partition): offset
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    }
    kafka = settings.kafka
    until = ends(kafka.bootstrap_servers, kafka.producer_options(), found)
    return [_state(settings.flow.name, *each, offset, until[each]) for each, offset in found.items()]


def _state(flow: str, topic: str, partition: int, offset: int, end: int | None) -> PartitionState:
    return PartitionState(flow, topic, partition, offset, end, None if end is None else max(0, end - offset))
