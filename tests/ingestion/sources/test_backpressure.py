"""The bound of a micro-batch follows what the flow takes, within its limits, without swinging."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestion.sources.kafka.stream import FIRST_OFFSETS, BatchBound


def driven(rate: float, bound: BatchBound, batches: int = 30, overhead: float = 0.3) -> list[int]:
    """Full micro-batches of a flow that takes so many records a second; gives the bounds."""
    bounds = []
    for _ in range(batches):
        bound.took(bound.present, overhead + bound.present / rate)
        bounds.append(bound.present)
    return bounds


@pytest.mark.parametrize(
    ("rate", "least", "most"),
    [(100, 1_000, 1_000), (1_000, 2_500, 5_000), (8_000, 20_000, 40_000), (10**6, 10**5, 10**5)],
)
def test_a_flow_that_is_behind_gets_what_it_takes_in_the_time(rate: int, least: int, most: int) -> None:
    assert least <= driven(rate, BatchBound(1_000, 100_000, 5.0))[-1] <= most


@given(st.floats(1, 10**6), st.floats(0, 3))
def test_a_steady_rate_gives_a_steady_bound_soon(rate: float, overhead: float) -> None:
    bounds = driven(rate, BatchBound(1_000, 100_000, 5.0), overhead=overhead)
    assert len(set(bounds[15:])) == 1
    assert len(set(bounds)) <= 8


def test_a_store_that_slows_down_and_comes_back() -> None:
    bound = BatchBound(1_000, 100_000, 5.0)
    assert driven(50_000, bound)[-1] == 100_000
    bound.took(40_000, 30.0)
    assert bound.present <= 50_000
    assert 1_000 <= driven(300, bound)[-1] <= 3_000
    assert driven(50_000, bound)[-1] == 100_000


def test_micro_batches_that_are_not_full_say_nothing_of_more() -> None:
    bound = BatchBound(1_000, 100_000, 5.0)
    for _ in range(10):
        bound.took(50, 0.2)
        bound.took(0, 9.0)
    assert bound.present == FIRST_OFFSETS


@given(
    st.integers(1, 10**5),
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100))),
)
def test_it_stays_within_its_limits(least: int, most: int, batches: list[tuple[int, float]]) -> None:
    bound = BatchBound(least, most, 5.0)
    for offsets, seconds in batches:
        bound.took(offsets, seconds)
        assert min(least, most) <= bound.present <= most


def test_equal_limits_are_a_fixed_bound() -> None:
    bound = BatchBound(90, 90, 5.0)
    driven(1.0, bound)
    driven(10**6, bound)
    assert bound.present == 90
