"""Derivations as their definitions say, without a thought of speed; and what they are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from idgraph.model import canonical
from idgraph.model.behaviour import CalendarPeriod, DerivedDocument, SessionWindow, Window
from idgraph.model.durations import milliseconds
from idgraph.model.timelines import Entry

MINUTE = 60_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR


def entry(time: int, number: int = 0, source: str = "shop", **fields: Any) -> Entry:
    """An entry of the event with this number."""
    return Entry(time, source, f"e{number}", (1, "orders", 1), fields)


def derived(**kind: Any) -> DerivedDocument:
    """A definition of one kind."""
    return DerivedDocument.model_validate({"name": "d", "path": "a.b", "version": 1} | kind)


def hop(length: int) -> int:
    """The hop of a window of this length, as Chronon's tables have it."""
    return DAY if length >= 12 * DAY else HOUR if length >= 12 * HOUR else 5 * MINUTE


def counts(over: str | CalendarPeriod, time: int, now: int) -> bool:
    """Whether an entry of this time is in the window at this moment."""
    if time >= now:
        return False
    if over == "all":
        return True
    if isinstance(over, str):
        length = milliseconds(over)
        return now - length - (now - length) % hop(length) <= time
    return _period(over, time) == _period(over, now)


def _period(over: CalendarPeriod, moment: int) -> tuple[int, ...]:
    local = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment)).astimezone(
        ZoneInfo(over.time_zone)
    )
    return {
        "day": (local.year, local.month, local.day),
        "week": tuple(local.isocalendar()[:2]),
        "month": (local.year, local.month),
        "quarter": (local.year, (local.month - 1) // 3),
        "year": (local.year,),
    }[over.calendar]


def window_value(window: Window, entries: Sequence[Entry], now: int) -> Any:
    """The value of a window without a condition; None if it has none."""
    values = [each.fields.get(window.field or "") for each in entries if counts(window.over, each.time, now)]
    if window.field is None:
        return len(values)
    values = [each for each in values if each is not None]
    elements = [
        each for value in values for each in (value if type(value) is list else [value]) if each is not None
    ]
    numbers = [Fraction(str(each)) for each in values if type(each) in (int, float, Decimal)]
    if window.function == "count":
        return len(values)
    if window.function == "distinct":
        return len(set(map(canonical.encode, elements)))
    if window.function in ("sum", "average"):
        divisor = len(numbers) if window.function == "average" else 1
        return sum(numbers) / divisor if numbers else None
    if not values:
        return None
    if window.function in ("min", "max"):
        best = (min if window.function == "min" else max)(map(_order, values))
        return [each for each in values if _order(each) == best][-1]
    if window.function == "top_k":
        keys = [canonical.encode(each) for each in elements]
        ordered = sorted(set(keys), key=lambda key: (-keys.count(key), _order(canonical.decode(key)), key))
        return [canonical.decode(key) for key in ordered[: window.k]]
    if window.function == "last_k":
        return values[::-1][: window.k]
    return values[0] if window.function == "first" else values[-1]


def _order(value: Any) -> tuple[int, Any]:
    if type(value) is bool:
        return 0, value
    if type(value) in (int, float, Decimal):
        return 1, Fraction(str(value))
    return (2, value) if type(value) is str else (3, canonical.encode(value))


def split(sessions: SessionWindow, entries: Sequence[Entry]) -> list[list[Entry]]:
    """The sessions of entries in their order."""
    gap, cap = milliseconds(sessions.gap), milliseconds(sessions.cap)
    found: list[list[Entry]] = []
    for each in entries:
        if found and each.time - found[-1][-1].time <= gap and each.time - found[-1][0].time < cap:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def session_leaves(sessions: SessionWindow, entries: Sequence[Entry], now: int) -> dict[str, Any]:
    """The leaves of sessions without a condition."""
    gap, cap = milliseconds(sessions.gap), milliseconds(sessions.cap)
    found = split(sessions, [each for each in entries if each.time < now])
    leaves: dict[str, Any] = {"count": sum(counts(sessions.over, each[0].time, now) for each in found)}
    is_open = [now < min(each[-1].time + gap, each[0].time + cap) for each in found]
    for name, shown in (("current", True), ("last", False)):
        of_it = [each for each, state in zip(found, is_open, strict=True) if state is shown]
        if of_it:
            first, last = of_it[-1][0], of_it[-1][-1]
            leaves |= {f"{name}.begin": first.time, f"{name}.end": last.time}
            leaves[f"{name}.entries"] = len(of_it[-1])
            leaves |= {
                f"{name}.first.{key}": first.fields[key] for key in sessions.fields if key in first.fields
            }
            leaves |= {
                f"{name}.last.{key}": last.fields[key] for key in sessions.fields if key in last.fields
            }
    return leaves


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([0.1, 0.2, 1.0, -2.5, 1e23, 10**23, 2**53 + 1, Decimal("0.1000000000000000000001")]),
    st.sampled_from(["a", "b", "", "z"]),
    st.lists(st.sampled_from(["a", "b", 1, None]), max_size=3),
)

edges = st.sampled_from([0, 1, -1])
"""Moments about a multiple of something, where a rounding shows."""

moments = st.one_of(
    st.builds(lambda hops, edge: hops * 5 * MINUTE + edge, st.integers(0, 60), edges),
    st.builds(lambda hops, edge: hops * HOUR + edge, st.integers(0, 60), edges),
    st.builds(lambda hops, edge: hops * DAY + edge, st.integers(0, 60), edges),
)

BEGIN = 1_761_955_200_000 - 5 * DAY
"""Some days before clocks go back in Europe and America."""


@st.composite
def timelines(draw: st.DrawFn, most: int = 30) -> list[Entry]:
    """Entries in their order."""
    times = draw(st.lists(moments, max_size=most))
    entries = [
        entry(BEGIN + time, number, draw(st.sampled_from(["shop", "web"])), value=draw(values))
        for number, time in enumerate(times)
    ]
    return sorted(entries, key=lambda each: each.order)


def changes(found: Sequence[tuple[int, Any]]) -> list[int]:
    """The moments at which a value differs from the moment before."""
    return [moment for (_, before), (moment, value) in pairwise(found) if before != value]
