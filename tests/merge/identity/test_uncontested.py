"""The short way to persons comes to what the ordered way comes to, or leaves it to that."""

from __future__ import annotations

from typing import Any

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from idgraph.model.identifiers import Identifier
from idgraph.model.identity_events import Simulated
from merge.identity.components import Partition, uncontested
from merge.identity.evidence import Link, Pair, links
from merge.identity.resolve import resolve
from merge.identity.rules import Rules
from merge.identity.simulation import seen_events
from tests.lanes import examples
from tests.merge.identity.test_resolve import EVENTS, RULES, shown

LIMITS: tuple[dict[str, Any], ...] = (
    {"namespaces": {"user": {"unique": True}}},
    {"namespaces": {"user": {"max": 2}}},
    {"namespaces": {"user": {}, "email": {"connects": {"user": 1}}}},
    {"namespaces": {"user": {}}, "limits": [{"namespace": "user", "max": 1, "window_days": 2}]},
    {"hub_limit": 1},
    {"size_limit": 2},
)
SHARED = shown("user:7 email:a", "user:8 email:a", "user:9 email:a")


def quickly(known: list[Link], first: dict[Identifier, int], rules: Rules) -> Partition | None:
    joining = [
        (low, (high,))
        for (low, high), kinds in known
        if any(rules.joins(Pair(low, high), kind) for kind in kinds)
    ]
    return uncontested(first, joining, rules, [pair for pair, _ in known])


def evidence(rules: Any, events: Any) -> tuple[Rules, list[Link], dict[Identifier, int]]:
    document = Simulated.model_validate({"rules": rules, "events": events})
    ready = Rules(document.rules)
    seen = seen_events(ready, document.events)
    first: dict[Identifier, int] = {}
    for each in seen:
        for name in each.identifiers:
            first[name] = min(first.get(name, each.moment.ordinal), each.moment.ordinal)
    return ready, links(pair for each in seen for pair in each.sightings().items()), first


@settings(max_examples=examples(1000))
@given(RULES, EVENTS, st.randoms(use_true_random=False))
@example(LIMITS[0], shown("user:7 email:a", "device:d email:a"), None)
def test_the_short_way_is_the_ordered_way(rules: Any, events: Any, shuffled: Any) -> None:
    ready, known, first = evidence(rules, events)
    resolution = resolve(known, first, (), ready)
    if shuffled is not None:
        shuffled.shuffle(known)
    found = quickly(known, first, ready)
    event("contested" if found is None else "uncontested")
    assert found is None or (found == resolution.partition and not resolution.violations)


@settings(max_examples=examples(400))
@given(EVENTS, st.randoms(use_true_random=False))
def test_without_rules_nothing_is_contested(events: Any, shuffled: Any) -> None:
    ready, known, first = evidence({}, events)
    shuffled.shuffle(known)
    assert quickly(known, first, ready) == resolve(known, first, (), ready).partition


def test_what_a_rule_refuses_is_left_to_the_ordered_way() -> None:
    for rules in LIMITS:
        ready, known, first = evidence(rules, SHARED)
        assert resolve(known, first, (), ready).violations
        assert quickly(known, first, ready) is None


def test_what_no_rule_refuses_is_not() -> None:
    for rules in LIMITS[:-2]:
        ready, known, first = evidence(rules, SHARED[:1] + shown("device:d email:a"))
        assert quickly(known, first, ready) == resolve(known, first, (), ready).partition
