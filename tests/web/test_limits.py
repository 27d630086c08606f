"""Rate limits: a bucket for each caller."""

from __future__ import annotations

from idgraph.web.limits import RateLimit


def test_a_bucket_empties_and_fills() -> None:
    now = 0.0
    limit = RateLimit(2, 3, lambda: now)
    turns = [limit.take("a") for _ in range(4)]
    assert [turn.is_granted for turn in turns] == [True, True, True, False]
    assert [turn.remaining for turn in turns] == [2, 1, 0, 0]
    assert turns[3].reset_seconds == 1
    assert limit.take("b").is_granted
    now = 0.5
    assert limit.take("a").is_granted
    assert not limit.take("a").is_granted
    now = 100.0
    assert limit.take("a").remaining == 2


def test_what_a_request_costs_besides_may_leave_a_debt_that_is_waited_for() -> None:
    now = 0.0
    limit = RateLimit(2, 3, lambda: now)
    assert limit.take("a").is_granted
    assert limit.charge("a", 10).is_granted
    refused = limit.charge("a", 1)
    assert (refused.is_granted, refused.remaining) == (False, 0)
    assert not limit.take("a").is_granted
    now = 4.0
    assert not limit.take("a").is_granted
    now = 4.5
    assert limit.take("a").is_granted
