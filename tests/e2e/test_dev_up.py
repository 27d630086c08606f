"""Kafka, DynamoDB Local, Elasticsearch, the metadata service and the flow by one command, `idgraph dev up`: what comes
out is what the embedded defaults give, byte for byte."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.app import wiring
from idgraph.app.dev import machine as dev
from idgraph.app.settings.document import load
from idgraph.model.errors import ConfigError
from idgraph.model.index import ProfileIndex
from idgraph.model.queries import Query
from tests.e2e.production_shape import ProductionShape, alive, interrupt, kill
from tests.installation import Installation, descendants, profiles_by, retail, until
from tests.properties.test_indexes import all_pages
from tests.retail_queries import QUERIES
from tests.servers.requirement import REQUIRED
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FIRST = {"segment": 250, "amplitude": 150, "orders": 100}
KEYS = {"segment": "userId", "amplitude": "user_id", "orders": "customer.email"}
PATIENCE = 240
LATER = 20
"""Orders that come when all was started again."""


class Started:
    """The production shape, and the process that has it up by now."""

    def __init__(self, shape: ProductionShape) -> None:
        self.shape = shape
        self.process = shape.start()
        self.exported: list[bytes] = []
        """By who was up before."""

    def again(self) -> None:
        self.process = self.shape.start()


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    import os

    try:
        dev.require_parts()
    except ConfigError as error:
        if os.environ.get(REQUIRED):
            raise
        pytest.skip(" ".join(str(error).split()))
    started = Started(ProductionShape(tmp_path_factory.mktemp("up") / "dev"))
    try:
        for source, events in FIRST.items():
            publish(started.shape, source, retail(source)[:events])
        until(
            lambda: started.shape.taken() >= sum(FIRST.values()) or started.process.poll() is not None,
            PATIENCE,
            "all events",
        )
        assert started.process.poll() is None, started.shape.said()
        yield started
    finally:
        if started.process.poll() is None:
            interrupt(started.process)


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
        assert not resources.store.outbox()
        return [answer(resources.index, query) for query in QUERIES]


def exported(command: subprocess.CompletedProcess[bytes]) -> list[bytes]:
    return command.stdout.splitlines()


def test_end_to_end(up: Started, embedded: Installation) -> None:
    shape = up.shape
    assert profiles_by(shape.config) == embedded.profiles()
    found = answers(shape.config)
    assert found == answers(embedded.config)
    assert sum(bool(ids) for ids, _ in found) >= 6, "the queries ask for what is there"
    state = shape.settings().directory
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
    up.shape.command("erase", "--fragment", name, "--yes")
    up.shape.command("lookup", name, code=3)
    page = json.loads(up.shape.command("search", "--json", "--limit", "1").stdout)
    assert page["id"] == json.loads(second)["id"]


def test_a_second_one_in_the_same_folder_is_refused(up: Started) -> None:
    second = ProductionShape(up.shape.folder)
    second.output, second.errors = (file.with_suffix(".second") for file in (second.output, second.errors))
    assert second.start(wait=False).wait(60) == 2
    assert b"give another --directory" in second.said()
    assert up.process.poll() is None


def test_ctrl_c_leaves_no_process(up: Started) -> None:
    up.exported = exported(up.shape.command("export"))
    below = descendants(up.process.pid)
    assert len(below) > 5, "servers, the JVM, workers"
    assert interrupt(up.process) == 0, up.shape.said()
    # The JVM writes its archive of classes when it ends, and nobody waits for it.
    until(lambda: alive(below) == [], PATIENCE, "the end of what it had started")
    assert up.shape.processes() == []


@pytest.mark.long
def test_the_next_up_goes_on(up: Started) -> None:
    shape = up.shape
    if up.process.poll() is None:
        up.exported = exported(shape.command("export"))
        assert interrupt(up.process) == 0, shape.said()
    up.again()
    assert exported(shape.command("export")) == up.exported
    publish(shape, "orders", retail("orders")[FIRST["orders"] :][:LATER])
    until(lambda: shape.taken() >= LATER or up.process.poll() is not None, PATIENCE, "the orders")
    assert shape.taken() == LATER, "and none of those that were taken"
    assert len(exported(shape.command("export"))) > len(up.exported)


@pytest.mark.long
def test_killed_it_leaves_no_process_either(up: Started) -> None:
    below = descendants(up.process.pid)
    assert len(below) > 5, "servers, the JVM, workers"
    kill(up.process)
    until(lambda: alive(below) == [], 60, "the end of its servers")
    assert up.shape.processes() == []
