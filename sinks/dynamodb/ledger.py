"""The ledger in DynamoDB: in the links table, once under the fragment and once in a list of all, which is sharded.

pk        the fragment's, or the list's, both longer than a keyed hash      profiles   the two profiles' names
sk        at_ms (8 bytes), the fragment's name, the epoch (4 bytes): the cursor

An assignment and its two entries are one transaction. Several projections write at once, so that an entry can come a
moment after a later one: the list is read up to a minute ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice

from idgraph.model.errors import QueryError
from idgraph.model.ledger import LedgerEntry
from idgraph.model.tombstones import TombstoneNames
from sinks.dynamodb import items
from sinks.dynamodb.client import DynamoClient, Item, Statement
from sinks.dynamodb.leases import now_ms
from sinks.dynamodb.schema import LINKS, SHARDS

_LIST = b"all of the ledger beside links, shard "
_OF_FRAGMENT = b"the ledger beside links: "
_HELD_BACK_MS = 60_000


class DynamoLedger:
    """Of one links table. What the methods promise stands in `Ledger`."""

    def __init__(self, client: DynamoClient, names: TombstoneNames) -> None:
        self._client = client
        self._names = names
        self._table = client.table(LINKS)

    def statements(self, entry: LedgerEntry) -> list[Statement]:
        """What appends an entry."""
        at_ms, name, epoch, previous, profile, _ = entry
        sort_key = at_ms.to_bytes(8, "big") + name + epoch.to_bytes(4, "big")
        text = f"INSERT INTO \"{self._table}\" VALUE {{'pk': ?, 'sk': ?, 'profiles': ?}}"
        keys = (_OF_FRAGMENT + name, _LIST + items.shard(name)["N"].encode())
        return [Statement(text, [{"B": each}, {"B": sort_key}, {"B": previous + profile}]) for each in keys]

    def after(self, cursor: str, limit: int) -> list[LedgerEntry]:
        try:
            begin = bytes.fromhex(cursor) + b"\0"
        except ValueError:
            raise QueryError("this is no cursor of the ledger") from None
        end = (now_ms() - _HELD_BACK_MS).to_bytes(8, "big")
        if begin >= end:
            return []
        bounds = {":begin": {"B": begin}, ":end": {"B": end}}

        def part(shard: int) -> list[LedgerEntry]:
            key, condition = _LIST + b"%d" % shard, " AND sk BETWEEN :begin AND :end"
            return list(islice(self._query(key, condition, bounds, Limit=limit), limit))

        found = chain.from_iterable(self._client.each(part, range(SHARDS)))
        return sorted(found, key=lambda entry: entry.cursor)[:limit]

    def of(self, fragment_ids: Sequence[str]) -> list[LedgerEntry]:
        keys = [_OF_FRAGMENT + self._names(each) for each in fragment_ids]
        found = self._client.each(lambda key: list(self._query(key)), keys)
        return sorted(chain.from_iterable(found), key=lambda entry: entry.cursor)

    def _query(
        self, key: bytes, condition: str = "", bounds: Item | None = None, **request: object
    ) -> Iterator[LedgerEntry]:
        found = self._client.query(
            "query",
            LINKS,
            KeyConditionExpression=f"pk = :pk{condition}",
            ExpressionAttributeValues={":pk": {"B": key}, **(bounds or {})},
            ConsistentRead=True,
            **request,
        )
        for item in found:
            sort_key, profiles = bytes(item["sk"]["B"]), bytes(item["profiles"]["B"])
            half = len(profiles) // 2
            yield LedgerEntry(
                int.from_bytes(sort_key[:8], "big"),
                sort_key[8:-4],
                int.from_bytes(sort_key[-4:], "big"),
                profiles[:half],
                profiles[half:],
                sort_key.hex(),
            )
