"""Tombstones and erasure in DynamoDB: what is erased of a fragment, and what stays, is one item.

An erasure turns the fragment's item into its tombstone by one conditional update, so a writer that read the
fragment before is refused by the same item. The links to it are keyed hashes; they go when it is finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from idgraph.model.store import NEW
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary, Tombstone
from sinks.aws_connection import Retry
from sinks.dynamodb import items
from sinks.dynamodb.client import Item, Statement
from sinks.dynamodb.fragments import (
    GONE,
    DynamoFragments,
    gone_values,
    raise_refused,
    tombstone_of,
    values_of,
)
from sinks.dynamodb.schema import FRAGMENTS


class DynamoErasure:
    """Of one fragments table and its links. What the methods promise stands in `ProfileStore`."""

    def __init__(self, fragments: DynamoFragments) -> None:
        self._fragments = fragments

    def tombstones(self, ids: Iterable[str]) -> dict[str, Tombstone]:
        """Reads the fragments' items, which costs what reading the fragments costs."""
        if not self._fragments.any_tombstones():
            return {}
        ids_of = {self._fragments.names(each): each for each in ids}
        found = self._fragments.client.get(
            FRAGMENTS, [items.key(name) for name in ids_of], "pk, tombstone_until, tombstone_version"
        )
        return {
            ids_of[bytes(item["pk"]["B"])]: tombstone_of(item) for item in found if "tombstone_until" in item
        }

    def summaries(self, ids: Sequence[str]) -> list[FragmentSummary]:
        names = {each: self._fragments.names(each) for each in ids}
        found = self._fragments.client.get(
            FRAGMENTS,
            [items.key(name) for name in sorted(set(names.values()))],
            "pk, revision, epoch, identifiers, waiting",
        )
        by_name = {bytes(item["pk"]["B"]): item for item in found}
        return [_summary(each, by_name.get(names[each], {})) for each in ids]

    def erase(self, ids: Sequence[str], until: int) -> list[FragmentSummary]:
        self._fragments.mark_any()
        return self._fragments.client.each(lambda each: self._erase(each, until), ids)

    def unfinished(self) -> list[FragmentSummary]:
        names = [bytes(item["pk"]["B"]) for item in self._fragments.listed() if "unfinished" in item]
        found = self._fragments.client.get(FRAGMENTS, [items.key(name) for name in names], "unfinished")
        return sorted(_note(item) for item in found if "unfinished" in item)

    def finish(self, ids: Sequence[str]) -> None:
        self._fragments.client.each(self._finish, ids)

    def all_tombstones(self) -> dict[bytes, Tombstone]:
        return {bytes(item["pk"]["B"]): tombstone_of(item) for item in self._fragments.listed()}

    def reinstate(self, tombstones: Mapping[bytes, Tombstone]) -> int:
        if not tombstones:
            return 0
        self._fragments.mark_any()
        found = self._fragments.client.get(
            FRAGMENTS,
            [items.key(name) for name in tombstones],
            "pk, tombstone_until, tombstone_version, revision, epoch, unfinished, withdrawn",
        )
        by_name = {bytes(item["pk"]["B"]): item for item in found}
        for name, tombstone in tombstones.items():
            self._join(name, tombstone, by_name.get(name, {}))
        return sum("tombstone_until" not in by_name.get(name, {}) for name in tombstones)

    def cancel(self, ids: Sequence[str]) -> int:
        cancelled = "SET tombstone_until=? WHERE pk=? AND tombstone_until>? AND unfinished IS MISSING"
        text = f'UPDATE "{self._fragments.table}" {cancelled}'
        lowest = items.number(NO_EPOCH)
        names = sorted({self._fragments.names(each) for each in ids})
        refusals = self._fragments.client.execute(
            FRAGMENTS, [Statement(text, [lowest, {"B": name}, lowest]) for name in names]
        )
        raise_refused(self._fragments.table, refusals)
        return refusals.count(None)

    def _erase(self, fragment_id: str, until: int) -> FragmentSummary:
        name = self._fragments.names(fragment_id)
        retry = Retry(self._fragments.table)
        while True:
            item = self._fragments.item(name)
            found = _summary(fragment_id, item)
            kept = tombstone_of(item).joined(found.tombstone(until))
            # An erasure that was interrupted took the rest: maybe this one, before the answer to its update was lost.
            noted = _note(item).identifiers if "unfinished" in item else frozenset()
            erased = found._replace(version=kept.version, identifiers=found.identifiers | noted)
            note = json.dumps([fragment_id, erased.version, sorted(erased.identifiers)])
            if self._fragments.update(
                name,
                item,
                f"SET tombstone_until=:b, tombstone_version=:v, erased=:e, unfinished=:n, {GONE}",
                {
                    **values_of(kept),
                    **gone_values(fragment_id, name),
                    ":e": items.shard(name),
                    ":n": {"S": note},
                },
            ):
                return erased
            retry.pause("the fragment keeps changing")

    def _finish(self, fragment_id: str) -> None:
        name = self._fragments.names(fragment_id)
        retry = Retry(self._fragments.table)
        while "unfinished" in (item := self._fragments.item(name)):
            note = _note(item)
            for identifier in note.identifiers:
                self._fragments.unlink(identifier, name, note.version)
            if self._fragments.update(name, item, "REMOVE unfinished", {}):
                return
            retry.pause("the fragment keeps changing")

    def _join(self, name: bytes, tombstone: Tombstone, item: Item) -> None:
        retry = Retry(self._fragments.table)
        while not ("tombstone_until" in item and (kept := tombstone_of(item)) == kept.joined(tombstone)):
            kept = tombstone_of(item).joined(tombstone)
            values = {**values_of(kept), ":e": items.shard(name)}
            if self._fragments.update(
                name, item, "SET tombstone_until=:b, tombstone_version=:v, erased=:e", values
            ):
                return
            retry.pause("the fragment keeps changing")
            item = self._fragments.item(name)


def _summary(fragment_id: str, item: Item) -> FragmentSummary:
    version = int(item["revision"]["N"]) if "revision" in item else NEW
    return FragmentSummary(
        fragment_id, version, items.identifiers(item), "waiting" in item, items.epoch(item)
    )


def _note(item: Item) -> FragmentSummary:
    fragment_id, version, identifiers = json.loads(item["unfinished"]["S"])
    return FragmentSummary(fragment_id, version, frozenset(identifiers), False)
