"""Pages of timelines and due entries in DynamoDB, in the links table.

pk        the fragment's, longer than a keyed hash
sk        of a part of a page: the activity, a zero byte, the day (8 bytes) and the part's number (1 byte)
page      the part: a page is compressed where that helps, and has one part where it is small
revision  the version of the fragment that it was written with      parts  in the first of several, their number

Pages are written in one transaction with their fragment's item, so a writer that loses, or is killed, leaves none. An erasure
notes in the item up to which version its pages are gone (`emptied`), and removes them when it is finished: in between, and for
a fragment that comes again, older ones do not count.

A due entry is an item of its fragment's, with the moment (`due_ms`) and the document's version (`revision`), and one of a
list, which is sharded: its sk is the moment, the fragment's name and the version. It enters the list first, and is removed
from it last. An entry that a crash leaves in the list is projected once more, without effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from idgraph.model.errors import UnstorableError
from idgraph.model.store import NEW, FragmentWrite
from idgraph.model.timelines import BEGINNING, EVERY_DAY, DueEntry, PageKey, Since
from sinks.aws_connection import Retry
from sinks.dynamodb import items
from sinks.dynamodb.client import Item, Statement
from sinks.dynamodb.fragments import DynamoTables, raise_refused
from sinks.dynamodb.schema import FRAGMENTS, LINKS, SHARDS

_OF_FRAGMENT = b"the timelines beside links: "
_DUE = b"when it is due beside links: "
_DUE_LIST = b"all that is due beside links, shard "

_PART_BYTES = 350_000
_MOST_PARTS = 10
_AT_ONCE = 100
"""Items of one transaction."""
_MOST_BYTES = 3_400_000
"""Bytes of the parts of pages in one transaction, which takes 4 MB, the fragment with all its identifiers among them."""
_BYTES_TOGETHER = 2_000_000
"""Bytes of a transaction of several fragments, whose identifiers are not known."""
_TOGETHER = 1000
"""Parts of the fragments of one request. If there are more, each fragment is asked for by itself."""

_DAYS = 1 << 63

OVERSIZED = f"a page of a timeline has more than the {_PART_BYTES * _MOST_PARTS:,} bytes that it may have"

_Stem = tuple[bytes, bytes]
"""The key of a page without the number of a part."""


class DynamoTimelines(DynamoTables):
    """`Timelines` says what the methods promise."""

    def pages(self, keys: Collection[tuple[str, PageKey]]) -> dict[tuple[str, PageKey], bytes]:
        stems = {(_OF_FRAGMENT + self.names(each), _stem(key)): (each, key) for each, key in keys}
        found = self.client.get(LINKS, [_key(each) for each in stems])
        return {stems[stem]: page for stem, page in self._that_count(found)}

    def timelines(
        self, ids: Collection[str], activities: Collection[str] | None = None, since: Since = EVERY_DAY
    ) -> dict[str, dict[PageKey, bytes]]:
        names = {_OF_FRAGMENT + self.names(each): each for each in ids}
        read: list[Item] = []
        large: list[bytes] = []
        for some, found in self.client.partitions(LINKS, list(names), _TOGETHER):
            read += found or ()
            large += () if found is not None else some
        for each in self.client.each(lambda name: list(self._parts(name)), large):
            read += each
        timelines: dict[str, dict[PageKey, bytes]] = defaultdict(dict)
        for (name, stem), page in self._that_count(read):
            key = _page_key(stem)
            if activities is None or key.activity in activities:
                is_cut = key.day < since.get(key.activity, key.day)
                timelines[names[name]][key] = page[:BEGINNING] if is_cut else page
        return dict(timelines)

    def plan(self, due: Collection[DueEntry]) -> None:
        left = {self.names(each.fragment_id): each for each in due}
        retry = Retry(self.table)
        while left := self._plan(left):
            retry.pause("due entries keep changing")

    def take_due(self, now_ms: int, limit: int) -> int:
        number = 0
        # Those of fragments that are gone do not count.
        while number < limit and (listed := self._listed_until(now_ms, limit - number)):
            number += self._enqueue({each.name for each in listed})
            self._forget_due(listed)
        return number

    def enqueue(self, ids: Sequence[str]) -> None:
        self._enqueue({self.names(each) for each in ids})

    def _enqueue(self, names: Collection[bytes]) -> int:
        """Gives the number of fragments that exist."""
        text = f'UPDATE "{self.table}" SET waiting=? SET revision=revision+1 WHERE pk=? AND revision>?'  # noqa: S608 - a table's name
        statements = [
            Statement(text, [items.shard(name), {"B": name}, items.number(NEW)]) for name in sorted(names)
        ]
        refusals = self.client.execute(FRAGMENTS, statements)
        raise_refused(self.table, refusals)
        return refusals.count(None)

    def _plan(self, due: Mapping[bytes, DueEntry]) -> dict[bytes, DueEntry]:
        """Gives those whose present entry changed meanwhile."""
        present = {
            each.name: each for each in map(_due, self.client.get(LINKS, [_due_key(name) for name in due]))
        }
        changed = {
            name: _Due(name, at_ms, version)
            for name, (_, at_ms, version) in due.items()
            if (seen := present.get(name, _Due(name, 0, 0))).version <= version
            and (at_ms, version) != seen[1:]
            and (at_ms or name in present)
        }
        self.client.put(
            LINKS, [{"PutRequest": {"Item": each.listed}} for each in changed.values() if each.at_ms]
        )
        refusals = self.client.execute(
            LINKS, [self._replace_due(present.get(name), each) for name, each in changed.items()]
        )
        raise_refused(self.table, refusals)
        refused = {name for name, refusal in zip(changed, refusals, strict=True) if refusal}
        replaced = [present[name].listed for name in changed if name in present and name not in refused]
        self.client.put(LINKS, [{"DeleteRequest": {"Key": each}} for each in replaced])
        return {name: due[name] for name in refused}

    def _replace_due(self, seen: _Due | None, due: _Due) -> Statement:
        table = self.client.table(LINKS)
        own, values = list(_due_key(due.name).values()), [items.number(due.at_ms), items.number(due.version)]
        if seen is None:
            text = f"INSERT INTO \"{table}\" VALUE {{'pk': ?, 'sk': ?, 'due_ms': ?, 'revision': ?}}"
            return Statement(text, own + values)
        where = "WHERE pk=? AND sk=? AND due_ms=? AND revision=?"
        own += [items.number(seen.at_ms), items.number(seen.version)]
        if due.at_ms:
            return Statement(f'UPDATE "{table}" SET due_ms=? SET revision=? {where}', values + own)  # noqa: S608 - ours
        return Statement(f'DELETE FROM "{table}" {where}', own)  # noqa: S608 - ours

    def _listed_until(self, now_ms: int, limit: int) -> list[_Due]:
        """The earliest entries of the list; fewer where the shards are far from even."""
        share = min(limit, 2 * limit // SHARDS + 32)

        def of(shard: int) -> list[_Due]:
            bounds = {":pk": {"B": _DUE_LIST + b"%d" % shard}, ":end": {"B": (now_ms + 1).to_bytes(8, "big")}}
            found = self.client.query(
                "query",
                LINKS,
                KeyConditionExpression="pk = :pk AND sk < :end",
                ExpressionAttributeValues=bounds,
                ConsistentRead=True,
                Limit=share,
            )
            return [_listed(item) for item in islice(found, share)]

        found = [each for part in self.client.each(of, range(SHARDS)) for each in part]
        return sorted(found, key=lambda each: each.at_ms)[:limit]

    def _forget_due(self, taken: Sequence[_Due]) -> None:
        """Remove entries, unless they were replaced, then what lists them."""
        # The same item twice in one request is an error.
        newest = {each.name: each for each in sorted(taken, key=lambda each: each.version)}
        gone = [self._replace_due(each, each._replace(at_ms=0)) for each in newest.values()]
        raise_refused(self.table, self.client.execute(LINKS, gone))
        self.client.put(LINKS, [{"DeleteRequest": {"Key": each.listed}} for each in taken])

    def remove_due(self, name: bytes) -> None:
        """Remove the due entry of a fragment that is gone."""
        self._forget_due([_due(item) for item in self.client.get(LINKS, [_due_key(name)])])

    def remove_pages(self, name: bytes, until: int, keys: str = "", values: Item | None = None) -> None:
        """Remove the parts of pages that were written with versions up to `until`. `keys` is a condition on their sort keys."""
        found = self._parts(_OF_FRAGMENT + name, keys, values, ProjectionExpression="pk, sk")
        text = f'DELETE FROM "{self.client.table(LINKS)}" WHERE pk=? AND sk=? AND revision<=?'  # noqa: S608 - ours
        gone = [Statement(text, [item["pk"], item["sk"], items.number(until)]) for item in found]
        raise_refused(self.table, self.client.execute(LINKS, gone))

    def remove_expired(self, name: bytes, write: FragmentWrite) -> None:
        """Remove the pages of a fragment that expired with a write."""
        for activity, day in write.expired.items():
            bounds = {
                ":first": {"B": _stem(PageKey(activity, -_DAYS))},
                ":end": {"B": _stem(PageKey(activity, day))},
            }
            self.remove_pages(name, write.expected_version + 1, " AND sk BETWEEN :first AND :end", bounds)

    def write_with_pages(self, writes: Sequence[PagedWrite]) -> dict[str, str]:
        """Write fragments, each with its pages in one transaction; pages for which that has no room in further ones, each under a
        version of its own. Gives by id the refusals of those that were not written, as `DynamoClient.execute` does."""
        refusals: dict[str, str] = {}
        alone = [each for each in writes if each.is_large]
        for refused, left in self.client.each(self._write_together, _groups(writes)):
            refusals |= refused
            alone += left
        found = zip(alone, self.client.each(self._write_alone, alone), strict=True)
        return refusals | {each.write.id: refusal for each, refusal in found if refusal is not None}

    def _write_together(self, group: list[PagedWrite]) -> tuple[dict[str, str], list[PagedWrite]]:
        """Write them in one transaction, again without those that are refused. Gives these by id, and those that replace a page of
        several parts."""
        refusals: dict[str, str] = {}
        alone: list[PagedWrite] = []
        while group:
            changes = [
                [
                    each.fragment,
                    *chain.from_iterable(
                        self._replace_page(each.name, page, each.write.expected_version + 1)
                        for page in each.pages.items()
                    ),
                ]
                for each in group
            ]
            found = self.client.transact(LINKS, list(chain.from_iterable(changes)))
            if not found:
                break
            answers = iter(found)
            left, group = group, []
            for each, change in zip(left, changes, strict=True):
                own, *pages = islice(answers, len(change))
                if own is not None:
                    refusals[each.write.id] = own
                else:
                    (alone if any(pages) else group).append(each)
        return refusals, alone

    def _write_alone(self, paged: PagedWrite) -> str | None:
        """Gives what it was refused with, by the item of the fragment."""
        left, large = dict(paged.pages), set[PageKey]()
        version, fragment = paged.write.expected_version + 1, paged.fragment
        while True:
            actions: list[Item] = [fragment]
            owners: list[PageKey] = []
            size = 0
            for key, pieces in left.items():
                more = self._replace_page(paged.name, (key, pieces), version, key in large)
                size += sum(map(len, pieces))
                if owners and (len(actions) + len(more) > _AT_ONCE or size > _MOST_BYTES):
                    break
                actions += more
                owners += [key] * len(more)
            own, *pages = self.client.transact(LINKS, actions) or [None]
            if own is not None:
                return own
            if any(pages):
                # They replace pages of several parts.
                large |= {key for key, refusal in zip(owners, pages, strict=True) if refusal}
                continue
            left = {key: pieces for key, pieces in left.items() if key not in owners}
            if not left:
                return None
            fragment = items.raised(self.table, paged.name, version)
            version += 1

    def _replace_page(
        self, name: bytes, page: tuple[PageKey, Sequence[bytes]], version: int, is_large: bool = False
    ) -> list[Item]:
        """The actions that replace a page. One of several parts, or in place of such a one, has all parts replaced or removed; any
        other is refused where one of several parts is there."""
        key, pieces = page
        is_one = len(pieces) < 2 and not is_large
        table: Item = {"TableName": self.client.table(LINKS)}
        if is_one:
            table["ConditionExpression"] = "attribute_not_exists(parts)"
        actions: list[Item] = []
        for number in range(1 if is_one else _MOST_PARTS):
            place = _key((_OF_FRAGMENT + name, _stem(key)), number)
            if number < len(pieces):
                item = place | {"page": {"B": pieces[number]}, "revision": items.number(version)}
                if number == 0 and len(pieces) > 1:
                    item["parts"] = items.number(len(pieces))
                actions.append({"Put": {"Item": item} | table})
            else:
                actions.append({"Delete": {"Key": place} | table})
        return actions

    def _parts(
        self, name: bytes, keys: str = "", values: Item | None = None, **request: Any
    ) -> Iterator[Item]:
        """All parts of the pages of a fragment."""
        return self.client.query(
            "query",
            LINKS,
            KeyConditionExpression=f"pk = :pk{keys}",
            ExpressionAttributeValues={":pk": {"B": name}, **(values or {})},
            ConsistentRead=True,
            **request,
        )

    def _that_count(self, found: Iterable[Item]) -> Iterator[tuple[_Stem, bytes]]:
        """The pages of these parts, whose others are read, that belong to a fragment that is there."""
        whole, torn = _joined(found)
        retry = Retry(self.client.table(LINKS))
        while torn:
            again = [_key(stem, number) for stem in torn for number in range(_MOST_PARTS)]
            joined, torn = _joined(self.client.get(LINKS, again))
            whole |= joined
            if torn:
                retry.pause("pages keep changing")
        since: dict[bytes, int] = {}
        # Behind the pages: what was erased meanwhile does not count.
        if whole and self.any_tombstones():
            names = {name[len(_OF_FRAGMENT) :] for name, _ in whole}
            rows = self.client.get(FRAGMENTS, list(map(items.key, names)), "pk, revision, emptied")
            since = {bytes(row["pk"]["B"]): items.emptied(row) for row in rows if "revision" in row}
            whole = {stem: page for stem, page in whole.items() if stem[0][len(_OF_FRAGMENT) :] in since}
        for (name, stem), (revision, page) in whole.items():
            if revision > since.get(name[len(_OF_FRAGMENT) :], NEW):
                yield (name, stem), page


class PagedWrite:
    """A write with its pages, as they are stored. Raises UnstorableError."""

    def __init__(self, table: str, name: bytes, write: FragmentWrite, carried: frozenset[str]) -> None:
        self.name = name
        self.write = write
        self.fragment = items.update(table, name, write, carried)
        self.pages = {
            key: _pieces(page)
            for key, page in write.pages.items()
            if key.day >= write.expired.get(key.activity, key.day)
        }
        self.bytes = len(write.state) + sum(len(each) for pieces in self.pages.values() for each in pieces)

    @property
    def is_large(self) -> bool:
        """Whether it has a transaction of its own."""
        return (
            len(self.pages) >= _AT_ONCE
            or self.bytes > _BYTES_TOGETHER
            or any(len(pieces) > 1 for pieces in self.pages.values())
        )


def _groups(writes: Iterable[PagedWrite]) -> list[list[PagedWrite]]:
    """Those that share a transaction."""
    groups: list[list[PagedWrite]] = []
    number, size = _AT_ONCE, 0
    for each in writes:
        if each.is_large:
            continue
        number += 1 + len(each.pages)
        size += each.bytes
        if number > _AT_ONCE or size > _BYTES_TOGETHER:
            groups.append([])
            number, size = 1 + len(each.pages), each.bytes
        groups[-1].append(each)
    return groups


def _pieces(page: bytes) -> list[bytes]:
    body = items.pack(page) if page else b""
    if len(body) > _PART_BYTES * _MOST_PARTS:
        raise UnstorableError(OVERSIZED)
    return [body[start : start + _PART_BYTES] for start in range(0, len(body), _PART_BYTES)]


def _joined(parts: Iterable[Item]) -> tuple[dict[_Stem, tuple[int, bytes]], list[_Stem]]:
    """Pages with their versions, and those of which a part is missing or of another version."""
    numbered: dict[_Stem, dict[int, Item]] = defaultdict(dict)
    for item in parts:
        place = bytes(item["sk"]["B"])
        numbered[bytes(item["pk"]["B"]), place[:-1]][place[-1]] = item
    whole: dict[_Stem, tuple[int, bytes]] = {}
    torn: list[_Stem] = []
    for stem, found in numbered.items():
        number = int(found[0]["parts"]["N"]) if 0 in found and "parts" in found[0] else 1
        (revision, *others) = {int(each["revision"]["N"]) for each in found.values()}
        if others or found.keys() != set(range(number)):
            torn.append(stem)
        else:
            pieces = (bytes(found[each]["page"]["B"]) for each in range(number))
            whole[stem] = revision, items.unpack(b"".join(pieces))
    return whole, torn


def _stem(key: PageKey) -> bytes:
    return key.activity.encode() + b"\0" + (key.day + _DAYS).to_bytes(8, "big")


def _page_key(stem: bytes) -> PageKey:
    return PageKey(stem[:-9].decode(), int.from_bytes(stem[-8:], "big") - _DAYS)


def _key(stem: _Stem, number: int = 0) -> Item:
    return {"pk": {"B": stem[0]}, "sk": {"B": stem[1] + bytes([number])}}


class _Due(NamedTuple):
    """A due entry as it is stored."""

    name: bytes
    at_ms: int
    version: int

    @property
    def listed(self) -> Item:
        """The item that lists it."""
        place = self.at_ms.to_bytes(8, "big") + self.name + self.version.to_bytes(8, "big")
        return {"pk": {"B": _DUE_LIST + items.shard(self.name)["N"].encode()}, "sk": {"B": place}}


def _due_key(name: bytes) -> Item:
    return {"pk": {"B": _DUE + name}, "sk": {"B": b"due"}}


def _due(item: Item) -> _Due:
    name = bytes(item["pk"]["B"])[len(_DUE) :]
    return _Due(name, int(item["due_ms"]["N"]), int(item["revision"]["N"]))


def _listed(item: Item) -> _Due:
    place = bytes(item["sk"]["B"])
    return _Due(place[8:-8], int.from_bytes(place[:8], "big"), int.from_bytes(place[-8:], "big"))
