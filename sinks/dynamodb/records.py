"""Keyed records in the table `shared`: the state of an installation that all its processes see. See docs/dynamodb.md.

pk, sk    texts: the partition, and the place in its order
body      bytes of any size; all other attributes are short texts and numbers
parts     the number of parts of a body that is larger than PART_BYTES, and `digest` of it

Parts lie in a partition of their own, named by a hash of the record's keys and the body. They are there before the
record that names them, so a repeated write makes the same. Parts of a body that another one replaces stay.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from sinks.aws_connection import Retry
from sinks.dynamodb.client import DynamoClient, Item
from sinks.dynamodb.fragments import raise_refused
from sinks.dynamodb.schema import SHARED

PART_BYTES = 350_000
"""The most bytes of a body in one item, which takes 400 KB with all attributes."""

MOST_CHANGES = 100
"""Records that one conditional write changes."""

LAST = "\U0010ffff"
"""Sorts behind every place."""

Value = str | int | bytes
Row = dict[str, Any]
"""A record: values by attribute, with its keys `pk` and `sk`."""
Key = tuple[str, str]
Seen = Mapping[str, Value | None]
"""What must be there for a conditional write: values by attribute; None where there must be no such attribute."""

ABSENT: Seen = {"pk": None}


class DynamoRecords:
    """The records of one place. Safe for several threads and processes; raises StoreError."""

    def __init__(self, client: DynamoClient) -> None:
        """`client` is closed with it."""
        self._client = client
        self._table = client.table(SHARED)
        self.each = client.each
        self.close = client.close
        self.check_open = client.check_open

    def get(self, keys: Collection[Key], bodies: bool = True) -> dict[Key, Row]:
        """The records of these keys that there are; without `bodies` no parts are read."""
        found = {}
        for item in self._client.get(SHARED, [_wire_key(each) for each in set(keys)]):
            row = self._whole(_row(item)) if bodies else _row(item)
            if row is not None:
                found[key_of(row)] = row
        return found

    def one(self, pk: str, sk: str) -> Row | None:
        """One of them."""
        return self.get([(pk, sk)]).get((pk, sk))

    def rows(
        self,
        pk: str,
        first: str = "",
        last: str = LAST,
        backward: bool = False,
        only: Collection[str] = (),
        where: Seen | None = None,
        page: int | None = None,
    ) -> Iterator[Row]:
        """The records of a partition from one place to another, both included, in order, page by page of at most `page`.
        `only` names the attributes to read, without which bodies come too; `where` those that must be as given."""
        names: dict[str, str] = {}
        values: Item = {":pk": {"S": pk}, ":first": {"S": first or "\0"}, ":last": {"S": last}}
        request: dict[str, Any] = {"ScanIndexForward": not backward, "ConsistentRead": True}
        if page is not None:
            request["Limit"] = page
        if only:
            request["ProjectionExpression"] = ", ".join(
                _named(names, each) for each in dict.fromkeys(("pk", "sk", *only))
            )
        if where:
            request["FilterExpression"] = _condition(where, names, values)
        if names:
            request["ExpressionAttributeNames"] = names
        items = self._client.query(
            "query",
            SHARED,
            KeyConditionExpression="pk = :pk AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues=values,
            **request,
        )
        for row in map(_row, items):
            whole = row if only else self._whole(row)
            if whole is not None:
                yield whole

    def put(self, rows: Sequence[Row]) -> None:
        """Put records, whatever is there; no key twice. Durable when it returns."""
        prepared = [self._with_parts(each) for each in rows]
        self._client.put(SHARED, [{"PutRequest": {"Item": _wire(each)}} for each in prepared])

    def delete(self, rows: Sequence[Row]) -> None:
        """Delete records, whatever is there now, then the parts that they had when they were read without bodies."""
        for keys in (map(key_of, rows), (key for row in rows for key in _part_keys(row))):
            self._client.put(SHARED, [{"DeleteRequest": {"Key": _wire_key(each)}} for each in keys])

    def change(self, puts: Sequence[tuple[Row, Seen]] = (), deletes: Sequence[tuple[Key, Seen]] = ()) -> bool:
        """Make all of these changes, at most MOST_CHANGES, if all records are as seen; else none. Says whether it did."""
        actions = [
            *({"Put": {"Item": _wire(self._with_parts(row))} | self._if(seen)} for row, seen in puts),
            *({"Delete": {"Key": _wire_key(key)} | self._if(seen)} for key, seen in deletes),
        ]
        if not actions:
            return True
        refusals = self._client.transact(SHARED, actions)
        raise_refused(self._table, refusals)
        return not refusals

    def _if(self, seen: Seen) -> Item:
        names: dict[str, str] = {}
        values: Item = {}
        found: Item = {"TableName": self._table}
        if seen:
            found["ConditionExpression"] = _condition(seen, names, values)
            found["ExpressionAttributeNames"] = names
        return found | ({"ExpressionAttributeValues": values} if values else {})

    def _with_parts(self, row: Row) -> Row:
        body = row.get("body", b"")
        if len(body) <= PART_BYTES:
            return row
        pieces = [body[start : start + PART_BYTES] for start in range(0, len(body), PART_BYTES)]
        small: Row = {name: value for name, value in row.items() if name != "body"}
        small |= {"parts": len(pieces), "digest": hashlib.sha256(body).digest()}
        items = [
            _wire({"pk": pk, "sk": sk, "body": piece})
            for (pk, sk), piece in zip(_part_keys(small), pieces, strict=True)
        ]
        # Few at once: one request takes 16 MB.
        self._client.put(SHARED, [{"PutRequest": {"Item": each}} for each in items])
        return small

    def _whole(self, row: Row) -> Row | None:
        """The record with its body; None for one that was removed between the two."""
        keys = _part_keys(row)
        found = {
            key_of(each): each["body"]
            for each in map(_row, self._client.get(SHARED, [_wire_key(each) for each in keys]))
        }
        if len(found) < len(keys):
            return None
        return row | {"body": b"".join(found[key] for key in keys)} if keys else row


def key_of(row: Row) -> Key:
    """The keys of a record."""
    return row["pk"], row["sk"]


def shard_of(text: str, shards: int) -> int:
    """The shard of many records, by a hash of their name."""
    return hashlib.sha256(text.encode()).digest()[0] % shards


def retried(attempt: Callable[[], bool], what: str) -> None:
    """Make a conditional write until it is not refused. Raises StoreError."""
    retry = Retry(what)
    while not attempt():
        retry.pause("others change it all the time")


def _part_keys(row: Row) -> list[Key]:
    pk, sk = key_of(row)
    place = hashlib.sha256(f"{len(pk)} {pk}{sk}".encode() + row.get("digest", b"")).hexdigest()
    return [(f"parts {place}", f"{number:06}") for number in range(row.get("parts", 0))]


def _condition(seen: Seen, names: dict[str, str], values: Item) -> str:
    conditions = []
    for attribute, value in seen.items():
        name = _named(names, attribute)
        if value is None:
            conditions.append(f"attribute_not_exists({name})")
        else:
            values[f":seen{len(values)}"] = _encoded(value)
            conditions.append(f"{name} = :seen{len(values) - 1}")
    return " AND ".join(conditions)


def _named(names: dict[str, str], attribute: str) -> str:
    # Many of DynamoDB's words are reserved.
    names[f"#{attribute}"] = attribute
    return f"#{attribute}"


def _wire_key(key: Key) -> Item:
    return {"pk": {"S": key[0]}, "sk": {"S": key[1]}}


def _wire(row: Row) -> Item:
    return {name: _encoded(value) for name, value in row.items()}


def _encoded(value: Value) -> dict[str, Any]:
    if isinstance(value, str):
        return {"S": value}
    return {"N": str(value)} if isinstance(value, int) else {"B": value}


def _row(item: Item) -> Row:
    return {name: _decoded(value) for name, value in item.items()}


def _decoded(value: Mapping[str, Any]) -> Value:
    ((kind, held),) = value.items()
    if kind == "S":
        return str(held)
    return int(held) if kind == "N" else bytes(held)
