"""The cost of activities and derived attributes for a flow, a look-up and the projection, each beside the same without them; and
how soon a new definition answers. Parts of `python -m benchmarks behaviour`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import mkdtemp
from typing import Any

import httpx

from benchmarks.pipeline import pipeline, without_collector
from benchmarks.profiles import port_of, served
from idgraph.app import metadata_access
from idgraph.app.metadata_database import service_key
from idgraph.app.metadata_server import serving_here
from idgraph.model.behaviour import (
    ActivityDefinition,
    ActivityDocument,
    BehaviourRules,
    DerivedDefinition,
    DerivedDocument,
)
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import NEW, FragmentWrite
from idgraph.model.timelines import DAY_MS, Entry, PageKey
from idgraph.projection.behaviour import BehaviourReader
from idgraph.projection.projection import Projection
from merge.fragments import FragmentState
from merge.identity.components import Member, Person
from merge.page_codec import encode_page
from metadata_service.storage.database import open_database
from metadata_service.storage.tokens import Role, add_token
from sinks.sqlite.profiles import SqliteProfileStore
from tests.retail import Pipeline, records, snapshot
from transforms.privacy.protected_names import TombstoneNames

EVENTS, ROUNDS, PERSONS, RULES = 20_000, 3, 200, 10

TWO = (
    ActivityDocument(
        name="order",
        source="orders",
        fields={"total": "orders.last.total", "id": "orders.last.id"},
        version=1,
    ),
    ActivityDocument(
        name="visit",
        source="amplitude",
        fields={"event": "activity.lastEvent", "platform": "activity.platform"},
        version=1,
    ),
)
"""They name 46 % of the events of `tests.retail.records`."""

_KINDS: tuple[dict[str, Any], ...] = (
    *(
        {"window": {"activity": "order", "function": function, "field": "total", "over": over}}
        for function, over in product(("count", "sum", "last"), ("7d", "90d"))
    ),
    {"window": {"activity": "visit", "function": "distinct", "field": "event", "over": "30d"}},
    {"sessions": {"activity": "visit", "fields": ["event"]}},
    {
        "pattern": {
            "activities": ["visit", "order"],
            "pattern": "VISIT+? $",
            "define": {"VISIT": "activity == 'visit'"},
            "wait": "1h",
        }
    },
    {"expression": "behaviour.d0"},
)
TEN = tuple(
    DerivedDocument(name=f"d{number}", path=f"behaviour.d{number}", version=1, **each)
    for number, each in enumerate(_KINDS)
)


def measure(folder: Path) -> dict[str, Any]:
    """Microseconds of CPU, with and without, and the ratio; seconds of the clock of the new definition."""
    return flow(folder) | look_up(folder) | due(folder) | new_rule(folder / "rule")


def five_windows(store: SqliteProfileStore, activity: str, over: str) -> BehaviourReader:
    """A reader of five windows over an activity with the fields `page` and `seconds`."""
    derived = tuple(
        DerivedDocument.model_validate(
            {
                "name": function,
                "path": f"behaviour.{function}",
                "version": 1,
                "window": {"activity": activity, "function": function, "field": field, "over": over},
            }
        )
        for function, field in (
            ("count", "page"),
            ("sum", "seconds"),
            ("last", "page"),
            ("distinct", "page"),
            ("max", "seconds"),
        )
    )
    fields = {"page": "page", "seconds": "seconds"}
    known = ActivityDocument(name=activity, source="web", fields=fields, most=200_000, version=1)
    return BehaviourReader(store, BehaviourRules((known,), derived), {})


def person_of(store: SqliteProfileStore, name: str) -> Person:
    """The person of one fragment."""
    stored = store.read([name])[name]
    return Person(name, (Member(stored, FragmentState.decode(stored.state)),), ())


def flow(folder: Path) -> dict[str, Any]:
    """Mapping and committing an event, until it is readable, with two activities; without Spark."""
    wanted = records(EVENTS)
    with_two, without = _in_turn(
        lambda: _run(_pipeline(folder, TWO, TEN[:1]), wanted), lambda: _run(_pipeline(folder), wanted)
    )
    scale = 1e6 / len(wanted)
    return {
        "event_cpu_us": scale * without,
        "event_with_activities_cpu_us": scale * with_two,
        "throughput_ratio": without / with_two,
    }


def look_up(folder: Path) -> dict[str, Any]:
    """A profile with ten derived attributes, and the same without."""
    stages = _pipeline(folder, TWO, TEN)
    _run(stages, records(EVENTS))
    reader = stages.reader()
    stages.snapshot = _behaving(TWO, ())
    plain = stages.reader()
    busy = sorted(stages.store.timelines(list(stages.store.ids())))
    named = [Identifier.parse(each) for each in random.Random(3).sample(busy, PERSONS)]
    assert all(reader.lookup(each)[0].attributes()["behaviour"] for each in named)
    ten, none = _in_turn(
        lambda: [profile.attributes() for each in named for profile in reader.lookup(each)],
        lambda: [profile.attributes() for each in named for profile in plain.lookup(each)],
    )
    scale = 1e6 / len(named)
    return {
        "look_up_cpu_us": scale * none,
        "look_up_with_ten_cpu_us": scale * ten,
        "look_up_ratio": ten / none,
    }


def due(folder: Path) -> dict[str, Any]:
    """Due entries taken and projected, with a window and sessions, per hour of one core."""
    stages = _pipeline(folder, TWO, (TEN[1], TEN[7]))
    _run(stages, records(EVENTS))
    now_ms = [int(stages.now() * 1000)]
    projection = Projection(stages.store, stages.index, stages.rules, now_ms=lambda: now_ms[0])
    projection.sweep()
    started, projected = time.process_time(), 0
    for _ in range(5):
        now_ms[0] += 31 * DAY_MS
        projected += projection.sweep().projected
    return {"due_per_hour_and_core": 3600 * projected / (time.process_time() - started), "due": projected}


def new_rule(folder: Path) -> dict[str, Any]:
    """From the request that puts a pattern in force to the first answer of a profile service that has it, by the clock."""
    with pipeline(folder, snapshot()) as stages:
        now = time.time_ns() // 1_000_000
        entry = Entry(now - DAY_MS, "orders", "1", (1, "s", 1), {"total": 1})
        pages = {PageKey("order", entry.time // DAY_MS): encode_page([entry])}
        state = FragmentState().encode()
        stages.tools.store.write([FragmentWrite("user_id:1", NEW, state, frozenset(), pages=pages)])
        settings = stages.settings
    with serving_here(settings, port_of(settings.metadata.url)):
        database = open_database(settings.database_url(), service_key(settings).history)
        with database.write() as edit:
            token = add_token(edit, "benchmark", Role.PROFILES, clearance=100)
        database.close()
        with (
            metadata_access.metadata_client(settings) as client,
            served(("profiles", str(settings.file))) as service,
            httpx.Client(headers={"Authorization": f"Bearer {token}"}) as asking,
        ):
            client.put_definition(
                ActivityDefinition(name="order", source="orders", fields={"total": "total"}, since=None)
            )
            spent = []
            for number in range(RULES):
                rule = {"activities": ["order"], "pattern": "A+", "define": {"A": f"total < `{number + 2}`"}}
                definition = DerivedDefinition.model_validate(
                    {"name": f"rule{number}", "path": f"behaviour.rule{number}", "pattern": rule}
                )
                started = time.perf_counter()
                client.put_definition(definition)
                while True:
                    answer = asking.get(f"http://127.0.0.1:{service.port}/v1/profiles/user_id:1")
                    if f"rule{number}" in answer.raise_for_status().text:
                        break
                    time.sleep(0.005)
                spent.append(time.perf_counter() - started)
    return {"rule_in_force_p50_s": median(spent), "rule_in_force_max_s": max(spent)}


def _behaving(activities: Sequence[ActivityDocument], derived: Sequence[DerivedDocument]) -> MetadataSnapshot:
    changed = {
        "activities": tuple(activities),
        "derived_attributes": tuple(derived),
        "behaviour_version": int(bool(activities)),
    }
    return snapshot().model_copy(update=changed)


def _pipeline(
    folder: Path, activities: Sequence[ActivityDocument] = (), derived: Sequence[DerivedDocument] = ()
) -> Pipeline:
    """The stages over a new embedded store."""
    own = Path(mkdtemp(dir=folder))
    stages = Pipeline(own, snapshot=_behaving(activities, derived))
    stages.store = SqliteProfileStore(own / "profiles.db", TombstoneNames(stages.provider))
    return stages


def _run(stages: Pipeline, wanted: Sequence[Any]) -> None:
    outputs = list(stages.map_stage().run(wanted))
    stages.commit_stage().run(each for output in outputs for each in output.encoded())


def _in_turn(*works: Callable[[], object]) -> list[float]:
    """Seconds of CPU of each, the median of ROUNDS."""
    spent: list[list[float]] = [[] for _ in works]
    with without_collector():
        for _ in range(ROUNDS):
            for work, own in zip(works, spent, strict=True):
                started = time.process_time()
                work()
                own.append(time.process_time() - started)
    return [median(own) for own in spent]
