"""The lag, by the ends of partitions that the Java client gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingestion.sources.kafka.lag import _lag

TOPICS = st.text("abc-._0=", min_size=1, max_size=5).filter(lambda name: "=" not in name)
OFFSETS = st.integers(0, 2**62)


@given(st.dictionaries(st.tuples(TOPICS, st.integers(0, 99)), st.tuples(OFFSETS, OFFSETS), max_size=4))
def test_the_lag_is_read_for_any_name_of_a_topic(partitions: dict[tuple[str, int], tuple[int, int]]) -> None:
    taken: dict[str, dict[int, int]] = {}
    for (topic, partition), (offset, _) in partitions.items():
        taken.setdefault(topic, {})[partition] = offset
    reported = ", ".join(f"{topic}-{number}={end}" for (topic, number), (_, end) in partitions.items())
    assert _lag(f"{{{reported}}}", taken) == {
        f"{topic}/{number}": max(0, end - offset) for (topic, number), (offset, end) in partitions.items()
    }
