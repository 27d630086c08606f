"""Topics of one Pulsar cluster as a stream: planned by the driver, read by the tasks.

Spark's Python data source only plans: it asks Pulsar where the topics end, and hands on no rows. The checkpoint has the offsets,
and the tasks read what lies between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from idgraph.model.errors import ConfigError, FlowStoppedError, SourceUnavailableError, StoreError
from idgraph.model.flows import HeldSources
from idgraph.model.pulsar import Bound, MessagePlace, PulsarSettings, PulsarSource, partition_name, written
from idgraph.model.pulsar_ledgers import Ledgers, PulsarAdmin, behind
from idgraph.model.stamps import epoch_ms
from idgraph.model.topics import Behind
from ingestion.sources.kafka.offsets import OffsetRange, Offsets, begin, begun, planned, ranges_of, taken
from ingestion.sources.kafka.records import source_of_topic
from ingestion.sources.stream import Intake
from ingestion.sources.topics import TopicStream

FEW_BYTES = 512 << 10
"""Stored, so compressed, bytes of a micro-batch that runs as one task without a shuffle."""
_FULL = 0.9


FORMAT = "idgraph-pulsar"
TOPICS_SECONDS = 5.0
"""Between two looks for new topics of a pattern."""
_PAUSE_SECONDS = 0.5

Found = dict[str, dict[int, Ledgers]]
"""By topic and partition."""


class ReadPlan(NamedTuple):
    """What is followed, from where, and how much at once. Pickled for Spark's planning process: without secrets."""

    open_admin: Callable[[], PulsarAdmin]
    sources: dict[str, PulsarSource]
    active: frozenset[str]
    start: Offsets
    most_bytes: int
    answer_seconds: float
    goal: Offsets | None = None


def planned_by(plan: ReadPlan) -> type[DataSource]:
    """The data source of a plan."""

    class PlannedTopics(DataSource):  # type: ignore[misc]
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return "topic string"

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's
            return Planner(plan)

    return PlannedTopics


class Planner(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Plans the micro-batches of one query. New partitions and topics begin at their first entry."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan
        # Spark pickles it, before it asks.
        self._look: TopicLook | None = None
        self._goal = plan.goal
        self._seen: Found = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """As the checkpoint notes it."""
        return _json(self._plan.start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        """The end is where the topics end now."""
        if self._goal is None:
            self._goal = {
                topic: {partition: each.end for partition, each in partitions.items()}
                for topic, partitions in self._found().items()
            }

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The offsets after `most_bytes` more, which partitions share as they are behind."""
        begin = _offsets(start)
        found = self._found()
        require_present(begin, found, self._seen)
        self._seen = found
        if self._goal is not None:
            found = _up_to(self._goal, found)
        reach = {
            (topic, partition): (begin.get(topic, {}).get(partition, each.first), each)
            for topic, partitions in found.items()
            for partition, each in partitions.items()
        }
        waiting = {key: each.stored_bytes(since, each.end) for key, (since, each) in reach.items()}
        share = min(1.0, self._plan.most_bytes / max(1, sum(waiting.values())))
        until: Offsets = {}
        for (topic, partition), (since, each) in reach.items():
            # One byte more: an average is rounded down.
            most = int(waiting[topic, partition] * share) if share < 1 else waiting[topic, partition] * 2 + 1
            until.setdefault(topic, {})[partition] = max(since, each.after(since, most))
        return _json(until)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        """None."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG002
        """Nothing."""
        return iter(())

    def stop(self) -> None:
        """Close the connections."""
        if self._look is not None:
            self._look.close()

    def _found(self) -> Found:
        """Raises SourceUnavailableError when the cluster stays away."""
        plan = self._plan
        if self._look is None:
            self._look = TopicLook(plan.open_admin(), plan.sources, plan.active)
        deadline = time.monotonic() + plan.answer_seconds
        while True:
            try:
                return self._look.found()
            except SourceUnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)


class TopicLook:
    """The topics of active sources, with their ledgers."""

    def __init__(self, admin: PulsarAdmin, sources: dict[str, PulsarSource], active: frozenset[str]) -> None:
        self._admin = admin
        self._sources = sources
        self._active = active
        self._named = [topic for name in sorted(active) for topic in sources[name].topics]
        self._namespaces = {
            each.namespace for name, each in sources.items() if name in active and each.topic_pattern
        }
        self._matching: list[str] = []
        self._looked = float("-inf")

    def found(self) -> Found:
        """What is there now. A topic that is named and not there is left out."""
        if self._namespaces and time.monotonic() - self._looked >= TOPICS_SECONDS:
            self._matching = sorted(filter(self._is_matching, self._listed()))
            self._looked = time.monotonic()
        asked = {topic: self._admin.ledgers(topic) for topic in (*self._named, *self._matching)}
        return {topic: each for topic, each in asked.items() if each is not None}

    def named(self) -> list[str]:
        """The topics that the configuration names."""
        return self._named

    def close(self) -> None:
        """Close the connections."""
        self._admin.close()

    def _listed(self) -> set[str]:
        return {topic for each in self._namespaces for topic in self._admin.topics(each)} - set(self._named)

    def _is_matching(self, topic: str) -> bool:
        if not any(each.matches(topic) for each in self._sources.values()):
            return False
        return source_of_topic(topic, self._sources) in self._active


def require_present(offsets: Offsets, found: Found, seen: Found) -> None:
    """Raises FlowStoppedError for messages that are gone and were not read yet: a deleted topic, or deleted ledgers,
    of which `seen` may say how many entries they had."""
    for topic, partitions in offsets.items():
        for partition, since in partitions.items():
            name = partition_name(topic, partition)
            each = found.get(topic, {}).get(partition)
            if each is None:
                raise FlowStoppedError(
                    f"there is no topic {name} any more, or no source names it, which the flow reads from {written(since)} on; "
                    "messages of a deleted topic that were not read yet are gone (docs/pulsar.md)"
                )
            if each.has_lost(since):
                known = seen.get(topic, {}).get(partition)
                count = known.entries(since, each.first) if known else 0
                number = f"at least {count} entries" if count else "their number is not known any more"
                raise FlowStoppedError(
                    f"messages in Pulsar are gone that were not read yet: {name}, from {written(since)} to before "
                    f"{written(each.first)}, {number}. The retention of the namespace is too short (docs/pulsar.md)"
                )


def between(admin: PulsarAdmin, found: Found, first: Bound, last: Bound) -> tuple[Offsets, Offsets]:
    """The offsets of the first message of a backfill and after its last one, in the partitions that they name, else in all. Raises
    as `PulsarAdmin`."""
    named = {each[:2] for each in (first, last) if isinstance(each, MessagePlace)}
    since: Offsets = {}
    until: Offsets = {}
    for topic, partitions in found.items():
        for partition, each in partitions.items():
            if named <= {(topic, partition)}:
                since.setdefault(topic, {})[partition] = _at(admin, topic, partition, each, first)
                end = _at(admin, topic, partition, each, last) + isinstance(last, MessagePlace)
                until.setdefault(topic, {})[partition] = end
    return since, until


def extent(admin: PulsarAdmin, found: Found, first: Bound, last: Bound) -> tuple[int, int]:
    """About how many messages lie between two places, and their stored bytes. Raises as `PulsarAdmin`."""
    messages = stored = 0
    since, until = between(admin, found, first, last)
    for topic, ends in until.items():
        for partition, end in ends.items():
            reach, start = found[topic][partition]._replace(end=end), since[topic][partition]
            messages += behind(admin, topic, partition, start, reach).records
            stored += reach.stored_bytes(start, end)
    return messages, stored


def _at(admin: PulsarAdmin, topic: str, partition: int, found: Ledgers, place: Bound) -> int:
    if isinstance(place, MessagePlace):
        return place.at
    if isinstance(place, datetime):
        return admin.at(topic, partition, epoch_ms(place))
    return found.end if place == "latest" else found.first


def _up_to(goal: Offsets, found: Found) -> Found:
    return {
        topic: {
            partition: each._replace(end=min(each.end, goal[topic][partition]))
            for partition, each in partitions.items()
            if partition in goal[topic]
        }
        for topic, partitions in found.items()
        if topic in goal
    }


def _json(offsets: Offsets) -> dict[str, Any]:
    return {topic: {str(each): at for each, at in found.items()} for topic, found in offsets.items()}


def _offsets(content: dict[str, Any]) -> Offsets:
    return {topic: {int(each): int(at) for each, at in found.items()} for topic, found in content.items()}


class PulsarStream(TopicStream):
    """The messages of the topics of all sources that do not wait. `checkpoint` is that of the flow's query."""

    def __init__(
        self,
        sources: Mapping[str, PulsarSource],
        settings: PulsarSettings,
        checkpoint: Path,
        held: HeldSources,
        open_admin: Callable[[], PulsarAdmin],
    ) -> None:
        """`open_admin` can be pickled, without secrets."""
        super().__init__(sources, checkpoint, held)
        self._pulsar = dict(sources)
        self._settings = settings
        self._open_admin = open_admin
        self._admin: PulsarAdmin | None = None
        self._session: SparkSession | None = None
        self._look: TopicLook | None = None
        self._ranges: list[OffsetRange] = []
        self._bytes = 0
        self._seen: Found = {}

    def load(self, session: SparkSession, intake: Intake) -> DataFrame:
        """No rows: `in_tasks` has those of a micro-batch."""
        self._session = session
        self.edit_checkpoint()
        self._admin = self._admin or self._open_admin()
        self._look = TopicLook(self._admin, self._pulsar, self.active())
        start, goal = self._reach(self._admin, self._look, intake)
        most, patience = self._settings.max_bytes_per_batch, self._settings.answer_seconds
        most = min(most, intake.batch_bytes or most)
        plan = ReadPlan(self._open_admin, self._pulsar, self.active(), start, most, patience, goal)
        session.dataSource.register(planned_by(plan))
        return session.readStream.format(FORMAT).load()

    def _reach(self, admin: PulsarAdmin, look: TopicLook, intake: Intake) -> tuple[Offsets, Offsets | None]:
        """Where the first micro-batch begins, noted before it runs, since `latest` would be another place after a crash; and the
        end of a backfill."""
        start, goal = begun(self._checkpoint), None
        is_noted = start is not None
        if intake.span is not None:
            since, goal = between(admin, look.found(), *intake.span)
            start = since if start is None else start
        elif start is None:
            start = self._start(admin, look)
        if not is_noted:
            try:
                begin(self._checkpoint, start)
            except OSError as error:
                raise StoreError(f"{error.filename or self._checkpoint}: {error.strerror}") from None
        return start, goal

    def _start(self, admin: PulsarAdmin, look: TopicLook) -> Offsets:
        found = look.found()
        if missing := [topic for topic in look.named() if topic not in found]:
            raise ConfigError(
                f"there is no topic {', '.join(missing)} in Pulsar; create it, or correct `topics`"
            )
        places, otherwise = self._settings.starts(), self._settings.starting_position
        start: Offsets = {}
        for topic, partitions in found.items():
            for partition, each in partitions.items():
                place: Bound = "earliest" if isinstance(otherwise, dict) else otherwise
                at = places.get(topic, {}).get(partition) or _at(admin, topic, partition, each, place)
                if at > each.end:
                    name = partition_name(topic, partition)
                    raise ConfigError(f"[pulsar] starting_position: {name} ends before {written(at)}")
                start.setdefault(topic, {})[partition] = at
        return start

    def in_tasks(self, batch: DataFrame, number: int) -> DataFrame:  # noqa: ARG002
        """The ranges of the micro-batch: one task for `FEW_BYTES`, else as many as partitions and cores."""
        assert self._session is not None  # noqa: S101 - a micro-batch comes after it was loaded
        ranges = self._ranges = ranges_of(self._checkpoint, number) or []
        found = self._present()
        sized = [(each, found[each.topic][each.partition]) for each in ranges]
        spans = [
            (each, ledgers, ledgers.first if each.since is None else each.since) for each, ledgers in sized
        ]
        self._bytes = sum(ledgers.stored_bytes(since, each.until) for each, ledgers, since in spans)
        is_small = self._bytes <= FEW_BYTES
        parts = 1 if is_small else -(-self._session.sparkContext.defaultParallelism // max(1, len(spans)))
        rows = [
            (each.topic, each.partition, first, until)
            for each, ledgers, since in spans
            for first, until in ledgers.split(since, each.until, parts)
        ]
        schema = "topic string, partition int, since bigint, until bigint"
        made = self._session.createDataFrame(rows, schema).coalesce(1)
        return made if is_small or len(rows) <= 1 else made.repartition(len(rows))

    def in_other_tasks(self, number: int) -> DataFrame | None:  # noqa: ARG002 - the protocol's
        """There is no other way."""
        return None

    def is_whole(self, number: int, files: int) -> bool:  # noqa: ARG002 - the protocol's
        """Raises FlowStoppedError where ledgers may have been deleted while they were read."""
        self._present()
        return True

    def _present(self) -> Found:
        """The ledgers of all topics, of which those of the ranges are all there."""
        assert self._look is not None  # noqa: S101 - as above
        found = self._look.found()
        since: Offsets = {}
        for each in self._ranges:
            at = found.get(each.topic, {}).get(each.partition)
            since.setdefault(each.topic, {})[each.partition] = (
                each.since if each.since is not None else at.first if at else each.until
            )
        require_present(since, found, self._seen)
        self._seen = found
        return found

    def took(self, number: int, records: int, seconds: float) -> dict[str, int]:  # noqa: ARG002
        """About how many messages wait, by `TOPIC/PARTITION`."""
        done = planned(self._checkpoint, number)
        try:
            return {name: each.records for name, each in self._behind(done).items()} if done else {}
        except SourceUnavailableError:
            return {}

    def is_full(self, number: int) -> bool:  # noqa: ARG002 - the protocol's
        """By stored bytes."""
        return self._bytes >= self._settings.max_bytes_per_batch * _FULL

    def waiting(self) -> dict[str, Behind]:
        """The same of what was taken by now, with how long the first of them waits."""
        done = taken(self._checkpoint)
        return self._behind(done) if done and self._admin else {}

    def _behind(self, done: Offsets) -> dict[str, Behind]:
        assert self._admin is not None  # noqa: S101 - as above
        waiting = {}
        for topic, offsets in self.with_held(done).items():
            found = self._admin.ledgers(topic) or {}
            for partition in offsets.keys() & found.keys():
                since = offsets[partition]
                waiting[f"{topic}/{partition}"] = behind(
                    self._admin, topic, partition, since, found[partition]
                )
        return waiting

    def is_bound_otherwise(self) -> bool:
        """Never: a micro-batch has the bound of the configuration."""
        return False

    def close(self) -> None:
        """Close the connections."""
        if self._admin is not None:
            self._admin.close()

    def without_secrets(self, text: str) -> str:
        """Spark is given none."""
        return text
