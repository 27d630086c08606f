"""The embedded index answers every query as the memory index does, whatever was put in and taken out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from idgraph.model.index import FacetCount, IndexDocument, ProfileIndex
from idgraph.model.queries import (
    All,
    AnyOf,
    Condition,
    Exists,
    FullText,
    Not,
    Order,
    Prefix,
    Query,
    Range,
    Scalar,
    Term,
    from_json,
    to_json,
)
from sinks.index_values import number_key, number_order, ordered
from sinks.tantivy.index import TantivyProfileIndex
from tests.contracts.implementations import reversed_name
from tests.folders import in_memory
from tests.lanes import examples
from tests.support.memory.index import MemoryProfileIndex

PATHS = ["a", "a.b", "a\\.b", "ü.ß", "words"]
LONG = "long " * 60

texts = st.sampled_from(
    [
        "",
        "Zoë",
        "zoe",
        "ZOE Müller",
        "a",
        "1",
        "true",
        'AND "x" OR NOT (a:b)*',
        "\x80a",
        "日本 語",
        "日本語",
        "本",
        "語x手机",
        LONG,
        LONG + "x",
        "7c6e7bc3-94CC-4147-bd01-e7ecf04cf834",
        "7c6e7bc3-94cc-4147-bd01-e7ecf04cf834-12",
        "4147",
        "94cc bd0",
    ]
) | st.text(max_size=6)
numbers = (
    st.sampled_from([0, -0.0, 1, 1.0, -1, 2**53, 2**53 + 1, 2.0**53, 2**63, 2**70, 2**70 + 1, -(2**64) - 1])
    | st.sampled_from([float("inf"), float("-inf"), float("nan"), 10**400, -(10**400), 1e308, 5e-324])
    | st.integers(-3, 3)
    | st.floats()
    | st.integers()
)
scalars = texts | numbers | st.booleans()
fields = st.dictionaries(st.sampled_from(PATHS), scalars | st.lists(scalars, max_size=3), max_size=4)
ids = st.sampled_from(["a", "b", "c'\"", "é", "\U0001f600", "￿"])
paths = st.sampled_from([*PATHS, "unknown"])
bounds = st.none() | texts | numbers
clauses = st.one_of(
    st.builds(Term, paths, scalars),
    st.builds(Prefix, paths, texts),
    st.builds(Range, paths, bounds, bounds, st.booleans(), st.booleans()),
    st.builds(FullText, texts, st.none() | paths, st.booleans(), st.integers(0, 2)),
    st.builds(Exists, paths),
)


def _joined(inner: st.SearchStrategy[Condition]) -> st.SearchStrategy[Condition]:
    several = st.lists(inner, max_size=3).map(tuple)
    return st.builds(All, several) | st.builds(AnyOf, several) | st.builds(Not, inner)


conditions: st.SearchStrategy[Condition] = st.recursive(clauses, _joined, max_leaves=4)
queries = st.lists(conditions, max_size=3).map(lambda found: Query(tuple(found)))
orders = st.none() | st.builds(Order, paths, st.booleans())
documents = st.builds(IndexDocument, ids, st.integers(1, 5), fields)


def all_pages(index: ProfileIndex, query: Query, limit: int, order: Order | None = None) -> list[str]:
    """All ids; sorted where they come by relevance, which statistics of the index decide."""
    page = index.search(query, limit, None, order)
    found = page.ids
    while page.cursor is not None:
        page = index.search(query, limit, page.cursor, order)
        assert page.ids
        found = found + page.ids
    assert len(set(found)) == len(found)
    return sorted(found) if order is None and query.is_ranked else found


def are_alike(found: list[FacetCount], expected: list[FacetCount]) -> bool:
    """Equal but for numbers, of which columns have 14 digits."""

    def are_close(one: Scalar, other: Scalar) -> bool:
        if isinstance(one, bool | str) or isinstance(other, bool | str):
            return one == other and type(one) is type(other)
        return math.isclose(one, other, rel_tol=1e-14, abs_tol=1e-300)

    return len(found) == len(expected) and all(
        one.profiles == other.profiles and are_close(one.value, other.value)
        for one, other in zip(found, expected, strict=True)
    )


class IndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = in_memory()
        self.path = Path(self.folder.name) / "index"
        self.embedded = TantivyProfileIndex(self.path, reversed_name)
        self.memory = MemoryProfileIndex()

    @rule(batch=st.lists(documents, max_size=6))
    def put(self, batch: list[IndexDocument]) -> None:
        assert self.embedded.put(batch) == self.memory.put(batch)

    @rule(gone=st.dictionaries(ids, st.integers(1, 3), max_size=2))
    def erase(self, gone: dict[str, int]) -> None:
        assert self.embedded.versions(list(gone)) == self.memory.versions(list(gone))
        assert self.embedded.erase(gone) == self.memory.erase(gone)

    @rule()
    def reopen(self) -> None:
        self.embedded.close()
        self.embedded = TantivyProfileIndex(self.path, reversed_name)

    @rule()
    def compact(self) -> None:
        self.embedded.compact()

    @rule(query=queries, limit=st.integers(1, 3), order=orders)
    def search(self, query: Query, limit: int, order: Order | None = None) -> None:
        expected = all_pages(self.memory, query, 100, order)
        assert all_pages(self.embedded, query, limit, order) == expected
        assert self.embedded.count(query) == self.memory.count(query)

    @rule(query=queries, path=paths)
    def facets(self, query: Query, path: str) -> None:
        found, expected = self.embedded.facets(query, path, 50), self.memory.facets(query, path, 50)
        assert are_alike(found, expected), (found, expected)

    @rule(query=queries, batch=st.lists(documents, min_size=3, max_size=6))
    def search_what_was_put(self, query: Query, batch: list[IndexDocument]) -> None:
        self.put(batch)
        for document in batch:
            for path, value in document.fields.items():
                for each in value if isinstance(value, list) else [value]:
                    self.search(Query((Term(path, each), *query.clauses[:1])), 3)
                    if not isinstance(each, bool):
                        self.search(Query((Range(path, each, None, include_lower=False),)), 3)
                        self.search(Query((Range(path, None, each),)), 3)

    @invariant()
    def same_documents(self) -> None:
        assert self.embedded.search(Query(), 100).ids == self.memory.search(Query(), 100).ids

    def teardown(self) -> None:
        self.embedded.close()
        self.folder.cleanup()


def test_embedded_index_equals_memory_index() -> None:
    run_state_machine_as_test(
        IndexMachine, settings=settings(max_examples=examples(30), stateful_step_count=12, deadline=None)
    )


@given(queries)
def test_a_query_is_the_same_after_its_json(query: Query) -> None:
    # Not the queries themselves: a NaN in them is no NaN.
    assert repr(from_json(to_json(query))) == repr(query)


@given(numbers, numbers)
def test_number_keys_sort_as_numbers(one: Any, other: Any) -> None:
    first, second = ordered(one), ordered(other)
    if first is None or second is None:
        assert None in (number_key(one), number_key(other))
        return
    key, other_key = number_order(one), number_order(other)
    assert key is not None
    assert other_key is not None
    assert (key < other_key, key == other_key) == (first < second, first == second)
    assert (number_key(one) == number_key(other)) == (one == other)
