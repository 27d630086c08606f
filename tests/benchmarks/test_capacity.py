"""The capacity model: more load never needs less, and what waits is neither lost nor made."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.capacity import Load, backlog, cluster, embedded, outgrown, run_of, scenarios

rates = st.floats(1, 1e6)


@given(rates, rates, st.floats(1, 10))
def test_more_events_need_more_of_everything(events: float, fragments: float, factor: float) -> None:
    one, other = (Load(events * each, fragments, lookups=each, searches=each) for each in (1.0, factor))
    for need in (embedded, cluster):
        few, many = need(one), need(other)
        assert all(few[name] <= many[name] * 1.000001 for name in few)
    assert outgrown(one).keys() <= outgrown(other).keys()


@given(st.integers(1, 10**7), st.integers(1, 64))
def test_a_run_takes_no_less_than_its_cpu_over_all_cores(events: int, cores: int) -> None:
    said = run_of(events, Load(1.0, 0.0), cores)
    assert said["seconds"] * cores >= said["cpu seconds"] * 0.999999


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)), min_size=1, max_size=50))
def test_a_backlog_is_at_least_what_came_less_what_could_go(steps: list[tuple[float, float]]) -> None:
    arriving, able = zip(*steps, strict=True)
    found = backlog(arriving, able)
    assert found["most waiting"] >= sum(arriving) - sum(able) - 1e-6
    assert found["most waiting"] <= sum(arriving) + 1e-6
    assert 0 <= found["over after s"] <= len(steps)


def test_half_as_much_again_outlives_a_zone_and_makes_up_a_day_in_two() -> None:
    found = scenarios(100_000, 1.5)
    assert found["an hour with two of three zones"]["most waiting"] == 0
    assert found["a backlog of a day"]["over after s"] == 2 * 86_400 - 1
