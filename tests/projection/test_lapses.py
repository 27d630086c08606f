"""Profiles enter and leave segments of relative time by the clock, each once, at the least moment at which it is so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.durations import TimeForm, moment
from idgraph.model.index import IndexDocument
from idgraph.model.queries import (
    All,
    Anniversary,
    AnyOf,
    Condition,
    Exists,
    Not,
    Query,
    Range,
    Relative,
    absolute,
    from_json,
    leaves,
    to_json,
)
from idgraph.projection.segments import changes_at
from sinks.matching import matches

TIMES: dict[str, TimeForm] = {"text": "rfc3339", "day": "date"}
DAY = 86_400_000
NOW = 1_774_000_000_000
LEAP_DAY = 1_709_164_800_000
BEGIN = datetime(1970, 1, 1, tzinfo=UTC)
TEXTS = (
    "now", "now-1d", "now-36h", "now+90m", "today", "today-7d", "today+1d", "today-1M", "today-2y", "today+8h",
)  # fmt: skip
ZONES = ("", "@Europe/Berlin", "@America/New_York", "@Pacific/Apia", "@America/Sao_Paulo")
NOWS = st.integers(NOW - 400 * DAY, NOW + 400 * DAY)
MOMENTS = st.builds(str.__add__, st.sampled_from(TEXTS), st.sampled_from(ZONES))


def text_of(ms: int) -> str:
    at = (BEGIN + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")
    return at.replace("+00:00", "Z")


def value_of(path: str, ms: int) -> int | str:
    return ms if path == "number" else text_of(ms) if path == "text" else text_of(ms)[:10]


@st.composite
def documents(draw: st.DrawFn, now: int) -> IndexDocument:
    near = st.integers(now - 3 * DAY, now + 3 * DAY) | st.integers(now - 800 * DAY, now + 800 * DAY)
    near |= st.sampled_from([LEAP_DAY, LEAP_DAY - DAY, LEAP_DAY - 148 * 36525 * DAY // 100])
    values: dict[str, Any] = {}
    for path in ("number", "text", "day"):
        some = draw(st.lists(near, max_size=2))
        if some:
            values[path] = [value_of(path, each) for each in some]
    if draw(st.booleans()):
        values["number"] = [*values.get("number", []), draw(st.sampled_from([1.5, "now", True, -(2**70)]))]
    return IndexDocument("x", 1, values)


@st.composite
def clauses(draw: st.DrawFn) -> Relative | Anniversary:
    if draw(st.booleans()):
        moved = draw(st.sampled_from(["", "+1d", "-3d", "+2w", "+400d"]))
        return Anniversary("day", f"today{moved}{draw(st.sampled_from(ZONES))}")
    lower, upper = draw(MOMENTS | st.none()), draw(MOMENTS | st.none())
    path = draw(st.sampled_from(["number", "text", "day"]))
    return Relative(path, lower, upper, draw(st.booleans()), draw(st.booleans()))


CONDITIONS: st.SearchStrategy[Condition] = st.recursive(
    clauses() | st.just(Exists("day")),
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(All, st.lists(inner, max_size=3).map(tuple))
        | st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple))
    ),
    max_leaves=4,
)


@given(st.data(), CONDITIONS, NOWS)
def test_membership_is_constant_until_it_changes(data: st.DataObject, condition: Condition, now: int) -> None:
    document, query = data.draw(documents(now)), Query((condition,))

    def is_inside(at: int) -> bool:
        return matches(document, absolute(query, at, TIMES))

    changes = changes_at(query, document, now, TIMES, matches)
    if changes is not None:
        assert changes > now
        if not any(isinstance(each, Anniversary) for each in leaves(query)):
            assert is_inside(changes) is not is_inside(now)
        assert is_inside(changes - 1) is is_inside(now)
    until = min(changes or now + 900 * DAY, now + 900 * DAY)
    for at in data.draw(st.lists(st.integers(now, until - 1), max_size=20)):
        assert is_inside(at) is is_inside(now)


@given(MOMENTS, NOWS, st.integers(1, 3 * DAY))
def test_a_moment_never_goes_back(text: str, now: int, later: int) -> None:
    found = moment(text)
    assert found is not None
    assert found.at(now) <= found.at(now + later)


@given(st.data(), MOMENTS, NOWS, st.booleans())
def test_a_relative_query_is_the_absolute_one(
    data: st.DataObject, text: str, now: int, is_within: bool
) -> None:
    document = data.draw(documents(now))
    found = moment(text)
    assert found is not None
    (clause,) = from_json(to_json(Query((Relative("number", upper=text, include_upper=is_within),)))).clauses
    plain = Range("number", upper=found.at(now), include_upper=is_within)
    assert matches(document, absolute(Query((clause,)), now, TIMES)) is matches(document, Query((plain,)))
