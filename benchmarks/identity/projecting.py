"""The cost of identity on the way to readers: committed and projected into the embedded store and index, in this
process.

CPU seconds stand beside those of the clock, as other programs may have the machine too.
"""

from __future__ import annotations

import gc
import json
import os
import random
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.identity.speed import events, fill, state_of, write
from benchmarks.latency import percentiles
from benchmarks.pipeline import Clock, prepared
from benchmarks.product import PROGRAM, installed
from idgraph.app import wiring
from idgraph.app.cli import YOUNG_OBJECTS
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_rules import DEFAULT_RULES
from idgraph.model.index import IndexRules
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.spark.workers import WorkerResources
from merge.commit import Committer
from merge.fragments import FragmentState
from merge.identity.resolve import Decision
from profile_service.links import Links
from profile_service.reader import ProfileReader

PERSONS = 10_000
MERGES = 5_000
UNLINKED = 300
HUB = 100_000
EVENTS = 2_000
SIZES = (10_000, 100_000, 1_000_000)

Shown = tuple[Identifier, Identifier]


def measure(folder: Path, largest: int) -> dict[str, Any]:
    """Links and merges per second, milliseconds from an unlink, CPU of an event at a hub and in stores of several sizes, and a
    preview of rules over the largest of them."""
    with _flow(folder / "links") as flow:
        figures = {**flow.new_links(), **flow.merges(), **flow.unlinks(), **flow.hub()}
    for size in (each for each in SIZES if each <= largest):
        with _flow(folder / f"{size}") as flow:
            figures[f"cpu_us_per_event_at_{size}_fragments"] = flow.events_among(size)
    return figures | _preview(folder / "preview", largest)


class _Flow:
    """The commit and the projection of a flow."""

    def __init__(self, tools: WorkerResources) -> None:
        self.tools = tools
        self._projection = tools.projection(lambda: IndexRules(lambda _: True, identity=DEFAULT_RULES))
        self._number = 1_000_000_000

    def take(self, shown: Iterable[Shown]) -> tuple[float, float]:
        """Commit events and project them: seconds of CPU, and of the clock."""
        # As bytes, as the map stage hands them on.
        changes = {
            str(own): FragmentState(state_of(own, other, self._next()).encode()) for own, other in shown
        }
        clock = Clock()
        with clock.of("all"):
            Committer(self.tools.store).commit(changes)
            # As beside a flow.
            self._projection.sweep()
        return clock.cpu["all"], clock.wall["all"]

    def _next(self) -> int:
        self._number += 1
        return self._number

    def new_links(self) -> dict[str, Any]:
        """Persons of three fragments each, with three links."""
        shown = list(events(PERSONS))
        return {"new_links_per_second": {**_rates(len(shown), *self.take(shown)), "aim": 20_000}}

    def merges(self) -> dict[str, Any]:
        """Guests, each of whom signs up: her number and her address were two persons."""
        emails = [Identifier("email", f"guest{number}@x.org") for number in range(MERGES)]
        users = [Identifier("user_id", f"{PERSONS + number + 1}") for number in range(MERGES)]
        self.take((each, Identifier("cart_id", each.value)) for each in emails)
        self.take((each, Identifier("email", f"{each.value}@y.org")) for each in users)
        spent = self.take(zip(users, emails, strict=True))
        return {"merges_per_second": {**_rates(MERGES, *spent), "aim": 5_000}}

    def unlinks(self) -> dict[str, Any]:
        """A phone is unlinked from an address: from the request until a look-up, and a search, show it."""
        tools = self.tools
        reader = ProfileReader(
            tools.store, tools.index, tools.data_keys, tools.blind_index, MetadataSnapshot(version=1)
        )
        spent: dict[str, list[float]] = {"readable": [], "searchable": []}
        for number in range(UNLINKED):
            started = time.perf_counter()
            links = Links(tools.store, reader)
            ends = [
                links.stored(each)
                for each in (
                    Identifier("device_id", f"phone-{number}"),
                    Identifier("email", f"{number}@x.org"),
                )
            ]
            one, other = (each for each in ends if each is not None)
            change = links.decide([(one, other, Decision.NEVER)], time.time_ns() // 1_000_000, "bench", "")
            links.keep(change)
            assert len(reader.owning([str(one.identifier)]).persons[0].members) == 1
            spent["readable"].append(1000 * (time.perf_counter() - started))
            self._projection.project(sorted(change.carriers))
            spent["searchable"].append(1000 * (time.perf_counter() - started))
        return {f"unlink_to_{name}_ms": {**percentiles(each), "aim p99": 300} for name, each in spent.items()}

    def hub(self) -> dict[str, Any]:
        """Events of devices at an address that a hundred thousand others showed, beside such at addresses of their own."""
        hub = Identifier("email", "kiosk@x.org")
        write(self.tools.store, ((Identifier("device_id", f"k{number}"), hub) for number in range(HUB)))
        # It becomes a hub: all that it joined is projected once.
        clock = Clock()
        with clock.of("crossing"):
            self._projection.sweep()
        spent = {
            name: min(
                self.take(
                    (device, hub if name == "hub" else Identifier("email", device.value))
                    for device in (Identifier("device_id", f"{name}{turn}-{n}") for n in range(EVENTS))
                )[0]
                for turn in range(3)
            )
            for name in ("own", "hub")
        }
        return {
            "hub_of_links": HUB,
            "hub_crossing_cpu_us_per_link": round(1e6 * clock.cpu["crossing"] / HUB, 1),
            "hub_cpu_us_per_event": {
                **{name: round(1e6 * each / EVENTS, 1) for name, each in spent.items()},
                "because of it": round(1e6 * (spent["hub"] - spent["own"]) / EVENTS, 1),
                "aim": 1000,
            },
        }

    def events_among(self, fragments: int) -> dict[str, float]:
        """Events of persons who are there, and whose links are known, and of new ones, among so many fragments. Only
        the persons that events are about are in the index."""
        store = self.tools.store
        fill(store, fragments // 3)
        for entries in iter(lambda: store.outbox(10_000), []):
            store.settle(entries)
        persons = random.Random(7).sample(range(fragments // 3), EVENTS)
        known = [(Identifier("user_id", f"{n + 1}"), Identifier("email", f"{n}@x.org")) for n in persons]
        new = [(Identifier("device_id", f"new{n}"), Identifier("email", f"{n}@x.org")) for n in persons]
        self.take(known)
        return {
            name: round(1e6 * self.take(shown)[0] / EVENTS, 1)
            for name, shown in (("known link", known), ("new link", new))
        }


@contextmanager
def _flow(folder: Path) -> Iterator[_Flow]:
    settings = prepared(folder)
    usual = gc.get_threshold()
    # As the command line.
    gc.set_threshold(YOUNG_OBJECTS)
    try:
        with wiring.opened(settings) as tools:
            yield _Flow(tools)
    finally:
        gc.set_threshold(*usual)


def _rates(count: int, cpu: float, wall: float) -> dict[str, int]:
    return {"per CPU second": round(count / cpu), "by the clock": round(count / wall)}


def _preview(folder: Path, fragments: int) -> dict[str, Any]:
    """`idgraph rules preview` as a process, of rules that make no address nobody's."""
    with installed(folder) as (config, settings):
        with wiring.opened(settings) as resources:
            fill(resources.store, fragments // 3)
        rules = DEFAULT_RULES.model_dump(mode="json", exclude_unset=True)
        rules["namespaces"]["email"]["owner"] = "first"
        (file := folder / "rules.json").write_text(json.dumps(rules))
        started = time.perf_counter()
        process = subprocess.Popen(
            [*PROGRAM, "-c", str(config), "rules", "preview", str(file), "--json"], stdout=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        return {
            "preview_of_fragments": fragments // 3 * 3,
            "preview_seconds": {
                "CPU": round(used.ru_utime + used.ru_stime, 1),
                "by the clock": round(time.perf_counter() - started, 1),
            },
            "preview_memory_mib": used.ru_maxrss // 1024,
        }
