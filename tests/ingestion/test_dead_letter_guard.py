"""When a flow stops itself."""

from __future__ import annotations

import pytest

from idgraph.model.errors import FlowStoppedError
from idgraph.model.sources import DeadLetterLimits
from ingestion.spark.micro_batch import DeadLetterGuard
from ingestion.stages.outcomes import StageReport


def report(events: int, dead: int, reason: str = "not_json") -> StageReport:
    return StageReport(events=events, dead={reason: dead} if dead else {})


def guard(max_rate: float = 0.2, minimum: int = 10, window: int = 100) -> DeadLetterGuard:
    return DeadLetterGuard(DeadLetterLimits(max_rate=max_rate, minimum=minimum, window=window))


def test_too_many_stop_the_flow_and_the_message_says_why_and_what_to_do() -> None:
    with pytest.raises(FlowStoppedError) as caught:
        guard().check(StageReport(events=100, dead={"no_spec": 30, "not_json": 5}))
    message = str(caught.value)
    assert "35 of the latest 100 events" in message
    assert "share of 0.2 (most in this batch: no_spec)" in message
    assert "idgraph dead-letters list" in message


@pytest.mark.parametrize(("events", "dead"), [(100, 20), (100, 0), (9, 9), (0, 0)])
def test_few_do_not(events: int, dead: int) -> None:
    guard().check(report(events, dead))


def test_a_rate_of_one_never_stops() -> None:
    guard(max_rate=1).check(report(1000, 1000))


def test_a_rate_of_zero_stops_at_the_minimum() -> None:
    strict = guard(max_rate=0, window=10_000)
    strict.check(report(1000, 9))
    with pytest.raises(FlowStoppedError):
        strict.check(report(1000, 1))


def test_small_batches_are_seen_together() -> None:
    small = guard()
    for _ in range(9):
        small.check(report(1, 1))
    with pytest.raises(FlowStoppedError, match="10 of the latest 10 events"):
        small.check(report(1, 1))


def test_what_lies_before_the_window_is_forgotten() -> None:
    old = guard()
    old.check(report(100, 20))
    old.check(report(100, 0))
    old.check(report(100, 20))
    # Of the two hundred events before this batch only the latest hundred are still looked at.
    with pytest.raises(FlowStoppedError, match="39 of the latest 150 events"):
        old.check(report(50, 19))


def test_a_batch_larger_than_the_window_is_judged_by_itself() -> None:
    large = guard()
    large.check(report(1000, 100))
    large.check(report(1000, 200))
    with pytest.raises(FlowStoppedError, match="201 of the latest 1000"):
        large.check(report(1000, 201))


def test_the_batch_that_tips_it_may_be_clean() -> None:
    tipped = guard(minimum=1)
    tipped.check(report(100, 20))
    with pytest.raises(FlowStoppedError, match="earlier batches"):
        DeadLetterGuard.check(_with_history(tipped, 1, 1), report(0, 0))


def _with_history(guarded: DeadLetterGuard, events: int, dead: int) -> DeadLetterGuard:
    guarded._batches.append((events, dead))
    return guarded
