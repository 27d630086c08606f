"""The flow from Pulsar, on a real server: the same profiles as from files, byte for byte, whatever dies."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from idgraph.app.adapters.shared_state import shared_flows
from idgraph.app.flow_progress import committed
from idgraph.app.newest_records import newest_records
from idgraph.app.settings.document import load
from ingestion.sources.kafka.envelope import payload_of
from tests.installation import Installation, Shop, kill_tree, retail, until
from tests.servers.pulsar import Pulsar, running_pulsar
from tests.spark.conftest import FIRST

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


KEYS = {"segment": "userId", "amplitude": "user_id", "orders": "customer.email"}


@pytest.fixture(scope="module")
def pulsar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pulsar]:
    with running_pulsar(tmp_path_factory.mktemp("pulsar")) as server:
        yield server


def installed(folder: Path, shop: Shop, pulsar: Pulsar, topics: str, **settings: Any) -> Installation:
    """An installation whose sources are topics of three partitions, which are made."""
    pulsar.create(*(topics + source for source in FIRST))
    return Installation(folder, shop, pulsar={**pulsar.settings, **settings}, topics=topics)


def publish(pulsar: Pulsar, topics: str) -> None:
    """The events, in batches, each topic compressed in another way."""
    from pulsar import CompressionType

    ways = (CompressionType.LZ4, CompressionType.ZSTD, CompressionType.SNAPPY)
    for (source, events), way in zip(FIRST.items(), ways, strict=True):
        lines = [line.rstrip() for line in retail(source)[:events]]
        pulsar.publish(
            topics + source, lines, batching_enabled=True, batching_max_messages=20, compression_type=way
        )


def states(installation: Installation) -> list[dict[str, Any]]:
    """What `idgraph flows` shows."""
    return [json.loads(line) for line in installation.command("flows", "--json").stdout.splitlines()]


def test_the_same_export_as_from_files(
    tmp_path: Path, shop: Shop, pulsar: Pulsar, first_profiles: bytes
) -> None:
    installation = installed(tmp_path, shop, pulsar, "same-")
    publish(pulsar, "same-")
    ((partition, ledger, entry, batch),) = pulsar.publish("same-orders", [b'{"order_id": "R1", '])
    batches = installation.run()
    assert sum(each["events"] for each in batches) == sum(FIRST.values()) + 1
    assert installation.profiles() == first_profiles
    (dead_letter,) = installation.dead_letters()
    assert dead_letter["reason"] == "not_json"
    topic = f"public/default/same-orders-partition-{partition}"
    assert dead_letter["position"] == f"pulsar:{topic}/{ledger}/{entry}/{max(0, batch)}"
    assert installation.run() == [], "all is done"
    assert {each["lag"] for each in states(installation)} == {0}
    more = pulsar.publish("same-orders", [b"{}"] * 7, batching_enabled=True)
    behind = {
        each["partition"]: each for each in states(installation) if each["topic"].endswith("same-orders")
    }
    counts = Counter(partition for partition, *_ in more)
    assert {each: behind[each]["lag"] for each in counts} == counts
    assert all(behind[each]["lag_seconds"] > 0 for each in counts)
    assert behind[partition]["taken"] == f"{ledger}/{entry + 1}"
    settings = load(installation.config)
    newest = newest_records(settings, settings.sources_by_name()["orders"], 8)
    assert [payload_of(each.value) for each in newest] == [b"{}"] * 7 + [b'{"order_id": "R1", ']
    assert newest[-1].position == dead_letter["position"]
    with shared_flows(settings) as flows:
        has_committed = committed(settings, flows)
        assert has_committed(dead_letter["position"])
        assert not has_committed(newest[0].position)


def test_driver_and_server_killed(tmp_path: Path, shop: Shop, pulsar: Pulsar, first_profiles: bytes) -> None:
    installation = installed(tmp_path, shop, pulsar, "killed-", max_bytes_per_batch=20_000)
    for source, events in FIRST.items():
        file = tmp_path / f"{source}.jsonl"
        file.write_bytes(b"".join(retail(source)[:events]))
        published = installation.command("publish", source, str(file), "--key", KEYS[source])
        assert f"published {events} events" in published.stderr.decode()
    process = installation.start()
    until(lambda: installation.batches() or process.poll() is not None, what="a micro-batch")
    assert process.poll() is None, (tmp_path / "flow.err").read_text()
    kill_tree(process)
    process = installation.start()
    done = len(installation.batches())
    until(lambda: len(installation.batches()) > done or process.poll() is not None, what="a micro-batch")
    assert process.poll() is None, (tmp_path / "flow.err").read_text()
    pulsar.kill()
    pulsar.restart()
    if process.poll() is None:
        process.terminate()
    process.wait(120)
    last = installation.run()
    taken = sum(batch["events"] for batch in [*installation.batches(), *last])
    assert taken >= sum(FIRST.values())
    assert installation.profiles() == first_profiles
    assert installation.dead_letters() == []


def test_where_a_flow_begins(tmp_path: Path, shop: Shop, pulsar: Pulsar) -> None:
    lines = [line.rstrip() for line in retail("orders")[:12]]
    pulsar.create(*("begins-" + source for source in FIRST))
    pulsar.publish("begins-orders", lines[:4], key="k", batching_enabled=False)
    time.sleep(0.05)
    when = datetime.now(UTC)
    time.sleep(0.05)
    (first, *_) = pulsar.publish("begins-orders", lines[4:9], key="k", batching_enabled=False)
    partition, ledger, entry, _ = first
    place = {"begins-orders": {str(partition): f"{ledger}/{entry + 2}"}}
    starts = {"latest": ("latest", 0), "time": (when.isoformat(), 5), "place": (place, 3)}
    beyond = {**pulsar.settings, "starting_position": {"begins-orders": {str(partition): f"{ledger}/99"}}}
    nowhere = Installation(tmp_path / "beyond", shop, pulsar=beyond, topics="begins-")
    error = nowhere.command("run", "--until-done", code=2).stderr.decode()
    assert f"begins-orders-partition-{partition} ends before {ledger}/99" in error
    for name, (start, count) in starts.items():
        settings = {**pulsar.settings, "starting_position": start}
        flow = Installation(tmp_path / name, shop, pulsar=settings, topics="begins-")
        assert sum(batch["events"] for batch in flow.run()) == count, name
    pulsar.publish("begins-orders", lines[9:])
    for name in starts:
        flow = Installation(tmp_path / name, shop, pulsar=pulsar.settings, topics="begins-")
        assert sum(batch["events"] for batch in flow.run()) == 3, (
            f"{name}: what came since, and the start is kept"
        )


def test_backfill_from_one_position_to_another(tmp_path: Path, shop: Shop, pulsar: Pulsar) -> None:
    installation = installed(tmp_path, shop, pulsar, "past-", starting_position="latest")
    lines = [line.rstrip() for line in retail("orders")[:20]]
    at = pulsar.publish("past-orders", lines[:12], key="k", batching_enabled=False)
    pulsar.publish("past-orders", lines[12:], key="another", batching_enabled=False)
    assert sum(batch["events"] for batch in installation.run()) == 0, "the flow begins at the latest"
    first, last = (
        f"pulsar:public/default/past-orders-partition-{p}/{ledger}/{e}/0"
        for p, ledger, e, _ in (at[3], at[8])
    )

    def events(*words: str) -> int:
        done = installation.command("backfill", "orders", "--json", *words)
        return sum(json.loads(line)["events"] for line in done.stdout.splitlines())

    assert events("--since", first, "--until", last) == 6, "the last one too"
    assert events("--since", first, "--until", last) == 0, "it is done"
    assert events("--since", first, "--until", last, "--again") == 6
    assert events("--since", "earliest", "--rate", "1000") == 20
    assert events("--since", "2020-01-01T00:00:00Z", "--until", last) == 9, "of its partition"
    nothing = installation.command("backfill", "orders", "--since", last, "--until", first, code=3)
    assert "no message of orders" in nothing.stderr.decode()
    assert (
        "give earliest, latest, a time"
        in installation.command("backfill", "orders", "--since", "x", code=2).stderr.decode()
    )
    expected = Installation(tmp_path / "files", shop)
    expected.publish("orders", lines)
    expected.run()
    assert installation.profiles() == expected.profiles()
