"""Shared state in DynamoDB, each write with a fault at each of its requests: what is there is what one write without a fault
leaves, however often it is done again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from idgraph.model.errors import AlreadyRunningError, StoreError
from idgraph.model.households import HouseholdEntry
from idgraph.model.jobs import JobIdentity, JobKind, JobState, Progress, Requester
from idgraph.model.tombstones import Tombstone
from idgraph.web.audit import AuditLog
from tests.contracts.test_dead_letters import dead_letter
from tests.servers.dynamodb import place, require_dynamodb
from tests.servers.faulty_proxy import (
    Fault,
    broken,
    cut,
    faulty_proxy,
    half_an_answer,
    lost_answer,
    passed_on,
    throttled,
)
from tests.support.memory.key_provider import FixedProvider
from transforms.privacy.dead_letter_keys import DeadLetterKeys

if TYPE_CHECKING:
    from sinks.dynamodb.connection import TablesLocation

LEASE_SECONDS = 0.4
KEY = b"a key of the tests"
LETTER = dead_letter("a")._replace(position="fragment:u:1", payload=b"x" * 800_000)


class Write(NamedTuple):
    """A write, and what is to be seen after it."""

    write: Callable[[TablesLocation], object]
    seen: Callable[[TablesLocation], object]
    expected: object
    twice: object = None
    """What may be seen too when the write was done again after its answer was lost."""


def letters(tables: TablesLocation) -> Any:
    from sinks.dynamodb.dead_letters import DynamoDeadLetterKeys, DynamoDeadLetters

    keys = DeadLetterKeys(FixedProvider(), DynamoDeadLetterKeys(tables))
    return closing(DynamoDeadLetters(tables, keys))


def put(tables: TablesLocation) -> None:
    with letters(tables) as opened:
        opened.put([LETTER])


def settle(tables: TablesLocation) -> None:
    put(tables)
    with letters(tables) as opened:
        opened.settle_batch(LETTER.batch, "two")


def put_letters(tables: TablesLocation) -> object:
    with letters(tables) as opened:
        found = [each.id for each in opened.newest(5)]
        return list(opened.scan()), opened.at([LETTER.position]), found, opened.counts()


def documents(tables: TablesLocation) -> Any:
    from sinks.dynamodb.documents import DynamoDocuments

    return closing(DynamoDocuments(tables, LEASE_SECONDS))


def add(tables: TablesLocation) -> None:
    with documents(tables) as opened:
        opened.add("flows/shop/paused.json", b"why")


def leased(tables: TablesLocation) -> None:
    while True:
        try:
            with documents(tables) as opened, opened.lease("webhooks/crm") as held:
                held.require()
                opened.write("webhooks/crm/place.json", b"7")
        except AlreadyRunningError:
            # That of the write which crashed.
            continue
        return


def read(name: str) -> Callable[[TablesLocation], object]:
    def document(tables: TablesLocation) -> object:
        with documents(tables) as opened:
            return opened.read(name)

    return document


def household(tables: TablesLocation) -> Any:
    from sinks.dynamodb.shared_logs import DynamoHouseholdLog

    return closing(DynamoHouseholdLog(tables))


ENTRY = HouseholdEntry("h", "m", "user_id:1", "key", 1, "joined", {"name": "Ann"})


def join(tables: TablesLocation) -> None:
    with household(tables) as log:
        log.append("h", lambda known: [] if known else [ENTRY])


def leave(tables: TablesLocation) -> None:
    join(tables)
    with household(tables) as log:
        log.erase(["key"])


def entries(tables: TablesLocation) -> object:
    with household(tables) as log:
        return log.read("h"), log.of(["key"])


def audit(tables: TablesLocation) -> AuditLog:
    from sinks.dynamodb.shared_logs import DynamoAuditLines

    return AuditLog(DynamoAuditLines(tables), KEY)


def chain(tables: TablesLocation) -> object:
    report = audit(tables).verify()
    return report.entries, report.broken_line


def erase(tables: TablesLocation) -> None:
    from sinks.dynamodb.shared_logs import DynamoTombstones

    keeper = DynamoTombstones(tables, LEASE_SECONDS)
    with keeper.alone():
        keeper.append({b"a" * 16: Tombstone(5, 7)})


def tombstones(tables: TablesLocation) -> object:
    from sinks.dynamodb.shared_logs import DynamoTombstones

    keeper = DynamoTombstones(tables, LEASE_SECONDS)
    with keeper.alone():
        return keeper.read()


def jobs(tables: TablesLocation) -> Any:
    from sinks.dynamodb.jobs import DynamoJobLog

    return closing(DynamoJobLog(tables, LEASE_SECONDS))


def run(tables: TablesLocation) -> None:
    work, origin = JobIdentity(JobKind.RECONCILE, "", {}), Requester("ann", "why")
    while True:
        try:
            with jobs(tables) as log, log.running(work, origin) as record:
                log.keep(record.id, Progress(done=5), b"sealed")
                log.end(record.id, JobState.DONE, Progress(done=9), b"")
        except AlreadyRunningError:
            continue
        return


def ran(tables: TablesLocation) -> object:
    with jobs(tables) as log:
        return [(each.state, each.progress.done) for each in log.scan()]


DONE = (JobState.DONE, 9)
WRITES = {
    "put dead letters": Write(
        put, put_letters, ([LETTER], {"a": LETTER.position}, ["a"], {LETTER.reason: 1})
    ),
    "settle a batch": Write(settle, put_letters, ([], {}, [], {})),
    "add a document": Write(add, read("flows/shop/paused.json"), b"why"),
    "write under a lease": Write(leased, read("webhooks/crm/place.json"), b"7"),
    "append to a household": Write(join, entries, ([ENTRY], ["h"])),
    "erase from a household": Write(leave, entries, ([], [])),
    "append to the audit log": Write(
        lambda tables: audit(tables).append({"action": "reveal"}), chain, (1, None), twice=(2, None)
    ),
    "append tombstones": Write(erase, tombstones, {b"a" * 16: Tombstone(5, 7)}),
    "run a job": Write(run, ran, [DONE], twice=[DONE, DONE]),
}


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[Callable[[], TablesLocation], deque[Fault]]]:
    """New tables at each call, by way of a proxy, and its faults."""
    require_dynamodb()
    with faulty_proxy(require_dynamodb()) as (url, faults):

        def made() -> TablesLocation:
            folder = tmp_path / f"{len([*tmp_path.iterdir()])}"
            folder.mkdir()
            return place(folder)._replace(endpoint=url)

        yield made, faults


@pytest.mark.parametrize("name", WRITES)
def test_a_fault_at_any_request_changes_nothing(
    name: str, proxied: tuple[Callable[[], TablesLocation], deque[Fault]]
) -> None:
    made, faults = proxied
    write = WRITES[name]
    tables = made()
    every = [lost_answer, throttled, broken, cut, half_an_answer]
    # Each request but every second has one fault, of another kind each time.
    faults.extend([each for number in range(60) for each in (every[number % 5], passed_on)])
    write.write(tables)
    assert len(faults) < 120, "some were met"
    faults.clear()
    assert write.seen(tables) == write.expected


@pytest.mark.long
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("fault", [cut, lost_answer])
def test_what_crashed_at_any_request_is_done_again(
    name: str, fault: Fault, proxied: tuple[Callable[[], TablesLocation], deque[Fault]]
) -> None:
    made, faults = proxied
    write = WRITES[name]
    tables = made()
    crashed, at = True, 0
    while crashed:
        faults.extend([*[passed_on] * at, *[fault] * 20])
        # Nothing is tried again: whatever the write still wanted to do, it did not do.
        try:
            write.write(tables._replace(retry_seconds=0.0))
            crashed = False
        except StoreError:
            at += 1
        faults.clear()
        write.write(tables)
        seen = write.seen(tables)
        assert seen == write.expected or (write.twice is not None and at > 0), seen
    if name == "append to the audit log":
        assert audit(tables).verify().broken_line is None
