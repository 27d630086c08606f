"""Tombstones, erasure and withdrawal in DynamoDB: what is removed of a fragment, and what stays, is one item.

An erasure turns the fragment's item into its tombstone by one conditional update, so a writer that read the
fragment before is refused by the same item. So does a withdrawal, whose content is stored under another id. A note in
the item keeps the id and the identifiers: the links from these, keyed hashes, and the pages of timelines go when it is finished.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from idgraph.model.store import NEW
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary, Tombstone
from sinks.aws_connection import Retry
from sinks.dynamodb import items
from sinks.dynamodb.client import Item, Statement
from sinks.dynamodb.fragments import (
    GONE,
    gone_values,
    raise_refused,
    tombstone_of,
    values_of,
)
from sinks.dynamodb.schema import FRAGMENTS
from sinks.dynamodb.timelines import DynamoTimelines

UNFINISHED, WITHDRAWN = "unfinished", "withdrawn"
"""Attributes of an item that hold a note: fragment, version and identifiers, as JSON."""


class DynamoErasure(DynamoTimelines):
    """`ProfileStore` says what the methods promise."""

    def tombstones(self, ids: Iterable[str]) -> dict[str, Tombstone]:
        """Reads the fragments' items, which costs what reading the fragments costs."""
        if not self.any_tombstones():
            return {}
        ids_of = {self.names(each): each for each in ids}
        found = self.client.get(
            FRAGMENTS, [items.key(name) for name in ids_of], "pk, tombstone_until, tombstone_version"
        )
        return {
            ids_of[bytes(item["pk"]["B"])]: tombstone_of(item) for item in found if "tombstone_until" in item
        }

    def summaries(self, ids: Sequence[str]) -> list[FragmentSummary]:
        names = {each: self.names(each) for each in ids}
        found = self.client.get(
            FRAGMENTS,
            [items.key(name) for name in sorted(set(names.values()))],
            "pk, revision, epoch, identifiers, waiting",
        )
        by_name = {bytes(item["pk"]["B"]): item for item in found}
        return [_summary(each, by_name.get(names[each], {})) for each in ids]

    def erase(self, ids: Sequence[str], until: int) -> list[FragmentSummary]:
        self.mark_any()
        return self.client.each(lambda each: self._erase(each, until), ids)

    def unfinished(self) -> list[FragmentSummary]:
        return sorted(self._noted(UNFINISHED))

    def finish(self, ids: Sequence[str]) -> None:
        self.client.each(partial(self._finish, UNFINISHED), ids)

    def withdraw(self, versions: Mapping[str, int]) -> set[str]:
        self.mark_any()
        gone = self.client.each(lambda each: self._withdraw(*each), list(versions.items()))
        return {each for each, is_gone in zip(versions, gone, strict=True) if not is_gone}

    def withdrawn(self) -> dict[str, int]:
        return {each.fragment_id: each.version for each in self._noted(WITHDRAWN)}

    def forget_withdrawn(self, ids: Sequence[str]) -> None:
        self.client.each(partial(self._finish, WITHDRAWN), ids)

    def all_tombstones(self) -> dict[bytes, Tombstone]:
        return {bytes(item["pk"]["B"]): tombstone_of(item) for item in self.listed()}

    def reinstate(self, tombstones: Mapping[bytes, Tombstone]) -> int:
        if not tombstones:
            return 0
        self.mark_any()
        found = self.client.get(
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
        text = f'UPDATE "{self.table}" {cancelled}'
        lowest = items.number(NO_EPOCH)
        names = sorted({self.names(each) for each in ids})
        refusals = self.client.execute(
            FRAGMENTS, [Statement(text, [lowest, {"B": name}, lowest]) for name in names]
        )
        raise_refused(self.table, refusals)
        return refusals.count(None)

    def _erase(self, fragment_id: str, until: int) -> FragmentSummary:
        name = self.names(fragment_id)
        retry = Retry(self.table)
        while True:
            item = self.item(name)
            found = _summary(fragment_id, item)
            kept = tombstone_of(item).joined(found.tombstone(until))
            # An erasure that was interrupted took the rest: maybe this one, before the answer to its update was lost.
            erased = found._replace(
                version=kept.version, identifiers=found.identifiers | _identifiers(item, UNFINISHED)
            )
            if self._remove(name, item, UNFINISHED, erased, kept):
                return erased
            retry.pause("the fragment keeps changing")

    def _withdraw(self, fragment_id: str, version: int) -> bool:
        name = self.names(fragment_id)
        retry = Retry(self.table)
        while True:
            item = self.item(name)
            if "revision" not in item:
                return True
            if int(item["revision"]["N"]) != version:
                return False
            carried = items.identifiers(item) | _identifiers(item, WITHDRAWN)
            found = FragmentSummary(fragment_id, version, carried, False, items.epoch(item))
            if self._remove(name, item, WITHDRAWN, found, tombstone_of(item).joined(found.tombstone())):
                return True
            retry.pause("the fragment keeps changing")

    def _remove(
        self, name: bytes, item: Item, attribute: str, removed: FragmentSummary, kept: Tombstone
    ) -> bool:
        """Leave a tombstone of an item, and a note of what was removed; False if the item changed meanwhile."""
        note = json.dumps([removed.fragment_id, removed.version, sorted(removed.identifiers)])
        is_removed = self.update(
            name,
            item,
            f"SET tombstone_until=:b, tombstone_version=:v, emptied=:v, erased=:e, {attribute}=:n, {GONE}",
            {
                **values_of(kept),
                **gone_values(removed.fragment_id, name),
                ":e": items.shard(name),
                ":n": {"S": note},
            },
        )
        if is_removed:
            self.remove_due(name)
        return is_removed

    def _finish(self, attribute: str, fragment_id: str) -> None:
        """Take away the links of a note and the pages, then the note."""
        name = self.names(fragment_id)
        retry = Retry(self.table)
        while attribute in (item := self.item(name)):
            note = _note(item, attribute)
            for identifier in note.identifiers:
                self.unlink(identifier, name, note.version)
            self.remove_pages(name, note.version)
            if self.update(name, item, f"REMOVE {attribute}", {}):
                return
            retry.pause("the fragment keeps changing")

    def _noted(self, attribute: str) -> list[FragmentSummary]:
        names = [bytes(item["pk"]["B"]) for item in self.listed() if attribute in item]
        found = self.client.get(FRAGMENTS, [items.key(name) for name in names], attribute)
        return [_note(item, attribute) for item in found if attribute in item]

    def _join(self, name: bytes, tombstone: Tombstone, item: Item) -> None:
        retry = Retry(self.table)
        while not ("tombstone_until" in item and (kept := tombstone_of(item)) == kept.joined(tombstone)):
            kept = tombstone_of(item).joined(tombstone)
            values = {**values_of(kept), ":e": items.shard(name)}
            if self.update(name, item, "SET tombstone_until=:b, tombstone_version=:v, erased=:e", values):
                return
            retry.pause("the fragment keeps changing")
            item = self.item(name)


def _summary(fragment_id: str, item: Item) -> FragmentSummary:
    version = int(item["revision"]["N"]) if "revision" in item else NEW
    return FragmentSummary(
        fragment_id, version, items.identifiers(item), "waiting" in item, items.epoch(item)
    )


def _note(item: Item, attribute: str) -> FragmentSummary:
    fragment_id, version, identifiers = json.loads(item[attribute]["S"])
    return FragmentSummary(fragment_id, version, frozenset(identifiers), False)


def _identifiers(item: Item, attribute: str) -> frozenset[str]:
    return _note(item, attribute).identifiers if attribute in item else frozenset()
