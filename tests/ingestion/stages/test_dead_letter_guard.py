"""When a source of a flow waits."""

from __future__ import annotations

import pytest

from idgraph.model.sources import DeadLetterLimits
from ingestion.spark.micro_batch import NO_SOURCE, DeadLetterGuard
from ingestion.stages.outcomes import StageReport


def report(events: int, dead: int, reason: str = "not_json", source: str = "web") -> StageReport:
    found = {reason: dead} if dead else {}
    return StageReport(events=events, sources={source: events}, dead=found, dead_of={source: dict(found)})


def guard(max_rate: float = 0.2, minimum: int = 10, window: int = 100) -> DeadLetterGuard:
    return DeadLetterGuard(DeadLetterLimits(max_rate=max_rate, minimum=minimum, window=window))


def test_too_many_are_said_with_their_number_and_the_reason() -> None:
    both = StageReport(events=100, sources={"web": 100}, dead_of={"web": {"no_spec": 30, "not_json": 5}})
    (why,) = guard().check(both).values()
    assert "35 of the latest 100 events" in why
    assert "share of 0.2 (most in this batch: no_spec)" in why


@pytest.mark.parametrize(("events", "dead"), [(100, 20), (100, 0), (9, 9), (0, 0)])
def test_few_do_not(events: int, dead: int) -> None:
    assert guard().check(report(events, dead)) == {}


def test_each_source_is_judged_by_its_own_events() -> None:
    mixed = report(10_000, 0, source="shop")
    mixed.add(report(40, 30, source="till"))
    mixed.add(report(40, 5, source="web"))
    assert guard(window=100_000).check(mixed).keys() == {"till"}


def test_what_is_of_no_source_is_judged_by_all_events() -> None:
    mixed = report(100, 0)
    mixed.add(StageReport(dead={"conflict": 20}, dead_of={NO_SOURCE: {"conflict": 20}}))
    assert guard().check(mixed) == {}
    mixed.add(StageReport(dead={"conflict": 1}, dead_of={NO_SOURCE: {"conflict": 1}}))
    assert guard().check(mixed).keys() == {NO_SOURCE}


def test_a_rate_of_one_never_stops() -> None:
    assert guard(max_rate=1).check(report(1000, 1000)) == {}


def test_a_rate_of_zero_stops_at_the_minimum() -> None:
    strict = guard(max_rate=0, window=10_000)
    assert strict.check(report(1000, 9)) == {}
    assert strict.check(report(1000, 1))


def test_small_batches_are_seen_together_and_others_between_them_change_nothing() -> None:
    small = guard()
    for _ in range(9):
        assert small.check(report(1, 1)) == {}
        assert small.check(report(1000, 0, source="shop")) == {}
    assert "10 of the latest 10 events" in small.check(report(1, 1))["web"]


def test_what_lies_before_the_window_is_forgotten() -> None:
    old = guard()
    assert old.check(report(100, 20)) == {}
    assert old.check(report(100, 0)) == {}
    assert old.check(report(100, 20)) == {}
    # Of the two hundred events before this batch only the latest hundred are still looked at.
    assert "39 of the latest 150 events" in old.check(report(50, 19))["web"]


def test_a_batch_larger_than_the_window_is_judged_by_itself() -> None:
    large = guard()
    assert large.check(report(1000, 100)) == {}
    assert large.check(report(1000, 200)) == {}
    assert "201 of the latest 1000" in large.check(report(1000, 201))["web"]


def test_a_source_that_is_tried_again_begins_with_nothing() -> None:
    again = guard()
    assert again.check(report(100, 30))
    again.forget("web")
    assert again.check(report(100, 20)) == {}
