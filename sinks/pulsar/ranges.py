"""Reading ranges of positions by Pulsar's client: one client a process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pulsar

from idgraph.model.errors import ConfigError, SourceUnavailableError
from idgraph.model.pulsar import PulsarSettings, partition_name, place, position
from sinks.credentials import secret_in

_QUEUE = 10_000
_PATIENCE_MS = 200


class ReadMessage(NamedTuple):
    """A message as it is: its place as `LEDGER/ENTRY/BATCH`, its event time or else publish time in epoch milliseconds."""

    place: str
    timestamp: int
    key: bytes | None
    value: bytes | None
    properties: list[tuple[str, bytes | None]]


class PulsarRanges:
    """Reads messages of one cluster. Nothing is opened before the first use, and all ranges share a client."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings
        self._opened: pulsar.Client | None = None

    def records(self, topic: str, partition: int, since: int | None, until: int) -> Iterator[ReadMessage]:
        """The messages from `since`, None the first that is there, up to before `until`, in order.

        Raises SourceUnavailableError when the cluster is away, ConfigError for what must be repaired.
        """
        name = partition_name(topic, partition)
        try:
            reader = self._reader(name, partition, since)
        except Exception as error:
            raise self._failed(name, error) from None
        try:
            yield from self._until(reader, name, until)
        finally:
            reader.close()

    def _reader(self, name: str, partition: int, since: int | None) -> pulsar.Reader:
        start = pulsar.MessageId.earliest
        if since is not None:
            ledger, entry = place(since)
            start = pulsar.MessageId(partition, ledger, entry, -1)
        return self._client().create_reader(
            f"persistent://{name}", start, receiver_queue_size=_QUEUE, start_message_id_inclusive=True
        )

    def _until(self, reader: pulsar.Reader, name: str, until: int) -> Iterator[ReadMessage]:
        deadline = time.monotonic() + self._settings.answer_seconds
        try:
            while True:
                try:
                    message = reader.read_next(_PATIENCE_MS)
                except pulsar.Timeout:
                    # The last entries may hold no message: the mark of a transaction's end, or what one took back.
                    if not reader.has_message_available():
                        return
                    if time.monotonic() > deadline:
                        raise SourceUnavailableError(
                            f"Pulsar, {name}: nothing came for {self._settings.answer_seconds:g} s"
                        ) from None
                    continue
                at = message.message_id()
                entry = position(at.ledger_id(), at.entry_id())
                if entry >= until:
                    return
                yield _read(message, at)
                if entry == until - 1 and not reader.has_message_available():
                    return
                # After whoever asks has done with it.
                deadline = time.monotonic() + self._settings.answer_seconds
        except pulsar.PulsarException as error:
            raise self._failed(name, error) from None

    def _client(self) -> pulsar.Client:
        if self._opened is None:
            settings = self._settings
            authentication = None
            if settings.token_file:
                file = settings.token_file
                authentication = pulsar.AuthenticationToken(lambda: secret_in(file))
            elif settings.certificate_file:
                authentication = pulsar.AuthenticationTLS(
                    str(settings.certificate_file), str(settings.certificate_key_file)
                )
            self._opened = pulsar.Client(
                settings.service_url,
                authentication=authentication,
                operation_timeout_seconds=round(settings.answer_seconds),
                tls_trust_certs_file_path=str(settings.ca_file) if settings.ca_file else None,
                tls_validate_hostname=True,
                logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
            )
        return self._opened

    def _failed(self, name: str, error: Exception) -> Exception:
        said = type(error).__name__
        if not isinstance(error, pulsar.PulsarException):
            return error
        if isinstance(error, (pulsar.AuthenticationError, pulsar.AuthorizationError)):
            return ConfigError(
                f"Pulsar at {self._settings.service_url} refuses {name} ({said}); check [pulsar] token_file or "
                "certificate_file, and that its role may consume it"
            )
        if isinstance(error, pulsar.TopicNotFound):
            return ConfigError(f"there is no topic {name} in Pulsar")
        return SourceUnavailableError(f"Pulsar at {self._settings.service_url}, {name}: {said}")


def _read(message: pulsar.Message, at: pulsar.MessageId) -> ReadMessage:
    value = None if message.has_null_value() else message.data()
    key = message.partition_key()
    return ReadMessage(
        f"{at.ledger_id()}/{at.entry_id()}/{max(0, at.batch_index())}",
        message.event_timestamp() or message.publish_timestamp(),
        key.encode() if key else None,
        value,
        [(name, content.encode()) for name, content in message.properties().items()],
    )
