"""A Kafka broker for tests that want to produce to it, kill it and start it again."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.servers.requirement import required
from tests.support.kafka import Broker, kafka


class Kafka:
    """A broker that can die. Produces and asks with librdkafka, as other programs do."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._broker: Broker = self._stack.enter_context(kafka(folder))

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def kill(self) -> None:
        """kill -9."""
        self._broker.process.kill()
        self._broker.process.wait()

    def restart(self) -> None:
        """Start it again on the same folder and port."""
        self._stack.close()
        self._broker = self._stack.enter_context(kafka(self._folder))

    def close(self) -> None:
        self._stack.close()

    def create(self, *topics: str, partitions: int = 2, config: dict[str, str] | None = None) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for done in client.create_topics(
            [NewTopic(topic, partitions, 1, config=config or {}) for topic in topics]
        ).values():
            done.result(60)

    def forget(self, topic: str, partition: int, until: int) -> None:
        """Have offsets age out."""
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import AdminClient

        client = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for done in client.delete_records([TopicPartition(topic, partition, until)]).values():
            done.result(60)

    def produce(
        self,
        topic: str,
        *payloads: bytes | None,
        key: bytes | None = None,
        headers: list[tuple[str, bytes]] | None = None,
        partition: int = 0,
        timestamp: int = 0,
    ) -> None:
        """`timestamp` in epoch milliseconds; 0: now."""
        from confluent_kafka import Producer

        client = Producer({"bootstrap.servers": self.bootstrap_servers})
        for payload in payloads:
            client.produce(topic, payload, key, partition, timestamp=timestamp, headers=headers)
        assert client.flush(60) == 0

    def records(self, topic: str, partitions: int = 2) -> list[tuple[bytes, bytes]]:
        """Key and value of all that is there now, by partition, in order."""
        return [(each.key(), each.value()) for each in self.messages(topic, partitions)]

    def messages(self, topic: str, partitions: int = 2) -> list[Any]:
        """The same as messages of confluent-kafka."""
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        found = []
        client = Consumer({"bootstrap.servers": self.bootstrap_servers, "group.id": "tests"})
        ends = time.monotonic() + 60
        try:
            for partition in range(partitions):
                place = TopicPartition(topic, partition, 0)
                while True:
                    try:
                        _, end = client.get_watermark_offsets(place, 60)
                        break
                    except KafkaException:
                        # A broker that has just begun again leads no partition for a moment.
                        if time.monotonic() > ends:
                            raise
                        time.sleep(0.1)
                client.assign([place])
                for _ in range(end):
                    message = client.poll(10)
                    assert message is not None
                    assert message.error() is None
                    found.append(message)
        finally:
            client.close()
        return found

    def produce_in_transactions(self, topic: str, *payloads: bytes | None) -> None:
        """Each in one of its own, whose end takes an offset too, into the first partition."""
        from confluent_kafka import Producer

        client = Producer({"bootstrap.servers": self.bootstrap_servers, "transactional.id": topic})
        client.init_transactions(60)
        for payload in payloads:
            client.begin_transaction()
            client.produce(topic, payload, partition=0)
            client.commit_transaction(60)


@contextmanager
def running_kafka(folder: Path) -> Iterator[Kafka]:
    """A broker with its data in a folder. Skips the test, with the reason, when it cannot be had."""
    with required("confluent_kafka", "idgraph[kafka]"):
        broker = Kafka(folder)
    try:
        yield broker
    finally:
        broker.close()
