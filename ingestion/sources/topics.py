"""What the streams of topics have in common: sources that wait, by the offsets in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from idgraph.model.errors import ConfigError, StoreError
from idgraph.model.flows import HeldSources
from idgraph.model.topics import TopicSource
from ingestion.sources.kafka.offsets import Offsets, before, leave_out, planned, put_back
from ingestion.sources.kafka.records import source_of_topic
from ingestion.spark.checkpoints import query_id


class TopicStream:
    """The part of an `InputStream` over topics that does not depend on their system."""

    look_seconds = 0.25

    def __init__(self, sources: Mapping[str, TopicSource], checkpoint: Path, held: HeldSources) -> None:
        self._sources = sources
        self._checkpoint = checkpoint
        self._held = held

    def edit_checkpoint(self) -> None:
        """Remove the topics of sources that wait, and set those of sources that are tried again to where they failed. Spark
        stops at a topic that nobody reads. A checkpoint that is newer than a hold reads the topics from their beginning."""
        held, query = self._held, query_id(self._checkpoint)
        held.load(self._sources)
        try:
            for hold in held.waiting.values():
                if hold.is_of(query):
                    mine = [each for each in hold.offsets if self._reader_of(each) == hold.source]
                    leave_out(self._checkpoint, hold.batch, mine)
            for hold in held.tried_again.values():
                if hold.is_of(query):
                    leave_out(self._checkpoint, hold.batch, hold.offsets)
                    read = {each: at for each, at in hold.offsets.items() if self._reader_of(each)}
                    put_back(self._checkpoint, read)
        except OSError as error:
            raise StoreError(f"{error.filename or self._checkpoint}: {error.strerror}") from None
        held.let_go(self._sources)

    def _reader_of(self, topic: str) -> str | None:
        """The source that a topic belongs to by now; None where it belongs to none."""
        try:
            return source_of_topic(topic, self._sources)
        except ConfigError:
            return None

    def active(self) -> frozenset[str]:
        """All but those that wait."""
        return frozenset(self._sources.keys() - self._held.waiting.keys())

    def can_leave_out(self, source: str) -> bool:  # noqa: ARG002 - the protocol's
        """Always: by the names of its topics."""
        return True

    def offsets_before(self, number: int, source: str) -> Offsets:
        """The first offsets of all topics of the source that the micro-batch has."""
        topics = planned(self._checkpoint, number) or {}
        mine = [topic for topic in topics if source_of_topic(topic, self._sources) == source]
        return before(self._checkpoint, number, mine)

    def is_whole(self, number: int, files: int) -> bool:  # noqa: ARG002 - the protocol's
        """Always: records that cannot be read are an error."""
        return True

    def with_held(self, done: Offsets) -> Offsets:
        """What is done, and for sources that wait where they failed."""
        return {
            **{topic: at for hold in self._held.waiting.values() for topic, at in hold.offsets.items()},
            **done,
        }

    def traces(self) -> None:
        """None: the query asks the brokers, and nothing else does."""
