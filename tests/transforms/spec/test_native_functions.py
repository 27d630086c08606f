"""The functions in C beside their reference implementations in Python: the same value for everything, or the same exception."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from idgraph import native
from transforms.spec import pointers as readings
from transforms.spec.jmespath import functions as expression_functions
from transforms.spec.jolt import views
from transforms.spec.jolt import views as readers
from transforms.spec.jolt.functions import numeric

pytestmark = pytest.mark.skipif(native.built_functions is None, reason=f"the functions are {native.state}")


class Text(str):
    __slots__ = ()


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return repr(function(*arguments))
    except Exception as error:
        return type(error), str(error)


def check(function: Callable[..., Any], *arguments: Any) -> None:
    reference = native.reference_of(function)
    assert reference is not function
    assert outcome(reference, *arguments) == outcome(function, *arguments)


TEXTS = (
    st.text()
    | st.text("0123456789.+-eE _", max_size=20)
    | st.sampled_from(
        [
            "",
            "0",
            "000",
            "0012",
            "1.",
            ".5",
            ".",
            "1.5.2",
            "9" * 18,
            "9" * 19,
            "9" * 15,
            "0.1",
            "123456.789",
            "٣",
            "\ud800",
        ]
    )
)
ANY = (
    TEXTS
    | TEXTS.map(Text)
    | st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.just(Decimal("1.5"))
    | st.lists(st.integers(), max_size=70)
    | st.dictionaries(TEXTS | st.text("k", min_size=120, max_size=140), st.integers(), max_size=4)
)
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(timezones=ZONES)


def spelled(time: datetime, way: int) -> str:
    text = time.isoformat(timespec=("auto", "seconds", "milliseconds", "microseconds")[way % 4])
    if way & 4:
        text = text.replace("+00:00", "Z")
    return text.replace("T", " ") if way & 8 else text


@given(TIMES, st.integers(0, 15))
@example(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=3))), 0)
@example(datetime(2024, 2, 29, 23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=-11))), 3)
def test_times(time: datetime, way: int) -> None:
    check(readings.epoch_milliseconds, spelled(time, way))
    check(readings.epoch_milliseconds, spelled(time, way), "otherwise")


@given(TIMES, st.integers(0, 15), st.integers(0, 31), st.sampled_from("0123456789:-+TZz. \x00é"))
def test_spoilt_times(time: datetime, way: int, place: int, character: str) -> None:
    text = spelled(time, way)
    for spoilt in (text[:place] + character + text[place + 1 :], text[:place], text + character):
        check(readings.epoch_milliseconds, spoilt)


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-29T00:00:00Z",
        "1900-02-29T00:00:00Z",
        "2000-02-29T00:00:00Z",
        "2024-13-01T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:60Z",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00-23:59",
        "2024-01-01T00:00:00.1234Z",
        "2024-01-01T00:00:00.1234567Z",
        "2024-01-01T00:00:00,123Z",
        "2024-01-01T00:00:00",
        "1969-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00+01:00",
        "9999-12-31T23:59:59-01:00",
    ],
)
def test_odd_times(text: str) -> None:
    check(readings.epoch_milliseconds, text)


# Functions of a text are called with texts only.
@given(TEXTS | TEXTS.map(Text))
def test_functions_of_texts(text: str) -> None:
    check(views.is_long_key, text)
    check(readers.checked_index, text)
    check(numeric._read_double, text)


@given(ANY)
def test_functions_of_anything(value: Any) -> None:
    for function in (views.members, expression_functions._to_number_exact):
        check(function, value)
    if isinstance(value, dict):
        check(views.has_long_key, value)
