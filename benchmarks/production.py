"""The production shape on one machine, Kafka, DynamoDB Local, Elasticsearch and the flow: a backlog, a steady
rate, and beside them what each server reaches alone on the same machine with a bare client.

DynamoDB Local, which takes some hundred items a second, is the limit of all of it. The ratios say how much of each
server's own rate the flow uses; CPU times by process say what an event costs where a server is not the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bare_bulk import BareBulk
from benchmarks.dynamodb import opened as opened_tables
from benchmarks.latency import until
from benchmarks.pipeline import pipeline
from benchmarks.processes import ProcessWatch, cpu_of
from benchmarks.product import RunningFlow
from benchmarks.sealing_cost import snapshot
from benchmarks.steady_rate import SteadyRate
from benchmarks.topics import consuming_seconds, make_topics, publish_all
from benchmarks.workload import SOURCES, clear, events, renamed
from idgraph.app import wiring
from idgraph.app.settings.document import Settings
from idgraph.model.events import RawRecord
from idgraph.model.index import IndexRules
from idgraph.model.queries import Query
from idgraph.projection.documents import documents_of
from ingestion.spark.workers import WorkerResources
from merge.identity.persons import Persons
from merge.identity.rules import Rules
from tests.support.machine import PARTITIONS, MachineShape, started

EVENTS = 2_000
"""Events of each source of a shop, in the backlog."""
BACKLOG_SECONDS = 1800.0
BATCH = 1_000
AT_ONCE = 100
"""Fragments that the store is given alone: four requests at once, which this server answers in time when its disk is
slow."""
BARE = "bare-"
"""Beginning of the names of the bare clients' topics."""

Lines = dict[str, list[bytes]]
"""Events by source."""


class _Done(NamedTuple):
    """The flow's work on the backlog: events, fragments written, and seconds from its first micro-batch on."""

    events: int
    fragments: int
    seconds: float


def measure(folder: Path, shops: int, seconds: float, rate: int) -> dict[str, Any]:
    """Measure a backlog of 6,000 events per shop, then `rate` events per second for `seconds`. If that rate is too
    much, measure a lower one too."""
    clear(folder)
    lines = {source: list(_backlog(source, shops)) for source in SOURCES}
    with started(folder / "dev") as shape:
        settings = shape.settings
        servers = settings.kafka.bootstrap_servers
        publish_all(servers, lines.items())
        flow = RunningFlow(shape.config)
        try:
            with ProcessWatch(flow.pid) as watch, wiring.opened(settings) as resources:
                cpu = _Cpu(shape, watch)
                done = _take_backlog(flow, sum(map(len, lines.values())))
                of_backlog = cpu.us_an_event(done.events)
                steady = SteadyRate(servers, flow, resources)
                rates = _rates(steady, rate, done, seconds, shops + 1, cpu)
        finally:
            flow.stop()
        published = {**lines, "segment": lines["segment"] + steady.lines}
        with wiring.opened(settings) as resources:
            lost = _lost(flow, published, resources, folder / "expected")
            bare = _bare(settings, lines, done.fragments, resources)
    return {
        "events": done.events,
        "seconds": round(done.seconds, 1),
        "events_per_second": round(done.events / done.seconds),
        "profiles_written_per_second": round(done.fragments / done.seconds),
        "cpu_us_an_event_with_the_start": of_backlog,
        **rates,
        "refresh_interval": "none to wait for: each batch of documents ends with a refresh, which is in the figures",
        **bare,
        "of_bare_consumer": round(done.events / done.seconds / bare["bare_consumed_records_per_second"], 3),
        "of_bare_inserts": round(
            done.fragments / done.seconds / bare["bare_conditional_inserts_per_second"], 3
        ),
        "of_store_alone": round(done.fragments / done.seconds / bare["store_alone_profiles_per_second"], 3),
        "of_bare_bulk": round(done.fragments / done.seconds / bare["bare_bulk_documents_per_second"], 3),
        "lost": lost,
        "measured_at": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _backlog(source: str, shops: int) -> Iterator[bytes]:
    month = events(source)[:EVENTS]
    for shop in range(1, shops + 1):
        for event in month:
            yield renamed(source, event, shop).rstrip()


class _Cpu:
    """CPU microseconds of each process an event, since it was last asked. This process has the metadata service, and
    from the backlog on also publishes and looks."""

    def __init__(self, shape: MachineShape, watch: ProcessWatch) -> None:
        self._shape = shape
        self._watch = watch
        self._last = self._seconds()

    def us_an_event(self, count: int) -> dict[str, float]:
        last, self._last = self._last, self._seconds()
        return {name: round(1e6 * (used - last.get(name, 0.0)) / count) for name, used in self._last.items()}

    def _seconds(self) -> dict[str, float]:
        servers = {name: cpu_of(process.pid) for name, process in self._shape.servers.items()}
        return {**servers, **self._watch.cpu_seconds(), "this process": time.process_time()}


def _take_backlog(flow: RunningFlow, count: int) -> _Done:
    def is_done() -> bool:
        flow.check()
        return flow.events() >= count

    until(is_done, BACKLOG_SECONDS)
    batches = [(at, batch) for at, batch in flow.batches if batch["events"]]
    first, last = batches[0], batches[-1]
    return _Done(
        count,
        sum(batch["written"] for _, batch in batches),
        last[0] - (first[0] - first[1]["seconds"]),
    )


def _rates(
    steady: SteadyRate, rate: int, done: _Done, seconds: float, shop: int, cpu: _Cpu
) -> dict[str, Any]:
    """The rate that was asked for, then half of what the flow took of the backlog, and half of that again, until it
    keeps up."""
    found: dict[str, Any] = {}
    tried = rate
    while True:
        before = len(steady.lines)
        figures = steady.run(tried, seconds, shop)
        cpu_us = cpu.us_an_event(len(steady.lines) - before)
        found[f"at_{tried}_events_per_second"] = {**figures, "cpu_us_an_event": cpu_us}
        if figures["keeps_up"] or tried <= 10:
            break
        # Other people each time: events that were there before change nothing.
        shop += 1 + int(tried * seconds) // len(events("segment"))
        tried = max(10, min(tried, round(done.events / done.seconds)) // 2)
    verdict = "" if figures["keeps_up"] else ", which the flow does not keep up with either"
    fell_behind = (
        "" if tried == rate else f"; at {rate} it falls behind, and latency is the time of the queue"
    )
    return {"latencies_are_of": f"{tried} events a second{verdict}{fell_behind}", **found}


def _lost(flow: RunningFlow, published: Lines, resources: WorkerResources, folder: Path) -> dict[str, int]:
    """The number of profiles by the map stage alone, over the same events, and the stored number."""
    with pipeline(folder, snapshot(protected=True)) as stages:
        expected = {
            name
            for source, lines in published.items()
            for output in stages.map(
                RawRecord(source, f"file:{source}/all#{number}", line) for number, line in enumerate(lines)
            )
            for name in output.fragments
        }
    # The outbox's index follows the table within a second or so.
    time.sleep(2)
    profiles = resources.store.count()
    return {
        "events": sum(map(len, published.values())) - flow.events(),
        "dead_letters": sum(sum(batch["dead_letters"].values()) for _, batch in flow.batches),
        "profiles_expected": len(expected),
        "profiles_missing": len(expected) - profiles,
        "profiles_in_the_outbox": len(resources.store.outbox()),
        "profiles_not_searchable": profiles - resources.index.count(Query()),
    }


def _bare(settings: Settings, lines: Lines, fragments: int, resources: WorkerResources) -> dict[str, int]:
    """Each server alone, with as many records, items and documents as the backlog had."""
    servers, count = settings.kafka.bootstrap_servers, sum(map(len, lines.values()))
    topics = [BARE + source for source in lines]
    make_topics(servers, topics, PARTITIONS)
    _, publishing = publish_all(servers, ((BARE + source, some) for source, some in lines.items()))
    with opened_tables(settings.store.endpoint or "", fragments, AT_ONCE) as tables:
        alone = tables.store_new()
        puts = tables.bare.timed(tables.ids, 25, tables.bare.put)
        inserts = tables.bare.timed(tables.ids, 25, tables.bare.insert)
    return {
        "bare_published_records_per_second": round(count / publishing),
        "bare_consumed_records_per_second": round(
            count / consuming_seconds(servers, topics, PARTITIONS, count)
        ),
        "bare_puts_per_second": puts.items_per_second,
        "bare_conditional_inserts_per_second": inserts.items_per_second,
        "store_alone_profiles_per_second": alone.items_per_second,
        "bare_bulk_documents_per_second": _bulk(settings.index.url, fragments, resources),
    }


def _bulk(url: str, count: int, resources: WorkerResources) -> int:
    rules = IndexRules(lambda _: True)
    documents = [
        each
        for page in Persons(resources.store, Rules(rules.identity)).scan(page=BATCH)
        for each in documents_of(page.persons, rules).documents
    ][:count]
    with closing(BareBulk(url)) as bare:
        bodies = [bare.body(documents[at : at + BATCH]) for at in range(0, len(documents), BATCH)]
        return round(len(documents) / _seconds(lambda: bare.put(bodies)))


def _seconds(work: Callable[[], object]) -> float:
    started_at = time.perf_counter()
    work()
    return time.perf_counter() - started_at
