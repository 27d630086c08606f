"""Decrypt: records that arrive encrypted go through an external service before the stages, and keep their order.

At most a source's `capacity` records are with the service at once. Then no more is read, which is the backpressure. A
record that the service answers early waits for the earlier ones, and counts too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from idgraph.model.counts import BatchCounts
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.decryption import Decrypted, Decryptor
from idgraph.model.errors import ConfigError, DecryptionError
from idgraph.model.events import DecryptedRecord, RawRecord, UndecryptedRecord
from idgraph.model.sources import DecryptorConfig, SourceConfig
from idgraph.model.topics import TopicSource
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.kafka.envelope import payload_of, with_payload

STAGE = "decrypt"

Record = RawRecord | DamagedRecord


@dataclass(slots=True)
class _Waiting:
    """A record in its place in the order."""

    record: Record
    answer: Future[Decrypted] | None = None
    payload_of_kafka: bool = False


def no_decryptor(config: DecryptorConfig) -> Decryptor:
    """Raises ConfigError: nothing here can decrypt."""
    raise ConfigError(f"no decryptor is configured for {config.url} here")


class Decryptors:
    """The decryptors of a process, each opened when it is first asked for. For one thread."""

    def __init__(self, open_decryptor: Callable[[DecryptorConfig], Decryptor] = no_decryptor) -> None:
        self._open = open_decryptor
        self._opened: dict[DecryptorConfig, Decryptor] = {}

    def of(self, config: DecryptorConfig) -> Decryptor:
        """Raises ConfigError for one that cannot be opened."""
        if config not in self._opened:
            self._opened[config] = self._open(config)
        return self._opened[config]

    def close(self) -> None:
        """Cancel all requests."""
        for decryptor in self._opened.values():
            decryptor.close()
        self._opened.clear()


class Decryption:
    """Takes the records of one task through the services of their sources."""

    def __init__(self, sources: Mapping[str, SourceConfig], decryptors: Decryptors) -> None:
        self._configs = {
            name: source.decryptor for name, source in sources.items() if source.decryptor is not None
        }
        self._framed = {name for name, source in sources.items() if isinstance(source, TopicSource)}
        self._decryptors = decryptors
        self._most = max((config.capacity for config in self._configs.values()), default=0)
        self._counts = BatchCounts()

    def run(self, records: Iterable[Record]) -> Iterable[Record]:
        """The records in their order, those of sources with a decryptor decrypted. Raises DecryptionError for one
        that was not though another attempt may decrypt it, if its source says to stop."""
        return self._decrypted(records) if self._configs else records

    def _decrypted(self, records: Iterable[Record]) -> Iterator[Record]:
        waiting: deque[_Waiting] = deque()
        try:
            for record in records:
                while waiting and (
                    len(waiting) >= self._room(record) or (first := waiting[0].answer) is None or first.done()
                ):
                    yield self._finish(waiting.popleft())
                waiting.append(self._begin(record))
            while waiting:
                yield self._finish(waiting.popleft())
        finally:
            for each in waiting:
                if each.answer is not None:
                    each.answer.cancel()

    def taken(self) -> BatchCounts:
        """The counters since the last call."""
        counts, self._counts = self._counts, BatchCounts()
        return counts

    def _room(self, record: Record) -> int:
        config = self._configs.get(record.source) if isinstance(record, RawRecord) else None
        return config.capacity if config else self._most

    def _begin(self, record: Record) -> _Waiting:
        config = self._configs.get(record.source) if isinstance(record, RawRecord) else None
        if config is None or not isinstance(record, RawRecord):
            return _Waiting(record)
        is_framed = record.source in self._framed
        content = payload_of(record.value) if is_framed else record.value
        if content is None:
            # A record without a value has nothing to decrypt.
            return _Waiting(record)
        return _Waiting(record, self._decryptors.of(config).submit(content, record.position), is_framed)

    def _finish(self, waiting: _Waiting) -> Record:
        record = waiting.record
        if waiting.answer is None or not isinstance(record, RawRecord):
            return record
        started = time.perf_counter()
        answer = waiting.answer.result()
        self._counts.decrypt_seconds += time.perf_counter() - started
        self._counts.decrypt_retries += answer.retries
        if answer.content is not None:
            self._counts.decrypted += 1
            content = answer.content
            return DecryptedRecord.of(
                record, with_payload(record.value, content) if waiting.payload_of_kafka else content
            )
        self._counts.undecrypted += 1
        match self._configs[record.source].on_failure:
            case "pass_on":
                return UndecryptedRecord(*record)
            case "stop" if not answer.is_final:
                raise DecryptionError(f"source {record.source}: {record.position}: {answer.failure}")
            case _:
                # A record that is refused for good would stop the flow at each start.
                return DamagedRecord(record, DeadLetterReason.DECRYPTION_FAILED, answer.failure, STAGE)
