"""The flow from Kafka, on a real broker: the same profiles as from files, byte for byte, whatever dies."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from idgraph.app.newest_records import newest_records
from idgraph.app.settings.document import load
from idgraph.model.errors import FlowStoppedError, SourceUnavailableError
from ingestion.sources.kafka.envelope import payload_of
from sinks.http.metadata import MetadataClient
from tests.docs.test_identity_doc import tombstone_specs
from tests.installation import Installation, Shop, kill_tree, retail, until
from tests.retail import definition
from tests.servers.kafka import Kafka, running_kafka
from tests.servers.schema_registry import schema_registry
from tests.spark.conftest import FIRST, serving_shop
from tests.support.processes import free_port
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]

KEYS = {"segment": "userId", "amplitude": "user_id", "orders": "customer.email"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


def installed(folder: Path, shop: Shop, kafka: Kafka, topics: str, **settings: Any) -> Installation:
    """An installation whose sources are topics, which are made."""
    kafka.create(*(topics + source for source in FIRST))
    reported = {"bootstrap_servers": kafka.bootstrap_servers, **settings}
    return Installation(folder, shop, kafka=reported, topics=topics)


def publish(installation: Installation) -> None:
    """The events in the order of their arrival, by `idgraph publish`."""
    for source, events in FIRST.items():
        file = installation.folder / f"{source}.jsonl"
        file.write_bytes(b"".join(retail(source)[:events]))
        done = installation.command("publish", source, str(file), "--key", KEYS[source])
        assert f"published {events} events" in done.stderr.decode()


def test_the_newest_records_of_topics_are_read_for_somebody_who_looks(tmp_path: Path, kafka: Kafka) -> None:
    kafka.create("clicks", "other", partitions=3)
    for number in range(20):
        kafka.produce(
            "clicks", b'{"n": %d}' % number, partition=number % 2, timestamp=1_700_000_000_000 + number
        )
    kafka.produce_in_transactions("clicks", b'{"n": "last"}')
    kafka.produce("other", b"{}")
    file = tmp_path / "idgraph.toml"
    source = '[[sources]]\nkind = "kafka"\nname = "web"\ntopic_pattern = "cl.*"\n'
    file.write_text(f'[kafka]\nbootstrap_servers = "{kafka.bootstrap_servers}"\n{source}')
    settings = load(file)
    found = newest_records(settings, settings.sources_by_name()["web"], 4)
    assert [payload_of(each.value) for each in found] == [
        b'{"n": "last"}',
        *(b'{"n": %d}' % n for n in (19, 18, 17)),
    ]


def test_the_same_export_as_from_files(
    tmp_path: Path, shop: Shop, kafka: Kafka, first_profiles: bytes
) -> None:
    installation = installed(tmp_path, shop, kafka, "same-")
    publish(installation)
    kafka.produce("same-orders", b'{"order_id": "R1", ', None, partition=1)
    batches = installation.run()
    assert sum(batch["events"] for batch in batches) == sum(FIRST.values()) + 2
    assert sum(batch["skipped"] for batch in batches) == 1, "a record without a payload, which no spec is for"
    assert installation.profiles() == first_profiles
    (dead_letter,) = installation.dead_letters()
    assert dead_letter["reason"] == "not_json"
    topic, partition, offset = dead_letter["position"].removeprefix("kafka:").split("/")
    assert (topic, partition) == ("same-orders", "1")
    assert int(offset) < FIRST["orders"]
    installation.command("dead-letters", "replay", "--all", code=1)
    assert [each["position"] for each in installation.dead_letters()] == [dead_letter["position"]]


def partitions_with_lag(port: int) -> int:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        return int(answer.read().count(b"idgraph_source_lag_records{"))


def test_driver_and_broker_killed(tmp_path: Path, shop: Shop, kafka: Kafka, first_profiles: bytes) -> None:
    bounds = {"max_offsets_per_batch": 90, "min_offsets_per_batch": 40, "batch_seconds": 0.01}
    installation = installed(tmp_path, shop, kafka, "killed-", **bounds)
    port = free_port()
    config = installation.config.read_text()
    installation.config.write_text(config.replace("[metrics]\n", f"[metrics]\nport = {port}\n"))
    for source, events in FIRST.items():
        lines = [line.rstrip() for line in retail(source)[:events]]
        for partition in (0, 1):
            kafka.produce(f"killed-{source}", *lines[partition::2], partition=partition)
    process = installation.start()

    def is_bound_otherwise() -> bool:
        events = [batch["events"] for batch in installation.batches()]
        return any(each > 60 for each in events) and any(each < 60 for each in events)

    until(lambda: is_bound_otherwise() or process.poll() is not None, what="a smaller micro-batch")
    assert process.poll() is None, (tmp_path / "flow.err").read_text()
    kill_tree(process)
    process = installation.start()
    done = len(installation.batches())
    until(lambda: len(installation.batches()) > done or process.poll() is not None, what="a micro-batch")
    assert process.poll() is None, (tmp_path / "flow.err").read_text()
    until(lambda: partitions_with_lag(port) == 6, what="the lag as a metric")
    kafka.kill()
    kafka.restart()
    if process.poll() is None:
        process.terminate()
    process.wait(120)
    last = installation.run(
        IDGRAPH_KAFKA__MIN_OFFSETS_PER_BATCH="1000", IDGRAPH_KAFKA__MAX_OFFSETS_PER_BATCH="1000"
    )
    taken = sum(batch["events"] for batch in [*installation.batches(), *last])
    assert taken <= sum(FIRST.values()) + 2 * 90, "again is given no more than what was interrupted, twice"
    assert installation.profiles() == first_profiles
    assert installation.dead_letters() == []


def test_ranges_of_offsets_are_read_as_they_are(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    from sinks.kafka.topics import KafkaRanges

    monkeypatch.setattr("sinks.kafka.topics.SILENT_SECONDS", 3.0)
    any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    kafka.create("ranges", "empty", config=any_time)
    kafka.produce("ranges", b"a", None, b"c", key=b"\xff", headers=[("h", b"\xfe")], timestamp=2**60)
    kafka.produce("ranges", b"other", partition=1)
    ranges = KafkaRanges(kafka.bootstrap_servers, {})

    def read(topic: str, since: int | None, until: int, partition: int = 0) -> list[tuple[Any, ...]]:
        return [tuple(each) for each in ranges.records(topic, partition, since, until)]

    headers = [("h", b"\xfe")]
    whole = [(n, 2**60, b"\xff", value, headers) for n, value in enumerate((b"a", None, b"c"))]
    assert read("ranges", 0, 3) == read("ranges", None, 3) == whole
    assert read("ranges", 1, 2) == whole[1:2]
    assert [each[3] for each in read("ranges", 0, 1, 1)] == [b"other"]
    kafka.produce_in_transactions("empty", b"a", None, b"c")
    assert [each[3] for each in read("empty", 0, 6)] == [b"a", None, b"c"], "the last offset holds no record"
    assert read("empty", 5, 6) == []
    with pytest.raises(SourceUnavailableError, match="it had records up to offset 7"):
        read("empty", 0, 7)
    kafka.forget("ranges", 0, 2)
    assert read("ranges", None, 3) == whole[2:]
    with pytest.raises(FlowStoppedError, match="gone that were not read yet"):
        read("ranges", 0, 3)


def test_what_is_gone_before_it_was_read_stops_the_flow(tmp_path: Path, shop: Shop, kafka: Kafka) -> None:
    installation = installed(tmp_path, shop, kafka, "lost-")
    events = retail("orders")[:30]
    kafka.produce("lost-orders", *events[:10])
    installation.run()
    kafka.produce("lost-orders", *events[10:])
    kafka.forget("lost-orders", 0, 20)
    lines = installation.command("flows", "--json").stdout.splitlines()
    found = {(state["topic"], state["partition"]): state for state in map(json.loads, lines)}
    assert len(found) == 6
    assert found["lost-orders", 0] == {
        "flow": "shop",
        "topic": "lost-orders",
        "partition": 0,
        "taken": 10,
        "end": 30,
        "lag": 20,
    }
    reported = installation.command("run", "--until-done", code=4).stderr.decode()
    assert "lost-orders" in reported
    assert len(reported.splitlines()) < 5, reported


ORDER = {
    "order_id": "string",
    "created_at": "string",
    "customer": {"email": "string", "name": {"first": "string", "last": "string"}},
    "shipping": dict.fromkeys(("line1", "city", "region", "postal_code", "country"), "string"),
    "cart": {"id": "string", "total": "string", "items": "int"},
    "guest": "boolean",
}


def avro(shape: dict[str, Any], name: str = "Order") -> dict[str, Any]:
    fields = [
        {"name": key, "type": avro(kind, key.title()) if isinstance(kind, dict) else kind}
        for key, kind in shape.items()
    ]
    return {"type": "record", "name": name, "fields": fields}


def test_avro_by_a_registry_and_timestamps_out_of_all_range(
    tmp_path: Path, shop: Shop, kafka: Kafka, first_profiles: bytes
) -> None:
    fastavro = pytest.importorskip("fastavro", reason="fastavro is not installed: pip install -e .[schemas]")
    schema = avro(ORDER)
    any_time = {"message.timestamp.after.max.ms": str(2**63 - 1)}
    kafka.create("odd-segment", config=any_time)
    kafka.create("odd-amplitude", "odd-orders")
    reported = {"bootstrap_servers": kafka.bootstrap_servers}
    installation = Installation(tmp_path, shop, kafka=reported, topics="odd-")
    with schema_registry() as registry:
        number = registry.register("odd-orders-value", json.dumps(schema))
        config = installation.config.read_text()
        config = config.replace('topics = ["odd-orders"]', 'topics = ["odd-orders"]\nformat = "registry"')
        installation.config.write_text(f'{config}[kafka.registry]\nurl = "{registry.url}"\n')
        payloads = []
        for line in retail("orders")[: FIRST["orders"]]:
            content = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
            content.seek(0, io.SEEK_END)
            fastavro.schemaless_writer(content, schema, json.loads(line))
            payloads.append(content.getvalue())
        kafka.produce("odd-orders", *payloads, b"\0\0\0\0\x09", b"{}")
        segment = [line.rstrip() for line in retail("segment")[: FIRST["segment"]]]
        kafka.produce("odd-segment", *segment[:100])
        kafka.produce("odd-segment", *segment[100:], timestamp=1_711_000_000_000_000_000, partition=1)
        amplitude = [line.rstrip() for line in retail("amplitude")[: FIRST["amplitude"]]]
        kafka.produce("odd-amplitude", *amplitude)
        batches = installation.run()
    assert sum(batch["events"] for batch in batches) == sum(FIRST.values()) + 2
    assert set(batches[-1]["lag"].values()) == {0}
    assert installation.profiles() == first_profiles
    assert sorted(dead_letter["reason"] for dead_letter in installation.dead_letters()) == [
        "bad_payload",
        "no_schema",
    ]


def test_a_tombstone_takes_an_event_back(tmp_path: Path, kafka: Kafka) -> None:
    kafka.create("returned")
    with serving_shop(tmp_path) as (own, _):
        with MetadataClient(own.url, own.token) as client:
            for each in tombstone_specs():
                client.put_spec(each.model_copy(update={"source": "returns"}))
        installation = installed(tmp_path / "own", own, kafka, "returns-")
        with installation.config.open("a") as config:
            config.write(
                '[[sources]]\nname = "returns"\nkind = "kafka"\ntopics = ["returned"]\n'
                'type = { const = "order" }\nordinal = { timestamp = true }\n'
            )
        for number in (b"A", b"B", b"C"):
            kafka.produce("returned", b'{"email": "ann@x.example"}', key=number)
        installation.run()

        def persons() -> dict[str, int]:
            found = map(json.loads, installation.export().splitlines())
            return {each["id"]: len(each["identifiers"]) for each in found}

        assert persons() == {"order_id:A": 4}
        kafka.produce("returned", None, key=b"B")
        installation.run()
        assert persons() == {"order_id:A": 3, "order_id:B": 1}
        assert installation.dead_letters() == []


def test_a_source_that_waits_begins_again_where_it_failed(tmp_path: Path, kafka: Kafka) -> None:
    topics, limits = "waits-", {"max_rate": 0.1, "minimum": 10, "window": 1000}
    kafka.create(*(topics + source for source in FIRST))
    with serving_shop(tmp_path) as (shop, _), MetadataClient(shop.url, shop.token) as client:
        client.put_spec(definition("amplitude", event_type="nothing of the kind"))
        settings = {"bootstrap_servers": kafka.bootstrap_servers}
        installation = Installation(
            tmp_path / "shop", shop, kafka=settings, topics=topics, dead_letters=limits
        )

        def publish_some(source: str, since: int, until: int) -> None:
            kafka.produce(topics + source, *retail(source)[since:until])

        def taken(code: int) -> int:
            return sum(batch["events"] for batch in installation.run(code=code))

        publish_some("orders", 0, 50)
        publish_some("amplitude", 0, 100)
        assert taken(code=4) == 150
        publish_some("orders", 50, 80)
        publish_some("amplitude", 100, 150)
        assert taken(code=4) == 30
        client.put_spec(definition("amplitude"))
        assert taken(code=0) == 150
        assert installation.dead_letters() == []
        clean = Installation(tmp_path / "clean", shop)
        take(clean, {"orders": retail("orders")[:80], "amplitude": retail("amplitude")[:150]})
        assert installation.profiles() == clean.profiles()
