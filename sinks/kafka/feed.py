"""The feed of changes, or messages of triggers, as a topic: records of JSON, keyed by the profile's id, so that those of one
profile stay in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from idgraph.model import canonical
from idgraph.model.errors import PublishError
from idgraph.model.ledger import Delivery

if TYPE_CHECKING:
    from sinks.kafka.publisher import KafkaPublisher
    from sinks.pulsar.publisher import PulsarPublisher


class TopicSender:
    """Writes to one topic. For one thread."""

    at_once = 100

    def __init__(self, opened: Callable[[], KafkaPublisher | PulsarPublisher], topic: str) -> None:
        self._opened = opened
        self._topic = topic
        self._publisher: KafkaPublisher | PulsarPublisher | None = None

    def open(self) -> None:
        """Open the producer, before anything is sent. Raises ConfigError."""
        self._publisher = self._opened()

    def send(self, deliveries: Sequence[Delivery]) -> str | None:
        """Write all, durable as far as the topic's replicas are; why not all were written. An id is a member of its record, and the header `id`."""
        try:
            if self._publisher is None:
                self._publisher = self._opened()
            records = [
                (each.profile.encode(), canonical.encode({"id": each.id, **each.document}), {"id": each.id})
                for each in deliveries
            ]
            self._publisher.publish(self._topic, records)
        except PublishError as error:
            # A producer that gave a record up may write no more; what is on its way would come behind what is sent again.
            self.close()
            return str(error)
        return None

    def close(self) -> None:
        """Records on their way are given up."""
        if self._publisher is not None:
            self._publisher.__exit__(None, None, None)
        self._publisher = None
