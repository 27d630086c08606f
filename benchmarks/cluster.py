"""The flow from Kafka into DynamoDB Local and Elasticsearch on a standalone Spark cluster of one worker and of two, and
with executors in the driver's own process. All servers share the machine with it. Then the projection of all fragments
again, without an event: the CPU of each process per fragment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.flow_run import FlowRun, run_until_done
from benchmarks.product import command, installed
from benchmarks.topics import make_topics
from benchmarks.workload import SOURCES, clear, events, renamed
from idgraph.app import wiring
from idgraph.app.settings.document import load
from idgraph.model import canonical
from idgraph.model.queries import Query
from sinks.kafka.publisher import KafkaPublisher
from tests.support.kafka import kafka
from tests.support.spark import spark_cluster
from tests.support.stores import dynamodb, elasticsearch

PARTITIONS = 4
TYPES = {
    "segment": '{ path = "type" }',
    "amplitude": '{ path = "event_type" }',
    "orders": '{ const = "order" }',
}


class _Run(NamedTuple):
    """The result of a flow: each profile with the origins of its values, the number in the index, and what it took to project
    all fragments again."""

    figures: FlowRun
    profiles: frozenset[bytes]
    indexed: int
    projected_again: dict[str, float]


def measure(folder: Path, count: int) -> dict[str, Any]:
    """By placement, over the first `count` events of each source: events a second from the first micro-batch to the last,
    beside one core of the same kind, and what was lost: profiles that are not byte for byte those of `local[1]`."""
    clear(folder)
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        broker = stack.enter_context(kafka(folder / "kafka"))
        tables = stack.enter_context(dynamodb(folder / "dynamodb"))
        node = stack.enter_context(elasticsearch(folder / "elasticsearch"))
        _, settings = stack.enter_context(installed(folder / "shop"))
        total = _produce(broker.bootstrap_servers, count)
        config = folder / "idgraph.toml"
        config.write_text(
            f"directory = {json.dumps(str(settings.directory))}\n"
            f'[metadata]\nurl = "{settings.metadata.url}"\n'
            f'[kafka]\nbootstrap_servers = "{broker.bootstrap_servers}"\nmax_offsets_per_batch = {max(total // 3, 1)}\n'
            f'[store]\nkind = "dynamodb"\nregion = "eu-central-1"\nendpoint = "{tables.url}"\n'
            f'[index]\nkind = "elasticsearch"\nurl = "{node.url}"\nreplicas = 0\n'
            '[flow]\nstrategy = "high_throughput"\n'
            + "".join(
                f'[[sources]]\nname = "{source}"\nkind = "kafka"\ntopics = ["{source}"]\ntype = {TYPES[source]}\n'
                for source in SOURCES
            )
        )
        servers = {"dynamodb": [tables.process.pid], "elasticsearch": [node.process.pid]}
        runs = {
            f"local[{cores}]": _run(config, f"local-{cores}", total, f"local[{cores}]", cores, servers)
            for cores in (1, 2)
        }
        runs |= {
            f"cluster of {workers}": _on_cluster(folder, config, total, workers, servers)
            for workers in (1, 2)
        }
    return {
        placement: {
            **_figures(run),
            "projected_again": run.projected_again,
            "of_one": round(_rate(run) / _rate(runs[placement.replace("2", "1")]), 2),
            "lost_profiles": len(runs["local[1]"].profiles - run.profiles),
            "profiles_too_many": len(run.profiles - runs["local[1]"].profiles),
            "cores_of_the_whole_machine": os.cpu_count(),
        }
        for placement, run in runs.items()
    }


def _figures(run: _Run) -> dict[str, float]:
    return {
        "events": run.figures.events,
        "events_per_second": round(_rate(run)),
        "streaming_seconds": round(run.figures.streaming_seconds, 1),
        "whole_seconds": round(run.figures.whole_seconds, 1),
        "dead_letters": run.figures.dead_letters,
        "profiles": len(run.profiles),
        "profiles_in_the_index": run.indexed,
    }


def _rate(run: _Run) -> float:
    return run.figures.events / run.figures.streaming_seconds


def _produce(bootstrap_servers: str, count: int) -> int:
    make_topics(bootstrap_servers, SOURCES, PARTITIONS)
    total = 0
    with KafkaPublisher(bootstrap_servers, {}) as publisher:
        for source in SOURCES:
            lines = [renamed(source, event, 1) for event in events(source)[:count]]
            total += publisher.publish(source, ((b"%d" % number, line) for number, line in enumerate(lines)))
    return total


def _on_cluster(
    folder: Path, config: Path, total: int, workers: int, servers: Mapping[str, Sequence[int]]
) -> _Run:
    with spark_cluster(folder / f"cluster-{workers}", workers) as cluster:
        options = {
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.authenticate": "true",
            "spark.authenticate.secret": cluster.secret,
        }
        further = {
            "IDGRAPH_SPARK__DRIVER_HOST": "127.0.0.1",
            # On this machine, where executors find idgraph as the driver does.
            "IDGRAPH_SPARK__PYTHON": sys.executable,
            "IDGRAPH_SPARK__OPTIONS": json.dumps(options),
        }
        watched = {**servers, "executors": [each.pid for each in cluster.workers]}
        return _run(config, f"cluster-{workers}", total, cluster.url, workers, watched, **further)


def _run(
    config: Path,
    name: str,
    total: int,
    master: str,
    cores: int,
    watched: Mapping[str, Sequence[int]],
    **further: str,
) -> _Run:
    """A flow, tables and an index of its own."""
    variables = {
        "IDGRAPH_FLOW__NAME": name,
        "IDGRAPH_FLOW__MASTER": master,
        "IDGRAPH_FLOW__PARTITIONS": str(cores),
        "IDGRAPH_STORE__TABLE_PREFIX": name,
        "IDGRAPH_INDEX__NAME": name,
        **further,
    }
    with _environment(variables):
        command(config, "store", "create")
        command(config, "index", "create")
        figures = run_until_done(config, total)
        settings = load(config)
        with wiring.opened(settings) as resources:
            scanned = wiring.profile_reader(settings, resources).scan(reveal=True)
            profiles = frozenset(canonical.encode(each.canonical(True)) for each in scanned)
            indexed = resources.index.count(Query())
        again = subprocess.run(
            [sys.executable, "-m", "benchmarks.cluster_projection", str(config), json.dumps(watched)],
            check=True,
            stdout=subprocess.PIPE,
        )
        return _Run(figures, profiles, indexed, json.loads(again.stdout))


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    kept = dict(os.environ)
    os.environ |= variables
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= kept
