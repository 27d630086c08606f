"""The cost of timelines: one more event of a busy person, its parts, and due entries.

python -m benchmarks behaviour
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from idgraph.model.store import NEW, FragmentWrite
from idgraph.model.timelines import DAY_MS, ActivityEntries, DueEntry, Entry, PageKey
from merge.commit import Committer
from merge.fragments import FragmentState
from merge.page_codec import encode_page
from sinks.sqlite.profiles import SqliteProfileStore

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
