"""Keyed records in DynamoDB: bodies in parts, conditions, leases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idgraph.model.errors import AlreadyRunningError
from tests.contracts.test_dead_letters import dead_letter
from tests.servers.dynamodb import place, require_dynamodb, stored

if TYPE_CHECKING:
    from sinks.dynamodb.records import DynamoRecords


@pytest.fixture
def records(tmp_path: Path) -> Iterator[DynamoRecords]:
    require_dynamodb()
    from sinks.dynamodb.client import DynamoClient
    from sinks.dynamodb.records import DynamoRecords

    with closing(DynamoRecords(DynamoClient(place(tmp_path)))) as opened:
        yield opened


def test_a_body_of_any_size_is_whole_and_leaves_nothing(records: DynamoRecords, tmp_path: Path) -> None:
    body = bytes(range(256)) * 4000
    records.put(
        [{"pk": "p", "sk": "a", "body": body, "reason": "x"}, {"pk": "p", "sk": "b", "body": b"small"}]
    )
    assert [each["body"] for each in records.rows("p")] == [body, b"small"]
    records.delete(list(records.get([("p", "a"), ("p", "b")], bodies=False).values()))
    assert stored(tmp_path) == []


def test_a_record_whose_parts_are_gone_is_no_record(records: DynamoRecords) -> None:
    records.put([{"pk": "p", "sk": "a", "body": b"x" * 400_000}])
    (whole,) = records.get([("p", "a")], bodies=False).values()
    # As a reader between the two steps of a removal sees it.
    read = records._whole
    records.delete([whole])
    assert read(whole) is None


def test_all_changes_are_made_or_none(records: DynamoRecords) -> None:
    from sinks.dynamodb.records import ABSENT

    one, two = {"pk": "p", "sk": "1", "revision": 1}, {"pk": "p", "sk": "2", "revision": 1}
    assert records.change([(one, ABSENT)])
    assert not records.change([(one, ABSENT), (two, ABSENT)])
    assert not records.change([(two, ABSENT)], [(("p", "1"), {"revision": 7})])
    assert list(records.rows("p")) == [one]
    assert records.change([(two, ABSENT)], [(("p", "1"), {"revision": 1})])
    assert list(records.rows("p")) == [two]


def test_rows_come_in_order_from_both_ends(records: DynamoRecords) -> None:
    records.put([{"pk": "p", "sk": f"{each:03}", "even": each % 2} for each in range(60)])
    keys = [f"{each:03}" for each in range(60)]
    assert [each["sk"] for each in records.rows("p", page=7)] == keys
    assert [each["sk"] for each in records.rows("p", "010", "020", backward=True)] == keys[20:9:-1]
    assert [each["sk"] for each in records.rows("p", where={"even": 1}, only=["even"])] == keys[1::2]
    assert [each["sk"] for each in records.rows("p", where={"odd": None})] == keys


def test_a_lost_lease_is_noticed_by_its_holder(records: DynamoRecords) -> None:
    from sinks.dynamodb.record_leases import RecordLease, leases_of

    first, second = RecordLease(records, "job", -1.0), RecordLease(records, "job", 60.0)
    assert first.take()
    with pytest.raises(AlreadyRunningError, match="was lost"):
        first.require()
    assert leases_of(records, ["job"]) == {}
    assert second.take()
    assert not first.renew()
    first.release()
    assert leases_of(records, ["job"]) == {"job": second.holder}
    second.release()
    assert leases_of(records, ["job"]) == {}


def test_a_lease_that_was_taken_by_another_clock_is_lost_at_the_next_renewal(records: DynamoRecords) -> None:
    from sinks.dynamodb.record_leases import RecordLease

    first, second = RecordLease(records, "job", 60.0), RecordLease(records, "job", 60.0)
    assert first.take()
    records.delete([{"pk": "leases", "sk": "job"}])
    assert second.take()
    first.require()
    assert not first.renew()
    with pytest.raises(AlreadyRunningError, match="was lost"):
        first.require()


def test_who_starts_what_a_dead_process_ran_waits_for_the_end_of_its_lease(records: DynamoRecords) -> None:
    from sinks.dynamodb.record_leases import RecordLease, leased

    dead = RecordLease(records, "job", 1.0)
    assert dead.take()
    with pytest.raises(AlreadyRunningError), leased(records, "job", 60.0):
        pass
    with leased(records, "job", 1.0, outlives=True) as lease:
        lease.require()
        with pytest.raises(AlreadyRunningError), leased(records, "job", 1.0, outlives=True):
            pass


def test_dropped_dead_letters_leave_nothing(records: DynamoRecords, tmp_path: Path) -> None:
    from sinks.dynamodb.dead_letters import DynamoDeadLetters

    with closing(DynamoDeadLetters(place(tmp_path))) as letters:
        large = dead_letter("a")._replace(payload=b"x" * 1_000_000, position="fragment:u:1")
        letters.put([large, dead_letter("b"), dead_letter("c", attempt="two")])
        assert letters.settle_batch("flow/1", "two") == {"a": "fragment:u:1"}
        assert letters.drop(["c"]) == 1
    assert stored(tmp_path) == []


def test_a_dead_letter_of_another_batch_now_stays(records: DynamoRecords, tmp_path: Path) -> None:
    from sinks.dynamodb.dead_letters import DynamoDeadLetters

    with closing(DynamoDeadLetters(place(tmp_path))) as letters:
        letters.put([dead_letter("a")])
        moved = dead_letter("a", batch="flow/9")._replace(set_aside_at=1_800_000_000_000)
        letters.put([moved])
        assert letters.settle_batch("flow/1", "two") == {}
        assert list(letters.scan()) == [moved]
        assert letters.newest(5) == [moved._replace(payload=b"")]
