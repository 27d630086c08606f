"""Rate limits: a bucket for each caller."""

from __future__ import annotations

from idgraph.web.limits import MOST_CALLERS, RateLimit, address_of


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


def test_many_others_fill_nobodys_bucket() -> None:
    limit = RateLimit(0.001, 1, lambda: 0.0)
    assert limit.take("a").is_granted
    for number in range(3 * MOST_CALLERS):
        limit.take(str(number))
        assert not limit.take("a").is_granted


def test_a_request_that_did_not_count_is_given_back() -> None:
    limit = RateLimit(0.001, 2, lambda: 0.0)
    limit.take("a")
    limit.give_back("a")
    limit.give_back("a")
    assert [limit.take("a").is_granted for _ in range(3)] == [True, True, False]
    limit.forget("a")
    assert limit.take("a").is_granted


def test_somebody_has_one_network_of_the_newer_addresses() -> None:
    assert address_of(("203.0.113.9", 1)) == "203.0.113.9"
    assert address_of(("2001:db8:1:2::9", 1)) == address_of(("2001:db8:1:2:ffff::1", 2))
    assert address_of(("2001:db8:1:2::9", 1)) != address_of(("2001:db8:1:3::9", 1))
    assert address_of(("fe80::1%eth0", 1)) == address_of(("fe80::2%eth0", 1))
    assert address_of(None) == ""
