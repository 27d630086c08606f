"""Batches adapt to what the store takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.batch_size import MOST_BYTES, SLOW_SECONDS, UNWEIGHED, BatchSize


def _weighed(most: int) -> BatchSize:
    """One that has seen as many light fragments as it may give."""
    size = BatchSize(most, slow_seconds=2.0)
    size.weighed(most, 0)
    return size


def test_a_failure_halves_and_quick_commits_grow_back() -> None:
    size = _weighed(1000)
    size.took(1000, 0.1, outages=1)
    assert size.present == 500
    sizes = []
    while size.present < 1000:
        size.took(size.present, 0.1)
        sizes.append(size.present)
    assert sizes[:2] == [625, 781]
    assert sizes[-1] == 1000
    assert len(sizes) < 5


def test_a_slow_commit_halves_what_it_was() -> None:
    size = _weighed(8000)
    size.took(8000, 3.0)
    assert size.present == 4000
    size.took(300, 3.0)
    assert size.present == 150
    for _ in range(10):
        size.took(size.present, 3.0)
    assert size.present == 100


def test_what_is_neither_slow_nor_quick_stays() -> None:
    size = _weighed(1000)
    size.took(1000, 3.0)
    size.took(500, 1.5)
    assert size.present == 500


def test_a_small_rest_says_nothing_of_what_could_be_taken() -> None:
    size = _weighed(1000)
    size.took(1000, 3.0)
    size.took(7, 0.01)
    assert size.present == 500


def test_it_begins_with_a_few_and_doubles_at_most() -> None:
    size, given_at_once = BatchSize(1000), list[int]()
    for _ in range(7):
        given_at_once.append(size.present)
        size.took(size.present, 0.1)
        size.weighed(size.present, size.present * 1000)
    assert given_at_once == [UNWEIGHED, 100, 200, 400, 800, 1000, 1000]
    # A few light ones report nothing of many.
    size = BatchSize(1000)
    for _ in range(100):
        size.weighed(3, 3000)
    assert size.present == UNWEIGHED


def test_heavy_fragments_are_few_at_once() -> None:
    size = _weighed(8000)
    size.weighed(1000, 1000 * 1500)
    assert size.present == 8000
    size.weighed(8000, 8000 * 20_000)
    assert size.present == MOST_BYTES // 20_000
    size.weighed(1, 100 << 20)
    assert size.present == 1
    size.weighed(1, 0)
    for _ in range(40):
        size.weighed(1, 1000)
    assert size.present == 8000


@given(
    st.lists(st.tuples(st.integers(1, 10_000), st.floats(0, 100), st.integers(0, 40))), st.integers(1, 8000)
)
def test_it_stays_within_its_bounds(history: list[tuple[int, float, int]], most: int) -> None:
    size = BatchSize(most)
    for count, seconds, outages in history:
        before = size.present
        size.took(count, seconds, outages)
        assert 1 <= size.present <= most
        if outages or seconds > SLOW_SECONDS:
            assert size.present <= before


def test_a_slow_commit_after_outages_gives_no_more() -> None:
    size = _weighed(8000)
    size.took(8000, 0.1, outages=10)
    assert size.present == 7
    size.took(1, 3.0)
    assert size.present == 7
