"""An activity that is changed, and changed back: after a backfill its timeline is as if it had always been so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.behaviour import ActivityDocument
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.timelines import DAY_MS, PageKey
from idgraph.projection.behaviour import shown_timeline
from merge.timelines import joined_pages
from transforms.behaviour.activities import Activities

SPEC = SpecRef("orders", 1)


class Event(NamedTuple):
    fragment: str
    source: str
    time: int
    number: int
    total: int


events = st.lists(
    st.builds(
        Event,
        st.sampled_from(["a", "b"]),
        st.sampled_from(["shop", "till"]),
        st.integers(0, 8 * DAY_MS),
        st.integers(0, 10**6),
        st.integers(0, 3),
    ),
    unique_by=lambda each: (each.source, each.number),
)
definitions = st.fixed_dictionaries(
    {
        "source": st.sampled_from(["*", "shop", "till"]),
        "condition": st.sampled_from([None, "total > `1`", "total == `0`"]),
        "keep": st.sampled_from(["1d", "3d", "400d"]),
        "most": st.integers(1, 5),
        "fields": st.sampled_from([{}, {"total": "total"}]),
    }
)


class Stored:
    """The pages of two fragments of a person."""

    def __init__(self) -> None:
        self.pages: dict[tuple[str, PageKey], bytes] = {}

    def deliver(self, events: Iterable[Event], activity: ActivityDocument) -> None:
        activities = Activities([activity])
        for event in events:
            output: dict[str, Any] = {"total": event.total}
            stamp = Stamp(0, event.time, event.source, str(event.number))
            for each in activities.of(event.source, "order"):
                entry = each.entry(output, output, stamp, SPEC, True, event.time)
                if entry is not None:
                    self._write(event.fragment, {"order": each.entries((entry,))})

    def _write(self, fragment: str, change: Any) -> None:
        own = {key: page for (name, key), page in self.pages.items() if name == fragment}
        written = joined_pages(change, own)
        for key in own:
            if key.day < written.expired.get(key.activity, key.day):
                del self.pages[fragment, key]
        self.pages |= {(fragment, key): page for key, page in written.pages.items()}

    def shown(self, activity: ActivityDocument) -> list[Any]:
        pages = [(key.day, page) for (_, key), page in self.pages.items()]
        return [(*each.order, each.fields) for each in shown_timeline(activity, pages).entries]


@given(events, st.lists(definitions, min_size=1, max_size=4), st.data())
def test_changed_and_changed_back_is_as_from_scratch(
    published: list[Event], versions: list[dict[str, Any]], data: st.DataObject
) -> None:
    stored, scratch = Stored(), Stored()
    for number, content in enumerate([*versions, versions[0]]):
        activity = ActivityDocument(name="order", version=number + 1, generation=number, **content)
        some = data.draw(st.lists(st.sampled_from(published)) if published else st.just([]))
        stored.deliver(some, activity)
    stored.deliver(data.draw(st.permutations(published)), activity)
    scratch.deliver(published, activity)
    assert stored.shown(activity) == scratch.shown(activity)


def test_a_new_generation_begins_without_earlier_entries_and_without_their_bounds() -> None:
    many = [Event("a", "till", 1000 + n, n, 1) for n in range(5)]
    first = ActivityDocument(name="order", most=3, version=1)
    narrowed = first.model_copy(update={"source": "shop", "version": 2, "generation": 1})
    stored = Stored()
    stored.deliver(many, first)
    assert len(stored.shown(narrowed)) == 0
    older = Event("a", "shop", 10, 99, 1)
    stored.deliver([older, *many], narrowed)
    assert [each[2] for each in stored.shown(narrowed)] == ["99"]
