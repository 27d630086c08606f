"""The cost of searches: ordinary ones cost little, and one above the bound is refused with both numbers."""

from __future__ import annotations

import pytest

from idgraph.model.errors import QueryCostError
from idgraph.model.queries import (
    All,
    AnyOf,
    Condition,
    Exists,
    FullText,
    Not,
    Prefix,
    Query,
    Range,
    Term,
)
from idgraph.model.query_cost import MOST_COST, cost_of, require_affordable
from idgraph.model.query_language import parse_query

ORDINARY = (
    "demographics.age>=30 activity.platform=ios",
    "guitar lessons OR piano",
    "activity.purchase.total>=100 NOT activity.platform=ios",
    "identity.userId=44* activity.lastSeenAt>=1700000000000 activity.lastSeenAt<1800000000000",
    "identity.email=* OR NOT (identity.phone=* demographics.age<18)",
    " OR ".join(f"identity.userId={number}" for number in range(500)),
)


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_search_is_far_below_the_bound(text: str) -> None:
    assert 0 < require_affordable(parse_query([f"({text})"], lambda _: None)) < MOST_COST / 4


TOO_MUCH: tuple[tuple[Condition, ...], ...] = (
    tuple(FullText("anna bella carla", edits=2) for _ in range(100)),
    (AnyOf(tuple(Range("a.b", lower=number) for number in range(60))),),
    (All(tuple(Prefix("a", str(number)) for number in range(60))),),
    (FullText("x y " * 3000),),
    (FullText("a-b-c-d-e-f-" * 50, "p", edits=2),),
    tuple(FullText("q", "p", is_prefix=True) for _ in range(1500)),
    tuple(Not(Exists("a")) for _ in range(600)),
    (AnyOf(tuple(AnyOf(()) for _ in range(6000))),),
    tuple(Term("a", number) for number in range(6000)),
)


@pytest.mark.parametrize("clauses", TOO_MUCH)
def test_too_much_is_refused_with_the_cost_and_the_bound(clauses: tuple[Condition, ...]) -> None:
    query = Query(clauses)
    with pytest.raises(QueryCostError) as refused:
        require_affordable(query)
    assert f"{cost_of(query):,}" in str(refused.value)
    assert f"{MOST_COST:,}" in str(refused.value)


def test_words_cost_as_much_as_there_are_places_to_look() -> None:
    words = Query((FullText("guitar lessons"),))
    assert require_affordable(words, places=100) == 100 * cost_of(words)
    assert require_affordable(Query((FullText("guitar", "a"),)), places=100) == 1


def test_a_search_that_runs_often_costs_as_often() -> None:
    ranges = Query((Range("a", lower=1), Range("a", upper=9)))
    assert require_affordable(ranges, times=3) == 3 * cost_of(ranges)
    with pytest.raises(QueryCostError):
        require_affordable(ranges, times=30)
