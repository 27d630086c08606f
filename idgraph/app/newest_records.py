"""The newest records of a source, read again from its files or topics for somebody who looks; the flow is not asked."""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from idgraph.app.adapters.extras import needing
from idgraph.app.adapters.inputs import decryptors_config, open_decryptors, open_pulsar_admin
from idgraph.app.settings.document import Settings
from idgraph.jobs.archive import archive_files
from idgraph.model import pulsar
from idgraph.model.errors import DecryptionError, SourceUnavailableError
from idgraph.model.events import DecryptedRecord, RawRecord
from idgraph.model.kafka import KafkaSource
from idgraph.model.pulsar import PulsarSource
from idgraph.model.sources import FileSource, SourceConfig
from idgraph.model.topics import TopicSource
from ingestion.sources.files.lines import last_lines
from ingestion.sources.files.taken import folder_of, path_below
from ingestion.stages.decrypt import Decryption

MOST_FILES = 5
MOST_BYTES = 4 << 20
"""Bytes that are read from the end of each file."""
MOST_DECRYPTED, DECRYPT_SECONDS = 20, 2.0
"""Bounds for a page that asks every three seconds: a service that hangs is abandoned at the first record."""


def newest_records(settings: Settings, source: SourceConfig, most: int) -> list[RawRecord]:
    """At most so many, the newest first; of encrypted ones those that the source's service decrypts. Raises ConfigError where
    they cannot be read, SourceUnavailableError."""
    if (decryptor := source.decryptor) is not None:
        most = min(most, MOST_DECRYPTED)
        seconds = min(decryptor.timeout_seconds, DECRYPT_SECONDS)
        hurried = {"timeout_seconds": seconds, "retries": 0, "on_failure": "stop"}
        source = source.model_copy(update={"decryptor": decryptor.model_copy(update=hurried)})
    found = (
        _in_files(settings, source) if isinstance(source, FileSource) else _in_topics(settings, source, most)
    )
    with closing(open_decryptors(decryptors_config(settings))) as decryptors:
        try:
            opened = list(Decryption({source.name: source}, decryptors).run(islice(found, most)))
        except DecryptionError as error:
            raise SourceUnavailableError(str(error)) from None
    return [each for each in opened if isinstance(each, RawRecord if decryptor is None else DecryptedRecord)]


def _in_files(settings: Settings, source: FileSource) -> Iterator[RawRecord]:
    folder = folder_of(source)
    own = (settings.directory, settings.keyring_file())
    closed = [each for each in own if path_below(each, folder) is None]
    newest = heapq.nlargest(MOST_FILES, archive_files(source), key=lambda each: each.stat().st_mtime_ns)
    for file in newest:
        for line in reversed(last_lines(file, folder, source.follow_links, closed, MOST_BYTES)):
            # Names of files may be personal data, and the number of a line read from the end is not known.
            yield RawRecord(source.name, f"file:{folder.name}", line)


def _in_topics(settings: Settings, source: SourceConfig, most: int) -> Iterator[RawRecord]:
    from ingestion.sources.kafka.records import record_position

    if isinstance(source, PulsarSource):
        return _in_pulsar(settings, source, most)
    with needing("kafka", "it needs confluent-kafka beside this service"):
        from sinks.kafka.topics import KafkaRanges
    assert isinstance(source, KafkaSource)  # noqa: S101 - the other kind has files
    topics, pattern = source.topics, re.compile(source.topic_pattern or "(?!)")
    ranges = KafkaRanges(settings.kafka.bootstrap_servers, settings.kafka.producer_options())
    found = ranges.newest(lambda topic: topic in topics or pattern.fullmatch(topic) is not None, most)
    return _newest_of(settings, source, found, record_position)


def _in_pulsar(settings: Settings, source: PulsarSource, most: int) -> Iterator[RawRecord]:
    with needing("pulsar", "it needs pulsar-client beside this service"):
        from sinks.pulsar.ranges import PulsarRanges
    with closing(open_pulsar_admin(settings.pulsar)) as admin:
        listed = admin.topics(source.namespace) if source.topic_pattern else source.topics
    topics = [each for each in listed if each in source.topics or source.matches(each)]
    with closing(PulsarRanges(settings.pulsar)) as ranges:
        found = ranges.newest(topics, most)
    return _newest_of(settings, source, found, pulsar.record_position)


def _newest_of(
    settings: Settings,
    source: TopicSource,
    found: list[tuple[str, int, Any]],
    position: Callable[[str, int, int | str], str],
) -> Iterator[RawRecord]:
    """The read records, each with topic and partition, the newest first."""
    from ingestion.sources.kafka.records import KafkaRecords

    found.sort(key=lambda each: each[2].timestamp, reverse=True)
    rows = [(topic, partition, number, 0) for number, (topic, partition, _) in enumerate(found)]
    reader = KafkaRecords(
        {source.name: source},
        settings.flow.max_event_bytes,
        rows,
        lambda _, __, number, ___: [found[number or 0][2]],
        position,
    )
    return (each for each in reader.records() if isinstance(each, RawRecord))
