"""The cost of an event while the store grows to a million fragments, or ten: `--fragments 10000000`."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.flow_run import stored
from benchmarks.pipeline import Clock, Pipeline, pipeline, wire, without_collector
from benchmarks.scale.growing_store import FIRST_SHOP, GrowingStore, records
from benchmarks.sealing_cost import snapshot
from benchmarks.workload import SOURCES, events
from idgraph.model.events import RawRecord
from idgraph.model.queries import Query, Term

SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
ROUNDS = 3
EVENTS = 10_000
"""In a round, half of them of the web site: as many as a small backlog, each about another person."""
_DAYS = 61
_DAY = 86_400_000
_SHARES = {"segment": 5000, "amplitude": 4000, "orders": 1000}


def measure(folder: Path, largest: int) -> dict[str, Any]:
    """By number of fragments: CPU microseconds an event of persons who are there and of new ones, those of the clock
    beside them, milliseconds a look-up and a search, bytes a fragment. The least of a few rounds."""
    figures: dict[str, Any] = {}
    with pipeline(folder, snapshot(protected=True)) as stages, without_collector():
        store = GrowingStore(stages)
        chance = random.Random(7)
        for size in (*(each for each in SIZES if each < largest), largest):
            started = time.process_time()
            before = store.count
            store.grow(size)
            grown = time.process_time() - started
            figures[f"{size} fragments"] = row = {
                "cpu_us_a_fragment_filled": round(1e6 * grown / (size - before), 1),
                **_cost(stages, store, chance, size),
                **_reading(stages, store, chance),
                "bytes_a_fragment": {
                    name: round(count / stages.tools.store.count())
                    for name, count in stored(stages.settings).items()
                },
            }
            # The largest takes long: what there is by then is not lost with it.
            print(size, json.dumps(row), file=sys.stderr, flush=True)
    return figures


def _cost(stages: Pipeline, store: GrowingStore, chance: random.Random, size: int) -> dict[str, Any]:
    known, new = [], []
    for number in range(ROUNDS):
        shops = [chance.choice(store.shops) for _ in range(100)]
        known.append(_round(stages, shops, chance, f"{size}-{number}"))
        fresh = FIRST_SHOP + 8_000_000 + size // 1000 * ROUNDS + number
        new.append(_round(stages, [fresh], chance, f"{size}-{number}"))
    return {
        "map_cpu_us_an_event": _least(each.mapped for each in known),
        "commit_cpu_us_a_known_fragment": _least(each.committed for each in known),
        "commit_us_a_known_fragment": _least(each.committed_by_clock for each in known),
        "commit_cpu_us_a_new_fragment": _least(each.committed for each in new),
    }


def _least(seconds: Iterable[float]) -> float:
    return round(1e6 * min(seconds), 1)


class _Spent(NamedTuple):
    """Seconds an event, and a fragment written."""

    mapped: float
    committed: float
    committed_by_clock: float


def _round(stages: Pipeline, shops: Sequence[int], chance: random.Random, name: str) -> _Spent:
    given: list[RawRecord] = []
    for source in SOURCES:
        for number, event in enumerate(chance.sample(_MONTH[source], _SHARES[source])):
            given.extend(records(source, [_later(source, event, name)], shops[number % len(shops)]))
    clock = Clock()
    with clock.of("map"):
        mapped = list(wire(stages.map(given)))
    with clock.of("commit"):
        written = stages.commit(mapped).written
    return _Spent(clock.cpu["map"] / EVENTS, clock.cpu["commit"] / written, clock.wall["commit"] / written)


def _later(source: str, event: dict[str, Any], name: str) -> dict[str, Any]:
    """The same thing again two months later."""
    if source == "amplitude":
        return event | {"time": event["time"] + _DAYS * _DAY, "insert_id": f"{event['insert_id']}-{name}"}
    place, identity = ("timestamp", "messageId") if source == "segment" else ("created_at", "order_id")
    moment = event[place].replace("2024-03", "2024-05")
    return event | {place: moment, identity: f"{event[identity]}-{name}"}


def _reading(stages: Pipeline, store: GrowingStore, chance: random.Random) -> dict[str, float]:
    tools = stages.tools
    numbers = [f"{chance.choice(store.shops)}{chance.randrange(1000, 5000)}" for _ in range(500)]
    return {
        "find_ms": _milliseconds(lambda number: tools.store.find(f"user_id:{number}"), numbers),
        "search_ms": _milliseconds(
            lambda number: tools.index.search(Query((Term("identity.userId", number),))), numbers
        ),
    }


def _milliseconds(call: Callable[[str], object], values: Sequence[str]) -> float:
    """The median: some wait for the disk."""
    spent = []
    for value in values:
        started = time.perf_counter()
        call(value)
        spent.append(time.perf_counter() - started)
    return round(1000 * sorted(spent)[len(spent) // 2], 3)


_MONTH = {source: events(source) for source in SOURCES}
