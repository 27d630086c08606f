"""Ranges of offsets from a cluster that does not give all at once, which one healthy broker always does.

What a broker can be made to do is in tests/spark/test_kafka.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from idgraph.model.errors import SourceUnavailableError

confluent_kafka = pytest.importorskip(
    "confluent_kafka", reason="confluent_kafka is not installed: pip install -e .[kafka]"
)


class Reported:
    """A message of librdkafka: a record, or what it says of a partition at an offset."""

    def __init__(self, offset: int, error: Any = None) -> None:
        self._offset = offset
        self._error = error

    def error(self) -> Any:
        return self._error

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 7

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"{}"

    def headers(self) -> None:
        return None


class Partition:
    """Gives so much at each asking, then nothing any more."""

    def __init__(self, *answers: Sequence[Reported]) -> None:
        self._answers = list(answers)
        self._there: list[Reported] = []

    def poll(self, seconds: float) -> Reported | None:
        if not self._there and self._answers:
            self._there = list(self._answers.pop(0))
        return self._there.pop(0) if self._there else None

    def consume(self, most: int, seconds: float) -> Sequence[Reported]:
        assert seconds == 0, "more than there is would be waited for"
        there, self._there = self._there, []
        return there


@pytest.fixture(autouse=True)
def is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinks.kafka.topics.SILENT_SECONDS", 0.2)


def read(partition: Partition, until: int, seconds: float = 0.0) -> list[int]:
    """The offsets that are given to one who takes so long for each."""
    from sinks.kafka.topics import _until

    given = []
    for record in _until(partition, until, "topic a, partition 0"):
        given.append(record.offset)
        time.sleep(seconds)
    return given


def records(first: int, behind: int) -> list[Reported]:
    return [Reported(offset) for offset in range(first, behind)]


END = confluent_kafka.KafkaError(confluent_kafka.KafkaError._PARTITION_EOF)


def test_the_end_of_a_leader_that_is_behind_is_not_the_end_of_the_range() -> None:
    assert read(Partition([*records(0, 5), Reported(5, END)], [], records(5, 12)), 10) == list(range(10))


def test_the_end_of_the_partition_ends_a_range_whose_last_offsets_hold_no_record() -> None:
    assert read(Partition([*records(0, 9), Reported(10, END)], records(10, 11)), 10) == list(range(9))


def test_records_that_never_come_are_reported() -> None:
    partition = Partition([*records(0, 5), Reported(5, END)])
    with pytest.raises(
        SourceUnavailableError, match=r"topic a, partition 0: nothing came .* up to offset 10"
    ):
        read(partition, 10)


def test_an_error_that_passes_is_no_record() -> None:
    passes = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT, "", False, True)
    assert read(Partition([Reported(0), Reported(-1001, passes)], records(1, 3)), 3) == [0, 1, 2]


def test_an_error_that_stays_is_reported() -> None:
    stays = confluent_kafka.KafkaError(confluent_kafka.KafkaError._TRANSPORT)
    with pytest.raises(SourceUnavailableError, match="_TRANSPORT"):
        read(Partition([Reported(0), Reported(-1001, stays)], records(1, 3)), 3)


def test_a_reader_may_take_its_time() -> None:
    assert read(Partition(records(0, 1), records(1, 2)), 2, seconds=0.3) == [0, 1]
