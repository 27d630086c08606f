"""Ordinals: integers as they are, times with an offset as milliseconds, all else refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError
from idgraph.model.stamps import ORDINAL_MAX, ORDINAL_MIN, read_ordinal

offsets = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.integers(ORDINAL_MIN, ORDINAL_MAX))
def test_an_integer_is_itself(ordinal: int) -> None:
    assert read_ordinal(ordinal) == ordinal


@given(st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1), timezones=offsets))
def test_a_time_is_the_same_in_every_zone_and_rounded_down(moment: datetime) -> None:
    expected = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    assert read_ordinal(moment.isoformat()) == expected
    assert read_ordinal(moment.astimezone(UTC).isoformat()) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2024-03-01T00:41:53.049000Z", 1709253713049),
        ("2024-03-01T01:00:00+01:00", 1709251200000),
        ("1969-12-31T23:59:59.9999Z", -1),
        (5.0, 5),
        (-0.0, 0),
    ],
)
def test_examples(value: Any, expected: int) -> None:
    assert read_ordinal(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        ORDINAL_MAX + 1,
        ORDINAL_MIN - 1,
        1e300,
        1.5,
        float("inf"),
        float("nan"),
        True,
        None,
        [],
        {},
        "",
        "s3cr3t",
        "5",
        "2024-03-01",
        "2024-03-01T00:00:00",
        "2024-02-30T00:00:00Z",
        "99999-01-01T00:00:00Z",
    ],
)
def test_what_could_mean_anything_is_refused_without_quoting_it(value: Any) -> None:
    with pytest.raises(EventError) as caught:
        read_ordinal(value)
    assert caught.value.reason == DeadLetterReason.BAD_ORDINAL
    assert "s3cr3t" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(EventError):
        assert isinstance(read_ordinal(text), int)
