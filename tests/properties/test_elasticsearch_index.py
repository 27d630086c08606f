"""The index in Elasticsearch answers every query as the memory index does, whatever was put in and erased."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.index import IndexDocument, ProfileIndex
from idgraph.model.queries import FullText, Order, Query, Range, Term, leaves
from tests.contracts.implementations import PROFILE_INDEXES, Implementation
from tests.properties.test_indexes import all_pages, documents, ids, orders, queries
from tests.support.memory.index import MemoryProfileIndex

pytestmark = pytest.mark.long


(ELASTICSEARCH,) = [each for each in PROFILE_INDEXES if each.name == "elasticsearch"]

steps = st.lists(
    st.lists(documents, max_size=6) | st.dictionaries(ids, st.integers(1, 3), max_size=2), max_size=4
)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    ELASTICSEARCH.require()
    return tmp_path


def test_elasticsearch_index_equals_memory_index(folders: Path) -> None:
    made = 0

    @given(steps, st.lists(st.tuples(queries.filter(_has_no_edits), orders), max_size=6))
    @settings(max_examples=25, deadline=None)
    def check(
        steps: list[list[IndexDocument] | dict[str, int]], searches: list[tuple[Query, Order | None]]
    ) -> None:
        nonlocal made
        made += 1
        folder = folders / str(made)
        folder.mkdir()
        _check(ELASTICSEARCH, folder, steps, searches)

    check()


def _has_no_edits(query: Query) -> bool:
    """Whether it asks for no mistyped words, which this index refuses."""
    return not any(isinstance(each, FullText) and each.edits for each in leaves(query))


def _check(
    implementation: Implementation[ProfileIndex],
    folder: Path,
    steps: list[list[IndexDocument] | dict[str, int]],
    searches: list[tuple[Query, Order | None]],
) -> None:
    memory = MemoryProfileIndex()
    with implementation.opened(folder) as index:
        for step in steps:
            if isinstance(step, dict):
                assert index.erase(step) == memory.erase(step)
            else:
                assert index.put(step) == memory.put(step)
        everybody = all_pages(memory, Query(), 100)
        assert all_pages(index, Query(), 2) == everybody
        assert index.versions(everybody).keys() == set(everybody)
        for query, order in [*searches, *((each, None) for each in _of_what_was_put(steps))]:
            assert all_pages(index, query, 100, order) == all_pages(memory, query, 100, order)
            assert index.count(query) == memory.count(query)


def _of_what_was_put(steps: list[list[IndexDocument] | dict[str, int]]) -> list[Query]:
    """Queries for the very values, which queries by chance seldom meet."""
    found: list[Query] = []
    for document in [each for step in steps if isinstance(step, list) for each in step]:
        for path, value in document.fields.items():
            for each in value if isinstance(value, list) else [value]:
                found.append(Query((Term(path, each),)))
                if not isinstance(each, bool):
                    found.append(Query((Range(path, each, None, include_lower=False),)))
                    found.append(Query((Range(path, None, each),)))
    return found[:20]
