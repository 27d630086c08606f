"""A Kafka cluster that nobody answers for."""

from __future__ import annotations

import time

import pytest

from idgraph.model.errors import PublishError
from tests.support.processes import free_port

pytest.importorskip("confluent_kafka", reason="confluent_kafka is not installed: pip install -e .[kafka]")

from sinks.kafka import publisher as kafka_publisher
from sinks.kafka import topics as kafka_ends


def test_ends_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_ends, "ANSWER_SECONDS", 0.2)
    partitions = [("orders", number) for number in range(300)]
    started = time.monotonic()
    found = kafka_ends.ends(f"127.0.0.1:{free_port()}", {}, partitions)
    assert found == dict.fromkeys(partitions)
    assert time.monotonic() - started < 300 * 0.2


def test_who_publishes_is_reported_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_publisher, "ANSWER_SECONDS", 0.2)
    servers = f"127.0.0.1:{free_port()}"
    with (
        kafka_publisher.KafkaPublisher(servers, {}) as publisher,
        pytest.raises(PublishError, match=f"^Kafka at {servers} does not answer") as reported,
    ):
        publisher.publish("orders", [(None, b"{}")])
    assert reported.value.published == 0
