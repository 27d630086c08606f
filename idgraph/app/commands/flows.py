"""`idgraph flows`: how far flows have come."""

from __future__ import annotations

from typing import Any, NamedTuple

import typer

from idgraph.app.commands.context import Json, settings_of
from idgraph.app.exits import error_handler
from idgraph.app.settings.document import Settings
from idgraph.app.terminal.output import print_json, print_table
from idgraph.model.errors import ConfigError, SourceUnavailableError
from ingestion.sources.kafka.configuration import kafka_sources
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
        from sinks.kafka.ends import ends
    except ModuleNotFoundError:
        raise ConfigError(
            "Kafka needs confluent-kafka; install it with `pip install idgraph[kafka]`"
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


def flows(context: typer.Context, as_json: Json = False) -> None:
    """Show the flow's partitions in Kafka: what was taken of each, where it ends, and what is between."""

    with error_handler():
        settings = settings_of(context)
        states = partition_states(settings)
        if as_json:
            for state in states:
                print_json(state._asdict())
        else:
            titles = ("flow", "topic", "partition", "taken", "end", "lag")
            print_table(titles, [_row(state) for state in states])
        if any(state.end is None for state in states):
            servers = settings.kafka.bootstrap_servers
            raise SourceUnavailableError(
                f"Kafka at {servers} does not say where each partition ends; is it up?"
            )


def _row(state: PartitionState) -> list[str]:
    values: list[Any] = list(state)
    return ["-" if value is None else f"{value:,}" if isinstance(value, int) else value for value in values]
