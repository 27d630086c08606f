"""Features as of the times of labels: what a look-up at that moment shows, and what a naive computation gives."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from idgraph.jobs.features.columns import Features, labels, report, require_labels
from idgraph.model.errors import QueryError
from idgraph.model.identifiers import Identifier
from idgraph.model.timelines import DAY_MS, PageKey
from profile_service.reader import ProfileReader
from tests.projection.test_behaviour import NOW_MS, ORDER, derived, with_behaviour
from tests.retail import Pipeline, attribute, attributes, order

COUNT = derived("behaviour.orders30d", window={"activity": "order", "function": "count", "over": "30d"})
SUM = derived(
    "behaviour.revenue", window={"activity": "order", "function": "sum", "field": "total", "over": "2h"}
)
SESSIONS = derived("behaviour.sessions", sessions={"activity": "order", "gap": "12h"})
PAIR = derived("behaviour.pairs", pattern={"activities": ["order"], "pattern": "A B", "within": "5d"})
RATIO = derived("behaviour.pairShare", expression="behaviour.pairs.count")
MIXED = derived("behaviour.mixed", expression="[behaviour.orders30d, address.shipping.city]")
TYPES = {
    "behaviour.orders30d": "integer",
    "behaviour.revenue": "number",
    "behaviour.sessions.count": "integer",
    "behaviour.sessions.last.end": "integer",
    "behaviour.pairs.count": "integer",
    "behaviour.pairShare": "integer",
    "behaviour.mixed": "array",
    "orders.last.total": "number",
}
AS_OF = [path for path in TYPES if path not in ("behaviour.mixed", "orders.last.total")]
PERSONS = 12


def iso(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def drawn(seed: int) -> list[dict[str, Any]]:
    """Orders of a few persons within 60 days, some at one moment."""
    random = Random(seed)
    times = [NOW_MS - random.randrange(60 * DAY_MS) for _ in range(120)]
    times += [time + random.choice([0, 1, 20 * 60_000, 12 * 3_600_000]) for time in times[:60]]
    return [
        {"person": random.randrange(PERSONS), "time": time, "total": random.randrange(1, 10_000) / 100}
        for time in times
    ]


def pipeline_of(
    folder: Path, orders: list[dict[str, Any]], bounds: dict[str, Any] | None = None, **parts: Any
) -> Pipeline:
    activity = ORDER.model_copy(update=bounds)
    known = with_behaviour((activity,), (COUNT, SUM, SESSIONS, PAIR, RATIO, MIXED))
    declared = {each.path: each for each in attributes()} | {
        path: attribute(path, kind) for path, kind in TYPES.items()
    }
    pipeline = Pipeline(
        folder, snapshot=known.model_copy(update={"attributes": tuple(declared.values())}), **parts
    )
    pipeline.process(
        order(
            each["person"],
            line,
            order_id=f"O{line}",
            created_at=iso(each["time"]),
            cart={"total": str(each["total"]), "items": 1},
        )
        for line, each in enumerate(orders, 1)
    )
    return pipeline


def labels_of(seed: int, orders: list[dict[str, Any]], number: int = 150) -> pd.DataFrame:
    """At random moments, and at and just after those of orders."""
    random = Random(seed)
    times = [each["time"] + random.choice([0, 1, -1]) for each in random.sample(orders, number // 3)]
    times += [NOW_MS - random.randrange(70 * DAY_MS) for _ in range(number - len(times))]
    random.shuffle(times)
    persons = [random.randrange(PERSONS + 1) for _ in times]
    return pd.DataFrame({"person": persons, "time": times})


def email(person: int) -> str:
    return f"email:p{person}@example.com"


def at(reader: ProfileReader, moment: int, identifier: str) -> dict[str, Any]:
    """The derived values that a look-up shows at a moment, by path."""
    reader.now_ms = lambda: moment
    found = reader.lookup(Identifier.parse(identifier))
    return {leaf.path: leaf.value for each in found for leaf in each.leaves}


@pytest.mark.parametrize("seed", range(3))
def test_features_are_what_a_look_up_at_that_moment_shows(tmp_path: Path, seed: int) -> None:
    orders = drawn(seed)
    pipeline, asked = pipeline_of(tmp_path, orders), labels_of(seed, orders)
    names = [email(each) for each in asked["person"]]
    reader = pipeline.reader()
    columns = [*AS_OF, "latest:behaviour.mixed"]
    features = Features(reader, columns)
    rows = features.columns(names, asked["time"].tolist()).to_pylist()
    different = set()
    for name, moment, row in zip(names, asked["time"], rows, strict=True):
        shown = at(reader, moment, name)
        mixed = shown.get("behaviour.mixed")
        expected = {path: shown.get(path) for path in AS_OF} | {
            "latest:behaviour.mixed": None if mixed is None else [str(each) for each in mixed]
        }
        assert row == expected
        different.add(row["behaviour.orders30d"])
    assert len(different) > 3
    unknown = sum(not reader.lookup(Identifier.parse(name)) for name in names)
    assert features.counts["without_profile"] == unknown > 0
    assert set(+features.counts) == {"without_profile"}


@pytest.mark.parametrize("seed", range(3))
def test_windows_are_those_of_a_naive_merge(tmp_path: Path, seed: int) -> None:
    orders = drawn(seed)
    asked = labels_of(seed, orders)
    features = Features(pipeline_of(tmp_path, orders).reader(), ["behaviour.orders30d", "behaviour.revenue"])
    made = features.columns([email(each) for each in asked["person"]], asked["time"].tolist()).to_pandas()
    pairs = asked.reset_index().merge(pd.DataFrame(orders), on="person", suffixes=("", "_order"))
    pairs = pairs[pairs["time_order"] < pairs["time"]]
    begin = (pairs["time"] - 30 * DAY_MS) // DAY_MS * DAY_MS
    counts = pairs[pairs["time_order"] >= begin].groupby("index").size()
    begin = (pairs["time"] - 7_200_000) // 300_000 * 300_000
    sums = pairs[pairs["time_order"] >= begin].groupby("index")["total"].sum()
    known = asked["person"].isin({each["person"] for each in orders})
    expected = counts.reindex(asked.index).fillna(0).where(known)
    pd.testing.assert_series_equal(made["behaviour.orders30d"], expected, check_names=False)
    assert sums.size
    pd.testing.assert_series_equal(made["behaviour.revenue"], sums.reindex(asked.index), check_names=False)


def test_what_is_not_known_as_of_a_time_is_refused_unless_the_latest_is_asked_for(tmp_path: Path) -> None:
    orders = [{"person": 1, "time": NOW_MS - DAY_MS, "total": 5.0}]
    reader = pipeline_of(tmp_path, orders).reader()
    for path, reason in {
        "orders.last.total": "not derived from timelines.*latest:orders.last.total",
        "behaviour.mixed": "only the latest values are known.*latest:behaviour.mixed",
        "behaviour.orders30": "did you mean behaviour.orders30d",
        "identity.email": "is protected",
        "latest:identity.email": "is protected",
    }.items():
        with pytest.raises(QueryError, match=reason):
            Features(reader, [path])
    early, late = NOW_MS - 2 * DAY_MS, NOW_MS
    columns = ["latest:orders.last.total", "latest:behaviour.orders30d"]
    made = Features(reader, columns).columns([email(1)] * 2, [early, late])
    assert made.to_pylist() == [dict(zip(columns, (5.0, count), strict=True)) for count in (0, 1)]


def test_a_clearance_hides_what_is_derived_from_what_it_hides(tmp_path: Path) -> None:
    pipeline = pipeline_of(tmp_path, [])
    hidden = attribute("orders.last.total", "number", authorization_level=50)
    others = [each for each in pipeline.snapshot.attributes if each.path != hidden.path]
    pipeline.snapshot = pipeline.snapshot.model_copy(update={"attributes": (*others, hidden)})
    Features(pipeline.reader().with_clearance(50), ["behaviour.revenue"])
    with pytest.raises(QueryError, match="no attribute is called"):
        Features(pipeline.reader().with_clearance(49), ["behaviour.revenue"])


@pytest.mark.parametrize("bound", [{"keep": "10d"}, {"most": 3}])
def test_features_say_where_entries_were_dropped(tmp_path: Path, bound: dict[str, Any]) -> None:
    orders = [{"person": 1, "time": NOW_MS - day * DAY_MS, "total": 5.0} for day in (40, 30, 20, 5, 1)]
    pipeline = pipeline_of(tmp_path, orders, bound)
    features = Features(
        pipeline.reader(),
        [
            "behaviour.revenue",
            "behaviour.sessions.count",
            "latest:behaviour.mixed",
            "latest:orders.last.total",
        ],
        complete=True,
    )
    times = [NOW_MS - 45 * DAY_MS, NOW_MS - 2 * DAY_MS]
    made = features.columns([email(1), email(1), email(PERSONS)], [*times, NOW_MS])
    complete = {name: made[name].to_pylist() for name in made.column_names if name.endswith(":is_complete")}
    assert complete == {
        "behaviour.revenue:is_complete": [False, True, None],
        "behaviour.sessions.count:is_complete": [False, False, None],
        "latest:behaviour.mixed:is_complete": [False, False, None],
    }


def test_features_of_a_moment_to_come_are_not_complete(tmp_path: Path) -> None:
    reader = pipeline_of(tmp_path, [{"person": 1, "time": NOW_MS - DAY_MS, "total": 5.0}]).reader()
    reader.now_ms = lambda: NOW_MS
    features = Features(reader, ["behaviour.orders30d"], complete=True)
    made = features.columns([email(1)] * 3, [NOW_MS, NOW_MS + 1, NOW_MS + DAY_MS])
    assert made["behaviour.orders30d"].to_pylist() == [1, 1, 1]
    assert made["behaviour.orders30d:is_complete"].to_pylist() == [True, False, False]
    assert features.counts["future_times"] == 2
    assert list(report(features.counts)) == [
        "2 labels have times in the future: features that are not complete"
    ]


def test_profiles_outside_have_no_features(tmp_path: Path) -> None:
    orders = [{"person": each, "time": NOW_MS - DAY_MS, "total": 5.0} for each in (1, 2)]
    reader = pipeline_of(tmp_path, orders).reader()
    (own,) = reader.lookup(Identifier.parse(email(2)))
    features = Features(reader, ["behaviour.orders30d"], among={own.id})
    made = features.columns([email(2), None, email(1), email(2)], [NOW_MS] * 4)
    assert made["behaviour.orders30d"].to_pylist() == [1, None, None, 1]
    assert features.counts == {"outside_segment": 1, "without_profile": 1}
    assert len(list(report(features.counts))) == 2


def test_damaged_timelines_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = pipeline_of(tmp_path, [{"person": 1, "time": NOW_MS - DAY_MS, "total": 5.0}])
    (own,) = pipeline.store.ids()
    page = {own: {PageKey("order", NOW_MS // DAY_MS - 1): b"?"}}
    monkeypatch.setattr(pipeline.store, "timelines", lambda *_: page)
    reader = pipeline.reader()
    made = Features(reader, ["behaviour.orders30d"]).columns([email(1)], [NOW_MS])
    assert made["behaviour.orders30d"].to_pylist() == [None]
    assert reader.damaged == [own]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (pa.array([1_500, -1]), [1_500, -1]),
        (pa.array([1_500_999, -1], pa.timestamp("us")), [1_500, -1]),
        (pa.array([1, -1], pa.timestamp("s", "Europe/Berlin")), [1_000, -1_000]),
        (pa.array([1], pa.date32()), [DAY_MS]),
    ],
)
def test_times_of_labels(times: pa.Array, expected: list[int]) -> None:
    assert labels(pa.table({"identifier": ["a:b"] * len(times), "time": times}))[1] == expected


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"identifier": ["a:b"]}, "one column time"),
        ({"identifier": ["a:b"], "time": [1.5]}, "epoch milliseconds or timestamps"),
        ({"identifier": ["a:b"], "time": pa.array([None], pa.int64())}, "1 labels have no time"),
    ],
)
def test_labels_that_cannot_be_read(table: dict[str, Any], reason: str) -> None:
    def read(given: pa.Table) -> None:
        require_labels(given.schema, ())
        labels(given)

    with pytest.raises(QueryError, match=reason):
        read(pa.table(table))
