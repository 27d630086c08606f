"""What a load needs: cores, memory, units, nodes, bytes and money, by formulas, checked against whole flows of four sizes.

`make bench ARGS="capacity --sizes 1,3,10,20"` measures and prints; docs/capacity.md explains the formulas.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.flow_run import run_until_done, stored
from benchmarks.product import installed
from benchmarks.workload import clear, write_inbox
from transforms import compile_spec

MONTH_HOURS = 730


class Costs(NamedTuple):
    """CPU in µs and sizes in bytes on the machine of docs/performance.md, each by the benchmark that is named there."""

    event: float = 16.8
    """To read, map and encode one (`throughput`: workers without their commits)."""
    commit: float = 32.0
    """A changed fragment, SQLite."""
    project: float = 88.0
    """A changed fragment with the attributes of the shop, embedded index."""
    project_attribute: float = 1.85
    driver: float = 2.7
    jvm: float = 4.7
    kafka: float = 15.0
    """Beyond files."""
    sealed: float = 8.0
    """A value that is sealed (`sealing`)."""
    dynamo_write: float = 205.0
    dynamo_read: float = 44.0
    """The client, an item in a batch (`dynamodb`)."""
    elastic_document: float = 250.0
    """The node (ADR 22)."""
    lookup: float = 550.0
    search: float = 9_000.0
    """The service (`profiles`), the person not kept."""
    driver_fragment: float = 9.0
    driver_jvm_fragment: float = 81.0
    """Of a projection in tasks (`cluster`)."""
    start_seconds: float = 12.0
    """CPU of Spark's start and end."""
    stored_fragment: float = 530.0
    stored_attribute: float = 62.0
    item: float = 250.0
    item_attribute: float = 18.0
    """In DynamoDB, where states are compressed."""
    indexed: float = 795.0
    """A document of the embedded index."""
    process_mib: float = 700.0
    core_mib: float = 420.0


SHOP_ATTRIBUTES = 26
COSTS = Costs()


class Load(NamedTuple):
    """What is asked for. Rates are a second, `fragments` are stored; the defaults are the shop's."""

    events: float
    fragments: float
    attributes: int = SHOP_ATTRIBUTES
    changes: float = 0.26
    """Changed fragments of an event: events of one fragment within a micro-batch are combined."""
    new: float = 0.26
    """Fragments of an event that were not there, or changed their profile."""
    identifiers: float = 2.0
    """Of a new fragment."""
    person: float = 1.6
    """Fragments of a person."""
    sealed: float = 0.5
    """Values of an event."""
    lookups: float = 0.0
    searches: float = 0.0


class Prices(NamedTuple):
    """Dollars; placeholders of the order of list prices, to be replaced by one's own."""

    core_hour: float = 0.05
    million_write_units: float = 0.625
    million_read_units: float = 0.125
    stored_gb_month: float = 0.25
    disk_gb_month: float = 0.08


class Limits(NamedTuple):
    """Where one part ends, and the next decade needs another."""

    machine_cores: int = 64
    """The largest machine for one embedded flow; its projection is one process."""
    store_bytes: float = 15e9
    """SQLite beyond a machine's free memory (`scale-fragments`)."""
    partition_units: float = 1_000
    """Writes a second of one DynamoDB partition, so of one item."""
    shards: int = 16
    """Partitions at least of the outbox's index."""
    driver_cores: float = 2.0
    """What one driver with its JVM can use; beyond, several flows share the topic's partitions."""
    bulk_node_cores: int = 16


PRICES, LIMITS = Prices(), Limits()


def embedded(load: Load, costs: Costs = COSTS) -> dict[str, float]:
    """Of one machine: cores until readable and searchable, bytes, memory in MiB."""
    flow = costs.event + costs.driver + costs.jvm + load.sealed * costs.sealed + load.changes * costs.commit
    project = load.changes * _project(load, costs)
    return {
        "cores readable": load.events * flow / 1e6,
        "cores searchable": load.events * (flow + project) / 1e6,
        "cores of the one projection": load.events * project / 1e6,
        "store bytes": load.fragments * _stored(load, costs),
        "index bytes": load.fragments * costs.indexed * load.attributes / SHOP_ATTRIBUTES,
    }


def run_of(events: int, load: Load, cores: int, costs: Costs = COSTS) -> dict[str, float]:
    """Of one `run --until-done` over so many events of the load: CPU and wall seconds, bytes kept, peak MiB."""
    needs = embedded(load._replace(events=1.0, fragments=events * load.new), costs)
    used = events * needs["cores searchable"]
    last = max(used / cores, events * needs["cores of the one projection"])
    return {
        "cpu seconds": costs.start_seconds + used,
        "seconds": costs.start_seconds / cores + last,
        "bytes kept": needs["store bytes"],
        "peak MiB": costs.process_mib + cores * costs.core_mib,
    }


def cluster(
    load: Load, costs: Costs = COSTS, prices: Prices = PRICES, limits: Limits = LIMITS
) -> dict[str, float]:
    """With Kafka, DynamoDB, Elasticsearch: by part, at the given rate without reserve."""
    changes, new = load.events * load.changes, load.events * load.new
    item = costs.item + costs.item_attribute * load.attributes
    size = ceil(item / 1024)
    writes = changes * (2 * size + 2) + new * load.identifiers
    reads = changes * (1 + load.person) * ceil(size / 4) + load.lookups * load.person * ceil(size / 4)
    commit = costs.dynamo_read + costs.dynamo_write * (1 + load.new / load.changes * load.identifiers)
    project = load.person * costs.dynamo_read + costs.dynamo_write + _project(load, costs)
    executors = (
        load.events * (costs.event + costs.kafka + load.sealed * costs.sealed) + changes * (commit + project)
    ) / 1e6
    driver = (
        load.events * costs.driver + changes * (costs.driver_fragment + costs.driver_jvm_fragment)
    ) / 1e6
    index = changes * costs.elastic_document / 1e6
    services = (load.lookups * costs.lookup + load.searches * costs.search) / 1e6
    kept = load.fragments * item
    documents = load.fragments / load.person * 2 * costs.indexed * load.attributes / SHOP_ATTRIBUTES
    flows = max(1, ceil(driver / limits.driver_cores))
    cores = executors + driver + index + services
    return {
        "flows": flows,
        "executor cores": executors,
        "driver cores": driver,
        "index cores": index,
        "service cores": services,
        "memory GiB": (cores * 2 * costs.core_mib + flows * costs.process_mib) / 1024,
        "write units": writes,
        "read units": reads,
        "store GB": kept / 1e9,
        "index GB": documents / 1e9,
        "dollars a month": cores * MONTH_HOURS * prices.core_hour
        + MONTH_HOURS * 3.6e-3 * (writes * prices.million_write_units + reads * prices.million_read_units)
        + kept / 1e9 * prices.stored_gb_month
        + documents / 1e9 * prices.disk_gb_month,
    }


def outgrown(load: Load, costs: Costs = COSTS, limits: Limits = LIMITS) -> dict[str, float]:
    """What a load is too large for, and how many times."""
    alone, many = embedded(load, costs), cluster(load, costs, limits=limits)
    demands = {
        "SQLite within memory": alone["store bytes"] / limits.store_bytes,
        "the one projection of an embedded index": alone["cores of the one projection"],
        "the outbox's 16 shards": 2 * load.events * load.changes / (limits.shards * limits.partition_units),
        "one index node": many["index cores"] / limits.bulk_node_cores,
        "one driver": many["driver cores"] / limits.driver_cores,
        "one machine's cores": alone["cores searchable"] / limits.machine_cores,
    }
    return {name: round(demand, 1) for name, demand in demands.items() if demand > 1}


def hot_person(share: float, events: float, batch_seconds: float, tasks: int) -> float:
    """Writes a second to one item that `share` of all events belong to: one of each task and micro-batch."""
    return min(share * events, tasks / batch_seconds)


def backlog(rates: Sequence[float], capacity: Sequence[float], start: float = 0.0) -> dict[str, float]:
    """Second by second: the most events that waited, how long the last of them did, and seconds until none waits."""
    waiting = most = start
    behind = 0
    for second, (arriving, able) in enumerate(zip(rates, capacity, strict=True)):
        waiting = max(0.0, waiting + arriving - able)
        most = max(most, waiting)
        behind = second + 1 if waiting > 0 else behind
    return {"most waiting": most, "longest wait s": most / max(min(capacity), 1.0), "over after s": behind}


def scenarios(events: float, reserve: float) -> dict[str, dict[str, float]]:
    """A flow that is given `reserve` times what it needs at `events` a second: what an outage costs it."""
    day, able = 86_400, events * reserve
    two_thirds = [able * 2 / 3] * 3_600 + [able] * day
    return {
        "an hour with two of three zones": backlog([events] * len(two_thirds), two_thirds),
        "a backlog of a day": backlog([events] * 10 * day, [able] * 10 * day, start=events * day),
    }


def measure(folder: Path, sizes: Sequence[int], cores: int = 2) -> dict[str, Any]:
    """Beside each measured figure the model's, on a machine whose speed is measured in the same run."""
    slower = speed()
    costs = slowed(slower)
    report: dict[str, Any] = {"speed": {"slower than the reference": round(slower, 2)}}
    for shops in sizes:
        with installed(folder / str(shops)) as (config, settings):
            run = run_until_done(config, write_inbox(folder / str(shops) / "inbox", shops))
            kept = sum(stored(settings).values())
        clear(folder / str(shops))
        measured = {
            "cpu seconds": sum(run.cpu_seconds.values()),
            "seconds": run.searchable_seconds,
            "bytes kept": float(kept),
            "peak MiB": run.peak.total / (1 << 20),
        }
        said = run_of(run.events, Load(1.0, 0.0), cores, costs)
        report[f"{shops} shops"] = {
            name: f"{value:,.0f}, model {said[name]:,.0f} (ratio {said[name] / value:.2f})"
            for name, value in measured.items()
        }
    for events in (1e3, 1e4, 1e5, 1e6):
        for fragments in (events * 1e3, events * 1e3 * 10):
            load = Load(events, fragments, lookups=events / 10, searches=events / 1000)
            report[f"{events:,.0f} events/s, {fragments:,.0f} fragments"] = {
                **{name: f"{value:,.1f}" for name, value in cluster(load).items()},
                "embedded cores": f"{embedded(load)['cores searchable']:,.1f}",
                "outgrown": ", ".join(f"{name} ({times}x)" for name, times in outgrown(load).items())
                or "nothing",
            }
    report["hot person, 10 % of 100,000 events/s, writes/s"] = {
        f"{tasks} tasks": hot_person(0.1, 100_000, 1.0, tasks) for tasks in (8, 64, 2_000)
    }
    report |= scenarios(100_000, 1.5)
    return report


def slowed(factor: float, costs: Costs = COSTS) -> Costs:
    """The same on a machine whose CPU is slower by this factor."""
    kept = {
        "stored_fragment",
        "stored_attribute",
        "item",
        "item_attribute",
        "indexed",
        "process_mib",
        "core_mib",
    }
    return Costs(
        **{name: value if name in kept else factor * value for name, value in costs._asdict().items()}
    )


_SPEC: Mapping[str, Any] = {
    "spec": [{"operation": "shift", "spec": {"a": {"*": "x.&"}, "b": "y", "c": {"d": "z.d"}}}]
}
_REFERENCE = 0.3
"""Seconds of CPU of `speed` on the machine of docs/performance.md, when it was quiet."""


def speed() -> float:
    """How much slower this machine is, by the CPU of mapping one payload often."""
    mapped = compile_spec(_SPEC["spec"])
    payload = {"a": {str(key): key for key in range(20)}, "b": "text", "c": {"d": [1, 2, 3]}}
    begun = time.process_time()
    for _ in range(200_000):
        mapped(payload)
    return (time.process_time() - begun) / _REFERENCE


def _project(load: Load, costs: Costs) -> float:
    return costs.project + costs.project_attribute * (load.attributes - SHOP_ATTRIBUTES)


def _stored(load: Load, costs: Costs) -> float:
    return costs.stored_fragment + costs.stored_attribute * load.attributes
