"""Kafka, DynamoDB Local, Elasticsearch, the metadata service and a flow: what comes out is what the embedded defaults give,
byte for byte."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.app import wiring
from idgraph.app.settings.document import load
from idgraph.model.index import ProfileIndex
from idgraph.model.queries import Query
from tests.e2e.production_shape import STOP_SECONDS, ProductionShape
from tests.installation import Installation, profiles_by, retail, until
from tests.properties.test_indexes import all_pages
from tests.retail_queries import QUERIES
from tests.servers.requirement import required
from tests.support.machine import started
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FIRST = {"segment": 100, "amplitude": 60, "orders": 40}
KEYS = {"segment": "userId", "amplitude": "user_id", "orders": "customer.email"}
PATIENCE = 240
LATER = 20
"""Orders that come when the flow was started again."""


class Started:
    """The production shape, and the process that has its flow by now."""

    def __init__(self, shape: ProductionShape) -> None:
        self.shape = shape
        self.process = shape.start()

    def stop(self) -> None:
        """As its users stop it; asserts that it ends well."""
        self.process.terminate()
        assert self.process.wait(STOP_SECONDS) == 0, self.shape.errors.read_bytes()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with (
        required("boto3", "idgraph[dynamodb]"),
        required("elasticsearch", "idgraph[elasticsearch]"),
        required("confluent_kafka", "idgraph[kafka]"),
    ):
        machine = started(tmp_path_factory.mktemp("up") / "machine")
        shape = machine.__enter__()
    one = Started(ProductionShape(shape))
    try:
        for source, events in FIRST.items():
            publish(one.shape, source, retail(source)[:events])
        until(
            lambda: one.shape.taken() >= sum(FIRST.values()) or one.process.poll() is not None,
            PATIENCE,
            "all events",
        )
        assert one.process.poll() is None, one.shape.errors.read_bytes()
        yield one
    finally:
        if one.process.poll() is None:
            one.process.terminate()
            one.process.wait(STOP_SECONDS)
        machine.__exit__(None, None, None)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory, up: Started) -> Installation:
    """The same events as files, into SQLite, by the same service and keys."""
    installation = Installation(tmp_path_factory.mktemp("embedded"), up.shape.shop())
    take(installation, {source: retail(source)[:events] for source, events in FIRST.items()})
    return installation


def publish(shape: ProductionShape, source: str, lines: list[bytes]) -> None:
    """In the order of their arrival."""
    file = shape.folder.with_name(f"{source}.jsonl")
    file.write_bytes(b"".join(lines))
    shape.command("publish", source, str(file), "--key", KEYS[source])


def answers(config: Path) -> list[tuple[list[str], int]]:
    """What an installation's index answers to each query."""

    def answer(index: ProfileIndex, query: Query) -> tuple[list[str], int]:
        return all_pages(index, query, 100), index.count(query)

    with wiring.opened(load(config)) as resources:
        until(lambda: not resources.store.outbox(), PATIENCE, "the outbox")
        return [answer(resources.index, query) for query in QUERIES]


def exported(command: subprocess.CompletedProcess[bytes]) -> list[bytes]:
    return command.stdout.splitlines()


def test_end_to_end(up: Started, embedded: Installation) -> None:
    shape = up.shape
    assert profiles_by(shape.config) == embedded.profiles()
    found = answers(shape.config)
    assert found == answers(embedded.config)
    assert sum(bool(ids) for ids, _ in found) >= 6, "the queries ask for what is there"
    state = shape.settings.directory
    assert not [
        file.name for name in ("profiles", "data-keys", "index") for file in state.glob(f"{name}.db*")
    ]
    assert b"all tables exist" in shape.command("store", "create").stdout
    lags = [json.loads(line) for line in shape.command("flows", "--json").stdout.splitlines()]
    assert len(lags) == 2 * len(FIRST)
    assert {each["lag"] for each in lags} == {0}


def test_nothing_that_is_protected_is_in_the_servers_files(up: Started) -> None:
    profiles = [json.loads(line) for line in exported(up.shape.command("export", "--reveal"))]
    emails = [each["attributes"].get("identity", {}).get("email") for each in profiles]
    some = sorted(set(filter(None, emails)))[:20]
    assert some
    folders = [up.shape.folder / name for name in ("dynamodb", "elasticsearch", "state")]
    patterns = [word for email in some for word in ("-e", email)]
    found = subprocess.run(
        ["grep", "-rlaF", *patterns, *folders], check=False, capture_output=True, text=True
    )
    assert found.stdout.split() == []


@pytest.mark.long
def test_an_erased_person_is_in_neither(up: Started) -> None:
    first, second, *_ = exported(up.shape.command("export"))
    name = json.loads(first)["id"]
    up.shape.command("erase", name, "--yes")
    up.shape.command("lookup", name, code=3)
    page = json.loads(up.shape.command("search", "--json", "--limit", "1").stdout)
    assert page["id"] == json.loads(second)["id"]


@pytest.mark.long
def test_a_flow_that_starts_again_continues(up: Started) -> None:
    shape = up.shape
    before = exported(shape.command("export"))
    up.stop()
    up.process = shape.start()
    publish(shape, "orders", retail("orders")[FIRST["orders"] :][:LATER])
    until(lambda: shape.taken() >= LATER or up.process.poll() is not None, PATIENCE, "the orders")
    assert shape.taken() == LATER, "and none of those that were taken"
    assert len(exported(shape.command("export"))) > len(before)
