"""The cost of timelines: one more event of a busy person, its parts, due entries, and features for training.

python -m benchmarks behaviour
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

from benchmarks import deriving
from idgraph.jobs.features.columns import Features
from idgraph.model.attributes import AttributeMetadata, DataType
from idgraph.model.behaviour import ActivityDocument, DerivedDocument, Window
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.store import NEW, FragmentWrite
from idgraph.model.timelines import DAY_MS, ActivityEntries, DueEntry, Entry, PageKey
from merge.commit import Committer
from merge.fragments import FragmentState
from merge.page_codec import encode_page
from profile_service.reader import ProfileReader
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.sealing import DataKeys

PAGES, ENTRIES, EVENTS = 100, 1_000, 200
DUE, AT_ONCE = 20_000, 1_000
FIRST_DAY = 20_000


def measure(folder: Path) -> dict[str, Any]:
    """CPU milliseconds with the embedded store, for a person of PAGES days of ENTRIES entries; microseconds per due entry."""
    chance = random.Random(7)
    store = SqliteProfileStore(folder / "profiles.db", str.encode)
    days = range(FIRST_DAY, FIRST_DAY + PAGES)
    pages = {
        PageKey("view", day): encode_page(_entry(chance, day, each) for each in range(ENTRIES))
        for day in days
    }
    state = FragmentState().encode()
    store.write([FragmentWrite("person:1", NEW, state, frozenset(), pages=pages)])
    committer = Committer(store)

    def event(number: int) -> None:
        change = FragmentState()
        # Half of them late.
        day = days[-1] if number % 2 else days[number % PAGES]
        entries = (_entry(chance, day, ENTRIES + number),)
        change.timeline = {"view": ActivityEntries(400, 2 * PAGES * ENTRIES, entries)}
        committer.commit({"person:1": change})

    def rewrite(number: int) -> None:
        key = PageKey("view", days[number % PAGES])
        version = store.read(["person:1"])["person:1"].version
        page = store.pages([("person:1", key)])["person:1", key]
        store.write([FragmentWrite("person:1", version, state, frozenset(), pages={key: page})])

    figures: dict[str, Any] = {
        "one_more_event_cpu_ms": _cpu_ms(event, range(EVENTS)),
        "of_which_store_cpu_ms": _cpu_ms(rewrite, range(EVENTS)),
        "read_all_pages_cpu_ms": _cpu_ms(lambda _: store.timelines(["person:1"], ["view"]), range(20)),
    }
    person, now_ms = deriving.person_of(store, "person:1"), (days[-1] + 1) * DAY_MS
    for over in ("30d", "all"):
        derive = partial(deriving.five_windows(store, "view", over).of, [person])
        figures[f"five_windows_{over}_cpu_ms"] = _cpu_ms(derive, [now_ms] * 10)
    ids = [f"other:{number}" for number in range(DUE)]
    some = [ids[start : start + AT_ONCE] for start in range(0, DUE, AT_ONCE)]
    for each in some:
        store.write([FragmentWrite(one, NEW, state, frozenset()) for one in each])
    planned = _cpu_ms(
        lambda each: store.plan([DueEntry(one, number) for number, one in enumerate(each, 1)]), some
    )
    taken = _cpu_ms(lambda _: store.take_due(AT_ONCE, AT_ONCE), some)
    figures |= {"plan_cpu_us": 1000 * planned / AT_ONCE, "take_due_cpu_us": 1000 * taken / AT_ONCE}
    store.close()
    figures |= features(folder) | deriving.measure(folder)
    return {name: round(value, 2) for name, value in figures.items()}


def _entry(chance: random.Random, day: int, number: int) -> Entry:
    fields = {"page": f"/products/{number % 977}", "seconds": number % 60}
    return Entry(
        day * DAY_MS + number * 60_000, "web", f"{chance.getrandbits(128):032x}", (1, "views", 1), fields
    )


def _cpu_ms(work: Callable[[Any], object], given: Iterable[Any]) -> float:
    """Per call."""
    calls = list(given)
    started = time.process_time()
    for each in calls:
        work(each)
    return 1000 * (time.process_time() - started) / len(calls)


PERSONS, ORDERS, LABELS = 10_000, 100_000, 100_000
LAST_MS = 20_000 * DAY_MS


def features(folder: Path) -> dict[str, Any]:
    """Two windows as of each of LABELS labels of PERSONS persons with ORDERS orders, and a merge in pandas that gives the same:
    seconds of CPU, and the ratio."""
    chance = random.Random(1)
    span = 60 * DAY_MS
    orders = pd.DataFrame(
        {
            "person": [chance.randrange(PERSONS) for _ in range(ORDERS)],
            "at": [LAST_MS - chance.randrange(span) for _ in range(ORDERS)],
            "total": [chance.randrange(1, 10_000) / 100 for _ in range(ORDERS)],
        }
    )
    labels = pd.DataFrame(
        {
            "person": [chance.randrange(PERSONS) for _ in range(LABELS)],
            "time": [LAST_MS - chance.randrange(span) for _ in range(LABELS)],
        }
    )
    store = SqliteProfileStore(folder / "features.db", str.encode)
    _keep_orders(store, orders)
    KeyringFile.create(folder / "keyring.json")
    provider = KeyringFile(folder / "keyring.json")
    keys = DataKeys(provider, SqliteDataKeys(folder / "data-keys.db"))
    reader = ProfileReader(
        store, TantivyProfileIndex(folder / "index", str.encode), keys, BlindIndex(provider), _shop()
    )
    names, times = [f"user_id:{each}" for each in labels.person], labels.time.tolist()
    columns = ["behaviour.orders30d", "behaviour.revenue2h"]
    started = time.process_time()
    made = Features(reader, columns).columns(names, times).to_pandas()
    ours = time.process_time() - started
    theirs = []
    for _ in range(5):
        started = time.process_time()
        merged = _merged(orders, labels)
        theirs.append(time.process_time() - started)
    pd.testing.assert_frame_equal(made, merged, check_dtype=False)
    store.close()
    merge = median(theirs)
    return {"features_cpu_s": ours, "merge_cpu_s": merge, "features_to_merge": ours / merge}


def _keep_orders(store: SqliteProfileStore, orders: pd.DataFrame) -> None:
    pages: dict[str, dict[PageKey, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for number, (person, at, total) in enumerate(orders.itertuples(index=False)):
        entry = Entry(at, "shop", f"{number}", (1, "orders", 1), {"total": total})
        pages[f"user_id:{person}"][PageKey("order", at // DAY_MS)].append(entry)
    state = FragmentState().encode()
    store.write(
        [
            FragmentWrite(name, NEW, state, frozenset(), pages={k: encode_page(v) for k, v in own.items()})
            for name, own in pages.items()
        ]
    )


def _shop() -> MetadataSnapshot:
    windows = {
        "behaviour.orders30d": {"activity": "order", "function": "count", "over": "30d"},
        "behaviour.revenue2h": {"activity": "order", "function": "sum", "field": "total", "over": "2h"},
    }
    return MetadataSnapshot(
        version=1,
        activities=(ActivityDocument(name="order", source="shop", fields={"total": "total"}, version=1),),
        derived_attributes=tuple(
            DerivedDocument(name=path.replace(".", "-"), path=path, version=1, window=Window(**each))
            for path, each in windows.items()
        ),
        attributes=tuple(
            AttributeMetadata(
                name=path,
                path=path,
                data_type=DataType.NUMBER,
                created=datetime(2024, 1, 1, tzinfo=UTC),
                version=1,
            )
            for path in windows
        ),
        behaviour_version=1,
    )


def _merged(orders: pd.DataFrame, labels: pd.DataFrame) -> pd.DataFrame:
    """The same windows by a join of all labels and orders of each person."""
    pairs = labels.reset_index().merge(orders, on="person")
    pairs = pairs[pairs["at"] < pairs["time"]]
    day, minutes = (
        (pairs["time"] - 30 * DAY_MS) // DAY_MS * DAY_MS,
        (pairs["time"] - 7_200_000) // 300_000 * 300_000,
    )
    counts = pairs[pairs["at"] >= day].groupby("index").size().reindex(labels.index).fillna(0)
    sums = pairs[pairs["at"] >= minutes].groupby("index")["total"].sum().reindex(labels.index)
    known = labels["person"].isin(orders["person"])
    return pd.DataFrame({"behaviour.orders30d": counts.where(known), "behaviour.revenue2h": sums})
