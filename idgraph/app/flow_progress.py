"""Progress of flows, by the checkpoint of the configured one: exact, since a micro-batch is done when all of it is
committed. Where other machines have the checkpoints, by the reports of all flows, which are a second old."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from idgraph.app.adapters.extras import needing
from idgraph.app.adapters.inputs import open_pulsar_admin
from idgraph.app.adapters.shared_state import is_embedded, shared_flows
from idgraph.app.settings.document import Settings
from idgraph.model.errors import ConfigError, QueryError, SourceUnavailableError
from idgraph.model.flows import Flows
from idgraph.model.pulsar import message_place, pulsar_sources, written
from idgraph.model.pulsar_ledgers import Ledgers, behind
from idgraph.model.topics import topic_sources
from ingestion.sources.files.taken import files_of
from ingestion.sources.kafka.offsets import Offsets, taken


class PartitionState(NamedTuple):
    """`taken` is the offset after the last record of a finished micro-batch, `end` that of the partition, None while
    it cannot be asked for; in Pulsar they are `LEDGER/ENTRY`. `lag` counts offsets, of which some may hold no record; in Pulsar
    about how many messages, of which the first waits for `lag_seconds`."""

    flow: str
    topic: str
    partition: int
    taken: int | str
    end: int | str | None
    lag: int | None
    lag_seconds: float | None = None


def partition_states(settings: Settings) -> list[PartitionState]:
    """The partitions that flows have taken from. Raises ConfigError for a flow of files, and where the client for Kafka is
    not installed."""
    if not topic_sources(settings.sources_by_name()):
        raise ConfigError("the flow's sources are files; offsets and lag are those of topics")
    if is_embedded(settings):
        known = {settings.flow.name: taken(settings.flow_state() / "checkpoint") or {}}
    else:
        with shared_flows(settings) as flows:
            known = _reported(flows)
    found = {
        (name, topic, partition): offset
        for name, offsets in known.items()
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    }
    if pulsar_sources(settings.sources_by_name()):
        return list(_in_pulsar(settings, found))
    with needing("kafka", "Kafka needs confluent-kafka"):
        from sinks.kafka.topics import ends
    kafka = settings.kafka
    until = ends(kafka.bootstrap_servers, kafka.producer_options(), {each[1:] for each in found})
    return [_state(*each, offset, until[each[1:]]) for each, offset in found.items()]


def _in_pulsar(settings: Settings, found: dict[tuple[str, str, int], int]) -> Iterator[PartitionState]:
    with closing(open_pulsar_admin(settings.pulsar)) as admin:
        ledgers: dict[str, dict[int, Ledgers]] = {}
        for (flow, topic, partition), at in found.items():
            try:
                if topic not in ledgers:
                    ledgers[topic] = admin.ledgers(topic) or {}
                each = ledgers[topic][partition]
                lag = behind(admin, topic, partition, at, each)
            except (SourceUnavailableError, KeyError):
                yield PartitionState(flow, topic, partition, written(at), None, None)
            else:
                end = written(max(at, each.end))
                yield PartitionState(
                    flow, topic, partition, written(at), end, lag.records, round(lag.seconds or 0, 1)
                )


def _reported(flows: Flows) -> dict[str, Offsets]:
    return {name: report.taken for name in flows.names() if (report := flows.report(name))}


def _state(flow: str, topic: str, partition: int, offset: int, end: int | None) -> PartitionState:
    return PartitionState(flow, topic, partition, offset, end, None if end is None else max(0, end - offset))


_KAFKA = re.compile(r"kafka:(?P<topic>[^/]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})")
_FILE = re.compile(r"file:(?P<file>[^/]+/[^/#]+)(?:#\d+)?")
MOST_BATCHES = 100
"""Spark keeps the input of so many micro-batches."""


def committed(settings: Settings, flows: Flows) -> Callable[[str], bool]:
    """A function that returns whether a flow has committed the event at a position. It raises QueryError for a text that
    is no position, and where nothing is known of it here."""
    checkpoint = settings.flow_state() / "checkpoint"
    files: dict[int, frozenset[str]] = {}

    def has_taken_file(name: str) -> bool:
        done = [int(each.name) for each in (checkpoint / "commits").glob("*") if each.name.isdecimal()]
        newest = sorted(done, reverse=True)[:MOST_BATCHES]
        # Other threads ask too.
        for number in set(files) - set(newest):
            files.pop(number, None)
        for number in newest:
            names = files.get(number)
            if names is None:
                found = files_of(checkpoint, number)
                names = files[number] = frozenset(f"{each.parent.name}/{each.name}" for each in found)
            if name in names:
                return True
        return False

    def has_reported(position: str) -> bool:
        if _FILE.fullmatch(position):
            raise QueryError("the flow's checkpoint is not here, so this service cannot wait for a file")
        return _is_behind(position, _reported(flows).values())

    def has_committed(position: str) -> bool:
        if not checkpoint.is_dir():
            raise QueryError("the flow's checkpoint is not here, so this service cannot wait for a position")
        if found := _FILE.fullmatch(position):
            return has_taken_file(found["file"])
        return _is_behind(position, [taken(checkpoint) or {}])

    return has_committed if is_embedded(settings) else has_reported


def _is_behind(position: str, taken_by: Iterable[Offsets]) -> bool:
    """Whether one of several flows has taken the record at a position in a topic. Raises QueryError."""
    if message := message_place(position):
        topic, partition, offset = message
    elif found := _KAFKA.fullmatch(position):
        topic, partition, offset = found["topic"], int(found["partition"]), int(found["offset"])
    else:
        raise QueryError(
            "a position is kafka:TOPIC/PARTITION/OFFSET, pulsar:TOPIC-partition-N/LEDGER/ENTRY/BATCH or file:DIRECTORY/NAME"
        )
    return any(each.get(topic, {}).get(partition, 0) > offset for each in taken_by)
