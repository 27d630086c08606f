"""What all derivations have in common, and expressions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.behaviour import DerivedDefinition
from idgraph.model.errors import SpecError
from idgraph.model.timelines import Entry
from tests.transforms.behaviour.naive import BEGIN, DAY, derived, entry, moments, timelines
from transforms.behaviour.derivations import Derived, compile_derived, derive

PROFILE = {"name": {"first": "Ann", "last": "Lee"}, "visits": [3, 4], "nothing": None}


def of(expression: str) -> Derived:
    return compile_derived(derived(expression=expression)).of({}, PROFILE, BEGIN)


@pytest.mark.parametrize(
    ("expression", "leaves"),
    [
        ("join(' ', [name.first, name.last])", {"": "Ann Lee"}),
        ("visits", {"": [3, 4]}),
        ("sum(visits) > `5`", {"": True}),
        ("nothing", {}),
        ("{full: name, a: {b: visits[0], none: nothing}, \"x.y\": `1`}",
         {"full.first": "Ann", "full.last": "Lee", "a.b": 3, "x\\.y": 1}),
    ],
)  # fmt: skip
def test_an_expression_over_the_profile(expression: str, leaves: dict[str, Any]) -> None:
    assert of(expression) == Derived(leaves)


def test_an_expression_that_cannot_be_evaluated_gives_no_value_and_says_why() -> None:
    found = of("abs(name.first)")
    assert found.leaves == {}
    assert found.problem
    assert "Ann" not in found.problem


def test_an_expression_is_checked_when_it_is_compiled() -> None:
    with pytest.raises(SpecError) as raised:
        of("join(")
    assert raised.value.pointer == "/expression"


@pytest.mark.parametrize(
    "kind",
    [
        {"expression": "@"},
        {"window": {"activity": "orders"}},
        {"sessions": {"activity": "orders"}},
    ],
)
def test_a_derivation_knows_its_definition(kind: dict[str, Any]) -> None:
    definition = derived(**kind)
    assert compile_derived(definition).definition is definition


def test_a_definition_has_one_kind() -> None:
    with pytest.raises(ValueError, match="give one of"):
        DerivedDefinition.model_validate(
            {"name": "d", "path": "a", "expression": "@", "window": {"activity": "a"}}
        )


@given(timelines(), moments, st.randoms())
def test_the_order_in_which_entries_came_does_not_matter(entries: list[Entry], now: int, random: Any) -> None:
    shuffled = list(entries)
    random.shuffle(shuffled)
    shuffled.sort(key=lambda each: each.order)
    for kind in (
        {"window": {"activity": "orders", "function": "last_k", "field": "value", "over": "30d"}},
        {"sessions": {"activity": "orders", "fields": ["value"]}},
    ):
        derivation = compile_derived(derived(**kind))
        assert derivation.of({"orders": shuffled}, {}, BEGIN + now) == derivation.of(
            {"orders": entries}, {}, BEGIN + now
        )


def test_other_activities_do_not_count() -> None:
    derivation = compile_derived(derived(window={"activity": "orders"}))
    found = derivation.of(
        {"visits": [entry(BEGIN)], "orders": [entry(BEGIN, 2)]}, {}, BEGIN + 1, {"visits": BEGIN}
    )
    assert found.leaves == {"": 1}
    assert found.is_complete


def test_expressions_read_what_is_derived_from_timelines() -> None:
    definitions: list[tuple[dict[str, Any], str]] = [
        ({"expression": "sum([orders.all, orders.recent, base])"}, "orders.total"),
        ({"window": {"activity": "orders"}}, "orders.all"),
        ({"window": {"activity": "orders", "over": "30d"}}, "orders.recent"),
        ({"expression": "orders.total"}, "other"),
    ]
    compiled = [compile_derived(derived(**kind, path=path)) for kind, path in definitions]
    timelines = {"orders": [entry(BEGIN), entry(BEGIN + 60 * DAY, 2)]}
    attributes = {"base": 10, "orders": {"named": "kept"}}
    results = derive(compiled, timelines, attributes, BEGIN + 61 * DAY, {"orders": BEGIN + 40 * DAY})
    assert [each.leaves.get("") for each in results] == [13, 2, 1, None]
    assert [each.is_complete for each in results] == [False, False, False, True]
    assert results[1:3] == [
        each.of(timelines, {}, BEGIN + 61 * DAY, {"orders": BEGIN + 40 * DAY}) for each in compiled[1:3]
    ]
    assert attributes == {"base": 10, "orders": {"named": "kept"}}
    whole = derive(compiled, timelines, attributes, BEGIN + 61 * DAY)
    assert all(each.is_complete for each in whole)


def test_nothing_to_derive() -> None:
    assert derive([], {}, {}, BEGIN) == []
