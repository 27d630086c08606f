"""The one cluster of all tests here, which follow each other: each takes it as the one before has left it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.shape import Cluster, cluster
from tests.cluster.shop import Events, OneMachine
from tests.servers.requirement import required


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with (
        required("boto3", "idgraph[dynamodb]"),
        required("elasticsearch", "idgraph[elasticsearch]"),
        required("confluent_kafka", "idgraph[kafka]"),
    ):
        context = cluster(tmp_path_factory.mktemp("cluster") / "it")
        running = context.__enter__()
    try:
        yield running
    finally:
        context.__exit__(None, None, None)


@pytest.fixture(scope="session")
def events(up: Cluster) -> Events:
    return Events(up)


@pytest.fixture(scope="session")
def crm(up: Cluster) -> str:
    """A caller's token."""
    return up.admin("idgraph", "tokens", "add", "crm", "--role", "profiles", "--clearance", "100").strip()


@pytest.fixture(scope="session")
def one_machine(up: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneMachine]:
    with OneMachine.serving(tmp_path_factory.mktemp("one-machine"), up.folder / "keyring.json") as made:
        yield made
