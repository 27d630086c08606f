"""Windows and sessions equal what Spark makes of the same events in a batch."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.canonical import exact_number
from idgraph.model.timelines import Entry
from tests.spark.own_session import reported_by
from tests.transforms.behaviour.naive import DAY, HOUR, MINUTE, derived, entry
from transforms.behaviour.derivations import compile_derived

pytestmark = [pytest.mark.spark, pytest.mark.long]

BEGIN = 1_760_832_000_000  # a week before clocks go back in Berlin
SPANS = ("20m", "11h", "20h", "7d", "30d", "day", "week", "month", "quarter", "year")
NUMBERS = {"m": MINUTE, "h": HOUR, "d": DAY}
ZONE = "Europe/Berlin"

PROGRAM = """
session.conf.set("spark.sql.session.timeZone", "UTC")
events = session.read.schema("person string, time long, cents long, sku string").json(str(folder / "events.jsonl"))
events.createOrReplaceTempView("events")
queries = session.read.schema("person string, now long").json(str(folder / "queries.jsonl"))
queries.createOrReplaceTempView("queries")

reported["sessions"] = [list(row) for row in session.sql('''
    SELECT person, unix_millis(min(timestamp_millis(time))), unix_millis(session_window.end) - 1800000, count(*),
           min_by(sku, time), max_by(sku, time)
    FROM events GROUP BY person, session_window(timestamp_millis(time), '30 minutes')
''').collect()]

def local(time):
    return f"from_utc_timestamp(timestamp_millis({time}), 'Europe/Berlin')"

def condition(span):
    lengths = {"m": 60000, "h": 3600000, "d": 86400000}
    if span[-1] not in lengths or not span[:-1].isdigit():
        return f"date_trunc('{span}', {local('time')}) = date_trunc('{span}', {local('now')})"
    length = int(span[:-1]) * lengths[span[-1]]
    hop = 86400000 if length >= 12 * 86400000 else 3600000 if length >= 12 * 3600000 else 300000
    return f"time >= floor((now - {length}) / {hop}) * {hop}"

reported["windows"] = {}
for span in SPANS:
    rows = session.sql(f'''
        SELECT queries.person, now, count(time), cast(sum(cast(cents AS decimal(20, 2)) / 100) AS string),
               min(cents), max(cents), count(DISTINCT sku), avg(cents), min_by(sku, time), max_by(sku, time)
        FROM queries LEFT JOIN events
          ON events.person = queries.person AND time < now AND {condition(span)}
        GROUP BY queries.person, now
    ''')
    reported["windows"][span] = [list(row) for row in rows.collect()]
"""
COLUMNS = (("count", None), ("sum", "price"), ("min", "cents"), ("max", "cents"), ("distinct", "sku"), ("average", "cents"),
           ("first", "sku"), ("last", "sku"))  # fmt: skip


def made() -> tuple[dict[str, list[Entry]], list[tuple[str, int]]]:
    """Timelines by person, with pauses at and about a session's gap, and moments to ask for."""
    chosen = random.Random(7)
    timelines: dict[str, list[Entry]] = {}
    for person in range(40):
        time = BEGIN + chosen.randrange(3 * DAY)
        entries: list[Entry] = []
        for number in range(chosen.randrange(150)):
            pause = chosen.choice([MINUTE, 5 * MINUTE, 29 * MINUTE, 2 * HOUR, 11 * HOUR, DAY])
            exactly = chosen.choice([30 * MINUTE - 1, 30 * MINUTE, 30 * MINUTE + 1])
            time += exactly if chosen.random() < 0.4 else pause + chosen.randrange(MINUTE)
            cents = chosen.randrange(-500, 10_000)
            fields: dict[str, Any] = {"cents": cents, "price": cents / 100, "sku": f"s{chosen.randrange(9)}"}
            entries.append(entry(time, number, **fields))
        timelines[f"p{person}"] = entries
    moments = [(person, BEGIN + chosen.randrange(90 * DAY)) for person in timelines for _ in range(20)]
    moments += [(person, each.time + 1) for person, entries in timelines.items() for each in entries[::10]]
    moments += [
        (person, each.time // HOUR * HOUR) for person, entries in timelines.items() for each in entries[::9]
    ]
    return timelines, sorted(set(moments))


@pytest.fixture(scope="module")
def of_spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("behaviour")
    timelines, moments = made()
    lines = [
        {"person": person, "time": each.time, "cents": each.fields["cents"], "sku": each.fields["sku"]}
        for person, entries in timelines.items()
        for each in entries
    ]
    _write(folder / "events.jsonl", lines)
    _write(folder / "queries.jsonl", [{"person": person, "now": now} for person, now in moments])
    return reported_by(f"SPANS = {SPANS!r}\n{PROGRAM}", folder)


def _write(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_sessions_equal_those_of_sparks_session_window(of_spark: Any) -> None:
    by_person: dict[str, list[list[Any]]] = defaultdict(list)
    for person, *rest in of_spark["sessions"]:
        by_person[person].append(rest)
    timelines, _ = made()
    derivation = compile_derived(
        derived(sessions={"activity": "a", "cap": "900d", "over": "all", "fields": ["sku"]})
    )
    assert sum(map(len, by_person.values())) > 500
    for person, entries in timelines.items():
        expected = sorted(by_person[person])
        for number, (begin, end, count, first, last) in enumerate(expected, 1):
            leaves = derivation.of({"a": entries}, {}, end + 30 * MINUTE).leaves
            assert leaves == {
                "count": number,
                "last.begin": begin,
                "last.end": end,
                "last.entries": count,
                "last.first.sku": first,
                "last.last.sku": last,
            }


@pytest.mark.parametrize("span", SPANS)
def test_windows_equal_those_of_spark_sql(of_spark: Any, span: str) -> None:
    timelines, moments = made()
    over = span if span[-1] in NUMBERS and span[:-1].isdigit() else {"calendar": span, "time_zone": ZONE}
    rows = {(person, now): rest for person, now, *rest in of_spark["windows"][span]}
    assert rows.keys() == set(moments)
    for at, (function, field) in enumerate(COLUMNS):
        window = {"activity": "a", "function": function, "field": field, "over": over}
        derivation = compile_derived(derived(window=window))
        for (person, now), row in rows.items():
            value = row[at] if function != "sum" or row[at] is None else exact_number(row[at])
            assert derivation.of({"a": timelines[person]}, {}, now).leaves.get("") == value
