"""Reading ranges of positions by Pulsar's client: one client a process."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

import pulsar

from idgraph.model.errors import ConfigError, FlowStoppedError, IdgraphError, SourceUnavailableError
from idgraph.model.pulsar import PulsarSettings, partition_name, place, position, written
from idgraph.model.pulsar_ledgers import COMPACTED
from sinks.credentials import secret_in
from sinks.pulsar.admin import HttpPulsarAdmin

_QUEUE = 1_000
"""Messages that the client asks for ahead; those behind the range's end are read in vain."""
_PATIENCE_MS = 200
MOST_PARTITIONS = 32
_STEPS_BACK = (16, 256, 4096, 1 << 40)
"""Entries before the last chunk of a message at which its first one is looked for."""


class ReadMessage(NamedTuple):
    """A message as it is: its place as `LEDGER/ENTRY/BATCH`, its event time or else publish time in epoch milliseconds, and the
    version of its schema, if it has one."""

    place: str
    timestamp: int
    key: bytes | None
    value: bytes | None
    properties: list[tuple[str, bytes | None]]
    producer: str
    schema: int | None


class PulsarRanges:
    """Reads messages of one cluster. Nothing is opened before the first use, and all ranges share a client."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._opened: pulsar.Client | None = None
        self._asked: HttpPulsarAdmin | None = None

    def records(self, topic: str, partition: int, since: int | None, until: int) -> Iterator[ReadMessage]:
        """The messages from `since` up to before `until`, a range within one ledger, in order. Each entry is accounted for: what
        the client passes over is looked at.

        Raises SourceUnavailableError when the cluster is away or an entry is not delivered, FlowStoppedError for a message
        whose first chunks are gone, ConfigError for what must be repaired.
        """
        assert since is not None  # noqa: S101 - the driver knows where a partition begins
        if place(since)[0] == COMPACTED:
            yield from self._compacted(topic, partition)
            return
        name, following = partition_name(topic, partition), since
        passed_over: list[int] = []
        for at, message in self._messages(name, partition, since, until):
            passed_over += range(following, at)
            following = at + 1
            yield message
        passed_over += range(following, until)
        for at in passed_over:
            entry = self._admin().entry(topic, partition, at)
            if entry.is_last:
                yield self._chunked(topic, partition, at)
            elif not (entry.is_chunk or entry.is_of_transaction):
                raise SourceUnavailableError(
                    f"Pulsar, {name}: the message at {written(at)} was not delivered"
                )

    def _compacted(self, topic: str, partition: int) -> Iterator[ReadMessage]:
        """The messages that a compacted topic has kept of ledgers that are gone: the newest message of each key."""
        ledgers = (self._admin().ledgers(topic) or {}).get(partition)
        until = ledgers.first_whole if ledgers else 0
        for _, message in self._messages(partition_name(topic, partition), partition, 0, until, True):
            # Of a batch, the others are left as messages of nothing.
            if message.key or message.value:
                yield message

    def _chunked(self, topic: str, partition: int, at: int) -> ReadMessage:
        """The message whose last chunk is at a position, and whose first one is before the range."""
        name = partition_name(topic, partition)
        ledgers = (self._admin().ledgers(topic) or {}).get(partition)
        if ledgers is not None:
            for back in _STEPS_BACK:
                since = ledgers.before(at, back)
                for last, message in self._messages(name, partition, since, at + 1):
                    if last == at:
                        return message
                if since == ledgers.first:
                    break
        raise FlowStoppedError(
            f"the first chunks of the message in Pulsar at {name}, {written(at)} are gone: they were deleted, or the starting "
            "position is behind them (docs/pulsar.md)"
        )

    def _messages(
        self, name: str, partition: int, since: int, until: int, is_compacted: bool = False
    ) -> Iterator[tuple[int, ReadMessage]]:
        """The messages that the client delivers, each with its entry's position."""
        reader: pulsar.Reader | None = None
        deadline = time.monotonic() + self._settings.answer_seconds
        try:
            start = pulsar.MessageId(partition, *place(max(0, since)), -1)
            reader = self._client().create_reader(
                f"persistent://{name}",
                start,
                receiver_queue_size=_QUEUE,
                is_read_compacted=is_compacted,
                start_message_id_inclusive=True,
            )
            while True:
                try:
                    message = reader.read_next(_PATIENCE_MS)
                except pulsar.Timeout:
                    # The last entries may hold no message.
                    if not reader.has_message_available():
                        return
                    if time.monotonic() > deadline:
                        raise
                    continue
                at = message.message_id()
                entry = position(at.ledger_id(), at.entry_id())
                if entry >= until:
                    return
                yield entry, _read(message, at)
                if entry == until - 1 and not reader.has_message_available():
                    return
                # After whoever asks has done with it.
                deadline = time.monotonic() + self._settings.answer_seconds
        except pulsar.PulsarException as error:
            raise self._failed(name, error) from None
        finally:
            if reader is not None:
                reader.close()

    def newest(self, topics: Iterable[str], most: int) -> list[tuple[str, int, ReadMessage]]:
        """The last `most` messages of each partition, of at most `MOST_PARTITIONS`, with topic and partition. Raises as `records`."""
        found: list[tuple[str, int, ReadMessage]] = []
        parts = ((topic, each) for topic in topics for each in (self._admin().ledgers(topic) or {}).items())
        for topic, (partition, ledgers) in islice(parts, MOST_PARTITIONS):
            ranges = ledgers.split(ledgers.before(ledgers.end, most), ledgers.end, 1)
            each = (self.records(topic, partition, *within) for within in ranges)
            found += ((topic, partition, one) for one in deque(chain.from_iterable(each), most))
        return found

    def close(self) -> None:
        """Close the connections."""
        if self._opened is not None:
            self._opened.close()
        if self._asked is not None:
            self._asked.close()

    def _admin(self) -> HttpPulsarAdmin:
        if self._asked is None:
            self._asked = HttpPulsarAdmin(self._settings)
        return self._asked

    def _client(self) -> pulsar.Client:
        if self._opened is None:
            self._opened = connected(self._settings)
        return self._opened

    def _failed(self, name: str, error: Exception) -> IdgraphError:
        said = type(error).__name__
        if isinstance(error, (pulsar.AuthenticationError, pulsar.AuthorizationError)):
            return ConfigError(
                f"Pulsar at {self._settings.service_url} refuses {name} ({said}); check [pulsar] token_file or "
                "certificate_file, and that its role may consume it"
            )
        if isinstance(error, pulsar.TopicNotFound):
            return ConfigError(f"there is no topic {name} in Pulsar")
        # The client hides a refused token or certificate behind a timeout.
        return SourceUnavailableError(
            f"Pulsar at {self._settings.service_url}, {name}: {said}; start Pulsar, or correct [pulsar] service_url, token_file, "
            "certificate_file or ca_file"
        )


def _read(message: pulsar.Message, at: pulsar.MessageId) -> ReadMessage:
    value = None if message.has_null_value() else message.data()
    key = message.partition_key()
    # The client's own method for it decodes the number as text.
    version = message._message.int_schema_version()
    return ReadMessage(
        f"{at.ledger_id()}/{at.entry_id()}/{max(0, at.batch_index())}",
        message.event_timestamp() or message.publish_timestamp(),
        key.encode() if key else None,
        value,
        [(name, content.encode()) for name, content in message.properties().items()],
        message.producer_name(),
        None if version < 0 else version,
    )


def connected(settings: PulsarSettings) -> pulsar.Client:
    """A client of the cluster, which connects when it is used. Raises ConfigError for files that cannot be used."""
    authentication = None
    if (file := settings.token_file) is not None:
        secret_in(file)
        authentication = pulsar.AuthenticationToken(lambda: secret_in(file))
    elif settings.certificate_file:
        authentication = pulsar.AuthenticationTLS(
            str(settings.certificate_file), str(settings.certificate_key_file)
        )
    return pulsar.Client(
        settings.service_url,
        authentication=authentication,
        operation_timeout_seconds=round(settings.answer_seconds),
        tls_trust_certs_file_path=str(settings.ca_file) if settings.ca_file else None,
        tls_validate_hostname=True,
        # It would write to standard output, which is for what commands print.
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
    )
