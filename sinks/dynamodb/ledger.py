"""The ledger in DynamoDB: in the links table, once under the fragment and once in a list of all, which is sharded.

pk        the fragment's, or the list's, both longer than a keyed hash      profiles   the two profiles' names
sk        at_ms (8 bytes), the fragment's name, the epoch (4 bytes): the cursor

A crossing has its number as epoch, its segment as an attribute and at the end of the cursor, its cause as `cause`, and its profile's item under
the segment and the number, which is there once. The last change has its item under the segment, with its number and the
cursors of those in the list, as `places`; in these a change's number has eight bytes.

An assignment and its two entries are one transaction, and so are the two of a crossing. Several projections write at once, so that an entry can come a
moment after a later one: the list is read up to a minute ago. So a change adds nothing to one that is younger than half of
that: whoever reads that one later finds the profile changed. It stays until all can have read it; what two writers or a crash
leave, stays for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import cast

from idgraph.model.errors import QueryError
from idgraph.model.ledger import CHANGES, Cause, Crossing, LedgerEntry
from sinks.dynamodb import items
from sinks.dynamodb.client import Item, Statement
from sinks.dynamodb.fragments import DynamoTables
from sinks.dynamodb.leases import now_ms
from sinks.dynamodb.schema import LINKS, SHARDS

_LIST = b"all of the ledger beside links, shard "
_OF_FRAGMENT = b"the ledger beside links: "
_CROSSED = b"the segments of a profile beside links: "
_HELD_BACK_MS = 60_000
_LOOKED_AT = 1000


class DynamoLedger(DynamoTables):
    """`Ledger` says what the methods promise."""

    def ledger_statements(self, entry: LedgerEntry) -> list[Statement]:
        """The statements that append an entry."""
        at_ms, name, epoch, previous, profile, _ = entry
        sort_key = at_ms.to_bytes(8, "big") + name + epoch.to_bytes(4, "big")
        text = f"INSERT INTO \"{self.client.table(LINKS)}\" VALUE {{'pk': ?, 'sk': ?, 'profiles': ?}}"
        keys = (_OF_FRAGMENT + name, _LIST + items.shard(name)["N"].encode())
        return [Statement(text, [{"B": each}, {"B": sort_key}, {"B": previous + profile}]) for each in keys]

    def cross(self, crossings: Sequence[Crossing]) -> None:
        def statements(each: Crossing) -> list[Statement]:
            listed, segment = self._listed(each), each.segment.encode()
            names = ", ".join(f"'{name}': ?" for name in listed)
            text = f'INSERT INTO "{self.client.table(LINKS)}" VALUE {{{names}}}'
            own = listed | {
                "pk": {"B": _CROSSED + self.names(str(each.profile))},
                "sk": {"B": segment + each.number.to_bytes(4, "big")},
            }
            return [Statement(text, list(item.values())) for item in (own, listed)]

        # One that is refused was there.
        once = [statements(each) for each in crossings if not each.is_change]
        self.client.each(partial(self.client.execute_whole, LINKS), once)
        self._change([each for each in crossings if each.is_change])

    def _listed(self, each: Crossing) -> Item:
        name, segment = self.names(str(each.profile)), each.segment.encode()
        number = each.number.to_bytes(_number_bytes(each.segment), "big")
        return {
            "pk": {"B": _LIST + items.shard(name)["N"].encode()},
            "sk": {"B": each.at_ms.to_bytes(8, "big") + name + number + segment},
            "segment": {"S": each.segment},
            **({"cause": {"S": each.cause}} if each.cause else {}),
        }

    def _change(self, changes: Sequence[Crossing]) -> None:
        """The earlier ones go last: what a crash leaves is one too many."""
        keys = [
            {"pk": {"B": _CROSSED + self.names(str(each.profile))}, "sk": {"B": each.segment.encode()}}
            for each in changes
        ]
        stored = self.client.get(LINKS, keys)
        rows = {(bytes(each["pk"]["B"]), bytes(each["sk"]["B"])): each for each in stored}
        listed, last, earlier = [], [], []
        for key, each in zip(keys, changes, strict=True):
            row = rows.get((key["pk"]["B"], key["sk"]["B"]), {})
            if row and _number(row) >= each.number:
                continue
            item = self._listed(each)
            places = row.get("places", {"L": []})["L"]
            if not places or _at_ms(places[-1]) < each.at_ms - _HELD_BACK_MS // 2:
                listed.append(item)
                places.append(item["sk"])
            passed = [one for one in places[:-1] if _at_ms(one) < each.at_ms - 2 * _HELD_BACK_MS]
            earlier += [{"pk": item["pk"], "sk": one} for one in passed]
            recent = {"L": [one for one in places if one not in passed]}
            last.append(
                key | {"segment": item["segment"], "number": {"N": str(each.number)}, "places": recent}
            )
        for batch in (listed, last):
            self.client.put(LINKS, [{"PutRequest": {"Item": each}} for each in batch])
        self.client.put(LINKS, [{"DeleteRequest": {"Key": each}} for each in earlier])

    def crossed(self, fragment_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        def numbers(fragment_id: str) -> dict[str, int]:
            found = self._ledger_items(_CROSSED + self.names(fragment_id))
            # Sorted by number within a segment: the last one stays.
            return {each["segment"]["S"]: _number(each) for each in found}

        found = zip(fragment_ids, self.client.each(numbers, fragment_ids), strict=True)
        return {name: each for name, each in found if each}

    def ledger(
        self, after: str = "", limit: int = 1000, segment: str | None = None, has_changes: bool = True
    ) -> list[LedgerEntry | Crossing]:
        try:
            begin = bytes.fromhex(after) + b"\0"
        except ValueError:
            raise QueryError("this is no cursor of the ledger") from None
        end = bytes.fromhex(self.ledger_end(""))
        if begin >= end:
            return []
        bounds: Item = {":begin": {"B": begin}, ":end": {"B": end}}

        # Few of the items that are looked at may be shown.
        only: dict[str, object] = {
            "Limit": limit if segment is None and has_changes else max(limit, _LOOKED_AT)
        }
        if segment is not None:
            bounds |= {":segment": {"S": segment}, ":changes": {"S": segment + CHANGES * has_changes}}
            only["FilterExpression"] = "#segment IN (:segment, :changes)"
            only["ExpressionAttributeNames"] = {"#segment": "segment"}
        elif not has_changes:
            bounds[":changes"] = {"S": CHANGES}
            only["FilterExpression"] = "NOT contains(#segment, :changes)"
            only["ExpressionAttributeNames"] = {"#segment": "segment"}

        def part(shard: int) -> list[LedgerEntry | Crossing]:
            key, condition = _LIST + b"%d" % shard, " AND sk BETWEEN :begin AND :end"
            return list(islice(map(_entry, self._ledger_items(key, condition, bounds, **only)), limit))

        found = chain.from_iterable(self.client.each(part, range(SHARDS)))
        return sorted(found, key=lambda entry: entry.cursor)[:limit]

    def ledger_end(self, after: str) -> str:
        # Longer than a moment, as all cursors are.
        return max(after, ((now_ms() - _HELD_BACK_MS).to_bytes(8, "big") + bytes(8)).hex())

    def ledger_of(self, fragment_ids: Sequence[str]) -> list[LedgerEntry]:
        keys = [_OF_FRAGMENT + self.names(each) for each in fragment_ids]
        found = self.client.each(lambda key: list(map(_entry, self._ledger_items(key))), keys)
        entries = (each for each in chain.from_iterable(found) if isinstance(each, LedgerEntry))
        return sorted(entries, key=lambda entry: entry.cursor)

    def _ledger_items(
        self, key: bytes, condition: str = "", bounds: Item | None = None, **request: object
    ) -> Iterator[Item]:
        return self.client.query(
            "query",
            LINKS,
            KeyConditionExpression=f"pk = :pk{condition}",
            ExpressionAttributeValues={":pk": {"B": key}, **(bounds or {})},
            ConsistentRead=True,
            **request,
        )


def _number_bytes(segment: str) -> int:
    return 8 if segment.endswith(CHANGES) else 4


def _number(item: Item) -> int:
    """The number in a crossing's own item."""
    return (
        int(item["number"]["N"]) if "number" in item else int.from_bytes(bytes(item["sk"]["B"])[-4:], "big")
    )


def _at_ms(place: Item) -> int:
    return int.from_bytes(bytes(place["B"])[:8], "big")


def _entry(item: Item) -> LedgerEntry | Crossing:
    sort_key = bytes(item["sk"]["B"])
    segment = item["segment"]["S"] if "segment" in item else ""
    end = len(sort_key) - len(segment.encode())
    begin = end - _number_bytes(segment)
    at_ms, name = int.from_bytes(sort_key[:8], "big"), sort_key[8:begin]
    number = int.from_bytes(sort_key[begin:end], "big")
    if segment:
        cause = cast("Cause", item["cause"]["S"] if "cause" in item else "")
        return Crossing(at_ms, name, segment, number, sort_key.hex(), cause)
    profiles = bytes(item["profiles"]["B"])
    half = len(profiles) // 2
    return LedgerEntry(at_ms, name, number, profiles[:half], profiles[half:], sort_key.hex())
