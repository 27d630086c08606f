"""What holds for every resolution, whatever the evidence, pins and rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.identity_rules import IdentityRules
from merge.identity.evidence import Pair
from merge.identity.normal_forms import normalise
from merge.identity.resolve import Decision, Resolution
from merge.identity.rules import Rules
from tests.lanes import examples
from tests.merge.identity.cases import run

NAMESPACES = ("user", "email", "device", "phone", "cart")
IDENTIFIERS = st.tuples(st.sampled_from(NAMESPACES), st.sampled_from("abcdef")).map(list)
TIMES = st.integers(0, 30).map(lambda day: f"2026-03-{day + 1:02d}T09:00:00Z")
EVENTS = st.lists(
    st.fixed_dictionaries(
        {
            "t": TIMES,
            "source": st.sampled_from(("web", "crm")),
            "ids": st.lists(IDENTIFIERS, min_size=1, max_size=4),
        }
    ),
    max_size=12,
).map(lambda events: [{**each, "id": f"e{place}"} for place, each in enumerate(events)])
RULES = st.fixed_dictionaries(
    {
        "namespaces": st.fixed_dictionaries(
            {
                "user": st.sampled_from(({"unique": True, "priority": 1}, {"max": 2}, {})),
                "email": st.sampled_from(({"max": 2, "owner": "none"}, {"connects": {"user": 1}}, {})),
                "device": st.sampled_from(({"moves": "latest"}, {"owner": "none"}, {})),
            },
            optional={"cart": st.just({"counted": False})},
        )
    },
    optional={
        "hub_limit": st.integers(2, 6),
        "size_limit": st.integers(2, 6),
        "strength": st.just({"crm": 3}),
        "least_strength": st.just(2),
        "limits": st.just([{"namespaces": ["device", "phone"], "max": 2, "window_days": 7}]),
    },
)
PINS = st.lists(
    st.fixed_dictionaries(
        {
            "pair": st.lists(IDENTIFIERS, min_size=2, max_size=2, unique_by=tuple),
            "decision": st.sampled_from(("always", "never", "none")),
            "t": TIMES,
            "who": st.just("ann"),
        }
    ),
    max_size=4,
)


def case(rules: dict[str, Any], events: list[dict[str, Any]], pins: list[dict[str, Any]]) -> dict[str, Any]:
    return {"rules": rules, "events": events, "pins": pins}


@settings(max_examples=examples(400))
@given(RULES, EVENTS, PINS, st.randoms(use_true_random=False))
def test_order_and_duplication_make_no_difference(rules: Any, events: Any, pins: Any, shuffled: Any) -> None:
    once = run(case(rules, events, pins))
    again, other = events * 2, list(pins)
    shuffled.shuffle(again)
    shuffled.shuffle(other)
    assert run(case(rules, again, other)) == once


@settings(max_examples=examples(400))
@given(RULES, EVENTS, PINS, st.data())
def test_a_retracted_event_has_never_been(rules: Any, events: Any, pins: Any, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from([each["id"] for each in events]))) if events else set()
    taken_back = [
        {"id": f"r-{each['id']}", "t": each["t"], "source": each["source"], "retracts": each["id"]}
        for each in events
        if each["id"] in gone
    ]
    left = [each for each in events if each["id"] not in gone]
    assert run(case(rules, taken_back + events, pins)) == run(case(rules, left, pins))


@settings(max_examples=examples(400))
@given(RULES, EVENTS, PINS)
def test_accepted_pairs_span_the_persons(rules: Any, events: Any, pins: Any) -> None:
    resolution = run(case(rules, events, pins))
    owner = {each: place for place, part in enumerate(resolution.partition) for each in part}
    assert len(owner) == sum(map(len, resolution.partition))
    assert all(owner[pair.low] == owner[pair.high] for pair in resolution.accepted)
    assert len(resolution.accepted) == len(owner) - len(resolution.partition)
    assert all(owner[each.pair.low] != owner[each.pair.high] for each in resolution.violations)


@settings(max_examples=examples(400))
@given(RULES, EVENTS, PINS)
def test_limits_and_never_pins_hold(rules: Any, events: Any, pins: Any) -> None:
    never = [{**each, "decision": "never"} for each in pins]
    resolution = run(case(rules, events, never))
    owner = {each: place for place, part in enumerate(resolution.partition) for each in part}
    for pin in never:
        pair = Pair.of(*(Rules().identifiers([tuple(each)])[0] for each in pin["pair"]))
        assert pair.low not in owner or owner.get(pair.low) != owner.get(pair.high)
    document = IdentityRules.model_validate(rules)
    for part in resolution.partition:
        for name, count in Counter(each.type for each in part).items():
            largest = document.namespace(name).largest
            assert largest is None or count <= largest
        counted = [each for each in part if document.namespace(each.type).counted]
        assert document.size_limit is None or len(counted) <= document.size_limit


def test_an_always_pin_exceeds_a_limit_and_no_more() -> None:
    rules = {"namespaces": {"user": {"unique": True}}}
    events = [
        {"id": f"e{each}", "t": "2026-03-02T09:00:00Z", "source": "web", "ids": [["user", each]]}
        for each in "abc"
    ]
    linked = {
        "id": "e9",
        "t": "2026-03-03T09:00:00Z",
        "source": "web",
        "ids": [["user", "b"], ["email", "x"]],
    }
    claimed = {**linked, "id": "e10", "t": "2026-03-04T09:00:00Z", "ids": [["user", "c"], ["email", "x"]]}
    pin = {
        "pair": [["user", "a"], ["user", "b"]],
        "decision": Decision.ALWAYS,
        "t": "2026-03-04T09:00:00Z",
        "who": "ann",
    }
    resolution: Resolution = run(case(rules, [*events, linked, claimed], [pin]))
    assert [[each.value for each in part] for part in resolution.partition] == [["x", "a", "b"], ["c"]]
    assert [each.rule for each in resolution.violations] == ["max:user"]


def shown(*events: str) -> list[dict[str, Any]]:
    """An event a day, each with some identifiers: `user:7 email:a`."""
    return [
        {
            "id": f"e{day}",
            "t": f"2026-03-{day:02d}T09:00:00Z",
            "source": "web",
            "ids": [name.split(":") for name in event.split()],
        }
        for day, event in enumerate(events, 1)
    ]


def parts(rules: dict[str, Any], events: list[dict[str, Any]], *never: str) -> list[str]:
    pins = [
        {"pair": event["ids"], "decision": "never", "t": event["t"], "who": "ann"} for event in shown(*never)
    ]
    return [" ".join(map(str, part)) for part in run(case(rules, events, pins)).partition]


NOBODYS = {
    "namespaces": {
        "user": {"unique": True, "priority": 1},
        "email": {"max": 2, "owner": "none"},
        "device": {"moves": "latest"},
    }
}
"""As the default rules have it: an address that two users claim is nobody's, and devices move."""


def test_an_address_stays_with_its_only_user_when_her_device_moves() -> None:
    events = shown("user:7 email:a device:d", "user:8 email:b device:d", "user:8 email:a")
    assert parts(NOBODYS, events[:2]) == ["device:d email:b user:8", "email:a user:7"]
    assert parts(NOBODYS, events) == ["device:d email:b user:8", "email:a", "user:7"]


def test_a_pair_that_is_pinned_apart_claims_nothing() -> None:
    events = shown("user:7 email:a", "user:8 email:a")
    assert parts(NOBODYS, events) == ["email:a", "user:7", "user:8"]
    assert parts(NOBODYS, events, "user:7 email:a") == ["email:a user:8", "user:7"]
    assert parts(NOBODYS, events, "user:7 user:8") == ["email:a", "user:7", "user:8"]


def test_one_address_too_many_leaves_the_others_where_they_are() -> None:
    events = shown("user:7 email:a", "user:7 email:b", "user:7 email:a email:c")
    assert parts(NOBODYS, events) == ["email:a email:b user:7", "email:c"]


def test_a_person_has_many_carts() -> None:
    events = shown("user:7 email:a", *(f"email:a cart:{each}" for each in range(4)), "user:7 cart:3")
    together = ["cart:0 cart:1 cart:2 cart:3 email:a user:7"]
    for limit in ("hub_limit", "size_limit"):
        assert parts({limit: 4}, events) != together
        assert parts({limit: 4, "namespaces": {"cart": {"counted": False}}}, events) == together


def test_a_cart_of_many_is_a_hub() -> None:
    rules = {"hub_limit": 2, "namespaces": {"cart": {"counted": False}}}
    assert len(parts(rules, shown("user:7 cart:a", "user:8 cart:a", "user:9 cart:a"))) == 4


@settings(max_examples=examples(300))
@given(
    st.text(max_size=30) | st.text("0123456789 +()-/x", max_size=18),
    st.sampled_from(("exact", "lower", "email", "email_plus", "phone", "digits", "zero_padded")),
    st.sampled_from(("1", "7", "39", "44", "49", "52", "54", "55", "81", "999")),
)
def test_normalising_twice_is_normalising_once(value: str, form: str, country: str) -> None:
    stated = {"namespaces": {"n": {"normalise": form, "country": country}}}
    rules = IdentityRules.model_validate(stated).namespace("n")
    once = normalise(value, rules)
    assert normalise(once, rules) == once


@pytest.mark.parametrize(
    ("country", "written", "number"),
    [
        ("49", "+49 (0)171 5550189", "+491715550189"),
        ("49", "0049 (0) 171 / 555 01 89", "+491715550189"),
        ("49", "tel:+49-171-5550189", "+491715550189"),
        ("49", "\u0660\u0661\u0667\u0661 5550189", "+491715550189"),
        ("1", "0049 171 5550189", "+491715550189"),
        ("1", "1 (202) 555-0101 ext. 12", "+12025550101"),
        ("39", "06 1234567", "+39061234567"),
        ("39", "+39 06 1234567", "+39061234567"),
        ("7", "8 912 345 67 89", "+79123456789"),
        ("49", "none", ""),
        ("49", "ext. 7", "ext. 7"),
    ],
)
def test_a_phone_number_has_one_form(country: str, written: str, number: str) -> None:
    stated = {"namespaces": {"phone": {"normalise": "phone", "country": country}}}
    assert normalise(written, IdentityRules.model_validate(stated).namespace("phone")) == number


def test_an_address_has_one_form_of_its_accents() -> None:
    stated = {"namespaces": {"email": {"normalise": "email"}}}
    rules = IdentityRules.model_validate(stated).namespace("email")
    assert normalise("jo\u0308@x.org", rules) == normalise("J\u00d6@x.org", rules) == "j\u00f6@x.org"


@given(st.integers(min_value=0).map(str), st.integers(min_value=0, max_value=9))
def test_only_leading_zeros_go(number: str, zeros: int) -> None:
    """Found in the shop: user 3405 became user 345, and two customers one person."""
    rules = IdentityRules.model_validate({"namespaces": {"n": {"normalise": "zero_padded"}}}).namespace("n")
    assert normalise("0" * zeros + number, rules) == number


def test_a_part_that_is_too_large_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(values: Iterable[float]) -> float:
        found = list(values)
        compared.append(len(found))
        return max(found)

    monkeypatch.setattr("merge.identity.resolve.max", counted, raising=False)
    chain = [
        {
            "id": f"e{k}",
            "t": "2026-03-02T09:00:00Z",
            "source": "web",
            "ids": [["user", str(k)], ["user", str(k + 1)]],
        }
        for k in range(50)
    ]
    assert len(run(case({"size_limit": 5}, chain, [])).partition) == 51
    assert sum(compared) == 50
