"""Moments that follow the clock, in the search language, in JSON, and as plain ranges."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from idgraph.model.attributes import DataType
from idgraph.model.durations import TimeForm, milliseconds, moment
from idgraph.model.errors import QueryError
from idgraph.model.queries import (
    AnyOf,
    Query,
    Range,
    Relative,
    Term,
    absolute,
    from_json,
    in_time_zone,
    to_json,
)
from idgraph.model.query_language import parse_query

TYPES = {"text": DataType.STRING, "day": DataType.STRING, "truth": DataType.BOOLEAN, "seen": DataType.INTEGER}
TIMES: dict[str, TimeForm] = {"day": "date", "stamp": "rfc3339"}


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


NOW = ms("2026-03-31T10:20:30.500+00:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", "2026-03-31T10:20:30.500+00:00"),
        ("now-30d", "2026-03-01T10:20:30.500+00:00"),
        ("now+90m", "2026-03-31T11:50:30.500+00:00"),
        ("now-2w@Europe/Berlin", "2026-03-17T10:20:30.500+00:00"),
        ("today", "2026-03-31T00:00+00:00"),
        ("today+8h", "2026-03-31T08:00+00:00"),
        ("today@Europe/Berlin", "2026-03-31T00:00+02:00"),
        ("today-7d@Europe/Berlin", "2026-03-24T00:00+01:00"),
        ("today@Asia/Tokyo", "2026-03-31T00:00+09:00"),
        ("today+1d@Pacific/Auckland", "2026-04-01T00:00+13:00"),
        ("today-1M", "2026-02-28T00:00+00:00"),
        ("today-18y", "2008-03-31T00:00+00:00"),
        ("today-11M@America/New_York", "2025-04-30T00:00-04:00"),
    ],
)
def test_a_moment_as_of_now(text: str, expected: str) -> None:
    found = moment(text)
    assert found is not None
    assert found.at(NOW) == ms(expected)
    assert str(found) == text


@pytest.mark.parametrize(
    ("birthday", "today", "is_one"),
    [
        ("1990-03-31", "2026-03-31", True),
        ("1990-03-30", "2026-03-31", False),
        ("2026-03-31", "2026-03-31", True),
        ("2027-03-31", "2026-03-31", False),
        ("1876-03-31", "2026-03-31", True),
        ("1875-03-31", "2026-03-31", False),
        ("2004-02-29", "2026-02-28", True),
        ("2004-02-29", "2026-03-01", False),
        ("2004-02-28", "2026-02-28", True),
        ("2004-02-29", "2028-02-28", False),
        ("2004-02-29", "2028-02-29", True),
        ("2003-02-28", "2028-02-28", True),
        ("2003-02-28", "2028-02-29", False),
    ],
)
def test_an_anniversary(birthday: str, today: str, is_one: bool) -> None:
    for text, shift in (("anniversary", 0), ("anniversary+1w", 7), ("anniversary-3d@Asia/Tokyo", -3)):
        query = parse_query([f"day={text}"], TYPES.get, TIMES.get)
        assert from_json(to_json(query)) == query
        now = ms(f"{today}T12:00+00:00") - shift * 86_400_000
        (found,) = absolute(query, now, TIMES).clauses
        assert isinstance(found, AnyOf)
        assert (Term("day", birthday) in found.conditions) is is_one
        assert len(found.conditions) == len(set(found.conditions))


def test_an_anniversary_follows_the_time_zone_of_who_asks() -> None:
    query = in_time_zone(parse_query(["day=anniversary"], TYPES.get, TIMES.get), "Asia/Tokyo")
    (found,) = absolute(query, ms("2026-03-31T16:00+00:00"), TIMES).clauses
    assert isinstance(found, AnyOf)
    assert Term("day", "1990-04-01") in found.conditions


def test_an_anniversary_is_of_a_day_and_moved_by_days() -> None:
    for text in ("anniversary-1y", "anniversary+1h", "anniversaryish", "anniversary@nowhere"):
        with pytest.raises(QueryError, match=r"anniversary|time zone|no moment"):
            parse_query([f"day={text}"], TYPES.get, TIMES.get)
    with pytest.raises(QueryError, match="anniversary/value"):
        from_json([{"anniversary": {"path": "day", "value": "now"}}])
    assert parse_query(["text=anniversary"], TYPES.get, TIMES.get) == Query((Term("text", "anniversary"),))


def test_the_29th_of_february_less_a_year_is_the_28th() -> None:
    found = moment("today-1y")
    assert found is not None
    assert found.at(ms("2024-02-29T12:00+00:00")) == ms("2023-02-28T00:00+00:00")


@pytest.mark.parametrize("text", ["now-30", "now-1y", "today-7d/d", "tomorrow", "now-d", "today@", "nows"])
def test_another_text_is_no_moment(text: str) -> None:
    assert moment(text) is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["seen<now-30d"], Relative("seen", upper="now-30d", include_upper=False)),
        (["seen", ">=", "today-7d"], Relative("seen", lower="today-7d")),
        (["new=today"], Relative("new", "today", "today+1d", include_upper=False)),
        (["day=today-1d"], Relative("day", "today-1d", "today", include_upper=False)),
        (['seen<"now-30d"'], Range("seen", upper="now-30d", include_upper=False)),
        (["text=today"], Term("text", "today")),
        (["seen=now"], Term("seen", "now")),
        (["text:today"], None),
    ],
)
def test_the_search_language_has_moments(words: list[str], expected: Any) -> None:
    (found,) = parse_query(words, TYPES.get, TIMES.get).clauses
    if expected is None:
        assert not isinstance(found, Relative)
    else:
        assert (type(found), found) == (type(expected), expected)
        assert from_json(to_json(Query((found,)))) == Query((found,))


@pytest.mark.parametrize("word", ["seen<today-2000y", "seen=today-1M", "seen<now@Nowhere/City"])
def test_a_moment_that_cannot_be_is_refused(word: str) -> None:
    with pytest.raises(QueryError, match="seen"):
        parse_query([word], TYPES.get, TIMES.get)


@pytest.mark.parametrize("text", ["yesterday", "now-1y", "now@Nowhere/City"])
def test_a_bound_in_json_is_a_moment(text: str) -> None:
    with pytest.raises(QueryError, match="query/0/moment/lower"):
        from_json([{"moment": {"path": "seen", "lower": text}}])


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        (Relative("seen", "now-1d", "now", False, True), (NOW - 86_400_000, NOW, False, True)),
        (Relative("stamp", "now"), ("2026-03-31T10:20:30", None, True, True)),
        (Relative("stamp", "now", include_lower=False), ("2026-03-31T10:20:31", None, True, True)),
        (Relative("stamp", upper="today"), (None, "2026-03-31T00:00:01", True, False)),
        (Relative("stamp", "today", "today+1d", True, False), ("2026-03-31", "2026-04-01", True, False)),
        (Relative("day", "today", "today+1d", True, False), ("2026-03-31", "2026-04-01", True, False)),
        (Relative("day", upper="today-18y"), (None, "2008-04-01", True, False)),
        (Relative("day", lower="now+20h@Asia/Tokyo"), ("2026-04-01", None, True, True)),
    ],
)
def test_a_query_is_made_absolute(clause: Relative, expected: tuple[Any, ...]) -> None:
    (found,) = absolute(Query((clause,)), NOW, TIMES).clauses
    assert type(found) is Range
    assert found == Range(clause.path, *expected)


def test_a_time_zone_is_that_of_moments_without_one() -> None:
    query = Query((Relative("a", "today", "now@UTC"), Term("b", "today")))
    assert in_time_zone(query, "Asia/Tokyo").clauses == (
        Relative("a", "today@Asia/Tokyo", "now@UTC"),
        query.clauses[1],
    )
    assert in_time_zone(query, "UTC") == query


@pytest.mark.parametrize("text", ["0m", "00d", "-1d", "1.5h"])
def test_a_length_of_time_is_a_whole_number_above_0(text: str) -> None:
    with pytest.raises(ValueError, match="a whole number above 0"):
        milliseconds(text)
