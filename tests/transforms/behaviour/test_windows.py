"""Windows equal their naive definition at each moment, and change when they say."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model import canonical
from idgraph.model.behaviour import CalendarPeriod, Window
from idgraph.model.errors import SpecError
from idgraph.model.timelines import Entry
from tests.transforms.behaviour.naive import (
    BEGIN,
    DAY,
    HOUR,
    MINUTE,
    counts,
    derived,
    edges,
    entry,
    moments,
    timelines,
    window_value,
)
from transforms.behaviour.derivations import Derivation, Derived, compile_derived, derive_at_each

FUNCTIONS = ("count", "sum", "average", "min", "max", "first", "last", "last_k", "distinct", "top_k")
spans: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from(["all", "90s", "20m", "11h", "12h", "20h", "7d", "12d", "30d"]),
    st.builds(
        CalendarPeriod,
        calendar=st.sampled_from(["day", "week", "month", "quarter", "year"]),
        time_zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]),
    ),
)
windows = st.builds(
    Window,
    activity=st.just("orders"),
    function=st.sampled_from(FUNCTIONS),
    field=st.just("value"),
    over=spans,
    k=st.integers(1, 4),
)


def compiled(window: Window | dict[str, Any]) -> Derivation:
    return compile_derived(derived(window=window if isinstance(window, dict) else window.model_dump()))


def of(window: Window | dict[str, Any], entries: list[Entry], now: int, **whole_from: int) -> Derived:
    return compiled(window).of({"orders": entries}, {}, now, whole_from)


def agree(window: Window, found: Derived, expected: Any) -> bool:
    shown = found.leaves.get("")
    if type(expected) is Fraction:
        exact = Fraction(str(shown))
        return exact == expected or (window.function == "average" and exact == Fraction(str(float(expected))))
    return canonical.encode(shown) == canonical.encode(expected)


@given(windows, timelines(), moments)
def test_a_window_equals_its_naive_definition(window: Window, entries: list[Entry], now: int) -> None:
    found = of(window, entries, BEGIN + now)
    assert agree(window, found, window_value(window, entries, BEGIN + now))
    assert found.is_complete


@given(
    st.one_of(windows, st.builds(Window, activity=st.just("orders"), over=spans)),
    st.sampled_from([None, "value != `2`", "type(value) == 'string'"]),
    timelines(),
    st.lists(moments, max_size=6),
    st.one_of(st.none(), moments),
)
def test_several_moments_are_as_each_alone(
    window: Window, condition: str | None, entries: list[Entry], times: list[int], whole: int | None
) -> None:
    derivation = compiled(window.model_copy(update={"condition": condition}))
    whole_from = {} if whole is None else {"orders": BEGIN + whole}
    asked = [BEGIN + each for each in times]
    found = derive_at_each([derivation], {"orders": entries}, {}, asked, whole_from)
    expected = [derivation.of({"orders": entries}, {}, each, whole_from) for each in asked]
    assert list(found) == [[Derived(each.leaves, is_complete=each.is_complete)] for each in expected]


@given(spans, timelines(), moments)
def test_a_count_without_a_field_is_of_entries(over: Any, entries: list[Entry], now: int) -> None:
    window = Window(activity="orders", over=over)
    assert of(window, entries, BEGIN + now).leaves == {"": window_value(window, entries, BEGIN + now)}


def moments_about(window: Window, entries: list[Entry], now: int, until: int | None) -> list[int]:
    """Moments in between at which a naive reader may find something else."""
    steps = [each.time + after for each in entries for after in (0, 1)]
    steps += [now + step for step in range(0, 40 * DAY, 7 * HOUR)]
    return [each for each in (*steps, (until or now) - 1) if now <= each and (until is None or each < until)]


@given(windows, timelines(most=8), moments)
def test_nothing_changes_before_it_says(window: Window, entries: list[Entry], now: int) -> None:
    now += BEGIN
    derivation = compiled(window)
    first = derivation.of({"orders": entries}, {}, now)
    assert first.changes_at is None or first.changes_at > now
    for moment in moments_about(window, entries, now, first.changes_at):
        assert derivation.of({"orders": entries}, {}, moment).leaves == first.leaves


@given(spans, timelines(most=8), moments)
def test_a_number_of_entries_changes_when_it_says(over: Any, entries: list[Entry], now: int) -> None:
    window = Window(activity="orders", over=over)
    at = of(window, entries, BEGIN + now).changes_at
    if at is not None:
        before, after = ({each.order for each in entries if counts(over, each.time, t)} for t in (at - 1, at))
        assert before != after


@given(windows, timelines(most=8), moments)
def test_it_rests_on_entries_of_the_window_the_newest_first(
    window: Window, entries: list[Entry], now: int
) -> None:
    found = of(window, entries, BEGIN + now)
    assert list(found.entries) == sorted(found.entries, key=lambda each: each.order, reverse=True)
    assert all(counts(window.over, each.time, BEGIN + now) for each in found.entries)
    alone = of(window, sorted(found.entries, key=lambda each: each.order), BEGIN + now)
    assert alone.leaves == found.leaves


@given(windows, timelines(), moments, moments)
def test_it_is_incomplete_where_entries_that_count_may_be_missing(
    window: Window, entries: list[Entry], now: int, whole: int
) -> None:
    kept = [each for each in entries if each.time >= BEGIN + whole]
    found = of(window, kept, BEGIN + now, orders=BEGIN + whole)
    if found.is_complete and window.over != "all":
        assert found.leaves == of(window, entries, BEGIN + now).leaves


@given(windows, timelines(), moments)
def test_older_entries_need_not_be_read(window: Window, entries: list[Entry], now: int) -> None:
    derivation = compiled(window)
    begin = derivation.reads_from(BEGIN + now)
    newer = [each for each in entries if begin is None or each.time >= begin]
    assert derivation.of({"orders": newer}, {}, BEGIN + now) == derivation.of(
        {"orders": entries}, {}, BEGIN + now
    )
    assert (begin is None) == (window.over == "all")


def test_it_rests_on_at_most_a_hundred_entries() -> None:
    entries = [entry(BEGIN + number, number) for number in range(300)]
    found = of({"activity": "orders"}, entries, BEGIN + DAY)
    assert found.leaves == {"": 300}
    assert list(found.entries) == entries[:199:-1]


@pytest.mark.parametrize(
    ("function", "values", "value"),
    [
        ("sum", [0.1, 0.2], 0.3),
        ("sum", [1, 2], 3),
        ("sum", [1, 2.0], 3.0),
        ("sum", [Decimal("0.10000000000000000001"), 1], Decimal("1.10000000000000000001")),
        ("sum", ["7", True, None, 2], 2),
        ("sum", [0.01] * 3 + [19.99], 20.02),
        ("sum", [0.001, 0.01], 0.011),
        ("sum", [1e308, 1e308], Decimal("2e308")),
        ("average", [1, 2], 1.5),
        ("average", [2, 4], 3.0),
        ("average", [1, 1, 2], 4 / 3),
        ("average", [0.1, 0.2, 0.3], 0.2),
        ("average", [Decimal("1e400"), Decimal("2e400")], Decimal("1.5e400")),
        ("min", [3, 1.0, 1, 2], 1),
        ("max", ["b", 5, "a"], "b"),
        ("max", [10**23, 1e23], 1e23),
        ("last_k", [1, None, 2, 3], [3, 2]),
        ("distinct", [1, 1.0, "1", [1, 2, None]], 4),
        ("top_k", [["b", "a"], "b", "a", 2, "c"], ["a", "b"]),
        ("top_k", [10, 9], [9, 10]),
    ],
)
def test_values(function: str, values: list[Any], value: Any) -> None:
    entries = [entry(BEGIN + number, number, value=each) for number, each in enumerate(values)]
    found = of({"activity": "orders", "function": function, "field": "value", "k": 2}, entries, BEGIN + DAY)
    assert canonical.encode(found.leaves[""]) == canonical.encode(value)


numbers = st.one_of(
    st.integers(-(10**16), 10**16),
    st.integers(-(10**16), 10**16).map(lambda cents: cents / 100),
    st.integers(-9999, 9999).map(lambda cents: cents / 100),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(
    st.lists(numbers, min_size=1)
    | st.lists(st.integers(-9999, 9999).map(lambda cents: cents / 100), min_size=1)
)
def test_sums_are_exact(values: list[float]) -> None:
    entries = [entry(BEGIN + number, number, value=each) for number, each in enumerate(values)]
    found = of({"activity": "orders", "function": "sum", "field": "value"}, entries, BEGIN + DAY)
    assert Fraction(str(found.leaves[""])) == sum(Fraction(repr(each)) for each in values)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_nothing_counted(function: str) -> None:
    found = of({"activity": "orders", "function": function, "field": "value"}, [], BEGIN)
    assert found == Derived({"": 0} if function in ("count", "distinct") else {})


def test_a_value_that_is_an_object_gives_its_leaves() -> None:
    entries = [entry(BEGIN, value={"name": "a", "at": {"x.y": 1, "none": None}})]
    found = of({"activity": "orders", "function": "last", "field": "value"}, entries, BEGIN + DAY)
    assert found.leaves == {"name": "a", "at.x\\.y": 1}


def test_a_condition_says_which_entries_count() -> None:
    window = {"activity": "orders", "condition": "status == 'paid' && amount > `10`", "over": "1d"}
    entries = [
        entry(BEGIN, 1, status="paid", amount=20),
        entry(BEGIN + 1, 2, status="open", amount=20),
        entry(BEGIN + 2, 3, status="paid", amount=5),
        entry(BEGIN + 3, 4, status="paid"),
        entry(BEGIN + HOUR, 5, status="open", amount=20),
        entry(BEGIN + 2 * HOUR, 6, status="paid", amount=20),
    ]
    found = of(window, entries, BEGIN + MINUTE)
    assert found.leaves == {"": 1}
    assert list(found.entries) == entries[:1]
    assert found.changes_at == BEGIN + 2 * HOUR + 1


def test_an_entry_that_a_condition_cannot_be_evaluated_for_does_not_count() -> None:
    window = {"activity": "orders", "condition": "abs(amount) > `1`"}
    entries = [entry(BEGIN, 1, amount="text"), entry(BEGIN, 2, amount=-5)]
    assert of(window, entries, BEGIN + 1).leaves == {"": 1}


def test_a_condition_is_checked_when_it_is_compiled() -> None:
    with pytest.raises(SpecError) as raised:
        compiled({"activity": "orders", "condition": "status = 'paid'"})
    assert raised.value.pointer == "/window/condition"
    assert raised.value.hint == "equality is '=='"


@pytest.mark.parametrize("calendar", ["day", "week", "month", "quarter", "year"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "America/Los_Angeles"])
def test_times_beyond_all_calendars_harm_nobody(calendar: str, zone: str) -> None:
    last = 253_402_300_799_999
    window = {"activity": "orders", "over": {"calendar": calendar, "time_zone": zone}}
    entries = [entry(BEGIN), entry(last, 2)]
    found = of(window, entries, BEGIN + 1)
    assert found.leaves == {"": 1}
    assert found.changes_at is not None
    assert of(window, entries[1:], BEGIN).changes_at == last + 1
    assert of(window, entries, -(10**14)).leaves == {"": 0}
    assert of(window, entries, last + 1).leaves[""] >= 1


ZONES_OF_ODD_MIDNIGHTS = [
    ("America/Sao_Paulo", (2018, 11, 4)),  # clocks go forward at midnight
    ("America/Sao_Paulo", (2018, 2, 18)),  # back at midnight
    ("America/Havana", (2025, 11, 2)),  # back at one, to a second midnight
    ("America/St_Johns", (2005, 10, 30)),  # back at a minute past midnight, to the day before
    ("Pacific/Apia", (2011, 12, 30)),  # a day that there is not
    ("Europe/Berlin", (2025, 10, 26)),
    ("Europe/Berlin", (2025, 3, 30)),
]


@pytest.mark.parametrize(("zone", "day"), ZONES_OF_ODD_MIDNIGHTS)
def test_days_follow_each_other_where_clocks_change(zone: str, day: tuple[int, int, int]) -> None:
    """Each entry counts from the moment after it, and no longer once it is gone: there is one moment between two days."""
    midnight = int(datetime(*day, tzinfo=ZoneInfo(zone)).timestamp()) * 1000
    derivation = compiled({"activity": "orders", "over": {"calendar": "day", "time_zone": zone}})
    for time in range(midnight - 30 * HOUR, midnight + 30 * HOUR, 30 * MINUTE):
        timeline = {"orders": [entry(time)]}
        found = [derivation.of(timeline, {}, time + 1 + step * 15 * MINUTE) for step in range(4 * 30)]
        numbers = [each.leaves[""] for each in found]
        assert numbers == sorted(numbers, reverse=True)
        assert numbers[0] == 1
        gone = found[0].changes_at
        assert gone is not None
        assert time < gone <= time + 25 * HOUR
        assert [derivation.of(timeline, {}, gone + step).leaves[""] for step in (-1, 0)] == [1, 0]


@given(st.sampled_from(ZONES_OF_ODD_MIDNIGHTS[5:]), st.integers(-40, 40), edges, st.integers(1, 50))
def test_a_day_has_23_to_25_hours(
    odd: tuple[str, tuple[int, int, int]], hours: int, edge: int, later: int
) -> None:
    zone, day = odd
    time = int(datetime(*day, tzinfo=ZoneInfo(zone)).timestamp()) * 1000 + hours * HOUR + edge
    period = CalendarPeriod(calendar="day", time_zone=zone)
    now = time + later * HOUR // 2
    found = of(Window(activity="orders", over=period), [entry(time)], now)
    assert found.leaves == {"": counts(period, time, now)}
