"""The tables of fragments and links in DynamoDB: one fragment's item at a time, read, and changed if it is still what was seen."""

from __future__ import annotations

from collections.abc import Iterable

from idgraph.model.store import NEW
from idgraph.model.tombstones import NO_EPOCH, Tombstone, TombstoneNames
from sinks.dynamodb import items
from sinks.dynamodb.client import REFUSED, DynamoClient, Item
from sinks.dynamodb.connection import DynamoRefusedError, TablesLocation
from sinks.dynamodb.schema import ERASED, FRAGMENTS, LINKS, SHARDS

_ANY = b"there are tombstones"
"""Key of an item that says so: longer than a keyed hash, hence no fragment's."""

_NONE = Tombstone(NO_EPOCH, NEW)


GONE = "fragment=:f, waiting=:w REMOVE identifiers, revision, body, profile, epoch"
"""The end of a SET that takes a fragment out of its item. The id stays as long as the outbox has it."""


def gone_values(fragment_id: str, name: bytes) -> Item:
    """The values of `GONE`."""
    return {":f": {"S": fragment_id}, ":w": items.shard(name)}


def raise_refused(table: str, refusals: Iterable[str | None]) -> None:
    """Raises DynamoRefusedError when one has another reason than a condition that did not hold."""
    for refusal in refusals:
        if refusal not in (None, REFUSED):
            raise DynamoRefusedError(table, str(refusal), {})


def tombstone_of(item: Item) -> Tombstone:
    """The tombstone of an item, whose version a new fragment continues."""
    return (
        Tombstone(int(item["tombstone_until"]["N"]), int(item["tombstone_version"]["N"]))
        if "tombstone_until" in item
        else _NONE
    )


def values_of(tombstone: Tombstone) -> Item:
    """A tombstone as `:b` and `:v` of an expression."""
    return {":b": items.number(tombstone.until), ":v": items.number(tombstone.version)}


class DynamoTables:
    """The fragments table and the links table of one place. `names` hashes ids and identifiers: the keys of all items.
    Nothing is opened before the first use."""

    def __init__(self, place: TablesLocation, names: TombstoneNames) -> None:
        self.client = DynamoClient(place)
        self.names = items.checked(names)
        self.table = self.client.table(FRAGMENTS)
        self._seen_any = False

    def any_tombstones(self) -> bool:
        """Whether there was ever any. One small read as long as there was none."""
        self._seen_any = self._seen_any or bool(self.client.get(FRAGMENTS, [items.key(_ANY)]))
        return self._seen_any

    def mark_any(self) -> None:
        """To be called before the first tombstone is made."""
        if not self._seen_any:
            self.client.put(FRAGMENTS, [{"PutRequest": {"Item": items.key(_ANY)}}])
            self._seen_any = True

    def item(self, name: bytes) -> Item:
        """All of an item, empty if there is none."""
        (found,) = self.client.get(FRAGMENTS, [items.key(name)]) or ({},)
        return found

    def update(self, name: bytes, seen: Item, change: str, values: Item) -> bool:
        """Change an item if what decides about it is still what was seen."""
        conditions = []
        expected: Item = {}
        for attribute in (
            "revision",
            "epoch",
            "tombstone_until",
            "tombstone_version",
            "unfinished",
            "withdrawn",
        ):
            if attribute in seen:
                conditions.append(f"{attribute} = :seen_{attribute}")
                expected[f":seen_{attribute}"] = seen[attribute]
            else:
                conditions.append(f"attribute_not_exists({attribute})")
        given = {**values, **expected}
        try:
            self.client.call(
                "update_item",
                self.table,
                TableName=self.table,
                Key=items.key(name),
                UpdateExpression=change,
                ConditionExpression=" AND ".join(conditions),
                ReturnConsumedCapacity="TOTAL",
                **({"ExpressionAttributeValues": given} if given else {}),
            )
        except DynamoRefusedError as error:
            if error.code == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def unlink(self, identifier: str, name: bytes, version: int) -> None:
        """Take away the links from an identifier that writes up to this version made. A later fragment of the same
        id has links of its own, with higher versions."""
        links = self.client.query(
            "query",
            LINKS,
            KeyConditionExpression="pk = :pk AND sk BETWEEN :first AND :last",
            ExpressionAttributeValues={
                ":pk": {"B": self.names(identifier)},
                ":first": {"B": name + bytes(8)},
                ":last": {"B": name + version.to_bytes(8, "big")},
            },
            ConsistentRead=True,
        )
        self.client.put(LINKS, [{"DeleteRequest": {"Key": link}} for link in links])

    def listed(self) -> list[Item]:
        """All tombstones in their index, which lags by a second or so."""

        def of(shard: int) -> list[Item]:
            return list(
                self.client.query(
                    "query",
                    FRAGMENTS,
                    IndexName=ERASED,
                    KeyConditionExpression="erased = :shard",
                    ExpressionAttributeValues={":shard": items.number(shard)},
                )
            )

        return [item for part in self.client.each(of, range(SHARDS)) for item in part]
