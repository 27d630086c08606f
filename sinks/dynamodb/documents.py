"""Shared documents as records in DynamoDB: the first part of a name is the partition, the rest sorts."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from sinks.dynamodb.client import DynamoClient
from sinks.dynamodb.connection import TablesLocation
from sinks.dynamodb.items import pack, unpack
from sinks.dynamodb.record_leases import LEASE_SECONDS, RecordLease, leased
from sinks.dynamodb.records import ABSENT, DynamoRecords, Row


class DynamoDocuments:
    """`SharedDocuments` in the table `shared`. All writes are durable."""

    def __init__(self, place: TablesLocation, lease_seconds: float = LEASE_SECONDS) -> None:
        self._records = DynamoRecords(DynamoClient(place))
        self._lease_seconds = lease_seconds

    def read(self, name: str) -> bytes | None:
        row = self._records.one(*_key(name))
        return None if row is None else unpack(row["body"])

    def write(self, name: str, content: bytes, durable: bool = True) -> None:  # noqa: ARG002 - always is
        self._records.put([_row(name, content)])

    def add(self, name: str, content: bytes) -> bool:
        return self._records.change([(_row(name, content), ABSENT)])

    def remove(self, name: str) -> bool:
        row = self._records.get([_key(name)], bodies=False).get(_key(name))
        if row is None:
            return False
        self._records.delete([row])
        return True

    def names(self, pattern: str) -> list[str]:
        partition, rest = _key(pattern)
        matches = re.compile(re.escape(rest).replace(r"\*", "[^/]*")).fullmatch
        begin = rest.partition("*")[0]
        rows = self._records.rows(partition, begin, begin + "\U0010ffff", only=["sk"])
        return [f"{partition}/{each['sk']}" for each in rows if matches(each["sk"])]

    def lease(self, name: str) -> AbstractContextManager[RecordLease]:
        return leased(self._records, name, self._lease_seconds)

    def close(self) -> None:
        self._records.close()


def _key(name: str) -> tuple[str, str]:
    partition, _, rest = name.partition("/")
    return partition, rest


def _row(name: str, content: bytes) -> Row:
    partition, rest = _key(name)
    return {"pk": partition, "sk": rest, "body": pack(content)}
