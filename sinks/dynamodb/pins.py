"""Pins in DynamoDB: in the links table, under either identifier, and once in a list of all.

A decision is put under its identifiers first, and into the list last; removed in the same order. After a crash in
between, the same command puts or removes the rest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence

from idgraph.model.pins import PinRecord
from sinks.dynamodb.client import Item
from sinks.dynamodb.fragments import DynamoTables
from sinks.dynamodb.schema import LINKS

_LIST = b"all pins beside links: "
"""Key of the list: longer than a keyed hash, hence no identifier's."""


class DynamoPins(DynamoTables):
    """`Pins` says what the methods promise."""

    def add_pins(self, pins: Sequence[PinRecord]) -> None:
        # Each once: DynamoDB refuses a batch with two items of one key. Identifiers that are hashed now may be one.
        new = list(dict.fromkeys(pins))
        of_identifiers = [
            self._pin_item(self._pin_key(identifier), each)
            for each in new
            for identifier in {each.low, each.high}
        ]
        self.client.put(LINKS, [{"PutRequest": {"Item": item}} for item in of_identifiers])
        self.client.put(LINKS, [{"PutRequest": {"Item": self._pin_item(_LIST, each)}} for each in new])

    def pins_of(self, identifiers: Sequence[str]) -> list[PinRecord]:
        if not any(True for _ in self._query_pins(_LIST, 1)):
            return []
        found = self.client.each(lambda each: list(self._query_pins(self._pin_key(each))), identifiers)
        return list({pin for some in found for pin in some})

    def pins(self) -> Iterator[PinRecord]:
        return self._query_pins(_LIST)

    def drop_pins(self, identifiers: Sequence[str]) -> None:
        named = set(identifiers)
        listed = (pin for pin in self.pins() if not named.isdisjoint(pin[:2]))
        found = sorted({*self.pins_of(identifiers), *listed})
        self._delete_pins((self._pin_key(name), pin) for pin in found for name in {pin.low, pin.high})
        # Last: what a crash leaves is found by it.
        self._delete_pins((_LIST, pin) for pin in found)

    def _delete_pins(self, found: Iterable[tuple[bytes, PinRecord]]) -> None:
        keys = [{"pk": {"B": name}, "sk": {"B": _sort_key(pin)}} for name, pin in found]
        self.client.put(LINKS, [{"DeleteRequest": {"Key": key}} for key in keys])

    def _pin_key(self, identifier: str) -> bytes:
        return b"pins: " + self.names(identifier)

    def _pin_item(self, name: bytes, pin: PinRecord) -> Item:
        return {"pk": {"B": name}, "sk": {"B": _sort_key(pin)}, "pin": {"S": json.dumps(pin)}}

    def _query_pins(self, name: bytes, limit: int | None = None) -> Iterator[PinRecord]:
        found = self.client.query(
            "query",
            LINKS,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"B": name}},
            ConsistentRead=True,
            **({} if limit is None else {"Limit": limit}),
        )
        return (PinRecord._make(json.loads(item["pin"]["S"])) for item in found)


def _sort_key(pin: PinRecord) -> bytes:
    return hashlib.sha256(json.dumps(pin).encode()).digest()
