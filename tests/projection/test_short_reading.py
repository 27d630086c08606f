"""What is derived rests on the days that derivations read, whatever lies on earlier ones."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st

from idgraph.model.behaviour import ActivityDocument, BehaviourRules, DerivedDocument
from idgraph.model.store import NEW, FragmentWrite
from idgraph.model.timelines import DAY_MS, EVERY_DAY, Entry, PageKey, Since
from idgraph.projection.behaviour import BehaviourReader
from merge.fragments import FragmentState
from merge.identity.components import Member, Person
from merge.page_codec import encode_page
from tests.support.memory.profiles import MemoryProfileStore

FIRST = 20_000
NAME = "visits"
IDS = ("a:1", "a:2")


class CountingStore(MemoryProfileStore):
    """Counts pages that are read as wholes."""

    def __init__(self) -> None:
        super().__init__()
        self.read_pages = 0

    def timelines(
        self, ids: Collection[str], activities: Collection[str] | None = None, since: Since = EVERY_DAY
    ) -> dict[str, dict[PageKey, bytes]]:
        found = super().timelines(ids, activities, since)
        self.read_pages += sum(
            key.day >= since.get(key.activity, key.day) for pages in found.values() for key in pages
        )
        return found


class WholeReader(BehaviourReader):
    """Reads every day."""

    def _since_days(self, now_ms: int) -> Since:
        return EVERY_DAY


def stored(fragments: Collection[Collection[Entry]]) -> tuple[CountingStore, Person]:
    store = CountingStore()
    for name, entries in zip(IDS, fragments, strict=False):
        days: dict[int, list[Entry]] = {}
        for each in entries:
            days.setdefault(each.time // DAY_MS, []).append(each)
        pages = {PageKey(NAME, day): encode_page(some) for day, some in days.items()}
        store.write([FragmentWrite(name, NEW, FragmentState().encode(), frozenset({name}), pages=pages)])
    found = store.read(IDS)
    members = tuple(Member(found[name], FragmentState()) for name in IDS if name in found)
    return store, Person(IDS[0], members, ())


def entry(at_hour: int, event: int, version: int = 1) -> Entry:
    return Entry(
        FIRST * DAY_MS + at_hour * 3_600_000, "web", str(event), (version, "s", 1), {"value": event % 5}
    )


entries = st.lists(
    st.builds(
        entry,
        st.one_of(st.integers(0, 40 * 24), st.integers(0, 40).map(lambda day: day * 24)),
        st.integers(0, 30),
        st.sampled_from([1, 1, 1, 2]),
    ),
    max_size=25,
)
windows = st.fixed_dictionaries(
    {
        "activity": st.just(NAME),
        "function": st.sampled_from(["count", "sum", "last", "first", "distinct", "min", "top_k"]),
        "field": st.just("value"),
        "over": st.sampled_from(
            ["1h", "1d", "14d", {"calendar": "week", "time_zone": "Europe/Paris"}, "all"]
        ),
    }
).map(lambda found: {"window": found})
sessions = st.fixed_dictionaries(
    {
        "activity": st.just(NAME),
        "gap": st.sampled_from(["30m", "2h", "1d"]),
        "cap": st.sampled_from(["1h", "2d"]),
        "over": st.sampled_from(["1h", "7d"]),
        "fields": st.just(["value"]),
    }
).map(lambda found: {"sessions": found})


def rules(definitions: list[dict[str, Any]], **bounds: Any) -> BehaviourRules:
    activity = ActivityDocument(name=NAME, source="web", fields={"value": "value"}, version=1, **bounds)
    derived = tuple(
        DerivedDocument(name=f"d{number}", path=f"b.d{number}", version=1, **each)
        for number, each in enumerate(definitions)
    )
    return BehaviourRules((activity,), derived)


@given(
    st.lists(entries, min_size=1, max_size=2),
    st.lists(windows | sessions, min_size=1, max_size=3),
    st.integers(20 * 24, 45 * 24),
    st.sampled_from([3, 10, 1000]),
    st.sampled_from(["5d", "400d"]),
)
@example(
    [[entry(0, 1, 2), entry(960, 1, 1)]], [{"window": {"activity": NAME, "over": "1d"}}], 970, 1000, "400d"
)
def test_reading_fewer_days_gives_the_same(
    fragments: list[list[Entry]], definitions: list[dict[str, Any]], now: int, most: int, keep: str
) -> None:
    store, person = stored(fragments)
    now_ms = FIRST * DAY_MS + now * 3_600_000 + 1
    results, read = [], []
    for kind in (BehaviourReader, WholeReader):
        store.read_pages = 0
        reader = kind(store, rules(definitions, most=most, keep=keep), {})
        moments = {person.id: [now_ms + 5 * DAY_MS, now_ms]}
        results.append((reader.of([person], now_ms), list(reader.as_of([person], moments))))
        read.append(store.read_pages)
    assert results[0] == results[1]
    event(f"reads {'fewer' if read[0] < read[1] else 'all'}")


def test_a_window_reads_the_pages_of_its_days() -> None:
    store, person = stored([[entry(hour, hour) for hour in range(0, 40 * 24, 24)]])

    def pages_read(*definitions: dict[str, Any]) -> int:
        store.read_pages = 0
        BehaviourReader(store, rules(list(definitions)), {}).of([person], (FIRST + 40) * DAY_MS)
        return store.read_pages

    day, week = ({"window": {"activity": NAME, "over": over}} for over in ("1d", "7d"))
    assert (pages_read(day), pages_read(week), pages_read(day, week)) == (1, 7, 7)
    assert pages_read({"sessions": {"activity": NAME, "over": "7d"}}) == 9
    assert pages_read({"window": {"activity": NAME}}) == pages_read(day, {"window": {"activity": NAME}}) == 40


hours = st.none() | st.integers(0, 41 * 24)


@given(st.lists(entries, min_size=1, max_size=2), hours, hours, st.sampled_from([3, 1000]))
@example([[entry(0, 1, 2), entry(960, 1, 1)]], None, None, 1000)
def test_the_newest_entries_come_first_and_at_last_all(
    fragments: list[list[Entry]], since: int | None, until: int | None, most: int
) -> None:
    store, person = stored(fragments)
    reader = BehaviourReader(store, rules([], most=most), {})
    begin, end = (None if each is None else FIRST * DAY_MS + each * 3_600_000 for each in (since, until))
    wanted = [
        each
        for each in reader.timelines(person, [NAME])[NAME]
        if (begin is None or each.time >= begin) and (end is None or each.time < end)
    ]
    found = [list(each[NAME]) for each in reader.newest(person, [NAME], begin, end)]
    assert found[-1] == wanted
    for each in found:
        assert each == wanted[len(wanted) - len(each) :]


def test_the_newest_entries_are_of_few_pages() -> None:
    store, person = stored([[entry(hour, hour) for hour in range(40 * 24)]])
    reader = BehaviourReader(store, rules([]), {})
    read = []
    for since, until in ((None, None), (FIRST + 37, None), (None, FIRST + 30)):
        store.read_pages = 0
        bounds = [None if each is None else each * DAY_MS for each in (since, until)]
        read.append([store.read_pages for _ in reader.newest(person, [NAME], *bounds)])
    assert read == [[1, 5, 21, 61], [1, 4], [11, 51]]
