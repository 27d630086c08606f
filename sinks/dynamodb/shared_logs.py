"""Logs and lists in the table `shared`: households, tombstones apart from the store, and the audit log.

household ID     `head`: the revision, and the number of the last entry; then entries by number
households of K  by household: those with an entry of a person, whose keyed hash is K
tombstones SHARD by name in hexadecimal digits: what all lines of a file would come to
audit            by number: some lines that were appended at once; `begins` where a new chain does
"""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import islice

from idgraph.model import canonical
from idgraph.model.backoff import Retries, steady
from idgraph.model.errors import AlreadyRunningError, StoreError
from idgraph.model.households import Decide, HouseholdEntry
from idgraph.model.tombstones import NO_EPOCH, Tombstone
from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.connection import TablesLocation
from sinks.dynamodb.items import pack, unpack
from sinks.dynamodb.record_leases import LEASE_SECONDS, RecordLease, leased
from sinks.dynamodb.records import (
    ABSENT,
    MOST_CHANGES,
    DynamoRecords,
    Key,
    Row,
    Seen,
    key_of,
    retried,
    shard_of,
)
from sinks.dynamodb.schema import SHARDS

log = logging.getLogger(__name__)

_MOST_LINES = 1_000_000
"""A record of the audit log has fewer."""
_PAGE = 100


class DynamoHouseholdLog:
    """`HouseholdLog` in the table `shared`."""

    def __init__(self, place: TablesLocation) -> None:
        self._records = DynamoRecords(DynamoClient(place))

    def append(self, household: str, decide: Decide) -> None:
        def attempt() -> bool:
            head, seen = self._head(household)
            new = decide([_household_entry(each) for each in self._entries(household)])
            puts: list[tuple[Row, Seen]] = []
            for entry in new:
                head["last"] += 1
                row = entry._asdict() | {"body": canonical.encode(dict(entry.body))}
                puts.append((row | {"pk": _household(household), "sk": _number(head["last"])}, ABSENT))
            persons = {each.key for each in new}
            puts += [({"pk": _households_of(each), "sk": household}, {}) for each in sorted(persons)]
            return not new or self._records.change([(head, seen), *puts])

        retried(attempt, f"household {household}")

    def read(self, household: str) -> list[HouseholdEntry]:
        return [_household_entry(each) for each in self._entries(household)]

    def of(self, keys: Collection[str]) -> list[str]:
        return sorted({each["sk"] for key in keys for each in self._records.rows(_households_of(key))})

    def erase(self, keys: Collection[str]) -> int:
        gone = 0
        for household in self.of(keys):

            def attempt(household: str = household) -> bool:
                nonlocal gone
                head, seen = self._head(household)
                found = [each for each in self._entries(household) if each["key"] in keys]
                some, left = found[: MOST_CHANGES // 2 - 1], found[MOST_CHANGES // 2 - 1 :]
                persons = {each["key"] for each in some} - {each["key"] for each in left}
                gone_keys = [*map(key_of, some), *((_households_of(each), household) for each in persons)]
                if some and not self._records.change([(head, seen)], [(each, {}) for each in gone_keys]):
                    return False
                gone += len(some)
                return not left

            retried(attempt, f"household {household}")
        return gone

    def close(self) -> None:
        self._records.close()

    def _head(self, household: str) -> tuple[Row, Seen]:
        """That of the next revision, and the condition that nobody has written since."""
        head = self._records.one(_household(household), _HEAD)
        if head is None:
            return {"pk": _household(household), "sk": _HEAD, "revision": 1, "last": 0}, ABSENT
        return head | {"revision": head["revision"] + 1}, {"revision": head["revision"]}

    def _entries(self, household: str) -> Iterator[Row]:
        return self._records.rows(_household(household), last="9" * _DIGITS)


_HEAD = "head"
_DIGITS = 12


def _number(number: int) -> str:
    return f"{number:0{_DIGITS}}"


def _household(household: str) -> str:
    return f"household {household}"


def _households_of(key: str) -> str:
    return f"households of {key}"


def _household_entry(row: Row) -> HouseholdEntry:
    fields = {name: row[name] for name in HouseholdEntry._fields}
    return HouseholdEntry(**fields | {"body": json.loads(row["body"])})


class DynamoTombstones:
    """Keeps all tombstones by name apart from the store: a restored store does not lose them."""

    def __init__(self, place: TablesLocation, lease_seconds: float = LEASE_SECONDS) -> None:
        self._place = place
        self._lease_seconds = lease_seconds
        self._held: tuple[DynamoRecords, RecordLease] | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While a lease is held; waits for whoever holds it. Raises StoreError."""
        with closing(DynamoRecords(DynamoClient(self._place))) as records, ExitStack() as stack:
            retries = Retries(steady(0.5), math.inf)
            is_waiting = False
            while True:
                try:
                    lease = stack.enter_context(leased(records, "tombstones", self._lease_seconds))
                except AlreadyRunningError:
                    if not is_waiting:
                        log.warning(
                            "another process erases persons or cancels an erasure just now; waiting for its end"
                        )
                    is_waiting = True
                    retries.pause()
                else:
                    break
            self._held = records, lease
            try:
                yield
            finally:
                self._held = None

    def append(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        """Durable when it returns. Only within `alone`. Raises StoreError."""
        records, lease = self._alone()
        keys = {name: _tombstone_key(name) for name in tombstones}
        known = {key: _tombstone(row) for key, row in records.get(list(keys.values())).items()}
        rows: list[Row] = []
        for name, each in tombstones.items():
            joined = each.joined(known.get(keys[name], each))
            until = NO_EPOCH if each.until == NO_EPOCH else joined.until
            (pk, sk) = keys[name]
            rows.append({"pk": pk, "sk": sk, "until": until, "version": joined.version})
        lease.require()
        records.put(rows)

    def read(self) -> dict[bytes, Tombstone]:
        """Only within `alone`. Raises StoreError."""
        records, _ = self._alone()

        def of(shard: int) -> list[Row]:
            return list(records.rows(f"tombstones {shard}"))

        found = [row for rows in records.each(of, range(SHARDS)) for row in rows]
        return {bytes.fromhex(row["sk"]): _tombstone(row) for row in found}

    def _alone(self) -> tuple[DynamoRecords, RecordLease]:
        if self._held is None:
            raise StoreError("tombstones are read and written while their lease is held")
        return self._held


def _tombstone_key(name: bytes) -> Key:
    return f"tombstones {shard_of(name.hex(), SHARDS)}", name.hex()


def _tombstone(row: Row) -> Tombstone:
    return Tombstone(row["until"], row["version"])


class DynamoAuditLines:
    """`AuditLines` in the table `shared`. A place is the number of a record, and how many of its lines come before."""

    def __init__(self, place: TablesLocation) -> None:
        self._records = DynamoRecords(DynamoClient(place))
        self.place = f"audit log in DynamoDB table {place.prefix}-shared"
        self._lock = threading.Lock()

    def append(self, make: Callable[[Sequence[bytes]], list[bytes]]) -> None:
        def attempt() -> bool:
            last = list(islice(self._rows(page=2), 2))
            lines = [line for row in reversed(last) for line in _lines(row)]
            return self._add(last[0]["sk"] if last else None, body=pack(b"".join(make(lines[-2:]))))

        # Threads of one process need not be in each other's way.
        with self._lock:
            retried(attempt, self.place)

    def read(self) -> list[bytes]:
        return [line.rstrip(b"\n") for row in reversed(list(self._rows())) for line in _lines(row)]

    def backward(self, before: int | None) -> Iterator[tuple[int, bytes]]:
        first, left = (None, _MOST_LINES) if before is None else divmod(before, _MOST_LINES)
        for row in self._rows(None if first is None else _number(first)):
            lines = _lines(row)[:left]
            left = _MOST_LINES
            number = int(row["sk"])
            for count, line in reversed(list(enumerate(lines))):
                is_end = count == 0 and (number == 0 or "begins" in row)
                yield 0 if is_end else number * _MOST_LINES + count, line

    def set_aside(self) -> str | None:
        last = next(self._rows(page=1), None)
        if last is None:
            return None
        retried(lambda: self._add(next(self._rows(page=1))["sk"], body=pack(b""), begins=1), self.place)
        return f"before record {int(last['sk']) + 1} of {self.place}"

    def _rows(self, last: str | None = None, page: int = _PAGE) -> Iterator[Row]:
        """The records of the present chain, the newest first."""
        for row in self._records.rows("audit", last=last or "9" * _DIGITS, backward=True, page=page):
            yield row
            if "begins" in row:
                return

    def _add(self, last: str | None, **attributes: bytes | int) -> bool:
        number = 0 if last is None else int(last) + 1
        return self._records.change([({"pk": "audit", "sk": _number(number)} | attributes, ABSENT)])


def _lines(row: Row) -> list[bytes]:
    return unpack(row["body"]).splitlines(keepends=True)
