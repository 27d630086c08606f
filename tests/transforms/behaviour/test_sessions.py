"""Sessions equal their definition at each moment, and change when they say."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.behaviour import SessionWindow
from idgraph.model.errors import SpecError
from idgraph.model.timelines import Entry
from tests.transforms.behaviour.naive import (
    BEGIN,
    DAY,
    HOUR,
    MINUTE,
    derived,
    entry,
    moments,
    session_leaves,
    timelines,
)
from transforms.behaviour.derivations import Derivation, Derived, compile_derived, spans

definitions = st.builds(
    SessionWindow,
    activity=st.just("visits"),
    gap=st.sampled_from(["5m", "30m", "1h", "1d"]),
    cap=st.sampled_from(["1s", "10m", "1h", "24h", "30d"]),
    over=st.sampled_from(["all", "30m", "1d", "30d"]),
    fields=st.just(("value",)),
)


def compiled(sessions: SessionWindow | dict[str, Any]) -> Derivation:
    return compile_derived(
        derived(sessions=sessions if isinstance(sessions, dict) else sessions.model_dump())
    )


def of(
    sessions: SessionWindow | dict[str, Any], entries: list[Entry], now: int, **whole_from: int
) -> Derived:
    return compiled(sessions).of({"visits": entries}, {}, now, whole_from)


def present(leaves: dict[str, Any]) -> dict[str, Any]:
    return {path: value for path, value in leaves.items() if value is not None}


@given(definitions, timelines(), moments)
def test_sessions_equal_their_definition(sessions: SessionWindow, entries: list[Entry], now: int) -> None:
    found = of(sessions, entries, BEGIN + now)
    assert found.leaves == present(session_leaves(sessions, entries, BEGIN + now))
    assert found.is_complete


@given(definitions, timelines(), moments)
def test_spans_are_all_of_the_sessions(sessions: SessionWindow, entries: list[Entry], now: int) -> None:
    asked = sessions.model_copy(update={"over": "all"})
    found = spans(derived(sessions=asked.model_dump()), {"visits": entries}, BEGIN + now)
    leaves = of(asked, entries, BEGIN + now).leaves
    assert len(found) == leaves["count"]
    assert sum(each.entries for each in found) == sum(each.time < BEGIN + now for each in entries)
    shown = [
        tuple(leaves[f"{name}.{each}"] for each in ("begin", "end", "entries"))
        for name in ("last", "current")
        if f"{name}.begin" in leaves
    ]
    assert shown == found[len(found) - len(shown) :]
    assert all(one.end < other.begin for one, other in pairwise(found))


@given(definitions, st.integers(60, 200), st.integers(1, 100), st.integers(0, 90), st.integers(1, 40))
def test_long_timelines_too(
    sessions: SessionWindow, number: int, minutes: int, gaps: int, later: int
) -> None:
    times = [BEGIN + (at * minutes + at // 7 * gaps) * MINUTE for at in range(number)]
    entries = [entry(time, at) for at, time in enumerate(times)]
    for now in (times[-1] + later * MINUTE, times[-30], times[-1] + 40 * DAY):
        assert of(sessions, entries, now).leaves == session_leaves(sessions, entries, now)


@given(definitions, timelines(most=8), moments)
def test_they_change_when_they_say_and_not_before(
    sessions: SessionWindow, entries: list[Entry], now: int
) -> None:
    now += BEGIN
    derivation = compiled(sessions)
    first = derivation.of({"visits": entries}, {}, now)
    at = first.changes_at
    steps = [each.time + after for each in entries for after in (0, 1, 5 * MINUTE, HOUR)]
    steps += [now + step for step in range(0, 40 * DAY, 7 * HOUR)]
    for moment in [each for each in (*steps, (at or now) - 1) if now <= each and (at is None or each < at)]:
        assert derivation.of({"visits": entries}, {}, moment).leaves == first.leaves
    if at is not None:
        assert at > now
        assert derivation.of({"visits": entries}, {}, at).leaves != first.leaves


@given(definitions, timelines(), moments, moments)
def test_they_are_incomplete_where_entries_that_count_may_be_missing(
    sessions: SessionWindow, entries: list[Entry], now: int, whole: int
) -> None:
    kept = [each for each in entries if each.time >= BEGIN + whole]
    found = of(sessions, kept, BEGIN + now, visits=BEGIN + whole)
    if found.is_complete and sessions.over != "all":
        everything = of(sessions, entries, BEGIN + now).leaves
        if any(path.startswith("last") for path in found.leaves):
            assert found.leaves == everything
        else:
            assert found.leaves["count"] == everything["count"]


HALF_HOUR = {"activity": "visits", "gap": "30m", "cap": "2h", "over": "1d", "fields": ["page"]}


def test_an_entry_exactly_one_gap_later_belongs_to_the_session() -> None:
    times = [BEGIN, BEGIN + 30 * MINUTE, BEGIN + 60 * MINUTE + 1]
    entries = [entry(time, at) for at, time in enumerate(times)]
    found = of(HALF_HOUR, entries, BEGIN + DAY)
    assert found.leaves["count"] == 2
    assert (found.leaves["last.begin"], found.leaves["last.end"]) == (times[2], times[2])


def test_the_cap_begins_the_next_session() -> None:
    entries = [entry(BEGIN + at * 20 * MINUTE, at, page=f"p{at}") for at in range(8)]
    found = of(HALF_HOUR, entries, BEGIN + 7 * 20 * MINUTE + 1)
    assert found.leaves == {
        "count": 2,
        "current.begin": BEGIN + 120 * MINUTE,
        "current.end": BEGIN + 140 * MINUTE,
        "current.entries": 2,
        "current.first.page": "p6",
        "current.last.page": "p7",
        "last.begin": BEGIN,
        "last.end": BEGIN + 100 * MINUTE,
        "last.entries": 6,
        "last.first.page": "p0",
        "last.last.page": "p5",
    }
    assert list(found.entries) == entries[::-1]
    assert found.changes_at == BEGIN + 170 * MINUTE


def test_a_session_is_open_until_its_gap_or_its_cap_has_passed() -> None:
    quiet = [entry(BEGIN)]
    assert "current.begin" in of(HALF_HOUR, quiet, BEGIN + 30 * MINUTE - 1).leaves
    assert "current.begin" not in of(HALF_HOUR, quiet, BEGIN + 30 * MINUTE).leaves
    busy = [entry(BEGIN + at * 10 * MINUTE, at) for at in range(12)]
    assert "current.begin" in of(HALF_HOUR, busy, BEGIN + 2 * HOUR - 1).leaves
    assert "current.begin" not in of(HALF_HOUR, busy, BEGIN + 2 * HOUR).leaves


def test_a_condition_says_which_entries_make_sessions() -> None:
    entries = [entry(BEGIN, 1, page="a"), entry(BEGIN + 20 * MINUTE, 2, page="ping"), entry(BEGIN + HOUR, 3)]
    found = of(HALF_HOUR | {"condition": "page != 'ping'"}, entries, BEGIN + HOUR)
    assert found.leaves["last.end"] == BEGIN
    assert found.changes_at == BEGIN + HOUR + 1
    with pytest.raises(SpecError, match=r"^/sessions/condition: "):
        compiled(HALF_HOUR | {"condition": "page !"})


def test_no_sessions() -> None:
    assert of(HALF_HOUR, [], BEGIN).leaves == {"count": 0}
