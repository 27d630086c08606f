"""Pages of timelines, and the timeline that those of all fragments of a person give."""

from __future__ import annotations

from bisect import bisect_left
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model import canonical
from idgraph.model.errors import DamagedStateError
from idgraph.model.timelines import (
    DAY_MS,
    ActivityEntries,
    Entry,
    PageKey,
    count_before,
    made_by_version,
    times_of,
    values_of,
)
from merge.page_codec import encode_page, inserted, read_page, rows_of, union
from merge.timelines import joined_pages, timeline

ROWS = b"\x01"
DAYS = 6


def values() -> st.SearchStrategy[Any]:
    scalars = st.sampled_from([0, -1, 2**70, True, 0.1, Decimal("0.12345678901234567891"), "", "a]", "ä"])
    return scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.sampled_from("xy"), scalars)


def entries(size: int = 12) -> st.SearchStrategy[list[Entry]]:
    """Of few events, so that several have the same event, and few moments."""
    return st.lists(
        st.builds(
            Entry,
            st.tuples(st.integers(-1, DAYS - 2), st.sampled_from([0, 1, 999])).map(
                lambda at: at[0] * DAY_MS + at[1]
            ),
            st.sampled_from(["shop", "web"]),
            st.sampled_from(["1", "2", "3", "4", "5"]),
            st.tuples(
                st.builds(made_by_version, st.integers(0, 1), st.integers(1, 2)),
                st.sampled_from(["a", "b]"]),
                st.integers(1, 2),
            ),
            st.dictionaries(st.sampled_from(["total", "page"]), values()),
        ),
        max_size=size,
    )


def strongest(found: list[Entry]) -> list[Entry]:
    """One entry for each event, as the documentation says it."""
    by_event: dict[tuple[str, str], list[Entry]] = {}
    for each in found:
        by_event.setdefault((each.source, each.event_id), []).append(each)
    kept = (
        max(some, key=lambda each: (each.made_by, each.time, canonical.encode(each.fields)))
        for some in by_event.values()
    )
    return sorted(kept, key=lambda each: each.order)


def pages_of(found: list[Entry]) -> list[tuple[int, bytes]]:
    days: dict[int, list[Entry]] = {}
    for each in found:
        days.setdefault(each.time // DAY_MS, []).append(each)
    return [(day, encode_page(some)) for day, some in days.items()]


@given(entries(), st.randoms())
def test_a_page_gives_back_the_union_of_its_entries_whatever_their_order(
    found: list[Entry], chance: Any
) -> None:
    page = encode_page(found)
    assert read_page(page).entries() == union(found) == strongest(found)
    shuffled = [*found, *found]
    chance.shuffle(shuffled)
    assert encode_page(shuffled) == encode_page([*read_page(page).entries(), *found]) == page


@given(entries(), entries(3))
def test_a_page_of_rows_is_read_and_becomes_one_of_columns(found: list[Entry], added: list[Entry]) -> None:
    old = ROWS + canonical.encode(rows_of(union(found)))
    assert read_page(old).entries() == union(found)
    moved = [each._replace(time=each.time % DAY_MS) for each in added]
    change = {"a": ActivityEntries(400, 1000, tuple(moved))}
    key = PageKey("a", 0)
    written = joined_pages(change, {key: old}).pages
    assert written == ({key: encode_page([*found, *moved])} if moved else {})
    assert joined_pages(change, written).pages == {}


@given(entries(), entries(1), st.integers(1, 9))
def test_one_entry_more_gives_the_page_of_all(found: list[Entry], added: list[Entry], most: int) -> None:
    kept = union(found)[-most:]
    page = encode_page(kept)
    for each in added:
        grown = inserted(page, each, most)
        assert grown in (None, encode_page([*kept, each]))
        if grown is None and len(kept) < most:
            assert (
                any(each.event_id == one.event_id for one in kept)
                or all((each.source, each.made_by) != (one.source, one.made_by) for one in kept)
                or not each.fields.keys() <= {name for one in kept for name in one.fields}
            )


@given(st.lists(entries(), min_size=1, max_size=3), st.integers(1, 9), st.integers(0, DAYS), st.data())
def test_a_timeline_is_that_of_the_entries_of_all_fragments(
    fragments: list[list[Entry]], most: int, keep_days: int, data: st.DataObject
) -> None:
    pages = [page for each in fragments for page in pages_of(each)]
    taken_back = data.draw(
        st.sets(st.tuples(st.sampled_from(["shop", "web"]), st.sampled_from("12")), max_size=2)
    )
    generation, names = data.draw(st.integers(0, 2)), data.draw(st.sets(st.sampled_from(["total", "page"])))
    found = timeline(pages, keep_days, most, taken_back, generation, names)
    count = [
        each._replace(fields={name: value for name, value in each.fields.items() if name in names})
        for some in fragments
        for each in some
        if each.generation >= generation
    ]
    oldest = max((each.time // DAY_MS for each in count), default=0) - keep_days
    kept = strongest([each for each in count if each.time // DAY_MS >= oldest])[-most:]
    shown = [each for each in kept if each[1:3] not in taken_back]
    assert list(found.entries) == shown
    whole_from = kept[0].time + 1 if len(kept) == most else oldest * DAY_MS
    assert found.whole_from == (whole_from if count else None)
    first, end = data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9))
    assert len(found.entries) == len(shown)
    assert list(found.entries[first:end]) == shown[first:end]
    assert list(found.entries[end:first:-1]) == shown[end:first:-1]
    assert [found.entries[at] for at in range(-len(shown), len(shown))] == [*shown, *shown]
    with pytest.raises(IndexError):
        found.entries[len(shown)]
    part = found.entries[2:][first:end]
    assert list(part) == shown[2:][first:end]
    assert times_of(part) == [each.time for each in part]
    for name in ("total", "page"):
        assert values_of(part, name) == [each.fields.get(name) for each in part]
    moment = data.draw(st.integers(-2 * DAY_MS, DAYS * DAY_MS))
    for each in [moment, *(one.time for one in kept)]:
        assert count_before(found.entries, each) == bisect_left(shown, each, key=lambda one: one.time)
        assert count_before(part, each) == bisect_left(list(part), each, key=lambda one: one.time)


@pytest.mark.parametrize(
    "change", [lambda page: page[:-1], lambda page: b"\x07" + page[1:], lambda _: b"\x02{}"]
)
def test_a_damaged_page_is_seen_as_one(change: Any) -> None:
    page = encode_page([Entry(1, "shop", "1", (1, "a", 1), {"total": 1})])
    with pytest.raises(DamagedStateError):
        read_page(change(page))


def test_columns_of_another_length_are_damage() -> None:
    page = encode_page([Entry(1, "shop", "1", (1, "a", 1), {"total": 1})])
    torn = read_page(page.replace(b'{"total":[1]}', b'{"total":[1,2]}'))
    with pytest.raises(DamagedStateError):
        torn.values("total")
    with pytest.raises(DamagedStateError):
        torn.entries()
