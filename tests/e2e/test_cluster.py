"""The flow on a standalone Spark cluster: a master and two workers, whose Python has nothing of idgraph but what the
archive brings, from Kafka into DynamoDB and Elasticsearch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from idgraph.app.package import write_archive
from sinks.http.metadata import MetadataClient
from tests.e2e.faults import at_a_write, purchases
from tests.installation import Installation, Shop, descendants, retail, until
from tests.servers.dynamodb import require_dynamodb
from tests.servers.elasticsearch import require_elasticsearch
from tests.servers.faulty_proxy import Fault, faulty_proxy
from tests.servers.kafka import Kafka, running_kafka
from tests.spark.conftest import declare_counters, serving_shop
from tests.support.spark import SparkCluster, spark_cluster
from tests.undisturbed import take

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

FIRST = {"segment": 240, "amplitude": 100, "orders": 60}
PATIENCE = 400
BAD_LINE = b"{ not JSON"
BARE_PYTHON = str(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}")
"""The one that this virtual environment was made with."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("archive") / "idgraph.tar.gz"
    write_archive(file)
    return file


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with serving_shop(tmp_path_factory.mktemp("shop")) as (shop, _):
        with MetadataClient(shop.url, shop.token) as client:
            declare_counters(client)
        yield shop


@pytest.fixture
def store() -> Iterator[tuple[str, deque[Fault]]]:
    """DynamoDB's address, by way of a proxy, and what that is to do."""
    with faulty_proxy(require_dynamodb()) as proxy:
        yield proxy


def test_the_archive_has_all_that_a_worker_needs(tmp_path: Path, archive: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    assert not (tmp_path / "pyspark").exists()
    code = (
        "import ingestion.spark.tasks, idgraph.app.wiring, sinks.dynamodb.profiles, sinks.elasticsearch.index\n"
        "from idgraph import native\n"
        "print(native.state, ingestion.spark.tasks.__file__)"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(
        [BARE_PYTHON, "-c", code], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["in", "use", str(tmp_path / "ingestion" / "spark" / "tasks.py")]


def test_an_executor_killed_in_mid_batch_changes_nothing(
    tmp_path: Path,
    shop: Shop,
    kafka: Kafka,
    cluster: SparkCluster,
    archive: Path,
    store: tuple[str, deque[Fault]],
) -> None:
    endpoint, faults = store
    embedded = Installation(tmp_path / "embedded", shop)
    lines = {source: retail(source)[:events] for source, events in FIRST.items()}
    take(embedded, {**lines, "orders": [*lines["orders"], BAD_LINE]})
    kafka.create(*(f"cluster-{source}" for source in FIRST))
    name = f"cluster-{os.getpid()}"
    installation = Installation(
        tmp_path / "cluster",
        shop,
        master=cluster.url,
        strategy="high_throughput",
        topics="cluster-",
        kafka={"bootstrap_servers": kafka.bootstrap_servers, "max_offsets_per_batch": 200},
        store={
            "kind": "dynamodb",
            "table_prefix": name,
            "region": "eu-central-1",
            "endpoint": endpoint,
        },
        index={"kind": "elasticsearch", "url": require_elasticsearch(), "name": name, "replicas": 0},
        spark={
            "archive": str(archive),
            "python": BARE_PYTHON,
            "driver_host": "127.0.0.1",
            "options": {
                "spark.executor.memory": "512m",
                "spark.executor.cores": "1",
                "spark.authenticate": "true",
                "spark.authenticate.secret": cluster.secret,
            },
        },
    )
    installation.command("store", "create")
    installation.command("index", "create")
    for source, some in lines.items():
        kafka.produce(f"cluster-{source}", *(line.strip() for line in some))
    kafka.produce("cluster-orders", BAD_LINE)
    process = installation.start("--until-done")
    until(lambda: installation.batches() or process.poll() is not None, PATIENCE, "a micro-batch")
    assert process.poll() is None, (installation.folder / "flow.err").read_text()
    faults.append(at_a_write(faults, lambda: os.kill(executors(cluster)[0], signal.SIGKILL)))
    assert process.wait(PATIENCE) == 0, (installation.folder / "flow.err").read_text()
    assert not faults, "it was killed"
    assert sum(batch["events"] for batch in installation.batches()) == sum(FIRST.values()) + 1
    assert installation.profiles() == embedded.profiles()
    exported = installation.export().splitlines()
    assert purchases(exported) > 10
    found = installation.command("search", "--json", "--limit", "1000").stdout.splitlines()
    assert len(found) == len(exported)
    (dead_letter,) = installation.dead_letters()
    assert dead_letter["reason"] == "not_json"
    shown = installation.command("dead-letters", "show", dead_letter["id"], "--reveal").stdout
    assert BAD_LINE.decode() in shown.decode()
    assert json.loads(found[0])["id"]


def executors(cluster: SparkCluster) -> list[int]:
    """The JVMs that the workers have started for the flow."""
    below = [pid for worker in cluster.workers for pid in descendants(worker.pid)]
    return [
        pid for pid in below if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
