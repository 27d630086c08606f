"""The profile store in DynamoDB. Table design, access patterns and limits: docs/dynamodb.md.

A link from each new identifier is written before the fragment that carries it, and counts only when the fragment says
the same: so no committed fragment is ever without its links. The statement that writes a fragment's item marks it as
waiting for the index.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain, islice

from idgraph.model.errors import UnstorableError
from idgraph.model.store import (
    WHOLE,
    Assignment,
    FragmentWrite,
    OutboxEntry,
    OutboxShare,
    SharedIdentifiers,
    StoredFragment,
)
from idgraph.model.tombstones import Tombstone
from sinks.dynamodb import items
from sinks.dynamodb.client import REFUSED, TOO_LARGE, Item, Statement
from sinks.dynamodb.connection import Capacity
from sinks.dynamodb.erasure import DynamoErasure
from sinks.dynamodb.fragments import raise_refused, tombstone_of
from sinks.dynamodb.ledger import DynamoLedger
from sinks.dynamodb.pins import DynamoPins
from sinks.dynamodb.schema import FRAGMENTS, LINKS, OUTBOX, SHARDS
from sinks.dynamodb.timelines import DynamoTimelines, PagedWrite

_LINKS_AT_ONCE = 1000
_LINKS_TOGETHER = 100
"""Links to the identifiers of one request. If there are more, each identifier is asked for by itself."""

_LEAST_SCANNED = 100
"""Items that a request of a scan looks at: a limit counts tombstones too, so that a smaller one may make a request for
each of them. An answer has 1 MB at most however many they are."""


class DynamoProfileStore(DynamoErasure, DynamoTimelines, DynamoPins, DynamoLedger):
    """A `ProfileStore` in tables that `create_tables` made."""

    def consumed(self) -> Capacity:
        """Read and write capacity units that this store has consumed."""
        return self.client.consumed()

    def read(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        found = self._items(ids, "fragment, revision, body, profile, epoch")
        return {item["fragment"]["S"]: items.stored(item) for item in found if "body" in item}

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        ids_of = {self.names(each): each for each in ids}
        found = self.client.get(
            FRAGMENTS,
            [items.key(name) for name in ids_of],
            "pk, fragment, revision, body, profile, epoch, tombstone_until, tombstone_version",
        )
        tombstoned = {
            ids_of[bytes(item["pk"]["B"])]: tombstone_of(item) for item in found if "tombstone_until" in item
        }
        return {item["fragment"]["S"]: items.stored(item) for item in found if "body" in item}, tombstoned

    def read_with_shared(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], SharedIdentifiers | None]:
        return self.read(ids), None

    def consistent_read(self) -> AbstractContextManager[None]:
        return nullcontext()

    def changes(self) -> None:
        return None

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        named = {write.id: self.names(write.id) for write in writes}
        # Before the first is put: what cannot be stored is reported now.
        links = list(self._links(writes, named))
        carried = {write.id: self.identifiers(write.id) for write in writes if write.dropped}
        alone = [write for write in writes if not write.pages]
        statements = [
            items.statement(
                self.table,
                named[write.id],
                write,
                not items.is_new(write),
                carried.get(write.id, frozenset()),
            )
            for write in alone
        ]
        paged = [
            PagedWrite(self.table, named[write.id], write, carried.get(write.id, frozenset()))
            for write in writes
            if write.pages
        ]
        self.client.put(LINKS, links)
        refused, oversized = self._run(alone, statements)
        # Nothing but a tombstone may be there.
        new = [write for write in alone if write.id in refused and items.is_new(write)]
        if new and self.any_tombstones():
            again = [items.statement(self.table, named[write.id], write, True) for write in new]
            still_refused, too_large = self._run(new, again)
            refused -= {write.id for write in new} - still_refused
            oversized |= too_large
        refusals = self.write_with_pages(paged)
        oversized |= {name for name, refusal in refusals.items() if refusal == TOO_LARGE}
        refused |= refusals.keys() - oversized
        left = refused | oversized
        for write in writes:
            if write.id not in left:
                for identifier in write.dropped:
                    self.unlink(identifier, named[write.id], write.expected_version)
                self.remove_expired(named[write.id], write)
        if oversized:
            # With the identifiers that the item has already, which were not known before.
            raise UnstorableError(items.OVERSIZED, frozenset(oversized), frozenset(refused))
        return refused

    def find(self, identifier: str) -> list[str]:
        return sorted(self._find(identifier, sys.maxsize))

    def _find(self, identifier: str, limit: int) -> list[str]:
        name = self.names(identifier)
        links = self.client.query(
            "query",
            LINKS,
            KeyConditionExpression="pk = :pk",
            ExpressionAttributeValues={":pk": {"B": name}},
            ConsistentRead=True,
        )
        # A fragment's own id needs no link. A fragment has one for each version that added the identifier.
        candidates = chain([name], (bytes(link["sk"]["B"][:-8]) for link in links))
        carriers: dict[str, None] = {}
        while len(carriers) < limit and (page := set(islice(candidates, min(limit + 1, _LINKS_AT_ONCE)))):
            rows = self.client.get(
                FRAGMENTS, [items.key(each) for each in sorted(page)], "fragment, identifiers"
            )
            carriers |= {i["fragment"]["S"]: None for i in rows if identifier in items.identifiers(i)}
        return list(islice(carriers, limit))

    def find_all(self, identifiers: Sequence[str], limit: int) -> dict[str, list[str]]:
        named = {self.names(each): each for each in identifiers}
        # A fragment's own id needs no link.
        linked = {name: {name: None} for name in named}
        alone: list[str] = []
        for names, links in self.client.partitions(LINKS, list(named), _LINKS_TOGETHER):
            if links is None:
                alone += [named[name] for name in names if linked.pop(name)]
            for link in links or ():
                linked[bytes(link["pk"]["B"])][bytes(link["sk"]["B"][:-8])] = None
        # A hub costs no more than its limit.
        tried = {name: list(candidates)[: limit + 1] for name, candidates in linked.items()}
        to_read = {one for candidates in tried.values() for one in candidates}
        fragments = {
            bytes(item["pk"]["B"]): (item["fragment"]["S"], items.identifiers(item))
            for item in self.client.get(FRAGMENTS, list(map(items.key, to_read)), "pk, fragment, identifiers")
            if "fragment" in item
        }
        carriers: dict[str, list[str]] = {}
        for name, candidates in tried.items():
            text = named[name]
            carriers[text] = [
                fragments[one][0] for one in candidates if one in fragments and text in fragments[one][1]
            ][:limit]
            if len(carriers[text]) < limit and len(candidates) < len(linked[name]):
                alone.append(text)
        carriers |= zip(alone, self.client.each(lambda each: self._find(each, limit), alone), strict=True)
        return carriers

    def assign(self, assignments: Sequence[Assignment]) -> set[str]:
        staying: dict[str, Statement] = {}
        leaving: dict[str, list[Statement]] = {}
        for each in assignments:
            update = items.assignment(self.table, self.names(each.fragment_id), each)
            if (entry := each.entry(self.names)) is None:
                staying[each.fragment_id] = update
            else:
                leaving[each.fragment_id] = [update, *self.ledger_statements(entry)]
        refusals = self.client.execute(FRAGMENTS, list(staying.values()))
        refusals += self.client.each(partial(self.client.execute_whole, FRAGMENTS), list(leaving.values()))
        raise_refused(self.table, refusals)
        return {
            name for name, refusal in zip([*staying, *leaving], refusals, strict=True) if refusal is not None
        }

    def fragments_named(self, names: Collection[bytes]) -> dict[bytes, str]:
        found = self.client.get(FRAGMENTS, [items.key(each) for each in names], "pk, fragment, revision")
        return {bytes(item["pk"]["B"]): item["fragment"]["S"] for item in found if "revision" in item}

    def identifiers(self, fragment_id: str) -> frozenset[str]:
        (found,) = self._items([fragment_id], "identifiers") or ({},)
        return items.identifiers(found)

    def scan(self, after: str = "", limit: int = 1000) -> list[StoredFragment]:
        start = {"ExclusiveStartKey": items.key(self.names(after))} if after else {}
        page: list[StoredFragment] = []
        for item in self._scan(
            "fragment, revision, body, profile, epoch", Limit=max(limit, _LEAST_SCANNED), **start
        ):
            page.append(items.stored(item))
            if len(page) == limit:
                break
        return page

    def ids(self) -> Iterator[str]:
        """Held in memory to be sorted: a hundred bytes each."""
        return iter(sorted(item["fragment"]["S"] for item in self._scan("fragment")))

    def count(self) -> int:
        """Reads the whole table, as `scan` does."""
        return sum(1 for _ in self._scan("pk"))

    def outbox(self, limit: int = 1000, after: str = "", share: OutboxShare = WHOLE) -> list[OutboxEntry]:
        """From an index of the table, which follows it within a second or so; in the order of the keyed hashes."""
        behind = self.names(after) if after else b"\0"
        shards = range(share.number, SHARDS, share.of)
        parts = self.client.each(partial(self._waiting, limit, behind), shards)
        waiting = sorted((item for part in parts for item in part), key=lambda item: bytes(item["pk"]["B"]))
        return [items.entry(item) for item in waiting[:limit]]

    def settle(self, entries: Sequence[OutboxEntry]) -> None:
        # The same fragment twice in one request is an error.
        newest = {self.names(each.fragment_id): each.version for each in sorted(entries)}
        refused = self._settle(newest, "REMOVE waiting WHERE pk=? AND revision<=?")
        # Those that are gone, or were written since.
        gone = "REMOVE waiting REMOVE fragment WHERE pk=? AND revision IS MISSING AND tombstone_version<=?"
        self._settle({name: newest[name] for name in refused}, gone)

    def remember(self, mark: str, instead_of: str = "") -> None:
        # First: interrupted in between there is one too many, and never one too few.
        self.client.put(FRAGMENTS, [{"PutRequest": {"Item": items.mark_key(mark)}}])
        if instead_of:
            self.client.put(FRAGMENTS, [{"DeleteRequest": {"Key": items.mark_key(instead_of)}}])

    def remembers(self, mark: str) -> bool:
        return bool(self.client.get(FRAGMENTS, [items.mark_key(mark)], "pk"))

    def name(self, text: str) -> bytes:
        return self.names(text)

    def close(self) -> None:
        self.client.close()

    def _items(self, ids: Sequence[str], attributes: str) -> list[Item]:
        keys = [items.key(name) for name in {self.names(each) for each in ids}]
        return self.client.get(FRAGMENTS, keys, attributes)

    def _links(self, writes: Sequence[FragmentWrite], named: Mapping[str, bytes]) -> Iterator[Item]:
        for write in writes:
            for identifier in write.identifiers - {write.id}:
                link = items.link(self.names, identifier, named[write.id], write.expected_version + 1)
                yield {"PutRequest": {"Item": link}}

    def _run(
        self, writes: Sequence[FragmentWrite], statements: Sequence[Statement]
    ) -> tuple[set[str], set[str]]:
        """Gives those that were refused, and those too large for an item; the others are written."""
        refusals = dict(
            zip((write.id for write in writes), self.client.execute(FRAGMENTS, statements), strict=True)
        )
        raise_refused(self.table, (each for each in refusals.values() if each != TOO_LARGE))
        refused = {each for each, refusal in refusals.items() if refusal == REFUSED}
        return refused, {each for each, refusal in refusals.items() if refusal == TOO_LARGE}

    def _scan(self, attributes: str, **request: object) -> Iterator[Item]:
        return self.client.query(
            "scan",
            FRAGMENTS,
            ConsistentRead=True,
            ProjectionExpression=attributes,
            FilterExpression="attribute_exists(body)",
            **request,
        )

    def _settle(self, versions: Mapping[bytes, int], change: str) -> list[bytes]:
        """Gives those whose condition did not hold."""
        text = f'UPDATE "{self.table}" {change}'
        statements = [
            Statement(text, [{"B": name}, items.number(version)]) for name, version in versions.items()
        ]
        refusals = self.client.execute(FRAGMENTS, statements)
        raise_refused(self.table, refusals)
        return [name for name, refusal in zip(versions, refusals, strict=True) if refusal]

    def _waiting(self, limit: int, behind: bytes, shard: int) -> list[Item]:
        found = self.client.query(
            "query",
            FRAGMENTS,
            IndexName=OUTBOX,
            KeyConditionExpression="waiting = :shard AND pk > :behind",
            ExpressionAttributeValues={":shard": items.number(shard), ":behind": {"B": behind}},
            Limit=limit,
        )
        return [item for _, item in zip(range(limit), found, strict=False)]
