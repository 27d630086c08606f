"""Lengths of time as people write them: `90s`, `5m`, `12h`, `30d`, `2w`; and moments that follow the clock: `now-30d`, `today`,
`today-18y`, and with a time zone `today@Europe/Berlin`.

`now` moves by `s m h d w`, a day of 24 hours. `today` is the begin of the day in the time zone (UTC, where none is named); it
moves by days, weeks, months (`M`) and years (`y`) of the calendar, and then by `s m h`. The 29th of February less a year is the
28th. Every moment only grows with the clock.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_FORM = re.compile(r"([1-9][0-9]{0,8})([smhdw])")
LONGEST_MS = 100 * 366 * 86_400_000


def milliseconds(text: str) -> int:
    """The length of a duration. Raises ValueError for another text, and beyond a hundred years."""
    found = _FORM.fullmatch(text)
    length = int(found[1]) * _UNITS_MS[found[2]] if found else 0
    if not 0 < length <= LONGEST_MS:
        raise ValueError(
            "a duration is a whole number above 0 and one of s, m, h, d, w, as in 30d; at most a hundred years"
        )
    return length


def time_zone(name: str) -> str:
    """The name of a time zone. Raises ValueError for one that does not exist."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name}; name one as Europe/Berlin, or UTC") from None
    return name


def _checked(text: str) -> str:
    milliseconds(text)
    return text


Duration = Annotated[str, AfterValidator(_checked)]
TimeZone = Annotated[str, Field(max_length=64), AfterValidator(time_zone)]


TimeForm = Literal["milliseconds", "rfc3339", "date"]
"""How an attribute has a time: epoch milliseconds, RFC 3339 in UTC, or a day as `2026-11-29`."""

NO_TIMES: Mapping[str, TimeForm] = MappingProxyType({})

UTC_NAME = "UTC"
LONGEST_YEARS = 1000
_MOMENT = re.compile(
    r"(?P<base>now|today)(?:(?P<number>[+-]\d{1,9})(?P<unit>[smhdwMy]))?(?:@(?P<zone>[A-Za-z0-9_+/-]{1,64}))?"
)
_DAYS = {"d": 1, "w": 7}
_MONTHS = {"M": 1, "y": 12}
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class RelativeMoment(NamedTuple):
    """`now` or `today` and its distance in a unit. Without a `zone` it is UTC, unless the one who asks has another."""

    base: str
    number: int
    unit: str
    zone: str | None

    def __str__(self) -> str:
        moved = f"{self.number:+d}{self.unit}" if self.number else ""
        return f"{self.base}{moved}{'' if self.zone is None else f'@{self.zone}'}"

    def moved(self, days: int) -> RelativeMoment:
        """The same some days later, of a moment that is moved by days or not at all. Raises ValueError for another."""
        if self.number and self.unit != "d":
            raise ValueError(f"{self} is not moved by days")
        return self._replace(number=self.number + days, unit="d")

    @property
    def time_zone(self) -> ZoneInfo:
        """The zone whose days count."""
        return ZoneInfo(self.zone or UTC_NAME)

    def at(self, now_ms: int) -> int:
        """In epoch milliseconds, as of a moment in epoch milliseconds."""
        if self.base == "now":
            return now_ms + self.number * _UNITS_MS.get(self.unit, 0)
        return midnight(self.day(now_ms), self.time_zone) + (
            self.number * _UNITS_MS[self.unit] if self.unit in ("s", "m", "h") else 0
        )

    def day(self, now_ms: int) -> date:
        """The day in the time zone, as of a moment, moved by days, weeks, months or years."""
        today = (_EPOCH + now_ms * _MS).astimezone(self.time_zone).date()
        return _moved(today, self.number, self.unit)


@lru_cache(maxsize=1000)
def moment(text: str) -> RelativeMoment | None:
    """None for a text that is no moment. Raises ValueError for an unknown time zone, and beyond a thousand years."""
    found = _MOMENT.fullmatch(text)
    if found is None or (found["base"] == "now" and found["unit"] in _MONTHS):
        return None
    if found["zone"] is not None:
        try:
            time_zone(found["zone"])
        except ValueError as error:
            raise ValueError(f"{text}: {error}") from None
    number, unit = int(found["number"] or 0), found["unit"] or "d"
    days = abs(number) * (31 * _MONTHS[unit] if unit in _MONTHS else _UNITS_MS[unit] / _UNITS_MS["d"])
    if days > LONGEST_YEARS * 372:
        raise ValueError(f"{text}: a moment is at most {LONGEST_YEARS:,} years away")
    return RelativeMoment(found["base"], number, unit, found["zone"])


def is_moment(text: str) -> bool:
    """Whether a text is a moment, or would be one with a time zone that exists."""
    try:
        return moment(text) is not None
    except ValueError:
        return True


def required_moment(text: str) -> RelativeMoment:
    """Raises ValueError for a text that is no moment."""
    found = moment(text)
    if found is None:
        raise ValueError(f"{text!r} is no moment, such as now-30d, today or today-18y@Europe/Berlin")
    return found


ANNIVERSARY_YEARS = 150
_LEAP = (2, 29)


def anniversary(text: str) -> RelativeMoment:
    """The day of an anniversary. Raises ValueError for a text that is not `today`, moved by days or weeks or not at all."""
    found = required_moment(text)
    if found.base != "today" or found.unit not in _DAYS:
        raise ValueError("an anniversary is moved by days or weeks, as in anniversary+7d")
    return found


def anniversary_days(text: str, now_ms: int) -> list[str]:
    """The days whose anniversary is on a day, as of a moment: that one and those of `ANNIVERSARY_YEARS` before."""
    return _same_days(anniversary(text).day(now_ms))


@lru_cache(maxsize=100)
def _same_days(day: date) -> list[str]:
    same = {(day.month, day.day)} | ({_LEAP} if _in_year(date(4, *_LEAP), day.year) == day else set())
    return [
        date(year, *each).isoformat()
        for year in range(max(day.year - ANNIVERSARY_YEARS, 1), day.year + 1)
        for each in sorted(same)
        if each != _LEAP or calendar.isleap(year)
    ]


def anniversary_changes_at(text: str, value: str, now_ms: int) -> int | None:
    """The least moment after now at which an anniversary of a day begins or ends; None for a text that is no day, and for never."""
    found = anniversary(text)
    day = found.day(now_ms)
    try:
        first = date.fromisoformat(value)
    except ValueError:
        return None
    begins = [
        _in_year(first, year)
        for year in (day.year, day.year + 1, first.year)
        if 0 <= year - first.year <= ANNIVERSARY_YEARS
    ]
    later = [each for begin in begins for each in (begin, begin + _DAY) if each > day]
    return midnight(_moved(min(later), -found.number, found.unit), found.time_zone) if later else None


def _in_year(day: date, year: int) -> date:
    """The anniversary in a year: of the 29th of February the 28th, where there is no 29th."""
    return day.replace(year=year, day=min(day.day, calendar.monthrange(year, day.month)[1]))


Bound = tuple[str | int, bool]
"""A value of an attribute, and whether it is within."""


def lower_bound(text: str, is_within: bool, now_ms: int, form: TimeForm) -> Bound:
    """The lower bound of an attribute in this form, as of a moment."""
    found = required_moment(text)
    at = found.at(now_ms)
    if form == "milliseconds":
        return at, is_within
    # Compared as text, in whole seconds or days: the begin of a value stands before all that have it.
    return _text(found, at, form, later=not is_within), True


def upper_bound(text: str, is_within: bool, now_ms: int, form: TimeForm) -> Bound:
    """The upper bound likewise."""
    found = required_moment(text)
    at = found.at(now_ms)
    if form == "milliseconds":
        return at, is_within
    return _text(found, at, form, later=is_within), False


def _text(found: RelativeMoment, at: int, form: TimeForm, later: bool) -> str:
    if form == "date":
        day = (_EPOCH + at * _MS).astimezone(found.time_zone).date()
        return (day + _DAY * later).isoformat()
    time = (_EPOCH + at // 1000 * _SECOND + _SECOND * later).replace(tzinfo=None).isoformat()
    return time.removesuffix("T00:00:00")


def _moved(day: date, number: int, unit: str) -> date:
    if unit in _DAYS:
        return day + timedelta(days=number * _DAYS[unit])
    if unit not in _MONTHS:
        return day
    year, month = divmod(day.year * 12 + day.month - 1 + number * _MONTHS[unit], 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


@lru_cache(maxsize=10_000)
def midnight(day: date, zone: ZoneInfo) -> int:
    """The first millisecond of a day. Where midnight is left out for summer time, the moment at which it would be."""
    return (datetime(day.year, day.month, day.day, tzinfo=zone) - _EPOCH) // _MS
