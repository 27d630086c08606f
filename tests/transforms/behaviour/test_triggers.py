"""Triggers as functions: limits, groups, quiet hours, expiry; and the same deliveries whatever is replayed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.triggers import Occurrence, TriggerDocument
from transforms.behaviour.triggers import decide, delivery_id, quiet_until

HOUR = 3_600_000
DAY = 24 * HOUR


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


NOW = ms("2026-03-10T12:00:00Z")


def trigger(**content: Any) -> TriggerDocument:
    given = {"name": "t", "version": 1, "when": {"segment": "s"}, "webhook": "crm", **content}
    return TriggerDocument.model_validate(given)


def occurred(at_ms: int = NOW, number: int = 1, **content: Any) -> Occurrence:
    return Occurrence("aa", number, at_ms, **{"since_ms": at_ms, **content})


def outcome(
    one: TriggerDocument, each: Occurrence, sent: dict[str, int] | None = None, now: int = NOW, **group: int
) -> tuple[str, str]:
    decision = decide(one, each, sent or {}, group, now)
    return decision.outcome, decision.reason


def test_an_event_that_is_older_than_expires_is_silent() -> None:
    assert outcome(trigger(), occurred(since_ms=NOW - DAY)) == ("waiting", "")
    assert outcome(trigger(), occurred(since_ms=NOW - DAY - 1)) == ("suppressed", "expired")
    assert outcome(trigger(expires=None), occurred(since_ms=0)) == ("waiting", "")
    assert outcome(trigger(), occurred(), now=NOW + DAY + 1) == ("suppressed", "expired")


def test_what_is_no_change_of_a_person_is_suppressed() -> None:
    assert outcome(trigger(), occurred(refused="merged")) == ("suppressed", "merged")


@pytest.mark.parametrize(
    ("limit", "ago", "is_sent"),
    [
        ({"per": "7d"}, 7 * DAY - 1, False),
        ({"per": "7d"}, 7 * DAY, True),
        ({"calendar": "day"}, 12 * HOUR, False),
        ({"calendar": "day"}, 12 * HOUR + 1, True),
        ({"calendar": "day", "time_zone": "America/New_York"}, 12 * HOUR + 1, True),
        ({"calendar": "day", "time_zone": "America/New_York"}, 8 * HOUR, False),
    ],
)
def test_limits(limit: dict[str, Any], ago: int, is_sent: bool) -> None:
    one = trigger(limits=[{"most": 1, **limit}])
    found, reason = outcome(one, occurred(), {"x": NOW - ago})
    assert (found == "waiting") is is_sent
    assert is_sent or reason.startswith("limit: 1 per ")
    assert outcome(trigger(limits=[{"most": 2, **limit}]), occurred(), {"x": NOW - ago})[0] == "waiting"


def test_each_of_several_limits_holds() -> None:
    one = trigger(limits=[{"most": 2, "per": "1d"}, {"most": 3, "per": "7d"}])
    sent = {"a": NOW - 2 * DAY, "b": NOW - 3 * DAY, "c": NOW - HOUR}
    assert outcome(one, occurred(), sent) == ("suppressed", "limit: 3 per 7d")


def test_a_group_has_limits_in_common() -> None:
    one = trigger(group={"name": "marketing", "limits": [{"most": 1, "per": "1d"}]})
    assert outcome(one, occurred(), other=NOW - HOUR) == (
        "suppressed",
        "limit of group marketing: 1 per 1d",
    )
    assert outcome(one, occurred(), other=NOW - 2 * DAY)[0] == "waiting"


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-03-10T21:59:59+01:00", None),
        ("2026-03-10T22:00:00+01:00", "2026-03-11T08:00:00+01:00"),
        ("2026-03-11T03:00:00+01:00", "2026-03-11T08:00:00+01:00"),
        ("2026-03-11T08:00:00+01:00", None),
        ("2026-03-29T00:00:00+01:00", "2026-03-29T08:00:00+02:00"),
    ],
)
def test_quiet_hours_hold(now: str, until: str | None) -> None:
    one = trigger(quiet={"from": "22:00", "to": "08:00", "time_zone": "Europe/Berlin"})
    assert quiet_until(one.quiet, ms(now)) == ms(until or now)
    decision = decide(one, occurred(ms(now)), {}, {}, ms(now))
    assert (decision.outcome, decision.due_ms) == ("held" if until else "waiting", ms(until or now))


def test_quiet_hours_by_day() -> None:
    one = trigger(quiet={"from": "12:00", "to": "13:00"})
    assert quiet_until(one.quiet, NOW) == NOW + HOUR
    assert quiet_until(one.quiet, NOW - 1) == NOW - 1


def test_the_id_is_that_of_the_crossing() -> None:
    ids = {
        delivery_id(each, occurred(number=number))
        for each in (trigger(), trigger(version=2), trigger(name="u"))
        for number in (1, 3)
    }
    assert len(ids) == 6
    assert delivery_id(trigger(), occurred(since_ms=0)) == delivery_id(trigger(), occurred())


def test_a_document_stays_what_its_author_wrote() -> None:
    one = trigger(quiet={"from": "22:00", "to": "08:00"}, limits=[{"most": 1, "per": "7d"}])
    assert TriggerDocument.model_validate_json(one.model_dump_json()) == one
    assert '"from":"22:00"' in one.model_dump_json()


CROSSINGS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20 * DAY)), min_size=1, max_size=12).map(
    lambda each: sorted(each, key=lambda one: one[1])
)
LIMITS = st.lists(
    st.builds(
        lambda most, time: {"most": most, **time},
        st.integers(1, 3),
        st.sampled_from([{"per": "1h"}, {"per": "7d"}, {"calendar": "day"}, {"calendar": "week"}]),
    ),
    max_size=2,
)


@given(CROSSINGS, LIMITS, st.data())
def test_the_same_deliveries_whatever_is_replayed(
    crossings: list[tuple[str, int]], limits: list[Any], data: st.DataObject
) -> None:
    """A process may stop anywhere, and read again from any earlier place of the feed."""
    one = trigger(limits=limits, expires=None)
    feed = [
        Occurrence(profile, number, NOW + at, NOW + at) for number, (profile, at) in enumerate(crossings, 1)
    ]

    def follow(sent: dict[str, dict[str, int]], each: Occurrence, now: int) -> str | None:
        decision = decide(one, each, sent.get(each.profile, {}), {}, now)
        return decision.id if decision.outcome != "suppressed" else None

    straight: dict[str, dict[str, int]] = {}
    for each in feed:
        if id_ := follow(straight, each, each.at_ms):
            straight.setdefault(each.profile, {})[id_] = each.at_ms
    wanted = {id_ for each in straight.values() for id_ in each}

    replayed: dict[str, dict[str, int]] = {}
    received: set[str] = set()
    reached = 0
    while reached < len(feed):
        begin = data.draw(st.integers(0, reached))
        for place, each in enumerate(feed[begin:], begin):
            id_ = follow(replayed, each, NOW + 30 * DAY)
            if id_:
                received.add(id_)
            if data.draw(st.booleans()) and place == reached:
                break  # Before it is kept that it was sent.
            if id_:
                replayed.setdefault(each.profile, {})[id_] = each.at_ms
            reached = max(reached, place + 1)
    assert received == wanted
