"""What is planned and read of Pulsar's topics, on a real server: each message once, or an error that names what is missing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConfigError, EventError, FlowStoppedError, SourceUnavailableError
from idgraph.model.events import Event, RawRecord
from idgraph.model.ledger import Delivery
from idgraph.model.pulsar import PulsarSettings, PulsarSource, record_position
from ingestion.sources.kafka.envelope import envelope_reader
from ingestion.sources.kafka.records import KafkaRecords
from ingestion.sources.payload_formats import PayloadFormats
from ingestion.sources.pulsar.stream import Planner, ReadPlan
from sinks.kafka.feed import TopicSender
from sinks.pulsar.admin import HttpPulsarAdmin
from sinks.pulsar.schemas import PulsarSchemas
from tests.installation import until
from tests.servers.pulsar import Pulsar, running_pulsar

if TYPE_CHECKING:
    from sinks.pulsar.ranges import PulsarRanges

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

ENTRIES_A_LEDGER = 20
names = (f"topic{number}" for number in count())


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pulsar]:
    settings: dict[str, object] = {
        "transactionCoordinatorEnabled": "true",
        "maxMessageSize": 20_000,
        "managedLedgerMaxEntriesPerLedger": ENTRIES_A_LEDGER,
        "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    }
    with running_pulsar(tmp_path_factory.mktemp("pulsar"), "", **settings) as server:
        server.admin("PUT", "namespaces/public/short", {})
        nothing = {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}
        server.admin("POST", "namespaces/public/short/retention", nothing)
        yield server


Payload = bytes | None
Follow = Callable[..., "Following"]


@pytest.fixture
def follow(pulsar: Pulsar) -> Iterator[Follow]:
    with ExitStack() as stack:

        def begun(**how: Any) -> Following:
            return stack.enter_context(closing(Following(pulsar, **how)))

        yield begun


def joined(batches: list[list[Payload]]) -> list[Payload]:
    return list(chain.from_iterable(batches))


def in_order(batches: list[list[Payload]]) -> list[bytes]:
    return sorted(filter(None, joined(batches)))


class Following:
    """A flow of one source, without Spark: plans and reads as its driver and workers do."""

    def __init__(self, pulsar: Pulsar, most_bytes: int = 1 << 20, parts: int = 1, **source: Any) -> None:
        from sinks.pulsar.ranges import PulsarRanges

        self.settings = PulsarSettings(**pulsar.settings, answer_seconds=20)
        self.admin = HttpPulsarAdmin(self.settings)
        self._ranges: PulsarRanges = PulsarRanges(self.settings)
        self._parts = parts
        self.source = PulsarSource(name="web", kind="pulsar", **source)
        sources = {"web": self.source}
        opened = partial(HttpPulsarAdmin, self.settings)
        self._plan = ReadPlan(opened, sources, frozenset(sources), {}, most_bytes, 20.0)
        self.planner = Planner(self._plan)
        self.taken: dict[str, Any] = {}

    def restart(self) -> None:
        """As after a crash: what was taken is in the checkpoint."""
        self.planner.stop()
        self.planner = Planner(self._plan)

    def rows(self) -> Iterator[tuple[str, int, int, int]]:
        """The ranges of one micro-batch."""
        since, self.taken = self.taken, json.loads(json.dumps(self.planner.latestOffset(self.taken, None)))
        for topic, partitions in self.taken.items():
            ledgers = self.admin.ledgers(topic) or {}
            for partition, reach in partitions.items():
                each = ledgers[int(partition)]
                start = since.get(topic, {}).get(partition, each.first)
                for span in each.split(start, reach, self._parts):
                    yield topic, int(partition), *span

    def step(self) -> list[Payload]:
        """The payloads of one micro-batch, by partition."""
        return [record.value for row in self.rows() for record in self._ranges.records(*row)]

    def events(self) -> Iterator[Event | EventError]:
        """Those of one micro-batch, as the workers decode them."""
        with closing(PayloadFormats({}, PulsarSchemas(self.settings))) as formats:
            reader = envelope_reader(self.source, formats)
            rows = KafkaRecords(
                {"web": self.source}, 1 << 20, self.rows(), self._ranges.records, record_position
            )
            for record in rows.records():
                assert isinstance(record, RawRecord)
                try:
                    yield reader.read(record)
                except EventError as error:
                    yield error

    def steps(self) -> list[list[Payload]]:
        """All micro-batches until nothing new is there."""
        found: list[list[Payload]] = []
        while True:
            before = self.taken
            payloads = self.step()
            if self.taken == before:
                return found
            found.append(payloads)

    def close(self) -> None:
        self.planner.stop()
        self.admin.close()
        self._ranges.close()


def lines(count: int) -> list[bytes]:
    return [b'{"n": %d}' % number for number in range(count)]


def transactions(pulsar: Pulsar, topic: str, *words: str) -> None:
    done = subprocess.run(
        pulsar.transactions_of(topic, *words), check=False, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.endswith("published\n"), done.stdout[-2000:] + done.stderr[-2000:]


def test_each_message_comes_once_within_bounds_and_over_ledgers(pulsar: Pulsar, follow: Follow) -> None:
    topic = next(names)
    pulsar.create(topic)
    pulsar.publish(topic, lines(300), batching_enabled=True, batching_max_messages=2)
    flow = follow(most_bytes=3000, parts=2, topics=(topic,))
    batches = flow.steps()
    assert len(batches) > 3, "the bound holds"
    assert in_order(batches) == sorted(lines(300))
    pulsar.publish(topic, [b"more"])
    flow.restart()
    assert joined(flow.steps()) == [b"more"]


def test_a_topic_without_partitions_and_null_payloads(pulsar: Pulsar, follow: Follow) -> None:
    topic = next(names)
    pulsar.create(topic, partitions=0)
    pulsar.publish(topic, [b"a", None, b"c"], key="k")
    assert follow(topics=(topic,)).steps() == [[b"a", None, b"c"]]


def test_new_partitions_and_topics_of_a_pattern_join(pulsar: Pulsar, follow: Follow) -> None:
    pulsar.create("joins-1", partitions=1)
    pulsar.publish("joins-1", [b"first"])
    flow = follow(topic_pattern="joins-.*")
    assert flow.steps() == [[b"first"]]
    pulsar.admin("POST", "persistent/public/default/joins-1/partitions", 4)
    pulsar.create("joins-2", partitions=0)
    pulsar.publish("joins-1", lines(8), batching_enabled=False)
    pulsar.publish("joins-2", [b"second"])
    flow.restart()
    assert in_order(flow.steps()) == sorted([*lines(8), b"second"])


def test_a_deleted_topic_is_named(pulsar: Pulsar, follow: Follow) -> None:
    pulsar.create("deleted", "kept")
    flow = follow(topics=("deleted", "kept"))
    flow.step()
    pulsar.admin("DELETE", "persistent/public/default/deleted/partitions?force=true")
    with pytest.raises(
        FlowStoppedError, match=r"there is no topic public/default/deleted-partition-. any more"
    ):
        flow.step()


def test_messages_that_were_deleted_unread_are_named(pulsar: Pulsar, follow: Follow) -> None:
    pulsar.create("public/short/trimmed", partitions=0)
    pulsar.publish("public/short/trimmed", lines(10), batching_enabled=False)
    flow = follow(topics=("public/short/trimmed",))
    assert joined(flow.steps()) == lines(10)
    pulsar.publish("public/short/trimmed", lines(3 * ENTRIES_A_LEDGER), batching_enabled=False)
    flow.planner.latestOffset(flow.taken, None)
    pulsar.admin("PUT", "persistent/public/short/trimmed/unload")
    pulsar.publish("public/short/trimmed", [b"last"])
    pulsar.admin("POST", "persistent/public/short/trimmed/trim")
    since = flow.taken["public/short/trimmed"]["-1"]
    until(
        lambda: (flow.admin.ledgers("public/short/trimmed") or {})[-1].has_lost(since),
        what="a trimmed ledger",
    )
    with pytest.raises(
        FlowStoppedError,
        match=r"not read yet: public/short/trimmed, from \d+/10 to before \d+/0, at least 60 entries",
    ) as error:
        flow.step()
    assert "docs/pulsar.md" in str(error.value)


def test_what_a_transaction_took_back_is_not_seen(pulsar: Pulsar, follow: Follow) -> None:
    topic = next(names)
    pulsar.create(topic, partitions=0)
    transactions(pulsar, topic, "commit", "a", "abort", "b", "commit", "c", "open", "d", "commit", "e")
    flow = follow(topics=(topic,))
    assert joined(flow.steps()) == [b"a", b"c"], "what follows an open one waits"


def test_chunks_of_a_message_in_several_micro_batches(pulsar: Pulsar, follow: Follow) -> None:
    topic = next(names)
    pulsar.create(topic, partitions=0)
    large = [bytes([65 + each]) * 70_000 for each in range(6)]
    payloads = [each for pair in zip(large, lines(6), strict=True) for each in pair]
    pulsar.publish(topic, payloads, chunking_enabled=True, batching_enabled=False)
    flow = follow(most_bytes=1, topics=(topic,))
    batches = flow.steps()
    assert len(batches) > len(payloads), "an entry each"
    assert joined(batches) == payloads


def test_the_feed_of_changes_is_written_by_profile_in_order(pulsar: Pulsar, follow: Follow) -> None:
    from sinks.pulsar.publisher import PulsarPublisher

    topic = next(names)
    pulsar.create(topic)
    flow = follow(topics=(topic,))
    sender = TopicSender(partial(PulsarPublisher, flow.settings), f"public/default/{topic}")
    with closing(sender):
        deliveries = [
            Delivery(id=f"{number}", profile=f"p{number % 4}", document={"n": number}) for number in range(40)
        ]
        assert sender.send(deliveries) is None
        found = [json.loads(each) for each in joined(flow.steps()) if each]
        for profile in range(4):
            mine = [each["n"] for each in found if each["n"] % 4 == profile]
            assert mine == list(range(profile, 40, 4))
        assert {each["id"] for each in found} == {f"{number}" for number in range(40)}
    away = flow.settings.model_copy(update={"service_url": "pulsar://127.0.0.1:1", "answer_seconds": 1})
    with closing(TopicSender(partial(PulsarPublisher, away), f"public/default/{topic}")) as nowhere:
        assert "of Pulsar at pulsar://127.0.0.1:1 could not be written to" in (nowhere.send(deliveries) or "")


def test_the_first_position_by_time(pulsar: Pulsar, follow: Follow) -> None:
    topic = next(names)
    pulsar.create(topic, partitions=0)
    pulsar.publish(topic, lines(4), batching_enabled=False)
    flow = follow(topics=(topic,))
    found = flow.admin.ledgers(f"public/default/{topic}")
    assert found is not None
    assert flow.admin.at(f"public/default/{topic}", -1, 0) == found[-1].first
    assert flow.admin.at(f"public/default/{topic}", -1, 2**42) == found[-1].end


def test_what_is_not_there_is_named(follow: Follow) -> None:
    admin = follow(topics=("a",)).admin
    assert admin.ledgers("public/default/nothing") is None
    with pytest.raises(ConfigError, match="there is no namespace nobody/nowhere in Pulsar"):
        admin.topics("nobody/nowhere")
    away = HttpPulsarAdmin(PulsarSettings(admin_url="http://127.0.0.1:1"))
    with (
        closing(away),
        pytest.raises(SourceUnavailableError, match=r"does not answer .* correct \[pulsar\] admin_url"),
    ):
        away.topics("public/default")


def test_what_stands_beside_the_payload(pulsar: Pulsar, follow: Follow) -> None:
    topic = next(names)
    pulsar.create(topic, partitions=0)
    places = {"id": {"key": True}, "type": {"header": "kind"}, "source": {"producer": True}}
    flow = follow(topics=(topic,), **places, ordinal={"timestamp": True})
    with pulsar.client() as client:
        producer = client.create_producer(topic, producer_name="till-7")
        for payload in (b'{"n": 1}', None):
            producer.send(payload, {"kind": "sale"}, partition_key="k1", event_timestamp=1_711_000_000_123)
    sale, deletion = flow.events()
    assert isinstance(sale, Event)
    assert sale[:4] == ("till-7", "sale", "k1", 1_711_000_000_123)
    assert sale.context()["producer"] == "till-7"
    assert isinstance(deletion, Event)
    assert deletion.is_deletion()
    assert deletion.id == "k1"


def test_schemas_of_the_broker(pulsar: Pulsar, follow: Follow) -> None:
    from google.protobuf import api_pb2
    from pulsar import schema

    lax = "namespaces/public/default/schemaCompatibilityStrategy"
    pulsar.admin("PUT", lax, "ALWAYS_COMPATIBLE")
    narrow: Any = type("Order", (schema.Record,), {"a": schema.String()})
    wide: Any = type("Order", (schema.Record,), {"a": schema.String(), "n": schema.Integer(default=0)})

    def published(*values: Any) -> list[Any]:
        topic = next(names)
        pulsar.create(topic)
        for of, value in values:
            with pulsar.client() as client:
                client.create_producer(topic, schema=of).send(value)
        flow = follow(topics=(topic,), format="registry", ordinal={"timestamp": True})
        return [each.payload if isinstance(each, Event) else each.reason for each in flow.events()]

    both = (schema.AvroSchema(narrow), narrow(a="x")), (schema.AvroSchema(wide), wide(a="y", n=2))
    found = published(*both)
    assert sorted(found, key=str) == [{"a": "x"}, {"a": "y", "n": 2}], (
        "each by the version that it was written with"
    )
    assert published((schema.JsonSchema(wide), wide(a="z", n=3))) == [{"a": "z", "n": 3}]
    native = schema.ProtobufNativeSchema(api_pb2.Mixin)
    assert published((native, api_pb2.Mixin(name="m"))) == [{"name": "m", "root": ""}]
    assert published((schema.BytesSchema(), b"{}")) == [DeadLetterReason.NO_SCHEMA]


@pytest.mark.parametrize("is_batched", [False, True])
def test_a_compacted_topic_whose_ledgers_are_gone(pulsar: Pulsar, follow: Follow, is_batched: bool) -> None:
    topic = f"public/short/{next(names)}"
    pulsar.create(topic, partitions=0)
    for n in range(9):
        pulsar.publish(
            topic, [b"old", b"%d" % n] if n else [b"gone", None], f"k{n}", batching_enabled=is_batched
        )
    before = follow(topics=(topic,))
    first = next(row for row in before.rows())
    pulsar.admin("PUT", f"persistent/{topic}/compaction")
    path = f"persistent/{topic}/compaction"
    until(lambda: pulsar.admin("GET", path)["status"] == "SUCCESS", what="a compacted topic")
    pulsar.admin("PUT", f"persistent/{topic}/unload")
    pulsar.publish(topic, [b"last"], "k9")
    pulsar.admin("POST", f"persistent/{topic}/trim")
    flow = follow(topics=(topic,), most_bytes=1)
    until(lambda: (flow.admin.ledgers(topic) or {})[-1].has_lost(first[2]), what="a trimmed ledger")
    kept, live = flow.steps()
    # Whether a deletion is kept, too, is the compactor's choice.
    assert list(filter(None, kept)) == [b"%d" % n for n in range(1, 9)]
    assert live == [b"last"]
    pulsar.publish(topic, [b"live"], "k10")
    flow.restart()
    assert flow.steps() == [[b"live"]]
    with pytest.raises(FlowStoppedError, match="not read yet"):
        before.step()
