"""The feed of changes in a topic of Kafka: all that a clearance sees, in order, again after an outage, nothing twice at rest.
And messages of triggers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.backoff import Backoff
from idgraph.model.queries import Exists
from idgraph.model.triggers import TriggerDocument, topic_receiver
from profile_service.api.triggers import Triggers
from profile_service.api.webhooks import Webhook, Webhooks
from profile_service.trigger_ledger import Message, TriggerLedger
from sinks.document_folder import DocumentFolder
from sinks.kafka.feed import TopicSender
from tests.profile_service.api.conftest import Served, caller, identified, published, served_here
from tests.profile_service.api.test_segments import segment, with_segments
from tests.retail import Pipeline, attribute
from tests.servers.kafka import Kafka, running_kafka
from tests.support.patience import eventually

pytestmark = pytest.mark.long


TOPIC, MESSAGES = "idgraph.changes", "idgraph.messages"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as found:
        found.create(TOPIC)
        yield found


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("profile_service.api.webhooks.RETRY", Backoff(base=0.01, cap=0.01))
    for name in ("LEASED_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(f"profile_service.api.webhooks.{name}", 0.01)
    pipeline = Pipeline(tmp_path)
    hidden = attribute("identity.email", authorization_level=60)
    attributes = (*(each for each in pipeline.snapshot.attributes if each.path != hidden.path), hidden)
    found = pipeline.snapshot.model_copy(update={"attributes": attributes})
    pipeline.snapshot = with_segments(
        found, segment("everybody"), segment("secret", Exists("identity.email"))
    )
    with served_here(pipeline, [caller("all", 100)]) as service:
        yield service


def topic_sender(broker: Kafka, topic: str) -> TopicSender:
    from sinks.kafka.publisher import KafkaPublisher

    options = {"delivery.timeout.ms": "2000", "request.timeout.ms": "1000", "linger.ms": "5"}
    return TopicSender(partial(KafkaPublisher, broker.bootstrap_servers, options), topic)


@contextmanager
def feeding(served: Served, broker: Kafka) -> Iterator[None]:
    sender = topic_sender(broker, TOPIC)
    hook = Webhook(TOPIC, None, 0, sender, "topic")
    with Webhooks(served.service, [hook], DocumentFolder(served.pipeline.folder)):
        yield
    sender.close()


def records(broker: Kafka) -> list[tuple[str, dict[str, Any]]]:
    return [(key.decode(), json.loads(value)) for key, value in broker.records(TOPIC)]


def test_a_topic_has_all_changes_that_its_clearance_sees(served: Served, broker: Kafka) -> None:
    def come(*users: str) -> None:
        served.pipeline.process([identified(each, f"{each}@example.com") for each in users])

    def profiles() -> set[str]:
        return {key for key, _ in records(broker)}

    come("a", "b")
    with feeding(served, broker):
        eventually(lambda: profiles() == {"user_id:a", "user_id:b"})
        broker.kill()
        come("c")
        broker.restart()
        eventually(lambda: "user_id:c" in profiles())
    with feeding(served, broker):
        come("d")
        eventually(lambda: "user_id:d" in profiles())
    found = records(broker)
    ids = {each["id"] for _, each in found}
    assert {(key, each["kind"], each["profile"]) for key, each in found} == {
        (f"user_id:{user}", "entered", f"user_id:{user}") for user in "abcd"
    }
    # Again is only what an outage left in doubt.
    assert len(ids) == 4
    assert len([each for key, each in found if key != "user_id:c"]) == 3
    feed = served.client("all").get("/v1/changes").json()["items"]
    assert {each.get("segment") for each in feed} == {"everybody", "secret"}
    assert "secret" not in json.dumps(found)
    assert "example.com" not in json.dumps(found)


def test_messages_of_a_trigger_come_again_under_their_id(
    served: Served, broker: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LEASED_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(f"profile_service.api.triggers.{name}", 0.01)
    monkeypatch.setattr("profile_service.api.triggers.RETRY", Backoff(base=0.01, cap=0.01))
    broker.create(MESSAGES)
    stated = {"when": {"segment": "everybody"}, "topic": MESSAGES, "expires": None}
    trigger = TriggerDocument.model_validate({"name": "welcome", "version": 1, **stated})
    documents = DocumentFolder(served.pipeline.folder)
    sender = topic_sender(broker, MESSAGES)
    receivers = [Webhook(topic_receiver(MESSAGES), None, 0, sender)]
    with published(served, served.pipeline.snapshot.model_copy(update={"triggers": (trigger,)})):
        with Triggers(served.service, receivers, documents):
            eventually(lambda: documents.read("triggers/place.json"))
            served.pipeline.process([identified("e", "e@example.com")])
            eventually(lambda: broker.messages(MESSAGES))
        # As after a crash behind the send: the message is still there.
        ledger = TriggerLedger(documents)
        (fired,) = ledger.lines("welcome", 10)
        ledger.wait(Message(trigger.receiver, fired.at_ms, fired._replace(outcome="waiting")))
        with Triggers(served.service, receivers, documents):
            eventually(lambda: len(broker.messages(MESSAGES)) == 2)
    sender.close()
    assert {
        (each.key(), tuple(each.headers()), json.loads(each.value())["id"])
        for each in broker.messages(MESSAGES)
    } == {(b"user_id:e", (("id", fired.id.encode()),), fired.id)}
