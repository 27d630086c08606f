"""All persons from scratch: `idgraph resolve --rebuild` as a whole process, beside networkx on the same links.

networkx has the links in memory as text and finds connected components, no more. The product reads every fragment out of
the store, finds the components in Spark, resolves each by the rules, and compares it with what the projection recorded. Beside
it stands its way of finding components alone, over the same links as rows in Spark.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.identity.speed import events, fill
from benchmarks.product import PROGRAM, installed
from idgraph.app import wiring
from ingestion.spark.rebuild import connected


def measure(folder: Path, links: int) -> dict[str, Any]:
    """Seconds of the clock for so many links, three to a person, of the product and of networkx."""
    persons = links // 3
    with installed(folder) as (config, settings):
        with wiring.opened(settings) as resources:
            fill(resources.store, persons)
        started = time.perf_counter()
        # Its exit code is 1: nothing was projected.
        done = subprocess.run(
            [*PROGRAM, "-c", str(config), "resolve", "--rebuild", "--check", "--json"],
            check=False,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - started
    found = json.loads(done.stdout)["profiles"]
    assert found == persons, (found, done.stderr)
    return {
        "links_from_scratch": 3 * persons,
        "rebuild_seconds": round(seconds, 1),
        "components_seconds": components(persons),
        "networkx_seconds": _networkx(persons),
    }


def components(persons: int) -> float:
    """Seconds of the clock until Spark has joined the fragments of so many persons, three each, by what they share."""
    from pyspark.sql import SparkSession, Window
    from pyspark.sql import functions as F  # noqa: N812 - as all users of Spark call it

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "8").getOrCreate()
    try:
        session.range(10).count()
        started = time.perf_counter()
        email = F.concat(F.lit("email:"), (F.col("id") / 3).cast("long"), F.lit("@x.org"))
        node = F.xxhash64(F.concat(F.lit("device_id:"), F.col("id")))
        first = F.min("node").over(Window.partitionBy("email"))
        shown = session.range(3 * persons).select(node.alias("node"), email.alias("email"))
        shared = shown.select("node", first.alias("first")).localCheckpoint()
        joined = connected(shared.where(F.col("node") > F.col("first"))).count()
        assert joined == 2 * persons, joined
        return round(time.perf_counter() - started, 1)
    finally:
        session.stop()


def _networkx(persons: int) -> float | str:
    try:
        import networkx  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError:
        return "left out: networkx is not installed"
    pairs = [(str(own), str(email)) for own, email in events(persons)]
    started = time.perf_counter()
    graph = networkx.Graph()
    graph.add_edges_from(pairs)
    found = sum(1 for _ in networkx.connected_components(graph))
    assert found == persons
    return round(time.perf_counter() - started, 1)
