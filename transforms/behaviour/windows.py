"""Windows: aggregates of an activity's entries over a time that ends now."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, Inexact
from heapq import nsmallest
from itertools import islice
from math import inf
from operator import eq
from typing import Any, NamedTuple, Protocol
from zoneinfo import ZoneInfo

from idgraph.model import canonical, paths
from idgraph.model.behaviour import CalendarPeriod, Window
from idgraph.model.durations import midnight, milliseconds
from idgraph.model.errors import SpecError, TransformError
from idgraph.model.stamps import epoch_ms
from idgraph.model.timelines import DAY_MS, Entry, count_before, times_of, values_of
from transforms.spec.budget import start
from transforms.spec.jmespath.compilation import compile_expression
from transforms.spec.jmespath.evaluators import is_false
from transforms.spec.limits import DEFAULT_LIMITS

HOUR_MS = 3_600_000
FIVE_MINUTES_MS = 300_000
MOST_SHOWN = 100
"""Entries that a result names as those it rests on."""


class BehaviourSpan(NamedTuple):
    """A session, or a match of a pattern: the times of its first and last entry (epoch milliseconds), and their number."""

    begin: int
    end: int
    entries: int


class Derived(NamedTuple):
    """The result of a derivation as of a moment."""

    leaves: dict[str, Any]
    """JSON values by path below the derived attribute's own; "" is its own. Empty: it has no value."""
    changes_at: int | None = None
    """The least moment (epoch milliseconds) after `now` at which the leaves may differ without another entry."""
    entries: Sequence[Entry] = ()
    """Those that the result rests on, the newest first, at most `MOST_SHOWN`."""
    is_complete: bool = True
    """False where an entry that would count may be missing, because it was dropped or never recorded."""
    problem: str | None = None
    """Why it has no value, where its definition could not be evaluated. Without values of the profile."""
    model: str | None = None
    """The digest of the model that gave the value."""


def leaves_of(value: Any, *keys: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a JSON value below these keys, by path; none of null."""
    if type(value) is dict:
        for key, below in value.items():
            yield from leaves_of(below, *keys, key)
    elif value is not None:
        yield paths.join(keys), value


def earliest(*moments: int | None) -> int | None:
    """The least of the moments that are not None."""
    return min((each for each in moments if each is not None), default=None)


class Lookback(Protocol):
    """The time that a window looks back on. An entry counts at the moments `t` with `time < t < until(time)`."""

    def begin(self, now: int, /) -> int | None:
        """The time of the oldest entries that count now; None: there is no bound."""

    def until(self, time: int, /) -> int | None:
        """The moment from which an entry of this time does not count any longer; None: it counts for good."""


class _All:
    def begin(self, _now: int) -> None:
        return None

    def until(self, _time: int) -> None:
        return None


class _Length:
    """A length of time, with its begin rounded down to a hop."""

    def __init__(self, length: int) -> None:
        self._length = length
        if length >= 12 * DAY_MS:
            self._hop = DAY_MS
        else:
            self._hop = HOUR_MS if length >= 12 * HOUR_MS else FIVE_MINUTES_MS

    def begin(self, now: int) -> int:
        return (now - self._length) // self._hop * self._hop

    def until(self, time: int) -> int:
        return (time // self._hop + 1) * self._hop + self._length


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_FIRST_MS, _LAST_MS = (epoch_ms(datetime(year, 1, 1, tzinfo=UTC)) for year in (3, 9998))
"""Calendar periods are known from the one to the other."""


class _Calendar:
    """The present calendar period. It begins at local midnight: at the first of two, and where there is none, when the clocks
    that go forward pass it."""

    def __init__(self, period: CalendarPeriod) -> None:
        self._zone = ZoneInfo(period.time_zone)
        self._kind = period.calendar

    def begin(self, now: int) -> int:
        return self._around(min(max(now, _FIRST_MS), _LAST_MS))[0]

    def until(self, time: int) -> int | None:
        return self._around(max(time, _FIRST_MS))[1] if time < _LAST_MS else None

    def _around(self, moment: int) -> tuple[int, int]:
        """The last begin of a period that is not after the moment, and the first that is."""
        first = self._first_day((_EPOCH + moment * _MILLISECOND).astimezone(self._zone).date())
        # The local date may go back, or skip a day, where a zone changes its offset about midnight.
        while midnight(first, self._zone) > moment:
            first = self._first_day(first - timedelta(days=1))
        while True:
            after = self._next(first)
            if midnight(after, self._zone) > moment:
                return midnight(first, self._zone), midnight(after, self._zone)
            first = after

    def _first_day(self, day: date) -> date:
        if self._kind == "day":
            return day
        if self._kind == "week":
            return day - timedelta(days=day.weekday())
        if self._kind == "month":
            return day.replace(day=1)
        if self._kind == "quarter":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        return day.replace(month=1, day=1)

    def _next(self, first: date) -> date:
        longest = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}[self._kind]
        return self._first_day(first + timedelta(days=longest))


def span(over: str | CalendarPeriod) -> Lookback:
    """The span of a duration, a calendar period, or `all`."""
    if isinstance(over, CalendarPeriod):
        return _Calendar(over)
    return _All() if over == "all" else _Length(milliseconds(over))


Condition = Callable[[Entry], bool]


def condition_on_fields(text: str, pointer: str) -> Condition:
    """JMESPath on an entry's fields; false where it cannot be evaluated. Raises SpecError with the pointer."""
    try:
        evaluate = compile_expression(text).evaluate
    except SpecError as error:
        raise error.under(pointer) from None

    def holds(entry: Entry) -> bool:
        start(DEFAULT_LIMITS)
        try:
            return not is_false(evaluate(entry.fields))
        except TransformError:
            return False

    return holds


class Chosen(NamedTuple):
    """The result of an aggregate: its value, the positions of the values that it rests on, and the position of the value that has
    to leave before it changes."""

    value: Any
    positions: Sequence[int]
    first_to_leave: int


_NUMBERS = frozenset({int, float, Decimal})
_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_QUOTIENT = Context(prec=34, Emax=MAX_EMAX, Emin=MIN_EMIN)
_LARGEST_INTEGER = 10**sys.int_info.default_max_str_digits
_AS_CENTS = 10**13
_HUNDREDTH = (100).__rtruediv__
_BOTH_EXACT = 2**53
"""Integers and floats below compare as the decimals that they are written as."""


def _written(number: float | Decimal) -> int | Decimal:
    """The number that was written: 0.1 is one tenth, and not the double next to it."""
    return Decimal(repr(number)) if type(number) is float else number  # type: ignore[return-value]


def _magnitude(value: Any) -> tuple[int, Any]:
    """The order of the policies `max` and `min`: booleans, numbers, texts, others by their canonical bytes."""
    kind = type(value)
    if kind is bool:
        return 0, value
    if kind in _NUMBERS:
        return 1, _written(value)
    return (2, value) if kind is str else (3, canonical.encode(value))


def _shown(number: Decimal) -> Any:
    try:
        return canonical.exact_number(str(_EXACT.normalize(number)))
    except OverflowError:
        return number


def _total(values: Sequence[Any]) -> int | Decimal:
    kinds = set(map(type, values))
    if kinds == {int}:
        whole: int = sum(values)
        return whole
    if kinds <= {int, float} and min(values) > -_AS_CENTS and max(values) < _AS_CENTS:
        # Two decimals of at most 15 digits are never the same double.
        cents = [round(value * 100) for value in values]
        if all(map(eq, values, map(_HUNDREDTH, cents))):
            return Decimal(sum(cents)).scaleb(-2, _EXACT)
    total = Decimal(0)
    for value in values:
        total = _EXACT.add(total, Decimal(_written(value)))
    return total


def _all_of(value: Any, values: Sequence[Any]) -> Chosen:
    return Chosen(value, range(len(values)), 0)


def _one_of(values: Sequence[Any], position: int) -> Chosen:
    return Chosen(values[position], (position,), position)


def _sum(values: Sequence[Any], _k: int) -> Chosen:
    total = _total(values)
    # Python refuses to write integers of more digits, but not decimals.
    is_short_integer = type(total) is int and abs(total) < _LARGEST_INTEGER
    return _all_of(total if is_short_integer else _shown(Decimal(total)), values)


def _average(values: Sequence[Any], _k: int) -> Chosen:
    """Exact where it has at most 34 digits, else the nearest double."""
    quotient = _QUOTIENT.copy()
    average = quotient.divide(Decimal(_total(values)), Decimal(len(values)))
    rounded = float(average)
    return _all_of(rounded if quotient.flags[Inexact] and 0 < abs(rounded) < inf else _shown(average), values)


def _extreme(values: Sequence[Any], best: Callable[..., Any]) -> Chosen:
    kinds = set(map(type, values))
    is_simple = kinds == {str} or (
        kinds <= {int, float} and min(values) > -_BOTH_EXACT and max(values) < _BOTH_EXACT
    )
    # Of equal ones the latest.
    keys = values if is_simple else [_magnitude(value) for value in values]
    return _one_of(values, len(keys) - 1 - keys[::-1].index(best(keys)))


def _last_k(values: Sequence[Any], k: int) -> Chosen:
    first = max(len(values) - k, 0)
    return Chosen(values[first:][::-1], range(first, len(values)), first)


def _of_texts(values: Sequence[Any]) -> bool:
    return set(map(type, values)) == {str}


def _spread(values: Sequence[Any]) -> Iterable[tuple[int, Any]]:
    """The values by position, and the elements of arrays in place of these; no nulls."""
    for position, value in enumerate(values):
        for each in value if type(value) is list else (value,):
            if each is not None:
                yield position, each


def _distinct(values: Sequence[Any], _k: int) -> Chosen:
    if _of_texts(values):
        latest: dict[Any, int] = {value: position for position, value in enumerate(values)}
    else:
        latest = {canonical.encode(value): position for position, value in _spread(values)}
    return Chosen(len(latest), range(len(values)), min(latest.values(), default=0))


def _top_k(values: Sequence[Any], k: int) -> Chosen:
    if _of_texts(values):
        texts = Counter(values).items()
        return _all_of(
            [text for text, _ in nsmallest(k, texts, key=lambda each: (-each[1], each[0]))], values
        )
    counts = Counter(canonical.encode(value) for _, value in _spread(values))
    decoded = ((number, key, canonical.decode(key)) for key, number in counts.items())
    best = nsmallest(k, decoded, key=lambda each: (-each[0], _magnitude(each[2]), each[1]))
    return _all_of([value for _, _, value in best], values)


_FUNCTIONS: dict[str, Callable[[Sequence[Any], int], Chosen]] = {
    "count": lambda values, _k: _all_of(len(values), values),
    "sum": _sum,
    "average": _average,
    "min": lambda values, _k: _extreme(values, min),
    "max": lambda values, _k: _extreme(values, max),
    "first": lambda values, _k: _one_of(values, 0),
    "last": lambda values, _k: _one_of(values, len(values) - 1),
    "last_k": _last_k,
    "distinct": _distinct,
    "top_k": _top_k,
}
"""Each takes at least one value, the oldest first: numbers for `sum` and `average`, else anything but null."""

_OF_NUMBERS = frozenset({"sum", "average"})
_OF_NOTHING: dict[str, Any] = {"count": 0, "distinct": 0}


class WindowDerivation:
    """A window's aggregate at a moment. Raises SpecError with a pointer below the window."""

    def __init__(self, window: Window) -> None:
        self._window = window
        self._span = span(window.over)
        self._holds = (
            None if window.condition is None else condition_on_fields(window.condition, "/condition")
        )
        self._function = _FUNCTIONS[window.function]

    def of(self, entries: Sequence[Entry], now: int, whole_from: int | None) -> Derived:
        """`entries` are sorted; all that came with a time from `whole_from` on are among them, None: all that came."""
        begin = self._span.begin(now)
        low = 0 if begin is None else count_before(entries, begin)
        high = count_before(entries, now)
        is_complete = is_whole(entries, begin, whole_from)
        enters = self._enters(entries, high) if high < len(entries) else None
        chosen = self._chosen(entries, low, high)
        values: Sequence[Any] = chosen
        if self._window.field is not None:
            chosen, values = self._with_values(chosen, self._window.field)
        if not values:
            return Derived(self._of_nothing(), enters, (), is_complete)
        value, positions, first = self._function(values, self._window.k)
        shown = [chosen[position] for position in positions[-MOST_SHOWN:]][::-1]
        return Derived(
            dict(leaves_of(value)), earliest(self._span.until(chosen[first].time), enters), shown, is_complete
        )

    def at_each(
        self, entries: Sequence[Entry], moments: Sequence[int], whole_from: int | None
    ) -> Iterator[Derived]:
        """Leaves and completeness of `of` for each moment."""
        begins = list(map(self._span.begin, moments))
        times, values = self._counted(entries, begins, moments)
        known: dict[tuple[int, int, bool], Derived] = {}
        for begin, now in zip(begins, moments, strict=True):
            low, high = 0 if begin is None else bisect_left(times, begin), bisect_left(times, now)
            key = low, high, is_whole(entries, begin, whole_from)
            if key not in known:
                found = self._function(values[low:high], self._window.k).value if high > low else None
                leaves = self._of_nothing() if high == low else dict(leaves_of(found))
                known[key] = Derived(leaves, is_complete=key[2])
            yield known[key]

    def _counted(
        self, entries: Sequence[Entry], begins: Sequence[int | None], moments: Sequence[int]
    ) -> tuple[list[int], Sequence[Any]]:
        """The times of all entries that count at one of some moments, and the values that the function takes."""
        if self._holds is None and self._window.field is None:
            # Their number alone: none is decoded.
            times = times_of(entries)
            return times, times
        first = min((each for each in begins if each is not None), default=None)
        low = 0 if first is None else count_before(entries, first)
        chosen: Sequence[Entry] = entries[low : count_before(entries, max(moments, default=0))]
        if self._holds is not None:
            chosen = list(filter(self._holds, chosen))
        values: Sequence[Any] = chosen
        if self._window.field is not None:
            chosen, values = self._with_values(chosen, self._window.field)
        return times_of(chosen), values

    def _of_nothing(self) -> dict[str, Any]:
        nothing = _OF_NOTHING.get(self._window.function)
        return {} if nothing is None else {"": nothing}

    def _enters(self, entries: Sequence[Entry], high: int) -> int | None:
        """The moment at which the first entry that is still to come counts."""
        for entry in entries[high:]:
            until = self._span.until(entry.time)
            if (until is None or entry.time + 1 < until) and self._counts(entry):
                return entry.time + 1
        return None

    def _chosen(self, entries: Sequence[Entry], low: int, high: int) -> Sequence[Entry]:
        """The entries that count, or so many from one end as the function reads."""
        order = {
            "first": range(low, high),
            "last": range(low, high)[::-1],
            "last_k": range(low, high)[::-1],
        }.get(self._window.function)
        if order is None:
            chosen = entries[low:high]
            return chosen if self._holds is None else list(filter(self._holds, chosen))
        most = self._window.k if self._window.function == "last_k" else 1
        found = list(islice(filter(self._counts, map(entries.__getitem__, order)), most))
        return found if order.step > 0 else found[::-1]

    def _with_values(self, chosen: Sequence[Entry], field: str) -> tuple[Sequence[Entry], Sequence[Any]]:
        values = values_of(chosen, field)
        if self._window.function in _OF_NUMBERS:
            if _NUMBERS.issuperset(map(type, values)):
                return chosen, values
            kept = [
                (entry, value) for entry, value in zip(chosen, values, strict=True) if type(value) in _NUMBERS
            ]
        elif None not in values:
            return chosen, values
        else:
            kept = [(entry, value) for entry, value in zip(chosen, values, strict=True) if value is not None]
        return [entry for entry, _ in kept], [value for _, value in kept]

    def _counts(self, entry: Entry) -> bool:
        if self._holds is not None and not self._holds(entry):
            return False
        return self._window.field is None or bool(self._with_values((entry,), self._window.field)[0])


def is_whole(entries: Sequence[Entry], begin: int | None, whole_from: int | None) -> bool:
    """Whether no entry with a time from `begin` on can be missing. Without a begin, all that are kept count: an entry before
    `whole_from` shows that the activity's `most` dropped others."""
    if whole_from is None:
        return True
    if begin is None:
        return not entries or entries[0].time >= whole_from
    return begin >= whole_from
